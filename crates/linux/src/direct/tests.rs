//! Direct mode in a real kernel: two networks with the same subnet, next hop and lease, and a server that tells who called.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use proptest::prelude::*;
use socket2::{Domain, SockRef, Socket, Type};

use super::*;
use crate::bpf::RealTimeMarks;
use crate::journal::Journal;
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::routing::Routing;
use crate::test_namespace::may_test;
use crate::tun::Tun;

const SERVER: &str = "203.0.113.9:80";
const SERVER_V6: &str = "[2001:db8:9::9]:80";
const OWN_MARK: u32 = 0x77;

/// A device with two twin networks, their routers, a server behind both, and a host on the device's LAN.
struct Bed {
    device: Namespace,
    routers: [Namespace; 2],
    server: Namespace,
    inside: Namespace,
    state: PathBuf,
    tun: Option<Tun>,
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.state));
    }
}

fn bed(name: &str) -> Bed {
    let space = || Namespace::anonymous().unwrap();
    let bed = Bed {
        device: space(),
        routers: [space(), space()],
        server: space(),
        inside: space(),
        state: std::env::temp_dir().join(format!("ab-{}-direct-{name}", std::process::id())),
        tun: None,
    };
    std::fs::create_dir_all(&bed.state).unwrap();
    let address = |space: &Namespace, interface: &str, text: &str| {
        space.add_address(interface, text.parse().unwrap()).unwrap();
    };
    let route = |space: &Namespace, interface: &str, to: &str, via: &str, metric| {
        space.add_route(interface, to.parse().unwrap(), Some(via.parse().unwrap()), metric).unwrap();
    };
    for (at, router) in bed.routers.iter().enumerate() {
        let (uplink, wan) = (format!("net{at}"), format!("wan{at}"));
        bed.device.join(router, &uplink, "lan").unwrap();
        router.join(&bed.server, "wan", &wan).unwrap();
        address(&bed.device, &uplink, "192.168.1.50/24");
        address(&bed.device, &uplink, "fd01::50/64");
        address(router, "lan", "192.168.1.1/24");
        address(router, "lan", "fd01::1/64");
        address(router, "wan", &format!("198.51.{at}.2/24"));
        address(router, "wan", &format!("2001:db8:{at}::2/64"));
        address(&bed.server, &wan, &format!("198.51.{at}.1/24"));
        address(&bed.server, &wan, &format!("2001:db8:{at}::1/64"));
        route(router, "wan", "0.0.0.0/0", &format!("198.51.{at}.1"), None);
        route(router, "wan", "::/0", &format!("2001:db8:{at}::1"), None);
        route(&bed.device, &uplink, "0.0.0.0/0", "192.168.1.1", Some(100 + at as u32));
        route(&bed.device, &uplink, "::/0", "fd01::1", Some(100 + at as u32));
        router.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
        router.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
        router
            .run(|| nft::load("table inet nat {\n chain post {\n type nat hook postrouting priority srcnat;\n oifname \"wan\" masquerade\n }\n}\n"))
            .unwrap()
            .unwrap();
    }
    bed.device.join(&bed.inside, "lan", "up").unwrap();
    address(&bed.device, "lan", "10.20.0.1/24");
    address(&bed.inside, "up", "10.20.0.7/24");
    route(&bed.inside, "up", "0.0.0.0/0", "10.20.0.1", None);
    bed.device.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    address(&bed.server, "lo", "203.0.113.9/32");
    address(&bed.server, "lo", "2001:db8:9::9/128");
    bed
}

fn direct(bed: &Bed) -> Direct {
    let index = |name: &str| bed.device.run(|| index_of(name)).unwrap();
    let exit = |at: u8| Exit {
        number: at + 1,
        interface: format!("net{at}"),
        index: Some(index(&format!("net{at}"))),
        subnets: vec!["192.168.1.50/24".parse().unwrap(), "fd01::50/64".parse().unwrap()],
        v4: Some(NextHop { gateway: Some("192.168.1.1".parse().unwrap()) }),
        v6: Some(NextHop { gateway: Some("fd01::1".parse().unwrap()) }),
        mtu: 1_500,
        translation: None,
    };
    Direct {
        interface: "any0".to_owned(),
        addresses: vec!["10.99.0.1".parse().unwrap(), "fd99::1".parse().unwrap()],
        own_mark: OWN_MARK,
        table: 7_800,
        near: Vec::new(),
        neighbourly: Vec::new(),
        forwarding: true,
        ecn: false,
        exits: vec![exit(0), exit(1)],
        real_time: RealTime::default(),
        choices: vec![dealt(&[1, 2], &[1, 2])],
        rules: Vec::new(),
        otherwise: Outcome::Leave(0),
    }
}

fn dealt(v4: &[u8], v6: &[u8]) -> Choice {
    Choice { v4: v4.to_vec(), v6: v6.to_vec(), best: Best::default() }
}

fn index_of(name: &str) -> u32 {
    let links = Netlink::open().unwrap().links().unwrap();
    links.iter().find(|link| link.name == name).unwrap().index
}

impl Bed {
    fn start(&mut self, direct: &Direct) -> Journal {
        self.start_with(direct, false)
    }

    fn start_with(&mut self, direct: &Direct, kill_switch: bool) -> Journal {
        let addresses =
            [IpPrefix::host("10.99.0.1".parse().unwrap()), IpPrefix::host("fd99::1".parse().unwrap())];
        let tun = self.device.run(|| Tun::create("any0", 1_400, &addresses)).unwrap().unwrap();
        let routing = Routing {
            interface: "any0".to_owned(),
            interface_index: tun.index(),
            mark: OWN_MARK,
            table: 7_700,
            ipv4: true,
            ipv6: true,
            kill_switch,
        };
        self.tun = Some(tun);
        let mut journal = Journal::open(&self.state).unwrap();
        self.device
            .run(|| {
                journal.apply(&routing.plan()).unwrap();
                journal.apply(&direct.plan(0).unwrap()).unwrap();
                sync_routes(direct).unwrap();
            })
            .unwrap();
        journal
    }

    /// By which network the first datagrams of `count` flows from `from` with this traffic class octet reached the server.
    fn datagrams(&self, from: &Namespace, server: &str, octet: u32, count: usize) -> BTreeMap<u8, usize> {
        let server: SocketAddr = server.parse().unwrap();
        let ears = self.server.run(|| UdpSocket::bind(server)).unwrap().unwrap();
        ears.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        let mut seen = BTreeMap::new();
        for _ in 0..count {
            let open = || Socket::new(Domain::for_address(server), Type::DGRAM, None).unwrap();
            let mouth = from.run(open).unwrap();
            if server.is_ipv4() { mouth.set_tos_v4(octet) } else { mouth.set_tclass_v6(octet) }.unwrap();
            mouth.send_to(b"hello", &server.into()).unwrap();
            let (_, peer) = ears.recv_from(&mut [0; 8]).unwrap();
            *seen.entry(router_of(peer)).or_default() += 1;
        }
        seen
    }

    /// By which network each of `count` connections from `from` reached the server: number of calls by the network's number.
    fn calls(&self, from: &Namespace, server: &str, count: usize) -> BTreeMap<u8, usize> {
        let listener = self.server.run(|| TcpListener::bind(server)).unwrap().unwrap();
        let mut seen = BTreeMap::new();
        for _ in 0..count {
            let call = from.run(|| connect(server)).unwrap();
            let Some(mut call) = call else { continue };
            let (mut answer, peer) = listener.accept().unwrap();
            call.write_all(b"ping").unwrap();
            let mut text = [0; 4];
            answer.read_exact(&mut text).unwrap();
            answer.write_all(b"pong").unwrap();
            call.read_exact(&mut text).unwrap();
            *seen.entry(router_of(peer)).or_default() += 1;
        }
        seen
    }
}

fn connect(server: &str) -> Option<TcpStream> {
    let call = TcpStream::connect_timeout(&server.parse().unwrap(), Duration::from_millis(1_500)).ok()?;
    call.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    Some(call)
}

fn router_of(peer: SocketAddr) -> u8 {
    match peer.ip() {
        IpAddr::V4(address) => address.octets()[2] + 1,
        IpAddr::V6(address) => address.segments()[2] as u8 + 1,
    }
}

#[test]
fn tables_that_follow_each_other_begin_with_other_slots() {
    let slots = |turn| {
        let text = super::script::deal(&[7, 8, 9], turn);
        let order = text.split("leave_").skip(1).map(|rest| rest.chars().next().unwrap());
        order.collect::<String>()
    };
    assert_eq!([0, 1, 2, 3].map(slots), ["789", "897", "978", "789"]);
}

#[test]
fn new_flows_are_dealt_out_over_twin_networks_and_all_is_taken_back() {
    if !may_test() {
        return;
    }
    let mut bed = bed("twins");
    let mut direct = direct(&bed);
    let snapshot = |bed: &Bed| {
        let list = |arguments: &[&str]| {
            let (program, arguments) = arguments.split_first().unwrap();
            let output = bed.device.command(program).unwrap().args(arguments).output().unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let all = list(&["ip", "rule"])
            + &list(&["ip", "-6", "rule"])
            + &list(&["ip", "route", "show", "table", "all"])
            + &list(&["nft", "list", "ruleset"]);
        // Link-local routes appear when the kernel has checked its addresses, at a time of its own.
        let lasting = all.lines().filter(|line| !line.contains("fe80:") && !line.contains("ff00::/8"));
        lasting.collect::<Vec<_>>().join("\n")
    };
    let before = snapshot(&bed);
    let mut journal = bed.start(&direct);
    assert_eq!(bed.calls(&bed.device, SERVER, 6), [(1, 3), (2, 3)].into());
    assert_eq!(bed.calls(&bed.device, SERVER_V6, 6), [(1, 3), (2, 3)].into());
    assert_eq!(bed.calls(&bed.inside, SERVER, 4), [(1, 2), (2, 2)].into(), "of a host behind the device");

    // A living flow keeps its network when shares change.
    let listener = bed.server.run(|| TcpListener::bind("203.0.113.9:81")).unwrap().unwrap();
    let mut living: Vec<(TcpStream, TcpStream)> = Vec::new();
    for _ in 0..2 {
        let call = bed.device.run(|| connect("203.0.113.9:81").unwrap()).unwrap();
        living.push((call, listener.accept().unwrap().0));
    }
    direct.choices[0].v4 = vec![2];
    bed.device.run(|| direct.reload(0).unwrap()).unwrap();
    for (call, answer) in &mut living {
        call.write_all(b"still here").unwrap();
        answer.read_exact(&mut [0; 10]).unwrap();
    }
    assert_eq!(bed.calls(&bed.device, SERVER, 4), [(2, 4)].into());

    // A network that goes: what was given to it is refused, the rest goes on.
    direct.exits[1].index = None;
    direct.choices[0].v4 = vec![1];
    bed.device
        .run(|| {
            journal.apply(&direct.plan(0).unwrap()).unwrap();
            sync_routes(&direct).unwrap();
        })
        .unwrap();
    assert_eq!(bed.calls(&bed.device, SERVER, 2), [(1, 2)].into());

    bed.device.run(|| journal.restore().unwrap()).unwrap();
    bed.tun = None;
    drop(living);
    assert_eq!(snapshot(&bed), before);
}

#[test]
fn rules_choose_by_destination_port_and_user() {
    if !may_test() {
        return;
    }
    let mut bed = bed("rules");
    let mut direct = direct(&bed);
    direct.choices.extend([1, 2].map(|only| dealt(&[only], &[only])));
    let rule = |matching, outcome| FlowRule { matching, outcome };
    let to = |text: &str| Some(vec![text.parse().unwrap()]);
    direct.rules = vec![
        rule(
            FlowMatch { ports: Some((8_000, 8_099)), protocol: Some(6), ..FlowMatch::default() },
            Outcome::Leave(2),
        ),
        rule(FlowMatch { destinations: to("203.0.113.0/24"), ..FlowMatch::default() }, Outcome::Leave(1)),
        rule(
            FlowMatch { destinations: to("2001:db8:9::/48"), user: Some(0), ..FlowMatch::default() },
            Outcome::Leave(2),
        ),
        rule(FlowMatch { user: Some(0), dscp: Some(46), ..FlowMatch::default() }, Outcome::Refuse),
    ];
    bed.start(&direct);
    assert_eq!(bed.calls(&bed.device, SERVER, 3), [(1, 3)].into());
    assert_eq!(bed.calls(&bed.device, "203.0.113.9:8080", 3), [(2, 3)].into());
    assert_eq!(bed.calls(&bed.device, SERVER_V6, 3), [(2, 3)].into());
    direct.rules[1].outcome = Outcome::Refuse;
    bed.device.run(|| direct.reload(0).unwrap()).unwrap();
    assert_eq!(bed.calls(&bed.device, SERVER, 1), BTreeMap::new());
    // The network has no IPv6: what is held to it must not go elsewhere, and must fail at once.
    direct.choices[1].v6.clear();
    direct.rules = vec![rule(FlowMatch::default(), Outcome::LeaveOrRefuse(1))];
    bed.device.run(|| direct.reload(0).unwrap()).unwrap();
    assert_eq!(bed.calls(&bed.device, SERVER, 3), [(1, 3)].into());
    let address = SERVER_V6.parse().unwrap();
    let refused = bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5))).unwrap();
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
}

#[test]
fn real_time_flows_take_the_best_network_and_others_turns() {
    if !may_test() {
        return;
    }
    const EF: u32 = 46 << 2;
    let mut bed = bed("best");
    let mut direct = direct(&bed);
    direct.real_time = RealTime {
        code_points: vec![34, 46],
        services: vec![
            ("203.0.113.9".parse().unwrap(), 17, 3_478),
            ("2001:db8:9::9".parse().unwrap(), 17, 3_478),
        ],
    };
    direct.choices[0].best = Best { v4: Some(2), v6: Some(1) };
    bed.start(&direct);
    // The kernel's own packets may take a turn now and then.
    let by_turns = |from: &Namespace, server: &str, octet| {
        let seen = bed.datagrams(from, server, octet, 10);
        assert!(seen.len() == 2 && seen.values().all(|count| *count >= 3), "{server}, {octet}: {seen:?}");
    };
    for (server, best) in [(SERVER, 2), (SERVER_V6, 1)] {
        assert_eq!(bed.datagrams(&bed.device, server, EF, 10), [(best, 10)].into(), "{server}");
        assert_eq!(bed.datagrams(&bed.device, server, 34 << 2 | 1, 4), [(best, 4)].into(), "with ECN");
        by_turns(&bed.device, server, 0);
        by_turns(&bed.device, server, 10 << 2);
        let known = server.replace(":80", ":3478");
        assert_eq!(bed.datagrams(&bed.device, &known, 0, 10), [(best, 10)].into(), "{known}");
    }
    assert_eq!(bed.datagrams(&bed.inside, SERVER, EF, 6), [(2, 6)].into(), "of a host behind the device");
    by_turns(&bed.inside, SERVER, 0);

    // Flows that run stay when another network is the best.
    let ears = bed.server.run(|| UdpSocket::bind("203.0.113.9:81")).unwrap().unwrap();
    let mouth = bed.device.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    SockRef::from(&mouth).set_tos_v4(EF).unwrap();
    let heard_by = || {
        mouth.send_to(b"hello", "203.0.113.9:81").unwrap();
        router_of(ears.recv_from(&mut [0; 8]).unwrap().1)
    };
    assert_eq!(heard_by(), 2);
    direct.choices[0].best = Best { v4: Some(1), v6: None };
    bed.device.run(|| direct.reload(0).unwrap()).unwrap();
    assert_eq!(heard_by(), 2);
    assert_eq!(bed.datagrams(&bed.device, SERVER, EF, 4), [(1, 4)].into());
    by_turns(&bed.device, SERVER_V6, EF);
}

#[test]
fn what_stays_on_any0_is_told_by_its_conntrack_mark_only() {
    if !may_test() {
        return;
    }
    let mut bed = bed("stay");
    let mut direct = direct(&bed);
    direct.otherwise = Outcome::Stay(Stay::Duplicated);
    bed.start(&direct);
    let socket = bed.device.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    socket.send_to(b"stay here", "203.0.113.9:9").unwrap();
    let mut seen = false;
    let tun = bed.tun.as_mut().unwrap();
    for _ in 0..10 {
        drop(tun.read_packets(&mut |packet| seen |= packet.ends_with(b"stay here")));
    }
    assert!(seen);
    assert_eq!(Stay::of_mark(0x0200_0000), Stay::Duplicated);
}

#[test]
fn who_calls_from_outside_is_answered_by_the_same_network() {
    if !may_test() {
        return;
    }
    let mut bed = bed("inbound");
    let direct = direct(&bed);
    bed.start(&direct);
    for (at, router) in bed.routers.iter().enumerate() {
        // From beyond the subnet, so that only the default routes lead back.
        router.add_address("lo", format!("192.0.2.{at}/32").parse().unwrap()).unwrap();
        let service = bed.device.run(|| TcpListener::bind("192.168.1.50:2222")).unwrap().unwrap();
        let source = format!("192.0.2.{at}:0");
        let mut call = router
            .run(|| {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
                socket.bind(&source.parse::<SocketAddr>().unwrap().into()).unwrap();
                let device: SocketAddr = "192.168.1.50:2222".parse().unwrap();
                socket.connect_timeout(&device.into(), Duration::from_secs(2)).unwrap();
                TcpStream::from(socket)
            })
            .unwrap();
        let (mut answer, _) = service.accept().unwrap();
        answer.write_all(b"hello").unwrap();
        call.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
        call.read_exact(&mut [0; 5]).unwrap();
    }
}

/// The kernel may see a packet of the gateway before one of the device's own: then the bond's flow looks like a call from outside.
#[test]
fn the_bond_answers_with_its_mark_whoever_was_seen_first() {
    if !may_test() {
        return;
    }
    let mut bed = bed("own-mark");
    let direct = direct(&bed);
    bed.start_with(&direct, true);
    let bound = |space: &Namespace, address: &str| {
        let socket = space.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        socket
    };
    let (own, gateway) =
        (bound(&bed.device, "192.168.1.50:4600"), bound(&bed.routers[0], "192.168.1.1:4600"));
    SockRef::from(&own).set_mark(OWN_MARK).unwrap();
    gateway.send_to(b"seen first", "192.168.1.50:4600").unwrap();
    let mut text = [0; 32];
    let (_, from) = own.recv_from(&mut text).unwrap();
    own.send_to(b"still marked", from).unwrap();
    let (length, _) = gateway.recv_from(&mut text).unwrap();
    assert_eq!(&text[..length], b"still marked");
}

#[test]
fn a_route_that_says_more_takes_the_place_of_the_old_one() {
    if !may_test() {
        return;
    }
    let mut bed = bed("ecn");
    let mut direct = direct(&bed);
    let _journal = bed.start(&direct);
    for ecn in [false, true, true, false] {
        direct.ecn = ecn;
        let routes = bed.device.run(|| {
            sync_routes(&direct).unwrap();
            Netlink::open().unwrap().routes().unwrap()
        });
        let out: Vec<bool> = routes
            .unwrap()
            .into_iter()
            .filter(|route| (7_801..=7_802).contains(&route.table) && route.gateway.is_some())
            .map(|route| route.ecn)
            .collect();
        assert_eq!(out, [ecn; 4], "two networks, two families");
    }
}

#[test]
fn hostile_values_are_refused() {
    let good = Direct {
        interface: "any0".to_owned(),
        addresses: Vec::new(),
        own_mark: OWN_MARK,
        table: 1,
        near: Vec::new(),
        neighbourly: Vec::new(),
        forwarding: false,
        ecn: false,
        exits: vec![Exit {
            number: 1,
            interface: "eth0".to_owned(),
            index: Some(1),
            subnets: Vec::new(),
            v4: None,
            v6: None,
            mtu: 1_500,
            translation: None,
        }],
        real_time: RealTime::default(),
        choices: vec![dealt(&[1], &[])],
        rules: Vec::new(),
        otherwise: Outcome::Leave(0),
    };
    good.check().unwrap();
    let bad = |change: &dyn Fn(&mut Direct)| {
        let mut copy = good.clone();
        change(&mut copy);
        assert!(copy.check().is_err(), "{copy:?}");
    };
    bad(&|direct| direct.exits[0].interface = "a\"; drop".to_owned());
    bad(&|direct| direct.exits[0].number = 0);
    bad(&|direct| direct.exits[0].number = 65);
    bad(&|direct| direct.exits.push(direct.exits[0].clone()));
    bad(&|direct| direct.choices[0].v4 = vec![2]);
    bad(&|direct| direct.choices[0].best.v6 = Some(2));
    bad(&|direct| direct.real_time.code_points.push(64));
    bad(&|direct| direct.real_time.services = vec![([192, 0, 2, 1].into(), 17, 9); MAXIMUM_DESTINATIONS + 1]);
    bad(&|direct| direct.otherwise = Outcome::Leave(1));
    for path in ["", "a", "/a//b", "/../x", "/a/\"b", "/a\n"] {
        bad(&|direct| {
            let cgroup = Some(path.to_owned());
            direct.rules.push(FlowRule {
                matching: FlowMatch { cgroup, ..FlowMatch::default() },
                outcome: Outcome::Refuse,
            });
        });
    }
}

#[test]
fn connections_that_no_rule_can_concern_need_no_look_at_rules() {
    let prefix = |text: &str| text.parse::<IpPrefix>().unwrap();
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut direct = Direct {
        interface: "any0".to_owned(),
        addresses: Vec::new(),
        own_mark: OWN_MARK,
        table: 1,
        near: vec![prefix("192.168.1.50/24")],
        neighbourly: Vec::new(),
        forwarding: false,
        ecn: false,
        exits: Vec::new(),
        real_time: RealTime::default(),
        choices: vec![dealt(&[1], &[]), dealt(&[2], &[])],
        rules: Vec::new(),
        otherwise: Outcome::Leave(0),
    };
    let with =
        |direct: &mut Direct, matching| direct.rules.push(FlowRule { matching, outcome: Outcome::Leave(1) });
    with(&mut direct, FlowMatch { ports: Some((53, 53)), protocol: Some(17), ..FlowMatch::default() });
    let destinations = Some(vec![prefix("203.0.113.9/24")]);
    with(&mut direct, FlowMatch { destinations, user: Some(7), ..FlowMatch::default() });
    let services = Some(vec![(address("2001:db8::1"), 6, 443)]);
    with(&mut direct, FlowMatch { services, ..FlowMatch::default() });
    direct.choices[0].best.v4 = Some(2);
    direct.real_time = RealTime {
        code_points: vec![46],
        services: vec![(address("192.0.2.1"), 17, 3_478), (address("192.0.2.2"), 6, 443)],
    };
    let unruled = direct.unruled();
    assert_eq!((unruled.v4, unruled.v6), (vec![mark_of(1)], vec![]));
    let real_time = RealTimeMarks { code_points: vec![46], v4: mark_of(2), v6: 0 };
    assert_eq!(unruled.real_time, real_time);
    let own = ["192.0.2.2/32", "192.168.1.0/24", "203.0.113.0/24", "2001:db8::1/128"].map(prefix);
    assert_eq!(unruled.excluded, own);

    let ruled = |direct: &Direct| direct.unruled() == Unruled::default();
    let mut other = direct.clone();
    with(&mut other, FlowMatch { ports: Some((80, 80)), ..FlowMatch::default() });
    assert!(ruled(&other), "TCP to any destination");
    let mut other = direct.clone();
    let many = (0..2_000_u16).map(|at| IpPrefix::host([10, 9, (at >> 8) as u8, at as u8].into()));
    with(&mut other, FlowMatch { destinations: Some(many.collect()), ..FlowMatch::default() });
    assert!(ruled(&other), "more than the kernel's map takes");
    direct.otherwise = Outcome::Stay(Stay::Default);
    assert!(ruled(&direct), "flows stay");
}

proptest! {
    #[test]
    fn marks_come_back(number in 1..=MAXIMUM_EXITS, other: u32) {
        prop_assert_eq!(network_of(other & !NETWORK_MASK | mark_of(number)), Some(number));
        prop_assert_eq!(network_of(other & !NETWORK_MASK), None);
    }
}
