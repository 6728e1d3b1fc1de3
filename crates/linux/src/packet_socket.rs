//! Whole Ethernet frames of one interface, in batches: the ends of the lab's link emulator.
#![expect(unsafe_code, reason = "packet sockets and ethtool are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::system_call::{check, set_integer_option};

/// A socket that receives and sends the frames of one interface.
///
/// Frames that this host sends out of the interface are not received. Switch offloads off first
/// ([`disable_offloads`]), or frames of up to 64 KiB without checksums appear.
pub struct PacketSocket {
    socket: OwnedFd,
    buffers: Box<[u8]>,
}

impl PacketSocket {
    /// Largest frame, in bytes; longer ones are cut.
    pub const MAXIMUM_FRAME: usize = 2_048;
    /// Most frames in one system call.
    pub const BATCH: usize = 64;

    /// Opens the socket on the interface with number `index` of the current namespace. Needs CAP_NET_RAW.
    pub fn open(index: u32) -> io::Result<Self> {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call. Protocol 0 receives nothing until bind says from where.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        set_integer_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, SOCKET_BUFFER).or_else(
            |_| set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, SOCKET_BUFFER),
        )?;
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = protocol;
        address.sll_ifindex = index as i32;
        // SAFETY: the pointer is to a live sockaddr_ll and the length is its size.
        check(unsafe {
            libc::bind(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as libc::socklen_t,
            )
        })?;
        Ok(Self { socket, buffers: vec![0; Self::BATCH * Self::MAXIMUM_FRAME].into_boxed_slice() })
    }

    /// Receives once and gives each frame to `sink`; returns their number.
    ///
    /// Never blocks: [`io::ErrorKind::WouldBlock`] when nothing waits.
    pub fn receive(&mut self, sink: &mut impl FnMut(&[u8])) -> io::Result<usize> {
        let mut slices: [libc::iovec; Self::BATCH] = std::array::from_fn(|at| libc::iovec {
            iov_base: self.buffers[at * Self::MAXIMUM_FRAME..].as_mut_ptr().cast(),
            iov_len: Self::MAXIMUM_FRAME,
        });
        let mut headers = headers(&mut slices);
        // SAFETY: each header points to one iovec, each iovec to its own part of the live buffer.
        let count = check(unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                Self::BATCH as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })? as usize;
        for (header, buffer) in headers[..count].iter().zip(self.buffers.chunks(Self::MAXIMUM_FRAME)) {
            sink(&buffer[..(header.msg_len as usize).min(Self::MAXIMUM_FRAME)]);
        }
        Ok(count)
    }

    /// Sends up to [`PacketSocket::BATCH`] of `frames`; returns how many the kernel took.
    pub fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> io::Result<usize> {
        let frames = &frames[..frames.len().min(Self::BATCH)];
        let empty = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut slices = [empty; Self::BATCH];
        for (slice, frame) in slices.iter_mut().zip(frames) {
            let frame = frame.as_ref();
            *slice = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
        }
        let mut headers = headers(&mut slices);
        // SAFETY: each header points to one iovec, each iovec to a live frame that sendmmsg only reads.
        check(unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                headers.as_mut_ptr(),
                frames.len() as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        })
        .map(|count| count as usize)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

fn headers(slices: &mut [libc::iovec; PacketSocket::BATCH]) -> [libc::mmsghdr; PacketSocket::BATCH] {
    slices.each_mut().map(|slice| {
        // SAFETY: all-zero bytes are a valid mmsghdr.
        let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        header.msg_hdr.msg_iov = slice;
        header.msg_hdr.msg_iovlen = 1;
        header
    })
}

/// Switches checksum and segmentation offloads of an interface off, so that its frames are as on a wire.
///
/// An offload that the interface does not have is not an error.
pub fn disable_offloads(interface: &str) -> io::Result<()> {
    // SAFETY: plain system call; any socket serves for interface ioctls.
    let raw = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    for command in [ETHTOOL_STSO, ETHTOOL_SGSO, ETHTOOL_SGRO, ETHTOOL_STXCSUM] {
        let mut value = EthtoolValue { command, data: 0 };
        // SAFETY: all-zero bytes are a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        if interface.len() >= libc::IFNAMSIZ {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request names an interface and points to a live ethtool_value, as SIOCETHTOOL takes it.
        let result =
            check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) });
        match result {
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

const SOCKET_BUFFER: libc::c_int = 8 << 20;
const ETHTOOL_STXCSUM: u32 = 0x17;
const ETHTOOL_STSO: u32 = 0x1f;
const ETHTOOL_SGSO: u32 = 0x24;
const ETHTOOL_SGRO: u32 = 0x2c;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::netlink::Netlink;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;

    /// A relay between two veths, as the link emulator is, carries TCP in frames of wire size.
    #[test]
    fn frames_are_relayed_between_two_cables() {
        if !may_test() {
            return;
        }
        let [left, middle, right] = std::array::from_fn(|_| Namespace::anonymous().unwrap());
        middle.join(&left, "one", "cable").unwrap();
        middle.join(&right, "other", "cable").unwrap();
        left.add_address("cable", "10.77.0.1/24".parse().unwrap()).unwrap();
        right.add_address("cable", "10.77.0.2/24".parse().unwrap()).unwrap();
        left.run(|| disable_offloads("cable")).unwrap().unwrap();
        right.run(|| disable_offloads("cable")).unwrap().unwrap();
        let open = |name: &str| {
            middle
                .run(|| {
                    disable_offloads(name).unwrap();
                    PacketSocket::open(Netlink::open().unwrap().link(name).unwrap().unwrap().index)
                })
                .unwrap()
                .unwrap()
        };
        let mut sockets = [open("one"), open("other")];

        let listener = right.run(|| TcpListener::bind("10.77.0.2:80")).unwrap().unwrap();
        let sent: Vec<u8> = (0..400_000u32).map(|at| (at / 7) as u8).collect();
        let received = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut stream = left.run(|| TcpStream::connect("10.77.0.2:80")).unwrap().unwrap();
                stream.write_all(&sent).unwrap();
            });
            let reader = scope.spawn(|| {
                let mut bytes = Vec::new();
                listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
                bytes
            });
            let deadline = Instant::now() + Duration::from_secs(20);
            while !reader.is_finished() && Instant::now() < deadline {
                for from in [0, 1] {
                    let mut frames: Vec<Vec<u8>> = Vec::new();
                    drop(sockets[from].receive(&mut |frame| frames.push(frame.to_vec())));
                    assert!(frames.iter().all(|frame| frame.len() <= 1_514), "an offload is on");
                    if !frames.is_empty() {
                        sockets[1 - from].send(&frames).unwrap();
                    }
                }
            }
            reader.join().unwrap()
        });
        assert!(received == sent);
    }

    #[test]
    fn an_absent_interface_is_an_error() {
        assert_eq!(disable_offloads("ab-absent").unwrap_err().raw_os_error(), Some(libc::ENODEV));
    }
}
