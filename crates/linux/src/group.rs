//! Datagrams to everybody on a link who listens: UDP multicast.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};

use socket2::{Domain, InterfaceIndexOrAddress, Protocol, Socket, Type};

/// A group on one interface. Several programs of a machine may listen to the same one; each gets everything, what this machine's own programs
/// send too.
pub struct GroupSocket {
    socket: UdpSocket,
}

/// Which group: one of each family, with the port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// Over IPv4.
    pub v4: Ipv4Addr,
    /// Over IPv6.
    pub v6: Ipv6Addr,
    /// UDP port.
    pub port: u16,
}

impl Group {
    /// Where datagrams for it go, on the interface with this number.
    pub const fn address(&self, ipv6: bool, interface: u32) -> SocketAddr {
        if ipv6 {
            SocketAddr::V6(SocketAddrV6::new(self.v6, self.port, 0, interface))
        } else {
            SocketAddr::V4(SocketAddrV4::new(self.v4, self.port))
        }
    }
}

impl GroupSocket {
    /// Listens to the group on the interface of that name and number, without privileges.
    ///
    /// # Errors
    /// If the interface has no multicast in this family, or the port is taken by a program that does not share it.
    pub fn open(group: &Group, interface: &str, index: u32, ipv6: bool) -> io::Result<Self> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        socket.set_reuse_address(true)?;
        socket.bind_device(Some(interface.as_bytes()))?;
        if ipv6 {
            socket.set_only_v6(true)?;
            socket.bind(&group.address(true, index).into())?;
            socket.join_multicast_v6(&group.v6, index)?;
        } else {
            socket.bind(&group.address(false, index).into())?;
            socket.join_multicast_v4_n(&group.v4, &InterfaceIndexOrAddress::Index(index))?;
        }
        Ok(Self { socket: socket.into() })
    }

    /// Receives one datagram, cut off at the buffer's end: how long it is, and from whom; `None` if there is none now.
    ///
    /// # Errors
    /// If the socket fails, as when its interface is gone.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
        match self.socket.recv_from(buffer) {
            Ok(received) => Ok(Some(received)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl AsFd for GroupSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<GroupSocket> for UdpSocket {
    fn from(group: GroupSocket) -> Self {
        group.socket
    }
}

/// Sends to a group on one interface.
pub struct GroupSender {
    socket: UdpSocket,
    address: SocketAddr,
}

impl GroupSender {
    /// Opens it on the interface of that name and number, without privileges; at most `waiting` bytes wait there to be sent.
    ///
    /// # Errors
    /// If the interface has no multicast in this family.
    pub fn open(group: &Group, interface: &str, index: u32, ipv6: bool, waiting: usize) -> io::Result<Self> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking(), Some(Protocol::UDP))?;
        socket.bind_device(Some(interface.as_bytes()))?;
        socket.set_send_buffer_size(waiting)?;
        if ipv6 {
            socket.set_multicast_if_v6(index)?;
        }
        Ok(Self { socket: socket.into(), address: group.address(ipv6, index) })
    }

    /// Sends a datagram; `false` if the interface has enough to send.
    ///
    /// # Errors
    /// If the interface is gone or takes none.
    pub fn send(&self, bytes: &[u8]) -> io::Result<bool> {
        match self.socket.send_to(bytes, self.address) {
            Ok(_) => Ok(true),
            Err(error)
                if error.kind() == io::ErrorKind::WouldBlock
                    || error.raw_os_error() == Some(libc::ENOBUFS) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}
