//! IPv6-only networks with NAT64: finding the network's prefix (RFC 7050) and writing IPv4 addresses with it (RFC 6052).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linux::BindTo;
use linux::udp::{ReceiveBuffer, UdpPath};
use rand::TryRngCore;

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
    fn found_in(answer: Ipv6Addr) -> Option<Self> {
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
    let mut buffer = ReceiveBuffer::new();
    for _ in 0..TRIES {
        path.send(server, None, 0, &question(id), None).ok()?;
        for _ in 0..WAITS {
            std::thread::sleep(WAIT);
            let mut found = None;
            let mut take = |datagram: linux::udp::Received<'_>| {
                if datagram.remote == server {
                    found = found.or_else(|| addresses(datagram.bytes, id).find_map(Prefix::found_in));
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

/// The name servers in the text of a resolv.conf.
pub fn name_servers(resolv_conf: &str) -> Vec<IpAddr> {
    let servers = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| server.trim().parse().ok()).take(8).collect()
}

/// A query for the AAAA records of `ipv4only.arpa` (RFC 1035 section 4.1).
fn question(id: [u8; 2]) -> Vec<u8> {
    const RECURSION_DESIRED: [u8; 2] = [0x01, 0x00];
    let mut message = Vec::from(id);
    message.extend(RECURSION_DESIRED);
    message.extend([0, 1, 0, 0, 0, 0, 0, 0]);
    message.extend(NAME);
    message.extend(AAAA.to_be_bytes());
    message.extend(INTERNET.to_be_bytes());
    message
}

/// The addresses in an answer to [`question`]; none if it is an answer to something else.
fn addresses(message: &[u8], id: [u8; 2]) -> impl Iterator<Item = Ipv6Addr> {
    let mut rest = records(message, id).unwrap_or_default();
    std::iter::from_fn(move || {
        loop {
            rest = skip_name(rest)?;
            let (header, after) = rest.split_first_chunk::<10>()?;
            let kind = u16::from_be_bytes([header[0], header[1]]);
            let length = usize::from(u16::from_be_bytes([header[8], header[9]]));
            let data = after.get(..length)?;
            rest = after.get(length..)?;
            if let (AAAA, Ok(octets)) = (kind, <[u8; 16]>::try_from(data)) {
                return Some(Ipv6Addr::from(octets));
            }
        }
    })
    .take(MAXIMUM_ANSWERS)
}

/// What follows the question in a successful answer with this id.
fn records(message: &[u8], id: [u8; 2]) -> Option<&[u8]> {
    let (header, rest) = message.split_first_chunk::<12>()?;
    let (is_response, code) = (header[2] & 0x80 != 0, header[3] & 0x0f);
    if header[..2] != id || !is_response || code != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let rest = rest.strip_prefix(&NAME[..])?;
    rest.strip_prefix(&[AAAA.to_be_bytes(), INTERNET.to_be_bytes()].concat()[..])
}

/// What follows a name, which may end in a pointer (RFC 1035 section 4.1.4).
fn skip_name(mut bytes: &[u8]) -> Option<&[u8]> {
    loop {
        let (length, rest) = bytes.split_first()?;
        match length {
            0 => return Some(rest),
            0xc0..=0xff => return rest.get(1..),
            1..=63 => bytes = rest.get(usize::from(*length)..)?,
            _ => return None,
        }
    }
}

const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// The addresses of `ipv4only.arpa` (RFC 7050 section 8.2).
const WELL_KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
const NAME: &[u8; 15] = b"\x08ipv4only\x04arpa\x00";
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const DNS_PORT: u16 = 53;
const TRIES: usize = 3;
const WAITS: usize = 50;
const WAIT: Duration = Duration::from_millis(20);
const MAXIMUM_ANSWERS: usize = 16;

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
                assert_eq!(Prefix::found_in(prefix.embed(known)), Some(prefix), "/{length}");
            }
        }
        assert_eq!(Prefix::found_in("2001:db8::1".parse().unwrap()), None);
        assert_eq!(Prefix::new(Ipv6Addr::UNSPECIFIED, 95), None);
    }

    fn answer(id: [u8; 2], code: u8, address: Ipv6Addr) -> Vec<u8> {
        let mut message = question(id);
        message[2..4].copy_from_slice(&[0x81, 0x80 | code]);
        message[7] = 1;
        message.extend([0xc0, 12, 0, 28, 0, 1, 0, 0, 0, 60, 0, 16]);
        message.extend(address.octets());
        message
    }

    #[test]
    fn answers_are_read_and_others_are_not() {
        let address: Ipv6Addr = "64:ff9b::192.0.0.170".parse().unwrap();
        let good = answer([1, 2], 0, address);
        assert_eq!(addresses(&good, [1, 2]).collect::<Vec<_>>(), [address]);
        assert_eq!(addresses(&good, [1, 3]).count(), 0);
        assert_eq!(addresses(&answer([1, 2], 3, address), [1, 2]).count(), 0);
        assert_eq!(addresses(&question([1, 2]), [1, 2]).count(), 0);
        for length in 0..good.len() {
            assert_eq!(addresses(&good[..length], [1, 2]).count(), 0, "cut at {length}");
        }
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
            assert_eq!(query[2..length], question([0, 0])[2..]);
            let reply = answer([query[0], query[1]], 0, "64:ff9b::192.0.0.171".parse().unwrap());
            server.send_to(&reply, from).unwrap();
        });
        let to = BindTo { interface: None, local: "[::]:0".parse().unwrap(), mark: None };
        let found = ask(&UdpPath::bind(&to).unwrap(), remote);
        thread.join().unwrap();
        assert_eq!(found, Prefix::new("64:ff9b::".parse().unwrap(), 96));
    }

    #[test]
    fn resolv_conf_is_read() {
        let text = "# x\nnameserver 10.0.0.1\nsearch example\nnameserver   fd00::1 \nnameserver nonsense\n";
        assert_eq!(name_servers(text), ["10.0.0.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
    }
}
