//! Paths over TCP, for networks that block UDP.
//!
//! The bond on top repeats what is lost and controls its own rate, so a TCP carrier is made to forget: its send
//! buffer is small and a datagram that does not fit is dropped, just as a full link would do.

mod framing;

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use socket2::{Socket, Type};

pub use framing::{FrameError, MAXIMUM_DATAGRAM};

use crate::bind::{BindError, BindTo};
use crate::system_call::{errno, set_integer_option};
use framing::PREFIX;

/// What became of datagrams given to [`TcpCarrier::send`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queued {
    /// They are on their way, or wait in the send buffer.
    Sent,
    /// The send buffer is full: some were dropped.
    Dropped,
}

/// One connection that carries datagrams.
pub struct TcpCarrier {
    socket: Socket,
    remote: SocketAddr,
    local: SocketAddr,
    connected: bool,
    outgoing: Vec<u8>,
    partial: Vec<u8>,
}

impl TcpCarrier {
    /// Bytes that wait in it at most, in both directions.
    pub const MOST_HELD: usize = OUTGOING_LIMIT + PREFIX + MAXIMUM_DATAGRAM;

    /// Starts connecting; it is done when the socket is writable, see [`TcpCarrier::flush`].
    pub fn connect(to: &BindTo, remote: SocketAddr) -> Result<Self, BindError> {
        let socket = to.open(Type::STREAM)?;
        match socket.connect(&remote.into()) {
            Err(error) if errno(&error) != libc::EINPROGRESS => Err(to.failed("TCP", "connect", error)),
            _ => Self::new(socket, remote, false).map_err(|error| to.failed("TCP", "set up", error)),
        }
    }

    fn new(socket: Socket, remote: SocketAddr, connected: bool) -> io::Result<Self> {
        socket.set_tcp_nodelay(true)?;
        set_integer_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, NOT_SENT)?;
        // A dead network must not hold the connection for the kernel's quarter of an hour.
        let timeout = std::time::Duration::from_secs(10);
        socket.set_tcp_user_timeout(Some(timeout))?;
        let local =
            socket.local_addr()?.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        Ok(Self { socket, remote, local, connected, outgoing: Vec::new(), partial: Vec::new() })
    }

    /// The other end.
    pub fn remote_address(&self) -> SocketAddr {
        self.remote
    }

    /// This end.
    pub fn local_address(&self) -> SocketAddr {
        self.local
    }

    /// Whether the connection stands.
    pub fn is_connected(&self) -> bool {
        self.connected
    }

    /// Whether bytes wait until the socket is writable (or connected).
    pub fn wants_to_write(&self) -> bool {
        !self.connected || !self.outgoing.is_empty()
    }

    /// Sends `bytes`: one datagram, or datagrams of `segment_size` bytes of which the last may be shorter.
    ///
    /// An error means that the connection has ended.
    pub fn send(&mut self, bytes: &[u8], segment_size: Option<usize>) -> io::Result<Queued> {
        let size = segment_size.unwrap_or(bytes.len()).clamp(1, MAXIMUM_DATAGRAM);
        let mut queued = Queued::Sent;
        for datagram in bytes.chunks(size) {
            if self.outgoing.len() + PREFIX + datagram.len() > OUTGOING_LIMIT {
                queued = Queued::Dropped;
                break;
            }
            self.outgoing.extend_from_slice(&(datagram.len() as u16).to_be_bytes());
            self.outgoing.extend_from_slice(datagram);
        }
        if self.connected {
            self.write_out()?;
        }
        Ok(queued)
    }

    /// To be called when the socket is writable: finishes connecting, writes what waits.
    pub fn flush(&mut self) -> io::Result<()> {
        if !self.connected {
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            if let Err(error) = self.socket.peer_addr() {
                return if errno(&error) == libc::ENOTCONN { Ok(()) } else { Err(error) };
            }
            self.connected = true;
        }
        self.write_out()
    }

    fn write_out(&mut self) -> io::Result<()> {
        let mut written = 0;
        let result = loop {
            if written == self.outgoing.len() {
                break Ok(());
            }
            match (&self.socket).write(&self.outgoing[written..]) {
                Ok(0) => break Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => break Err(error),
            }
        };
        self.outgoing.drain(..written);
        if self.outgoing.is_empty() {
            self.outgoing.shrink_to(KEPT_CAPACITY);
        }
        result
    }

    /// Reads once and gives each whole datagram to `sink`; returns their number, which may be 0.
    ///
    /// `buffer` is room for one read, shared by all connections of a thread; it must hold more than
    /// [`MAXIMUM_DATAGRAM`] + 2 bytes. [`io::ErrorKind::WouldBlock`] when nothing waits; any other error means
    /// that the connection has ended or the other end sent something else than frames.
    pub fn receive(&mut self, buffer: &mut [u8], sink: &mut impl FnMut(&mut [u8])) -> io::Result<usize> {
        let carried = self.partial.len();
        let Some((start, room)) = buffer.split_at_mut_checked(carried) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let length = (&self.socket).read(room)?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        start.copy_from_slice(&self.partial);
        let bytes = &mut buffer[..carried + length];
        let mut count = 0;
        let taken = framing::frames(bytes, &mut |datagram| {
            count += 1;
            sink(datagram);
        })
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        self.partial.clear();
        self.partial.extend_from_slice(&bytes[taken..]);
        self.partial.shrink_to(KEPT_CAPACITY);
        Ok(count)
    }
}

impl AsFd for TcpCarrier {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TcpCarrier {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Where a gateway waits for connections.
pub struct TcpCarrierListener {
    socket: Socket,
}

impl TcpCarrierListener {
    /// Listens on `to.local`.
    pub fn bind(to: &BindTo) -> Result<Self, BindError> {
        let socket = to.open(Type::STREAM)?;
        socket.listen(BACKLOG).map_err(|error| to.failed("TCP", "listen", error))?;
        Ok(Self { socket })
    }

    /// Goes on with a socket that [`TcpCarrierListener::bind`] has opened in this process's earlier life.
    pub fn adopt(socket: OwnedFd) -> Self {
        Self { socket: socket.into() }
    }

    /// The next connection; [`io::ErrorKind::WouldBlock`] when none waits.
    pub fn accept(&self) -> io::Result<TcpCarrier> {
        let (socket, remote) = self.socket.accept()?;
        socket.set_nonblocking(true)?;
        let remote = remote.as_socket().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
        TcpCarrier::new(socket, remote, true)
    }
}

impl AsFd for TcpCarrierListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for TcpCarrierListener {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// Bytes that may wait here for the kernel; what comes on top is dropped.
const OUTGOING_LIMIT: usize = 64 * 1024;
/// Bytes that the kernel may hold unsent, so that the queue is here, where it can be bounded.
const NOT_SENT: libc::c_int = 32 * 1024;
/// Buffers of idle connections shrink to this.
const KEPT_CAPACITY: usize = 2 * 1024;
const BACKLOG: i32 = 128;

#[cfg(test)]
mod tests {
    use std::thread::sleep;
    use std::time::Duration;

    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    fn to(local: &str) -> BindTo {
        BindTo { interface: None, local: local.parse().unwrap(), mark: Some(7) }
    }

    #[test]
    fn datagrams_cross_whole_and_in_order_and_a_full_buffer_drops() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        let listener = right.run(|| TcpCarrierListener::bind(&to("[::]:443"))).unwrap().unwrap();
        let remote = "[fd77::2]:443".parse().unwrap();
        let mut client = left.run(|| TcpCarrier::connect(&to("[::]:0"), remote)).unwrap().unwrap();
        assert_eq!(client.send(&[0; 5], None).unwrap(), Queued::Sent, "waits for the connection");
        let mut waits = 0;
        let mut server = loop {
            sleep(Duration::from_millis(10));
            match listener.accept() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && waits < 300 => waits += 1,
                other => break other.unwrap(),
            }
        };
        client.flush().unwrap();
        assert!(client.is_connected());

        let mut sent = 1u32;
        loop {
            let datagram: Vec<u8> = sent.to_be_bytes().repeat(300);
            if client.send(&datagram, Some(1_000)).unwrap() == Queued::Dropped {
                break;
            }
            sent += 1;
            assert!(sent < 1_000_000, "nothing bounds the buffer");
        }
        let mut buffer = vec![0; 65_536];
        let mut received = Vec::new();
        for _ in 0..2_000 {
            let result = server.receive(&mut buffer, &mut |datagram| received.push(datagram.to_vec()));
            match result {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    client.flush().unwrap();
                    sleep(Duration::from_millis(1));
                    if !client.wants_to_write() && received.len() as u32 >= 2 * sent - 1 {
                        break;
                    }
                }
                other => drop(other.unwrap()),
            }
        }
        assert_eq!(received[0], [0; 5]);
        for (number, pair) in (1..sent).zip(received[1..].chunks(2)) {
            assert_eq!(pair[0], number.to_be_bytes().repeat(250));
            assert_eq!(pair[1], number.to_be_bytes().repeat(50));
        }
        drop(client);
        sleep(Duration::from_millis(20));
        let ended = loop {
            if let Err(error) = server.receive(&mut buffer, &mut |_| {}) {
                break error;
            }
        };
        assert_eq!(ended.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_refused_connection_is_an_error() {
        if !may_test() {
            return;
        }
        let (left, _right) = joined_pair();
        let remote = "10.77.0.2:443".parse().unwrap();
        let mut client = left.run(|| TcpCarrier::connect(&to("0.0.0.0:0"), remote)).unwrap().unwrap();
        let refused = (0..300).find_map(|_| {
            sleep(Duration::from_millis(10));
            client.flush().err()
        });
        assert_eq!(refused.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    }
}
