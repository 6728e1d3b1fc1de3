//! IPv6-only networks with NAT64: finding the network's prefix (RFC 7050).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use linux::BindTo;
use linux::udp::{ReceiveBuffer, UdpPath};
use rand::TryRngCore;

use wire::translation::Prefix;

use super::question::{Kind, Question};

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
                    found = found.or_else(|| answers.into_iter().find_map(prefix_in));
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

/// The prefix under which one of the well-known addresses appears in an answer.
fn prefix_in(answer: IpAddr) -> Option<Prefix> {
    let IpAddr::V6(answer) = answer else { return None };
    Prefix::around(answer, &WELL_KNOWN)
}

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
