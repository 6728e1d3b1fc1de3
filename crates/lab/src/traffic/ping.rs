//! A UDP ping: round-trip times of small packets at a steady pace.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::stream;
use super::tcp::bound_socket;

/// Round-trip times, in milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PingReport {
    /// Pings sent.
    pub sent: u64,
    /// Answers that came, within a second after the last ping.
    pub received: u64,
    /// Half of them took no longer.
    pub p50_milliseconds: f64,
    /// Nine of ten took no longer.
    pub p90_milliseconds: f64,
    /// 99 of 100 took no longer.
    pub p99_milliseconds: f64,
    /// The slowest.
    pub max_milliseconds: f64,
    /// All of them in the order sent; negative where no answer came.
    pub round_trips: Vec<f64>,
}

/// Sends every packet back to where it came from, and the streams that are asked for. Returns only on error.
///
/// # Errors
/// If the address cannot be used.
pub fn echo(listen: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("listening on {listen}"))?;
    let mut buffer = [0; 2_048];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).context("receiving pings")?;
        if let Some(request) = stream::Request::parse(&buffer[..length]) {
            request.serve(socket.try_clone().context("sharing the socket")?, from);
            continue;
        }
        // A route that is gone for now is what the pinging side measures.
        let _ = socket.send_to(&buffer[..length], from);
    }
}

/// Sends a ping each `interval` for `length`, and waits another second for answers.
///
/// # Errors
/// If the socket cannot be made; lost pings and unreachable networks are results.
pub fn ping(
    server: SocketAddr,
    interval: Duration,
    length: Duration,
    interface: Option<&str>,
) -> Result<PingReport> {
    let socket = bound_socket(server, socket2::Type::DGRAM, None, interface)?;
    // `server` may be everybody's address.
    socket.set_broadcast(true).context("being allowed to send to everybody")?;
    let socket: UdpSocket = socket.into();
    let receiver = socket.try_clone().context("sharing the ping socket")?;
    let start = Instant::now();
    let sending_ends = start + length;
    let answers = thread::spawn(move || receive_answers(&receiver, sending_ends + Duration::from_secs(1)));

    let mut sent_at = Vec::new();
    let mut next = start;
    while next < sending_ends {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        let mut packet = [0; PACKET_LENGTH];
        packet[..8].copy_from_slice(&(sent_at.len() as u64).to_le_bytes());
        sent_at.push(Instant::now());
        // A ping that cannot leave is a lost ping.
        let _ = socket.send_to(&packet, server);
        next += interval;
    }
    let answers = answers.join().map_err(|_| anyhow::anyhow!("the thread that receives answers failed"))?;
    Ok(report(&sent_at, &answers))
}

fn receive_answers(socket: &UdpSocket, until: Instant) -> BTreeMap<u64, Instant> {
    let mut answers = BTreeMap::new();
    let mut buffer = [0; 2_048];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).is_err() {
            return answers;
        }
        // Time-outs and "unreachable" answers end in another look at the clock.
        let Ok((PACKET_LENGTH, _)) = socket.recv_from(&mut buffer) else { continue };
        let mut number = [0; 8];
        number.copy_from_slice(&buffer[..8]);
        answers.entry(u64::from_le_bytes(number)).or_insert_with(Instant::now);
    }
}

fn report(sent_at: &[Instant], answers: &BTreeMap<u64, Instant>) -> PingReport {
    let round_trips: Vec<f64> = sent_at
        .iter()
        .zip(0..)
        .map(|(sent, number)| {
            answers.get(&number).map_or(-1.0, |at| at.duration_since(*sent).as_secs_f64() * 1e3)
        })
        .collect();
    let mut sorted: Vec<f64> = round_trips.iter().copied().filter(|time| *time >= 0.0).collect();
    sorted.sort_by(f64::total_cmp);
    let part = |fraction: f64| {
        let rank = (sorted.len() as f64 * fraction).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(-1.0)
    };
    PingReport {
        sent: sent_at.len() as u64,
        received: sorted.len() as u64,
        p50_milliseconds: part(0.5),
        p90_milliseconds: part(0.9),
        p99_milliseconds: part(0.99),
        max_milliseconds: part(1.0),
        round_trips,
    }
}

const PACKET_LENGTH: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_ranks_and_losses_are_kept() {
        let start = Instant::now();
        let sent: Vec<Instant> = (0..200).map(|number| start + Duration::from_millis(number)).collect();
        // Ping n takes n + 1 ms; every ping from 100 on is lost.
        let answers = (0..100).map(|n| (n, sent[n as usize] + Duration::from_millis(n + 1))).collect();
        let report = report(&sent, &answers);
        assert_eq!((report.sent, report.received), (200, 100));
        assert_eq!(report.p50_milliseconds.round(), 50.0);
        assert_eq!(report.p99_milliseconds.round(), 99.0);
        assert_eq!(report.max_milliseconds.round(), 100.0);
        assert_eq!(report.round_trips[150], -1.0);
    }

    #[test]
    fn an_echo_answers() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = probe.local_addr().unwrap();
        drop(probe);
        // The echo lives as long as the test's process.
        thread::spawn(move || echo(server));
        thread::sleep(Duration::from_millis(50));
        let report = ping(server, Duration::from_millis(10), Duration::from_millis(100), Some("lo")).unwrap();
        assert_eq!((report.sent, report.received), (10, 10));
    }
}
