//! What routers and servers say about packets of direct flows: that nobody listens, and that a link behind them carries less.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use linux::netlink::sock_diag::{Protocol, Selection, SocketDiagnostics};

use crate::bed::{Bed, SERVER_V4, SERVER_V6, eventually};
use crate::direct::{bed, started};

/// Both networks have IPv6 too.
fn dual() -> Bed {
    let bed = bed();
    bed.gateway.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    for number in 0..2 {
        let (near, far) = (format!("wan{number}"), format!("lan{number}"));
        bed.device.add_address(&near, format!("2001:db8:{number}::2/64").parse().unwrap()).unwrap();
        bed.gateway.add_address(&far, format!("2001:db8:{number}::1/64").parse().unwrap()).unwrap();
        let via = format!("2001:db8:{number}::1").parse().ok();
        bed.device.add_route(&near, "::/0".parse().unwrap(), via, Some(100 + number)).unwrap();
        let (back, via) = (format!("2001:db8:{number}::/64"), "2001:db8:9::1".parse().ok());
        bed.server.add_route("lan", back.parse().unwrap(), via, None).unwrap();
    }
    bed
}

/// Dealt out by the fast path, where the kernel has it; and by a rule, which nftables alone looks at.
const WITH_A_RULE: &str = "[device]\ndns = \"off\"\nprobe = \"off\"\n[[rule]]\nport = \"8301-8320\"\nnetworks = [\"wan0\", \"wan1\"]\n";
const FREE_PORT: u16 = 8_321;
const RULED_PORT: u16 = 8_301;

pub fn a_closed_port_is_told() {
    let bed = dual();
    bed.write_config("device", WITH_A_RULE);
    let _daemon = started(&bed);
    for server in [SERVER_V4, SERVER_V6] {
        // Turns lead over both networks.
        for port in [FREE_PORT, RULED_PORT].repeat(3) {
            let address = SocketAddr::new(server.parse().unwrap(), port);
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let told = || {
                let socket = bed.device.run(|| UdpSocket::bind(any)).unwrap().unwrap();
                socket.connect(address).unwrap();
                socket.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
                let outcome = socket.send(b"hello").and_then(|_| socket.recv(&mut [0; 8]));
                outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
            };
            // The server says so ten times a second at most.
            eventually(&format!("{address} tells that its port is closed"), told);
            let call = bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)));
            assert_eq!(call.unwrap().unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
        }
    }
}

pub fn a_link_that_carries_less_is_found() {
    const LENGTH: usize = 3_000_000;
    const MTU: u32 = 1_300;
    let bed = dual();
    let mut ip = bed.gateway.command("ip").unwrap();
    assert!(ip.args(["link", "set", "wan", "mtu", &MTU.to_string()]).status().unwrap().success());
    bed.write_config("device", WITH_A_RULE);
    let _daemon = started(&bed);
    for server in [SERVER_V4, SERVER_V6] {
        for port in [FREE_PORT, RULED_PORT] {
            let address = SocketAddr::new(server.parse().unwrap(), port);
            let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
            let limit = Duration::from_secs(30);
            let call = bed.device.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
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
            assert_eq!(path_mtu(&bed, address), Some(MTU), "{address}");
        }
    }
}

/// What the kernel believes of the connection to this address.
fn path_mtu(bed: &Bed, remote: SocketAddr) -> Option<u32> {
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
    bed.device.run(look).unwrap()
}
