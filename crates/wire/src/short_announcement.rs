//! Announcements to peers in reach of Bluetooth: service data of a Low Energy advertisement (Bluetooth Core Supplement, part A 1.11), which has room for
//! one peer or one group at a time.
//!
//! ```text
//! UUID   0a91WWWW-1345-4f8e-9731-06fb4e5ee693      WWWW: what is served, 0001 files, 0002 chat, 0003 ports
//! data   nonce (3) | sealed: device address (6), port (2) | tag (2)
//! ```
//!
//! Nonce and tags of [`crate::announcement`] alone would be longer than all of it, so they are shorter here: of 65,536 announcements of others one is taken for that of a
//! known peer, and one more for each further peer or member that is known, which is a call in vain. For a group the seal is of a key that is made of the group's and the announcer's. Anybody in reach can say anything; whoever is called must have the key.

use units::MacAddress;

use crate::announcement::{CHAT, FILES, PORTS};
use crate::peer::PeerAddress;

/// What makes each announcement another.
pub const SHORT_NONCE_LEN: usize = 3;
/// Where to call, in the clear.
pub const PLACE_LEN: usize = 8;
/// The same sealed for a peer, with a tag.
pub const SEALED_PLACE_LEN: usize = PLACE_LEN + 2;
/// The whole.
pub const SHORT_ANNOUNCEMENT_LEN: usize = SHORT_NONCE_LEN + SEALED_PLACE_LEN;

/// What comes before and after the four digits of what is served.
const UUID_BEGINS: &str = "0a91";
const UUID_ENDS: &str = "-1345-4f8e-9731-06fb4e5ee693";
/// By their numbers, from 1.
const WORDS: [&str; 3] = [FILES, CHAT, PORTS];

/// What is served, of those things that have a number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Served(u16);

impl Served {
    /// The thing that a word stands for in other announcements; `None` if it has no number.
    pub fn of_word(word: &str) -> Option<Self> {
        (1..).zip(WORDS).find_map(|(number, known)| (known == word).then_some(Self(number)))
    }

    /// The word.
    pub fn word(self) -> &'static str {
        WORDS.get(usize::from(self.0).wrapping_sub(1)).copied().unwrap_or_default()
    }

    /// The thing that a UUID stands for; `None` for UUIDs of others.
    pub fn of_uuid(uuid: &str) -> Option<Self> {
        let digits = uuid.strip_prefix(UUID_BEGINS)?.strip_suffix(UUID_ENDS)?;
        let is_plain = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
        let number = u16::from_str_radix(digits, 16).ok().filter(|_| is_plain)?;
        (1..=WORDS.len()).contains(&number.into()).then_some(Self(number))
    }

    /// The UUID, in small letters.
    pub fn uuid(self) -> String {
        format!("{UUID_BEGINS}{:04x}{UUID_ENDS}", self.0)
    }

    /// What a seal is bound to beside the peer: the number and the nonce.
    pub fn context(self, nonce: [u8; SHORT_NONCE_LEN]) -> [u8; 2 + SHORT_NONCE_LEN] {
        let ([high, low], [a, b, c]) = (self.0.to_be_bytes(), nonce);
        [high, low, a, b, c]
    }
}

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShortAnnouncement {
    /// Never used again for the same peer, as far as its length allows.
    pub nonce: [u8; SHORT_NONCE_LEN],
    /// Where to call.
    pub sealed: [u8; SEALED_PLACE_LEN],
}

impl ShortAnnouncement {
    /// From service data; `None` if it has another length.
    pub fn read(data: &[u8]) -> Option<Self> {
        let (nonce, sealed) = data.split_first_chunk()?;
        Some(Self { nonce: *nonce, sealed: sealed.try_into().ok()? })
    }

    /// The service data.
    pub fn data(&self) -> [u8; SHORT_ANNOUNCEMENT_LEN] {
        let mut data = [0; SHORT_ANNOUNCEMENT_LEN];
        let (nonce, sealed) = data.split_at_mut(SHORT_NONCE_LEN);
        nonce.copy_from_slice(&self.nonce);
        sealed.copy_from_slice(&self.sealed);
        data
    }
}

/// A controller's address and the port there, before they are sealed.
pub fn encode_place(device: MacAddress, port: u16) -> [u8; PLACE_LEN] {
    let ([a, b, c, d, e, f], [high, low]) = (device.0, port.to_be_bytes());
    [a, b, c, d, e, f, high, low]
}

/// The address in an opened seal; `None` for port 0 or no address.
pub fn parse_place([a, b, c, d, e, f, high, low]: [u8; PLACE_LEN]) -> Option<PeerAddress> {
    let (device, port) = (MacAddress([a, b, c, d, e, f]), u16::from_be_bytes([high, low]));
    (port > 0 && device.0 != [0; 6] && device != MacAddress::BROADCAST)
        .then_some(PeerAddress::Bluetooth { device, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_stand_for_words_and_those_of_others_for_none() {
        for word in WORDS {
            let served = Served::of_word(word).unwrap();
            assert_eq!((served.word(), Served::of_uuid(&served.uuid())), (word, Some(served)));
        }
        assert_eq!(Served::of_word(FILES).unwrap().uuid(), "0a910001-1345-4f8e-9731-06fb4e5ee693");
        assert_eq!(Served::of_word("games"), None);
        for other in [
            "0a910000-1345-4f8e-9731-06fb4e5ee693",
            "0a910004-1345-4f8e-9731-06fb4e5ee693",
            "0a91+001-1345-4f8e-9731-06fb4e5ee693",
            "0a910001-1345-4f8e-9731-06fb4e5ee694",
            "0a91-1345-4f8e-9731-06fb4e5ee693",
            "",
        ] {
            assert_eq!(Served::of_uuid(other), None, "{other}");
        }
    }

    #[test]
    fn announcements_have_one_length_and_places_are_somewhere() {
        let data: Vec<u8> = (0..13).collect();
        let told = ShortAnnouncement::read(&data).unwrap();
        assert_eq!((told.nonce, told.sealed[0], told.data().to_vec()), ([0, 1, 2], 3, data.clone()));
        assert!((0..13).all(|cut| ShortAnnouncement::read(&data[..cut]).is_none()));
        assert_eq!(ShortAnnouncement::read(&[0; 14]), None);
        let device = MacAddress([0, 0xaa, 1, 2, 3, 4]);
        let place = encode_place(device, 4_610);
        assert_eq!(place, [0, 0xaa, 1, 2, 3, 4, 0x12, 0x02]);
        assert_eq!(parse_place(place), Some(PeerAddress::Bluetooth { device, port: 4_610 }));
        assert_eq!(parse_place(encode_place(device, 0)), None);
        assert_eq!(parse_place([0, 0, 0, 0, 0, 0, 1, 1]), None);
    }
}
