//! Sending whole IP packets that this program has made, as if they were the machine's own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// A socket that takes packets of one family with their headers. They are routed by its mark, and the firewall sees them.
///
/// Of IPv4 headers the kernel itself writes the checksum, and an identification where that is 0 (`raw(7)`).
#[derive(Debug)]
pub struct PacketSender {
    socket: Socket,
    ipv6: bool,
}

impl PacketSender {
    /// Opens one for IPv4. Needs CAP_NET_RAW and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's.
    pub fn v4(mark: u32) -> io::Result<Self> {
        Self::open(Domain::IPV4, mark)
    }

    /// Opens one for IPv6. Needs CAP_NET_RAW and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's.
    pub fn v6(mark: u32) -> io::Result<Self> {
        Self::open(Domain::IPV6, mark)
    }

    fn open(domain: Domain, mark: u32) -> io::Result<Self> {
        let protocol = Some(Protocol::from(libc::IPPROTO_RAW));
        let socket = Socket::new(domain, Type::RAW.nonblocking(), protocol)?;
        socket.set_mark(mark)?;
        Ok(Self { socket, ipv6: domain == Domain::IPV6 })
    }

    /// Sends a packet; never blocks. `packet` must begin with a header of this socket's family.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it does not; else the kernel's, such as `EMSGSIZE` if it is longer than the way out
    /// carries.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let version = packet.first().map(|first| first >> 4);
        if version != Some(if self.ipv6 { 6 } else { 4 }) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let destination: Option<IpAddr> = if self.ipv6 {
            octets(packet, 24).map(|octets| Ipv6Addr::from(octets).into())
        } else {
            octets(packet, 16).map(|octets| Ipv4Addr::from(octets).into())
        };
        let destination = destination.ok_or(io::ErrorKind::InvalidInput)?;
        self.socket.send_to(packet, &SocketAddr::new(destination, 0).into()).map(drop)
    }
}

fn octets<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..)?.first_chunk().copied()
}
