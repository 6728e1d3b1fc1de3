//! Small datagrams for many addresses, sent by one system call (`sendmmsg`).
#![expect(unsafe_code, reason = "sendmmsg is not in the standard library")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;

use socket2::SockAddr;

use super::{SendError, UdpPath};
use crate::system_call::{check, errno};

/// Sends that wait, at most [`SendBatch::MOST`] of at most [`SendBatch::LARGEST`] bytes.
#[derive(Debug, Default)]
pub struct SendBatch {
    bytes: Vec<u8>,
    sends: Vec<Send>,
}

/// One datagram, or several of equal size, for one address.
#[derive(Clone, Copy, Debug)]
struct Send {
    remote: SocketAddr,
    source: Option<IpAddr>,
    ecn: u8,
    start: usize,
    end: usize,
    segment_size: Option<usize>,
}

impl SendBatch {
    /// Sends in one batch.
    pub const MOST: usize = 32;
    /// Bytes of one send. What is longer is worth a call of its own, and not worth being copied.
    pub const LARGEST: usize = 8_192;

    /// Adds what [`UdpPath::send`] would send; its arguments. False if there is no room, or it is too long.
    pub fn push(
        &mut self,
        remote: SocketAddr,
        source: Option<IpAddr>,
        ecn: u8,
        bytes: &[u8],
        segment_size: Option<usize>,
    ) -> bool {
        if self.sends.len() >= Self::MOST || bytes.len() > Self::LARGEST {
            return false;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let segment_size = segment_size.filter(|size| *size > 0 && *size < bytes.len());
        self.sends.push(Send { remote, source, ecn, start, end: self.bytes.len(), segment_size });
        true
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty()
    }

    /// The bytes of a send, from the first on.
    fn bytes_of(&self, send: &Send) -> &[u8] {
        self.bytes.get(send.start..send.end).unwrap_or_default()
    }

    /// Forgets what waits.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.sends.clear();
    }
}

impl UdpPath {
    /// Sends all of `batch`, in its order, and empties it. `failed` is told the place in the batch of each send that failed.
    pub fn send_batch(&self, batch: &mut SendBatch, failed: &mut impl FnMut(usize, SendError)) {
        let mut next = 0;
        while next < batch.sends.len() {
            next += match self.send_from(batch, next) {
                Ok(sent) if sent > 0 => sent,
                Err(error) if errno(&error) == libc::EINTR => 0,
                // Alone, it finds out what the kernel has against it, and what else can be done.
                _ => {
                    if let Some(send) = batch.sends.get(next)
                        && let Err(error) = self.send(
                            send.remote,
                            send.source,
                            send.ecn,
                            batch.bytes_of(send),
                            send.segment_size,
                        )
                    {
                        failed(next, error);
                    }
                    1
                }
            };
        }
        batch.clear();
    }

    /// One call for what is left of `batch` from `first` on; returns how many sends the kernel took.
    fn send_from(&self, batch: &SendBatch, first: usize) -> io::Result<usize> {
        let left = batch.sends.get(first..).unwrap_or_default();
        if left.len() < 2 || self.maximum_segments() == 1 {
            return Ok(0);
        }
        let mut names: [Option<SockAddr>; SendBatch::MOST] = [const { None }; SendBatch::MOST];
        let mut slices = [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; SendBatch::MOST];
        let mut controls = [const { Control::new() }; SendBatch::MOST];
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let mut headers: [libc::mmsghdr; SendBatch::MOST] = unsafe { std::mem::zeroed() };
        let parts = names.iter_mut().zip(&mut slices).zip(&mut controls).zip(&mut headers);
        for ((((name, slice), control), header), send) in parts.zip(left) {
            let bytes = batch.bytes_of(send);
            *slice = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            control.describe(send);
            let name = name.insert(SockAddr::from(send.remote));
            let header = &mut header.msg_hdr;
            header.msg_name = name.as_ptr().cast_mut().cast();
            header.msg_namelen = name.len();
            header.msg_iov = slice;
            header.msg_iovlen = 1;
            header.msg_control = control.bytes.as_mut_ptr().cast();
            header.msg_controllen = control.used as _;
        }
        // SAFETY: as many headers as are said are filled in; each points to a live name, iovec and control buffer of the lengths it
        // says, each iovec to live bytes, and sendmmsg only reads them.
        check(unsafe {
            libc::sendmmsg(
                self.as_raw_fd(),
                headers.as_mut_ptr(),
                left.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        })
        .map(|count| count as usize)
    }
}

/// The control messages of one send, as the kernel wants them aligned.
#[repr(C, align(8))]
struct Control {
    bytes: [u8; Self::ROOM],
    used: usize,
}

impl Control {
    /// ECN bits, segment size and an IPv6 source.
    const ROOM: usize = 24 + 24 + 40;

    const fn new() -> Self {
        Self { bytes: [0; Self::ROOM], used: 0 }
    }

    fn describe(&mut self, send: &Send) {
        // An IPv6 socket speaks IPv4 by mapped addresses.
        let is_v4 = match send.remote.ip() {
            IpAddr::V4(_) => true,
            IpAddr::V6(address) => address.to_ipv4_mapped().is_some(),
        };
        let ecn = libc::c_int::from(send.ecn);
        if is_v4 {
            self.put(libc::IPPROTO_IP, libc::IP_TOS, ecn);
        } else {
            self.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, ecn);
        }
        if let Some(size) = send.segment_size {
            self.put(libc::SOL_UDP, libc::UDP_SEGMENT, size as u16);
        }
        match send.source {
            Some(IpAddr::V4(source)) => {
                let source = libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) };
                let any = libc::in_addr { s_addr: 0 };
                let from = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: any };
                self.put(libc::IPPROTO_IP, libc::IP_PKTINFO, from);
            }
            Some(IpAddr::V6(source)) => {
                let source = libc::in6_addr { s6_addr: source.octets() };
                let from = libc::in6_pktinfo { ipi6_ifindex: 0, ipi6_addr: source };
                self.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, from);
            }
            None => {}
        }
    }

    fn put<T: Copy>(&mut self, level: libc::c_int, kind: libc::c_int, value: T) {
        let length = size_of::<T>() as libc::c_uint;
        // SAFETY: these only compute lengths.
        let (space, whole) = unsafe { (libc::CMSG_SPACE(length), libc::CMSG_LEN(length)) };
        let Some(room) = self.bytes.get_mut(self.used..self.used + space as usize) else { return };
        let at: *mut libc::cmsghdr = room.as_mut_ptr().cast();
        // SAFETY: `room` is as long as header and value with their padding, and aligned: it begins at a multiple of eight bytes of
        // an aligned buffer. All-zero bytes are a valid cmsghdr.
        unsafe {
            let mut header: libc::cmsghdr = std::mem::zeroed();
            header.cmsg_len = whole as _;
            header.cmsg_level = level;
            header.cmsg_type = kind;
            at.write(header);
            libc::CMSG_DATA(at).cast::<T>().write_unaligned(value);
        }
        self.used += space as usize;
    }
}
