//! One association: its keys, and the way of frames through them in both directions.

use units::{Frequency, MacAddress};

use crate::frame::data::{EAPOL_TYPE, Packet, aggregated};
use crate::frame::{Header, Kind, RobustSecurity};
use crate::rates::RateChoice;
use crate::reception::{Duplicates, Pieces};
use crate::security::{KeyError, Progress, Supplicant, bip, ccmp};

/// What a frame from the access point brought.
#[derive(Debug)]
pub(crate) enum Brought {
    /// Packets for the interface, as Ethernet frames.
    Packets(Vec<Vec<u8>>),
    /// A frame of a key handshake.
    Keys(Vec<u8>),
    /// The body of a management frame, with whatever protection taken off and checked.
    Management(Vec<u8>),
    /// A management frame that should be protected and is not.
    Unprotected,
    /// Nothing: a repeat, a piece, an empty frame.
    Nothing,
    /// A frame that was dropped since it does not fit the keys.
    Dropped,
}

/// A station's association with an access point.
pub(crate) struct Link {
    pub bssid: MacAddress,
    pub frequency: Frequency,
    /// The number that the access point gave us, 1 to 2,007.
    pub association: u16,
    pub rates: RateChoice,
    own: MacAddress,
    security: Option<Keys>,
    duplicates: Duplicates,
    pieces: Pieces,
}

struct Keys {
    supplicant: Supplicant,
    pair: Option<ccmp::Key>,
    groups: [Option<ccmp::Key>; 4],
    integrity: Option<bip::Key>,
    management_protected: bool,
    /// A frame that was encrypted to us has arrived: from now on nothing goes in the clear.
    confirmed: bool,
    /// How often we answered the first message since the last success.
    answered: u8,
}

impl Link {
    pub fn new(
        own: MacAddress,
        bssid: MacAddress,
        frequency: Frequency,
        association: u16,
        rates: RateChoice,
        keys: Option<(Supplicant, RobustSecurity)>,
    ) -> Self {
        let security = keys.map(|(supplicant, chosen)| Keys {
            supplicant,
            pair: None,
            groups: [const { None }; 4],
            integrity: None,
            management_protected: chosen.protection_offered,
            confirmed: false,
            answered: 0,
        });
        let (duplicates, pieces) = (Duplicates::default(), Pieces::default());
        Self { bssid, frequency, association, rates, own, security, duplicates, pieces }
    }

    /// Whether its data is encrypted, so that no one else can send any.
    pub fn is_protected(&self) -> bool {
        self.security.is_some()
    }

    /// Whether packets can pass.
    pub fn is_open(&self) -> bool {
        self.security.as_ref().is_none_or(|keys| keys.supplicant.is_finished())
    }

    /// Whether the access point went on asking for the same answer: the passphrases differ.
    pub fn is_refusing_our_key(&self) -> bool {
        self.security.as_ref().is_some_and(|keys| !keys.supplicant.is_finished() && keys.answered >= 2)
    }

    /// The frame that carries a packet; `None` if it cannot be sent now.
    pub fn seal(&mut self, packet: &Packet<'_>, sequence: u16, power_save: bool) -> Option<Vec<u8>> {
        let mut header = Header::new(Kind::Data, self.bssid, self.own, packet.destination);
        header.control.to_access_point = true;
        header.control.power_save = power_save;
        header.sequence.number = sequence;
        let mut body = Vec::with_capacity(8 + packet.payload.len());
        packet.write_body(&mut body);
        let pair = self.security.as_mut().map(|keys| keys.pair.as_mut());
        let is_keys = packet.ethernet_type == EAPOL_TYPE;
        seal(header, &body, pair, is_keys)
    }

    /// A management frame to the access point, protected where that is agreed on.
    pub fn seal_management(&mut self, kind: Kind, body: &[u8], sequence: u16) -> Option<Vec<u8>> {
        let mut header = Header::new(kind, self.bssid, self.own, self.bssid);
        header.sequence.number = sequence;
        let protected = self.security.as_mut().filter(|keys| keys.management_protected);
        let pair = protected.and_then(|keys| keys.pair.as_mut());
        seal(header, body, pair.map(Some), false)
    }

    /// An empty frame that tells whether we sleep.
    pub fn null(&self, sequence: u16, power_save: bool) -> Vec<u8> {
        let mut header = Header::new(Kind::Null, self.bssid, self.own, self.bssid);
        header.control.to_access_point = true;
        header.control.power_save = power_save;
        header.sequence.number = sequence;
        let mut frame = Vec::with_capacity(24);
        header.write(&mut frame);
        frame
    }

    /// Takes a frame that this access point sent, to us or to a group.
    pub fn receive(&mut self, header: &Header, body: &[u8]) -> Brought {
        if self.duplicates.is_repeat(header) {
            return Brought::Nothing;
        }
        if header.control.kind.is_management() {
            self.duplicates.note(header);
            return self.receive_management(header, body);
        }
        if !header.control.from_access_point || !matches!(header.control.kind, Kind::Data | Kind::QosData) {
            return Brought::Nothing;
        }
        let (body, sealed) = match self.open(header, body) {
            Ok(opened) => opened,
            Err(()) => return Brought::Dropped,
        };
        self.duplicates.note(header);
        let aggregate = header.is_aggregate();
        let Some(body) = self.pieces.join(header, body, sealed) else { return Brought::Nothing };
        if aggregate {
            let packets = aggregated(&body).filter(|packet| packet.ethernet_type != EAPOL_TYPE);
            let ours =
                packets.filter(|packet| packet.destination == self.own || packet.destination.is_group());
            return Brought::Packets(ours.map(|packet| packet.to_ethernet()).collect());
        }
        let Ok(packet) = Packet::from_body(header.source(), header.destination(), &body) else {
            return Brought::Dropped;
        };
        if packet.ethernet_type == EAPOL_TYPE {
            let right = packet.source == self.bssid && packet.destination == self.own;
            return if right { Brought::Keys(packet.payload.to_vec()) } else { Brought::Dropped };
        }
        // Not before the keys are agreed on; not what we sent to a group ourselves.
        if sealed.is_none() && self.security.is_some() || packet.source == self.own {
            return Brought::Dropped;
        }
        Brought::Packets(vec![packet.to_ethernet()])
    }

    /// Takes a frame of a key handshake; `None` in an open network. `nonce`: a fresh random number. The answer is to be sent before
    /// [`Self::install`] is called: by the keys that were in use until then.
    pub fn handle_keys(&mut self, payload: &[u8], nonce: [u8; 32]) -> Option<Result<Progress, KeyError>> {
        let keys = self.security.as_mut()?;
        let progress = keys.supplicant.handle(payload, nonce);
        if progress.as_ref().is_ok_and(Progress::is_first_answer) {
            keys.answered = keys.answered.saturating_add(1);
        }
        Some(progress)
    }

    /// Puts keys to use that were agreed on. One that is in use already stays as it is.
    pub fn install(&mut self, progress: Progress) {
        let Some(keys) = &mut self.security else { return };
        if let Some(key) = progress.pair {
            keys.pair = Some(ccmp::Key::new(&key, 0, 0));
            keys.confirmed = false;
            keys.answered = 0;
            self.pieces.clear();
        }
        if let Some(group) = progress.group {
            let place = &mut keys.groups[usize::from(group.number)];
            if !place.as_ref().is_some_and(|key| key.is(&group.key)) {
                *place = Some(ccmp::Key::new(&group.key, group.number, group.received));
            }
        }
        let known = |key: &[u8; 16]| keys.integrity.as_ref().is_some_and(|old| old.is(key));
        if let Some(key) = progress.integrity.filter(|key| !known(&key.key)) {
            keys.integrity = Some(bip::Key::new(&key.key, key.number, key.received));
        }
    }

    /// The body of a data frame in the clear, with its packet number if it was encrypted.
    fn open(&mut self, header: &Header, body: &[u8]) -> Result<(Vec<u8>, Option<u64>), ()> {
        let Some(keys) = &mut self.security else {
            return if header.control.protected { Err(()) } else { Ok((body.to_vec(), None)) };
        };
        if !header.control.protected {
            // The frames of the handshake itself, until both have the keys.
            let plain = !header.receiver.is_group() && !header.is_aggregate() && !keys.confirmed;
            return if plain { Ok((body.to_vec(), None)) } else { Err(()) };
        }
        let group = header.receiver.is_group();
        let key = if group {
            ccmp::key_number(body).and_then(|number| keys.groups[usize::from(number & 3)].as_mut())
        } else {
            keys.pair.as_mut()
        };
        let opened = key.ok_or(())?.open(header, body).map_err(|_| ())?;
        keys.confirmed |= !group;
        Ok((opened.body, Some(opened.number)))
    }

    fn receive_management(&mut self, header: &Header, body: &[u8]) -> Brought {
        let robust =
            matches!(header.control.kind, Kind::Deauthentication | Kind::Disassociation | Kind::Action);
        let Some(keys) =
            self.security.as_mut().filter(|keys| robust && keys.management_protected && keys.pair.is_some())
        else {
            return if header.control.protected {
                Brought::Dropped
            } else {
                Brought::Management(body.to_vec())
            };
        };
        if header.receiver.is_group() {
            let signed = keys.integrity.as_mut().is_some_and(|key| key.verify(header, body));
            return if signed { Brought::Management(body.to_vec()) } else { Brought::Unprotected };
        }
        if !header.control.protected {
            return Brought::Unprotected;
        }
        let opened = keys.pair.as_mut().map(|key| key.open(header, body));
        match opened {
            Some(Ok(opened)) => Brought::Management(opened.body),
            _ => Brought::Dropped,
        }
    }
}

/// A frame from its header and body. `pair`: the key, where the network is protected; without one only frames of the handshake pass.
fn seal(
    mut header: Header,
    body: &[u8],
    pair: Option<Option<&mut ccmp::Key>>,
    is_keys: bool,
) -> Option<Vec<u8>> {
    let mut frame = Vec::with_capacity(24 + 16 + body.len());
    match pair {
        Some(Some(key)) => {
            header.control.protected = true;
            header.write(&mut frame);
            key.seal(&header, body, &mut frame)?;
        }
        Some(None) if !is_keys => return None,
        _ => {
            header.write(&mut frame);
            frame.extend_from_slice(body);
        }
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::airtime::Flavour;
    use crate::frame::{Cipher, KeyManagement};
    use crate::security::Passphrase;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
    const BSSID: MacAddress = MacAddress([2, 0, 0, 0, 1, 0]);

    fn protected() -> (Link, ccmp::Key) {
        let security = RobustSecurity {
            group: Cipher::Ccmp,
            pairwise: vec![Cipher::Ccmp],
            key_management: vec![KeyManagement::Psk],
            protection_offered: false,
            protection_required: false,
            group_management: Cipher::Bip,
        };
        let shared = Passphrase::new("correct horse").unwrap().shared_key(b"home");
        let supplicant = Supplicant::new(shared, BSSID, OWN, security.clone(), security.clone());
        let rates = RateChoice::new(Flavour::G, &[Rate(12)], Rate(12));
        let mut link = Link::new(OWN, BSSID, Frequency(2_412), 1, rates, Some((supplicant, security)));
        let keys = link.security.as_mut().unwrap();
        (keys.pair, keys.confirmed) = (Some(ccmp::Key::new(&[7; 16], 0, 0)), true);
        (link, ccmp::Key::new(&[7; 16], 0, 0))
    }

    fn header(number: u16, retry: bool) -> Header {
        let mut header = Header::new(Kind::Data, OWN, BSSID, BSSID);
        (header.control.from_access_point, header.control.protected) = (true, true);
        (header.sequence.number, header.control.retry) = (number, retry);
        header
    }

    /// Of the frame that a stranger sends under the next number nothing is kept: neither that it came, nor that the next one repeats it.
    #[test]
    fn forged_frames_do_not_pass_for_the_first_of_two() {
        let (mut link, mut key) = protected();
        let mut sent = |number, retry| {
            let (mut body, mut sealed) = (Vec::new(), Vec::new());
            let packet =
                Packet { destination: OWN, source: BSSID, ethernet_type: 0x0800, payload: &[1, 2, 3] };
            packet.write_body(&mut body);
            let header = header(number, retry);
            key.seal(&header, &body, &mut sealed).unwrap();
            (header, sealed)
        };
        let (first, sealed) = sent(1, false);
        assert!(matches!(link.receive(&first, &sealed), Brought::Packets(packets) if packets.len() == 1));
        let again = Header { control: crate::frame::FrameControl { retry: true, ..first.control }, ..first };
        assert!(matches!(link.receive(&again, &sealed), Brought::Nothing), "a repeat");
        let elsewhere = header(900, true);
        assert!(matches!(link.receive(&elsewhere, &sealed), Brought::Dropped), "replayed");
        for retry in [false, true] {
            assert!(matches!(link.receive(&header(2, retry), &[0x20; 60]), Brought::Dropped), "{retry}");
        }
        let (second, sealed) = sent(2, true);
        assert!(matches!(link.receive(&second, &sealed), Brought::Packets(packets) if packets.len() == 1));
    }
}
