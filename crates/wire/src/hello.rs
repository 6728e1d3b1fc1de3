//! What the two ends tell each other inside the handshake: [`Hello`] one way, [`Reply`] back.
//!
//! Both are sealed by the Noise handshake, so these bytes are only seen by the holder of the key; they are
//! untrusted all the same. Each starts with a version, then come fields of this shape, in any order:
//!
//! ```text
//!  0        1        2 ...
//! +--------+--------+----------------+
//! | type   | length | value          |   length in bytes, 0 to 255
//! +--------+--------+----------------+
//! ```
//!
//! A reader ignores types it does not know whose top bit is clear and refuses those whose top bit is set, so that both
//! harmless and essential additions are possible. A field that may stand once and stands twice is an error.
//!
//! | message | bytes | fields |
//! |---|---|---|
//! | hello | `01`, fields | 1 device name, 2 invitation secret (16), 3 features (4), 9 default treatment (1) |
//! | welcome | `01 00`, fields | 1 gateway name, 3 features (4), 4 IPv4 and prefix (5), 5 IPv6 and prefix (17), 6 DNS server (4 or 16, up to 4 times), 7 MTU (2) |
//! | refusal | `01 01`, fields | 8 reason (1) |
//!
//! Integers are big-endian, names are UTF-8 of 1 to 64 bytes without control characters.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use arrayvec::ArrayVec;
use thiserror::Error;

use crate::join_link::InvitationSecret;

/// Longest message that is read, in bytes: it must fit the first datagram beside the handshake.
pub const MAX_HELLO_LENGTH: usize = 512;
/// Longest name, in bytes.
pub const MAX_NAME: usize = 64;
/// Most DNS servers in a welcome.
pub const MAX_DNS_SERVERS: usize = 4;
/// Smallest MTU that carries IPv6 (RFC 8200 section 5).
pub const MIN_MTU: u16 = 1_280;

const VERSION: u8 = 1;
const WELCOME: u8 = 0;
const REFUSAL: u8 = 1;
const ESSENTIAL: u8 = 0x80;

mod field {
    pub const NAME: u8 = 1;
    pub const SECRET: u8 = 2;
    pub const FEATURES: u8 = 3;
    pub const ADDRESS_V4: u8 = 4;
    pub const ADDRESS_V6: u8 = 5;
    pub const DNS_SERVER: u8 = 6;
    pub const MTU: u8 = 7;
    pub const REASON: u8 = 8;
    pub const TREATMENT: u8 = 9;
}

/// A short name of a device or a gateway: 1 to 64 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(String);

impl Name {
    /// Checks length and characters.
    ///
    /// # Errors
    /// [`HelloError::Name`] if the text is empty, too long, starts or ends with a space or has control characters.
    pub fn new(text: &str) -> Result<Self, HelloError> {
        let plain = !text.chars().any(char::is_control) && text.trim() == text;
        if text.is_empty() || text.len() > MAX_NAME || !plain {
            return Err(HelloError::Name);
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What an end can do beyond the base protocol, one bit each; both ends use what both have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(pub u32);

impl Features {
    /// The features that both have.
    pub fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// An address on any0 with the length of its prefix.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prefixed<A> {
    /// The address.
    pub address: A,
    /// Leading bits that the whole inner network shares.
    pub prefix: u8,
}

impl<A: fmt::Display> fmt::Display for Prefixed<A> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.prefix)
    }
}

/// First message, device to gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    /// What the device calls itself.
    pub name: Name,
    /// Present until the invitation was redeemed.
    pub secret: Option<InvitationSecret>,
    /// What the device can do.
    pub features: Features,
    /// How the gateway is to carry flows towards the device.
    pub treatment: DefaultTreatment,
}

/// How flows are carried of which nothing else is said.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DefaultTreatment {
    /// Over all networks. Also what a code means that this version does not know.
    #[default]
    Bonded,
    /// Every packet on two networks.
    Duplicated,
    /// With forward error correction.
    Protected,
}

impl DefaultTreatment {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Bonded => 0,
            Self::Duplicated => 1,
            Self::Protected => 2,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Duplicated,
            2 => Self::Protected,
            _ => Self::Bonded,
        }
    }
}

/// The gateway's answer when it lets the device in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Welcome {
    /// What the gateway calls itself.
    pub name: Name,
    /// What the gateway can do.
    pub features: Features,
    /// The device's IPv4 address on any0.
    pub v4: Option<Prefixed<Ipv4Addr>>,
    /// The device's IPv6 address on any0.
    pub v6: Option<Prefixed<Ipv6Addr>>,
    /// DNS servers to use through the gateway.
    pub dns: ArrayVec<IpAddr, MAX_DNS_SERVERS>,
    /// MTU of any0, in bytes, at least [`MIN_MTU`].
    pub mtu: u16,
}

/// Why a gateway does not let a device in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refusal {
    /// The device's key is not known and it sent no invitation.
    UnknownKey,
    /// The gateway never made, or has withdrawn, this invitation.
    UnknownInvitation,
    /// The invitation's time is over.
    InvitationExpired,
    /// Another device redeemed the invitation.
    InvitationUsed,
    /// All addresses are leased.
    NoAddressLeft,
    /// The gateway cannot do it now (full disk, overload); trying again later makes sense.
    Unavailable,
    /// A code that this version does not know.
    Other(u8),
}

impl Refusal {
    fn code(self) -> u8 {
        match self {
            Self::UnknownKey => 1,
            Self::UnknownInvitation => 2,
            Self::InvitationExpired => 3,
            Self::InvitationUsed => 4,
            Self::NoAddressLeft => 5,
            Self::Unavailable => 6,
            Self::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Self {
        match code {
            1 => Self::UnknownKey,
            2 => Self::UnknownInvitation,
            3 => Self::InvitationExpired,
            4 => Self::InvitationUsed,
            5 => Self::NoAddressLeft,
            6 => Self::Unavailable,
            other => Self::Other(other),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::UnknownKey => {
                "the gateway does not know this device (it may have been revoked); get a new invitation and join again"
            }
            Self::UnknownInvitation => {
                "the gateway does not know this invitation (withdrawn or replaced); ask for a new one and join again"
            }
            Self::InvitationExpired => "the invitation has expired; ask for a new one and join again",
            Self::InvitationUsed => {
                "the invitation was already used by another device; ask for a new one and join again"
            }
            Self::NoAddressLeft => "the gateway has no address left; revoke a client there or widen its pool",
            Self::Unavailable => "the gateway cannot let devices in at the moment; see its log",
            Self::Other(code) => return write!(formatter, "the gateway refused for reason {code}; update this program"),
        })
    }
}

/// Second message, gateway to device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Come in.
    Welcome(Welcome),
    /// Stay out.
    Refusal(Refusal),
}

/// Why bytes are no hello or reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum HelloError {
    /// Longer than [`MAX_HELLO_LENGTH`].
    #[error("message longer than {MAX_HELLO_LENGTH} bytes")]
    TooLong,
    /// Ends inside a field.
    #[error("message cut short")]
    Truncated,
    /// Another version.
    #[error("message has version {0}, this program reads version {VERSION}")]
    Version(u8),
    /// Neither welcome nor refusal.
    #[error("reply of unknown sort {0}")]
    Sort(u8),
    /// An essential field that this version does not know.
    #[error("field {0} is essential and not known here")]
    Essential(u8),
    /// A field of the wrong length or with an impossible value.
    #[error("field {0} has an impossible value")]
    Value(u8),
    /// A field that may stand once stands twice, or a list has too many entries.
    #[error("field {0} stands too often")]
    Repeated(u8),
    /// A required field is not there.
    #[error("field {0} is missing")]
    Missing(u8),
    /// A name that is none.
    #[error("not a name: 1 to {MAX_NAME} bytes without control characters or outer spaces")]
    Name,
}

impl Hello {
    /// The bytes to send. They hold the invitation's secret: wipe them after use.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION];
        put(&mut bytes, field::NAME, self.name.0.as_bytes());
        if let Some(secret) = &self.secret {
            put(&mut bytes, field::SECRET, &secret.0);
        }
        put(&mut bytes, field::FEATURES, &self.features.0.to_be_bytes());
        if self.treatment != DefaultTreatment::Bonded {
            put(&mut bytes, field::TREATMENT, &[self.treatment.code()]);
        }
        bytes
    }

    /// Reads what [`Hello::encode`] wrote.
    ///
    /// # Errors
    /// A [`HelloError`] that names the first fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        let mut fields = Fields::of_version(bytes)?;
        let (mut name, mut secret, mut features, mut treatment) = (None, None, None, None);
        while let Some((kind, value)) = fields.next()? {
            match kind {
                field::NAME => set(&mut name, kind, parse_name(value)?)?,
                field::SECRET => set(&mut secret, kind, InvitationSecret(sized(kind, value)?))?,
                field::FEATURES => set(&mut features, kind, parse_features(value)?)?,
                field::TREATMENT => {
                    let [code] = sized(kind, value)?;
                    set(&mut treatment, kind, DefaultTreatment::from_code(code))?;
                }
                _ => ignore(kind)?,
            }
        }
        let name = name.ok_or(HelloError::Missing(field::NAME))?;
        let (features, treatment) = (features.unwrap_or_default(), treatment.unwrap_or_default());
        Ok(Self { name, secret, features, treatment })
    }
}

impl Reply {
    /// The bytes to send.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Welcome(welcome) => welcome.encode(),
            Self::Refusal(reason) => {
                let mut bytes = vec![VERSION, REFUSAL];
                put(&mut bytes, field::REASON, &[reason.code()]);
                bytes
            }
        }
    }

    /// Reads what [`Reply::encode`] wrote.
    ///
    /// # Errors
    /// A [`HelloError`] that names the first fault.
    pub fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        let mut fields = Fields::of_version(bytes)?;
        match fields.byte()? {
            WELCOME => Welcome::parse(fields).map(Self::Welcome),
            REFUSAL => parse_refusal(fields).map(Self::Refusal),
            other => Err(HelloError::Sort(other)),
        }
    }
}

impl Welcome {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![VERSION, WELCOME];
        put(&mut bytes, field::NAME, self.name.0.as_bytes());
        put(&mut bytes, field::FEATURES, &self.features.0.to_be_bytes());
        if let Some(v4) = self.v4 {
            put(&mut bytes, field::ADDRESS_V4, &[&v4.address.octets()[..], &[v4.prefix]].concat());
        }
        if let Some(v6) = self.v6 {
            put(&mut bytes, field::ADDRESS_V6, &[&v6.address.octets()[..], &[v6.prefix]].concat());
        }
        for server in &self.dns {
            match server {
                IpAddr::V4(v4) => put(&mut bytes, field::DNS_SERVER, &v4.octets()),
                IpAddr::V6(v6) => put(&mut bytes, field::DNS_SERVER, &v6.octets()),
            }
        }
        put(&mut bytes, field::MTU, &self.mtu.to_be_bytes());
        bytes
    }

    fn parse(mut fields: Fields<'_>) -> Result<Self, HelloError> {
        let (mut name, mut features, mut v4, mut v6, mut mtu) = (None, None, None, None, None);
        let mut dns = ArrayVec::new();
        while let Some((kind, value)) = fields.next()? {
            match kind {
                field::NAME => set(&mut name, kind, parse_name(value)?)?,
                field::FEATURES => set(&mut features, kind, parse_features(value)?)?,
                field::ADDRESS_V4 => set(&mut v4, kind, parse_v4(value)?)?,
                field::ADDRESS_V6 => set(&mut v6, kind, parse_v6(value)?)?,
                field::DNS_SERVER => {
                    dns.try_push(parse_server(value)?).map_err(|_| HelloError::Repeated(kind))?;
                }
                field::MTU => {
                    let value = u16::from_be_bytes(sized(kind, value)?);
                    set(
                        &mut mtu,
                        kind,
                        Some(value).filter(|mtu| *mtu >= MIN_MTU).ok_or(HelloError::Value(kind))?,
                    )?;
                }
                _ => ignore(kind)?,
            }
        }
        if v4.is_none() && v6.is_none() {
            return Err(HelloError::Missing(field::ADDRESS_V4));
        }
        Ok(Self {
            name: name.ok_or(HelloError::Missing(field::NAME))?,
            features: features.unwrap_or_default(),
            v4,
            v6,
            dns,
            mtu: mtu.ok_or(HelloError::Missing(field::MTU))?,
        })
    }
}

fn parse_refusal(mut fields: Fields<'_>) -> Result<Refusal, HelloError> {
    let mut reason = None;
    while let Some((kind, value)) = fields.next()? {
        match kind {
            field::REASON => {
                let [code] = sized(kind, value)?;
                set(&mut reason, kind, Refusal::from_code(code))?;
            }
            _ => ignore(kind)?,
        }
    }
    reason.ok_or(HelloError::Missing(field::REASON))
}

fn parse_name(value: &[u8]) -> Result<Name, HelloError> {
    Name::new(std::str::from_utf8(value).map_err(|_| HelloError::Name)?)
}

fn parse_features(value: &[u8]) -> Result<Features, HelloError> {
    sized(field::FEATURES, value).map(|bytes| Features(u32::from_be_bytes(bytes)))
}

fn parse_v4(value: &[u8]) -> Result<Prefixed<Ipv4Addr>, HelloError> {
    let [a, b, c, d, prefix] = sized(field::ADDRESS_V4, value)?;
    if prefix > 32 {
        return Err(HelloError::Value(field::ADDRESS_V4));
    }
    Ok(Prefixed { address: Ipv4Addr::new(a, b, c, d), prefix })
}

fn parse_v6(value: &[u8]) -> Result<Prefixed<Ipv6Addr>, HelloError> {
    let wrong = HelloError::Value(field::ADDRESS_V6);
    let (octets, prefix) = value.split_first_chunk::<16>().ok_or(wrong)?;
    match prefix {
        [prefix @ 0..=128] => Ok(Prefixed { address: Ipv6Addr::from(*octets), prefix: *prefix }),
        _ => Err(wrong),
    }
}

fn parse_server(value: &[u8]) -> Result<IpAddr, HelloError> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Ok(octets.into());
    }
    sized::<16>(field::DNS_SERVER, value).map(IpAddr::from)
}

fn sized<const N: usize>(kind: u8, value: &[u8]) -> Result<[u8; N], HelloError> {
    value.try_into().map_err(|_| HelloError::Value(kind))
}

fn set<T>(place: &mut Option<T>, kind: u8, value: T) -> Result<(), HelloError> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(HelloError::Repeated(kind)),
    }
}

fn ignore(kind: u8) -> Result<(), HelloError> {
    if kind & ESSENTIAL == 0 { Ok(()) } else { Err(HelloError::Essential(kind)) }
}

/// Appends a field; values are bounded by their types to far less than 255 bytes.
fn put(bytes: &mut Vec<u8>, kind: u8, value: &[u8]) {
    bytes.extend([kind, value.len() as u8]);
    bytes.extend(value);
}

struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    fn of_version(bytes: &'a [u8]) -> Result<Self, HelloError> {
        if bytes.len() > MAX_HELLO_LENGTH {
            return Err(HelloError::TooLong);
        }
        let mut fields = Self { rest: bytes };
        match fields.byte()? {
            VERSION => Ok(fields),
            other => Err(HelloError::Version(other)),
        }
    }

    fn byte(&mut self) -> Result<u8, HelloError> {
        let (byte, rest) = self.rest.split_first().ok_or(HelloError::Truncated)?;
        self.rest = rest;
        Ok(*byte)
    }

    fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, HelloError> {
        let Some((kind, rest)) = self.rest.split_first() else { return Ok(None) };
        let (length, rest) = rest.split_first().ok_or(HelloError::Truncated)?;
        let (value, rest) = rest.split_at_checked(usize::from(*length)).ok_or(HelloError::Truncated)?;
        self.rest = rest;
        Ok(Some((*kind, value)))
    }
}

#[cfg(test)]
mod tests;
