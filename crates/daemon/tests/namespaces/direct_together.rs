//! All treatments on one machine at one time, and what chooses them.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use linux::cgroup::Hierarchy;
use policy::Treatment;
use socket2::SockRef;

use crate::bed::{Bed, Daemon, SERVER_V4, eventually};
use crate::direct::{bed, listing, network_of, started};
use crate::holding::Caller;
use crate::scenarios::working_paths;

const TREATMENTS: [(u16, Treatment); 4] = [
    (8_331, Treatment::Direct),
    (8_332, Treatment::Bonded),
    (8_333, Treatment::Duplicated),
    (8_334, Treatment::Protected),
];

/// A device with a gateway, where direct flows reach the server too.
fn with_gateway(rules: &str) -> (Bed, (Daemon, Daemon)) {
    let bed = bed();
    bed.write_config("device", &format!("[device]\ndns = \"off\"\nprobe = \"off\"\n{rules}"));
    let daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    eventually("flows are followed", || listing(&bed.device).contains("anabranch_direct"));
    (bed, daemons)
}

pub fn four_treatments_at_once() {
    let rule =
        |(port, treatment): (u16, Treatment)| format!("[[rule]]\nport = {port}\ntreat = \"{treatment}\"\n");
    let (bed, _daemons) = with_gateway(&TREATMENTS.map(rule).concat());
    let mut open: Vec<_> = TREATMENTS
        .iter()
        .map(|(port, treatment)| {
            let address = SocketAddr::new(SERVER_V4.parse().unwrap(), *port);
            let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
            let call =
                bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(10))).unwrap();
            let (answer, peer) = listener.accept().unwrap();
            (address, *treatment, call.unwrap(), answer, peer.ip())
        })
        .collect();
    // All at the same time.
    for round in 0..20_u8 {
        for (_, _, call, answer, _) in &mut open {
            call.write_all(&[round; 10_000]).unwrap();
            answer.write_all(&[round; 10_000]).unwrap();
        }
        for (address, _, call, answer, _) in &mut open {
            for end in [call, answer] {
                end.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
                let mut got = [0; 10_000];
                end.read_exact(&mut got).unwrap();
                assert_eq!(got, [round; 10_000], "{address}");
            }
        }
    }
    let flows = bed.client("device").flows().unwrap().flows;
    let gateway: IpAddr = "198.51.100.1".parse().unwrap();
    for (address, treatment, _, _, peer) in &open {
        let flow = flows.iter().find(|flow| flow.destination == *address);
        let flow = flow.unwrap_or_else(|| panic!("{address}: {flows:#?}"));
        let is_direct = *treatment == Treatment::Direct;
        assert_eq!(flow.treatment, *treatment, "{flow:#?}");
        assert_eq!(flow.network.is_some(), is_direct, "{flow:#?}");
        assert!(flow.why.contains("rule"), "{flow:#?}");
        assert_eq!(*peer == gateway, !is_direct, "{treatment}: the server sees {peer}");
    }
}

/// Who does not control the daemon has a program's packets sent twice.
pub fn anybody_may_have_a_program_duplicated() {
    const LENGTH: usize = 1_000_000;
    if Hierarchy::find().is_err() {
        println!("skipped: no control groups of version 2 here");
        return;
    }
    let (bed, _daemons) = with_gateway("");
    let carried = || -> Vec<u64> {
        let networks = bed.status().networks;
        networks.iter().flat_map(|network| &network.paths).map(|path| path.traffic.sent.0).collect()
    };
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_335);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let before = carried();
    let mut caller = Caller::start(&bed, ["treat", "duplicated", &address.to_string()]);
    let (mut answer, _) = listener.accept().unwrap();
    answer.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    answer.read_exact(&mut vec![0; LENGTH]).unwrap();
    assert!(caller.line().starts_with('/'), "the group that it is in");
    let flows = bed.client("device").flows().unwrap().flows;
    let flow = flows.iter().find(|flow| flow.destination == address).unwrap();
    assert_eq!(flow.treatment, Treatment::Duplicated, "{flow:#?}");
    assert!(flow.user.is_some_and(|user| user != 0) && flow.why.contains("rule run-"), "{flow:#?}");
    caller.end();
    let sent: Vec<u64> = carried().iter().zip(before).map(|(after, before)| after - before).collect();
    assert!(sent.len() == 2 && sent.iter().all(|bytes| *bytes > LENGTH as u64 * 8 / 10), "{sent:?}");
}

/// A rule by code point is for packets that carry it, TCP and UDP.
pub fn a_rule_by_code_point_acts_on_marked_packets() {
    const EXPEDITED: u32 = 46 << 2;
    let bed = bed();
    bed.write_config(
        "device",
        "[device]\ndns = \"off\"\nprobe = \"off\"\n[[rule]]\ndscp = \"ef\"\nnetworks = \"wan1\"\n",
    );
    let _daemon = started(&bed);
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_336);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let ears = bed.server.run(|| UdpSocket::bind(address)).unwrap().unwrap();
    ears.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let by_tcp = |tos: u32| {
        let call = bed.device.run(|| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            socket.set_tos_v4(tos).unwrap();
            socket.connect_timeout(&address.into(), Duration::from_secs(10)).unwrap();
            socket
        });
        let octet = network_of(listener.accept().unwrap().1);
        drop(call);
        octet
    };
    let by_udp = |tos: u32| {
        let socket = bed.device.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
        SockRef::from(&socket).set_tos_v4(tos).unwrap();
        socket.send_to(b"hello", address).unwrap();
        network_of(ears.recv_from(&mut [0; 8]).unwrap().1)
    };
    let both = |way: &dyn Fn(u32) -> u8, tos: u32| -> std::collections::BTreeSet<u8> {
        (0..6).map(|_| way(tos)).collect()
    };
    for way in [&by_tcp as &dyn Fn(u32) -> u8, &by_udp] {
        assert_eq!(both(way, EXPEDITED), [1].into(), "marked");
        assert_eq!(both(way, 0), [0, 1].into(), "not marked");
    }
}
