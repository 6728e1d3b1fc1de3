use super::ccmp::{Key, OpenError};
use super::keys::{PairKeys, Parties};
use super::*;
use crate::frame::eapol::{KeyFrame, KeyInformation, with_mic};
use crate::frame::{Cipher, Header, KeyManagement, Kind, RSN_ELEMENT, RobustSecurity, write_element};
use units::MacAddress;

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    assert_eq!(digits.len(), 2 * N);
    let byte = |at: usize| u8::from_str_radix(std::str::from_utf8(&digits[2 * at..2 * at + 2]).unwrap(), 16);
    std::array::from_fn(|at| byte(at).unwrap())
}

#[test]
fn passphrases_give_the_keys_of_the_standard() {
    // IEEE 802.11-2020 section J.4.2: passphrase "password" in the network "IEEE".
    let key = Passphrase::new("password").unwrap().shared_key(b"IEEE");
    let raw = Passphrase::new("f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e").unwrap();
    let parties = || Parties {
        access_point: MacAddress([1; 6]),
        station: MacAddress([2; 6]),
        access_point_nonce: [3; 32],
        station_nonce: [4; 32],
    };
    for management in [KeyManagement::Psk, KeyManagement::PskSha256] {
        let derived = PairKeys::derive(&key, &parties(), management);
        let same = PairKeys::derive(&raw.shared_key(b"other"), &parties(), management);
        assert_eq!(derived.temporal, same.temporal);
    }
}

#[test]
fn what_is_no_passphrase_is_named() {
    assert_eq!(Passphrase::new("short").unwrap_err(), PassphraseError::Length(5));
    assert_eq!(Passphrase::new(&"x".repeat(64)).unwrap_err(), PassphraseError::Hexadecimal);
    assert_eq!(Passphrase::new("zw\u{f6}lf Zeichen").unwrap_err(), PassphraseError::Character);
    assert_eq!(format!("{:?}", Passphrase::new("very secret").unwrap()), "Passphrase");
}

#[test]
fn a_frame_is_sealed_as_the_standard_shows() {
    // IEEE 802.11-2020 section J.6.4.
    let frame: [u8; 24] = hex("08 48 c3 2c 0f d2 e1 28 a5 7c 50 30 f1 84 44 08 ab ae a5 b8 fc ba 80 33");
    let plain: [u8; 20] = hex("f8 ba 1a 55 d0 2f 85 ae 96 7b b6 2f b6 cd a8 eb 7e 78 a0 50");
    let sealed: [u8; 36] = hex(
        "0c e7 00 20 76 97 03 b5 f3 d0 a2 fe 9a 3d bf 23 42 a6 43 e4 32 46 e8 0c 3c 04 d0 19 78 45 ce 0b 16 f9 76 23",
    );
    let key: [u8; 16] = hex("c9 7c 1f 67 ce 37 11 85 51 4a 8a 19 f2 bd d5 2f");
    let number = 0xb503_9776_e70c;
    let (header, _) = Header::parse(&frame).unwrap();
    let opened = Key::new(&key, 0, number - 1).open(&header, &sealed).unwrap();
    assert_eq!((opened.body.as_slice(), opened.number), (plain.as_slice(), number));
    let (mut receiver, mut changed) = (Key::new(&key, 0, 0), sealed);
    changed[20] ^= 1;
    assert_eq!(receiver.open(&header, &changed), Err(OpenError::Forged));
    receiver.open(&header, &sealed).unwrap();
    assert_eq!(receiver.open(&header, &sealed), Err(OpenError::Replayed));
    assert_eq!(Key::new(&key, 0, 0).open(&header, &sealed[..15]), Err(OpenError::Truncated));
}

#[test]
fn what_is_sealed_is_opened_and_what_may_change_may_change() {
    let (mut sender, mut receiver) = (Key::new(&[7; 16], 0, 0), Key::new(&[7; 16], 0, 0));
    let addresses = [MacAddress([1; 6]), MacAddress([2; 6]), MacAddress([3; 6])];
    for kind in [Kind::Data, Kind::QosData, Kind::Deauthentication] {
        let mut header = Header::new(kind, addresses[0], addresses[1], addresses[2]);
        header.control.protected = true;
        let mut body = Vec::new();
        sender.seal(&header, b"hello", &mut body).unwrap();
        header.control.retry = true;
        header.control.power_save = true;
        header.sequence.number = 99;
        assert_eq!(receiver.open(&header, &body).unwrap().body, b"hello");
        header.third = addresses[0];
        sender.seal(&Header { third: addresses[2], ..header }, b"hello", &mut Vec::new()).unwrap();
        assert!(receiver.open(&header, &body).is_err());
    }
}

/// The access point's side, as far as these tests need it.
struct Authenticator {
    keys: Option<PairKeys>,
    counter: u64,
    security: RobustSecurity,
}

const ACCESS_POINT: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 2]);
const NONCE: [u8; 32] = [0x11; 32];

impl Authenticator {
    fn management(&self) -> KeyManagement {
        self.security.key_management[0]
    }

    fn frame(&mut self, information: KeyInformation, data: &[u8]) -> Vec<u8> {
        self.counter += 1;
        let frame = KeyFrame {
            information: KeyInformation { version: 2, acknowledge: true, ..information },
            replay_counter: self.counter,
            nonce: NONCE,
            receive_counter: [9, 0, 0, 0, 0, 0, 0, 0],
            mic: [0; 16],
            data,
        };
        let bytes = frame.to_bytes();
        match &self.keys {
            Some(keys) if information.signed => with_mic(&bytes, keys.sign(&bytes, self.management())),
            _ => bytes,
        }
    }

    fn first(&mut self) -> Vec<u8> {
        self.frame(KeyInformation { pairwise: true, ..Default::default() }, &[])
    }

    /// Takes message 2 and gives message 3.
    fn third(&mut self, shared: &SharedKey, second: &[u8], group: [u8; 16]) -> Vec<u8> {
        let (frame, signed) = KeyFrame::parse(second).unwrap();
        let parties = Parties {
            access_point: ACCESS_POINT,
            station: STATION,
            access_point_nonce: NONCE,
            station_nonce: frame.nonce,
        };
        let keys = PairKeys::derive(shared, &parties, self.management());
        assert_eq!(keys.sign(&with_mic(signed, [0; 16]), self.management()), frame.mic);
        self.keys = Some(keys);
        let mut data = Vec::new();
        write_element(&mut data, RSN_ELEMENT, &self.security.to_bytes());
        self.message(true, data, group)
    }

    fn message(&mut self, pairwise: bool, mut data: Vec<u8>, group: [u8; 16]) -> Vec<u8> {
        write_element(&mut data, 0xdd, &[[0x00, 0x0f, 0xac, 1, 1, 0].as_slice(), &group].concat());
        data.push(0xdd);
        data.resize(data.len().next_multiple_of(8), 0);
        let mut wrapped = vec![0; data.len() + 8];
        aes_kw::KekAes128::from(*self.keys.as_ref().unwrap().encryption).wrap(&data, &mut wrapped).unwrap();
        let information = KeyInformation {
            pairwise,
            install: pairwise,
            signed: true,
            secure: true,
            encrypted: true,
            ..Default::default()
        };
        self.frame(information, &wrapped)
    }
}

fn network(management: KeyManagement) -> RobustSecurity {
    RobustSecurity {
        group: Cipher::Ccmp,
        pairwise: vec![Cipher::Ccmp],
        key_management: vec![management],
        protection_offered: false,
        protection_required: false,
        group_management: Cipher::Bip,
    }
}

fn parties(passphrase: &str, management: KeyManagement) -> (Authenticator, Supplicant, SharedKey) {
    let shared = Passphrase::new(passphrase).unwrap().shared_key(b"home");
    let security = network(management);
    let supplicant =
        Supplicant::new(shared.clone(), ACCESS_POINT, STATION, security.clone(), security.clone());
    (Authenticator { keys: None, counter: 0, security }, supplicant, shared)
}

#[test]
fn a_handshake_agrees_on_keys_and_a_repeat_installs_nothing() {
    for management in [KeyManagement::Psk, KeyManagement::PskSha256] {
        let (mut access_point, mut station, shared) = parties("a good passphrase", management);
        let second = station.handle(&access_point.first(), [1; 32]).unwrap();
        assert!(second.is_first_answer());
        // The first message once more: the same random number, or both sides' keys would differ.
        let again = station.handle(&access_point.first(), [2; 32]).unwrap();
        assert_eq!(KeyFrame::parse(&again.reply).unwrap().0.nonce, [1; 32]);
        let third = access_point.third(&shared, &again.reply, [7; 16]);
        let installed = station.handle(&third, [3; 32]).ok().unwrap();
        assert_eq!(installed.pair.as_deref(), Some(&*access_point.keys.as_ref().unwrap().temporal));
        let group = installed.group.unwrap();
        assert_eq!((*group.key, group.number, group.received), ([7; 16], 1, 9));
        assert!(station.is_finished());
        assert_eq!(station.handle(&third, [3; 32]).err(), Some(KeyError::Replayed));
        let repeated = access_point.third(&shared, &again.reply, [7; 16]);
        let answer = station.handle(&repeated, [3; 32]).ok().unwrap();
        assert!(answer.pair.is_none(), "a key in use is not installed again");
        // New group keys.
        let group = access_point.message(false, Vec::new(), [8; 16]);
        let answer = station.handle(&group, [3; 32]).ok().unwrap();
        assert_eq!(*answer.group.unwrap().key, [8; 16]);
    }
}

#[test]
fn forged_and_misplaced_key_frames_change_nothing() {
    let (mut access_point, mut station, shared) = parties("a good passphrase", KeyManagement::Psk);
    let second = station.handle(&access_point.first(), [1; 32]).unwrap();
    let mut third = access_point.third(&shared, &second.reply, [7; 16]);
    let last = third.len() - 1;
    third[last] ^= 1;
    assert_eq!(station.handle(&third, [3; 32]).err(), Some(KeyError::Forged));
    third[last] ^= 1;
    for length in 0..third.len() {
        assert!(station.handle(&third[..length], [3; 32]).is_err());
    }
    let group = access_point.message(false, Vec::new(), [8; 16]);
    assert_eq!(station.handle(&group, [3; 32]).err(), Some(KeyError::Unexpected), "before message 3");
    access_point.security.pairwise.push(Cipher::Tkip);
    let downgraded = access_point.third(&shared, &second.reply, [7; 16]);
    assert_eq!(station.handle(&downgraded, [3; 32]).err(), Some(KeyError::Downgraded));
    assert!(!station.is_finished());
    assert!(station.handle(&third, [3; 32]).is_ok(), "the right one still passes");
}

#[test]
fn another_passphrase_is_noticed_by_the_access_point() {
    let (mut access_point, mut station, _) = parties("the wrong passphrase", KeyManagement::Psk);
    let second = station.handle(&access_point.first(), [1; 32]).unwrap();
    let (frame, signed) = KeyFrame::parse(&second.reply).unwrap();
    let right = Passphrase::new("a good passphrase").unwrap().shared_key(b"home");
    let parties = Parties {
        access_point: ACCESS_POINT,
        station: STATION,
        access_point_nonce: NONCE,
        station_nonce: frame.nonce,
    };
    let keys = PairKeys::derive(&right, &parties, KeyManagement::Psk);
    assert_ne!(keys.sign(&with_mic(signed, [0; 16]), KeyManagement::Psk), frame.mic);
}
