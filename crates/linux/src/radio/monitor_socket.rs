//! The packet socket on a monitor interface.
#![expect(unsafe_code, reason = "packet sockets are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, SystemTime};

use radio::radiotap::{self, Captured};
use socket2::SockRef;
use tracing::trace;
use units::Frequency;

use crate::system_call::{check, check_size, set_integer_option};

/// Frames of one monitor interface, each with its radiotap header.
pub(super) struct MonitorSocket {
    socket: OwnedFd,
    buffers: Box<[u8]>,
    controls: Box<[Control; BATCH]>,
}

/// Where the kernel tells when a frame came.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

impl MonitorSocket {
    /// Opens the socket on the interface with number `index` of the current namespace. Needs CAP_NET_RAW.
    pub(super) fn open(index: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call. Protocol 0 receives nothing until bind says from where.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        // What became of our frames is received like the frames of others; this is about the copies before they are sent.
        set_integer_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER).or_else(
            |_| set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER),
        )?;
        set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as i32;
        // SAFETY: the pointer is to a live sockaddr_ll and the length is its size.
        check(unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        let buffers = vec![0; BATCH * LONGEST].into_boxed_slice();
        Ok(Self { socket, buffers, controls: Box::new([Control([0; CONTROL]); BATCH]) })
    }

    /// Receives once and gives each whole frame to `sink`, with when it came by the system's clock; returns how many there were, cut ones
    /// included.
    fn receive(&mut self, mut sink: impl FnMut(&[u8], Option<SystemTime>)) -> io::Result<usize> {
        let mut slices: [libc::iovec; BATCH] = std::array::from_fn(|at| libc::iovec {
            iov_base: self.buffers[at * LONGEST..].as_mut_ptr().cast(),
            iov_len: LONGEST,
        });
        let mut headers: [libc::mmsghdr; BATCH] = slices.each_mut().map(|slice| {
            // SAFETY: all-zero bytes are a valid mmsghdr.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = slice;
            header.msg_hdr.msg_iovlen = 1;
            header
        });
        for (header, control) in headers.iter_mut().zip(self.controls.iter_mut()) {
            header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
            header.msg_hdr.msg_controllen = CONTROL as _;
        }
        // SAFETY: each header points to one iovec, each iovec to its own part of the live buffer.
        let count = check(unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                BATCH as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })? as usize;
        for (header, buffer) in headers[..count].iter().zip(self.buffers.chunks(LONGEST)) {
            let whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            if let Some(bytes) = buffer.get(..header.msg_len as usize).filter(|_| whole) {
                sink(bytes, stamp(&header.msg_hdr));
            }
        }
        Ok(count)
    }

    /// The same, read. Frames heard with errors are left out; `tuned` is where those were heard whose header does not tell. 0: none waits.
    pub(super) fn receive_captured(
        &mut self,
        tuned: Frequency,
        mut sink: impl FnMut(Captured<'_>, Option<SystemTime>),
    ) -> io::Result<usize> {
        let each = |bytes: &[u8], came: Option<SystemTime>| match radiotap::read(bytes, tuned) {
            Ok(captured) => sink(captured, came),
            Err(error) => trace!(%error, length = bytes.len(), "left out"),
        };
        match self.receive(each) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
            other => other,
        }
    }

    /// How many frames found no room since this was last asked.
    pub(super) fn count_dropped(&self) -> io::Result<u32> {
        // SAFETY: all-zero bytes are a valid tpacket_stats.
        let mut counts: libc::tpacket_stats = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&counts) as libc::socklen_t;
        // SAFETY: both pointers are to live values, and the length is that of the first.
        check(unsafe {
            libc::getsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut counts).cast(),
                &raw mut length,
            )
        })?;
        Ok(counts.tp_drops)
    }

    /// Sends `header` and `frame` as one.
    pub(super) fn send(&mut self, header: &[u8], frame: &[u8]) -> io::Result<()> {
        let slices = [header, frame]
            .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
        // SAFETY: all-zero bytes are a valid msghdr.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = slices.as_ptr().cast_mut();
        message.msg_iovlen = slices.len() as _;
        // SAFETY: the message points to two live iovecs, those to bytes that sendmsg only reads.
        check_size(unsafe { libc::sendmsg(self.socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) })
            .map(drop)
    }

    /// Forgets the error that the socket would tell next: that its interface was switched off, once it is on again.
    pub(super) fn forget_error(&mut self) -> io::Result<()> {
        SockRef::from(&self.socket).take_error().map(drop)
    }
}

impl AsFd for MonitorSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// When the kernel took what a message brought.
fn stamp(message: &libc::msghdr) -> Option<SystemTime> {
    // SAFETY: the message was filled in by the kernel, and its control bytes are alive; what follows stays within what it told of them.
    let (header, length) = unsafe {
        let header = libc::CMSG_FIRSTHDR(message).as_ref()?;
        (header, libc::CMSG_LEN(size_of::<libc::timespec>() as libc::c_uint))
    };
    let is_stamp = header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_TIMESTAMPNS;
    if !is_stamp || header.cmsg_len as u64 != u64::from(length) {
        return None;
    }
    // SAFETY: as long as a timespec, which any bytes are.
    let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?))
}

/// Bytes for a time of arrival, and its header.
const CONTROL: usize = 64;
/// Most frames in one system call.
const BATCH: usize = 16;
/// Longest frame with its header that is received, in bytes: 11,454 (IEEE 802.11-2020 table 9-34) and what the kernel tells of it.
const LONGEST: usize = 12 << 10;
/// Some hundred milliseconds of a busy channel.
const RECEIVE_BUFFER: libc::c_int = 8 << 20;
