//! A UDP ping: datagrams with a number that are sent back.

use linux::netns::Namespace;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Time between two pings.
const INTERVAL: Duration = Duration::from_millis(50);
/// How often the threads look whether they are to end.
const PATIENCE: Duration = Duration::from_millis(100);

/// A ping from one namespace to an echo in another; both end when this value is dropped.
pub struct Pinger {
    round_trips: Receiver<Duration>,
    ended: Arc<AtomicBool>,
}

impl Pinger {
    /// Starts the echo on `address` in `server` and the pings from `client`.
    ///
    /// # Errors
    /// If a socket cannot be opened.
    pub fn start(client: &Namespace, server: &Namespace, address: SocketAddr) -> anyhow::Result<Self> {
        let open = |namespace: &Namespace, local: SocketAddr| -> anyhow::Result<UdpSocket> {
            let socket = namespace.run(|| UdpSocket::bind(local))??;
            socket.set_read_timeout(Some(PATIENCE))?;
            Ok(socket)
        };
        let echo = open(server, address)?;
        let pings = open(client, SocketAddr::from(([0, 0, 0, 0], 0)))?;
        let ended = Arc::new(AtomicBool::new(false));
        let (sender, round_trips) = channel();
        let echo_ended = Arc::clone(&ended);
        std::thread::spawn(move || answer(&echo, &echo_ended));
        let receiver = pings.try_clone()?;
        let origin = Instant::now();
        let receive_ended = Arc::clone(&ended);
        std::thread::spawn(move || receive(&receiver, origin, &sender, &receive_ended));
        let send_ended = Arc::clone(&ended);
        std::thread::spawn(move || send(&pings, address, origin, &send_ended));
        Ok(Self { round_trips, ended })
    }

    /// The round-trip times of the answers since the last call.
    pub fn take(&self) -> Vec<Duration> {
        self.round_trips.try_iter().collect()
    }
}

impl Drop for Pinger {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn answer(socket: &UdpSocket, ended: &AtomicBool) {
    let mut bytes = [0; 64];
    while !ended.load(Ordering::Relaxed) {
        if let Ok((count, from)) = socket.recv_from(&mut bytes) {
            // An answer that cannot be sent is a lost one.
            let _ = socket.send_to(&bytes[..count], from);
        }
    }
}

/// Each ping carries when it was sent, in microseconds since `origin`.
fn send(socket: &UdpSocket, to: SocketAddr, origin: Instant, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        let stamp = origin.elapsed().as_micros() as u64;
        // Without a route there is no ping, which shows.
        let _ = socket.send_to(&stamp.to_be_bytes(), to);
        std::thread::sleep(INTERVAL);
    }
}

fn receive(socket: &UdpSocket, origin: Instant, round_trips: &Sender<Duration>, ended: &AtomicBool) {
    let mut bytes = [0; 8];
    while !ended.load(Ordering::Relaxed) {
        if socket.recv_from(&mut bytes).is_ok_and(|(count, _)| count == bytes.len()) {
            let sent = Duration::from_micros(u64::from_be_bytes(bytes));
            if round_trips.send(origin.elapsed().saturating_sub(sent)).is_err() {
                return;
            }
        }
    }
}
