//! Looks the gateway's name up past any0: over each network, at the DNS servers that the networks told.
//!
//! The system's own resolver cannot do that. Once traffic is captured its questions go to any0, and so to a gateway
//! that does not answer any more at its old address.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use linux::BindTo;
use linux::dns::is_ours;
use linux::udp::{ReceiveBuffer, UdpPath};
use rand::TryRngCore;

use super::question::{Kind, Question};

/// Where the system and its network programs write down the servers of the networks, the best kept first.
const FILES: [&str; 4] = [
    "/run/systemd/resolve/resolv.conf",
    "/run/NetworkManager/no-stub-resolv.conf",
    "/run/NetworkManager/resolv.conf",
    "/etc/resolv.conf",
];

/// The DNS servers of the networks as they are written down now, less those that we wrote ourselves and those on this
/// machine, whose own questions would go to any0.
pub fn network_servers() -> Vec<IpAddr> {
    let texts = FILES.iter().filter_map(|file| fs::read_to_string(Path::new(file)).ok());
    merged(texts.filter(|text| !is_ours(text)).flat_map(|text| name_servers(&text)))
}

/// The same with `more`, those that were known before.
pub fn merged(servers: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut all = Vec::new();
    for server in servers {
        if !server.is_loopback() && !all.contains(&server) && all.len() < MAXIMUM_SERVERS {
            all.push(server);
        }
    }
    all
}

/// The name servers in the text of a resolv.conf.
pub fn name_servers(resolv_conf: &str) -> Vec<IpAddr> {
    let servers = resolv_conf.lines().filter_map(|line| line.trim().strip_prefix("nameserver"));
    servers.filter_map(|server| server.trim().parse().ok()).take(MAXIMUM_SERVERS).collect()
}

/// One socket's conversation with one server.
struct Asked {
    socket: usize,
    server: SocketAddr,
    question: usize,
    id: [u8; 2],
    open: bool,
}

/// The addresses of `name`, IPv6 first: all servers are asked over all `interfaces` at once, and the answers of the
/// first moments count. Blocks for up to two seconds; empty if nobody knows.
pub fn look_up(name: &str, interfaces: &[String], mark: u32, servers: &[IpAddr]) -> Vec<IpAddr> {
    let questions: Vec<Question> =
        [Kind::V6, Kind::V4].into_iter().filter_map(|kind| Question::new(name, kind)).collect();
    let mut sockets = Vec::new();
    let mut asked = Vec::new();
    for interface in interfaces {
        for local in [IpAddr::from(Ipv4Addr::UNSPECIFIED), Ipv6Addr::UNSPECIFIED.into()] {
            let of_family = servers.iter().filter(|server| server.is_ipv4() == local.is_ipv4());
            let remotes: Vec<SocketAddr> =
                of_family.map(|server| SocketAddr::new(*server, DNS_PORT)).collect();
            let local = SocketAddr::new(local, 0);
            let to = BindTo { interface: Some(interface.clone()), local, mark: Some(mark) };
            let Some(socket) = (!remotes.is_empty()).then(|| UdpPath::bind(&to).ok()).flatten() else {
                continue;
            };
            for (server, question) in
                remotes.iter().flat_map(|server| (0..questions.len()).map(|at| (*server, at)))
            {
                let mut id = [0; 2];
                if rand::rngs::OsRng.try_fill_bytes(&mut id).is_ok() {
                    asked.push(Asked { socket: sockets.len(), server, question, id, open: true });
                }
            }
            sockets.push(socket);
        }
    }
    gather(&questions, &sockets, &mut asked)
}

fn gather(questions: &[Question], sockets: &[UdpPath], asked: &mut [Asked]) -> Vec<IpAddr> {
    let mut found: Vec<IpAddr> = Vec::new();
    let mut buffer = ReceiveBuffer::new();
    let start = Instant::now();
    let mut end = start + PATIENCE;
    let mut again = start;
    while asked.iter().any(|one| one.open) && Instant::now() < end {
        if Instant::now() >= again {
            again += REPEAT;
            for one in asked.iter().filter(|one| one.open) {
                let (Some(socket), Some(question)) = (sockets.get(one.socket), questions.get(one.question))
                else {
                    continue;
                };
                // A server that this network does not reach; another may.
                drop(socket.send(one.server, None, 0, &question.message(one.id), None));
            }
        }
        std::thread::sleep(WAIT);
        for (number, socket) in sockets.iter().enumerate() {
            let mut take = |datagram: linux::udp::Received<'_>| {
                let of_socket =
                    asked.iter_mut().filter(|one| one.socket == number && one.server == datagram.remote);
                for one in of_socket {
                    let Some(question) = questions.get(one.question) else { continue };
                    if let Some(addresses) = question.answers(datagram.bytes, one.id) {
                        one.open = false;
                        found.extend(addresses);
                    }
                }
            };
            while socket.receive(&mut buffer, &mut take).is_ok_and(|count| count > 0) {}
        }
        if !found.is_empty() {
            end = end.min(Instant::now() + LAST_WAIT);
        }
    }
    found.sort_unstable_by_key(|address| (address.is_ipv4(), *address));
    found.dedup();
    found
}

const DNS_PORT: u16 = 53;
const MAXIMUM_SERVERS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(2);
const REPEAT: Duration = Duration::from_millis(500);
const WAIT: Duration = Duration::from_millis(20);
/// How long the other servers and the other family have once something was found.
const LAST_WAIT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolv_conf_is_read() {
        let text = "# x\nnameserver 10.0.0.1\nsearch example\nnameserver   fd00::1 \nnameserver nonsense\n";
        assert_eq!(name_servers(text), ["10.0.0.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
    }

    #[test]
    fn servers_on_this_machine_and_repetitions_are_left_out() {
        let servers =
            ["127.0.0.53", "10.0.0.1", "::1", "10.0.0.1", "fd00::1"].map(|text| text.parse().unwrap());
        assert_eq!(merged(servers), ["10.0.0.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]);
    }

    #[test]
    fn nobody_to_ask_is_no_answer_at_once() {
        let start = Instant::now();
        assert_eq!(look_up("gw.example.org", &[], 1, &[]), Vec::<IpAddr>::new());
        assert!(start.elapsed() < Duration::from_secs(3));
    }
}
