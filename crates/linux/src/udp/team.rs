//! Several sockets at one address and port, each with its own share of what arrives, for a thread each.

use std::os::fd::AsFd;

use socket2::Type;

use super::UdpPath;
use crate::bind::{BindError, BindTo};
use crate::system_call::attach_program;

/// Where a datagram has the number (big-endian, four bytes) by which its socket is found: that modulo the number of sockets, in the
/// order in which they were opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberPlaces {
    /// The bits of the first byte that tell two kinds of datagrams apart.
    pub bits: u8,
    /// Where the number begins if one of them is set.
    pub with: usize,
    /// Where it begins otherwise.
    pub without: usize,
}

impl UdpPath {
    /// Opens another socket at the same address and port. The first one is opened as any other, so that no other program can be there.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn beside(&self) -> Result<Self, BindError> {
        let to = self.bound_to();
        let fail = |(step, error)| to.failed("UDP", step, error);
        self.socket.set_reuse_port(true).map_err(|error| fail(("share the port", error)))?;
        let socket = to.open_with(Type::DGRAM, |socket| socket.set_reuse_port(true))?;
        Self::prepare(socket).map_err(fail)
    }

    /// Shares out what arrives at this socket and those beside it, `sockets` together. What is too short to have the number is for the
    /// first. For all of them at once, and again when there are more.
    ///
    /// # Errors
    /// If there is no socket beside it, or the kernel has no such programs.
    pub fn share_out(&self, places: NumberPlaces, sockets: u32) -> Result<(), BindError> {
        let program = program(places, sockets);
        attach_program(self.as_fd(), libc::SO_ATTACH_REUSEPORT_CBPF, &program)
            .map_err(|error| self.bound_to().failed("UDP", "share out what arrives", error))
    }

    fn bound_to(&self) -> BindTo {
        BindTo { interface: None, local: self.local, mark: None }
    }
}

/// Offsets are from the UDP payload. A read behind its end ends the program with 0.
fn program(places: NumberPlaces, sockets: u32) -> [libc::sock_filter; 7] {
    const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
    const LOAD_WORD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const HAS_BITS: u32 = libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K;
    const ALWAYS: u32 = libc::BPF_JMP | libc::BPF_JA;
    const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_A;
    let step = |code: u32, yes, no, value| libc::sock_filter { code: code as u16, jt: yes, jf: no, k: value };
    [
        step(LOAD_BYTE, 0, 0, 0),
        step(HAS_BITS, 0, 2, places.bits.into()),
        step(LOAD_WORD, 0, 0, places.with as u32),
        step(ALWAYS, 0, 0, 1),
        step(LOAD_WORD, 0, 0, places.without as u32),
        step(MODULO, 0, 0, sockets.max(1)),
        step(RETURN, 0, 0, 0),
    ]
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::udp::ReceiveBuffer;

    const PLACES: NumberPlaces = NumberPlaces { bits: 0x80, with: 1, without: 4 };

    /// The first bytes of what each socket has got.
    fn received(team: &[UdpPath], wanted: usize) -> Vec<Vec<Vec<u8>>> {
        let mut found = vec![Vec::new(); team.len()];
        let mut buffer = ReceiveBuffer::new();
        let deadline = Instant::now() + Duration::from_secs(5);
        while found.iter().map(Vec::len).sum::<usize>() < wanted && Instant::now() < deadline {
            for (path, found) in team.iter().zip(&mut found) {
                drop(path.receive(&mut buffer, &mut |datagram| found.push(datagram.bytes.to_vec())));
            }
        }
        found
    }

    #[test]
    fn each_socket_gets_what_has_its_number() {
        for local in ["127.0.0.1:0", "[::1]:0"] {
            let to = BindTo { interface: None, local: local.parse().unwrap(), mark: None };
            let Ok(first) = UdpPath::bind(&to) else { continue };
            let to = BindTo { local: first.local_address(), ..to };
            assert!(UdpPath::bind(&to).is_err(), "the port is taken");
            let mut team = vec![first];
            for sockets in 2..=3u32 {
                let next = team[0].beside().unwrap();
                team.push(next);
                team[0].share_out(PLACES, sockets).unwrap();
                assert!(UdpPath::bind(&to).is_err(), "the port is taken");
                let sender = UdpSocket::bind(SocketAddr::new(to.local.ip(), 0)).unwrap();
                let mut sent = 0;
                for number in (0..8u32).chain([u32::MAX]) {
                    let bytes = number.to_be_bytes();
                    let data = [&[0xc8][..], &bytes, &[9; 20]].concat();
                    let hello = [&[1, 1, 0, 0][..], &bytes, &[9; 90]].concat();
                    for datagram in [data, hello] {
                        sender.send_to(&datagram, to.local).unwrap();
                        sent += 1;
                    }
                }
                for short in [&[0x80, 0, 0, 1][..], &[1, 1, 0, 0, 0, 0, 1]] {
                    sender.send_to(short, to.local).unwrap();
                }
                for (at, datagrams) in received(&team, sent + 2).iter().enumerate() {
                    let is_short = |datagram: &&Vec<u8>| datagram.len() < 8;
                    assert_eq!(datagrams.iter().filter(is_short).count(), if at == 0 { 2 } else { 0 });
                    let long: Vec<_> = datagrams.iter().filter(|datagram| datagram.len() > 8).collect();
                    assert!(long.len() >= 4 && long.len() % 2 == 0);
                    for datagram in long {
                        let place = if datagram[0] & 0x80 == 0 { 4 } else { 1 };
                        let number = u32::from_be_bytes(*datagram[place..].first_chunk().unwrap());
                        assert_eq!((number % sockets) as usize, at);
                    }
                }
            }
        }
    }
}
