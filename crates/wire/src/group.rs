//! Groups ("webs"): what their members say that nobody else can read.
//!
//! ```text
//! entry      public key (32) | name, zeros behind it (64)         sealed: 112 bytes, an entry of an announcement
//! sealed     45 | salt (16) | sealed message of a mesh             beside those of the mesh that is open to all
//! told       secret (32) | name of the group | name of the inviter | count (2) | (public key (32) | name)*      to who has joined
//!
//! name       length (1) | text
//! ```
//!
//! A salt is never used twice under one key. Entries have the announcement's nonce for it, and all the same length, so they tell nobody
//! else how long a name is.

use crate::cursor::{Malformed, Reader};
use crate::hello::Name;
use crate::neighbour::{SALT_LEN, SEAL_LEN};

/// Bytes of a group's secret.
pub const SECRET_LEN: usize = 32;
/// Bytes of what shows membership in a greeting.
pub const PROOF_LEN: usize = 32;
/// Groups that one announcement tells of, and one endpoint is in.
pub const MAX_AT_ONCE: usize = 8;
/// Bytes of a sealed entry.
pub const ENTRY_LEN: usize = KEY_LEN + NAME_LEN + SEAL_LEN;
/// Bytes that sealing adds to a message of a mesh.
pub const OVERHEAD: usize = 1 + SALT_LEN + SEAL_LEN;
/// The first byte of a sealed message of a mesh.
pub const SEALED: u8 = 0x45;

/// Members that who joins is told of.
pub const MAX_TOLD: usize = 256;

const KEY_LEN: usize = 32;
const NAME_LEN: usize = 64;

/// Who announces itself to a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its public key.
    pub public_key: [u8; KEY_LEN],
    /// What it calls itself; any member can say anything.
    pub name: Option<Name>,
}

impl Entry {
    /// Bytes to be sealed.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.public_key.to_vec();
        bytes.extend(self.name.as_ref().map_or("", Name::as_str).as_bytes());
        bytes.resize(KEY_LEN + NAME_LEN, 0);
        bytes
    }

    /// Reads what was opened.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let public_key = reader.array()?;
        let padded: [u8; NAME_LEN] = reader.array()?;
        let length = padded.iter().position(|byte| *byte == 0).unwrap_or(NAME_LEN);
        let (name, rest) = padded.split_at(length);
        if rest.iter().any(|byte| *byte != 0) || !reader.is_empty() {
            return Err(Malformed::Field("padding"));
        }
        let text = std::str::from_utf8(name).map_err(|_| Malformed::Field("name"))?;
        let name = if text.is_empty() { None } else { Some(Name::new(text)) };
        let name = name.transpose().map_err(|_| Malformed::Field("name"))?;
        Ok(Self { public_key, name })
    }
}

/// What whoever has joined a group is told.
#[derive(Clone, PartialEq, Eq)]
pub struct Told {
    /// The group's secret.
    pub secret: [u8; SECRET_LEN],
    /// What the inviter calls the group.
    pub name: Name,
    /// What the inviter calls itself.
    pub inviter: Option<Name>,
    /// Members that the inviter has met, with what it calls them; [`MAX_TOLD`] at most.
    pub members: Vec<([u8; KEY_LEN], Name)>,
}

impl Told {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = self.secret.to_vec();
        let put = |bytes: &mut Vec<u8>, text: &str| {
            bytes.push(text.len() as u8);
            bytes.extend(text.as_bytes());
        };
        put(&mut bytes, self.name.as_str());
        put(&mut bytes, self.inviter.as_ref().map_or("", Name::as_str));
        let members = self.members.get(..self.members.len().min(MAX_TOLD)).unwrap_or_default();
        bytes.extend((members.len() as u16).to_be_bytes());
        for (key, name) in members {
            bytes.extend(key);
            put(&mut bytes, name.as_str());
        }
        bytes
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let secret = reader.array()?;
        let name = name(&mut reader)?.ok_or(Malformed::Field("name"))?;
        let inviter = self::name(&mut reader)?;
        let count = usize::from(reader.u16()?);
        if count > MAX_TOLD {
            return Err(Malformed::Field("count"));
        }
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let key = reader.array()?;
            members.push((key, self::name(&mut reader)?.ok_or(Malformed::Field("name"))?));
        }
        if !reader.is_empty() {
            return Err(Malformed::Field("length"));
        }
        Ok(Self { secret, name, inviter, members })
    }
}

fn name(reader: &mut Reader<'_>) -> Result<Option<Name>, Malformed> {
    let length = usize::from(reader.u8()?);
    let text = std::str::from_utf8(reader.bytes(length)?).map_err(|_| Malformed::Field("name"))?;
    let name = if text.is_empty() { None } else { Some(Name::new(text)) };
    name.transpose().map_err(|_| Malformed::Field("name"))
}

/// A sealed message of a mesh: its salt, and what is to be opened.
///
/// # Errors
/// [`Malformed`] if it is none.
pub fn sealed(datagram: &[u8]) -> Result<([u8; SALT_LEN], &[u8]), Malformed> {
    let mut reader = Reader::new(datagram);
    match reader.u8()? {
        SEALED => Ok((reader.array()?, reader.rest())),
        other => Err(Malformed::UnknownType(other)),
    }
}

/// Appends the front of a sealed message of a mesh.
pub fn put_sealed(buffer: &mut Vec<u8>, salt: &[u8; SALT_LEN], sealed: &[u8]) {
    buffer.push(SEALED);
    buffer.extend(salt);
    buffer.extend(sealed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_equally_long_and_are_read_again() {
        for name in [None, Some("b"), Some(&"ä".repeat(32)[..])] {
            let entry = Entry { public_key: [7; 32], name: name.map(|name| Name::new(name).unwrap()) };
            let bytes = entry.encode();
            assert_eq!(bytes.len() + SEAL_LEN, ENTRY_LEN);
            assert_eq!(Entry::parse(&bytes), Ok(entry));
            assert!((0..bytes.len()).all(|cut| Entry::parse(&bytes[..cut]).is_err()));
        }
        let mut hidden = Entry { public_key: [7; 32], name: None }.encode();
        hidden[90] = 1;
        assert_eq!(Entry::parse(&hidden), Err(Malformed::Field("padding")));
        hidden[32] = 0xff;
        assert!(Entry::parse(&hidden).is_err());
    }

    #[test]
    fn who_joins_is_told_all_or_nothing() {
        let name = |text| Name::new(text).unwrap();
        let (group, inviter) = (name("hikers"), Some(name("ann")));
        let members = vec![([1; KEY_LEN], name("bob")), ([2; KEY_LEN], name("cat"))];
        let told = Told { secret: [9; SECRET_LEN], name: group, inviter, members };
        let bytes = told.encode();
        assert!(Told::parse(&bytes) == Ok(told));
        assert!((0..bytes.len()).all(|cut| Told::parse(&bytes[..cut]).is_err()));
        assert!(Told::parse(&[&bytes[..], &[0]].concat()).is_err());
    }

    #[test]
    fn sealed_messages_are_told_from_open_ones() {
        let mut bytes = Vec::new();
        put_sealed(&mut bytes, &[1; SALT_LEN], b"sealed");
        assert_eq!(sealed(&bytes), Ok(([1; SALT_LEN], &b"sealed"[..])));
        assert!(crate::mesh::is_mesh(&bytes));
        assert_eq!(sealed(&[0x44; 40]), Err(Malformed::UnknownType(0x44)));
        assert!((0..17).all(|cut| sealed(&bytes[..cut]).is_err()));
    }
}
