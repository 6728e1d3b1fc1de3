//! Real-time flows: the best network for them, and no other.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anabranch::control::{ExplainRequest, Explained};
use linux::netns::Namespace;
use socket2::{Domain, Socket, Type};

use crate::bed::{Bed, SERVER_V4, SERVER_V6, eventually, within};
use crate::direct::{self, bed, behind, listing, started};
use crate::direct_metrics::web;
use crate::lacking::lacking;

/// Traffic class octets.
const EF: u32 = 46 << 2;
const USUAL: u32 = 0;
const FLOWS: usize = 16;
/// Bytes of a datagram: 20 ms of G.711.
const SPEECH: usize = 160;

/// Both families over both networks. Connections to the web server at port 8100, which the daemon asks, take a second over `wan0`: each
/// first SYN is lost there. So `wan1` is the better one, though not the first.
fn unequal_bed(settings: &str) -> Bed {
    let bed = bed();
    for number in 0..2 {
        let (near, far) = (format!("wan{number}"), format!("lan{number}"));
        let address = |host: u8| format!("2001:db8:{number}::{host}/64").parse().unwrap();
        bed.device.add_address(&near, address(2)).unwrap();
        bed.gateway.add_address(&far, address(1)).unwrap();
        let via = format!("2001:db8:{number}::1").parse().ok();
        bed.device.add_route(&near, "::/0".parse().unwrap(), via, Some(100 + number)).unwrap();
        let subnet = format!("2001:db8:{number}::/64").parse().unwrap();
        bed.server.add_route("lan", subnet, "2001:db8:9::1".parse().ok(), None).unwrap();
    }
    bed.gateway.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    let slow = "table inet slow { chain forward { type filter hook forward priority 0; \
                iifname lan0 tcp dport 8100 tcp flags & (syn | ack) == syn numgen inc mod 2 == 0 drop; }; }";
    assert!(bed.gateway.command("nft").unwrap().arg(slow).status().unwrap().success());
    web(&bed, &Arc::new(AtomicBool::new(true)));
    let probe = format!("http://{SERVER_V4}:8100/generate_204");
    bed.write_config("device", &format!("[device]\ndns = \"off\"\nprobe = \"{probe}\"\n{settings}"));
    bed
}

/// The network that a packet came by, by its source.
fn network_of(peer: SocketAddr) -> u8 {
    match peer.ip() {
        IpAddr::V4(address) => address.octets()[2],
        IpAddr::V6(address) => address.segments()[2] as u8,
    }
}

fn socket(from: &Namespace, server: SocketAddr, kind: Type, octet: u32) -> Socket {
    let socket = from.run(|| Socket::new(Domain::for_address(server), kind, None)).unwrap().unwrap();
    if server.is_ipv4() { socket.set_tos_v4(octet) } else { socket.set_tclass_v6(octet) }.unwrap();
    socket
}

/// A socket that sends datagrams of this class, and one at the server that answers.
struct Talk {
    mouth: Socket,
    ears: UdpSocket,
    server: SocketAddr,
}

impl Talk {
    fn new(bed: &Bed, from: &Namespace, server: SocketAddr, octet: u32) -> Self {
        let ears = bed.server.run(|| UdpSocket::bind(server)).unwrap().unwrap();
        ears.set_read_timeout(Some(Duration::from_millis(250))).unwrap();
        Self { mouth: socket(from, server, Type::DGRAM, octet), ears, server }
    }

    /// The network that a datagram came by; `None` if none came.
    fn by(&self) -> Option<u8> {
        self.mouth.send_to(&[7; SPEECH], &self.server.into()).ok()?;
        let (_, peer) = self.ears.recv_from(&mut [0; SPEECH]).ok()?;
        self.ears.send_to(&[7; SPEECH], peer).unwrap();
        Some(network_of(peer))
    }
}

/// By which networks the first datagrams of new flows came, those that came.
fn datagrams(bed: &Bed, from: &Namespace, server: &str, port: u16, octet: u32) -> BTreeMap<u8, usize> {
    let server = SocketAddr::new(server.parse().unwrap(), port);
    let mut talk = Talk::new(bed, from, server, octet);
    let mut seen = BTreeMap::new();
    for _ in 0..FLOWS {
        if let Some(network) = talk.by() {
            *seen.entry(network).or_default() += 1;
        }
        talk.mouth = socket(from, server, Type::DGRAM, octet);
    }
    seen
}

/// The same for TCP connections.
fn connections(bed: &Bed, port: u16, octet: u32) -> BTreeMap<u8, usize> {
    let server = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
    let listener = bed.server.run(|| std::net::TcpListener::bind(server)).unwrap().unwrap();
    let mut seen = BTreeMap::new();
    for _ in 0..FLOWS {
        let call = socket(&bed.device, server, Type::STREAM, octet);
        call.connect_timeout(&server.into(), Duration::from_secs(5)).unwrap();
        *seen.entry(network_of(listener.accept().unwrap().1)).or_default() += 1;
    }
    seen
}

fn explained(bed: &Bed, dscp: u8) -> Explained {
    let destination = SERVER_V4.parse().unwrap();
    let request = ExplainRequest { destination, domain: None, port: 5_004, udp: true, dscp };
    bed.client("device").explain(&request).unwrap()
}

fn wait_until_best(bed: &Bed, network: &str) {
    let wanted = format!("direct over {network} (100 %): real-time (code point 46), best network");
    within(Duration::from_secs(60), &format!("{network} is the best"), || {
        explained(bed, 46).outcome.starts_with(&wanted)
    });
}

pub fn real_time_flows_take_the_best_network() {
    let bed = unequal_bed("");
    let inside = behind(&bed);
    let _daemon = started(&bed);
    check(&bed, &inside);
}

/// The same without BPF, which needs control groups.
pub fn by_nftables_alone_as_well() {
    let bed = unequal_bed("");
    let inside = behind(&bed);
    let mut command = lacking(&bed, "device", "umount --lazy --all --types cgroup2; exec");
    let child = bed.arguments("device", &mut command).spawn().unwrap();
    let _daemon = bed.answering("device", child);
    bed.wait_until_up();
    eventually("new flows are led out", || listing(&bed.device).contains("numgen inc"));
    check(&bed, &inside);
}

fn check(bed: &Bed, inside: &Namespace) {
    wait_until_best(bed, "wan1");
    let best = |number: u8| -> BTreeMap<u8, usize> { [(number, FLOWS)].into() };
    for server in [SERVER_V4, SERVER_V6] {
        eventually("flows of the family are led out", || {
            datagrams(bed, &bed.device, server, 5_004, USUAL).len() == 2
        });
        assert_eq!(datagrams(bed, &bed.device, server, 5_005, EF), best(1), "{server}");
    }
    assert_eq!(connections(bed, 5_006, EF), best(1));
    assert_eq!(connections(bed, 5_007, USUAL).len(), 2);
    eventually("the LAN's flows are led out", || datagrams(bed, inside, SERVER_V4, 5_008, USUAL).len() == 2);
    assert_eq!(datagrams(bed, inside, SERVER_V4, 5_009, EF), best(1), "of a host behind the device");

    let server = |port| SocketAddr::new(SERVER_V4.parse().unwrap(), port);
    let call = Talk::new(bed, &bed.device, server(5_010), EF);
    assert_eq!(call.by(), Some(1));
    let usual = explained(bed, 0).outcome;
    assert!(usual.starts_with("direct, dealt out over wan0"), "{usual}");
    let flows = bed.client("device").flows().unwrap().flows;
    let listed = flows.iter().find(|flow| flow.destination == server(5_010)).unwrap();
    assert_eq!(listed.network.as_deref(), Some("wan1"));
    assert!(listed.why.starts_with("no rule: 100 %, real-time: best network"), "{listed:?}");

    // It dies: the call moves, new ones go to the other.
    bed.gateway.set_up("lan1", false).unwrap();
    eventually("wan1 is gone", || !bed.status().networks[1].connected);
    eventually("the call goes on", || call.by() == Some(0));
    assert_eq!(datagrams(bed, &bed.device, SERVER_V4, 5_011, EF), best(0));

    // It is back and the best again: what runs stays, new ones take it.
    bed.gateway.set_up("lan1", true).unwrap();
    bed.gateway.add_address("lan1", "10.1.1.1/24".parse().unwrap()).ok();
    let via = "10.1.1.1".parse().ok();
    bed.device.add_route("wan1", "0.0.0.0/0".parse().unwrap(), via, Some(101)).ok();
    wait_until_best(bed, "wan1");
    eventually("new calls take it", || datagrams(bed, &bed.device, SERVER_V4, 5_012, EF) == best(1));
    assert_eq!(call.by(), Some(0), "the old one is not moved");
}

/// A program that marks nothing: its first flow to a place shows that it is a call, the next ones are taken for one.
pub fn what_was_a_call_before_is_taken_for_one() {
    let bed = unequal_bed("");
    let _daemon = started(&bed);
    wait_until_best(&bed, "wan1");
    assert_eq!(datagrams(&bed, &bed.device, SERVER_V4, 5_020, USUAL).len(), 2, "not known yet");
    let server = SocketAddr::new(SERVER_V4.parse().unwrap(), 5_020);
    let call = Talk::new(&bed, &bed.device, server, USUAL);
    within(Duration::from_secs(60), "the kernel knows", || {
        // 50 packets a second, as speech has.
        for _ in 0..50 {
            assert!(call.by().is_some());
            std::thread::sleep(Duration::from_millis(20));
        }
        listing(&bed.device).contains("198.51.100.9 . udp . 5020")
    });
    drop(call);
    assert_eq!(datagrams(&bed, &bed.device, SERVER_V4, 5_020, USUAL), [(1, FLOWS)].into());
    assert_eq!(datagrams(&bed, &bed.device, SERVER_V4, 5_021, USUAL).len(), 2, "another port");
    let destination = SERVER_V4.parse().unwrap();
    let request = ExplainRequest { destination, domain: None, port: 5_020, udp: true, dscp: 0 };
    let outcome = bed.client("device").explain(&request).unwrap().outcome;
    assert!(outcome.contains("wan1 (100 %): real-time (as earlier flows there)"), "{outcome}");
}

/// Rules come first, and all of it can be switched off.
pub fn unless_a_rule_or_the_user_says_otherwise() {
    let bed = unequal_bed("[[rule]]\nname = \"here\"\nport = \"udp/5030\"\nnetworks = \"wan0\"\n");
    let daemon = started(&bed);
    wait_until_best(&bed, "wan1");
    assert_eq!(datagrams(&bed, &bed.device, SERVER_V4, 5_030, EF), [(0, FLOWS)].into());
    assert_eq!(datagrams(&bed, &bed.device, SERVER_V4, 5_031, EF), [(1, FLOWS)].into());
    bed.client("device").down().unwrap();
    assert!(daemon.wait());

    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\nreal_time_on_best = false\n");
    let _daemon = direct::started(&bed);
    assert_eq!(datagrams(&bed, &bed.device, SERVER_V4, 5_032, EF).len(), 2);
    assert_eq!(connections(&bed, 5_033, EF).len(), 2);
    assert!(explained(&bed, 46).outcome.starts_with("direct, dealt out over"));
}
