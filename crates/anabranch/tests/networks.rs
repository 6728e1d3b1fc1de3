//! Virtual sockets between network namespaces whose links come and go. Needs root, and is left out without.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anabranch::blocking::{Endpoint, VirtualStream};
use anabranch::{Admission, ConnectOptions, EndpointOptions, EventKind, Peer};
use identity::KeyPair;
use linux::monitor::Monitor;
use linux::netns::Namespace;
use std::io::{Read, Write};

/// Two machines with as many cables between them as asked for.
struct Bed {
    near: Namespace,
    far: Namespace,
}

/// A connection between them, and what happens to it as the near end sees it.
struct Pair {
    client: Endpoint,
    server: Endpoint,
    near: VirtualStream,
    far: VirtualStream,
    events: Arc<Mutex<Vec<EventKind>>>,
}

impl Bed {
    /// `None` without the privileges for it.
    fn new(cables: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: not root");
            return None;
        }
        let bed = Self { near: Namespace::anonymous().unwrap(), far: Namespace::anonymous().unwrap() };
        for cable in 0..cables {
            bed.plug(cable);
        }
        Some(bed)
    }

    fn plug(&self, cable: usize) {
        let name = format!("cable{cable}");
        self.near.join(&self.far, &name, &name).unwrap();
        self.near.add_address(&name, format!("10.9.{cable}.1/24").parse().unwrap()).unwrap();
        self.far.add_address(&name, format!("10.9.{cable}.2/24").parse().unwrap()).unwrap();
        self.near.run(|| wait_for_carrier(&name)).unwrap();
        self.far.run(|| wait_for_carrier(&name)).unwrap();
    }

    fn connect(&self) -> Pair {
        self.connect_as([KeyPair::generate().unwrap(), KeyPair::generate().unwrap()], Duration::from_secs(15))
    }

    /// With these keys of the near and the far end, which wait so long for a network.
    fn connect_as(&self, keys: [KeyPair; 2], patience: Duration) -> Pair {
        let [own, key] = keys;
        let public = key.public();
        let options = EndpointOptions::listening(key, 4700, Admission::Anybody);
        let options = EndpointOptions { patience, ..options };
        let server = self.far.run(|| Endpoint::bind(options)).unwrap().unwrap();
        let listener = server.listen();
        let own = EndpointOptions { patience, ..EndpointOptions::new(own) };
        let client = self.near.run(|| Endpoint::bind(own)).unwrap().unwrap();
        let events = Arc::new(Mutex::new(Vec::new()));
        let (log, heard) = (Arc::clone(&events), client.events());
        std::thread::spawn(move || heard.for_each(|event| log.lock().unwrap().push(event.kind)));
        let peer = Peer { key: public, addresses: vec!["10.9.0.2:4700".parse().unwrap()] };
        let mut near = client.connect(&peer, &ConnectOptions::default()).unwrap();
        near.write_all(&[1]).unwrap();
        let mut far = listener.accept().unwrap();
        far.read_exact(&mut [0]).unwrap();
        std::mem::forget(listener);
        Pair { client, server, near, far, events }
    }
}

/// The kernel tells of a new cable's carrier up to a second late where both ends have the same interface number.
fn wait_for_carrier(name: &str) {
    let mut monitor = Monitor::open().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !monitor.interfaces().any(|interface| interface.name == name && interface.is_running()) {
        assert!(Instant::now() < deadline, "{name} has no carrier");
        std::thread::sleep(Duration::from_millis(5));
        monitor.read_events().unwrap();
    }
}

/// Drops all packets of the cables named, at the near end, until called without any.
fn silence(bed: &Bed, cables: &[&str]) {
    let nft = |script: &str| {
        let ran = bed.near.command("nft").unwrap().arg(script).status().unwrap();
        assert!(ran.success(), "{script}");
    };
    nft("add table inet silence; add chain inet silence in { type filter hook input priority 0; }; \
         add chain inet silence out { type filter hook output priority 0; }; flush table inet silence");
    for cable in cables {
        nft(&format!(
            "add rule inet silence in iifname {cable} drop; add rule inet silence out oifname {cable} drop"
        ));
    }
}

impl Pair {
    /// The near end's events so far.
    fn events(&self) -> Vec<EventKind> {
        self.events.lock().unwrap().clone()
    }

    fn wait_for_paths(&self, count: usize) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while self.near.standing().paths < count {
            assert!(Instant::now() < deadline, "{:?} {:?}", self.near.standing(), self.events());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn byte(at: u64) -> u8 {
    ((at / 3).wrapping_mul(0x9e37_79b9) >> 16) as u8 ^ at as u8
}

/// A busy machine stands still by itself now and then: what it can do it must have done in one of so many attempts.
fn in_one_of_three(limit: Duration, attempt: impl Fn() -> Option<Duration>) {
    let mut found = Vec::new();
    for _ in 0..3 {
        let Some(took) = attempt() else { return };
        println!("{took:?}");
        if took < limit {
            return;
        }
        found.push(took);
    }
    panic!("not below {limit:?}: {found:?}");
}

/// Sends for as long as `go_on` says so, and checks every byte at the other end; the longest time without any.
fn transfer(sender: VirtualStream, receiver: VirtualStream, go_on: impl FnOnce()) -> (Duration, u64) {
    let (mut sender, mut receiver) = (sender, receiver);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let told = Arc::clone(&stop);
    let writing = std::thread::spawn(move || {
        let mut at = 0u64;
        while !told.load(std::sync::atomic::Ordering::Relaxed) {
            let bytes: Vec<u8> = (at..at + 4_000).map(byte).collect();
            sender.write_all(&bytes).unwrap();
            at += 4_000;
            // Some Mbit/s: the gaps are to be those of the networks.
            std::thread::sleep(Duration::from_millis(2));
        }
        sender.finish().unwrap();
        at
    });
    let reading = std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        let (mut at, mut longest, mut last) = (0u64, Duration::ZERO, Instant::now());
        loop {
            let count = receiver.read(&mut buffer).unwrap();
            longest = longest.max(last.elapsed());
            last = Instant::now();
            if count == 0 {
                return (at, longest);
            }
            for found in &buffer[..count] {
                assert_eq!(*found, byte(at), "byte {at}");
                at += 1;
            }
        }
    });
    go_on();
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    let sent = writing.join().unwrap();
    let (received, longest) = reading.join().unwrap();
    assert_eq!(sent, received);
    (longest, received)
}

#[test]
fn all_pairs_of_adapters_that_reach_each_other_become_paths() {
    let Some(bed) = Bed::new(2) else { return };
    let pair = bed.connect();
    // The peer's second address is known from itself.
    pair.wait_for_paths(2);
}

#[test]
fn a_cable_that_is_pulled_out_costs_less_than_200_ms_and_no_byte() {
    in_one_of_three(Duration::from_millis(200), || {
        let bed = Bed::new(2)?;
        let pair = bed.connect();
        pair.wait_for_paths(2);
        let Pair { client, server, near, far, events } = pair;
        let carries = near.standing().adapter.unwrap();
        let (longest, _) = transfer(near, far, || {
            std::thread::sleep(Duration::from_millis(500));
            bed.far.set_up(&carries, false).unwrap();
            std::thread::sleep(Duration::from_millis(1_000));
        });
        let events = events.lock().unwrap().clone();
        assert!(
            events.iter().any(|event| matches!(event, EventKind::Switch { from, .. } if *from == carries)),
            "{events:?}"
        );
        drop((client, server));
        Some(longest)
    });
}

/// Nothing passes any more, and neither kernel knows: the transport must find out. Ten times, by turns.
#[test]
fn a_network_that_falls_silent_costs_less_than_200_ms_and_no_byte() {
    in_one_of_three(Duration::from_millis(200), || {
        let bed = Bed::new(2)?;
        let pair = bed.connect();
        pair.wait_for_paths(2);
        let Pair { client, server, near, far, .. } = pair;
        let (longest, _) = transfer(near, far, || {
            for trial in 0..10 {
                std::thread::sleep(Duration::from_millis(500));
                let cable = format!("cable{}", trial % 2);
                silence(&bed, &[&cable]);
                std::thread::sleep(Duration::from_millis(500));
                silence(&bed, &[]);
                // The path is back within half a second.
                std::thread::sleep(Duration::from_millis(700));
            }
        });
        drop((client, server));
        Some(longest)
    });
}

#[test]
fn a_connection_is_there_in_less_than_10_ms_on_a_lan() {
    let Some(bed) = Bed::new(1) else { return };
    let key = KeyPair::generate().unwrap();
    let peer = Peer { key: key.public(), addresses: vec!["10.9.0.2:4700".parse().unwrap()] };
    let options = EndpointOptions::listening(key, 4700, Admission::Anybody);
    let server = bed.far.run(|| Endpoint::bind(options)).unwrap().unwrap();
    let listener = server.listen();
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let own = EndpointOptions::new(KeyPair::generate().unwrap());
            let client = bed.near.run(|| Endpoint::bind(own)).unwrap().unwrap();
            let start = Instant::now();
            let stream = client.connect(&peer, &ConnectOptions::default()).unwrap();
            let took = start.elapsed();
            drop((stream, client));
            took
        })
        .collect();
    times.sort();
    println!("set-up: least {:?}, median {:?}, most {:?}", times[0], times[10], times[19]);
    // The median is a matter of what else the machine does.
    assert!(times[0] < Duration::from_millis(10), "{times:?}");
}

#[test]
fn a_connection_without_networks_waits_for_one() {
    let Some(bed) = Bed::new(1) else { return };
    let pair = bed.connect();
    let Pair { client, server, near, far, events } = pair;
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(300));
        bed.near.set_up("cable0", false).unwrap();
        std::thread::sleep(Duration::from_millis(4_000));
        bed.near.set_up("cable0", true).unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
    });
    println!("longest gap {longest:?}");
    assert!(longest > Duration::from_secs(3) && longest < Duration::from_secs(12), "{longest:?}");
    let events = events.lock().unwrap().clone();
    assert!(events.iter().any(|event| matches!(event, EventKind::Off { suspended: true, .. })), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, EventKind::On { .. })), "{events:?}");
    drop((client, server));
}

#[test]
fn a_machine_moves_to_another_network_with_other_addresses() {
    let Some(bed) = Bed::new(1) else { return };
    let pair = bed.connect();
    let Pair { client, server, near, far, .. } = pair;
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(300));
        // Never both at once: what the peer knows of this end is wrong from then on.
        bed.near.delete_link("cable0").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        bed.plug(0);
        bed.near.add_address("cable0", "10.9.0.77/24".parse().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(4_000));
    });
    println!("longest gap {longest:?}");
    assert!(longest < Duration::from_secs(12), "{longest:?}");
    drop((client, server));
}

#[test]
fn the_end_that_was_called_may_come_back_on_a_new_network() {
    let Some(bed) = Bed::new(1) else { return };
    let pair = bed.connect();
    let Pair { client, server, near, far, .. } = pair;
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(300));
        bed.near.delete_link("cable0").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        // Another adapter and another address: the caller knows nothing that leads there, so the other end must call.
        bed.near.join(&bed.far, "radio", "radio").unwrap();
        bed.near.add_address("radio", "10.9.0.1/24".parse().unwrap()).unwrap();
        bed.far.add_address("radio", "10.9.0.3/24".parse().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(6_000));
    });
    println!("longest gap {longest:?}");
    assert!(longest < Duration::from_secs(14), "{longest:?}");
    drop((client, server));
}

/// After so long both ends call, and both calls arrive when the network is back: one must win, whoever has the smaller key.
#[test]
fn both_ends_may_call_each_other_at_once() {
    for smaller_is_near in [true, false] {
        let Some(bed) = Bed::new(1) else { return };
        let mut keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        if (keys[0].public() < keys[1].public()) != smaller_is_near {
            keys.swap(0, 1);
        }
        let Pair { client, server, near, far, .. } = bed.connect_as(keys, Duration::from_secs(15));
        let (longest, _) = transfer(near, far, || {
            for trial in 0..5 {
                std::thread::sleep(Duration::from_millis(300));
                silence(&bed, &["cable0"]);
                std::thread::sleep(Duration::from_millis(2_500 + 370 * trial));
                silence(&bed, &[]);
                std::thread::sleep(Duration::from_millis(2_000));
            }
        });
        println!("longest gap {longest:?}");
        assert!(longest < Duration::from_secs(14), "{longest:?}");
        drop((client, server));
    }
}

/// The network that carries becomes slow; the other one takes over before it is gone.
#[test]
fn a_switch_to_a_better_network_is_not_felt() {
    // A round trip of the network that is left is 60 ms with its queue; a busy machine needs some of its own.
    in_one_of_three(Duration::from_millis(120), slow_network_left);
}

/// The longest gap while a network that has become slow is left; very long if it was lost first. `None` without privileges.
fn slow_network_left() -> Option<Duration> {
    let bed = Bed::new(2)?;
    let pair = bed.connect();
    pair.wait_for_paths(2);
    let Pair { client, server, near, far, events } = pair;
    let carries = loop {
        match near.standing().adapter {
            Some(adapter) if adapter.starts_with("cable") => break adapter,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    const QUEUE: &str = "60ms";
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(500));
        for machine in [&bed.near, &bed.far] {
            let mut tc = machine.command("tc").unwrap();
            tc.args([
                "qdisc", "add", "dev", &carries, "root", "tbf", "rate", "6mbit", "burst", "8k", "latency",
                QUEUE,
            ]);
            assert!(tc.status().unwrap().success());
        }
        // It is left once its round trips have become longer, which takes a queue; how long that takes is congestion control's matter.
        let left = |event: &EventKind| matches!(event, EventKind::Switch { from, .. } if *from == carries);
        let deadline = Instant::now() + Duration::from_secs(120);
        while !events.lock().unwrap().iter().any(left) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(500));
    });
    let events = events.lock().unwrap().clone();
    println!("longest gap {longest:?}, {events:?}");
    let first = events.iter().find(|event| match event {
        EventKind::Switch { from: adapter, .. } | EventKind::Off { adapter, .. } => *adapter == carries,
        _ => false,
    });
    drop((client, server));
    Some(if matches!(first, Some(EventKind::Switch { .. })) { longest } else { Duration::MAX })
}

#[test]
fn a_peer_that_vanishes_for_ever_is_an_error_in_time() {
    let Some(bed) = Bed::new(2) else { return };
    let patience = Duration::from_secs(3);
    let Pair { client, server, near, far, .. } =
        bed.connect_as([KeyPair::generate().unwrap(), KeyPair::generate().unwrap()], patience);
    silence(&bed, &["cable0", "cable1"]);
    let start = Instant::now();
    let ends: Vec<_> = [near, far]
        .into_iter()
        .map(|stream| {
            std::thread::spawn(move || {
                let mut stream = stream;
                // What nobody takes must not be waited for for ever either.
                let written = std::iter::repeat_with(|| stream.write_all(&[7; 60_000])).find_map(Result::err);
                (written.unwrap(), stream.read(&mut [0]).unwrap_err())
            })
        })
        .collect();
    for end in ends {
        let (written, read) = end.join().unwrap();
        assert_eq!(
            (written.kind(), read.kind()),
            (std::io::ErrorKind::TimedOut, std::io::ErrorKind::TimedOut)
        );
        assert!(written.to_string().contains("no network reached"), "{written}");
    }
    let took = start.elapsed();
    assert!(took > patience && took < patience + Duration::from_secs(10), "{took:?}");
    drop((client, server));
}
