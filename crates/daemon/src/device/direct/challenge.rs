//! Making a host of a LAN show itself, whose connection has no network any more.
//!
//! Such a host may only be receiving: it sends nothing that a reset could be the answer to, and would wait for ever. Only a
//! reset with the very next sequence number is believed (RFC 5961 section 3.2), which nobody here knows. So the host gets the second packet
//! of a handshake, as if from its peer. It is out of place in an open connection, and the host says so with an acknowledgement
//! (section 4.2). That is a packet of a flow that nobody knows; the firewall resets it with the right number.

use std::io;
use std::net::{IpAddr, SocketAddr};

use linux::packet_sender::PacketSender;
use linux::tun::write_checksum;

/// Sends them for both families; each socket is opened when it is needed first.
pub struct Challenger {
    own_mark: u32,
    v4: Option<PacketSender>,
    v6: Option<PacketSender>,
}

impl Challenger {
    /// Its packets have the mark `own_mark`: they are led nowhere else.
    pub fn new(own_mark: u32) -> Self {
        Self { own_mark, v4: None, v6: None }
    }

    /// Makes `host` show what it still has open with `peer`.
    ///
    /// # Errors
    /// The kernel's, such as that there is no way to the host.
    pub fn challenge(&mut self, host: SocketAddr, peer: SocketAddr) -> io::Result<()> {
        let own_mark = self.own_mark;
        let sender = match host.ip() {
            IpAddr::V4(_) if self.v4.is_none() => self.v4.insert(PacketSender::v4(own_mark)?),
            IpAddr::V6(_) if self.v6.is_none() => self.v6.insert(PacketSender::v6(own_mark)?),
            IpAddr::V4(_) => self.v4.as_mut().ok_or(io::ErrorKind::NotConnected)?,
            IpAddr::V6(_) => self.v6.as_mut().ok_or(io::ErrorKind::NotConnected)?,
        };
        sender.send(&packet(peer, host).ok_or(io::ErrorKind::InvalidInput)?)
    }
}

/// A SYN with an acknowledgement, both numbers 0; `None` if the addresses are of two families.
fn packet(from: SocketAddr, to: SocketAddr) -> Option<Vec<u8>> {
    let mut bytes = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut bytes = vec![0x45, 0, 0, (IPV4_HEADER + TCP_HEADER) as u8, 0, 0, 0, 0, HOPS, TCP, 0, 0];
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            bytes
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut bytes = vec![0x60, 0, 0, 0, 0, TCP_HEADER as u8, TCP, HOPS];
            bytes.extend(from.octets());
            bytes.extend(to.octets());
            bytes
        }
        _ => return None,
    };
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend([(TCP_HEADER as u8 / 4) << 4, SYN | ACK, 0, 0, 0, 0, 0, 0]);
    write_checksum(&mut bytes).then_some(bytes)
}

const IPV4_HEADER: usize = 20;
const TCP_HEADER: usize = 20;
const HOPS: u8 = 64;
const TCP: u8 = 6;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    #[test]
    fn packets_have_the_peers_address_and_a_right_checksum() {
        let v4 = packet(socket("192.0.2.1:443"), socket("10.20.0.7:40000")).unwrap();
        assert_eq!(v4.len(), 40);
        assert_eq!((&v4[12..16], &v4[16..20]), (&[192, 0, 2, 1][..], &[10, 20, 0, 7][..]));
        assert_eq!((&v4[20..22], &v4[22..24]), (&[1, 0xbb][..], &[0x9c, 0x40][..]));
        // By hand: addresses, protocol, length and header without its checksum.
        let words = [0xc000_u32, 0x0201, 0x0a14, 0x0007, 6, 20, 0x01bb, 0x9c40, 0x5012];
        let sum: u32 = words.iter().sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        assert_eq!(v4[36..38], (!(folded as u16)).to_be_bytes());
        let v6 = packet(socket("[2001:db8::1]:443"), socket("[fd20::7]:40000")).unwrap();
        assert_eq!((v6.len(), v6[53]), (60, SYN | ACK));
    }

    #[test]
    fn two_families_make_no_packet() {
        assert_eq!(packet(socket("192.0.2.1:443"), socket("[fd20::7]:40000")), None);
    }
}
