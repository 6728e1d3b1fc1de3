//! What the ends of a conversation of virtual sockets tell each other: a greeting and its answer inside the handshake, then
//! their adapters in messages.
//!
//! ```text
//! greeting   02 | conversation (8) | flags (1) | name length (1) | name | [invitation secret (16)] | [proof of a group (32)]
//! answer     02 | verdict (1)
//! adapters   01 | sequence v | battery (1) | count (1) | (kind (1) | port (2) | family (1) | address (4 or 16))*
//! further    02 | sequence v | count (1) | (kind (1) | port (2) | type (1) | length (1) | address (length))*
//! ```
//!
//! Adapters of IP networks are told by the first, others by the second, whose types are 0b Bluetooth (6 bytes); unknown types are skipped. Versions that do
//! not know the second ignore it.
//!
//! The **conversation** is a random number that the end chose that called first. Whoever calls again with it, after all
//! networks were gone for a while, goes on with the streams of before; an end that does not know it any more answers that they begin
//! anew. A greeting's flags: 1 an invitation follows, 2 a proof follows. Integers are big-endian.

use crate::cursor::{Malformed, Reader, put_varint};
use crate::group::PROOF_LEN;
use crate::hello::Name;
use crate::join_link::InvitationSecret;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;
use units::MacAddress;

/// Of greeting and answer; a gateway's hello has another first byte.
const VERSION: u8 = 2;
const ADAPTERS: u8 = 1;
const FURTHER: u8 = 2;
const BLUETOOTH: u8 = 0x0b;
const INVITED: u8 = 1;
const MEMBER: u8 = 2;
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
    /// Shows that it is in a group with whom it calls: `identity::GroupKeys::proof`.
    pub proof: Option<[u8; PROOF_LEN]>,
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

/// Where a peer may be reached.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PeerAddress {
    /// By UDP.
    Ip(SocketAddr),
    /// By Bluetooth.
    Bluetooth {
        /// The controller's device address.
        device: MacAddress,
        /// Which of its programs.
        port: u16,
    },
}

/// What Bluetooth addresses begin with as text: `bt:00:11:22:33:44:55`.
pub const BLUETOOTH_PREFIX: &str = "bt:";

impl PeerAddress {
    /// Which of the programs there.
    pub const fn port(self) -> u16 {
        match self {
            Self::Ip(address) => address.port(),
            Self::Bluetooth { port, .. } => port,
        }
    }

    /// Whether it leads to this very machine.
    pub const fn is_loopback(self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_loopback(),
            Self::Bluetooth { .. } => false,
        }
    }

    /// Whether it says a port and no place.
    pub const fn is_unspecified(self) -> bool {
        match self {
            Self::Ip(address) => address.ip().is_unspecified(),
            Self::Bluetooth { .. } => false,
        }
    }

    /// The address of an IP network, if it is one.
    pub const fn ip(self) -> Option<SocketAddr> {
        match self {
            Self::Ip(address) => Some(address),
            Self::Bluetooth { .. } => None,
        }
    }
}

impl From<SocketAddr> for PeerAddress {
    fn from(address: SocketAddr) -> Self {
        Self::Ip(address)
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(address) => write!(formatter, "{address}"),
            Self::Bluetooth { device, port } => write!(formatter, "{BLUETOOTH_PREFIX}{device}:{port}"),
        }
    }
}

/// The text is no address of a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("not an address: expected ADDRESS:PORT, [IPV6]:PORT or bt:00:11:22:33:44:55:PORT")]
pub struct PeerAddressError;

impl FromStr for PeerAddress {
    type Err = PeerAddressError;

    fn from_str(text: &str) -> Result<Self, PeerAddressError> {
        let Some(rest) = text.strip_prefix(BLUETOOTH_PREFIX) else {
            return text.parse().map(Self::Ip).map_err(|_| PeerAddressError);
        };
        let (device, port) = rest.rsplit_once(':').ok_or(PeerAddressError)?;
        let device = device.parse().map_err(|_| PeerAddressError)?;
        Ok(Self::Bluetooth { device, port: port.parse().map_err(|_| PeerAddressError)? })
    }
}

/// Adapters of one end, in a message of its session. The highest sequence counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Adapters {
    /// Higher replaces lower.
    pub sequence: u64,
    /// Per cent of the battery; `None` on mains.
    pub battery: Option<u8>,
    /// Each of an IP network with the address that it is reached at.
    pub adapters: Vec<AdapterAddress>,
}

/// Adapters of one end that are of no IP network, in a message of its session. The highest sequence counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FurtherAdapters {
    /// Higher replaces lower.
    pub sequence: u64,
    /// Each with the address that it is reached at.
    pub adapters: Vec<AdapterAddress>,
}

/// One adapter of the other end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AdapterAddress {
    /// What it is: 0 other, 1 cable, 2 Wi-Fi, 3 cellular, 4 Bluetooth, 5 Wi-Fi ad hoc; more may come.
    pub kind: u8,
    /// Where it is reached.
    pub address: PeerAddress,
}

impl Greeting {
    /// The greeting's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        bytes.extend(self.conversation.0.to_be_bytes());
        let invited = if self.invitation.is_some() { INVITED } else { 0 };
        let member = if self.proof.is_some() { MEMBER } else { 0 };
        bytes.push(invited | member);
        let name = self.name.as_ref().map_or("", Name::as_str);
        bytes.push(name.len() as u8);
        bytes.extend(name.as_bytes());
        if let Some(secret) = &self.invitation {
            bytes.extend(secret.0);
        }
        bytes.extend(self.proof.iter().flatten());
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
        let proof = if flags & MEMBER != 0 { Some(reader.array()?) } else { None };
        end(&reader)?;
        Ok(Self { conversation, name, invitation, proof })
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
    /// The message's bytes; adapters beyond [`MAX_ADAPTERS`] and those of no IP network are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![ADAPTERS];
        put_varint(&mut bytes, self.sequence);
        bytes.push(self.battery.map_or(MAINS, |percent| percent.min(100)));
        let adapters = self.adapters.iter().filter_map(|adapter| Some((adapter.kind, adapter.address.ip()?)));
        let adapters: Vec<(u8, SocketAddr)> = adapters.take(MAX_ADAPTERS).collect();
        bytes.push(adapters.len() as u8);
        for (kind, address) in adapters {
            bytes.push(kind);
            bytes.extend(address.port().to_be_bytes());
            match address.ip() {
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
            adapters.push(AdapterAddress { kind, address: SocketAddr::new(address, port).into() });
        }
        end(&reader)?;
        Ok(Some(Self { sequence, battery, adapters }))
    }
}

impl FurtherAdapters {
    /// The message's bytes; adapters beyond [`MAX_ADAPTERS`] and those of IP networks are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FURTHER];
        put_varint(&mut bytes, self.sequence);
        let adapters = self.adapters.iter().filter_map(|adapter| match adapter.address {
            PeerAddress::Bluetooth { device, port } => Some((adapter.kind, device, port)),
            PeerAddress::Ip(_) => None,
        });
        let adapters: Vec<_> = adapters.take(MAX_ADAPTERS).collect();
        bytes.push(adapters.len() as u8);
        for (kind, device, port) in adapters {
            bytes.push(kind);
            bytes.extend(port.to_be_bytes());
            bytes.extend([BLUETOOTH, device.0.len() as u8]);
            bytes.extend(device.0);
        }
        bytes
    }

    /// Reads the message; `None` if it is of another type.
    ///
    /// # Errors
    /// [`Malformed`] if it makes no sense.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != FURTHER {
            return Ok(None);
        }
        let sequence = reader.varint()?;
        let count = usize::from(reader.u8()?);
        if count > MAX_ADAPTERS {
            return Err(Malformed::Field("count"));
        }
        let mut adapters = Vec::with_capacity(count);
        for _ in 0..count {
            let (kind, port, code) = (reader.u8()?, reader.u16()?, reader.u8()?);
            let length = usize::from(reader.u8()?);
            let address = reader.bytes(length)?;
            if port == 0 {
                return Err(Malformed::Field("port"));
            }
            if code == BLUETOOTH {
                let device = address.try_into().map(MacAddress).map_err(|_| Malformed::Field("length"))?;
                adapters.push(AdapterAddress { kind, address: PeerAddress::Bluetooth { device, port } });
            }
        }
        end(&reader)?;
        Ok(Some(Self { sequence, adapters }))
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
            proof: Some([8; PROOF_LEN]),
        }
    }

    #[test]
    fn all_round_trip_and_no_cut_is_accepted() {
        let greeting = greeting();
        let bytes = greeting.encode();
        assert_eq!(Greeting::parse(&bytes), Ok(greeting.clone()));
        assert!((0..bytes.len()).all(|cut| Greeting::parse(&bytes[..cut]).is_err()));
        let bare = Greeting { name: None, invitation: None, proof: None, ..greeting };
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
    fn bluetooth_is_told_beside_ip_and_unknown_types_are_skipped() {
        let address = |text: &str| AdapterAddress { kind: 4, address: text.parse().unwrap() };
        let all = vec![address("10.0.0.1:4601"), address("bt:00:11:22:33:44:55:4610")];
        let further = FurtherAdapters { sequence: 3, adapters: all[1..].to_vec() };
        let bytes = FurtherAdapters { sequence: 3, adapters: all.clone() }.encode();
        assert_eq!(bytes, [2, 3, 1, 4, 0x12, 0x02, 0x0b, 6, 0, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(FurtherAdapters::parse(&bytes), Ok(Some(further.clone())));
        assert!((0..bytes.len()).all(|cut| FurtherAdapters::parse(&bytes[..cut]).is_err()));
        assert_eq!(Adapters::parse(&bytes), Ok(None), "as versions before see it");
        let only_ip = Adapters { sequence: 3, battery: None, adapters: all };
        assert_eq!(Adapters::parse(&only_ip.encode()).unwrap().unwrap().adapters.len(), 1);

        let stranger = [&[2, 3, 2, 9, 0, 1, 0x77, 2, 1, 2][..], &bytes[3..]].concat();
        assert_eq!(FurtherAdapters::parse(&stranger), Ok(Some(further)));
        let short = [2, 3, 1, 4, 0, 1, 0x0b, 5, 0, 0x11, 0x22, 0x33, 0x44];
        assert!(FurtherAdapters::parse(&short).is_err());
    }

    #[test]
    fn addresses_are_read_as_they_are_shown() {
        for text in ["192.0.2.1:80", "[2001:db8::1]:80", "bt:00:11:22:33:44:5f:4610"] {
            assert_eq!(text.parse::<PeerAddress>().unwrap().to_string(), text);
        }
        for text in
            ["", "192.0.2.1", "bt:", "bt:00:11:22:33:44:55", "bt:00:11:22:33:44:55:", "00:11:22:33:44:55:1"]
        {
            assert!(text.parse::<PeerAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_gateways_hello_is_no_greeting() {
        assert!(Greeting::parse(&[1, 1, 1, b'a']).is_err());
        assert!(Greeting::parse(&[greeting().encode(), vec![0]].concat()).is_err());
    }
}
