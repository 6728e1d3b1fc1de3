//! What the ends of a conversation of virtual sockets tell each other: a greeting and its answer inside the handshake, then
//! their adapters in messages.
//!
//! ```text
//! greeting   02 | conversation (8) | flags (1) | name length (1) | name | [invitation secret (16)]
//! answer     02 | verdict (1)
//! adapters   01 | sequence v | battery (1) | count (1) | (kind (1) | port (2) | family (1) | address (4 or 16))*
//! ```
//!
//! The **conversation** is a random number that the end chose that called first. Whoever calls again with it, after all
//! networks were gone for a while, goes on with the streams of before; an end that does not know it any more answers that they begin
//! anew. A greeting's flags: 1 an invitation follows. Integers are big-endian.

use crate::cursor::{Malformed, Reader, put_varint};
use crate::hello::Name;
use crate::join_link::InvitationSecret;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Of greeting and answer; a gateway's hello has another first byte.
const VERSION: u8 = 2;
const ADAPTERS: u8 = 1;
const INVITED: u8 = 1;
const MAINS: u8 = 255;
/// Most adapters that one end tells of.
pub const MAX_ADAPTERS: usize = 24;

/// A conversation, among those of the same two keys.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Conversation(pub u64);

/// The first payload: who calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Greeting {
    /// What it is about.
    pub conversation: Conversation,
    /// What it calls itself; for people, proves nothing.
    pub name: Option<Name>,
    /// Lets it in, once, if it is not known by its key.
    pub invitation: Option<InvitationSecret>,
}

/// The second payload: whether the caller is let in, or why not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is; streams begin anew.
    Welcome,
    /// It is; the streams of before go on.
    Continued,
    /// Its key is not known here, and it showed no invitation.
    Unknown,
    /// Its invitation is used up, expired, or none of this end's.
    InvitationRefused,
    /// Nobody listens.
    NotListening,
}

/// Adapters of one end, in a message of its session. The highest sequence counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adapters {
    /// Higher replaces lower.
    pub sequence: u64,
    /// Per cent of the battery; `None` on mains.
    pub battery: Option<u8>,
    /// Each with the address that it is reached at.
    pub adapters: Vec<AdapterAddress>,
}

/// One adapter of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AdapterAddress {
    /// What it is: 0 other, 1 cable, 2 Wi-Fi, 3 cellular, 4 Bluetooth, 5 Wi-Fi ad hoc; more may come.
    pub kind: u8,
    /// Where it is reached.
    pub address: SocketAddr,
}

impl Greeting {
    /// The greeting's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.conversation.0.to_be_bytes());
        let invited = if self.invitation.is_some() { INVITED } else { 0 };
        bytes.push(invited);
        let name = self.name.as_ref().map_or("", Name::as_str);
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        if let Some(secret) = &self.invitation {
            bytes.extend(secret.0);
        }
        bytes
    }

    /// Reads a greeting.
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        version(&mut reader)?;
        let conversation = Conversation(u64::from_be_bytes(reader.array()?));
        let flags = reader.u8()?;
        let length = usize::from(reader.u8()?);
        let name = match length {
            0 => None,
            _ => {
                let text =
                    std::str::from_utf8(reader.bytes(length)?).map_err(|_| Malformed::Field("name"))?;
                Some(Name::new(text).map_err(|_| Malformed::Field("name"))?)
            }
        };
        let invited = flags & INVITED != 0;
        let invitation = if invited { Some(InvitationSecret(reader.array()?)) } else { None };
        end(&reader)?;
        Ok(Self { conversation, name, invitation })
    }
}

impl Answer {
    /// The answer's bytes.
    pub fn encode(self) -> Vec<u8> {
        let verdict = match self {
            Self::Welcome => 0,
            Self::Continued => 1,
            Self::Unknown => 2,
            Self::InvitationRefused => 3,
            Self::NotListening => 4,
        };
        vec![VERSION, verdict]
    }

    /// Reads an answer.
    ///
    /// # Errors
    /// [`Malformed`] if it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        version(&mut reader)?;
        let answer = match reader.u8()? {
            0 => Self::Welcome,
            1 => Self::Continued,
            2 => Self::Unknown,
            3 => Self::InvitationRefused,
            4 => Self::NotListening,
            _ => return Err(Malformed::Field("verdict")),
        };
        end(&reader)?;
        Ok(answer)
    }
}

impl Adapters {
    /// The message's bytes; adapters beyond [`MAX_ADAPTERS`] are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![ADAPTERS];
        put_varint(&mut bytes, self.sequence);
        bytes.push(self.battery.map_or(MAINS, |percent| percent.min(100)));
        let adapters = self.adapters.get(..self.adapters.len().min(MAX_ADAPTERS)).unwrap_or_default();
        bytes.push(adapters.len() as u8);
        for adapter in adapters {
            bytes.push(adapter.kind);
            bytes.extend(adapter.address.port().to_be_bytes());
            match adapter.address.ip() {
                IpAddr::V4(address) => {
                    bytes.push(4);
                    bytes.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    bytes.push(6);
                    bytes.extend(address.octets());
                }
            }
        }
        bytes
    }

    /// Reads the message; `None` if it is of another type, which later versions may have.
    ///
    /// # Errors
    /// [`Malformed`] if it makes no sense.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != ADAPTERS {
            return Ok(None);
        }
        let sequence = reader.varint()?;
        let battery = match reader.u8()? {
            MAINS => None,
            percent @ 0..=100 => Some(percent),
            _ => return Err(Malformed::Field("battery")),
        };
        let count = usize::from(reader.u8()?);
        if count > MAX_ADAPTERS {
            return Err(Malformed::Field("count"));
        }
        let mut adapters = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = reader.u8()?;
            let port = reader.u16()?;
            let address = match reader.u8()? {
                4 => IpAddr::V4(Ipv4Addr::from(reader.array::<4>()?)),
                6 => IpAddr::V6(Ipv6Addr::from(reader.array::<16>()?)),
                _ => return Err(Malformed::Field("family")),
            };
            if port == 0 {
                return Err(Malformed::Field("port"));
            }
            adapters.push(AdapterAddress { kind, address: SocketAddr::new(address, port) });
        }
        end(&reader)?;
        Ok(Some(Self { sequence, battery, adapters }))
    }
}

fn version(reader: &mut Reader<'_>) -> Result<(), Malformed> {
    if reader.u8()? == VERSION { Ok(()) } else { Err(Malformed::Field("version")) }
}

fn end(reader: &Reader<'_>) -> Result<(), Malformed> {
    if reader.is_empty() { Ok(()) } else { Err(Malformed::Field("length")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        Greeting {
            conversation: Conversation(0x0102_0304_0506_0708),
            name: Some(Name::new("Ada's laptop").unwrap()),
            invitation: Some(InvitationSecret([9; 16])),
        }
    }

    #[test]
    fn all_round_trip_and_no_cut_is_accepted() {
        let greeting = greeting();
        let bytes = greeting.encode();
        assert_eq!(Greeting::parse(&bytes), Ok(greeting.clone()));
        assert!((0..bytes.len()).all(|cut| Greeting::parse(&bytes[..cut]).is_err()));
        let bare = Greeting { name: None, invitation: None, ..greeting };
        assert_eq!(Greeting::parse(&bare.encode()), Ok(bare));

        let answer = Answer::Continued;
        let bytes = answer.encode();
        assert_eq!(Answer::parse(&bytes), Ok(answer));
        assert!((0..bytes.len()).all(|cut| Answer::parse(&bytes[..cut]).is_err()));

        let address = |text: &str| AdapterAddress { kind: 2, address: text.parse().unwrap() };
        let adapters = Adapters {
            sequence: 3,
            battery: Some(19),
            adapters: vec![address("10.0.0.1:4601"), address("[2001:db8::1]:4601")],
        };
        let bytes = adapters.encode();
        assert_eq!(Adapters::parse(&bytes), Ok(Some(adapters)));
        assert!((0..bytes.len()).all(|cut| Adapters::parse(&bytes[..cut]).is_err()));
        assert_eq!(Adapters::parse(&[77]), Ok(None));
    }

    #[test]
    fn a_gateways_hello_is_no_greeting() {
        assert!(Greeting::parse(&[1, 1, 1, b'a']).is_err());
        assert!(Greeting::parse(&[greeting().encode(), vec![0]].concat()).is_err());
    }
}
