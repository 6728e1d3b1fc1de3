//! Two network namespaces with cables between them, and a connection over these.

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch::blocking::{Endpoint, ReadHalf, VirtualStream, WriteHalf};
use anabranch::{Admission, ConnectOptions, EndpointOptions, EventKind, Peer};
use identity::KeyPair;
use linux::monitor::Monitor;
use linux::netns::Namespace;

/// Two machines with as many cables between them as asked for.
pub struct Bed {
    pub near: Namespace,
    pub far: Namespace,
}

/// A connection between them, and what happens to it as the near end sees it.
pub struct Pair {
    pub client: Endpoint,
    pub server: Endpoint,
    pub near: VirtualStream,
    pub far: VirtualStream,
    pub events: Arc<Mutex<Vec<EventKind>>>,
}

impl Bed {
    /// `None` without the privileges for it.
    pub fn new(cables: usize) -> Option<Self> {
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

    pub fn plug(&self, cable: usize) {
        let name = format!("cable{cable}");
        self.near.join(&self.far, &name, &name).unwrap();
        self.near.add_address(&name, format!("10.9.{cable}.1/24").parse().unwrap()).unwrap();
        self.far.add_address(&name, format!("10.9.{cable}.2/24").parse().unwrap()).unwrap();
        self.near.run(|| wait_for_carrier(&name)).unwrap();
        self.far.run(|| wait_for_carrier(&name)).unwrap();
    }

    pub fn connect(&self) -> Pair {
        self.connect_as([KeyPair::generate().unwrap(), KeyPair::generate().unwrap()], Duration::from_secs(15))
    }

    /// With these keys of the near and the far end, which wait so long for a network.
    pub fn connect_as(&self, keys: [KeyPair; 2], patience: Duration) -> Pair {
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
pub fn silence(bed: &Bed, cables: &[&str]) {
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
    pub fn events(&self) -> Vec<EventKind> {
        self.events.lock().unwrap().clone()
    }

    pub fn wait_for_paths(&self, count: usize) {
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
pub fn in_one_of_three(limit: Duration, attempt: impl Fn() -> Option<Duration>) {
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
pub fn transfer(sender: VirtualStream, receiver: VirtualStream, go_on: impl FnOnce()) -> (Duration, u64) {
    let ((_sender_reads, sender), (receiver, _receiver_writes)) = (sender.split(), receiver.split());
    let flow = Flow::start(sender, receiver);
    go_on();
    flow.end()
}

/// Bytes that go from one end to the other, each of them checked there.
pub struct Flow {
    stop: Arc<AtomicBool>,
    writing: JoinHandle<u64>,
    reading: JoinHandle<(u64, Duration)>,
}

impl Flow {
    pub fn start(mut sender: WriteHalf, mut receiver: ReadHalf) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stop);
        let writing = std::thread::spawn(move || {
            let mut at = 0u64;
            while !told.load(Ordering::Relaxed) {
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
        Self { stop, writing, reading }
    }

    /// Sends no more and waits for what is under way; the longest time without any, and how many bytes have come.
    pub fn end(self) -> (Duration, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let sent = self.writing.join().unwrap();
        let (received, longest) = self.reading.join().unwrap();
        assert_eq!(sent, received);
        (longest, received)
    }
}
