//! Handing an open socket from one process to another over a Unix socket (`SCM_RIGHTS`, unix(7)).
//!
//! An unprivileged program cannot set a firewall mark. It hands its socket to the daemon, which sets the mark on
//! it: both have the same socket then, so the mark holds for the program too.
#![expect(unsafe_code, reason = "the standard library cannot pass descriptors")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use socket2::{Domain, SockRef};
use thiserror::Error;

use crate::system_call::check_size;

/// Why a socket could not be pinned by its mark.
#[derive(Debug, Error)]
pub enum MarkError {
    /// A file or a socket of another kind was handed over.
    #[error("only IPv4 and IPv6 sockets can be tied to a network, this is something else")]
    NotInternet,
    /// The kernel refused.
    #[error("cannot set the mark of a socket: {0} (it takes CAP_NET_ADMIN)")]
    Refused(io::Error),
}

/// Sends `payload`, at least one byte, and with it the descriptor. The sender keeps its own.
///
/// Returns how many bytes went out; the descriptor went with the first one.
pub fn send(stream: &UnixStream, payload: &[u8], descriptor: BorrowedFd<'_>) -> io::Result<usize> {
    if payload.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "a descriptor needs a byte to travel with"));
    }
    let mut control = Control::new();
    let mut part = libc::iovec { iov_base: payload.as_ptr().cast_mut().cast(), iov_len: payload.len() };
    let message = control.message(&mut part);
    // SAFETY: the header's control pointer is to `control`, which has room for one descriptor, so the first
    // control header exists and its data is in bounds; nothing there needs alignment beyond Control's own.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(DESCRIPTOR_SIZE) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(descriptor.as_raw_fd());
    }
    // SAFETY: the message and all it points to live through the call; sendmsg does not write to the payload.
    check_size(unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

/// Receives up to `buffer.len()` bytes, and the descriptor that came with them, if any.
///
/// More than one descriptor is an error (`InvalidData`): the kernel or this function closes them. Descriptors
/// are closed at `exec`. 0 bytes mean that the other end has closed.
pub fn receive(stream: &UnixStream, buffer: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut control = Control::new();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut message = control.message(&mut part);
    // SAFETY: the message and all it points to live through the call and have the lengths that it says.
    let length =
        check_size(unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) })?;
    let mut found = Vec::new();
    // SAFETY: the kernel has written the control messages and their total length; the macros stay within it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let data = libc::CMSG_DATA(header).cast::<libc::c_int>();
                for index in 0..bytes / size_of::<libc::c_int>() {
                    // The kernel has just given us this descriptor and nobody else owns it.
                    found.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    if found.len() > 1 || message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "more than one descriptor was sent"));
    }
    Ok((length, found.pop()))
}

/// Sets the firewall mark (`SO_MARK`) of an IPv4 or IPv6 socket; its new routes follow it. Takes `CAP_NET_ADMIN`.
pub fn set_mark(socket: &impl AsFd, mark: u32) -> Result<(), MarkError> {
    let descriptor = socket.as_fd();
    let socket = SockRef::from(&descriptor);
    match socket.domain() {
        Ok(Domain::IPV4 | Domain::IPV6) => socket.set_mark(mark).map_err(MarkError::Refused),
        _ => Err(MarkError::NotInternet),
    }
}

/// Room for one control message with one descriptor, aligned as the kernel wants it.
#[repr(C)]
union Control {
    _alignment: MaybeUninit<libc::cmsghdr>,
    bytes: [u8; CONTROL_SIZE],
}

impl Control {
    fn new() -> Self {
        Self { bytes: [0; CONTROL_SIZE] }
    }

    fn message(&mut self, part: &mut libc::iovec) -> libc::msghdr {
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = part;
        message.msg_iovlen = 1;
        message.msg_control = std::ptr::from_mut(self).cast();
        message.msg_controllen = CONTROL_SIZE as _;
        message
    }
}

const DESCRIPTOR_SIZE: libc::c_uint = size_of::<libc::c_int>() as libc::c_uint;
// SAFETY: plain arithmetic.
const CONTROL_SIZE: usize = unsafe { libc::CMSG_SPACE(DESCRIPTOR_SIZE) } as usize;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::UdpSocket;

    use super::*;
    use crate::test_namespace::in_namespace;

    #[test]
    fn the_mark_set_by_the_receiver_holds_for_the_sender() {
        in_namespace(|| {
            let (program, daemon) = UnixStream::pair().unwrap();
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            assert_eq!(send(&program, b"pin", socket.as_fd()).unwrap(), 3);
            let mut buffer = [0; 16];
            let (length, received) = receive(&daemon, &mut buffer).unwrap();
            assert_eq!(&buffer[..length], b"pin");
            set_mark(&received.unwrap(), 0x105).unwrap();
            assert_eq!(SockRef::from(&socket).mark().unwrap(), 0x105);
        });
    }

    #[test]
    fn only_internet_sockets_are_marked_and_plain_bytes_carry_nothing() {
        let (mut program, daemon) = UnixStream::pair().unwrap();
        let file = File::open("/dev/null").unwrap();
        send(&program, b"x", file.as_fd()).unwrap();
        let mut buffer = [0; 16];
        let (_, received) = receive(&daemon, &mut buffer).unwrap();
        assert!(matches!(set_mark(&received.unwrap(), 1), Err(MarkError::NotInternet)));
        assert!(matches!(set_mark(&program, 1), Err(MarkError::NotInternet)));

        std::io::Write::write_all(&mut program, b"plain").unwrap();
        assert!(matches!(receive(&daemon, &mut buffer), Ok((5, None))));
        assert!(send(&program, b"", file.as_fd()).is_err());
        drop(program);
        assert!(matches!(receive(&daemon, &mut buffer), Ok((0, None))));
    }

    #[test]
    fn two_descriptors_at_once_are_refused_and_closed() {
        let (program, daemon) = UnixStream::pair().unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        let raw = theirs.as_raw_fd();
        let mut control = [0u64; 8];
        let mut part = libc::iovec { iov_base: c"x".as_ptr().cast_mut().cast(), iov_len: 1 };
        // SAFETY: as in `send`, with room for two descriptors.
        unsafe {
            let mut message: libc::msghdr = std::mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(2 * DESCRIPTOR_SIZE) as _;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(2 * DESCRIPTOR_SIZE) as _;
            libc::CMSG_DATA(header).cast::<[libc::c_int; 2]>().write_unaligned([raw, raw]);
            check_size(libc::sendmsg(program.as_raw_fd(), &raw const message, 0)).unwrap();
        }
        assert_eq!(receive(&daemon, &mut [0; 4]).unwrap_err().kind(), io::ErrorKind::InvalidData);
        drop(theirs);
        // Were a copy still open, this would block or time out instead of seeing the end.
        ours.set_read_timeout(Some(std::time::Duration::from_secs(2))).unwrap();
        assert_eq!(std::io::Read::read(&mut &ours, &mut [0; 4]).unwrap(), 0);
    }
}
