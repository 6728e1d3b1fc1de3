//! Stateless translation between IPv4 and IPv6 packets (RFC 7915), as the customer's side of 464XLAT does it (RFC 6877).
//!
//! ```text
//! IPv4 packet of this side   local -> far     ==  IPv6 packet  own::local -> nat64::far
//! ```
//! Both addresses are written into prefixes (RFC 6052), so nothing is remembered. TCP, UDP and ICMP are translated with their
//! checksums, ICMP errors with the packet that they are about; other protocols pass as they are.
//!
//! Where this differs from RFC 7915, and why:
//! - The hop limit is taken over: the kernel that hands packets in and takes them out has counted the hop.
//! - Unfragmented packets become IPv4 packets that must not be fragmented, whatever their size: an identification would need memory.
//! - A path's MTU is reported 28 bytes smaller, not 20, so that a packet that IPv4 then fragments fits with its fragment header.
//! - An error from a router whose address has no IPv4 form comes from 192.0.0.8 (RFC 7600), the address made for that.

mod checksum;
mod icmp;
mod prefix;
mod to_v4;
mod to_v6;

#[cfg(test)]
mod tests;

pub use prefix::Prefix;

/// The prefixes between which packets are translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translator {
    /// Where IPv4 addresses of this side are written.
    pub own: Prefix,
    /// Where those of the far side are: the prefix of the NAT64.
    pub far: Prefix,
}

/// Why a packet is not translated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Untranslated {
    /// The header says more than there is, or contradicts itself.
    #[error("not one whole IP packet")]
    Malformed,
    /// An address that has no counterpart: not in the prefix, multicast, or of this machine only.
    #[error("an address that cannot be translated")]
    Address,
    /// A header, an option, a protocol or an ICMP message that has no counterpart.
    #[error("nothing like it on the other side")]
    NoCounterpart,
    /// Longer than the way on allows, and it must not be fragmented.
    #[error("too long for the way on, which takes IPv4 packets of {mtu} bytes")]
    TooLong {
        /// The longest IPv4 packet that fits, in bytes.
        mtu: u16,
    },
}

impl Translator {
    /// Translates a packet of this side; `sink` gets one IPv6 packet, or its fragments if it is longer than `mtu` bytes.
    ///
    /// # Errors
    /// [`Untranslated`]; of a fragmented packet nothing was given to `sink`. [`Untranslated::TooLong`] is to be told to
    /// the sender: [`Self::too_long`].
    pub fn to_v6(&self, packet: &[u8], mtu: u16, sink: &mut impl FnMut(&[u8])) -> Result<(), Untranslated> {
        to_v6::translate(self, packet, mtu, sink)
    }

    /// Translates a packet of the far side into the IPv4 packet that it becomes here.
    ///
    /// # Errors
    /// [`Untranslated`].
    pub fn to_v4(&self, packet: &[u8]) -> Result<Vec<u8>, Untranslated> {
        to_v4::translate(self, packet)
    }

    /// The ICMP error that tells the sender of `packet` that IPv4 packets of `mtu` bytes at most get through; `None` if
    /// nobody must be told.
    pub fn too_long(&self, packet: &[u8], mtu: u16) -> Option<Vec<u8>> {
        icmp::too_long(packet, mtu)
    }
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP_V4: u8 = 1;
const ICMP_V6: u8 = 58;
const FRAGMENT: u8 = 44;
const V4_HEADER: usize = 20;
const V6_HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;
/// What translation and a fragment header add to an IPv4 packet.
const GROWTH: u16 = (V6_HEADER - V4_HEADER + FRAGMENT_HEADER) as u16;
/// Every IPv6 link carries this (RFC 8200 section 5).
const LEAST_V6_MTU: u16 = 1_280;

/// Protocols that belong to one version of IP only, or to a hop.
const fn has_counterpart(protocol: u8) -> bool {
    const HOP_BY_HOP: u8 = 0;
    const IGMP: u8 = 2;
    const ROUTING: u8 = 43;
    const NO_NEXT_HEADER: u8 = 59;
    const DESTINATION_OPTIONS: u8 = 60;
    !matches!(protocol, HOP_BY_HOP | IGMP | ROUTING | FRAGMENT | NO_NEXT_HEADER | DESTINATION_OPTIONS)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn set_word(bytes: &mut [u8], at: usize, value: u16) {
    if let Some(place) = bytes.get_mut(at..at + 2) {
        place.copy_from_slice(&value.to_be_bytes());
    }
}

/// Where the checksum of a transport header is; `None` for those that are not translated.
const fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        TCP => Some(16),
        UDP => Some(6),
        _ => None,
    }
}
