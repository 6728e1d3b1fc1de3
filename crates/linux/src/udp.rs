//! UDP sockets of paths: tied to one network, with segmentation offload and ECN.
//!
//! Packets are never fragmented and the kernel's idea of the path MTU is ignored: the bond finds the MTU
//! itself. What arrives is cut back into datagrams here.

mod batch;
mod team;

pub use batch::SendBatch;
pub use team::NumberPlaces;

use std::io::{self, IoSliceMut};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use quinn_udp::{EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use socket2::{Socket, Type};
use thiserror::Error;

use crate::bind::{BindError, BindTo};
use crate::system_call::{errno, set_integer_option};

/// Why a datagram was not sent.
#[derive(Debug, Error)]
pub enum SendError {
    /// The socket's buffer is full; wait until it is writable.
    #[error("the socket's buffer is full")]
    WouldBlock,
    /// The datagram is larger than the interface takes.
    #[error("the datagram is larger than the interface takes")]
    TooLarge,
    /// There is no way to this address over this network now.
    #[error("no way to the address: {0}")]
    Unreachable(io::Error),
    /// The interface is gone or its address is.
    #[error("the interface is gone: {0}")]
    DeviceGone(io::Error),
    /// A firewall rule of this machine refused it.
    #[error("refused by this machine's firewall: {0}")]
    Refused(io::Error),
    /// Anything else.
    #[error("cannot send: {0}")]
    Other(io::Error),
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        match errno(&error) {
            libc::EAGAIN | libc::ENOBUFS => Self::WouldBlock,
            libc::EMSGSIZE => Self::TooLarge,
            libc::ENETUNREACH
            | libc::EHOSTUNREACH
            | libc::ENETDOWN
            | libc::ECONNREFUSED
            | libc::EHOSTDOWN => Self::Unreachable(error),
            libc::ENODEV | libc::ENXIO | libc::EADDRNOTAVAIL => Self::DeviceGone(error),
            libc::EPERM | libc::EACCES => Self::Refused(error),
            _ => Self::Other(error),
        }
    }
}

/// One datagram that arrived.
#[derive(Debug)]
pub struct Received<'a> {
    /// Who sent it.
    pub remote: SocketAddr,
    /// The local address it was sent to, if the kernel said so.
    pub local: Option<IpAddr>,
    /// The two ECN bits of the outer header (RFC 3168): 0 not capable, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
    /// Its bytes; may be decrypted in place.
    pub bytes: &'a mut [u8],
}

/// Room for what one call receives; one of it serves all sockets of a thread.
pub struct ReceiveBuffer {
    bytes: Box<[u8]>,
}

impl ReceiveBuffer {
    /// Room for eight joined reads of 64 KiB.
    pub fn new() -> Self {
        Self { bytes: vec![0; READS * READ_SIZE].into_boxed_slice() }
    }
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        Self::new()
    }
}

/// A UDP socket tied to one network, or listening on all.
pub struct UdpPath {
    socket: Socket,
    state: UdpSocketState,
    local: SocketAddr,
}

impl UdpPath {
    /// Opens the socket. A mark needs CAP_NET_ADMIN.
    pub fn bind(to: &BindTo) -> Result<Self, BindError> {
        let socket = to.open(Type::DGRAM)?;
        Self::prepare(socket).map_err(|(step, error)| to.failed("UDP", step, error))
    }

    /// Goes on with a socket that [`UdpPath::bind`] has opened in this process's earlier life.
    ///
    /// # Errors
    /// If it is no UDP socket.
    pub fn adopt(socket: OwnedFd) -> io::Result<Self> {
        Self::prepare(socket.into()).map_err(|(_, error)| error)
    }

    fn prepare(socket: Socket) -> Result<Self, (&'static str, io::Error)> {
        let fail = |step| move |error| (step, error);
        for (forced, plain) in
            [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
        {
            // Forcing needs privileges; what the system's limit allows will do.
            if set_integer_option(socket.as_fd(), libc::SOL_SOCKET, forced, SOCKET_BUFFER).is_err() {
                set_integer_option(socket.as_fd(), libc::SOL_SOCKET, plain, SOCKET_BUFFER)
                    .map_err(fail("size the buffers"))?;
            }
        }
        let state = UdpSocketState::new((&socket).into()).map_err(fail("set up offloads"))?;
        // quinn-udp 0.6.3 asks for receive times and then has too little room for all control messages of an
        // IPv4 read of joined datagrams: the ECN bits, which come last, are cut off.
        set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 0)
            .map_err(fail("switch receive times off"))?;
        let local = socket
            .local_addr()
            .and_then(|address| address.as_socket().ok_or(io::ErrorKind::InvalidInput.into()))
            .map_err(fail("read the local address"))?;
        Ok(Self { socket, state, local })
    }

    /// Takes datagrams to `group` on interface number `index`; those that are sent to it are not heard here.
    ///
    /// # Errors
    /// If the interface has no multicast, or the socket is not an IPv6 one.
    pub fn join_group(&self, group: Ipv6Addr, index: u32) -> io::Result<()> {
        self.socket.join_multicast_v6(&group, index)?;
        self.socket.set_multicast_loop_v6(false)
    }

    /// Lets datagrams to the broadcast address out.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn allow_broadcast(&self) -> io::Result<()> {
        self.socket.set_broadcast(true)
    }

    /// The address and port it is bound to.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// How many equal datagrams [`UdpPath::send`] takes at once; 1 if the kernel or network card cannot.
    pub fn maximum_segments(&self) -> usize {
        self.state.max_gso_segments()
    }

    /// Sends `bytes` to `remote`: one datagram, or datagrams of `segment_size` bytes of which the last may be
    /// shorter. `source` chooses among the host's addresses, for answers of a socket bound to all of them.
    pub fn send(
        &self,
        remote: SocketAddr,
        source: Option<IpAddr>,
        ecn: u8,
        bytes: &[u8],
        segment_size: Option<usize>,
    ) -> Result<(), SendError> {
        let transmit = |contents, segment_size| Transmit {
            destination: remote,
            ecn: EcnCodepoint::from_bits(ecn),
            contents,
            segment_size,
            src_ip: source,
        };
        let segment_size = segment_size.filter(|size| *size > 0 && *size < bytes.len());
        let Some(size) = segment_size else {
            return Ok(self.state.try_send((&self.socket).into(), &transmit(bytes, None))?);
        };
        let at_once = self.state.max_gso_segments().min(MAXIMUM_LENGTH / size).max(1);
        if at_once > 1 {
            for batch in bytes.chunks(size * at_once) {
                let sent = self.state.try_send((&self.socket).into(), &transmit(batch, segment_size));
                // The first failure of an interface without segmentation switches it off: send singly then.
                if sent.is_err() && self.state.max_gso_segments() == 1 {
                    return self.send(remote, source, ecn, bytes, segment_size);
                }
                sent?;
            }
            return Ok(());
        }
        for datagram in bytes.chunks(size) {
            self.state.try_send((&self.socket).into(), &transmit(datagram, None))?;
        }
        Ok(())
    }

    /// Receives once and gives each datagram to `sink`; returns their number.
    ///
    /// Never blocks: [`io::ErrorKind::WouldBlock`] when nothing waits. Errors that ICMP messages left on the
    /// socket are swallowed, since they name no path and anyone can send them.
    pub fn receive(
        &self,
        buffer: &mut ReceiveBuffer,
        sink: &mut impl FnMut(Received<'_>),
    ) -> io::Result<usize> {
        let mut metas = [RecvMeta::default(); READS];
        let mut reads = buffer.bytes.chunks_mut(READ_SIZE);
        let mut slices: [IoSliceMut<'_>; READS] =
            std::array::from_fn(|_| IoSliceMut::new(reads.next().unwrap_or_default()));
        let filled = match self.state.recv((&self.socket).into(), &mut slices, &mut metas) {
            Err(error) if matches!(errno(&error), libc::ECONNREFUSED | libc::EHOSTUNREACH) => 0,
            other => other?,
        };
        let mut count = 0;
        for (meta, slice) in metas[..filled].iter().zip(&mut slices) {
            for bytes in slice[..meta.len].chunks_mut(meta.stride.max(1)) {
                count += 1;
                sink(Received {
                    remote: meta.addr,
                    local: meta.dst_ip,
                    ecn: meta.ecn.map_or(0, |ecn| ecn as u8),
                    bytes,
                });
            }
        }
        Ok(count)
    }
}

impl AsFd for UdpPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for UdpPath {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Largest UDP payload over IPv6 without jumbograms, which also bounds what is segmented at once.
const MAXIMUM_LENGTH: usize = 65_487;
const READS: usize = 8;
const READ_SIZE: usize = 65_536;
/// Room for 50 ms at 1 Gbit/s, which the kernel doubles for its own records.
const SOCKET_BUFFER: libc::c_int = 4 << 20;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::netns::Namespace;
    use crate::test_namespace::{joined_pair, may_test};

    fn bind(space: &Namespace, local: &str, interface: Option<&str>) -> Result<UdpPath, BindError> {
        let to =
            BindTo { interface: interface.map(str::to_owned), local: local.parse().unwrap(), mark: Some(7) };
        space.run(|| UdpPath::bind(&to)).unwrap()
    }

    fn receive(path: &UdpPath, wanted: usize) -> Vec<(SocketAddr, Option<IpAddr>, u8, Vec<u8>)> {
        let mut received = Vec::new();
        let mut buffer = ReceiveBuffer::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while received.len() < wanted && Instant::now() < deadline {
            let result = path.receive(&mut buffer, &mut |datagram| {
                received.push((datagram.remote, datagram.local, datagram.ecn, datagram.bytes.to_vec()));
            });
            if let Err(error) = result {
                assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        received
    }

    #[test]
    fn segments_marks_and_addresses_arrive() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        for (here, any, there) in
            [("10.77.0.1:7", "0.0.0.0:9", "10.77.0.2:9"), ("[fd77::1]:7", "[::]:9", "[fd77::2]:9")]
        {
            let sender = bind(&left, here, Some("cable")).unwrap();
            let receiver = bind(&right, any, None).unwrap();
            let remote: SocketAddr = there.parse().unwrap();
            let bytes: Vec<u8> = (0..5_300u32).map(|at| (at / 10) as u8).collect();
            sender.send(remote, None, 2, &bytes, Some(1_000)).unwrap();
            let received = receive(&receiver, 6);
            assert_eq!(received.len(), 6);
            for ((from, to, ecn, datagram), sent) in received.iter().zip(bytes.chunks(1_000)) {
                assert_eq!((*from, *to, *ecn), (here.parse().unwrap(), Some(remote.ip()), 2));
                assert_eq!(datagram, sent);
            }
        }
    }

    #[test]
    fn a_batch_goes_to_all_its_addresses_but_those_that_fail() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        for (any, local, other) in [("0.0.0.0:7", "10.77.0.1", "10.77.0.2"), ("[::]:7", "fd77::1", "fd77::2")]
        {
            let sender = bind(&left, any, None).unwrap();
            let (local, other): (IpAddr, IpAddr) = (local.parse().unwrap(), other.parse().unwrap());
            let remotes = [9, 10].map(|port| SocketAddr::new(other, port));
            let receivers = remotes.map(|remote| bind(&right, &remote.to_string(), None).unwrap());
            let mut batch = SendBatch::default();
            let long: Vec<u8> = (0..2_500u32).map(|at| (at / 10) as u8).collect();
            for number in 0..10 {
                let remote = remotes[number % 2];
                assert!(batch.push(remote, Some(local), 2, &[number as u8; 100], Some(100)));
            }
            assert!(
                batch.push(remotes[0], Some(local), 2, &[0; 1_473], None),
                "longer than the cable's packets"
            );
            assert!(batch.push(remotes[1], None, 1, &long, Some(1_000)));
            assert!(!batch.push(remotes[1], None, 1, &[0; SendBatch::LARGEST + 1], None));
            let mut failures = Vec::new();
            sender.send_batch(&mut batch, &mut |place, error| failures.push((place, error)));
            assert!(batch.is_empty());
            assert!(matches!(failures[..], [(10, SendError::TooLarge)]), "{failures:?}");
            for (at, (receiver, wanted)) in receivers.iter().zip([5, 8]).enumerate() {
                let received = receive(receiver, wanted);
                assert_eq!(received.len(), wanted);
                for (number, (from, _, ecn, bytes)) in received.iter().take(5).enumerate() {
                    assert_eq!((from.ip(), *ecn), (local, 2));
                    assert_eq!(bytes[..], [(2 * number + at) as u8; 100]);
                }
                for ((_, _, ecn, bytes), sent) in received.iter().skip(5).zip(long.chunks(1_000)) {
                    assert_eq!((*ecn, &bytes[..]), (1, sent));
                }
            }
            for _ in 0..SendBatch::MOST {
                assert!(batch.push(remotes[0], None, 0, &[1], None));
            }
            assert!(!batch.push(remotes[0], None, 0, &[1], None), "it is full");
        }
    }

    #[test]
    fn failures_are_told_apart() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        let path = bind(&left, "0.0.0.0:0", Some("cable")).unwrap();
        let near: SocketAddr = "10.77.0.2:9".parse().unwrap();
        assert!(matches!(path.send(near, None, 0, &[0; 1_473], None), Err(SendError::TooLarge)));
        left.set_up("cable", false).unwrap();
        let result = path.send(near, None, 0, &[0; 10], None);
        assert!(matches!(result, Err(SendError::Unreachable(_) | SendError::DeviceGone(_))), "{result:?}");
        left.delete_link("cable").unwrap();
        let result = path.send(near, None, 0, &[0; 10], None);
        assert!(matches!(result, Err(SendError::DeviceGone(_) | SendError::Unreachable(_))), "{result:?}");
        let error = bind(&left, "0.0.0.0:0", Some("absent")).err().unwrap();
        assert!(error.to_string().contains("on absent: tie to the interface"), "{error}");
        let _taken = bind(&left, "0.0.0.0:99", None).unwrap();
        let error = bind(&left, "0.0.0.0:99", None).err().unwrap();
        assert!(error.to_string().contains("another program has this port"), "{error}");
    }
}
