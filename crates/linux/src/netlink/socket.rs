//! A netlink socket: requests with answers, dumps, and notifications.
#![expect(unsafe_code, reason = "netlink sockets are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use thiserror::Error;

use super::message::{self, HEADER, Message, Request};
use crate::system_call::{check, check_size, set_integer_option};

const BUFFER: usize = 64 * 1024;

/// Why the kernel did not do what a request asked for.
#[derive(Debug, Error)]
pub enum NetlinkError {
    /// The kernel refused.
    #[error("{operation}: {error}{}", explanation.as_deref().map(|text| format!(" ({text})")).unwrap_or_default())]
    Refused {
        /// What was asked for, in words.
        operation: String,
        /// The kernel's error.
        error: io::Error,
        /// The kernel's explanation, when it gives one.
        explanation: Option<String>,
    },
    /// The socket itself failed.
    #[error("netlink socket: {0}")]
    Socket(#[from] io::Error),
}

impl NetlinkError {
    /// The kernel's error number, 0 if there is none.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Refused { error, .. } | Self::Socket(error) => error.raw_os_error().unwrap_or(0),
        }
    }

    /// Whether the thing to be made is there already.
    pub fn is_exists(&self) -> bool {
        self.errno() == libc::EEXIST
    }

    /// Whether the thing to be changed or removed is not there.
    pub fn is_missing(&self) -> bool {
        matches!(self.errno(), libc::ENOENT | libc::ESRCH | libc::ENODEV | libc::EADDRNOTAVAIL)
    }

    /// Whether the interface that was named is gone or down.
    pub fn is_missing_device(&self) -> bool {
        matches!(self.errno(), libc::ENODEV | libc::ENETDOWN | libc::ENETUNREACH)
    }
}

/// For what was to be removed: that it is gone already is no failure.
pub(crate) fn unless_missing(outcome: Result<(), NetlinkError>) -> Result<(), NetlinkError> {
    match outcome {
        Err(error) if !error.is_missing() => Err(error),
        _ => Ok(()),
    }
}

/// An open socket to one netlink family of the current network namespace.
pub(crate) struct NetlinkSocket {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    /// Opens a socket of `protocol` that hears the multicast `groups` (a bit mask, 0 for none).
    pub(crate) fn open(protocol: libc::c_int, groups: u32) -> io::Result<Self> {
        // SAFETY: plain system call without pointers.
        let raw =
            check(unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        // SAFETY: all-zero bytes are a valid sockaddr_nl.
        let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = groups;
        // SAFETY: the pointer is to a live sockaddr_nl and the length is its size.
        check(unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_nl>() as libc::socklen_t,
            )
        })?;
        // Explanations and strict checks are niceties of newer kernels: work without them.
        drop(set_integer_option(socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1));
        drop(set_integer_option(socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_GET_STRICT_CHK, 1));
        Ok(Self { socket, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// Hears the multicast group of this number, too.
    pub(crate) fn hear(&self, group: u32) -> io::Result<()> {
        let group = libc::c_int::try_from(group).map_err(|_| io::ErrorKind::InvalidInput)?;
        set_integer_option(self.socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)
    }

    /// Sends `request`, waits for the kernel's word on it.
    pub(crate) fn request(&mut self, operation: &str, request: Request) -> Result<(), NetlinkError> {
        self.exchange(operation, request, |_| {})
    }

    /// Sends `request`, gives each answer to `on_message` until the last.
    ///
    /// A dump that the kernel says was interrupted by a change is an error with `EINTR`: ask again.
    pub(crate) fn exchange(
        &mut self,
        operation: &str,
        request: Request,
        mut on_message: impl FnMut(Message<'_>),
    ) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let sequence = self.sequence;
        let bytes = request.finish(sequence);
        // SAFETY: pointer and length describe `bytes`.
        check_size(unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) })?;
        let mut interrupted = false;
        loop {
            let length = match self.receive(0) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            for message in message::messages(&self.buffer[..length]) {
                if message.sequence != sequence {
                    continue;
                }
                interrupted |= i32::from(message.flags) & libc::NLM_F_DUMP_INTR != 0;
                match i32::from(message.kind) {
                    libc::NLMSG_DONE if interrupted => {
                        return Err(io::Error::from_raw_os_error(libc::EINTR).into());
                    }
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return answer(operation, message),
                    _ => on_message(message),
                }
            }
        }
    }

    /// Reads and throws away all waiting notifications. True if there was any, or if some were lost.
    pub(crate) fn drain(&mut self) -> io::Result<bool> {
        let mut any = false;
        loop {
            match self.receive(libc::MSG_DONTWAIT) {
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(any),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The queue overflowed: what was lost shows up in the next dump.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads the notifications of one datagram. Never blocks: `WouldBlock` if none waits, `ENOBUFS` if some were lost.
    pub(crate) fn read_notifications(&mut self, mut on_message: impl FnMut(Message<'_>)) -> io::Result<()> {
        let length = self.receive(libc::MSG_DONTWAIT)?;
        message::messages(&self.buffer[..length]).for_each(&mut on_message);
        Ok(())
    }

    /// Sends finished messages, one after the other, without waiting for a word on them. A refusal is among the notifications.
    pub(crate) fn send(&self, messages: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length describe `messages`.
        let sent =
            unsafe { libc::send(self.socket.as_raw_fd(), messages.as_ptr().cast(), messages.len(), 0) };
        check_size(sent).map(drop)
    }

    /// Has room for `bytes` of notifications, and refusals do not repeat what was refused.
    pub(crate) fn expect_many(&self, bytes: libc::c_int) -> io::Result<()> {
        set_integer_option(self.socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1)?;
        set_integer_option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)
    }

    fn receive(&mut self, flags: libc::c_int) -> io::Result<usize> {
        // SAFETY: pointer and length describe the buffer, which lives through the call.
        check_size(unsafe {
            libc::recv(self.socket.as_raw_fd(), self.buffer.as_mut_ptr().cast(), self.buffer.len(), flags)
        })
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn answer(operation: &str, message: Message<'_>) -> Result<(), NetlinkError> {
    let code = message::number(message.body, 0).unwrap_or(0) as i32;
    if code == 0 {
        return Ok(());
    }
    // With NLM_F_CAPPED only the header of our request is repeated before the attributes.
    let repeated = if i32::from(message.flags) & NLM_F_CAPPED != 0 {
        HEADER
    } else {
        message::number(message.body, 4).unwrap_or(0) as usize
    };
    let explanation = message
        .body
        .get((4 + repeated).next_multiple_of(4)..)
        .and_then(|rest| message::attributes(rest).find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG))
        .map(|(_, value)| message::text(value));
    Err(NetlinkError::Refused {
        operation: operation.to_owned(),
        error: io::Error::from_raw_os_error(code.wrapping_neg()),
        explanation,
    })
}

const NLM_F_CAPPED: i32 = 0x100;
const NLMSGERR_ATTR_MSG: u16 = 1;
