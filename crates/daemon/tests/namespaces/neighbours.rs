//! Two devices that know each other's keys on two shared LANs, and a stranger on both.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anabranch::control::{BlockingClient, NeighbourReport, Neighbourhood};
use identity::{KeyPair, Peers, PublicKey, StateDirectory, wall_time};
use linux::netlink::Netlink;
use linux::netns::Namespace;
use linux::packet_socket::PacketSocket;
use tempfile::TempDir;

use crate::bed::{Daemon, eventually, within};
use crate::direct::listing;

const PORT: u16 = 4_601;
/// As the daemon's: an entry without a sign of life.
const LIFETIME: Duration = Duration::from_secs(15);

/// A machine with `lan0` and `lan1`.
struct Machine {
    space: Namespace,
    directory: PathBuf,
    key: KeyPair,
}

/// The machines `ann`, `bob` and `eve`, and a switch for each LAN with ports of these names.
struct Street {
    machines: [Machine; 3],
    switches: [Namespace; 2],
    _directory: TempDir,
}

const NAMES: [&str; 3] = ["ann", "bob", "eve"];

impl Machine {
    fn state(&self) -> StateDirectory {
        StateDirectory::create(&self.directory).unwrap()
    }

    fn configure(&self, more: &str) {
        let text = format!("[device]\ngateway = \"none\"\nprobe = \"off\"\nneighbours = true\n{more}");
        fs::write(self.directory.join("config.toml"), text).unwrap();
    }

    fn client(&self) -> BlockingClient {
        BlockingClient::of_state(&self.directory).unwrap()
    }

    fn start(&self) -> Daemon {
        let mut command = self.space.command(std::env::current_exe().unwrap()).unwrap();
        command.args(["DAEMON", "device"]).arg(&self.directory);
        let daemon = Daemon::of(command.spawn().unwrap());
        eventually("the daemon answers", || self.client().status().is_ok());
        daemon
    }

    fn neighbourhood(&self) -> Neighbourhood {
        self.client().neighbours().unwrap()
    }

    fn neighbour(&self, name: &str) -> NeighbourReport {
        let all = self.neighbourhood().neighbours;
        all.into_iter().find(|neighbour| neighbour.name == name).unwrap()
    }

    /// The own any0 address of a family.
    fn address(&self, ipv6: bool) -> IpAddr {
        self.neighbourhood().addresses.into_iter().find(|address| address.is_ipv6() == ipv6).unwrap()
    }

    fn link_local(&self, interface: &str) -> (Ipv6Addr, u32) {
        let find = || {
            let mut netlink = Netlink::open().unwrap();
            let index = netlink.link(interface).unwrap().unwrap().index;
            let all = netlink.addresses().unwrap();
            let mut own = all.iter().filter(|own| own.index == index).map(|own| own.address.address());
            own.find_map(|own| match own {
                IpAddr::V6(own) if own.is_unicast_link_local() => Some((own, index)),
                _ => None,
            })
        };
        self.space.run(find).unwrap().unwrap()
    }

    fn shell(&self, command: &str) -> String {
        shell(&self.space, command)
    }
}

fn shell(space: &Namespace, command: &str) -> String {
    let output = space.command("sh").unwrap().args(["-c", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

impl Street {
    /// LANs with IPv4 addresses, both the same subnet: as at two neighbours with the same router.
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let machines = [0, 1, 2].map(|at: usize| {
            let directory = directory.path().join(NAMES[at]);
            let key = KeyPair::load_or_create(&StateDirectory::create(&directory).unwrap()).unwrap();
            Machine { space: Namespace::anonymous().unwrap(), directory, key }
        });
        let switches = [0, 1].map(|number| {
            let switch = Namespace::anonymous().unwrap();
            shell(&switch, "ip link add bridge type bridge && ip link set bridge up");
            for (name, machine) in NAMES.iter().zip(&machines) {
                let lan = format!("lan{number}");
                switch.join(&machine.space, name, &lan).unwrap();
                let last = 2 + NAMES.iter().position(|known| known == name).unwrap();
                machine.space.add_address(&lan, format!("192.168.1.{last}/24").parse().unwrap()).unwrap();
                shell(&switch, &format!("ip link set {name} master bridge"));
            }
            switch
        });
        let street = Self { machines, switches, _directory: directory };
        for machine in &street.machines {
            machine.configure("");
        }
        street.acquaint("ann", &[("bob", street.bob().key.public())]);
        street.acquaint("bob", &[("ann", street.ann().key.public())]);
        // Eve knows them, but they do not know her.
        street.acquaint("eve", &[("ann", street.ann().key.public()), ("bob", street.bob().key.public())]);
        street
    }

    fn machine(&self, name: &str) -> &Machine {
        &self.machines[NAMES.iter().position(|known| *known == name).unwrap()]
    }

    fn ann(&self) -> &Machine {
        self.machine("ann")
    }

    fn bob(&self) -> &Machine {
        self.machine("bob")
    }

    fn eve(&self) -> &Machine {
        self.machine("eve")
    }

    fn acquaint(&self, who: &str, with: &[(&str, PublicKey)]) {
        let machine = self.machine(who);
        for (name, key) in with {
            let own = machine.key.public();
            Peers::change(&machine.state(), |peers| peers.acquaint(name, *key, own, wall_time())).unwrap();
        }
    }

    fn configure(&self, more: &str) {
        for machine in [self.ann(), self.bob()] {
            machine.configure(more);
        }
    }

    /// Ann's and Bob's daemons, once each hears the other on both LANs.
    fn met(&self) -> [Daemon; 2] {
        let daemons = [self.ann().start(), self.bob().start()];
        for (machine, other) in [(self.ann(), "bob"), (self.bob(), "ann")] {
            within(Duration::from_secs(20), "they hear each other on both LANs", || {
                machine.neighbour(other).links.len() == 2 && machine.neighbour(other).addresses.len() == 2
            });
        }
        daemons
    }

    /// Between a switch and a machine nothing passes any more, or again; the machines' cables stay plugged in.
    fn cut(&self, lan: usize, port: &str, cut: bool) {
        let command = if cut {
            format!("ip link set {port} nomaster")
        } else {
            format!("ip link set {port} master bridge")
        };
        shell(&self.switches[lan], &command);
    }

    /// A connection from Ann to Bob between their any0 addresses.
    fn connect(&self, ipv6: bool) -> (TcpStream, TcpStream) {
        let address = SocketAddr::new(self.bob().address(ipv6), 8_080);
        let listener = self.bob().space.run(|| TcpListener::bind(address)).unwrap().unwrap();
        let limit = Duration::from_secs(5);
        let call = self.ann().space.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
        let call = call.expect("the neighbour is not reached");
        let (answer, from) = listener.accept().unwrap();
        assert_eq!(from.ip(), self.ann().address(ipv6), "known by its any0 address");
        (call, answer)
    }
}

/// Asks over a connection and has it answered, `during` meanwhile; the longest time to an answer.
fn ping_pong(connection: &mut (TcpStream, TcpStream), during: impl FnOnce()) -> Duration {
    let (call, answer) = connection;
    let mut answer = answer.try_clone().unwrap();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while answer.read_exact(&mut byte).is_ok() && byte != [9] {
                answer.write_all(&byte).unwrap();
            }
        });
        let asker = scope.spawn(|| {
            call.set_nodelay(true).unwrap();
            call.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut longest = Duration::ZERO;
            while !over.load(Ordering::Relaxed) {
                let begin = Instant::now();
                call.write_all(&[1]).unwrap();
                call.read_exact(&mut [0]).unwrap();
                longest = longest.max(begin.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            call.write_all(&[9]).unwrap();
            longest
        });
        during();
        over.store(true, Ordering::Relaxed);
        asker.join().unwrap()
    })
}

pub fn connections_take_the_preferred_lan_and_outlive_it() {
    let street = Street::new();
    street.configure("[network.lan0]\npriority = 1\n[network.lan1]\npriority = 0\n");
    let _daemons = street.met();
    within(Duration::from_secs(5), "the preferred LAN is taken", || {
        [(street.ann(), "bob"), (street.bob(), "ann")]
            .iter()
            .all(|(machine, other)| machine.neighbour(other).network.as_deref() == Some("lan1"))
    });
    for ipv6 in [true, false] {
        let mut connection = street.connect(ipv6);
        let counted = |lan: &str| -> u64 {
            // Unlike /sys, this is of the namespace that the shell runs in. The tenth word: bytes that were sent.
            let command = format!("awk '$1 == \"{lan}:\" {{ print $10 }}' /proc/net/dev");
            street.ann().shell(&command).trim().parse().unwrap()
        };
        let before = [counted("lan0"), counted("lan1")];
        ping_pong(&mut connection, || std::thread::sleep(Duration::from_millis(1_500)));
        let [lan0, lan1] = [counted("lan0") - before[0], counted("lan1") - before[1]];
        assert!(lan1 > 3 * lan0, "{lan0} bytes over lan0, {lan1} over lan1");

        // A cable is pulled out: the interface knows at once.
        let gap = ping_pong(&mut connection, || {
            street.switches[1].set_up("ann", false).unwrap();
            street.switches[1].set_up("bob", false).unwrap();
            std::thread::sleep(Duration::from_secs(2));
        });
        println!("IPv{} cable pulled out: longest answer {gap:?}", if ipv6 { 6 } else { 4 });
        assert!(gap < Duration::from_millis(1_600), "{gap:?}");
        assert_eq!(street.ann().neighbour("bob").network.as_deref(), Some("lan0"));
        street.switches[1].set_up("ann", true).unwrap();
        street.switches[1].set_up("bob", true).unwrap();
        within(Duration::from_secs(20), "the preferred LAN is taken again", || {
            street.ann().neighbour("bob").network.as_deref() == Some("lan1")
                && street.bob().neighbour("ann").network.as_deref() == Some("lan1")
        });
        ping_pong(&mut connection, || std::thread::sleep(Duration::from_millis(300)));
    }
}

/// Whose cable was pulled out says so over the other LAN, so nobody waits for `maxdiff`.
pub fn a_neighbour_is_told_of_a_cable_that_was_pulled_out() {
    let street = Street::new();
    street.configure("maxdiff = \"3s\"\n[network.lan0]\npriority = 0\n[network.lan1]\npriority = 1\n");
    let _daemons = street.met();
    let mut connection = street.connect(true);
    for name in ["ann", "bob"] {
        ping_pong(&mut connection, || std::thread::sleep(Duration::from_secs(1)));
        assert_eq!(street.ann().neighbour("bob").network.as_deref(), Some("lan0"));
        let gap = ping_pong(&mut connection, || {
            street.switches[0].set_up(name, false).unwrap();
            std::thread::sleep(Duration::from_secs(5));
        });
        println!("the cable of {name}: longest answer {gap:?}");
        assert!(gap < Duration::from_millis(2_600), "{name}: {gap:?}");
        assert_eq!(street.ann().neighbour("bob").network.as_deref(), Some("lan1"));
        street.switches[0].set_up(name, true).unwrap();
        within(Duration::from_secs(20), "the preferred LAN is taken again", || {
            street.ann().neighbour("bob").network.as_deref() == Some("lan0")
                && street.bob().neighbour("ann").network.as_deref() == Some("lan0")
        });
    }
}

/// Nothing tells that a LAN is dead but the silence on it: how long that is borne is `maxdiff`.
pub fn a_silent_lan_is_left_after_maxdiff() {
    for (maxdiff, least, most) in [("50ms", 0, 900), ("1500ms", 1_200, 5_000)] {
        let street = Street::new();
        street.configure(&format!(
            "maxdiff = \"{maxdiff}\"\n[network.lan0]\npriority = 0\n[network.lan1]\npriority = 1\n"
        ));
        let _daemons = street.met();
        let mut connection = street.connect(true);
        // In use for long enough that the LANs are asked quickly.
        ping_pong(&mut connection, || std::thread::sleep(Duration::from_secs(3)));
        assert_eq!(street.ann().neighbour("bob").network.as_deref(), Some("lan0"));
        let gap = ping_pong(&mut connection, || {
            street.cut(0, "bob", true);
            std::thread::sleep(Duration::from_secs(5));
        });
        println!("maxdiff {maxdiff}: longest answer {gap:?}");
        assert!((least..=most).contains(&gap.as_millis()), "maxdiff {maxdiff}: {gap:?}");
        assert_eq!(street.ann().neighbour("bob").network.as_deref(), Some("lan1"));
    }
}

pub fn a_broadcast_goes_out_on_every_network_and_arrives_once() {
    const LENGTH: usize = 1_000;
    let street = Street::new();
    let _daemons = street.met();
    let socket = |machine: &Machine, local: &str| {
        let socket = machine.space.run(|| UdpSocket::bind(local)).unwrap().unwrap();
        socket.set_broadcast(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(700))).unwrap();
        socket
    };
    let any0 =
        street.ann().space.run(|| Netlink::open().unwrap().link("any0").unwrap().unwrap().index).unwrap();
    let everybody = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    let cases: [(&str, &str, SocketAddr, bool); 3] = [
        ("0.0.0.0:0", "0.0.0.0:7000", (Ipv4Addr::BROADCAST, 7_000).into(), false),
        ("0.0.0.0:0", "0.0.0.0:7001", (Ipv4Addr::new(10, 254, 255, 255), 7_001).into(), false),
        ("[::]:0", "[::]:7002", SocketAddrV6::new(everybody, 7_002, 0, any0).into(), true),
    ];
    for (from, at, to, ipv6) in cases {
        let (sender, receiver) = (socket(street.ann(), from), socket(street.bob(), at));
        let mut recorders = [0, 1].map(|lan| Recorder::at(&street.switches[lan], "ann"));
        for number in 0..20_u8 {
            sender.send_to(&[number; LENGTH], to).unwrap();
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut heard = Vec::new();
        let mut buffer = [0; 2 * LENGTH];
        while let Ok((length, source)) = receiver.recv_from(&mut buffer) {
            assert_eq!((length, source.ip()), (LENGTH, street.ann().address(ipv6)));
            heard.push(buffer[0]);
            // And it can be answered.
            if buffer[0] == 7 {
                receiver.send_to(b"here", source).unwrap();
            }
        }
        heard.sort_unstable();
        assert_eq!(heard, (0..20).collect::<Vec<u8>>(), "to {to}: each once");
        let sent = recorders.each_mut().map(|recorder| {
            recorder.record();
            // Sealed, so no two are alike; nothing else is as long.
            recorder.said.iter().filter(|bytes| bytes.len() >= LENGTH).count()
        });
        assert_eq!(sent, [20, 20], "to {to}: on each LAN");
        let (length, source) = sender.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], source.ip()), (&b"here"[..], street.bob().address(ipv6)));
    }
}

/// All that passes a port of a switch and is said between neighbours.
struct Recorder {
    socket: PacketSocket,
    said: BTreeSet<Vec<u8>>,
}

impl Recorder {
    fn at(switch: &Namespace, port: &str) -> Self {
        let open = || PacketSocket::open(Netlink::open().unwrap().link(port).unwrap().unwrap().index);
        Self { socket: switch.run(open).unwrap().unwrap(), said: BTreeSet::new() }
    }

    /// Takes down what waits: payloads of UDP over IPv6 to the neighbours' port.
    fn record(&mut self) {
        let said = &mut self.said;
        let mut take = |frame: &[u8]| {
            if frame.len() > 62
                && frame[12..14] == [0x86, 0xdd]
                && frame[20] == 17
                && frame[56..58] == PORT.to_be_bytes()
            {
                said.insert(frame[62..].to_vec());
            }
        };
        while self.socket.receive(&mut take).is_ok_and(|count| count > 0) {}
    }
}

pub fn a_stranger_takes_nothing_over_and_learns_nothing() {
    let street = Street::new();
    let mut recorders = [0, 1].map(|lan| Recorder::at(&street.switches[lan], "bob"));
    let [_ann, bob] = street.met();
    let eve_daemon = street.eve().start();
    let mut deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        recorders.iter_mut().for_each(Recorder::record);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(
        street.eve().neighbourhood().neighbours.iter().all(|known| known.links.is_empty()),
        "she meets nobody"
    );
    let own_texts = [street.ann(), street.bob()].map(|machine| machine.key.public().0);
    let said: BTreeSet<Vec<u8>> =
        recorders.iter().flat_map(|recorder| recorder.said.iter().cloned()).collect();
    assert!(said.len() > 10, "{} datagrams were recorded", said.len());
    for (at, bytes) in said.iter().enumerate() {
        for key in &own_texts {
            assert!(!bytes.windows(8).any(|part| part == &key[..8]), "a key is told in the clear");
        }
        // Beyond the kind, the length of a beacon's list and what random bytes have in common, no two are alike.
        let alike = said
            .iter()
            .skip(at + 1)
            .filter(|other| other.windows(8).any(|part| bytes.windows(8).any(|own| own == part)));
        assert_eq!(alike.count(), 0, "something stays the same from one datagram to the next");
    }
    drop(eve_daemon);
    // The process without root ends a moment after the one with it.
    eventually("Eve's daemon gives its port up", || {
        let local = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, PORT, 0, 0);
        street.eve().space.run(|| UdpSocket::bind(local)).unwrap().is_ok()
    });

    // Eve says again all that Bob has said, from where she is, on both LANs.
    let replay = || {
        for lan in ["lan0", "lan1"] {
            let ((own, index), (ann, _)) = (street.eve().link_local(lan), street.ann().link_local(lan));
            let local = SocketAddrV6::new(own, PORT, 0, index);
            let socket = street.eve().space.run(|| UdpSocket::bind(local)).unwrap().unwrap();
            for bytes in &said {
                drop(socket.send_to(bytes, SocketAddrV6::new(ann, PORT, 0, 0)));
            }
        }
    };
    let bobs: BTreeSet<IpAddr> =
        ["lan0", "lan1"].map(|lan| IpAddr::V6(street.bob().link_local(lan).0)).into_iter().collect();
    let is_bobs = || {
        let heard = street.ann().neighbour("bob");
        let routes = street.ann().shell("ip -6 route show table all; ip route show table all");
        let eves = ["lan0", "lan1"].map(|lan| street.eve().link_local(lan).0.to_string());
        assert!(heard.links.iter().all(|link| bobs.contains(&link.address)), "{heard:?}");
        assert!(!eves.iter().any(|eve| routes.contains(eve.as_str())), "{routes}");
        heard
    };
    replay();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(is_bobs().links.len(), 2);
    let mut connection = street.connect(true);
    ping_pong(&mut connection, replay);

    // When Bob is gone, what he said is no sign of life.
    bob.kill();
    deadline = Instant::now() + Duration::from_secs(3);
    while Instant::now() < deadline {
        replay();
        std::thread::sleep(Duration::from_millis(300));
    }
    let heard = is_bobs();
    assert!(heard.links.iter().all(|link| link.last_seen.0 > 1_500_000), "{heard:?}");
}

pub fn neighbours_expire_and_come_back() {
    let street = Street::new();
    let [_ann, bob] = street.met();
    bob.kill();
    let gone = Instant::now();
    let address = SocketAddr::new(street.ann().neighbour("bob").addresses[0], 8_080);
    within(LIFETIME + Duration::from_secs(5), "Bob has expired", || {
        let bob = street.ann().neighbour("bob");
        bob.links.is_empty() && bob.network.is_none()
    });
    assert!(gone.elapsed() > LIFETIME - Duration::from_secs(3), "{:?}", gone.elapsed());
    let refused =
        street.ann().space.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5))).unwrap();
    assert!(refused.is_err_and(|error| error.kind() != std::io::ErrorKind::TimedOut), "refused at once");
    let _bob = street.bob().start();
    within(Duration::from_secs(20), "Bob is back", || street.ann().neighbour("bob").links.len() == 2);
    drop(street.connect(true));

    // A key that is forgotten is nobody's any more; one that is told while the daemon runs is looked for.
    street.ann().client().forget_neighbour("bob").unwrap();
    assert!(street.ann().neighbourhood().neighbours.is_empty());
    let bobs = street.bob().address(true).to_string();
    eventually("no route leads to him", || !street.ann().shell("ip -6 route show table all").contains(&bobs));
    let key = anabranch::control::NeighbourKey { public_key: street.bob().key.public().to_string() };
    street.ann().client().add_neighbour("robert", &key).unwrap();
    within(Duration::from_secs(20), "Bob is met under his new name", || {
        !street.ann().neighbour("robert").links.is_empty()
    });
}

pub fn nothing_stays_behind() {
    let street = Street::new();
    let before = [street.ann(), street.bob()].map(|machine| listing(&machine.space));
    let [ann, bob] = street.met();
    let connection = street.connect(true);
    assert!(listing(&street.ann().space).contains("fdab:51ab:51ab:6:"));
    street.ann().client().down().unwrap();
    assert!(ann.wait());
    assert_eq!(listing(&street.ann().space), before[0]);
    drop(connection);
    // The next start takes back what a kill has left.
    bob.kill();
    assert_ne!(listing(&street.bob().space), before[1]);
    let bob = street.bob().start();
    street.bob().client().down().unwrap();
    assert!(bob.wait());
    assert_eq!(listing(&street.bob().space), before[1]);
}
