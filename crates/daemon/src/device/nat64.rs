//! IPv6-only networks with NAT64: finding the network's prefix (RFC 7050) and writing IPv4 addresses with it (RFC 6052).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linux::BindTo;
use linux::udp::{ReceiveBuffer, UdpPath};
use rand::TryRngCore;

use super::question::{Kind, Question};

/// A network's NAT64 prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefix {
    address: Ipv6Addr,
    length: u8,
}

impl Prefix {
    /// `None` if the length is none of RFC 6052 section 2.2.
    pub fn new(address: Ipv6Addr, length: u8) -> Option<Self> {
        LENGTHS.contains(&length).then_some(Self { address, length })
    }

    /// The IPv6 form of an IPv4 address (RFC 6052 section 2.2).
    pub fn embed(self, address: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.address.octets();
        for (at, octet) in positions(self.length).zip(address.octets()) {
            octets[at] = octet;
        }
        Ipv6Addr::from(octets)
    }

    /// The prefix under which one of the two well-known addresses appears in `answer` (RFC 7050 section 3).
    fn found_in(answer: IpAddr) -> Option<Self> {
        let IpAddr::V6(answer) = answer else { return None };
        let octets = answer.octets();
        // RFC 6052 section 2.2: bits 64 to 71 are zero in every form but that of /96.
        let embedded = |length: u8| {
            let mut address = [0; 4];
            for (octet, at) in address.iter_mut().zip(positions(length)) {
                *octet = octets[at];
            }
            WELL_KNOWN.contains(&Ipv4Addr::from(address)) && (length == 96 || octets[8] == 0)
        };
        let length = LENGTHS.into_iter().find(|length| embedded(*length))?;
        let mut prefix = [0; 16];
        let bytes = usize::from(length / 8);
        prefix[..bytes].copy_from_slice(&octets[..bytes]);
        Self::new(Ipv6Addr::from(prefix), length)
    }
}

/// Where the four octets of the IPv4 address stand, leaving out octet 8.
fn positions(length: u8) -> impl Iterator<Item = usize> {
    (usize::from(length / 8)..16).filter(move |at| *at != 8 || length == 96).take(4)
}

/// Asks the DNS servers, over `interface` only, whether the network has a NAT64. Blocks for up to a few seconds.
pub fn discover(interface: &str, mark: u32, servers: &[IpAddr]) -> Option<Prefix> {
    servers.iter().filter(|server| server.is_ipv6() && !server.is_loopback()).find_map(|server| {
        let local = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 0);
        let to = BindTo { interface: Some(interface.to_owned()), local, mark: Some(mark) };
        let path = UdpPath::bind(&to).ok()?;
        ask(&path, SocketAddr::new(*server, DNS_PORT))
    })
}

fn ask(path: &UdpPath, server: SocketAddr) -> Option<Prefix> {
    let mut id = [0; 2];
    rand::rngs::OsRng.try_fill_bytes(&mut id).ok()?;
    let question = Question::new(NAME, Kind::V6)?;
    let mut buffer = ReceiveBuffer::new();
    for _ in 0..TRIES {
        path.send(server, None, 0, &question.message(id), None).ok()?;
        for _ in 0..WAITS {
            std::thread::sleep(WAIT);
            let mut found = None;
            let mut take = |datagram: linux::udp::Received<'_>| {
                if datagram.remote == server {
                    let answers = question.answers(datagram.bytes, id).unwrap_or_default();
                    found = found.or_else(|| answers.into_iter().find_map(Prefix::found_in));
                }
            };
            while path.receive(&mut buffer, &mut take).is_ok_and(|count| count > 0) {}
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// The addresses of `ipv4only.arpa` (RFC 7050 section 8.2).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
const NAME: &str = "ipv4only.arpa";
const DNS_PORT: u16 = 53;
const TRIES: usize = 3;
const WAITS: usize = 50;
const WAIT: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6052 section 2.4, table 2.
    #[test]
    fn published_examples() {
        let address = Ipv4Addr::new(192, 0, 2, 33);
        for (prefix, length, expected) in [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
        ] {
            let prefix = Prefix::new(prefix.parse().unwrap(), length).unwrap();
            assert_eq!(prefix.embed(address), expected.parse::<Ipv6Addr>().unwrap(), "/{length}");
            for known in WELL_KNOWN {
                assert_eq!(Prefix::found_in(prefix.embed(known).into()), Some(prefix), "/{length}");
            }
        }
        assert_eq!(Prefix::found_in("2001:db8::1".parse().unwrap()), None);
        assert_eq!(Prefix::new(Ipv6Addr::UNSPECIFIED, 95), None);
    }

    fn answer(question: &Question, id: [u8; 2], address: Ipv6Addr) -> Vec<u8> {
        let mut message = question.message(id);
        message[2..4].copy_from_slice(&[0x81, 0x80]);
        message[7] = 1;
        message.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
        message.extend(address.octets());
        message
    }

    #[test]
    fn a_server_that_answers_is_believed() {
        let Ok(server) = std::net::UdpSocket::bind("[::1]:0") else {
            eprintln!("skipped: no IPv6 on this machine");
            return;
        };
        let remote = server.local_addr().unwrap();
        let thread = std::thread::spawn(move || {
            let mut query = [0; 512];
            let (length, from) = server.recv_from(&mut query).unwrap();
            let question = Question::new(NAME, Kind::V6).unwrap();
            assert_eq!(query[2..length], question.message([0, 0])[2..]);
            let reply = answer(&question, [query[0], query[1]], "64:ff9b::192.0.0.171".parse().unwrap());
            server.send_to(&reply, from).unwrap();
        });
        let to = BindTo { interface: None, local: "[::]:0".parse().unwrap(), mark: None };
        let found = ask(&UdpPath::bind(&to).unwrap(), remote);
        thread.join().unwrap();
        assert_eq!(found, Prefix::new("64:ff9b::".parse().unwrap(), 96));
    }
}
