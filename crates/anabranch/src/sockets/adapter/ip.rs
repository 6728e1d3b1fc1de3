//! IP networks: Ethernet, Wi-Fi with and without access points, cellular, Bluetooth PAN. A UDP socket that is tied to the interface.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use linux::udp::{ReceiveBuffer, SendError, UdpPath};
use linux::{BindError, BindTo};
use tracing::debug;
use wire::inner::Ecn;

use super::{AdapterSocket, Sent, Sink};

/// See the module.
pub(in crate::sockets) struct IpSocket(UdpPath);

impl IpSocket {
    /// A socket of the interface.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(in crate::sockets) fn open(interface: &str, local: SocketAddr) -> Result<Self, BindError> {
        let to = BindTo { interface: Some(interface.to_owned()), local, mark: None };
        UdpPath::bind(&to).map(Self)
    }
}

impl AdapterSocket for IpSocket {
    fn send(&mut self, remote: SocketAddr, ecn: Ecn, bytes: &[u8], segment: usize) -> Sent {
        match self.0.send(remote, None, ecn.bits(), bytes, Some(segment)) {
            Ok(()) => Sent::Yes,
            Err(SendError::TooLarge) => Sent::TooLarge,
            Err(error) => {
                debug!(%error, %remote, "datagrams were dropped");
                Sent::Dropped
            }
        }
    }

    fn receive(&mut self, buffer: &mut ReceiveBuffer, sink: &mut Sink<'_>) -> io::Result<usize> {
        self.0.receive(buffer, &mut |datagram| {
            sink(datagram.remote, Ecn::from_bits(datagram.ecn), datagram.bytes);
        })
    }

    fn local(&self) -> SocketAddr {
        self.0.local_address()
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
