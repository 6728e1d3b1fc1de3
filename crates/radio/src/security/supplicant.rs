//! The station's side of the four-way and group handshakes (IEEE 802.11-2020 sections 12.7.6 and 12.7.7).
//!
//! ```text
//!  access point                              station
//!      | 1: its random number  ----------------> |  derive the pair's keys
//!      | <------------------- 2: ours, signed    |
//!      | 3: group keys, signed, encrypted -----> |  check, answer, install
//!      | <------------------- 4: signed          |
//!      | group 1: new group keys --------------> |  check, answer, install
//!      | <------------- group 2: signed          |
//! ```
//!
//! A key that is in use is never installed again, whatever is repeated (CVE-2017-13077 to 13082).

use thiserror::Error;
use units::MacAddress;
use zeroize::Zeroizing;

use super::keys::{PairKeys, Parties, SharedKey};
use crate::frame::eapol::{KeyFrame, KeyInformation, with_mic};
use crate::frame::{Elements, FrameError, KeyManagement, RSN_ELEMENT, RobustSecurity, write_element};

const VENDOR_ELEMENT: u8 = 0xdd;
const GROUP_KEY: [u8; 4] = [0x00, 0x0f, 0xac, 1];
const INTEGRITY_KEY: [u8; 4] = [0x00, 0x0f, 0xac, 9];

/// Why a key frame is not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    /// Not a key frame of this kind of network.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Its counter was used already.
    #[error("a key frame was replayed")]
    Replayed,
    /// Wrongly signed: changed on the way, or the passphrases differ.
    #[error("a key frame does not fit its signature")]
    Forged,
    /// Not the next step.
    #[error("a key frame out of turn")]
    Unexpected,
    /// The network says in message 3 that it is protected otherwise than its beacons said.
    #[error("the network is protected otherwise than its beacons said")]
    Downgraded,
    /// No usable group key.
    #[error("message 3 has no usable group key")]
    NoGroupKey,
}

/// The key of frames to all stations.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey {
    /// The key.
    pub key: Zeroizing<[u8; 16]>,
    /// Its number, 1 or 2.
    pub number: u8,
    /// The last packet number sent with it.
    pub received: u64,
}

/// The key of management frames to all stations.
#[derive(Clone, PartialEq, Eq)]
pub struct IntegrityKey {
    /// The key.
    pub key: Zeroizing<[u8; 16]>,
    /// Its number, 4 or 5.
    pub number: u16,
    /// The last packet number sent with it.
    pub received: u64,
}

/// What follows from a key frame.
pub struct Progress {
    /// The EAPOL frame to answer with.
    pub reply: Vec<u8>,
    /// The pair's key, to be used after the answer is sent.
    pub pair: Option<Zeroizing<[u8; 16]>>,
    /// The group's key.
    pub group: Option<GroupKey>,
    /// The key for management frames.
    pub integrity: Option<IntegrityKey>,
}

impl Progress {
    /// Whether it only answers the first message: nothing is agreed on yet.
    pub fn is_first_answer(&self) -> bool {
        self.pair.is_none() && self.group.is_none() && self.integrity.is_none()
    }
}

/// A station's handshake with one access point.
pub struct Supplicant {
    shared: SharedKey,
    access_point: MacAddress,
    station: MacAddress,
    /// What we said in the association request, and what the network said in its beacons.
    chosen: RobustSecurity,
    announced: RobustSecurity,
    management: KeyManagement,
    /// Of the frames that were signed rightly.
    replay_counter: Option<u64>,
    keys: Option<(Parties, PairKeys)>,
    installed: bool,
}

impl Supplicant {
    /// Begins with an association. `chosen` names exactly one key management.
    pub fn new(
        shared: SharedKey,
        access_point: MacAddress,
        station: MacAddress,
        announced: RobustSecurity,
        chosen: RobustSecurity,
    ) -> Self {
        let management = chosen.key_management.first().copied().unwrap_or(KeyManagement::Psk);
        Self {
            shared,
            access_point,
            station,
            chosen,
            announced,
            management,
            replay_counter: None,
            keys: None,
            installed: false,
        }
    }

    /// Whether the pair's key is in use.
    pub fn is_finished(&self) -> bool {
        self.installed
    }

    /// Takes an EAPOL frame. `nonce` is a fresh random number for the case that one is needed.
    ///
    /// # Errors
    /// Frames that are no part of a handshake that could succeed; nothing changes then.
    pub fn handle(&mut self, payload: &[u8], nonce: [u8; 32]) -> Result<Progress, KeyError> {
        let (frame, signed) = KeyFrame::parse(payload)?;
        let information = frame.information;
        let expected = if self.management == KeyManagement::PskSha256 { 0..=3 } else { 2..=2 };
        if !expected.contains(&information.version)
            || !information.acknowledge
            || information.error_or_request
        {
            return Err(KeyError::Unexpected);
        }
        if self.replay_counter.is_some_and(|counter| frame.replay_counter <= counter) {
            return Err(KeyError::Replayed);
        }
        match (information.pairwise, information.signed) {
            (true, false) => self.first(&frame, nonce),
            (true, true) => self.third(&frame, signed),
            (false, true) => self.group(&frame, signed),
            (false, false) => Err(KeyError::Unexpected),
        }
    }

    fn first(&mut self, frame: &KeyFrame<'_>, nonce: [u8; 32]) -> Result<Progress, KeyError> {
        // The same random number again is a repeat: the same answer keeps both sides' keys equal.
        let repeated = self.keys.as_ref().filter(|(parties, _)| parties.access_point_nonce == frame.nonce);
        let station_nonce = repeated.map_or(nonce, |(parties, _)| parties.station_nonce);
        let parties = Parties {
            access_point: self.access_point,
            station: self.station,
            access_point_nonce: frame.nonce,
            station_nonce,
        };
        if repeated.is_none() {
            let keys = PairKeys::derive(&self.shared, &parties, self.management);
            self.keys = Some((parties, keys));
            self.installed = false;
        }
        let mut data = Vec::new();
        write_element(&mut data, RSN_ELEMENT, &self.chosen.to_bytes());
        let information = KeyInformation { pairwise: true, signed: true, ..self.answer(frame) };
        let reply = self.reply(frame, information, station_nonce, &data)?;
        Ok(Progress { reply, pair: None, group: None, integrity: None })
    }

    fn third(&mut self, frame: &KeyFrame<'_>, signed: &[u8]) -> Result<Progress, KeyError> {
        let (parties, keys) = self.keys.as_ref().ok_or(KeyError::Unexpected)?;
        if !frame.information.install || frame.nonce != parties.access_point_nonce {
            return Err(KeyError::Unexpected);
        }
        let data = self.checked_data(keys, frame, signed)?;
        let elements = Elements::parse(&data)?;
        if elements.security()?.as_ref() != Some(&self.announced) {
            return Err(KeyError::Downgraded);
        }
        let group = group_key(elements, frame).ok_or(KeyError::NoGroupKey)?;
        let pair = (!self.installed).then(|| keys.temporal.clone());
        let information = KeyInformation { pairwise: true, signed: true, secure: true, ..self.answer(frame) };
        let reply = self.reply(frame, information, [0; 32], &[])?;
        self.replay_counter = Some(frame.replay_counter);
        self.installed = true;
        Ok(Progress { reply, pair, group: Some(group), integrity: integrity_key(elements) })
    }

    fn group(&mut self, frame: &KeyFrame<'_>, signed: &[u8]) -> Result<Progress, KeyError> {
        let (_, keys) = self.keys.as_ref().filter(|_| self.installed).ok_or(KeyError::Unexpected)?;
        let data = self.checked_data(keys, frame, signed)?;
        let elements = Elements::parse(&data)?;
        let group = group_key(elements, frame);
        let integrity = integrity_key(elements);
        if group.is_none() && integrity.is_none() {
            return Err(KeyError::NoGroupKey);
        }
        let information = KeyInformation { signed: true, secure: true, ..self.answer(frame) };
        let reply = self.reply(frame, information, [0; 32], &[])?;
        self.replay_counter = Some(frame.replay_counter);
        Ok(Progress { reply, pair: None, group, integrity })
    }

    /// Key data of a frame whose signature is right.
    fn checked_data(
        &self,
        keys: &PairKeys,
        frame: &KeyFrame<'_>,
        signed: &[u8],
    ) -> Result<Zeroizing<Vec<u8>>, KeyError> {
        let expected = keys.sign(&with_mic(signed, [0; 16]), self.management);
        // Compared without stopping at the first difference.
        let difference = expected.iter().zip(frame.mic).fold(0, |bits, (a, b)| bits | (a ^ b));
        if difference != 0 {
            return Err(KeyError::Forged);
        }
        if !frame.information.encrypted {
            return Err(KeyError::NoGroupKey);
        }
        keys.unwrap_data(frame.data).ok_or(KeyError::Forged)
    }

    fn answer(&self, frame: &KeyFrame<'_>) -> KeyInformation {
        KeyInformation { version: frame.information.version, ..KeyInformation::default() }
    }

    fn reply(
        &self,
        request: &KeyFrame<'_>,
        information: KeyInformation,
        nonce: [u8; 32],
        data: &[u8],
    ) -> Result<Vec<u8>, KeyError> {
        let (_, keys) = self.keys.as_ref().ok_or(KeyError::Unexpected)?;
        let (replay_counter, receive_counter, mic) = (request.replay_counter, [0; 8], [0; 16]);
        let frame = KeyFrame { information, replay_counter, nonce, receive_counter, mic, data }.to_bytes();
        Ok(with_mic(&frame, keys.sign(&frame, self.management)))
    }
}

fn keys_of(elements: Elements<'_>, kind: [u8; 4]) -> Option<&[u8]> {
    let mut found = elements.iter().filter(|element| element.number == VENDOR_ELEMENT);
    found.find_map(|element| element.body.strip_prefix(&kind))
}

fn group_key(elements: Elements<'_>, frame: &KeyFrame<'_>) -> Option<GroupKey> {
    let [number, _, key @ ..] = keys_of(elements, GROUP_KEY)? else { return None };
    let key: [u8; 16] = key.try_into().ok()?;
    let number = number & 3;
    (number != 0).then(|| GroupKey {
        key: Zeroizing::new(key),
        number,
        received: u64::from_le_bytes(frame.receive_counter) & ((1 << 48) - 1),
    })
}

fn integrity_key(elements: Elements<'_>) -> Option<IntegrityKey> {
    let [a, b, p0, p1, p2, p3, p4, p5, key @ ..] = keys_of(elements, INTEGRITY_KEY)? else { return None };
    let key: [u8; 16] = key.try_into().ok()?;
    let number = u16::from_le_bytes([*a, *b]);
    matches!(number, 4 | 5).then(|| IntegrityKey {
        key: Zeroizing::new(key),
        number,
        received: u64::from_le_bytes([*p0, *p1, *p2, *p3, *p4, *p5, 0, 0]),
    })
}
