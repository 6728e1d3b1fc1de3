//! How many bytes interfaces move, interval by interval: what a model of their cards is fed with.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// What interfaces moved.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CountersReport {
    /// Length of an interval.
    pub interval_ms: u64,
    /// How many there were.
    pub intervals: u64,
    /// By interface, the intervals in which something moved.
    pub moved: BTreeMap<String, Vec<Moved>>,
}

/// What moved in one interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Moved {
    /// Number of the interval, from 0.
    pub interval: u64,
    /// Bytes sent, with headers.
    pub sent: u64,
    /// Bytes received, with headers.
    pub received: u64,
}

/// Looks at the counters of `interfaces` every `interval` for as long as `length`.
///
/// # Errors
/// If there is no such interface.
pub fn watch(interfaces: &[String], interval: Duration, length: Duration) -> Result<CountersReport> {
    let mut moved: BTreeMap<String, Vec<Moved>> = BTreeMap::new();
    let mut before = interfaces.iter().map(|name| counters(name)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    let intervals = (length.as_nanos() / interval.as_nanos().max(1)) as u64;
    for number in 0..intervals {
        let end = interval.saturating_mul(u32::try_from(number + 1)?);
        thread::sleep(end.saturating_sub(start.elapsed()));
        for (name, before) in interfaces.iter().zip(&mut before) {
            let now = counters(name)?;
            let (sent, received) = (now.0.saturating_sub(before.0), now.1.saturating_sub(before.1));
            *before = now;
            if sent + received > 0 {
                moved.entry(name.clone()).or_default().push(Moved { interval: number, sent, received });
            }
        }
    }
    Ok(CountersReport { interval_ms: interval.as_millis() as u64, intervals, moved })
}

/// Bytes that an interface sent and received since it is there.
fn counters(interface: &str) -> Result<(u64, u64)> {
    let directory = Path::new("/sys/class/net").join(interface).join("statistics");
    let read = |file: &str| -> Result<u64> {
        let path = directory.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        text.trim().parse().with_context(|| format!("a number in {}", path.display()))
    };
    Ok((read("tx_bytes")?, read("rx_bytes")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;

    #[test]
    fn what_an_interface_moves_is_seen() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let sender = thread::spawn(move || {
            for _ in 0..10 {
                socket.send_to(&[0; 1_000], address).unwrap();
                thread::sleep(Duration::from_millis(10));
            }
        });
        let report =
            watch(&["lo".to_owned()], Duration::from_millis(20), Duration::from_millis(200)).unwrap();
        sender.join().unwrap();
        assert_eq!((report.interval_ms, report.intervals), (20, 10));
        let sent: u64 = report.moved["lo"].iter().map(|moved| moved.sent).sum();
        assert!(sent >= 8_000, "{report:?}");
        assert!(watch(&["none".to_owned()], Duration::from_millis(1), Duration::ZERO).is_err());
    }
}
