//! What travels in the simulated world: inner IP packets and the bond's datagrams.

use sim::{LinkPacket, Port};
use units::Bytes;
use wire::inner::{self, Ecn};

/// A packet on a simulated link.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Packet {
    /// An IP packet of an application.
    Inner(Vec<u8>),
    /// A datagram of the bond, without the headers in front of it.
    Datagram {
        /// UDP payload.
        payload: Vec<u8>,
        /// ECN field of its IP header.
        ecn: Ecn,
        /// The port of its network at both ends of the bond, which is what its addresses say.
        network: Port,
    },
}

/// Bytes of an IPv4 and a UDP header.
pub const OUTER_HEADER_BYTES: u64 = 28;

impl LinkPacket for Packet {
    fn link_bytes(&self) -> Bytes {
        match self {
            Self::Inner(bytes) => Bytes(bytes.len() as u64),
            Self::Datagram { payload, .. } => Bytes(payload.len() as u64 + OUTER_HEADER_BYTES),
        }
    }

    fn mark_congestion(&mut self) -> bool {
        match self {
            Self::Inner(bytes) => inner::mark_ce(bytes),
            Self::Datagram { ecn, .. } => {
                let capable = *ecn != Ecn::NotEct;
                if capable {
                    *ecn = Ecn::Ce;
                }
                capable
            }
        }
    }
}
