//! Bodies of data frames: packets behind an LLC/SNAP header (RFC 1042), and Ethernet frames as an interface has them.

use units::MacAddress;

use super::FrameError;
use super::bytes::Reader;

/// LLC/SNAP for a type of Ethernet II (RFC 1042).
const SNAP: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0];
/// The bridge tunnel's, for the two types for which RFC 1042's is not used (IEEE 802.1H).
const BRIDGE_TUNNEL: [u8; 6] = [0xaa, 0xaa, 3, 0, 0, 0xf8];
/// Types up to here are lengths.
const LEAST_ETHERNET_TYPE: u16 = 0x600;
/// The longest packet in a data frame (IEEE 802.11-2020 section 9.2.4.7).
const MOST_BODY: usize = 2_304;

/// Type of Ethernet of key frames (IEEE 802.1X).
pub const EAPOL_TYPE: u16 = 0x888e;

/// A packet with its Ethernet II fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// Whom it is for.
    pub destination: MacAddress,
    /// Who made it.
    pub source: MacAddress,
    /// What it holds.
    pub ethernet_type: u16,
    /// The packet.
    pub payload: &'a [u8],
}

impl<'a> Packet<'a> {
    /// From the body of a data frame.
    ///
    /// # Errors
    /// Too few bytes; an LLC header that is not SNAP.
    pub fn from_body(
        source: MacAddress,
        destination: MacAddress,
        body: &'a [u8],
    ) -> Result<Self, FrameError> {
        let mut reader = Reader(body);
        let llc: [u8; 6] = reader.array()?;
        if llc != SNAP && llc != BRIDGE_TUNNEL {
            return Err(FrameError::Value("LLC header"));
        }
        Ok(Self { destination, source, ethernet_type: reader.big_16()?, payload: reader.0 })
    }

    /// From a frame of an Ethernet interface.
    ///
    /// # Errors
    /// Too few bytes, a length in place of a type, a packet too long for the air.
    pub fn from_ethernet(frame: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(frame);
        let (destination, source) = (reader.address()?, reader.address()?);
        let ethernet_type = reader.big_16()?;
        if ethernet_type < LEAST_ETHERNET_TYPE {
            return Err(FrameError::Value("type of Ethernet"));
        }
        if reader.0.len() + SNAP.len() + 2 > MOST_BODY {
            return Err(FrameError::Value("length of a packet"));
        }
        Ok(Self { destination, source, ethernet_type, payload: reader.0 })
    }

    /// Appends it as the body of a data frame.
    pub fn write_body(&self, frame: &mut Vec<u8>) {
        let bridged = matches!(self.ethernet_type, 0x80f3 | 0x8137);
        frame.extend_from_slice(if bridged { &BRIDGE_TUNNEL } else { &SNAP });
        frame.extend_from_slice(&self.ethernet_type.to_be_bytes());
        frame.extend_from_slice(self.payload);
    }

    /// As a frame of an Ethernet interface.
    pub fn to_ethernet(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(14 + self.payload.len());
        frame.extend_from_slice(&self.destination.0);
        frame.extend_from_slice(&self.source.0);
        frame.extend_from_slice(&self.ethernet_type.to_be_bytes());
        frame.extend_from_slice(self.payload);
        frame
    }
}

/// The packets of an aggregate (A-MSDU, IEEE 802.11-2020 section 9.3.2.2.2), up to the first that breaks the standard.
///
/// A first packet whose destination looks like an LLC header is what an attacker makes by setting the aggregate bit on an ordinary
/// frame (CVE-2020-24588); nothing of such a frame is taken.
pub fn aggregated(body: &[u8]) -> impl Iterator<Item = Packet<'_>> {
    let forged = body.starts_with(&SNAP);
    let mut reader = Reader(if forged { &[] } else { body });
    std::iter::from_fn(move || {
        let (destination, source) = (reader.address().ok()?, reader.address().ok()?);
        let length = usize::from(reader.big_16().ok()?);
        let packet = Packet::from_body(source, destination, reader.take(length).ok()?).ok()?;
        // Each but the last is filled up to a multiple of four.
        let padding = (4 - (14 + length) % 4) % 4;
        reader.take(padding.min(reader.0.len())).ok()?;
        Some(packet)
    })
}
