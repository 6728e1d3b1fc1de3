//! Small UDP packets there and back, as many as go: what a packet of a flow costs.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::tcp::bound_socket;

/// How packets went.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct ExchangeReport {
    /// Packets that came back.
    pub exchanged: u64,
    /// Packets that did not.
    pub lost: u64,
    /// Length of the run.
    pub seconds: f64,
}

/// Sends packets of one flow to an [`echo`](super::ping::echo), [`BURST`] at a time, each burst when the one before has come back.
///
/// # Errors
/// If there can be no socket or nothing comes back at all.
pub fn exchange(server: SocketAddr, length: Duration) -> Result<ExchangeReport> {
    let socket = bound_socket(server, socket2::Type::DGRAM, None, None)?;
    let socket: UdpSocket = socket.into();
    socket.connect(server).with_context(|| format!("connecting to {server}"))?;
    socket.set_read_timeout(Some(PATIENCE)).context("setting the read time-out")?;
    let mut report = ExchangeReport { exchanged: 0, lost: 0, seconds: 0.0 };
    let start = Instant::now();
    while start.elapsed() < length {
        for _ in 0..BURST {
            socket.send(&[7; PACKET]).context("sending a packet")?;
        }
        for received in 0..BURST {
            if socket.recv(&mut [0; PACKET]).is_err() {
                report.lost += BURST - received;
                break;
            }
            report.exchanged += 1;
        }
    }
    report.seconds = start.elapsed().as_secs_f64();
    ensure!(report.exchanged > 0, "no packet came back from {server}");
    Ok(report)
}

/// Few enough for any socket's buffer.
const BURST: u64 = 32;
/// Bytes of content.
const PACKET: usize = 64;
const PATIENCE: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_counted() {
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The server lives as long as the test's process.
        std::thread::spawn(move || super::super::ping::echo(address));
        let report = (0..100).find_map(|_| {
            std::thread::sleep(Duration::from_millis(50));
            exchange(address, Duration::from_millis(100)).ok()
        });
        let report = report.unwrap();
        assert!(report.exchanged >= BURST && report.seconds >= 0.1, "{report:?}");
    }
}
