//! Programs that know nothing of peers reach those whom no link leads to, by name: over a router, and over relays.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anabranch::blocking::Endpoint;
use anabranch::control::BlockingClient;
use anabranch::{Admission, EndpointOptions, Relaying, Relays};
use identity::{KeyPair, Peers, PublicKey, StateDirectory, any0_address, wall_time};
use linux::netns::Namespace;
use tempfile::TempDir;
use units::BitRate;

use crate::bed::{Daemon, eventually};

/// What lies between the two.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Between {
    /// A router, which forwards packets.
    Router,
    /// A machine that forwards no packets, and relays.
    Relay,
}

struct Machine {
    space: Namespace,
    directory: PathBuf,
    key: KeyPair,
}

struct Valley {
    ann: Machine,
    bob: Machine,
    _middle: Namespace,
    _relay: Option<Endpoint>,
    _directory: TempDir,
}

const FAR: [&str; 2] = ["10.41.0.2", "10.42.0.2"];

impl Machine {
    fn new(directory: PathBuf) -> Self {
        let key = KeyPair::load_or_create(&StateDirectory::create(&directory).unwrap()).unwrap();
        let text = "[device]\ngateway = \"none\"\nprobe = \"off\"\npeers = true\n";
        fs::write(directory.join("config.toml"), text).unwrap();
        Self { space: Namespace::anonymous().unwrap(), directory, key }
    }

    /// Knows another by a name, and perhaps where it is.
    fn meet(&self, name: &str, key: PublicKey, address: Option<&str>) {
        let state = StateDirectory::create(&self.directory).unwrap();
        Peers::change(&state, |peers| peers.acquaint(name, key, self.key.public(), wall_time())).unwrap();
        if let Some(address) = address {
            let path = self.directory.join("peers.toml");
            let text = fs::read_to_string(&path).unwrap();
            fs::write(&path, text.replace("addresses = []", &format!("addresses = [\"{address}:4610\"]")))
                .unwrap();
        }
    }

    /// In mounts of its own, as it takes over the names of its machine.
    fn start(&self) -> Daemon {
        let file = self.directory.join("resolv.conf");
        fs::write(&file, "nameserver 10.99.0.1\n").unwrap();
        let mut command = self.space.command("unshare").unwrap();
        let script = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(file);
        command.arg(std::env::current_exe().unwrap()).args(["DAEMON", "device"]).arg(&self.directory);
        let daemon = Daemon::of(command.spawn().unwrap());
        let client = || BlockingClient::of_state(&self.directory).unwrap();
        eventually("the daemon answers", || client().status().is_ok());
        daemon
    }

    /// What the daemon's server answers to a question for addresses, by the number of their type.
    fn look_up(&self, name: &str, kind: u8) -> Vec<u8> {
        let mut question = vec![1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            question.push(label.len() as u8);
            question.extend(label.bytes());
        }
        question.extend([0, 0, kind, 0, 1]);
        let socket = self.space.run(|| UdpSocket::bind("127.0.0.1:0")).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut answer = vec![0; 512];
        eventually("the name is answered", || {
            socket.send_to(&question, "127.0.86.53:53").unwrap();
            socket.recv(&mut answer.clone()).is_ok()
        });
        socket.send_to(&question, "127.0.86.53:53").unwrap();
        let length = socket.recv(&mut answer).unwrap();
        answer.truncate(length);
        answer.split_off(question.len())
    }

    fn address(&self) -> IpAddr {
        any0_address::v6_of(self.key.public()).into()
    }
}

impl Valley {
    fn new(between: Between) -> Self {
        let directory = TempDir::new().unwrap();
        let [ann, bob] = ["ann", "bob"].map(|name| Machine::new(directory.path().join(name)));
        let middle = Namespace::anonymous().unwrap();
        for (number, machine) in [&ann, &bob].into_iter().enumerate() {
            let port = format!("port{number}");
            machine.space.join(&middle, "up0", &port).unwrap();
            machine.space.set_up("lo", true).unwrap();
            machine.space.add_address("up0", format!("{}/24", FAR[number]).parse().unwrap()).unwrap();
            middle.add_address(&port, format!("10.4{}.0.1/24", number + 1).parse().unwrap()).unwrap();
            let router: IpAddr = format!("10.4{}.0.1", number + 1).parse().unwrap();
            machine.space.add_route("up0", "0.0.0.0/0".parse().unwrap(), Some(router), None).unwrap();
        }
        let forwards = if between == Between::Router { "1" } else { "0" };
        middle.set_sysctl("net.ipv4.ip_forward", forwards).unwrap();
        let relay = (between == Between::Relay).then(|| {
            let options = EndpointOptions::listening(KeyPair::generate().unwrap(), 4_612, Admission::Nobody);
            let relays = Relays::Offered(Relaying { rate: BitRate(500_000_000), ..Relaying::default() });
            middle.run(|| Endpoint::bind(EndpointOptions { relays, ..options })).unwrap().unwrap()
        });
        let hint = (between == Between::Router).then_some(FAR[1]);
        ann.meet("bob", bob.key.public(), hint);
        // Whoever is called need not know from where.
        bob.meet("ann", ann.key.public(), None);
        Self { ann, bob, _middle: middle, _relay: relay, _directory: directory }
    }
}

fn programs_reach_each_other(valley: &Valley) {
    let (ann, bob) = (&valley.ann, &valley.bob);
    let _daemons = [ann.start(), bob.start()];
    let IpAddr::V6(address) = bob.address() else { panic!("no IPv6 address") };
    let records = ann.look_up("bob.anabranch.internal", 28);
    assert_eq!(records[records.len() - 16..], address.octets(), "{records:?}");
    let v4 = any0_address::v4_of(bob.key.public());
    let records = ann.look_up("bob.anabranch.internal", 1);
    assert_eq!(records[records.len() - 4..], v4.octets(), "{records:?}");
    assert!(ann.look_up("eve.anabranch.internal", 28).is_empty());

    for (to, from) in
        [(IpAddr::V6(address), ann.address()), (v4.into(), any0_address::v4_of(ann.key.public()).into())]
    {
        let listener = bob.space.run(|| TcpListener::bind(SocketAddr::new(to, 8_080))).unwrap().unwrap();
        let serving = std::thread::spawn(move || {
            let (mut stream, caller) = listener.accept().unwrap();
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes).unwrap();
            stream.write_all(&bytes).unwrap();
            caller.ip()
        });
        let limit = Duration::from_secs(30);
        let call = || TcpStream::connect_timeout(&SocketAddr::new(to, 8_080), limit);
        let mut stream = ann.space.run(call).unwrap().unwrap();
        let sent: Vec<u8> = (0..300_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        stream.write_all(&sent).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = Vec::new();
        stream.read_to_end(&mut back).unwrap();
        assert!(back == sent, "{} of {} bytes came back right", back.len(), sent.len());
        assert_eq!(serving.join().unwrap(), from, "known by its any0 address");
    }

    // UDP, and what is said to everybody.
    let listen = |address: &str| {
        let socket = bob.space.run(|| UdpSocket::bind(address)).unwrap().unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        socket
    };
    let hears = |what: &str, socket: &UdpSocket, say: &dyn Fn()| {
        eventually(what, || {
            say();
            let mut bytes = [0; 16];
            socket.recv_from(&mut bytes).is_ok_and(|(length, _)| bytes[..length] == *b"hello")
        });
    };
    let heard = listen(&format!("[{address}]:9000"));
    let speaker = ann.space.run(|| UdpSocket::bind("[::]:0")).unwrap().unwrap();
    hears("a datagram arrives", &heard, &|| drop(speaker.send_to(b"hello", (address, 9_000))));
    let heard = listen("0.0.0.0:9001");
    let speaker = ann.space.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    speaker.set_broadcast(true).unwrap();
    hears("a broadcast arrives", &heard, &|| drop(speaker.send_to(b"hello", "255.255.255.255:9001")));

    // Whoever is not known is not reached, and not waited for.
    let nobody: Ipv6Addr = "fdab:51ab:51ab:6::9".parse().unwrap();
    assert!(ann.space.run(|| TcpStream::connect((nobody, 80))).unwrap().is_err());
}

pub fn a_peer_behind_a_router_is_reached_by_name() {
    programs_reach_each_other(&Valley::new(Between::Router));
}

pub fn a_peer_behind_a_relay_is_reached_by_name() {
    programs_reach_each_other(&Valley::new(Between::Relay));
}
