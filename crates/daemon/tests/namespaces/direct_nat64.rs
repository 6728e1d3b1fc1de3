//! Direct mode where a network has IPv6 only, with a NAT64: programs that know only IPv4 reach servers that have only IPv4.
//!
//! The NAT64 is tayga, a program of others; what is tested is what it and the server get.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch::control::ExplainRequest;
use linux::netns::Namespace;

use crate::bed::{Bed, Daemon, SERVER_V4, eventually, within};
use crate::direct::{bed, listing};
use crate::nat64::{Translator, answer_names, behind_nat64, translate};

/// What runs beside the daemon; ended with the test.
struct Network {
    router: Namespace,
    _nat64: Translator,
    stop: Arc<AtomicBool>,
    names: Option<JoinHandle<()>>,
}

impl Network {
    /// Makes `wan0` one with IPv6 only.
    fn new(bed: &Bed) -> Self {
        let router = behind_nat64(bed);
        let nat64 = translate(bed, &router);
        bed.server
            .add_route("lan", "10.64.0.0/24".parse().unwrap(), "198.51.100.1".parse().ok(), None)
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let server = router.run(|| UdpSocket::bind("[2001:db8:64::1]:53")).unwrap().unwrap();
        let told = stop.clone();
        let names = Some(std::thread::spawn(move || answer_names(&server, &told)));
        Self { router, _nat64: nat64, stop, names }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(names) = self.names.take() {
            drop(names.join());
        }
    }
}

fn has_tayga() -> bool {
    let there = Command::new("tayga").arg("--help").output().is_ok();
    if !there {
        println!("skipped: the program tayga is missing (apt install tayga)");
    }
    there
}

fn start(bed: &Bed) -> Daemon {
    let daemon = bed.start_with_names("device", "nameserver 2001:db8:64::1\n");
    bed.wait_until_up();
    eventually("IPv4 flows are translated", || listing(&bed.device).contains("table ip6 anabranch"));
    daemon
}

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse().unwrap(), port)
}

fn is_of_nat64(peer: SocketAddr) -> bool {
    matches!(peer.ip(), IpAddr::V4(peer) if peer.octets()[..3] == [10, 64, 0])
}

/// ```text
/// device wan0 --- 2001:db8:64::/64 --- lan router (tayga, DNS64) up --- 10.1.0.0/24 --- gateway --- server (IPv4)
/// ```
pub fn ipv4_flows_go_through_the_nat64_of_the_only_network() {
    if !has_tayga() {
        return;
    }
    let bed = bed();
    bed.device.delete_link("wan1").unwrap();
    let network = Network::new(&bed);
    let before = listing(&bed.device);
    let daemon = start(&bed);

    let explained =
        ExplainRequest { destination: server(1).ip(), domain: None, port: 443, udp: false, dscp: 0 };
    let explained = bed.client("device").explain(&explained).unwrap();
    assert!(explained.outcome.contains("direct over wan0"), "{explained:?}");

    bed.download(SERVER_V4, 4_000_000, || {});
    udp_is_answered(&bed, 1_200);
    // Longer than the network carries: fragments both ways.
    udp_is_answered(&bed, 6_000);
    for size in ["56", "3000"] {
        let mut ping = bed.device.command("ping").unwrap();
        // A fragmented ICMP message has no counterpart in IPv6 (RFC 7915 section 1.2).
        let wanted = size == "56";
        let status = ping.args(["-q", "-c", "2", "-W", "2", "-s", size, SERVER_V4]).output().unwrap().status;
        assert_eq!(status.success(), wanted, "ping with {size} bytes");
    }
    closed_ports_are_told(&bed);
    small_paths_are_found(&bed, &network.router);

    let flows = bed.client("device").flows().unwrap();
    let between =
        flows.flows.iter().find(|flow| flow.destination.ip().to_string().contains("2001:db8:64:ff:"));
    assert!(between.is_none(), "a translated flow is one flow: {between:?}");

    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    assert_eq!(listing(&bed.device), before);
}

fn udp_is_answered(bed: &Bed, length: usize) {
    let far = bed.server.run(|| UdpSocket::bind(server(8_200))).unwrap().unwrap();
    let near = bed.device.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    for socket in [&far, &near] {
        socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    }
    let payload: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
    let mut buffer = vec![0; 65_536];
    near.send_to(&payload, server(8_200)).unwrap();
    let (count, peer) = far.recv_from(&mut buffer).expect("the server got no datagram");
    assert!(is_of_nat64(peer) && buffer[..count] == payload, "{peer}, {count} bytes");
    far.send_to(&payload, peer).unwrap();
    let (count, from) = near.recv_from(&mut buffer).expect("no answer came back");
    assert!(from == server(8_200) && buffer[..count] == payload, "{from}, {count} bytes");
}

/// A reset for TCP and an ICMP error for UDP, at once.
fn closed_ports_are_told(bed: &Bed) {
    let began = Instant::now();
    let refused = bed.device.run(|| TcpStream::connect_timeout(&server(1), Duration::from_secs(10))).unwrap();
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::ConnectionRefused);
    let near = bed.device.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    near.connect(server(2)).unwrap();
    near.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    near.send(b"?").unwrap();
    let refused = near.recv(&mut [0; 9]).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused, "the ICMP error was lost");
    assert!(began.elapsed() < Duration::from_secs(9));
}

/// Behind the NAT64 packets may be 1300 bytes long: a router there says so, and what it says must find the sender.
fn small_paths_are_found(bed: &Bed, router: &Namespace) {
    let set = |interface: &str| {
        let mut ip = router.command("ip").unwrap();
        assert!(ip.args(["link", "set", "dev", interface, "mtu", "1300"]).status().unwrap().success());
    };
    set("up");
    let listener = bed.server.run(|| TcpListener::bind(server(8_201))).unwrap().unwrap();
    let mut call = bed.device.run(|| TcpStream::connect(server(8_201))).unwrap().unwrap();
    let (mut answer, peer) = listener.accept().unwrap();
    assert!(is_of_nat64(peer), "{peer}");
    let sent: Vec<u8> = (0..300_000).map(|at| (at % 251) as u8).collect();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || call.write_all(&copy).map(|()| call));
    answer.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut received = vec![0; sent.len()];
    answer.read_exact(&mut received).expect("packets that are too long are not made shorter");
    assert!(received == sent);
    drop(writer.join().unwrap().unwrap());
}

/// One network with IPv4 and one with a NAT64: new flows are dealt out over both, and what the dead one had ends at once.
pub fn ipv4_flows_are_dealt_out_to_a_network_with_nat64_too() {
    if !has_tayga() {
        return;
    }
    let bed = bed();
    let network = Network::new(&bed);
    let _daemon = start(&bed);
    let listener = bed.server.run(|| TcpListener::bind(server(8_202))).unwrap().unwrap();
    let call = || {
        let call = bed.device.run(|| TcpStream::connect_timeout(&server(8_202), Duration::from_secs(2)));
        let call = call.unwrap().expect("the server is not reached");
        let (answer, peer) = listener.accept().unwrap();
        (call, answer, is_of_nat64(peer))
    };
    let mut over: Vec<(TcpStream, TcpStream, bool)> = Vec::new();
    within(Duration::from_secs(10), "both networks get flows", || {
        let kinds: BTreeSet<bool> = (0..8).map(|_| call().2).collect();
        kinds.len() == 2
    });
    for _ in 0..16 {
        over.push(call());
    }
    let (mut translated, mut plain): (Vec<_>, Vec<_>) = over.into_iter().partition(|(_, _, nat64)| *nat64);
    assert!(!translated.is_empty() && !plain.is_empty());

    network.router.set_up("lan", false).unwrap();
    let (dead, ..) = &mut translated[0];
    dead.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let error = dead.read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionAborted, "{error}");
    let (alive, answer, _) = &mut plain[0];
    alive.write_all(b"still here").unwrap();
    answer.read_exact(&mut [0; 10]).unwrap();
    assert!((0..6).all(|_| !call().2), "a dead network got a new flow");
}
