//! What routers and servers say about packets of direct flows: that nobody listens, and that a link behind them carries less.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Output;
use std::time::Duration;

use linux::netlink::sock_diag::{Protocol, Selection, SocketDiagnostics};
use linux::netns::Namespace;

use socket2::SockRef;

use crate::bed::{Bed, SERVER_V4, SERVER_V6, eventually};
use crate::direct::{behind, dual, started};
use crate::scenarios::nft;

/// Dealt out by the fast path, where the kernel has it; and by a rule, which nftables alone looks at.
const WITH_A_RULE: &str = "[device]\ndns = \"off\"\nprobe = \"off\"\n[[rule]]\nport = \"8301-8320\"\nnetworks = [\"wan0\", \"wan1\"]\n";
const FREE_PORT: u16 = 8_321;
const RULED_PORT: u16 = 8_301;

pub fn a_closed_port_is_told() {
    let bed = dual();
    bed.write_config("device", WITH_A_RULE);
    let _daemon = started(&bed);
    closed_ports_are_told(&bed.device);
}

pub fn a_closed_port_is_told_to_a_lan() {
    let bed = dual();
    let inside = behind(&bed);
    bed.write_config("device", WITH_A_RULE);
    let _daemon = started(&bed);
    closed_ports_are_told(&inside);
}

fn closed_ports_are_told(host: &Namespace) {
    for server in [SERVER_V4, SERVER_V6] {
        // Turns lead over both networks.
        for port in [FREE_PORT, RULED_PORT].repeat(3) {
            let address = SocketAddr::new(server.parse().unwrap(), port);
            let told = || {
                let socket = datagrams_to(host, address);
                socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                let outcome = socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 8]));
                outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            };
            // The server says so ten times a second at most.
            eventually(&format!("{address} tells that its port is closed"), told);
            let call = host.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)));
            assert_eq!(call.unwrap().unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
        }
    }
}

fn datagrams_to(host: &Namespace, address: SocketAddr) -> UdpSocket {
    let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = host.run(|| UdpSocket::bind(any)).unwrap().unwrap();
    socket.connect(address).unwrap();
    socket
}

/// What the link between the router of all networks and the server carries.
const NARROW: u32 = 1_300;

/// What the way to the server carries is found by who is not told of it.
fn narrow() -> Bed {
    let bed = dual();
    set_mtu(&bed.gateway, "wan", NARROW);
    bed.write_config("device", WITH_A_RULE);
    bed
}

fn set_mtu(host: &Namespace, interface: &str, mtu: u32) {
    let mut ip = host.command("ip").unwrap();
    assert!(ip.args(["link", "set", interface, "mtu", &mtu.to_string()]).status().unwrap().success());
}

pub fn a_link_that_carries_less_is_found() {
    let bed = narrow();
    let _daemon = started(&bed);
    narrow_links_are_found(&bed, &bed.device);
}

pub fn a_link_that_carries_less_is_found_by_a_lan() {
    let bed = narrow();
    let inside = behind(&bed);
    let _daemon = started(&bed);
    narrow_links_are_found(&bed, &inside);
}

fn narrow_links_are_found(bed: &Bed, host: &Namespace) {
    const LENGTH: usize = 3_000_000;
    for server in [SERVER_V4, SERVER_V6] {
        for port in [FREE_PORT, RULED_PORT] {
            let address = SocketAddr::new(server.parse().unwrap(), port);
            let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
            let limit = Duration::from_secs(30);
            let call = host.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
            let mut call = call.unwrap();
            let (mut answer, _) = listener.accept().unwrap();
            answer.set_read_timeout(Some(limit)).unwrap();
            call.set_write_timeout(Some(limit)).unwrap();
            let reader = std::thread::spawn(move || {
                let mut all = vec![0; LENGTH];
                answer.read_exact(&mut all).map(|()| all)
            });
            let sent: Vec<u8> = (0..LENGTH).map(|at| (at % 251) as u8).collect();
            call.write_all(&sent).unwrap();
            assert!(
                reader.join().unwrap().unwrap() == sent,
                "{address}: the bytes were changed on their way"
            );
            assert_eq!(path_mtu(host, address), Some(NARROW), "{address}");
        }
    }
    // And for what is no TCP: echoes that must not be cut.
    for server in [SERVER_V4, SERVER_V6] {
        let too_long = ping(host, &["-M", "do", "-s", &NARROW.to_string(), server]);
        assert!(!too_long.status.success());
        let told = [too_long.stdout, too_long.stderr].concat();
        let told = String::from_utf8_lossy(&told);
        assert!(told.contains("mtu") && told.contains(&NARROW.to_string()), "{told}");
    }
}

pub fn echoes_are_answered() {
    let bed = dual();
    let inside = behind(&bed);
    bed.write_config("device", WITH_A_RULE);
    let _daemon = started(&bed);
    for host in [&bed.device, &inside] {
        for server in [SERVER_V4, SERVER_V6] {
            let answered = ping(host, &[server]);
            assert!(answered.status.success(), "{server}: {answered:?}");
        }
    }
}

fn ping(host: &Namespace, arguments: &[&str]) -> Output {
    let mut command = host.command("ping").unwrap();
    command.env("LC_ALL", "C").args(["-c", "4", "-i", "0.2", "-W", "2"]).args(arguments).output().unwrap()
}

/// A host of a LAN believes that the way is as wide as the LAN; its connections are told better when they begin.
pub fn connections_of_a_lan_are_told_what_their_network_carries() {
    const WIDTH: u32 = 1_400;
    let bed = dual();
    let inside = behind(&bed);
    for number in 0..2 {
        set_mtu(&bed.device, &format!("wan{number}"), WIDTH);
        set_mtu(&bed.gateway, &format!("lan{number}"), WIDTH);
        // The router says nothing: who would send more than goes through would hang.
    }
    nft(
        &bed.gateway,
        "table inet deaf { chain output { type filter hook output priority 0; icmp type destination-unreachable drop; icmpv6 type packet-too-big drop; }; }",
    );
    bed.write_config("device", WITH_A_RULE);
    let _daemon = started(&bed);
    for (server, headers) in [(SERVER_V4, 40), (SERVER_V6, 60)] {
        for port in [FREE_PORT, RULED_PORT] {
            let address = SocketAddr::new(server.parse().unwrap(), port);
            let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
            let limit = Duration::from_secs(10);
            let call = inside.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
            let mut call = call.unwrap();
            let (mut answer, _) = listener.accept().unwrap();
            // Time stamps take 12 bytes of each segment.
            for end in [&call, &answer] {
                assert_eq!(SockRef::from(end).tcp_mss().unwrap(), WIDTH - headers - 12, "{address}");
            }
            call.set_read_timeout(Some(limit)).unwrap();
            let source = std::thread::spawn(move || answer.write_all(&[7; 300_000]));
            call.read_exact(&mut vec![0; 300_000]).unwrap();
            source.join().unwrap().unwrap();
        }
    }
}

/// What a host's kernel believes of the connection to this address.
fn path_mtu(host: &Namespace, remote: SocketAddr) -> Option<u32> {
    let look = || {
        let mut found = None;
        let mut sockets = SocketDiagnostics::open().unwrap();
        let mut take = |socket: &linux::netlink::sock_diag::SocketInfo| {
            if socket.remote == remote {
                found = socket.tcp.map(|tcp| tcp.path_mtu);
            }
        };
        sockets.for_each(Selection::connected(Protocol::Tcp), &mut take).unwrap();
        found
    };
    host.run(look).unwrap()
}
