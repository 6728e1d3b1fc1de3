//! Join links: the text that introduces one identity to another.
//!
//! A link is `anabranch://join/` followed by the base64url form (RFC 4648 section 5, no padding) of:
//!
//! ```text
//!  offset  size  field
//!  0       1     version, 1
//!  1       1     kind: 0 gateway, 1 peer, 2 neighbour, 3 group
//!  2       32    X25519 public key of the inviter
//!  34      16    invitation secret
//!  50      8     expiry, seconds since 1970 UTC
//!  58      2     TCP port of the framed-TCP carrier, 0 if none
//!  60      1     number of addresses, 1 to 8
//!  61      ...   addresses, each: type, host, port (2)
//!                  type 4: host is 4 bytes of IPv4
//!                  type 6: host is 16 bytes of IPv6
//!                  type 1: host is a length (1) and that many bytes of DNS name; 001122334455.bluetooth.invalid is
//!                          the Bluetooth controller with that address, which older versions look up in vain (RFC 6761)
//!  end-4   4     CRC-32 (ISO-HDLC) of everything before it
//! ```
//!
//! Integers are big-endian. The version is read first, so that a newer link is named as such whatever follows.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::str::FromStr;

use data_encoding::BASE64URL_NOPAD;
use thiserror::Error;
use units::MacAddress;
use zeroize::{Zeroize, ZeroizeOnDrop};

use crate::peer::BLUETOOTH_PREFIX;

/// What every link starts with.
pub const LINK_PREFIX: &str = "anabranch://join/";
/// Most addresses in one link.
pub const MAX_ADDRESSES: usize = 8;
/// Longest DNS name, in bytes (RFC 1035 section 2.3.4, without the root label).
pub const MAX_HOST_NAME: usize = 253;
/// Longest text that is looked at, in characters: a full link and room for line breaks.
pub const MAX_LINK_TEXT: usize = 4_096;

const VERSION: u8 = 1;
const CHECKSUM_LENGTH: usize = 4;
const BLUETOOTH_SUFFIX: &str = ".bluetooth.invalid";
const TYPE_NAME: u8 = 1;
const TYPE_V4: u8 = 4;
const TYPE_V6: u8 = 6;

/// A point in wall time: seconds since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct UnixSeconds(pub u64);

/// What an invitation makes of the one who redeems it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum InvitationKind {
    /// A client of the inviting gateway.
    Gateway,
    /// A peer: both ends talk for themselves.
    Peer,
    /// A neighbour who lends its uplink.
    Neighbour,
    /// A member of a group that the inviter is in.
    Group,
}

impl InvitationKind {
    /// The kind's word in texts and databases.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Peer => "peer",
            Self::Neighbour => "neighbour",
            Self::Group => "group",
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Gateway => 0,
            Self::Peer => 1,
            Self::Neighbour => 2,
            Self::Group => 3,
        }
    }

    fn from_code(code: u8) -> Result<Self, JoinLinkError> {
        match code {
            0 => Ok(Self::Gateway),
            1 => Ok(Self::Peer),
            2 => Ok(Self::Neighbour),
            3 => Ok(Self::Group),
            other => Err(JoinLinkError::Kind(other)),
        }
    }
}

impl fmt::Display for InvitationKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// The single-use secret of an invitation; wiped when dropped, never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct InvitationSecret(pub [u8; 16]);

impl fmt::Debug for InvitationSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("InvitationSecret(..)")
    }
}

/// Where a far end may be reached: an address or a DNS name.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Host {
    /// IPv4 or IPv6.
    Address(IpAddr),
    /// A DNS name, looked up over each network on its own.
    Name(HostName),
    /// A Bluetooth controller.
    Bluetooth(MacAddress),
}

impl fmt::Display for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(formatter, "{address}"),
            Self::Name(name) => formatter.write_str(&name.0),
            Self::Bluetooth(device) => write!(formatter, "{BLUETOOTH_PREFIX}{device}"),
        }
    }
}

/// A DNS name of letters, digits, hyphens, underscores and dots.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostName(String);

impl HostName {
    /// Checks the alphabet, the label lengths (1 to 63) and the whole length (at most 253).
    ///
    /// # Errors
    /// [`JoinLinkError::HostName`] if the name is none.
    pub fn new(name: &str) -> Result<Self, JoinLinkError> {
        let label_ok = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        };
        if name.len() > MAX_HOST_NAME || !name.split('.').all(label_ok) {
            return Err(JoinLinkError::HostName);
        }
        Ok(Self(name.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A host and a UDP port.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct HostPort {
    /// Address or name.
    pub host: Host,
    /// UDP port.
    pub port: NonZeroU16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Address(IpAddr::V6(address)) => write!(formatter, "[{address}]:{}", self.port),
            host => write!(formatter, "{host}:{}", self.port),
        }
    }
}

impl HostPort {
    /// Reads `HOST`, `HOST:PORT`, `[V6]` or `[V6]:PORT`; a bare IPv6 address needs no brackets. `bt:00:11:22:33:44:55` is a Bluetooth controller.
    ///
    /// # Errors
    /// [`JoinLinkError::Address`] or [`JoinLinkError::HostName`] if the text is none of these.
    pub fn parse_with_default(text: &str, default_port: NonZeroU16) -> Result<Self, JoinLinkError> {
        let text = text.trim();
        if let Some(device) = text.strip_prefix(BLUETOOTH_PREFIX).and_then(|rest| rest.parse().ok()) {
            return Ok(Self { host: Host::Bluetooth(device), port: default_port });
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self { host: Host::Address(address), port: default_port });
        }
        let (host, port) = split_port(text)?;
        let port = port.map_or(Ok(default_port), |port| port.parse().map_err(|_| JoinLinkError::Address))?;
        if let Some(device) = host.strip_prefix(BLUETOOTH_PREFIX) {
            let device = device.parse().map_err(|_| JoinLinkError::Address)?;
            return Ok(Self { host: Host::Bluetooth(device), port });
        }
        if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            let address = inner.parse::<Ipv6Addr>().map_err(|_| JoinLinkError::Address)?;
            return Ok(Self { host: Host::Address(address.into()), port });
        }
        if let Ok(address) = host.parse::<Ipv4Addr>() {
            return Ok(Self { host: Host::Address(address.into()), port });
        }
        if host.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(JoinLinkError::Address);
        }
        Ok(Self { host: Host::Name(HostName::new(host)?), port })
    }
}

impl FromStr for HostPort {
    type Err = JoinLinkError;

    /// Reads `HOST:PORT` or `[V6]:PORT`; the port is required.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match split_port(text.trim())? {
            (_, Some(_)) if text.trim().parse::<IpAddr>().is_err() => {
                Self::parse_with_default(text, NonZeroU16::MIN)
            }
            _ => Err(JoinLinkError::Address),
        }
    }
}

/// Everything a device needs to reach and to trust the far end that invited it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinLink {
    /// What the invitation is for.
    pub kind: InvitationKind,
    /// X25519 public key of the inviter.
    pub public_key: [u8; 32],
    /// Where to reach it, best first; 1 to [`MAX_ADDRESSES`].
    pub addresses: Vec<HostPort>,
    /// Port of the framed-TCP carrier, where UDP is blocked.
    pub tcp_port: Option<NonZeroU16>,
    /// Proves the invitation, once.
    pub secret: InvitationSecret,
    /// From when on the inviter refuses it.
    pub expires: UnixSeconds,
}

impl JoinLink {
    /// The link as text.
    ///
    /// # Errors
    /// [`JoinLinkError::AddressCount`] if there are no or too many addresses.
    pub fn encode(&self) -> Result<String, JoinLinkError> {
        if self.addresses.is_empty() || self.addresses.len() > MAX_ADDRESSES {
            return Err(JoinLinkError::AddressCount(self.addresses.len()));
        }
        let mut bytes = Vec::with_capacity(128);
        bytes.extend([VERSION, self.kind.code()]);
        bytes.extend(self.public_key);
        bytes.extend(self.secret.0);
        bytes.extend(self.expires.0.to_be_bytes());
        bytes.extend(self.tcp_port.map_or(0, NonZeroU16::get).to_be_bytes());
        bytes.push(self.addresses.len() as u8);
        for address in &self.addresses {
            encode_address(address, &mut bytes);
        }
        bytes.extend(crc32(&bytes).to_be_bytes());
        let text = format!("{LINK_PREFIX}{}", BASE64URL_NOPAD.encode(&bytes));
        bytes.zeroize();
        Ok(text)
    }

    /// Reads a link; white space anywhere in it (a wrapped line, say) is ignored.
    ///
    /// # Errors
    /// A [`JoinLinkError`] that says what is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, JoinLinkError> {
        if text.len() > MAX_LINK_TEXT {
            return Err(JoinLinkError::TooLong);
        }
        let mut compact: String = text.chars().filter(|character| !character.is_ascii_whitespace()).collect();
        let decoded = decode_text(&compact);
        compact.zeroize();
        let mut bytes = decoded?;
        let link = parse_bytes(&bytes);
        bytes.zeroize();
        link
    }
}

/// Why a text is no usable join link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum JoinLinkError {
    /// Does not start with [`LINK_PREFIX`].
    #[error("this is no join link: it should start with {LINK_PREFIX}")]
    NotALink,
    /// Longer than any link.
    #[error("the join link is too long: at most {MAX_LINK_TEXT} characters are read")]
    TooLong,
    /// A character that base64url does not have.
    #[error(
        "the join link has a character that does not belong in it, number {0} after the slash; copy it again"
    )]
    Character(usize),
    /// Ends too early.
    #[error("the join link is cut short; copy all of it")]
    Truncated,
    /// Made by another version.
    #[error(
        "the join link has format version {0}, this program reads version {VERSION}; update the older side"
    )]
    Version(u8),
    /// The checksum does not fit.
    #[error("the join link is damaged (its checksum does not fit); copy it again")]
    Checksum,
    /// Bytes after the end.
    #[error("the join link has {0} bytes too many; copy it again")]
    Trailing(usize),
    /// An unknown kind.
    #[error("the join link is for something this version does not know (kind {0}); update this program")]
    Kind(u8),
    /// No or too many addresses.
    #[error("a join link holds 1 to {MAX_ADDRESSES} addresses, not {0}")]
    AddressCount(usize),
    /// An address that cannot be read.
    #[error("not an address: expected HOST:PORT, [IPV6]:PORT or NAME:PORT with a port from 1 to 65535")]
    Address,
    /// An impossible DNS name.
    #[error("not a DNS name: letters, digits, hyphens and dots, at most {MAX_HOST_NAME} characters")]
    HostName,
}

fn decode_text(compact: &str) -> Result<Vec<u8>, JoinLinkError> {
    let body = compact.strip_prefix(LINK_PREFIX).ok_or(JoinLinkError::NotALink)?;
    BASE64URL_NOPAD.decode(body.as_bytes()).map_err(|error| match error.kind {
        data_encoding::DecodeKind::Length => JoinLinkError::Truncated,
        data_encoding::DecodeKind::Trailing => JoinLinkError::Truncated,
        _ => JoinLinkError::Character(error.position + 1),
    })
}

fn parse_bytes(bytes: &[u8]) -> Result<JoinLink, JoinLinkError> {
    let mut reader = Reader { rest: bytes };
    let version = reader.byte()?;
    if version != VERSION {
        return Err(JoinLinkError::Version(version));
    }
    // The layout is walked before the checksum, so that a cut link is called cut and not damaged.
    let kind = reader.byte()?;
    let public_key = reader.array::<32>()?;
    let secret = InvitationSecret(reader.array::<16>()?);
    let expires = UnixSeconds(u64::from_be_bytes(reader.array()?));
    let tcp_port = NonZeroU16::new(u16::from_be_bytes(reader.array()?));
    let count = usize::from(reader.byte()?);
    let addresses = (0..count.min(MAX_ADDRESSES)).map(|_| reader.address()).collect::<Result<Vec<_>, _>>();
    let addresses = match addresses {
        Err(JoinLinkError::Truncated) => return Err(JoinLinkError::Truncated),
        Err(fault) if checksum_fits(bytes) => return Err(fault),
        Err(_) => return Err(JoinLinkError::Checksum),
        Ok(addresses) => addresses,
    };
    if !checksum_fits(bytes) {
        return Err(if reader.rest.len() < CHECKSUM_LENGTH {
            JoinLinkError::Truncated
        } else {
            JoinLinkError::Checksum
        });
    }
    if count == 0 || count > MAX_ADDRESSES {
        return Err(JoinLinkError::AddressCount(count));
    }
    if reader.rest.len() != CHECKSUM_LENGTH {
        return Err(JoinLinkError::Trailing(reader.rest.len().saturating_sub(CHECKSUM_LENGTH)));
    }
    Ok(JoinLink { kind: InvitationKind::from_code(kind)?, public_key, addresses, tcp_port, secret, expires })
}

fn checksum_fits(bytes: &[u8]) -> bool {
    bytes
        .split_last_chunk::<CHECKSUM_LENGTH>()
        .is_some_and(|(body, checksum)| crc32(body).to_be_bytes() == *checksum)
}

/// Appends an address as it stands in a link.
pub(crate) fn encode_address(address: &HostPort, bytes: &mut Vec<u8>) {
    match &address.host {
        Host::Address(IpAddr::V4(v4)) => {
            bytes.push(TYPE_V4);
            bytes.extend(v4.octets());
        }
        Host::Address(IpAddr::V6(v6)) => {
            bytes.push(TYPE_V6);
            bytes.extend(v6.octets());
        }
        Host::Name(name) => {
            bytes.extend([TYPE_NAME, name.0.len() as u8]);
            bytes.extend(name.0.bytes());
        }
        Host::Bluetooth(device) => {
            let name: String = device.0.iter().map(|byte| format!("{byte:02x}")).collect();
            bytes.extend([TYPE_NAME, (name.len() + BLUETOOTH_SUFFIX.len()) as u8]);
            bytes.extend(name.bytes().chain(BLUETOOTH_SUFFIX.bytes()));
        }
    }
    bytes.extend(address.port.get().to_be_bytes());
}

/// Reads an address as it stands in a link; also what follows it.
pub(crate) fn decode_address(bytes: &[u8]) -> Result<(HostPort, &[u8]), JoinLinkError> {
    let mut reader = Reader { rest: bytes };
    let address = reader.address()?;
    Ok((address, reader.rest))
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], JoinLinkError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(JoinLinkError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    fn byte(&mut self) -> Result<u8, JoinLinkError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn address(&mut self) -> Result<HostPort, JoinLinkError> {
        let host = match self.byte()? {
            TYPE_V4 => Host::Address(Ipv4Addr::from(self.array::<4>()?).into()),
            TYPE_V6 => Host::Address(Ipv6Addr::from(self.array::<16>()?).into()),
            TYPE_NAME => {
                let length = usize::from(self.byte()?);
                let (name, rest) = self.rest.split_at_checked(length).ok_or(JoinLinkError::Truncated)?;
                self.rest = rest;
                let name = std::str::from_utf8(name).map_err(|_| JoinLinkError::HostName)?;
                match bluetooth_of(name) {
                    Some(device) => Host::Bluetooth(device),
                    None => Host::Name(HostName::new(name)?),
                }
            }
            _ => return Err(JoinLinkError::Address),
        };
        let port = NonZeroU16::new(u16::from_be_bytes(self.array()?)).ok_or(JoinLinkError::Address)?;
        Ok(HostPort { host, port })
    }
}

/// The controller that a name stands for, if it stands for one.
fn bluetooth_of(name: &str) -> Option<MacAddress> {
    let digits = name.strip_suffix(BLUETOOTH_SUFFIX)?;
    let mut device = [0; 6];
    for (byte, pair) in device.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    let is_plain = digits.len() == 12 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_plain.then_some(MacAddress(device))
}

/// Splits `HOST:PORT` at the last colon outside brackets.
fn split_port(text: &str) -> Result<(&str, Option<&str>), JoinLinkError> {
    if text.starts_with('[') {
        let end = text.find(']').ok_or(JoinLinkError::Address)?;
        let (host, rest) = text.split_at(end + 1);
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(JoinLinkError::Address),
        };
    }
    let split = if text.starts_with(BLUETOOTH_PREFIX) { text.rsplit_once(':') } else { text.split_once(':') };
    match split {
        Some((host, port)) => Ok((host, Some(port))),
        None => Ok((text, None)),
    }
}

/// CRC-32/ISO-HDLC: reflected polynomial 0xEDB88320, start and final complement of all ones.
fn crc32(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xEDB8_8320;
    let step = |crc: u32, _| if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[cfg(test)]
mod tests;
