use super::ccmp::{Key, OpenError};
use super::keys::{PairKeys, Parties};
use super::*;
use crate::frame::{Header, Kind, KeyManagement};
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
