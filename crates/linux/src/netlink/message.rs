//! Reading and building netlink messages (RFC 3549 section 2.3).
//!
//! ```text
//!  0               1               2               3
//! +---------------------------------------------------------------+
//! |                     length, header included                   |
//! +-------------------------------+-------------------------------+
//! |             kind              |             flags             |
//! +-------------------------------+-------------------------------+
//! |                           sequence                            |
//! +---------------------------------------------------------------+
//! |                             port                              |
//! +---------------------------------------------------------------+
//! |  body: a fixed structure, then attributes (length, kind, value)
//! ```
//! All numbers are in the host's byte order; everything is padded to 4 bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Size of the header, in bytes.
pub(crate) const HEADER: usize = 16;

const NESTED: u16 = 0x8000;
const KIND_MASK: u16 = 0x3fff;

/// A request under construction.
pub(crate) struct Request {
    bytes: Vec<u8>,
}

impl Request {
    /// A message of `kind` with `flags` whose fixed structure is `body`.
    pub(crate) fn new(kind: u16, flags: u16, body: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        bytes.extend_from_slice(body);
        pad(&mut bytes);
        Self { bytes }
    }

    /// The address family, which the fixed structure of most requests begins with.
    pub(crate) fn family(&self) -> Option<u8> {
        self.bytes.get(HEADER).copied()
    }

    /// Adds an attribute.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) -> &mut Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(&value[..usize::from(length) - 4]);
        pad(&mut self.bytes);
        self
    }

    /// Adds a 32-bit attribute.
    pub(crate) fn number(&mut self, kind: u16, value: u32) -> &mut Self {
        self.attribute(kind, &value.to_ne_bytes())
    }

    /// Adds a text attribute, ended by a zero byte.
    pub(crate) fn text(&mut self, kind: u16, value: &str) -> &mut Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.attribute(kind, &bytes)
    }

    /// Adds an address of either family.
    pub(crate) fn address(&mut self, kind: u16, value: IpAddr) -> &mut Self {
        match value {
            IpAddr::V4(address) => self.attribute(kind, &address.octets()),
            IpAddr::V6(address) => self.attribute(kind, &address.octets()),
        }
    }

    /// Adds an attribute that holds what `fill` adds.
    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Self)) -> &mut Self {
        let start = self.bytes.len();
        self.attribute(kind | NESTED, &[]);
        fill(self);
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// Adds raw bytes, for structures inside nested attributes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        pad(&mut self.bytes);
        self
    }

    /// The finished message with its `sequence`.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

fn pad(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(4), 0);
}

/// A received message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) body: &'a [u8],
}

/// The messages of one received datagram; ends at the first malformed one.
pub(crate) fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = number(bytes, 0)? as usize;
        if length < HEADER || length > bytes.len() {
            return None;
        }
        let message = Message {
            kind: short(bytes, 4)?,
            flags: short(bytes, 6)?,
            sequence: number(bytes, 8)?,
            body: &bytes[HEADER..length],
        };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    })
}

/// The attributes in `bytes` as kind and value; ends at the first malformed one.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(short(bytes, 0)?);
        let kind = short(bytes, 2)? & KIND_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some((kind, value))
    })
}

/// The 32-bit number at `offset`.
pub(crate) fn number(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(offset..offset + 4)?.try_into().ok()?))
}

/// The 16-bit number at `offset`.
pub(crate) fn short(bytes: &[u8], offset: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(offset..offset + 2)?.try_into().ok()?))
}

/// The 64-bit number at `offset`.
pub(crate) fn long(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(offset..offset.checked_add(8)?)?.try_into().ok()?))
}

/// The 16-bit number at the start of `bytes`, in network byte order.
pub(crate) fn network_short(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.first_chunk()?))
}

/// The 32-bit number at the start of `bytes`, in network byte order.
pub(crate) fn network_number(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.first_chunk()?))
}

/// The 64-bit number at the start of `bytes`, in network byte order.
pub(crate) fn network_long(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(*bytes.first_chunk()?))
}

/// The text in an attribute, without its final zero byte.
pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// The address in an attribute, by its size.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    if let Ok(octets) = <[u8; 4]>::try_from(value) {
        return Some(IpAddr::V4(Ipv4Addr::from(octets)));
    }
    <[u8; 16]>::try_from(value).ok().map(|octets| IpAddr::V6(Ipv6Addr::from(octets)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_built_is_read_back() {
        let mut request = Request::new(16, 5, &[1, 2, 3, 4]);
        request.text(3, "wlan0").nested(18, |inner| {
            inner.number(7, 99);
        });
        let bytes = request.finish(42);
        let message = messages(&bytes).next().unwrap();
        assert_eq!((message.kind, message.flags, message.sequence), (16, 5, 42));
        let found: Vec<_> = attributes(&message.body[4..]).collect();
        assert_eq!(text(found[0].1), "wlan0");
        assert_eq!(found[1].0, 18);
        assert_eq!(attributes(found[1].1).next(), Some((7, 99u32.to_ne_bytes().as_slice())));
    }

    #[test]
    fn malformed_input_ends_the_iteration() {
        assert_eq!(messages(&[1, 2, 3]).count(), 0);
        assert_eq!(messages(&[255; 64]).count(), 0);
        assert_eq!(messages(&[0; 64]).count(), 0);
        assert_eq!(attributes(&[0; 64]).count(), 0, "a length below the header is malformed");
        assert_eq!(attributes(&[200, 0, 1, 0]).count(), 0);
    }
}
