//! DHCP and answers of routers past the kernel's own network stack: an interface has no address yet, and what it is lent is for one client in this process.
#![expect(unsafe_code, reason = "packet sockets and their filters are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::system_call::{attach_program, check, check_size, set_integer_option};

/// A socket that receives what DHCP servers say on one interface and whose addresses are whose (ARP), as whole Ethernet frames, and sends such frames there.
pub struct LeaseSocket(OwnedFd);

impl LeaseSocket {
    /// Longest frame, in bytes; longer ones are cut.
    pub const LONGEST: usize = 1_514;

    /// Opens it on the interface with number `index`. Needs CAP_NET_RAW.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(index: u32) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call. Protocol 0 receives nothing until bind says from where.
        let raw = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        set_integer_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        attach_program(socket.as_fd(), libc::SO_ATTACH_FILTER, &answers_only())?;
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
        Ok(Self(socket))
    }

    /// Receives one frame; never blocks.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when none waits; [`io::ErrorKind::NetworkDown`] once after the interface was switched off.
    pub fn receive(&self, buffer: &mut [u8; Self::LONGEST]) -> io::Result<usize> {
        // SAFETY: pointer and length describe the live buffer.
        check_size(unsafe { libc::recv(self.0.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) })
    }

    /// Sends one frame; never blocks.
    ///
    /// # Errors
    /// The kernel's, as while the interface is off.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length describe the live frame.
        check_size(unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) }).map(drop)
    }
}

impl AsFd for LeaseSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets IPv4 through that carries UDP to port 68 and is no later piece of a longer packet, and answers of ARP; offsets are from the Ethernet header.
fn answers_only() -> [libc::sock_filter; 14] {
    const LOAD_HALF: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const HEADER_LENGTH: u32 = libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH;
    const LOAD_HALF_AFTER_IT: u32 = libc::BPF_LD | libc::BPF_H | libc::BPF_IND;
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const HAS_BITS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    let step = |code: u32, yes, no, value| libc::sock_filter { code: code as u16, jt: yes, jf: no, k: value };
    const ANSWER: u32 = 2;
    [
        step(LOAD_HALF, 0, 0, 12),
        step(IS, 8, 0, libc::ETH_P_ARP as u32),
        step(IS, 0, 10, libc::ETH_P_IP as u32),
        step(LOAD_BYTE, 0, 0, 23),
        step(IS, 0, 8, libc::IPPROTO_UDP as u32),
        step(LOAD_HALF, 0, 0, 20),
        step(HAS_BITS, 6, 0, 0x1fff),
        step(HEADER_LENGTH, 0, 0, 14),
        step(LOAD_HALF_AFTER_IT, 0, 0, 16),
        step(IS, 2, 3, 68),
        step(LOAD_HALF, 0, 0, 20),
        step(IS, 0, 1, ANSWER),
        step(RETURN, 0, 0, u32::MAX),
        step(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::netlink::Netlink;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;

    #[test]
    fn only_answers_of_servers_come_through() {
        if !may_test() {
            return;
        }
        let [client, server] = std::array::from_fn(|_| Namespace::anonymous().unwrap());
        client.join(&server, "cable", "cable").unwrap();
        server.add_address("cable", "10.77.0.1/24".parse().unwrap()).unwrap();
        let socket = client
            .run(|| LeaseSocket::open(Netlink::open().unwrap().link("cable").unwrap().unwrap().index))
            .unwrap()
            .unwrap();
        let speaker = server.run(|| UdpSocket::bind("10.77.0.1:67")).unwrap().unwrap();
        speaker.set_broadcast(true).unwrap();
        for (port, text) in [(67, "a question"), (53, "a name"), (68, "an answer")] {
            speaker.send_to(text.as_bytes(), ("10.77.0.255", port)).unwrap();
        }
        let mut buffer = [0; LeaseSocket::LONGEST];
        let mut next = || {
            let deadline = Instant::now() + Duration::from_secs(5);
            loop {
                match socket.receive(&mut buffer) {
                    Ok(length) => return buffer[..length].to_vec(),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                assert!(Instant::now() < deadline, "nothing came");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        assert_eq!(&next()[42..], b"an answer");
        // Packets each way, with questions and answers about both addresses.
        client.add_address("cable", "10.77.0.2/24".parse().unwrap()).unwrap();
        let asker = client.run(|| UdpSocket::bind("10.77.0.2:0")).unwrap().unwrap();
        asker.send_to(b"hello", "10.77.0.1:9").unwrap();
        let answer = next();
        assert_eq!(
            (&answer[12..14], &answer[20..22], &answer[28..32]),
            (&[8, 6][..], &[0, 2][..], &[10, 77, 0, 1][..])
        );
        speaker.send_to(b"hello", "10.77.0.2:9").unwrap();
        std::thread::sleep(Duration::from_millis(20));
        assert!(socket.receive(&mut buffer).is_err());
    }
}
