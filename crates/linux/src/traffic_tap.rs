//! Which remote addresses packets come from, looked at only now and then.
//!
//! A packet socket with a filter in the kernel and a buffer for a few dozen packets: while nobody reads, a full buffer costs each
//! further packet no more than the filter.
#![expect(unsafe_code, reason = "packet sockets and their filters are not in the standard library")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use crate::system_call::{attach_program, check, check_size, set_integer_option};

/// Sees packets from one IPv4 /16 and one IPv6 /64, on all interfaces.
pub struct TrafficTap {
    socket: OwnedFd,
}

impl TrafficTap {
    /// Starts to look for packets from the first 16 bits of `v4` and the first 64 of `v6`. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// If the kernel has no packet sockets, or refuses one.
    pub fn open(v4: Ipv4Addr, v6: Ipv6Addr) -> io::Result<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call. Protocol 0 receives nothing until bind says what.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        set_integer_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        set_integer_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, BUFFER)?;
        attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &filter(v4, v6))?;
        // SAFETY: all-zero bytes are a valid sockaddr_ll.
        let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        let length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the pointer is to a live sockaddr_ll and the length is its size.
        check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
        Ok(Self { socket })
    }

    /// Gives the sources of some packets that came since the last call to `sink`; at most [`MOST`]. Never blocks.
    pub fn drain(&self, sink: &mut impl FnMut(IpAddr)) {
        let mut buffer = [0_u8; HEADER];
        for _ in 0..MOST {
            let descriptor = self.socket.as_raw_fd();
            // SAFETY: the pointer is to a live buffer of this length.
            let read = unsafe {
                libc::recv(descriptor, buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_DONTWAIT)
            };
            let Ok(length) = check_size(read) else { return };
            if let Some(source) = source(&buffer[..length.min(HEADER)]) {
                sink(source);
            }
        }
    }
}

fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => <[u8; 4]>::try_from(packet.get(12..16)?).ok().map(IpAddr::from),
        6 => <[u8; 16]>::try_from(packet.get(8..24)?).ok().map(IpAddr::from),
        _ => None,
    }
}

/// Classic BPF: the version, then the prefix of the source address.
fn filter(v4: Ipv4Addr, v6: Ipv6Addr) -> [libc::sock_filter; 14] {
    const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
    const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
    const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, k| libc::sock_filter { code, jt: 0, jf: 0, k };
    // Jumps are counted from the next instruction.
    let unless = |k, jf| libc::sock_filter { code: EQUAL, jt: 0, jf, k };
    let [a, b, c, d, ..] = v6.segments().map(u32::from);
    let [e, f, ..] = v4.octets().map(u32::from);
    [
        step(LOAD_BYTE, 0),
        step(AND, 0xf0),
        libc::sock_filter { code: EQUAL, jt: 5, jf: 0, k: 0x60 },
        unless(0x40, 3),
        step(LOAD_HALF, 12),
        unless(e << 8 | f, 1),
        step(RETURN, HEADER as u32),
        step(RETURN, 0),
        step(LOAD_WORD, 8),
        unless(a << 16 | b, 3),
        step(LOAD_WORD, 12),
        unless(c << 16 | d, 1),
        step(RETURN, HEADER as u32),
        step(RETURN, 0),
    ]
}

/// Most packets of one [`TrafficTap::drain`].
pub const MOST: usize = 64;
/// An IPv6 header.
const HEADER: usize = 40;
/// Some dozens of short packets, a few long ones.
const BUFFER: libc::c_int = 32_768;

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    #[test]
    fn packets_from_the_prefixes_are_seen_and_no_others() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        for (space, addresses) in [
            (&left, ["10.78.0.1/16", "10.79.0.1/16", "fd78::1/64", "fd79::1/64"]),
            (&right, ["10.78.0.2/16", "10.79.0.2/16", "fd78::2/64", "fd79::2/64"]),
        ] {
            for address in addresses {
                space.add_address("cable", address.parse().unwrap()).unwrap();
            }
        }
        let open = || TrafficTap::open([10, 78, 0, 0].into(), "fd78::".parse().unwrap());
        let tap = right.run(open).unwrap().unwrap();
        for (from, to) in [
            ("10.78.0.1:9", "10.78.0.2:9"),
            ("10.79.0.1:9", "10.79.0.2:9"),
            ("[fd78::1]:9", "[fd78::2]:9"),
            ("[fd79::1]:9", "[fd79::2]:9"),
        ] {
            let socket = left.run(|| UdpSocket::bind(from)).unwrap().unwrap();
            for _ in 0..500 {
                drop(socket.send_to(&[0; 1_000], to));
            }
        }
        let mut seen = std::collections::BTreeSet::new();
        let mut count = 0;
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        // The first packets wait until the neighbour is known.
        while count == 0 && std::time::Instant::now() < deadline {
            tap.drain(&mut |source| {
                count += 1;
                seen.insert(source.to_string());
            });
        }
        assert!((1..=MOST).contains(&count), "{count}: the buffer is small");
        let socket = left.run(|| UdpSocket::bind("[fd77::1]:0")).unwrap().unwrap();
        let again = left.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
        while seen.len() < 2 && std::time::Instant::now() < deadline {
            // The buffer was full of the first family, or addresses were still being checked.
            drop((socket.send_to(&[0; 10], "[fd77::2]:9"), again.send_to(&[0; 10], "[fd78::2]:9")));
            tap.drain(&mut |source| {
                seen.insert(source.to_string());
            });
        }
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["10.78.0.1", "fd78::1"]);
    }
}
