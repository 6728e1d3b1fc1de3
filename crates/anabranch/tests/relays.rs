//! Virtual sockets over relays, between network namespaces in which each sees only the next. Needs root, and is left out without.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anabranch::blocking::{Endpoint, VirtualStream};
use anabranch::{Admission, ConnectError, ConnectOptions, EndpointOptions, Peer, Relaying, Relays};
use identity::KeyPair;
use linux::netns::Namespace;
use units::BitRate;

/// Machines, of which some pairs have a cable between them.
struct Bed {
    machines: Vec<Namespace>,
}

impl Bed {
    /// `None` without the privileges for it.
    fn new(machines: usize, cables: &[(usize, usize)]) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: not root");
            return None;
        }
        let machines: Vec<Namespace> = (0..machines).map(|_| Namespace::anonymous().unwrap()).collect();
        for (number, (one, other)) in cables.iter().enumerate() {
            let (here, there) = (format!("to{other}"), format!("to{one}"));
            let (one, other) = (&machines[*one], &machines[*other]);
            one.join(other, &here, &there).unwrap();
            one.add_address(&here, format!("10.20.{number}.1/24").parse().unwrap()).unwrap();
            other.add_address(&there, format!("10.20.{number}.2/24").parse().unwrap()).unwrap();
        }
        Some(Self { machines })
    }

    fn chain(machines: usize) -> Option<Self> {
        let cables: Vec<(usize, usize)> = (1..machines).map(|at| (at - 1, at)).collect();
        Self::new(machines, &cables)
    }

    fn endpoint(&self, machine: usize, relays: Relays) -> (Endpoint, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let options = EndpointOptions::listening(key.clone(), 4_612, Admission::Anybody);
        let options = EndpointOptions { patience: Duration::from_secs(15), relays, ..options };
        (self.machines[machine].run(|| Endpoint::bind(options)).unwrap().unwrap(), key)
    }

    fn relay(&self, machine: usize) -> Endpoint {
        self.endpoint(
            machine,
            Relays::Offered(Relaying { rate: BitRate(1_000_000_000), ..Relaying::default() }),
        )
        .0
    }
}

/// IPv6 addresses are tried out by the kernel for a second or two before they serve (RFC 4862 section 5.4).
const SETTLED: Duration = Duration::from_millis(2_500);

/// Who is called where it is not: only its key and port count.
fn peer(key: &KeyPair) -> Peer {
    Peer { key: key.public(), addresses: vec!["192.0.2.1:4612".parse().unwrap()] }
}

fn patient(seconds: u64) -> ConnectOptions {
    ConnectOptions { deadline: Duration::from_secs(seconds), ..ConnectOptions::default() }
}

/// Sends bytes there and compares what comes back; how long it took.
fn echo(near: VirtualStream, far: VirtualStream, bytes: usize) -> Duration {
    let sent: Vec<u8> = (0..bytes).map(|at| (at as u64).wrapping_mul(0x9e37_79b9).to_be_bytes()[3]).collect();
    let mut far = far;
    let echo = std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        loop {
            match far.read(&mut buffer).unwrap() {
                0 => return far.finish().unwrap(),
                count => far.write_all(&buffer[..count]).unwrap(),
            }
        }
    });
    let ((mut near, mut writer), start) = (near.split(), Instant::now());
    let all = sent.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&all).unwrap();
        writer.finish().unwrap();
    });
    let mut received = Vec::new();
    near.read_to_end(&mut received).unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    let took = start.elapsed();
    writing.join().unwrap();
    echo.join().unwrap();
    took
}

#[test]
fn a_connection_goes_over_four_hops() {
    let Some(bed) = Bed::chain(5) else { return };
    let relays: Vec<Endpoint> = (1..4).map(|at| bed.relay(at)).collect();
    let (far, key) = bed.endpoint(4, Relays::Used);
    let listener = far.listen();
    let (near, _) = bed.endpoint(0, Relays::Used);
    std::thread::sleep(SETTLED);
    let start = Instant::now();
    let stream = near.connect(&peer(&key), &patient(5)).unwrap();
    println!("connected after {:?}, {:?}", start.elapsed(), stream.standing());
    let mut stream = stream;
    stream.write_all(&[1]).unwrap();
    let mut incoming = listener.accept().unwrap();
    incoming.read_exact(&mut [0]).unwrap();
    let took = echo(stream, incoming, 5_000_000);
    println!("5 MB there and back in {took:?}");
    for relay in &relays {
        println!("{:?}", relay.asynchronous().relayed());
        assert!(relay.asynchronous().relayed().data_passed_on > 1_000);
    }
}

#[test]
fn a_cable_to_the_peer_takes_over_from_the_relays_and_gives_back() {
    let Some(bed) = Bed::chain(3) else { return };
    std::thread::sleep(SETTLED);
    let relay = bed.relay(1);
    let (far, key) = bed.endpoint(2, Relays::Used);
    let listener = far.listen();
    let (near, _) = bed.endpoint(0, Relays::Used);
    let mut stream = near.connect(&peer(&key), &patient(20)).unwrap();
    let mut incoming = None;
    let (ends, name) = ([&bed.machines[0], &bed.machines[2]], "direct");
    let mut carried = |by: &str| {
        let deadline = Instant::now() + Duration::from_secs(15);
        while stream.standing().adapter.as_deref() != Some(by) {
            assert!(Instant::now() < deadline, "{:?}, not {by}", stream.standing());
            std::thread::sleep(Duration::from_millis(10));
        }
        stream.write_all(&[7; 1_000]).unwrap();
        let incoming = incoming.get_or_insert_with(|| listener.accept().unwrap());
        incoming.read_exact(&mut [0; 1_000]).unwrap();
    };
    carried("relays");
    ends[0].join(ends[1], name, name).unwrap();
    ends[0].add_address(name, "10.22.0.1/24".parse().unwrap()).unwrap();
    ends[1].add_address(name, "10.22.0.2/24".parse().unwrap()).unwrap();
    carried(name);
    ends[1].set_up(name, false).unwrap();
    carried("relays");
    assert!(relay.asynchronous().relayed().data_passed_on > 10);
}

#[test]
fn who_was_not_told_to_relays_nothing() {
    let Some(bed) = Bed::chain(3) else { return };
    let (middle, _) = bed.endpoint(1, Relays::Used);
    let (far, key) = bed.endpoint(2, Relays::Used);
    let _listener = far.listen();
    let (near, _) = bed.endpoint(0, Relays::Used);
    let refused = near.connect(&peer(&key), &patient(2)).err().unwrap();
    assert!(matches!(refused, ConnectError::NoAnswer { .. }), "{refused}");
    assert_eq!(middle.asynchronous().relayed().data_passed_on, 0);
}

#[test]
fn another_way_is_taken_when_a_relay_falls_silent() {
    // Two ways of four hops from 0 to 4: by 1, 2, 3 and by 5, 6, 7.
    let cables = [(0, 1), (1, 2), (2, 3), (3, 4), (0, 5), (5, 6), (6, 7), (7, 4)];
    let Some(bed) = Bed::new(8, &cables) else { return };
    std::thread::sleep(SETTLED);
    let relays: Vec<(usize, Endpoint)> = [1, 2, 3, 5, 6, 7].map(|at| (at, bed.relay(at))).into();
    let (far, key) = bed.endpoint(4, Relays::Used);
    let listener = far.listen();
    let (near, _) = bed.endpoint(0, Relays::Used);
    std::thread::sleep(SETTLED);
    let mut stream = near.connect(&peer(&key), &patient(5)).unwrap();
    let mut nft = Vec::new();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = std::sync::Arc::clone(&stop);
    let writing = std::thread::spawn(move || {
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            stream.write_all(&[5; 8]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        stream.finish().unwrap();
    });
    let mut incoming = listener.accept().unwrap();
    let reading = std::thread::spawn(move || {
        let (mut last, mut longest, mut buffer) = (Instant::now(), Duration::ZERO, [0; 1_024]);
        while incoming.read(&mut buffer).unwrap() > 0 {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        longest
    });
    std::thread::sleep(Duration::from_secs(1));
    for trial in 0..6 {
        let passed = |at: &usize| {
            relays.iter().find(|(known, _)| known == at).unwrap().1.asynchronous().relayed().data_passed_on
        };
        let before = [passed(&1), passed(&5)];
        std::thread::sleep(Duration::from_millis(200));
        let way = if passed(&1) - before[0] > passed(&5) - before[1] { 1 } else { 5 };
        let relay = way + trial % 3;
        eprintln!("silence {relay}");
        let run = |script: &str| {
            assert!(bed.machines[relay].command("nft").unwrap().arg(script).status().unwrap().success());
        };
        run(
            "add table inet silence; add chain inet silence in { type filter hook input priority 0; policy drop; }",
        );
        nft.push(relay);
        std::thread::sleep(Duration::from_secs(4));
        run("delete table inet silence");
        std::thread::sleep(Duration::from_millis(500));
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.join().unwrap();
    let longest = reading.join().unwrap();
    println!("longest gap {longest:?}");
    // The silence was longer: another way was taken.
    assert!(longest < Duration::from_secs(3), "{longest:?}");
}

/// A relay that takes part in the routing as it should, and does with the packets what it likes.
mod hostile {
    use super::{Namespace, Relaying};
    use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use identity::{KeyPair, PublicKey};
    use linux::clock;
    use linux::group::{Group, GroupSocket};
    use linux::udp::{ReceiveBuffer, UdpPath};
    use mesh::{Forwarding, Hop, Recipient, Router, Settings, Signer};
    use rand::{Rng, SeedableRng};
    use units::{BitRate, NetworkId};
    use wire::mesh::{LinkAddress, Message, Node, PURPOSE, Sequence, Signature};

    struct Key(KeyPair);

    impl Signer for Key {
        fn sign(&self, message: &[u8]) -> Signature {
            Signature(self.0.sign(PURPOSE, message))
        }

        fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
            PublicKey(*key).has_signed(PURPOSE, message, &signature.0)
        }
    }

    /// As in `sockets/relays.rs`; a second implementation of the protocol has to know it.
    const GROUP: Group = Group {
        v4: Ipv4Addr::new(239, 255, 97, 98),
        v6: Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x616e, 0x6162),
        port: 4_614,
    };

    /// Runs until told to stop, between the interfaces with these names, numbers and addresses.
    pub fn start(machine: &Namespace, links: Vec<(String, u32, SocketAddr)>, stop: Arc<AtomicBool>) {
        let sockets: Vec<(UdpPath, GroupSocket)> = machine
            .run(|| {
                let open = |(name, index, local): &(String, u32, SocketAddr)| {
                    let to = linux::BindTo { interface: Some(name.clone()), local: *local, mark: None };
                    (UdpPath::bind(&to).unwrap(), GroupSocket::open(&GROUP, name, *index, false).unwrap())
                };
                links.iter().map(open).collect()
            })
            .unwrap();
        std::thread::spawn(move || run(&sockets, &stop));
    }

    fn run(sockets: &[(UdpPath, GroupSocket)], stop: &AtomicBool) {
        let key = KeyPair::generate().unwrap();
        let node = Node { key: key.public().0, port: 4_612 };
        let relaying = Some(Relaying { rate: BitRate(1_000_000_000), ..Relaying::default() });
        let settings = Settings { relaying, ..Settings::default() };
        let mut router = Router::new(clock::now(), settings, node, Box::new(Key(key)), Sequence(1), 1);
        let mut random = rand::rngs::StdRng::seed_from_u64(7);
        let mut late: Vec<(units::Timestamp, Hop, Vec<u8>)> = Vec::new();
        let mut buffer = ReceiveBuffer::new();
        let send = |hop: Hop, bytes: &[u8]| {
            let LinkAddress::V4(address, port) = hop.address else { return };
            let socket = &sockets[hop.network.0 as usize].0;
            let _ = socket.send((address, port).into(), None, 0, bytes, None);
        };
        while !stop.load(Ordering::Relaxed) {
            let mut arrived: Vec<(Hop, Vec<u8>)> = Vec::new();
            let hop = |at: usize, from: SocketAddr| {
                let SocketAddr::V4(from) = from else { panic!("{from}") };
                Hop { network: NetworkId(at as u32), address: LinkAddress::V4(*from.ip(), from.port()) }
            };
            for (at, (socket, group)) in sockets.iter().enumerate() {
                for _ in 0..50 {
                    let read = socket.receive(&mut buffer, &mut |datagram| {
                        arrived.push((hop(at, datagram.remote), datagram.bytes.to_vec()));
                    });
                    if read.unwrap_or(0) == 0 {
                        break;
                    }
                }
                let mut message = [0; 2_048];
                while let Some((length, from)) = group.receive(&mut message).unwrap() {
                    if from != socket.local_address() {
                        arrived.push((hop(at, from), message[..length].to_vec()));
                    }
                }
            }
            let now = clock::now();
            for (from, bytes) in arrived {
                let Ok(Message::Data(header, payload)) = Message::parse(&bytes) else {
                    router.handle_message(now, from, &bytes);
                    continue;
                };
                let passed = router.handle_data(now, from, header, bytes.len());
                let Forwarding::PassOn(next, header) = passed else { continue };
                let mut packet = Vec::new();
                header.put(&mut packet);
                packet.extend_from_slice(payload);
                match random.random_range(0..20) {
                    0 => {}
                    1 => {
                        let at = random.random_range(0..packet.len());
                        packet[at] ^= 1 << random.random_range(0..8);
                        send(next, &packet);
                    }
                    2 => {
                        send(next, &packet);
                        send(next, &packet);
                    }
                    3 => packet.truncate(random.random_range(0..packet.len())),
                    4..7 => {
                        late.push((now + Duration::from_millis(random.random_range(1..20)), next, packet))
                    }
                    _ => send(next, &packet),
                }
            }
            for (_, hop, packet) in late.extract_if(.., |(due, ..)| *due <= now) {
                send(hop, &packet);
            }
            if router.poll_timeout().is_some_and(|due| due <= now) {
                router.handle_timeout(now);
            }
            while let Some(transmit) = router.poll_transmit() {
                match transmit.to {
                    Recipient::One(hop) => send(hop, &transmit.bytes),
                    Recipient::Everybody => {
                        for (socket, _) in sockets {
                            let _ = socket.send(GROUP.address(false, 0), None, 0, &transmit.bytes, None);
                        }
                    }
                }
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }
}

#[test]
fn a_hostile_relay_costs_time_and_no_byte() {
    let Some(bed) = Bed::chain(3) else { return };
    std::thread::sleep(SETTLED);
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let monitor = bed.machines[1].run(linux::monitor::Monitor::open).unwrap().unwrap();
    let number = |name: &str| monitor.interfaces().find(|interface| interface.name == name).unwrap().index;
    let links = vec![
        ("to0".to_owned(), number("to0"), "10.20.0.2:4612".parse().unwrap()),
        ("to2".to_owned(), number("to2"), "10.20.1.1:4612".parse().unwrap()),
    ];
    hostile::start(&bed.machines[1], links, std::sync::Arc::clone(&stop));
    let (far, key) = bed.endpoint(2, Relays::Used);
    let listener = far.listen();
    let (near, _) = bed.endpoint(0, Relays::Used);
    let mut stream = near.connect(&peer(&key), &patient(20)).unwrap();
    stream.write_all(&[1]).unwrap();
    let mut incoming = listener.accept().unwrap();
    incoming.read_exact(&mut [0]).unwrap();
    let took = echo(stream, incoming, 400_000);
    println!("400 kB there and back over a relay that loses, changes, doubles and delays: {took:?}");
    // It is gone for ever: the connection ends by itself.
    let waiting = near.connect(&peer(&key), &patient(5));
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let start = Instant::now();
    if let Ok(mut stream) = waiting {
        assert!(stream.read(&mut [0; 10]).is_err());
    }
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
}
