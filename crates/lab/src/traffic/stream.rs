//! A stream that the far end sends by itself, at a steady pace: what waits on the way waits before the near end, not in it.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::tcp::bound_socket;

/// Begins a request; no ping is as short as one.
const MARK: [u8; 8] = *b"stream 1";
/// The mark, how many packets, and the microseconds from one to the next.
const REQUEST_LENGTH: usize = MARK.len() + 2 * size_of::<u32>();
/// Bytes of each packet; the first eight are its number.
const PACKET_LENGTH: usize = 64;
/// Nobody asks for more than an hour of them at once.
const MOST_PACKETS: u32 = 3_600_000;

/// What came of a stream.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamReport {
    /// Packets asked for.
    pub asked: u64,
    /// The numbers of those that never came, from 0.
    pub missing: Vec<u64>,
    /// The longest time between two that came.
    pub longest_gap_milliseconds: f64,
}

/// What is asked of the far end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Request {
    packets: u32,
    interval: Duration,
}

impl Request {
    /// `None` if it is none, or asks for too much.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (packets, interval) = bytes.strip_prefix(&MARK)?.split_first_chunk()?;
        let packets = u32::from_le_bytes(*packets);
        let interval = Duration::from_micros(u32::from_le_bytes(interval.try_into().ok()?).into());
        (packets <= MOST_PACKETS).then_some(Self { packets, interval })
    }

    fn encode(self) -> Result<[u8; REQUEST_LENGTH]> {
        let interval = u32::try_from(self.interval.as_micros()).context("the interval is too long")?;
        let mut bytes = [0; REQUEST_LENGTH];
        bytes[..8].copy_from_slice(&MARK);
        bytes[8..12].copy_from_slice(&self.packets.to_le_bytes());
        bytes[12..].copy_from_slice(&interval.to_le_bytes());
        Ok(bytes)
    }

    /// Sends them, in a thread of their own.
    pub(super) fn serve(self, socket: UdpSocket, to: SocketAddr) {
        thread::spawn(move || {
            let start = Instant::now();
            for number in 0..self.packets {
                thread::sleep((start + self.interval * number).saturating_duration_since(Instant::now()));
                let mut packet = [0; PACKET_LENGTH];
                packet[..8].copy_from_slice(&u64::from(number).to_le_bytes());
                // A route that is gone for now is what the near end measures.
                let _ = socket.send_to(&packet, to);
            }
        });
    }
}

/// Has an `echo` send a packet each `interval` for `length`, and waits another second for them.
///
/// # Errors
/// If the socket cannot be made, too much is asked for, or nothing comes at all: the request may have been lost.
pub fn receive(
    server: SocketAddr,
    interval: Duration,
    length: Duration,
    interface: Option<&str>,
) -> Result<StreamReport> {
    let packets = length.as_nanos().checked_div(interval.as_nanos()).context("the interval is nothing")?;
    let packets = u32::try_from(packets).ok().filter(|packets| *packets <= MOST_PACKETS);
    let packets = packets.with_context(|| format!("at most {MOST_PACKETS} packets are sent at once"))?;
    let socket: UdpSocket = bound_socket(server, socket2::Type::DGRAM, None, interface)?.into();
    socket.send_to(&Request { packets, interval }.encode()?, server).context("asking for a stream")?;

    let until = Instant::now() + length + Duration::from_secs(1);
    let (mut arrived, mut last, mut longest) = (vec![false; packets as usize], None, Duration::ZERO);
    let mut buffer = [0; PACKET_LENGTH + 1];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left.max(Duration::from_millis(1)))).context("waiting for packets")?;
        // Time-outs and "unreachable" answers end in another look at the clock.
        let Ok((PACKET_LENGTH, _)) = socket.recv_from(&mut buffer) else { continue };
        let Some(number) = buffer.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { continue };
        if let Some(place) = usize::try_from(number).ok().and_then(|number| arrived.get_mut(number)) {
            *place = true;
            let now = Instant::now();
            longest = last.map_or(longest, |last| longest.max(now.duration_since(last)));
            last = Some(now);
        }
    }
    ensure!(last.is_some(), "no packet of the stream came from {server}");
    let missing = (0..).zip(&arrived).filter(|(_, arrived)| !**arrived).map(|(number, _)| number).collect();
    Ok(StreamReport { asked: packets.into(), missing, longest_gap_milliseconds: longest.as_secs_f64() * 1e3 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::ping;

    #[test]
    fn requests_are_read_back_and_others_are_none() {
        let request = Request { packets: 500, interval: Duration::from_millis(2) };
        let bytes = request.encode().unwrap();
        assert_eq!(Request::parse(&bytes), Some(request));
        assert_eq!(Request::parse(&bytes[..15]), None);
        assert_eq!(Request::parse(&[0; 64]), None);
        let much = Request { packets: MOST_PACKETS + 1, ..request };
        assert_eq!(Request::parse(&much.encode().unwrap()), None);
    }

    #[test]
    fn what_is_asked_for_comes() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = probe.local_addr().unwrap();
        drop(probe);
        // The echo lives as long as the test's process.
        thread::spawn(move || ping::echo(server));
        thread::sleep(Duration::from_millis(50));
        let report =
            receive(server, Duration::from_millis(5), Duration::from_millis(100), Some("lo")).unwrap();
        assert_eq!((report.asked, report.missing), (20, Vec::new()));
        assert!(report.longest_gap_milliseconds > 0.0);
    }
}
