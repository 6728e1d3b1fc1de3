//! Somebody who listens where an upload passes, and sends what it likes into the homes' LAN.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use linux::netns::Namespace;
use linux::packet_socket::PacketSocket;

use super::Homes;

/// Where the homes' frames go (`crates/anabranch/src/upload/air`).
const GROUP: (Ipv4Addr, u16) = (Ipv4Addr::new(239, 255, 97, 99), 4_615);
const STRANGER: Ipv4Addr = Ipv4Addr::new(192, 168, 7, 200);
/// Frames that are kept.
const MOST_KEPT: usize = 40_000;
/// Bytes of a frame's header and authenticator.
const HEADER: usize = wire::upload::AIR_HEADER_LEN;
const AUTHENTICATOR: usize = wire::upload::AUTHENTICATOR_LEN;
/// Between two frames of an attack.
const BETWEEN: Duration = Duration::from_millis(1);

/// A thread that ends with this value.
struct Task {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Task {
    fn start(turn: impl FnMut() + Send + 'static) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let (asked, mut turn) = (Arc::clone(&ends), turn);
        let thread = std::thread::spawn(move || {
            while !asked.load(Ordering::Relaxed) {
                turn();
            }
        });
        Self { ends, thread: Some(thread) }
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A machine of the LAN that nobody knows. It keeps all frames that it hears.
pub struct Stranger {
    socket: UdpSocket,
    heard: Arc<Mutex<Vec<Vec<u8>>>>,
    _listens: Task,
}

impl Stranger {
    pub fn new(homes: &Homes) -> Self {
        homes.switch.add_address("lan", format!("{STRANGER}/24").parse().unwrap()).unwrap();
        let mut route = homes.switch.command("ip").unwrap();
        assert!(route.args(["route", "add", "224.0.0.0/4", "dev", "lan"]).status().unwrap().success());
        let socket = homes.switch.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, GROUP.1)).unwrap()).unwrap();
        socket.join_multicast_v4(&GROUP.0, &STRANGER).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (hears, keeps) = (socket.try_clone().unwrap(), Arc::clone(&heard));
        let mut buffer = vec![0; 4_096];
        let listens = Task::start(move || {
            let own = |from: SocketAddr| from.ip() == STRANGER;
            if let Ok((length, from)) = hears.recv_from(&mut buffer)
                && !own(from)
            {
                let mut kept = keeps.lock().unwrap();
                if kept.len() < MOST_KEPT {
                    kept.push(buffer[..length].to_vec());
                }
            }
        });
        Self { socket, heard, _listens: listens }
    }

    /// What was heard so far.
    pub fn heard(&self) -> Vec<Vec<u8>> {
        self.heard.lock().unwrap().clone()
    }

    /// Sends what was heard once more, bent copies of it, and what was never a frame, hundreds a second.
    pub fn attack(&self) -> Attack {
        let (socket, heard) = (self.socket.try_clone().unwrap(), Arc::clone(&self.heard));
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let mut chance = Chance(1);
        let task = Task::start(move || {
            let frame = {
                let heard = heard.lock().unwrap();
                let at = chance.below(heard.len().max(1));
                heard.get(at).cloned().unwrap_or_default()
            };
            let turn = counted.load(Ordering::Relaxed);
            let frame = bent(frame, turn, &mut chance);
            // What the LAN does not take is lost, as on any.
            if socket.send_to(&frame, GROUP).is_ok() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::sleep(BETWEEN);
        });
        Attack { sent, _task: task }
    }
}

/// Goes on until dropped.
pub struct Attack {
    sent: Arc<AtomicU64>,
    _task: Task,
}

impl Attack {
    /// Frames that were sent.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Half of the frames stay as they are.
fn bent(mut frame: Vec<u8>, turn: u64, chance: &mut Chance) -> Vec<u8> {
    let length = frame.len();
    if length <= HEADER + AUTHENTICATOR {
        return frame;
    }
    let body = HEADER..length - AUTHENTICATOR;
    let mut flip = |part: std::ops::Range<usize>, chance: &mut Chance| {
        let at = part.start + chance.below(part.len());
        frame[at] ^= 1 << chance.below(8);
    };
    match turn % 12 {
        0 => flip(0..HEADER, chance),
        1 => flip(body, chance),
        2 => flip(length - AUTHENTICATOR..length, chance),
        3 => frame.truncate(chance.below(length)),
        4 => frame.extend((0..chance.below(3_000)).map(|_| 0x5a)),
        5 => {
            frame = (0..1 + chance.below(1_400)).map(|_| chance.below(256) as u8).collect();
            // Of the kinds that are on the air.
            frame[0] = [0x50, 0x51, 0x5f][chance.below(3)];
        }
        _ => {}
    }
    frame
}

/// Multiplier and increment of Knuth's MMIX.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// What passes by the interfaces of a machine.
pub struct Tap {
    passed: Arc<Mutex<Vec<Vec<u8>>>>,
    _listens: Task,
}

impl Tap {
    pub fn new(machine: &Namespace) -> Self {
        // Interface 0 is all of them.
        let mut socket = machine.run(|| PacketSocket::open(0).unwrap()).unwrap();
        let passed = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&passed);
        let listens = Task::start(move || {
            let mut kept = keeps.lock().unwrap();
            let received = socket.receive(&mut |frame: &[u8]| {
                if kept.len() < MOST_KEPT {
                    kept.push(frame.to_vec());
                }
            });
            drop(kept);
            match received {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                received => drop(received.unwrap()),
            }
        });
        Self { passed, _listens: listens }
    }

    /// What has passed so far, link headers included.
    pub fn passed(&self) -> Vec<Vec<u8>> {
        self.passed.lock().unwrap().clone()
    }
}
