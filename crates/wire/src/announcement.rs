//! Announcements to peers nearby: the entries of a DNS-SD TXT record (RFC 6763 section 6).
//!
//! ```text
//! w=WHAT                one word of a to z, 32 at most: what is served
//! n=NONCE               16 bytes
//! t0=TAGS t1=TAGS       up to 28 tags of 8 bytes each, 64 in all: one for each known peer, by which it knows the announcement for its own
//! g0=ENTRY g1=ENTRY ... up to 8, each sealed for a group (112 bytes, `crate::group`)
//! ```
//!
//! Anybody on the link can say anything here; whoever is called must have the key.

use crate::group::{ENTRY_LEN, MAX_AT_ONCE};
use crate::neighbour::{MAX_TAGS, NONCE_LEN, TAG_LEN};

/// Served by who receives files, as [`Announcement::what`] says it.
pub const FILES: &str = "files";
/// By who waits for lines of text.
pub const CHAT: &str = "chat";
/// By who lets peers reach TCP ports.
pub const PORTS: &str = "ports";
/// Tags in one entry, which has 255 bytes at most.
const TAGS_AT_ONCE: usize = 28;
const MAX_WHAT: usize = 32;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// What is served, in a word.
    pub what: String,
    /// Makes the tags of each announcement others.
    pub nonce: [u8; NONCE_LEN],
    /// For known peers.
    pub tags: Vec<[u8; TAG_LEN]>,
    /// For groups, sealed.
    pub entries: Vec<[u8; ENTRY_LEN]>,
}

impl Announcement {
    /// From the values of its entries, by name; `None` if it is none.
    pub fn read<'a>(value: &dyn Fn(&str) -> Option<&'a [u8]>) -> Option<Self> {
        let what = std::str::from_utf8(value("w")?).ok()?;
        let is_word = what.len() <= MAX_WHAT && what.bytes().all(|byte| byte.is_ascii_lowercase());
        let nonce = value("n")?.try_into().ok()?;
        let entries = (0..MAX_TAGS.div_ceil(TAGS_AT_ONCE)).map_while(|number| value(&format!("t{number}")));
        let tags = entries.flat_map(|tags| tags.as_chunks().0.iter().copied()).take(MAX_TAGS).collect();
        let groups = (0..MAX_AT_ONCE).map_while(|number| value(&format!("g{number}")));
        let entries = groups.filter_map(|sealed| sealed.try_into().ok()).collect();
        is_word.then(|| Self { what: what.to_owned(), nonce, tags, entries })
    }

    /// Names and values of its entries; tags and entries beyond the bounds are left out.
    pub fn values(&self) -> Vec<(String, Vec<u8>)> {
        let tags = self.tags.get(..self.tags.len().min(MAX_TAGS)).unwrap_or_default();
        let mut values =
            vec![("w".to_owned(), self.what.as_bytes().to_vec()), ("n".to_owned(), self.nonce.to_vec())];
        let tags = tags.chunks(TAGS_AT_ONCE).enumerate();
        values.extend(tags.map(|(number, tags)| (format!("t{number}"), tags.concat())));
        let entries = self.entries.iter().take(MAX_AT_ONCE).enumerate();
        values.extend(entries.map(|(number, sealed)| (format!("g{number}"), sealed.to_vec())));
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announcements_are_read_and_others_are_refused() {
        let (tags, sealed): (Vec<u8>, [u8; ENTRY_LEN]) = ((0..40).collect(), [9; ENTRY_LEN]);
        let entries = |name: &str| -> Option<&[u8]> {
            match name {
                "w" => Some(b"files"),
                "n" => Some(&[7; NONCE_LEN]),
                "t0" => Some(&tags[..17]),
                "t1" => Some(&tags),
                "g0" => Some(&tags),
                "g1" => Some(&sealed),
                _ => None,
            }
        };
        let read = Announcement::read(&entries).unwrap();
        assert_eq!((read.what.as_str(), read.nonce, read.tags.len()), ("files", [7; NONCE_LEN], 2 + 5));
        assert_eq!(read.entries, [sealed], "one of another length is none");
        for (spoilt, with) in
            [("w", &b"Files"[..]), ("w", b"\xff"), ("w", &[b'a'; 33]), ("n", &[7; 15]), ("n", &[7; 17])]
        {
            let entries = |name: &str| if name == spoilt { Some(with) } else { entries(name) };
            assert_eq!(Announcement::read(&entries), None, "{spoilt}");
        }
        assert_eq!(Announcement::read(&|_| None), None);
    }

    #[test]
    fn what_is_written_is_read_again_and_bounded() {
        let whole = Announcement {
            what: "ports".to_owned(),
            nonce: [1; NONCE_LEN],
            tags: vec![[2; TAG_LEN]; MAX_TAGS + 1],
            entries: vec![[3; ENTRY_LEN]; MAX_AT_ONCE + 1],
        };
        let values = whole.values();
        assert!(values.iter().all(|(name, value)| name.len() + 1 + value.len() <= 255), "{values:?}");
        let value = |name: &str| values.iter().find(|(known, _)| known == name).map(|(_, value)| &value[..]);
        let read = Announcement::read(&value).unwrap();
        assert_eq!((read.tags.len(), read.entries.len()), (MAX_TAGS, MAX_AT_ONCE));
    }
}
