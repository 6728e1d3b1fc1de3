use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use proptest::prelude::*;
use socket2::SockRef;
use units::Bytes;

use super::*;
use crate::netns::Namespace;
use crate::test_namespace::{joined_pair, may_test};

fn key(protocol: Protocol, local: SocketAddr, remote: SocketAddr) -> FlowKey {
    FlowKey { protocol, local, remote, interface: None }
}

fn inode(socket: &impl std::os::fd::AsRawFd) -> u32 {
    std::fs::metadata(format!("/proc/self/fd/{}", socket.as_raw_fd())).unwrap().ino() as u32
}

fn connected_tcp(left: &Namespace, right: &Namespace, address: &str) -> (TcpStream, TcpStream, TcpListener) {
    let listener = right.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let client = left.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server, listener)
}

#[test]
fn a_tcp_connection_shows_owner_mark_and_measurements() {
    if !may_test() {
        return;
    }
    let (left, right) = joined_pair();
    for address in ["10.77.0.2:80", "[fd77::2]:80"] {
        let (mut client, mut server, _listener) = connected_tcp(&left, &right, address);
        SockRef::from(&client).set_mark(0x107).unwrap();
        client.write_all(&[1; 5000]).unwrap();
        server.read_exact(&mut [0; 5000]).unwrap();
        server.write_all(&[2; 700]).unwrap();
        client.read_exact(&mut [0; 700]).unwrap();
        std::thread::sleep(Duration::from_millis(100));

        let flow = key(Protocol::Tcp, client.local_addr().unwrap(), client.peer_addr().unwrap());
        let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
        let found = diagnostics.find(&flow).unwrap().unwrap();
        assert!(found.is_connected_to(&flow));
        assert_eq!(found.state, SocketState::Established);
        assert_eq!((found.mark, found.inode, found.user), (Some(0x107), inode(&client), 0));
        let tcp = found.tcp.unwrap();
        assert_eq!(tcp.bytes_received, Some(Bytes(700)));
        // The SYN counts as one byte in older kernels.
        assert!((5000..=5001).contains(&tcp.bytes_acknowledged.unwrap().0), "{tcp:?}");
        assert!(tcp.rtt > Duration::ZERO && tcp.rtt < Duration::from_secs(5), "{tcp:?}");
        assert!(tcp.min_rtt.is_some() && tcp.delivery_rate.is_some() && tcp.congestion_window > 0);

        let marked = |mark| {
            let filter = Some(MarkFilter { mark, mask: 0xff });
            let selection = Selection { mark: filter, ..Selection::connected(Protocol::Tcp) };
            let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
            let mut sockets = Vec::new();
            diagnostics.for_each(selection, |found| sockets.push(*found)).unwrap();
            sockets
        };
        assert_eq!(marked(7).iter().map(|found| found.inode).collect::<Vec<_>>(), [inode(&client)]);
        assert!(marked(8).is_empty());
    }
}

#[test]
fn a_destroyed_connection_fails_at_once_and_others_live() {
    if !may_test() {
        return;
    }
    let (left, right) = joined_pair();
    let (mut first, _server, _listener) = connected_tcp(&left, &right, "10.77.0.2:80");
    let (mut second, _server, _listener) = connected_tcp(&left, &right, "10.77.0.2:81");
    let flow = key(Protocol::Tcp, first.local_addr().unwrap(), first.peer_addr().unwrap());
    let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
    match diagnostics.destroy(&flow) {
        Err(error) if error.errno() == libc::EOPNOTSUPP => {
            eprintln!("skipped: this kernel cannot end sockets: {error}");
            return;
        }
        outcome => assert!(outcome.unwrap()),
    }
    assert_eq!(first.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
    assert!(!diagnostics.destroy(&flow).unwrap(), "ended twice");
    second.write_all(&[1]).unwrap();
    assert_eq!(diagnostics.destroy_all(Selection::connected(Protocol::Tcp)).unwrap(), 1);
    assert_eq!(second.read(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn udp_sockets_are_found_but_only_connected_ones_are_ended() {
    if !may_test() {
        return;
    }
    let (left, _right) = joined_pair();
    let bind = || UdpSocket::bind("10.77.0.1:4000");
    let connected = left.run(bind).unwrap().unwrap();
    left.run(|| connected.connect("10.77.0.2:53")).unwrap().unwrap();
    let open = left.run(|| UdpSocket::bind("0.0.0.0:4001")).unwrap().unwrap();
    let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
    let flow = |port: u16| {
        key(Protocol::Udp, SocketAddr::new([10, 77, 0, 1].into(), port), "10.77.0.2:53".parse().unwrap())
    };
    let found = diagnostics.find(&flow(4000)).unwrap().unwrap();
    assert_eq!((found.inode, found.is_connected_to(&flow(4000))), (inode(&connected), true));
    let found = diagnostics.find(&flow(4001)).unwrap().unwrap();
    assert_eq!((found.inode, found.is_connected_to(&flow(4001))), (inode(&open), false));
    assert_eq!(diagnostics.find(&flow(4002)).unwrap(), None);

    assert!(!diagnostics.destroy(&flow(4001)).unwrap(), "an unconnected socket serves others too");
    assert!(diagnostics.destroy(&flow(4000)).unwrap());
    assert_eq!(connected.recv(&mut [0; 10]).unwrap_err().kind(), ErrorKind::ConnectionAborted);
}

#[test]
fn sockets_show_the_class_of_their_packets() {
    if !may_test() {
        return;
    }
    let (left, right) = joined_pair();
    for (address, classes) in [("10.77.0.2:80", (Some(184), None)), ("[fd77::2]:80", (Some(0), Some(136)))] {
        let (client, _server, _listener) = connected_tcp(&left, &right, address);
        let socket = SockRef::from(&client);
        if address.starts_with('[') { socket.set_tclass_v6(136) } else { socket.set_tos_v4(184) }.unwrap();
        let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
        let mut found = Vec::new();
        let connected = Selection::connected(Protocol::Tcp);
        diagnostics.for_each(connected, |socket| found.push((socket.class_v4, socket.class_v6))).unwrap();
        assert_eq!(found, [classes]);
    }
    let mouth = left.run(|| UdpSocket::bind("0.0.0.0:4003")).unwrap().unwrap();
    SockRef::from(&mouth).set_tos_v4(46 << 2).unwrap();
    let flow = key(Protocol::Udp, "10.77.0.1:4003".parse().unwrap(), "10.77.0.2:53".parse().unwrap());
    let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
    assert_eq!(diagnostics.find(&flow).unwrap().unwrap().class_v4, Some(46 << 2));
}

#[test]
fn a_socket_bound_to_an_interface_is_found_with_the_interface_only() {
    if !may_test() {
        return;
    }
    let (left, _right) = joined_pair();
    let socket = left.run(|| UdpSocket::bind("10.77.0.1:4000")).unwrap().unwrap();
    SockRef::from(&socket).bind_device(Some(b"cable")).unwrap();
    left.run(|| socket.connect("10.77.0.2:53")).unwrap().unwrap();
    let index = left.run(|| crate::netlink::Netlink::open().unwrap().link("cable").unwrap().unwrap().index);
    let mut diagnostics = left.run(SocketDiagnostics::open).unwrap().unwrap();
    let unbound = key(Protocol::Udp, "10.77.0.1:4000".parse().unwrap(), "10.77.0.2:53".parse().unwrap());
    let bound = FlowKey { interface: Some(index.unwrap()), ..unbound };
    assert_eq!(diagnostics.find(&unbound).unwrap(), None);
    assert_eq!(diagnostics.find(&bound).unwrap().unwrap().interface, bound.interface);
    let selection = Selection { interface: bound.interface, ..Selection::connected(Protocol::Udp) };
    assert_eq!(diagnostics.destroy_all(selection).unwrap(), 1);
}

proptest! {
    #[test]
    fn random_answers_never_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), v6: bool) {
        if let Some(first) = bytes.first_mut() {
            *first = if v6 { libc::AF_INET6 as u8 } else { libc::AF_INET as u8 };
        }
        let whole = bytes.len() >= record::ANSWER_LENGTH;
        prop_assert_eq!(SocketInfo::parse(&bytes, Protocol::Tcp).is_some(), whole);
    }
}
