//! A device that knows several gateways: which one it takes, and what makes it move.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anabranch::control::{CarrierKind, EventSequence, SessionState};
use identity::{Ipv4Pool, Registry, RegistryPlace, SharedRegistry};
use linux::netns::Namespace;

use crate::bed::{Bed, Daemon, SECOND, SECOND_V4, SERVER_V4, VAN_AT_SECOND, eventually, within};
use crate::database::Database;
use crate::scenarios::nft;

/// What the device calls them.
const FIRST_NAME: &str = "gateway";
const SECOND_NAME: &str = "gateway-2";

/// Both gateways, whose devices know both.
fn both(bed: &Bed) -> (Daemon, Daemon) {
    let gateways = (bed.start("gateway"), bed.start(SECOND));
    bed.join_at("gateway", "device");
    bed.join_at(SECOND, "device");
    gateways
}

fn serving(bed: &Bed) -> Option<String> {
    let status = bed.client("device").status().ok()?;
    status.far_end.filter(|_| status.state == SessionState::Up).map(|end| end.name)
}

fn connected_at(bed: &Bed, gateway: &str) -> bool {
    bed.client(gateway).gateway_clients().unwrap().clients.iter().any(|client| client.connected)
}

/// Datagrams to a port go on to another place after a while, and so do the answers.
struct SlowWay {
    stop: Arc<AtomicBool>,
}

impl SlowWay {
    fn open(space: &Namespace, local: &str, remote: &str, delay: Duration) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let bind = |address: &str| {
            let socket = space.run(|| UdpSocket::bind(address)).unwrap().unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            Arc::new(socket)
        };
        let (front, remote): (_, SocketAddr) = (bind(local), remote.parse().unwrap());
        // One socket towards the gateway for each address that datagrams come from.
        let ways: Arc<Mutex<BTreeMap<SocketAddr, Arc<UdpSocket>>>> = Arc::default();
        let backs: Vec<Arc<UdpSocket>> = (0..8).map(|_| bind("0.0.0.0:0")).collect();
        let (sender, receiver) = mpsc::channel::<(Instant, Arc<UdpSocket>, SocketAddr, Vec<u8>)>();
        std::thread::spawn(move || {
            for (due, socket, to, bytes) in receiver {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                drop(socket.send_to(&bytes, to));
            }
        });
        let receive = |socket: Arc<UdpSocket>, mut take: Box<dyn FnMut(SocketAddr, Vec<u8>) + Send>| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 2_048];
                while !stop.load(Ordering::Relaxed) {
                    if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                        take(from, buffer[..length].to_vec());
                    }
                }
            });
        };
        for back in &backs {
            let (ways, front, sender, own) = (ways.clone(), front.clone(), sender.clone(), back.clone());
            let take = move |_, bytes| {
                let ways = ways.lock().unwrap();
                let to = ways.iter().find(|(_, way)| Arc::ptr_eq(way, &own)).map(|(to, _)| *to);
                if let Some(to) = to {
                    drop(sender.send((Instant::now() + delay, front.clone(), to, bytes)));
                }
            };
            receive(back.clone(), Box::new(take));
        }
        let take = move |from, bytes| {
            let mut ways = ways.lock().unwrap();
            let next = backs[ways.len() % backs.len()].clone();
            let way = ways.entry(from).or_insert(next).clone();
            drop(sender.send((Instant::now() + delay, way, remote, bytes)));
        };
        receive(front, Box::new(take));
        Self { stop }
    }
}

impl Drop for SlowWay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The gateway that is called first is tried with a long way to it, then the other.
pub fn the_nearest_serves() {
    for (slow, nearest) in [("gateway", SECOND_NAME), (SECOND, FIRST_NAME)] {
        let bed = Bed::with_second_gateway();
        let real = if slow == SECOND { SECOND_V4 } else { "198.51.100.1" };
        let _way =
            SlowWay::open(&bed.gateway, "10.2.0.1:4700", &format!("{real}:4600"), Duration::from_millis(40));
        let config = "[gateway]\ndns = []\ntcp = \"off\"\npublic_addresses = [\"10.2.0.1:4700\"]\n";
        bed.write_config(slow, config);
        let _gateways = both(&bed);
        for _ in 0..3 {
            let device = bed.start("device");
            bed.wait_until_up();
            assert_eq!(serving(&bed).as_deref(), Some(nearest));
            bed.download(SERVER_V4, 300_000, || {});
            // The other one has answered meanwhile, and was told goodbye.
            std::thread::sleep(Duration::from_millis(300));
            assert_eq!(serving(&bed).as_deref(), Some(nearest));
            assert!(!connected_at(&bed, slow), "nothing of the try remains");
            bed.client("device").down().unwrap();
            assert!(device.wait());
        }
    }
}

/// Opens a connection to the server through any0, again and again until there is one; how long that took.
fn new_connection(bed: &Bed, port: u16) -> Duration {
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(20) {
        let limit = Duration::from_millis(5_000);
        let stream = bed.device.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
        if let Ok(mut stream) = stream {
            stream.set_read_timeout(Some(limit)).unwrap();
            let mut answer = [0; 5];
            if stream.read_exact(&mut answer).is_ok() && &answer == b"hello" {
                return start.elapsed();
            }
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("no new connection comes about");
}

/// A server that says hello to each connection and goes on sending to those on the other port.
fn serve_hello(bed: &Bed) -> (u16, u16) {
    let listen = |port: u16| {
        let address = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
        bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap()
    };
    let (hello, flood) = (listen(8_081), listen(8_082));
    std::thread::spawn(move || {
        use std::io::Write;
        while let Ok((mut stream, _)) = hello.accept() {
            drop(stream.write_all(b"hello"));
        }
    });
    std::thread::spawn(move || {
        use std::io::Write;
        while let Ok((mut stream, _)) = flood.accept() {
            std::thread::spawn(move || {
                while stream.write_all(&[7; 10_000]).is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
    (8_081, 8_082)
}

/// A download that goes on until it breaks.
fn traffic(bed: &Bed, port: u16) {
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
    let mut stream = bed.device.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let mut buffer = vec![0; 65_536];
    assert!(stream.read(&mut buffer).unwrap() > 0);
    std::thread::spawn(move || while stream.read(&mut buffer).is_ok_and(|count| count > 0) {});
}

/// Both gateways keep their clients in the database; the second has these addresses to tell.
fn share_registry(bed: &Bed, database: &Database, addresses: &[&str]) {
    let place = SharedRegistry { connection: database.connection(), certificates: None };
    drop(Registry::create(RegistryPlace::Shared(place), Ipv4Pool::default()).unwrap());
    for (role, addresses) in [("gateway", &["198.51.100.1"][..]), (SECOND, addresses)] {
        let text = format!(
            "name = \"{role}\"\n[gateway]\ndns = []\npublic_addresses = {addresses:?}\nregistry = \"{}\"\n",
            database.connection()
        );
        bed.write_config(role, &text);
    }
}

/// The device has the link of one gateway, which shares its clients with another.
pub fn those_that_one_names_are_used() {
    let Some(database) = Database::start() else { return };
    let bed = Bed::with_second_gateway();
    share_registry(&bed, &database, &[SECOND_V4]);
    let _second = bed.start(SECOND);
    let first = bed.start("gateway");
    bed.join_at("gateway", "device");
    let _device = bed.start("device");
    bed.wait_until_up();
    let known = || fs::read_to_string(bed.directory("device").join("peers.toml")).unwrap();
    eventually("the other gateway is known", || known().contains("name = \"second\"\n"));
    assert!(known().contains("learned_from"), "{}", known());
    let (hello, flood) = serve_hello(&bed);
    new_connection(&bed, hello);
    let addresses = bed.status().addresses;
    traffic(&bed, flood);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(serving(&bed).as_deref(), Some(FIRST_NAME));
    first.kill();
    let took = new_connection(&bed, hello);
    println!("a new connection by a gateway that was only named: {took:?}");
    assert_eq!(serving(&bed).as_deref(), Some(SECOND));
    assert_eq!(bed.status().addresses, addresses);
    assert!(took < Duration::from_secs(2), "{took:?}");

    // It is taken off the list, and the one with the link says so once the device is there again.
    let _first = bed.start("gateway");
    share_registry(&bed, &database, &[]);
    bed.client(SECOND).reload().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    bed.client(SECOND).down().unwrap();
    eventually("the device is back", || serving(&bed).as_deref() == Some(FIRST_NAME));
    eventually("the other gateway is forgotten", || {
        bed.client("gateway").reload().unwrap();
        !known().contains("learned_from")
    });
    assert!(known().contains("name = \"gateway\""), "{}", known());
    bed.download(SERVER_V4, 300_000, || {});
}

pub fn a_killed_one_is_left_in_traffic() {
    let Some(database) = Database::start() else { return };
    let bed = Bed::with_second_gateway();
    share_registry(&bed, &database, &[SECOND_V4]);
    let (first, second) = both(&bed);
    let mut gateways = BTreeMap::from([("gateway", first), (SECOND, second)]);
    let _device = bed.start("device");
    bed.wait_until_up();
    let (hello, flood) = serve_hello(&bed);
    new_connection(&bed, hello);
    let addresses = bed.status().addresses;
    let mut took = Vec::new();
    for _ in 0..3 {
        let old = serving(&bed).unwrap();
        let role = if old == FIRST_NAME { "gateway" } else { SECOND };
        traffic(&bed, flood);
        std::thread::sleep(Duration::from_millis(500));
        gateways.remove(role).unwrap().kill();
        took.push(new_connection(&bed, hello));
        let status = bed.status();
        assert_ne!(serving(&bed).unwrap(), old);
        assert_eq!(status.addresses, addresses, "the registry is one");
        // It comes back and is left alone.
        gateways.insert(role, bed.start(role));
        std::thread::sleep(Duration::from_millis(1_500));
        assert_ne!(serving(&bed).unwrap(), old);
        assert!(!connected_at(&bed, role));
    }
    println!("new connections after a gateway was killed: {took:?}");
    let worst = took.iter().max().unwrap();
    assert!(*worst < Duration::from_secs(2), "{took:?}");
}

pub fn a_goodbye_moves_at_once() {
    let bed = Bed::with_second_gateway();
    let (first, second) = both(&bed);
    let mut gateways = BTreeMap::from([(FIRST_NAME, ("gateway", first)), (SECOND_NAME, (SECOND, second))]);
    let _device = bed.start("device");
    bed.wait_until_up();
    let old = serving(&bed).unwrap();
    let (role, gateway) = gateways.remove(old.as_str()).unwrap();
    bed.client(role).down().unwrap();
    let start = Instant::now();
    within(Duration::from_secs(2), "the device moves", || serving(&bed).is_some_and(|now| now != old));
    println!("moved {:?} after the goodbye", start.elapsed());
    assert!(gateway.wait());
    bed.download(SERVER_V4, 500_000, || {});
    let events = bed.client("device").events(EventSequence::default()).unwrap();
    assert!(events.iter().any(|event| event.text.contains("the gateway is going down")));
}

pub fn a_dead_network_moves_nothing() {
    let bed = Bed::with_second_gateway();
    let _gateways = both(&bed);
    let _device = bed.start("device");
    bed.wait_until_up();
    bed.download(SERVER_V4, 300_000, || {});
    let before = bed.status().far_end;
    let silence = |links: &str| {
        let text = format!(
            "table inet silence {{ chain i {{ type filter hook prerouting priority -400; iifname {links} drop; }} \
             chain o {{ type filter hook postrouting priority 400; oifname {links} drop; }} }}"
        );
        nft(&bed.gateway, &text);
    };
    // One of two, in a transfer.
    bed.download(SERVER_V4, 4_000_000, || {
        std::thread::sleep(Duration::from_millis(300));
        silence("\"lan0\"");
    });
    assert_eq!(bed.status().far_end, before);
    // All, for longer than it takes to knock at others, and again and again.
    for _ in 0..4 {
        nft(&bed.gateway, "delete table inet silence");
        eventually("the session is up", || bed.status().state == SessionState::Up);
        silence("\"lan*\"");
        let packet = format!("echo > /dev/udp/{SERVER_V4}/9");
        eventually("nothing answers", || {
            bed.device.command("bash").unwrap().args(["-c", &packet]).status().unwrap();
            bed.status().state == SessionState::NoNetwork
        });
        std::thread::sleep(Duration::from_millis(1_000));
    }
    nft(&bed.gateway, "delete table inet silence");
    eventually("the session is up", || bed.status().state == SessionState::Up);
    assert_eq!(bed.status().far_end.map(|end| end.name), before.map(|end| end.name));
    bed.download(SERVER_V4, 300_000, || {});
}

pub fn one_revokes_and_the_other_serves() {
    let bed = Bed::with_second_gateway();
    let _gateways = both(&bed);
    let _device = bed.start("device");
    bed.wait_until_up();
    let old = serving(&bed).unwrap();
    let mut clients = [("gateway", "van"), (SECOND, VAN_AT_SECOND)];
    if old == SECOND_NAME {
        clients.reverse();
    }
    let [(role, name), (other, other_name)] = clients;
    bed.client(role).revoke(name).unwrap();
    within(Duration::from_secs(2), "the device moves", || serving(&bed).is_some_and(|now| now != old));
    // The one that revoked it is asked again only when it is needed, and then refuses: still no reason to leave the other.
    std::thread::sleep(Duration::from_secs(6));
    assert!(serving(&bed).is_some_and(|now| now != old));
    bed.download(SERVER_V4, 500_000, || {});
    bed.client(other).revoke(other_name).unwrap();
    eventually("no gateway is left", || bed.status().state == SessionState::Refused);
    let why = bed.status().why;
    assert!(why.contains("does not know this device"), "{why}");
}

pub fn they_are_found_where_udp_is_blocked() {
    let bed = Bed::with_second_gateway();
    nft(
        &bed.gateway,
        "table inet no_udp { chain c { type filter hook prerouting priority -10; iifname \"lan*\" meta l4proto udp drop; } }",
    );
    let (first, second) = both(&bed);
    let mut gateways = BTreeMap::from([(FIRST_NAME, first), (SECOND_NAME, second)]);
    let _device = bed.start("device");
    bed.wait_until_up();
    let (hello, _) = serve_hello(&bed);
    new_connection(&bed, hello);
    let old = serving(&bed).unwrap();
    gateways.remove(old.as_str()).unwrap().kill();
    let took = new_connection(&bed, hello);
    println!("a new connection {took:?} after the gateway was killed, over TCP alone");
    let status = bed.status();
    assert_ne!(status.far_end.unwrap().name, old);
    let mut carriers = status.networks.iter().flat_map(|network| &network.paths).map(|path| path.carrier);
    assert!(carriers.all(|carrier| carrier == CarrierKind::Tcp));
    assert!(took < Duration::from_secs(3), "{took:?}");
}
