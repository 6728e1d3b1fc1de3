//! L2CAP links over BR/EDR, as `SOCK_SEQPACKET`: one write is one datagram at the other end.
#![expect(unsafe_code, reason = "Bluetooth sockets are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use socket2::SockRef;
use thiserror::Error;
use units::MacAddress;

use super::{PROTOCOL_L2CAP, reversed};
use crate::system_call::{check, check_size, errno, set_integer_option};

/// Largest datagram that a link takes, bytes, if the other end takes so much; the kernel's own choice is 672. It takes 6 ms of the fastest link.
pub const MAX_DATAGRAM: u16 = 1_500;
/// What the kernel may hold unsent, which doubles it and counts the room of each piece that it cuts datagrams into: some 28 datagrams for a controller that
/// takes 1,021 bytes at a time, 160 ms of the fastest link, and as many as a window has at its beginning for one that takes 192.
const SEND_BUFFER: libc::c_int = 64 << 10;
const BACKLOG: libc::c_int = 8;
/// `SOL_L2CAP` and `L2CAP_OPTIONS` of `<bluetooth/l2cap.h>`.
const SOL_L2CAP: libc::c_int = 6;
const L2CAP_OPTIONS: libc::c_int = 1;

/// Which of a machine's programs a link leads to: a protocol/service multiplexer (PSM).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Multiplexer(u16);

impl Multiplexer {
    /// The one that stands for a port. Those that any program may choose are 0x1001 to 0xfeff, odd, the upper byte even (Core volume 3 part A,
    /// 4.2); there are 15,360, so ports so far apart share one.
    pub const fn of_port(port: u16) -> Self {
        let (low, high) = (port % 128, (port / 128) % 120);
        Self(0x1001 + 2 * low + 512 * high)
    }

    /// As it is on the air.
    pub const fn number(self) -> u16 {
        self.0
    }
}

/// Why there is no link, or no more.
#[derive(Debug, Error)]
pub enum LinkError {
    /// This machine, or this network namespace, has no Bluetooth.
    #[error("Bluetooth is not to be had here (the kernel has it in its first network namespace only)")]
    NoBluetooth,
    /// The controller is off or gone.
    #[error("the Bluetooth controller is off")]
    Off,
    /// Another program listens.
    #[error("another program listens on this port over Bluetooth")]
    Taken,
    /// The other end did not hear, or has gone.
    #[error("the other end is out of reach")]
    OutOfReach,
    /// Nobody listens there.
    #[error("nobody listens at the other end")]
    Refused,
    /// The other end wants the machines to be paired.
    #[error("the machines are not paired: `bluetoothctl pair ADDRESS`")]
    NotPaired,
    /// The kernel's own words.
    #[error(transparent)]
    System(io::Error),
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        match errno(&error) {
            libc::EAFNOSUPPORT | libc::EPROTONOSUPPORT | libc::ESOCKTNOSUPPORT => Self::NoBluetooth,
            libc::EADDRNOTAVAIL | libc::ENODEV | libc::ENETDOWN | libc::ERFKILL => Self::Off,
            libc::EADDRINUSE => Self::Taken,
            libc::EHOSTDOWN | libc::EHOSTUNREACH | libc::ETIMEDOUT | libc::ECONNRESET | libc::ENOTCONN => {
                Self::OutOfReach
            }
            libc::ECONNREFUSED => Self::Refused,
            libc::EACCES | libc::EPERM | libc::EKEYREJECTED => Self::NotPaired,
            _ => Self::System(error),
        }
    }
}

/// Why a datagram was not sent.
#[derive(Debug, Error)]
pub enum LinkSendError {
    /// As many wait as may; as on a full link it is lost.
    #[error("too many datagrams wait")]
    Full,
    /// The other end does not take so large ones.
    #[error("the datagram is too large")]
    TooLarge,
    /// The link has ended.
    #[error(transparent)]
    Ended(LinkError),
}

/// Takes links at one controller.
#[derive(Debug)]
pub struct LinkListener(OwnedFd);

/// One link to another machine. Never blocks.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    remote: MacAddress,
}

impl LinkListener {
    /// Listens at the controller with that address.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn bind(local: MacAddress, multiplexer: Multiplexer) -> Result<Self, LinkError> {
        let socket = open(local, multiplexer.0)?;
        // SAFETY: plain system call on an open descriptor.
        check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
        Ok(Self(socket))
    }

    /// The next link that somebody has opened; [`io::ErrorKind::WouldBlock`] when none waits.
    ///
    /// # Errors
    /// The kernel's.
    pub fn accept(&self) -> io::Result<Link> {
        let mut address = Address::of(MacAddress([0; 6]), 0);
        let mut length = size_of::<Address>() as libc::socklen_t;
        // SAFETY: the pointers are to a live address of that size and to its length.
        let raw = check(unsafe {
            libc::accept4(
                self.0.as_raw_fd(),
                (&raw mut address).cast(),
                &raw mut length,
                libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC,
            )
        })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        limit_buffer(socket.as_fd())?;
        Ok(Link { socket, remote: MacAddress(reversed(address.device)) })
    }
}

impl Link {
    /// Begins to open a link by the controller with address `local`; it is there once the socket is writable, see [`Link::outcome`]. The controller
    /// may call for five seconds before it gives up.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn connect(
        local: MacAddress,
        remote: MacAddress,
        multiplexer: Multiplexer,
    ) -> Result<Self, LinkError> {
        let socket = open(local, 0)?;
        limit_buffer(socket.as_fd())?;
        let address = Address::of(remote, multiplexer.0);
        // SAFETY: the pointer is to a live address and the length is its size.
        let connecting = check(unsafe {
            libc::connect(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<Address>() as libc::socklen_t,
            )
        });
        match connecting {
            Err(error) if errno(&error) != libc::EINPROGRESS => Err(error.into()),
            _ => Ok(Self { socket, remote }),
        }
    }

    /// Why it could not be opened, or has ended, told once; nothing if all is well.
    ///
    /// # Errors
    /// [`LinkError`].
    pub fn outcome(&self) -> Result<(), LinkError> {
        SockRef::from(&self.socket).take_error()?.map_or(Ok(()), |error| Err(error.into()))
    }

    /// The other end.
    pub fn remote(&self) -> MacAddress {
        self.remote
    }

    /// Largest datagram that the other end takes, bytes; known once the link is there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn largest_datagram(&self) -> io::Result<u16> {
        Ok(options(self.socket.as_fd())?.outgoing)
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// [`LinkSendError`].
    pub fn send(&self, datagram: &[u8]) -> Result<(), LinkSendError> {
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: pointer and length describe the live datagram.
        check_size(unsafe {
            libc::send(self.socket.as_raw_fd(), datagram.as_ptr().cast(), datagram.len(), flags)
        })
        .map(drop)
        .map_err(|error| match errno(&error) {
            libc::EAGAIN => LinkSendError::Full,
            libc::EMSGSIZE => LinkSendError::TooLarge,
            _ => LinkSendError::Ended(error.into()),
        })
    }

    /// Receives one datagram, cut off at the buffer's end; 0 bytes when the other end has closed the link.
    ///
    /// # Errors
    /// The kernel's; [`io::ErrorKind::WouldBlock`] when none waits.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: pointer and length describe the live buffer.
        check_size(unsafe {
            libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
        })
    }
}

impl AsFd for LinkListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket at a controller that asks for datagrams of [`MAX_DATAGRAM`].
fn open(local: MacAddress, multiplexer: u16) -> Result<OwnedFd, LinkError> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: plain system call without pointers.
    let raw = check(unsafe { libc::socket(libc::AF_BLUETOOTH, kind, PROTOCOL_L2CAP) })?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    let address = Address::of(local, multiplexer);
    // SAFETY: the pointer is to a live address and the length is its size.
    check(unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<Address>() as libc::socklen_t)
    })?;
    let wanted = Options { outgoing: MAX_DATAGRAM, incoming: MAX_DATAGRAM, ..options(socket.as_fd())? };
    // SAFETY: the pointer is to a live structure and the length is its size.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            SOL_L2CAP,
            L2CAP_OPTIONS,
            (&raw const wanted).cast(),
            size_of::<Options>() as libc::socklen_t,
        )
    })?;
    Ok(socket)
}

fn options(socket: BorrowedFd<'_>) -> io::Result<Options> {
    let mut options = Options::default();
    let mut length = size_of::<Options>() as libc::socklen_t;
    // SAFETY: the pointers are to a live structure of that size and to its length.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            SOL_L2CAP,
            L2CAP_OPTIONS,
            (&raw mut options).cast(),
            &raw mut length,
        )
    })?;
    Ok(options)
}

fn limit_buffer(socket: BorrowedFd<'_>) -> io::Result<()> {
    set_integer_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, SEND_BUFFER)
}

/// `struct sockaddr_l2`.
#[repr(C)]
struct Address {
    family: libc::sa_family_t,
    /// Little-endian.
    multiplexer: u16,
    device: [u8; 6],
    channel: u16,
    /// 0: BR/EDR.
    device_kind: u8,
}

impl Address {
    fn of(device: MacAddress, multiplexer: u16) -> Self {
        Self {
            family: libc::AF_BLUETOOTH as libc::sa_family_t,
            multiplexer: multiplexer.to_le(),
            device: reversed(device.0),
            channel: 0,
            device_kind: 0,
        }
    }
}

/// `struct l2cap_options`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Options {
    outgoing: u16,
    incoming: u16,
    flush_timeout: u16,
    mode: u8,
    checksum: u8,
    most_tries: u8,
    window: u16,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_port_has_a_multiplexer_that_programs_may_use() {
        for port in 0..=u16::MAX {
            let number = Multiplexer::of_port(port).number();
            assert!(number >= 0x1001 && number & 1 == 1 && number & 0x100 == 0, "{port}: {number:#x}");
        }
        let numbers: std::collections::BTreeSet<_> = (4_096..19_456).map(Multiplexer::of_port).collect();
        assert_eq!(numbers.len(), 15_360, "no two of these share one");
    }

    #[test]
    fn the_kernels_errors_are_told_in_words() {
        let of = |code| LinkError::from(io::Error::from_raw_os_error(code));
        assert!(matches!(of(libc::EHOSTDOWN), LinkError::OutOfReach));
        assert!(matches!(of(libc::EADDRINUSE), LinkError::Taken));
        assert!(matches!(of(libc::EIO), LinkError::System(_)));
    }
}
