//! Networks that lack an address family that others have.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use crate::bed::{Bed, SERVER_V4, SERVER_V6, eventually};
use crate::direct::{bed, listing, started};

/// wan0 has IPv4 only, wan1 has both.
fn give_second_network_ipv6(bed: &Bed) {
    bed.device.add_address("wan1", "2001:db8:1::2/64".parse().unwrap()).unwrap();
    bed.gateway.add_address("lan1", "2001:db8:1::1/64".parse().unwrap()).unwrap();
    bed.gateway.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    bed.device.add_route("wan1", "::/0".parse().unwrap(), "2001:db8:1::1".parse().ok(), None).unwrap();
    let back = "2001:db8:9::1".parse().ok();
    bed.server.add_route("lan", "2001:db8:1::/64".parse().unwrap(), back, None).unwrap();
}

const RULES: &str = "[device]\ndns = \"off\"\nprobe = \"off\"\n\
                     [[rule]]\nport = 8085\nnetworks = \"wan0\"\n\
                     [[rule]]\nport = 8086\nnetworks = \"wan0\"\nstrict = false\n";

/// Who has called the server at this port, if the call came about.
fn call(bed: &Bed, host: &str, port: u16) -> Result<SocketAddr, ErrorKind> {
    let address = SocketAddr::new(host.parse().unwrap(), port);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let call = bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(10))).unwrap();
    match call {
        Ok(_call) => Ok(listener.accept().unwrap().1),
        Err(error) => {
            listener.set_nonblocking(true).unwrap();
            assert!(listener.accept().is_err(), "somebody has called all the same");
            Err(error.kind())
        }
    }
}

fn refuses_what_the_network_cannot_carry(bed: &Bed) {
    let by = |peer: Result<SocketAddr, ErrorKind>| peer.unwrap().ip().to_string();
    assert_eq!(by(call(bed, SERVER_V4, 8_085)), "10.1.0.2");
    assert_eq!(call(bed, SERVER_V6, 8_085), Err(ErrorKind::PermissionDenied));
    assert_eq!(by(call(bed, SERVER_V4, 8_086)), "10.1.0.2");
    assert_eq!(by(call(bed, SERVER_V6, 8_086)), "2001:db8:1::2");
    // UDP as well.
    let ears = bed.server.run(|| UdpSocket::bind((SERVER_V6, 8_085))).unwrap().unwrap();
    ears.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mouth = bed.device.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
    drop(mouth.send_to(b"hello", (SERVER_V6, 8_085)));
    assert!(ears.recv(&mut [0; 8]).is_err(), "it was led out by another network");
}

pub fn what_is_held_to_a_network_does_not_leave_by_its_missing_family() {
    let bed = bed();
    give_second_network_ipv6(&bed);
    bed.write_config("device", RULES);
    let _daemon = started(&bed);
    eventually("IPv6 is led out", || call(&bed, SERVER_V6, 8_080).is_ok());
    refuses_what_the_network_cannot_carry(&bed);
}

pub fn it_does_not_go_over_the_bond_either() {
    let bed = bed();
    give_second_network_ipv6(&bed);
    bed.write_config("device", RULES);
    let _daemons = bed.connected();
    eventually("flows are followed", || listing(&bed.device).contains("anabranch_direct"));
    let bonded = || call(&bed, SERVER_V6, 8_080).map(|peer| peer.ip().to_string());
    eventually("IPv6 goes over the bond", || bonded().is_ok_and(|peer| peer == "2001:db8:9::1"));
    refuses_what_the_network_cannot_carry(&bed);
}
