//! Direct mode: no gateway, every flow by one network.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch::control::EventSequence;
use linux::direct::{NETWORK_MASK, TREATMENT_MASK};
use linux::netlink::conntrack::Conntrack;
use linux::netns::Namespace;

use crate::bed::{Bed, Daemon, SERVER_V4, SERVER_V6, eventually};

/// The addresses of any0.
const ANY0: [&str; 2] = ["10.255.86.1", "fdab:51ab:51ab::1"];

/// A device without a gateway; what is the gateway elsewhere only routes here.
pub fn bed() -> Bed {
    let bed = Bed::new(false);
    bed.gateway.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    let back = "198.51.100.1".parse().unwrap();
    bed.server.add_route("lan", "10.1.0.0/16".parse().unwrap(), Some(back), None).unwrap();
    bed
}

pub fn started(bed: &Bed) -> Daemon {
    let daemon = bed.start("device");
    bed.wait_until_up();
    eventually("new flows are led out", || listing(&bed.device).contains("numgen inc"));
    daemon
}

/// All that direct mode could leave behind.
pub fn listing(space: &Namespace) -> String {
    let list = |arguments: &[&str]| {
        let (program, arguments) = arguments.split_first().unwrap();
        let output = space.command(program).unwrap().args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let all = list(&["nft", "list", "ruleset"])
        + &list(&["ip", "rule"])
        + &list(&["ip", "-6", "rule"])
        + &list(&["ip", "route", "show", "table", "all"]);
    // The kernel adds link-local routes once it has checked its addresses, at a time of its own.
    let lasting = all.lines().filter(|line| !line.contains("fe80:") && !line.contains("ff00::/8"));
    lasting.collect::<Vec<_>>().join("\n") + if has_marked_flows(space) { "\nmarked flows" } else { "" }
}

fn has_marked_flows(space: &Namespace) -> bool {
    let look = || {
        let mut marked = false;
        let mut conntrack = Conntrack::open().unwrap();
        let bits = NETWORK_MASK | TREATMENT_MASK;
        // Where nothing is tracked, nothing has a mark.
        drop(conntrack.for_each(None, |entry| marked |= entry.mark & bits != 0));
        marked
    };
    space.run(look).unwrap()
}

/// A host on a LAN of the device, which does not forward its packets yet.
fn lan(bed: &Bed) -> Namespace {
    let inside = Namespace::anonymous().unwrap();
    bed.device.join(&inside, "inner", "up").unwrap();
    bed.device.add_address("inner", "10.20.0.1/24".parse().unwrap()).unwrap();
    inside.add_address("up", "10.20.0.7/24".parse().unwrap()).unwrap();
    inside.add_route("up", "0.0.0.0/0".parse().unwrap(), "10.20.0.1".parse().ok(), None).unwrap();
    bed.device.add_address("inner", "fd20::1/64".parse().unwrap()).unwrap();
    inside.add_address("up", "fd20::7/64".parse().unwrap()).unwrap();
    inside.add_route("up", "::/0".parse().unwrap(), "fd20::1".parse().ok(), None).unwrap();
    inside
}

/// The same where it forwards them.
pub fn behind(bed: &Bed) -> Namespace {
    let inside = lan(bed);
    bed.device.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    bed.device.set_sysctl("net.ipv6.conf.all.forwarding", "1").unwrap();
    inside
}

/// A bed whose networks have IPv6 too.
pub fn dual() -> Bed {
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

/// The network by which a caller came, by its address: 10.1.NUMBER.2 or 2001:db8:NUMBER::2.
pub fn network_of(peer: SocketAddr) -> u8 {
    match peer.ip() {
        IpAddr::V4(peer) => peer.octets()[2],
        IpAddr::V6(peer) => peer.segments()[2] as u8,
    }
}

/// How many of `count` connections reached the server by each network, by the network's number.
pub fn calls(bed: &Bed, count: usize) -> BTreeMap<u8, usize> {
    calls_to(bed, 8_080, count)
}

/// The same for a port.
fn calls_to(bed: &Bed, port: u16, count: usize) -> BTreeMap<u8, usize> {
    calls_from(bed, &bed.device, port, count)
}

/// The same for connections from another host.
fn calls_from(bed: &Bed, host: &Namespace, port: u16, count: usize) -> BTreeMap<u8, usize> {
    calls_by(bed, host, SERVER_V4, port, count)
}

/// The same to one of the server's addresses. Programs of the device have the interface's address.
pub fn calls_by(bed: &Bed, host: &Namespace, server: &str, port: u16, count: usize) -> BTreeMap<u8, usize> {
    let address = SocketAddr::new(server.parse().unwrap(), port);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut seen = BTreeMap::new();
    // A link that is new carries IPv6 after a second or two.
    for _ in 0..count {
        let call = host.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(10))).unwrap();
        let mut call = call.unwrap_or_else(|error| panic!("{address} is not reached: {error}"));
        let (mut answer, peer) = listener.accept().unwrap();
        call.write_all(b"ping").unwrap();
        answer.read_exact(&mut [0; 4]).unwrap();
        *seen.entry(network_of(peer)).or_default() += 1;
    }
    seen
}

/// Two connections of a host, one over each network, and what the server has of them.
pub struct LivingFlows {
    pub over: [(TcpStream, TcpStream); 2],
}

impl LivingFlows {
    pub fn open(bed: &Bed, host: &Namespace, server: &str, port: u16) -> Self {
        let address = SocketAddr::new(server.parse().unwrap(), port);
        let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
        let mut over = [None, None];
        // Shares follow what probes show, so one network may get several in a row.
        for _ in 0..64 {
            if over.iter().all(Option::is_some) {
                break;
            }
            let call = host.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(10))).unwrap();
            let call = call.unwrap_or_else(|error| panic!("{address} is not reached: {error}"));
            let (answer, peer) = listener.accept().unwrap();
            over[usize::from(network_of(peer))] = Some((call, answer));
        }
        let all =
            over.map(|both| both.unwrap_or_else(|| panic!("{address} is called over one network only")));
        Self { over: all }
    }

    /// Each end gets what the other one says.
    pub fn talk(flow: &mut (TcpStream, TcpStream)) {
        let (call, answer) = flow;
        for stream in [&*call, &*answer] {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        }
        call.write_all(b"still here").unwrap();
        let name = format!("{:?} to {:?}", answer.peer_addr(), call.peer_addr());
        answer.read_exact(&mut [0; 10]).unwrap_or_else(|error| panic!("from {name}: {error}"));
        answer.write_all(b"me too").unwrap();
        call.read_exact(&mut [0; 6]).unwrap_or_else(|error| panic!("back from {name}: {error}"));
    }
}

/// Reads until it fails, in a thread; gives the error and when it came.
pub fn read_on(mut stream: TcpStream) -> JoinHandle<(std::io::Error, Instant)> {
    stream.set_read_timeout(Some(Duration::from_secs(90))).unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            match stream.read(&mut buffer) {
                Ok(0) => return (ErrorKind::UnexpectedEof.into(), Instant::now()),
                Ok(_) => {}
                Err(error) => return (error, Instant::now()),
            }
        }
    })
}

pub fn new_flows_are_dealt_out() {
    let bed = bed();
    let before = listing(&bed.device);
    let daemon = started(&bed);
    assert_eq!(calls(&bed, 24).len(), 2);
    assert!(has_marked_flows(&bed.device));
    let flows = LivingFlows::open(&bed, &bed.device, SERVER_V4, 8_085);
    for (call, _) in &flows.over {
        assert_eq!(call.local_addr().unwrap().ip().to_string(), ANY0[0], "what its program sees");
    }
    drop(flows);
    let status = bed.status();
    assert_eq!(status.far_end, None);
    assert_eq!(status.addresses, ANY0.map(|address| address.parse::<IpAddr>().unwrap()));
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    assert!(listing(&bed.device) == before, "{}", listing(&bed.device));

    // The next start takes back what a kill has left.
    let daemon = started(&bed);
    assert_eq!(calls(&bed, 24).len(), 2);
    daemon.kill();
    assert_ne!(listing(&bed.device), before);
    let daemon = started(&bed);
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    assert!(listing(&bed.device) == before, "{}", listing(&bed.device));
}

/// What the kernel knows of them stays when the daemon is killed. After an orderly end it is gone, and they are known by the address that
/// the world has of them.
pub fn connections_outlive_a_kill_and_take_their_own_networks() {
    let bed = dual();
    let inside = behind(&bed);
    bed.write_config("device", "[device]\ndns = \"off\"\nprobe = \"off\"\n");
    // The second network comes first.
    bed.device.set_up("wan0", false).unwrap();
    let daemon = bed.start("device");
    bed.wait_until_up();
    eventually("flows are led out", || listing(&bed.device).contains("table inet anabranch_direct"));
    assert_eq!(calls(&bed, 2), [(1, 2)].into());
    bed.device.set_up("wan0", true).unwrap();
    revive_first(&bed);
    eventually("the first network does too", || calls(&bed, 4).contains_key(&0));
    let mut open = Vec::new();
    for server in [SERVER_V4, SERVER_V6] {
        for host in [&bed.device, &inside] {
            open.extend(LivingFlows::open(&bed, host, server, 8_088).over);
        }
    }
    daemon.kill();
    assert!(has_marked_flows(&bed.device));
    let daemon = started(&bed);
    open.iter_mut().for_each(LivingFlows::talk);
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    assert!(!has_marked_flows(&bed.device));
    let _daemon = started(&bed);
    eventually("they have their networks again", || has_marked_flows(&bed.device));
    open.iter_mut().for_each(LivingFlows::talk);
}

pub fn flows_of_a_lan_are_led_out_once_they_are_forwarded() {
    let bed = bed();
    let inside = lan(&bed);
    let _daemon = started(&bed);
    let is_looked_for = || listing(&bed.device).contains("filter hook prerouting");
    eventually("nobody looks for what is not forwarded", || !is_looked_for());
    bed.device.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    eventually("flows of the LAN are looked for", is_looked_for);
    assert_eq!(calls_from(&bed, &inside, 8_082, 24).len(), 2);
    assert_eq!(calls_to(&bed, 8_083, 24).len(), 2);
    bed.device.set_sysctl("net.ipv4.ip_forward", "0").unwrap();
    eventually("nobody looks for what is forwarded no more", || !is_looked_for());
    assert_eq!(calls_to(&bed, 8_084, 24).len(), 2);
}

pub fn a_dead_network_gets_no_new_flow() {
    // It takes some 0.1 s on a machine that is at rest.
    const AT_ONCE: Duration = Duration::from_secs(5);
    let bed = dual();
    // Flows of the rule are dealt out by nftables, the others by BPF, where the kernel has it.
    let rule = "[[rule]]\nport = \"8301-8320\"\nnetworks = [\"wan0\", \"wan1\"]\n";
    bed.write_config("device", &format!("[device]\ndns = \"off\"\nprobe = \"off\"\n{rule}"));
    let _daemon = started(&bed);
    let (mut readers, mut living) = (Vec::new(), Vec::new());
    for (server, port) in [(SERVER_V4, 8_081), (SERVER_V6, 8_081), (SERVER_V4, 8_301), (SERVER_V6, 8_301)] {
        let [(dead, end), other] = LivingFlows::open(&bed, &bed.device, server, port).over;
        readers.push((read_on(dead), end));
        living.push(other);
    }
    bed.gateway.set_up("lan0", false).unwrap();
    let died = Instant::now();
    // From the first moment on, calls come about over the other network or fail at once.
    let mut made = 0;
    for port in [8_082, 8_302] {
        for server in [SERVER_V4, SERVER_V6] {
            let address = SocketAddr::new(server.parse().unwrap(), port);
            let _ears = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
            for _ in 0..4 {
                let began = Instant::now();
                let call = bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(10)));
                let kind = call.unwrap().err().map(|error| error.kind());
                made += usize::from(kind.is_none());
                assert!(matches!(kind, None | Some(ErrorKind::ConnectionAborted)), "{address}: {kind:?}");
                // One whose first packet was lost is repeated by the kernel after a second, not after three.
                assert!(began.elapsed() < AT_ONCE, "{address}: {:?}", began.elapsed());
            }
        }
    }
    assert!(made >= 12, "{made} of 16");
    for (reader, _end) in readers {
        let (error, at) = reader.join().unwrap();
        assert_eq!(error.kind(), ErrorKind::ConnectionAborted, "{error}");
        println!("it failed after {:?}", at - died);
        assert!(at - died < AT_ONCE, "{:?}", at - died);
    }
    living.iter_mut().for_each(LivingFlows::talk);
    assert_eq!(calls(&bed, 4), [(1, 4)].into());

    bed.gateway.set_up("lan0", true).unwrap();
    revive_first(&bed);
    eventually("it is used again", || calls(&bed, 4).contains_key(&0));
    let v6 = |port| calls_by(&bed, &bed.device, SERVER_V6, port, 4);
    eventually("for IPv6 too", || v6(8_083).contains_key(&0) && v6(8_303).contains_key(&0));
}

/// What the first network loses when one of its ends is switched off.
fn revive_first(bed: &Bed) {
    for (space, interface, address) in
        [(&bed.gateway, "lan0", "2001:db8::1/64"), (&bed.device, "wan0", "2001:db8::2/64")]
    {
        space.add_address(interface, address.parse().unwrap()).ok();
    }
    for (any, via) in [("0.0.0.0/0", "10.1.0.1"), ("::/0", "2001:db8::1")] {
        bed.device.add_route("wan0", any.parse().unwrap(), via.parse().ok(), Some(100)).ok();
    }
}

/// Calls that nobody has answered yet when their network dies: they fail at once or come about over the other one, whether
/// their socket holds the dead network's mark (BPF) or only their connection does (nftables).
pub fn a_call_that_is_being_made_does_not_hang_on_a_dead_network() {
    let bed = bed();
    let _daemon = started(&bed);
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_083);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let filter = |script: &str| {
        assert!(bed.gateway.command("nft").unwrap().arg(script).status().unwrap().success());
    };
    filter("table inet deaf { chain ears { type filter hook forward priority 0; tcp dport 8083 drop; }; }");
    // The kernel asks again after 1, 3 and 7 s.
    let limit = Duration::from_secs(8);
    let call = || bed.device.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
    let outcomes: Vec<std::io::Result<TcpStream>> = std::thread::scope(|scope| {
        let calls: Vec<_> = (0..8).map(|_| scope.spawn(call)).collect();
        std::thread::sleep(Duration::from_millis(300));
        bed.gateway.set_up("lan0", false).unwrap();
        eventually("wan0 is gone", || !bed.status().networks[0].connected);
        filter("delete table inet deaf");
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    });
    let made = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert!(made >= 4, "those of the other network, at least: {outcomes:?}");
    for _ in 0..made {
        let (_, peer) = listener.accept().unwrap();
        assert_eq!(network_of(peer), 1, "over the other network");
    }
    for outcome in &outcomes {
        let kind = outcome.as_ref().err().map(std::io::Error::kind);
        assert!(matches!(kind, None | Some(ErrorKind::ConnectionAborted)), "{outcome:?}");
    }
}

pub fn rules_choose_networks() {
    let bed = bed();
    bed.write_config(
        "device",
        "[device]\ndns = \"off\"\n\
         [[rule]]\nport = [8085, \"tcp/9000-9010\"]\nnetworks = \"wan1\"\n\
         [[rule]]\nport = 8086\nto = \"198.51.100.0/24\"\nnetworks = \"gone0\"\nstrict = false\n\
         [[rule]]\nport = 8087\nnetworks = \"gone0\"\n\
         [[rule]]\ndscp = \"ef\"\ntreat = \"duplicated\"\n",
    );
    let _daemon = started(&bed);
    assert_eq!(calls_to(&bed, 8_085, 3), [(1, 3)].into());
    assert_eq!(calls_to(&bed, 9_010, 2), [(1, 2)].into());
    assert_eq!(calls_to(&bed, 8_086, 2).len(), 2, "any network while the wanted one is missing");
    assert_eq!(calls_to(&bed, 8_080, 2).len(), 2);
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_087);
    let refused = bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5))).unwrap();
    assert!(refused.is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut), "refused at once");
    let events = bed.client("device").events(EventSequence(0)).unwrap();
    let told = |text: &str| events.iter().any(|event| event.text.contains(text));
    assert!(told("gone0") && told("gateway"), "{events:#?}");
}

pub fn a_rule_by_domain_holds_for_the_first_connection() {
    const A: u8 = 1;
    const AAAA: u8 = 28;
    let bed = dual();
    bed.write_config("device", "[device]\n[[rule]]\ndomain = \"*.example.org\"\nnetworks = \"wan1\"\n");
    // Answers every question for addresses with the server's own.
    let names = bed.server.run(|| UdpSocket::bind((SERVER_V4, 53))).unwrap().unwrap();
    let octets = |server: &str| match server.parse().unwrap() {
        IpAddr::V4(server) => server.octets().to_vec(),
        IpAddr::V6(server) => server.octets().to_vec(),
    };
    let records = [(A, octets(SERVER_V4)), (AAAA, octets(SERVER_V6))];
    let known = records.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 512];
        while let Ok((length, client)) = names.recv_from(&mut buffer) {
            let mut answer = buffer[..length].to_vec();
            answer[2..4].copy_from_slice(&[0x81, 0x80]);
            let kind = answer[length - 3];
            if let Some((_, address)) = known.iter().find(|(known, _)| *known == kind) {
                answer[7] = 1;
                answer.extend([0xc0, 12, 0, kind, 0, 1, 0, 0, 0, 60, 0, address.len() as u8]);
                answer.extend(address);
            }
            names.send_to(&answer, client).unwrap();
        }
    });
    let _daemon = bed.start_with_names("device", &format!("nameserver {SERVER_V4}\n"));
    bed.wait_until_up();
    eventually("new flows are led out", || listing(&bed.device).contains("numgen inc"));
    let is_known = |server: &str| listing(&bed.device).contains(server);
    assert!(!is_known(SERVER_V4) && !is_known(SERVER_V6), "nothing is known of the name yet");
    let ask = |name: &str, kind: u8| {
        let socket = bed.device.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut question = vec![7, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(label.len() as u8);
            question.extend(label.bytes());
        }
        question.extend([0, 0, kind, 0, 1]);
        socket.send_to(&question, "127.0.86.53:53").unwrap();
        let mut answer = [0; 512];
        let length = socket.recv(&mut answer).expect("an answer");
        let (_, address) = records.iter().find(|(known, _)| *known == kind).unwrap();
        assert!(answer[..length].ends_with(address));
    };
    let told = bed.client("device").rules().unwrap().remove(0).remark;
    assert!(told.as_ref().is_some_and(|remark| remark.contains("encrypted DNS")), "{told:?}");
    for (server, kind) in [(SERVER_V4, A), (SERVER_V6, AAAA)] {
        let networks = |port| calls_by(&bed, &bed.device, server, port, 8);
        ask("other.example.net", kind);
        assert!(!is_known(server), "a name of no rule");
        assert_eq!(networks(8_086).len(), 2);
        ask("www.example.org", kind);
        assert_eq!(networks(8_087), [(1, 8)].into());
    }
}

pub fn a_site_that_refuses_the_gateway_is_reached_directly() {
    a_site_that_does_not_want_the_gateway("reject with tcp reset");
}

pub fn a_site_that_ignores_the_gateway_is_reached_directly() {
    a_site_that_does_not_want_the_gateway("drop");
}

fn a_site_that_does_not_want_the_gateway(verdict: &str) {
    let bed = bed();
    bed.write_config("device", "[device]\ndns = \"off\"\nauto_direct = true\n");
    bed.server.add_address("lan", "198.51.100.10/24".parse().unwrap()).unwrap();
    let mut nft = bed.server.command("nft").unwrap();
    let rule = format!(
        "table ip site {{ chain input {{ type filter hook input priority 0; \
         ip saddr 198.51.100.1 ip daddr 198.51.100.10 meta l4proto tcp {verdict}; }}; }}"
    );
    assert!(nft.arg(rule).status().unwrap().success());
    let site = SocketAddr::new("198.51.100.10".parse().unwrap(), 8_090);
    let listener = bed.server.run(|| TcpListener::bind(site)).unwrap().unwrap();
    let _daemons = bed.connected();
    // That the gateway goes on reaching others shows that it is not its own fault.
    let other = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_091);
    let open = bed.server.run(|| TcpListener::bind(other)).unwrap().unwrap();
    let working = bed.device.run(|| TcpStream::connect(other)).unwrap().unwrap();
    let (_held, peer) = open.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "198.51.100.1", "through the gateway");
    let reach = || bed.device.run(|| TcpStream::connect_timeout(&site, Duration::from_secs(2))).unwrap();
    assert!(reach().is_err(), "the site refuses the gateway");
    crate::bed::within(Duration::from_secs(60), "the site is reached directly", || {
        std::thread::sleep(Duration::from_millis(1_100));
        drop(bed.device.run(|| TcpStream::connect(other)).unwrap().unwrap());
        reach().is_ok()
    });
    let (_, peer) = listener.accept().unwrap();
    assert!(peer.ip().to_string().starts_with("10.1."), "{peer}");
    let again = bed.device.run(|| TcpStream::connect(other)).unwrap().unwrap();
    assert_eq!(open.accept().unwrap().1.ip().to_string(), "198.51.100.1", "all else still takes the gateway");
    drop((working, again));
}
