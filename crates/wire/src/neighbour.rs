//! What neighbours say to each other over a shared link, in UDP datagrams.
//!
//! ```text
//! beacon     01 | nonce (16) | count (1) | count times tag (8)                to everybody on the link
//! sealed     02 | salt (16)  | sealed message and its tag                     to one neighbour
//!
//! hello      01 | flags (1) | epoch (8) | number (8) | link address (4 or 16)
//!               | any0's IPv4 address (4)                                     if flag HAS_V4
//!               | echoed epoch (8) | echoed number (8) | held, microseconds (4)   if flag HAS_ECHO
//! broadcast  02 | epoch (8) | number (8) | IP packet
//! left       03 | epoch (8) | number (8) | epoch (8) and number (8) of what had come over the link that was left
//! ```
//!
//! A beacon tells no identity: each tag is made from the nonce with the secret of a pair of keys, so only the other half of the pair
//! knows it for its own. Everything else is sealed with that secret.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::cursor::{Malformed, Reader};

/// Bytes of a beacon's nonce.
pub const NONCE_LEN: usize = 16;
/// Bytes of a beacon's tag.
pub const TAG_LEN: usize = 8;
/// Bytes of a sealed message's salt.
pub const SALT_LEN: usize = 16;
/// Bytes that sealing adds behind a message.
pub const SEAL_LEN: usize = 16;
/// Most tags of one beacon.
pub const MAX_TAGS: usize = 64;
/// Longest IP packet that a broadcast carries.
pub const MAX_PACKET: usize = 9_000;

const BEACON: u8 = 1;
const SEALED: u8 = 2;
const HELLO: u8 = 1;
const BROADCAST: u8 = 2;
const LEFT: u8 = 3;
const ASKS: u8 = 0x01;
const HAS_ECHO: u8 = 0x02;
const HAS_V4: u8 = 0x04;
const LINK_V4: u8 = 0x08;
const ALL_FLAGS: u8 = ASKS | HAS_ECHO | HAS_V4 | LINK_V4;

/// A datagram as it is on the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram<'a> {
    /// Somebody is there, for those who know a tag.
    Beacon(Beacon<'a>),
    /// A message for one neighbour.
    Sealed {
        /// Makes the message's key.
        salt: [u8; SALT_LEN],
        /// The sealed [`Message`].
        bytes: &'a [u8],
    },
}

/// Somebody is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beacon<'a> {
    /// Drawn for this beacon.
    pub nonce: [u8; NONCE_LEN],
    tags: &'a [u8],
}

impl<'a> Beacon<'a> {
    /// What each addressee knows it by, at most [`MAX_TAGS`].
    pub fn tags(&self) -> impl Iterator<Item = &'a [u8; TAG_LEN]> + use<'a> {
        self.tags.as_chunks().0.iter()
    }
}

impl<'a> Datagram<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            BEACON => {
                let nonce = reader.array()?;
                let count = usize::from(reader.u8()?);
                if count > MAX_TAGS {
                    return Err(Malformed::Field("count"));
                }
                let tags = reader.bytes(count * TAG_LEN)?;
                if !reader.is_empty() {
                    return Err(Malformed::Field("length"));
                }
                Ok(Self::Beacon(Beacon { nonce, tags }))
            }
            SEALED => {
                let salt = reader.array()?;
                if reader.rest().len() <= SEAL_LEN {
                    return Err(Malformed::Truncated);
                }
                Ok(Self::Sealed { salt, bytes: reader.rest() })
            }
            other => Err(Malformed::UnknownType(other)),
        }
    }
}

/// The bytes of a beacon; tags beyond [`MAX_TAGS`] are left out.
pub fn encode_beacon(nonce: [u8; NONCE_LEN], tags: &[[u8; TAG_LEN]]) -> Vec<u8> {
    let tags = &tags[..tags.len().min(MAX_TAGS)];
    let mut bytes = vec![BEACON];
    bytes.extend(nonce);
    bytes.push(tags.len() as u8);
    bytes.extend_from_slice(tags.as_flattened());
    bytes
}

/// The first bytes of a sealed message; what is sealed follows.
pub fn encode_sealed(salt: [u8; SALT_LEN], sealed: &[u8]) -> Vec<u8> {
    let mut bytes = vec![SEALED];
    bytes.extend(salt);
    bytes.extend_from_slice(sealed);
    bytes
}

/// The number of a message of one sender: `epoch` is drawn when it starts, `number` only grows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Number {
    /// The sender's run.
    pub epoch: u64,
    /// Its message.
    pub number: u64,
}

/// What a hello answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Echo {
    /// The last number that came from the addressee over this link.
    pub of: Number,
    /// How long ago that was, microseconds.
    pub held_micros: u32,
}

/// A sign of life, and what is needed to reach its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// Its number.
    pub number: Number,
    /// The sender's address on this link, where packets for it go.
    pub link_address: IpAddr,
    /// The sender's IPv4 address on any0, if it has one for neighbours.
    pub any0_v4: Option<Ipv4Addr>,
    /// An answer is wanted.
    pub asks: bool,
    /// What it answers.
    pub echo: Option<Echo>,
}

/// What is inside a sealed datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A sign of life.
    Hello(Hello),
    /// A packet that was broadcast on the sender's any0.
    Broadcast {
        /// The same on all links.
        number: Number,
        /// An IP packet, not looked at; at most [`MAX_PACKET`] bytes.
        packet: &'a [u8],
    },
    /// The sender is not to be reached any more over the link of an earlier hello.
    Left {
        /// Its number, one with those of hellos.
        number: Number,
        /// A number that had come from the addressee over that link.
        of: Number,
    },
}

impl<'a> Message<'a> {
    /// The message's bytes, to be sealed.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Hello(hello) => {
                let flag = |on: bool, flag: u8| if on { flag } else { 0 };
                let flags = flag(hello.asks, ASKS)
                    | flag(hello.echo.is_some(), HAS_ECHO)
                    | flag(hello.any0_v4.is_some(), HAS_V4)
                    | flag(hello.link_address.is_ipv4(), LINK_V4);
                bytes.extend([HELLO, flags]);
                put_number(&mut bytes, hello.number);
                match hello.link_address {
                    IpAddr::V4(address) => bytes.extend(address.octets()),
                    IpAddr::V6(address) => bytes.extend(address.octets()),
                }
                bytes.extend(hello.any0_v4.iter().flat_map(Ipv4Addr::octets));
                if let Some(echo) = hello.echo {
                    put_number(&mut bytes, echo.of);
                    bytes.extend(echo.held_micros.to_be_bytes());
                }
            }
            Self::Broadcast { number, packet } => {
                bytes.push(BROADCAST);
                put_number(&mut bytes, *number);
                bytes.extend_from_slice(packet);
            }
            Self::Left { number, of } => {
                bytes.push(LEFT);
                put_number(&mut bytes, *number);
                put_number(&mut bytes, *of);
            }
        }
        bytes
    }

    /// Reads what was sealed; `None` if it is of a kind that this version does not know.
    ///
    /// # Errors
    /// [`Malformed`] if it is of a known kind and not as it should be.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(bytes);
        match reader.u8()? {
            HELLO => parse_hello(&mut reader).map(|hello| Some(Self::Hello(hello))),
            BROADCAST => {
                let number = take_number(&mut reader)?;
                let packet = reader.rest();
                if packet.is_empty() || packet.len() > MAX_PACKET {
                    return Err(Malformed::Field("packet"));
                }
                Ok(Some(Self::Broadcast { number, packet }))
            }
            LEFT => {
                let (number, of) = (take_number(&mut reader)?, take_number(&mut reader)?);
                if !reader.is_empty() {
                    return Err(Malformed::Field("length"));
                }
                Ok(Some(Self::Left { number, of }))
            }
            _ => Ok(None),
        }
    }
}

fn parse_hello(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
    let flags = reader.u8()?;
    if flags & !ALL_FLAGS != 0 {
        return Err(Malformed::Field("flags"));
    }
    let number = take_number(reader)?;
    let link_address = if flags & LINK_V4 != 0 {
        Ipv4Addr::from(reader.array::<4>()?).into()
    } else {
        Ipv6Addr::from(reader.array::<16>()?).into()
    };
    let any0_v4 = if flags & HAS_V4 != 0 { Some(Ipv4Addr::from(reader.array::<4>()?)) } else { None };
    let echo = if flags & HAS_ECHO != 0 {
        Some(Echo { of: take_number(reader)?, held_micros: reader.u32()? })
    } else {
        None
    };
    if !reader.is_empty() {
        return Err(Malformed::Field("length"));
    }
    Ok(Hello { number, link_address, any0_v4, asks: flags & ASKS != 0, echo })
}

fn put_number(bytes: &mut Vec<u8>, number: Number) {
    bytes.extend(number.epoch.to_be_bytes());
    bytes.extend(number.number.to_be_bytes());
}

fn take_number(reader: &mut Reader<'_>) -> Result<Number, Malformed> {
    let mut long = || reader.array().map(u64::from_be_bytes);
    Ok(Number { epoch: long()?, number: long()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBER: Number = Number { epoch: 0x0102, number: 3 };

    fn messages() -> Vec<Vec<u8>> {
        let plain = Hello {
            number: NUMBER,
            link_address: "fe80::1".parse().unwrap(),
            any0_v4: None,
            asks: true,
            echo: None,
        };
        let echo = Echo { of: Number { epoch: 9, number: u64::MAX }, held_micros: 70_000 };
        let full = Hello {
            link_address: "192.0.2.7".parse().unwrap(),
            any0_v4: Some(Ipv4Addr::new(10, 254, 1, 2)),
            asks: false,
            echo: Some(echo),
            ..plain
        };
        let broadcast = Message::Broadcast { number: NUMBER, packet: &[0x45; 40] };
        let left = Message::Left { number: NUMBER, of: Number { epoch: 9, number: 4 } };
        [Message::Hello(plain), Message::Hello(full), left, broadcast]
            .map(|message| {
                let bytes = message.encode();
                assert_eq!(Message::parse(&bytes), Ok(Some(message)));
                bytes
            })
            .to_vec()
    }

    #[test]
    fn messages_come_back_and_nothing_else_does() {
        let all = messages();
        for bytes in &all[..3] {
            for cut in 0..bytes.len() {
                assert!(Message::parse(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            assert!(Message::parse(&[&bytes[..], &[0]].concat()).is_err());
        }
        assert!(Message::parse(&all[3][..17]).is_err(), "a broadcast of nothing");
        assert_eq!(Message::parse(&[7]), Ok(None), "of a later version");
        let mut unknown = all[0].clone();
        unknown[1] = 0x80;
        assert_eq!(Message::parse(&unknown), Err(Malformed::Field("flags")));
    }

    #[test]
    fn datagrams_come_back_and_nothing_else_does() {
        let tags = [[1; TAG_LEN], [2; TAG_LEN]];
        let bytes = encode_beacon([7; NONCE_LEN], &tags);
        let Ok(Datagram::Beacon(beacon)) = Datagram::parse(&bytes) else { panic!("{bytes:?}") };
        assert_eq!(beacon.nonce, [7; NONCE_LEN]);
        assert_eq!(beacon.tags().copied().collect::<Vec<_>>(), tags);
        for cut in 0..bytes.len() {
            assert!(Datagram::parse(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let many = encode_beacon([7; NONCE_LEN], &[[3; TAG_LEN]; MAX_TAGS + 1]);
        assert_eq!(many.len(), 18 + MAX_TAGS * TAG_LEN);
        let sealed = encode_sealed([5; SALT_LEN], &[6; SEAL_LEN + 1]);
        let expected = Datagram::Sealed { salt: [5; SALT_LEN], bytes: &[6; SEAL_LEN + 1] };
        assert_eq!(Datagram::parse(&sealed), Ok(expected));
        assert!(Datagram::parse(&sealed[..sealed.len() - 1]).is_err(), "no room for a message");
        assert_eq!(Datagram::parse(&[9; 60]), Err(Malformed::UnknownType(9)));
    }
}
