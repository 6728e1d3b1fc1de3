//! Sending whole IPv6 packets that this program has made, as if they were the machine's own.

use std::io;
use std::net::{Ipv6Addr, SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

/// A socket that takes IPv6 packets with their headers. They are routed by its mark, and the firewall sees them.
#[derive(Debug)]
pub struct PacketSender(Socket);

impl PacketSender {
    /// Opens it. Needs CAP_NET_RAW and CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(mark: u32) -> io::Result<Self> {
        let socket =
            Socket::new(Domain::IPV6, Type::RAW.nonblocking(), Some(Protocol::from(libc::IPPROTO_RAW)))?;
        socket.set_mark(mark)?;
        Ok(Self(socket))
    }

    /// Sends a packet; never blocks. `packet` must begin with an IPv6 header.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if it does not; else the kernel's, such as `EMSGSIZE` if it is longer than the way out
    /// carries.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        let destination = packet.get(24..40).and_then(|octets| octets.first_chunk::<16>());
        let destination = destination.ok_or(io::ErrorKind::InvalidInput)?;
        let to = SocketAddr::new(Ipv6Addr::from(*destination).into(), 0);
        self.0.send_to(packet, &to.into()).map(drop)
    }
}
