//! What a small UDP packet costs, out and in, by the processor's cycle counter.
//!
//! ```text
//! cycles: N packets, each send timed ---> cycles-serve
//!         "begin" --------------------->
//!         <--- N packets, each send timed; then the times
//! ```
//! Between namespaces of one machine a send carries its packet the whole way to the receiving socket, so what the receiving side's tables
//! cost is in the sender's time as well. What both ways have in common goes away in the difference to another set-up.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use linux::cycles;
use serde::{Deserialize, Serialize};

use super::tcp::bound_socket;

/// Cycles of each of many packets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Cycles {
    /// Half of them took no more.
    pub median: f64,
    /// The mean of those between the tenth and the ninetieth part of a hundred: without interrupts.
    pub middle_mean: f64,
}

/// Packets both ways.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct CyclesReport {
    /// From here.
    pub out: Cycles,
    /// To here.
    pub back: Cycles,
    /// Reading the counter twice with nothing between.
    pub nothing: Cycles,
}

impl Cycles {
    /// Of `samples`, of which there must be some.
    pub fn of(mut samples: Vec<u64>) -> Option<Self> {
        samples.sort_unstable();
        let median = *samples.get(samples.len() / 2)? as f64;
        let middle = &samples[samples.len() / 10..(samples.len() * 9).div_ceil(10)];
        Some(Self { median, middle_mean: middle.iter().sum::<u64>() as f64 / middle.len() as f64 })
    }

    /// Times `what` so many times.
    ///
    /// # Errors
    /// Its own, and if this processor has no counter.
    pub fn measure(count: u32, mut what: impl FnMut() -> Result<()>) -> Result<Self> {
        let mut samples = Vec::with_capacity(count as usize);
        for _ in 0..count {
            let began = cycles::now().context("this processor has no cycle counter that we know")?;
            what()?;
            samples.push(cycles::now().unwrap_or(began) - began);
        }
        Self::of(samples).context("nothing was measured")
    }
}

/// Takes packets, and sends some when asked, until ended.
///
/// # Errors
/// If the address cannot be used.
pub fn serve(listen: SocketAddr) -> Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("listening on {listen}"))?;
    let mut buffer = [0; 2_048];
    loop {
        let (length, from) = socket.recv_from(&mut buffer).context("receiving packets")?;
        let Some(count) = buffer[..length].strip_prefix(BEGIN).and_then(|rest| rest.try_into().ok()) else {
            continue;
        };
        let count = u32::from_le_bytes(count).min(MOST);
        let measured = Cycles::measure(count, || {
            socket.send_to(&[7; PACKET], from).context("sending a packet").map(drop)
        })?;
        thread::sleep(REST);
        socket.send_to(&serde_json::to_vec(&measured)?, from).context("sending the times")?;
    }
}

/// Exchanges `count` packets each way with a [`serve`].
///
/// # Errors
/// If it does not answer, or this processor has no cycle counter.
pub fn exchange(server: SocketAddr, count: u32) -> Result<CyclesReport> {
    ensure!((1..=MOST).contains(&count), "1 to {MOST} packets can be counted");
    let socket = bound_socket(server, socket2::Type::DGRAM, None, None)?;
    let socket: UdpSocket = socket.into();
    socket.connect(server).with_context(|| format!("connecting to {server}"))?;
    socket.set_read_timeout(Some(PATIENCE)).context("setting the read time-out")?;
    let out = Cycles::measure(count, || socket.send(&[7; PACKET]).context("sending a packet").map(drop))?;
    thread::sleep(REST);
    socket.send(&[BEGIN, &count.to_le_bytes()].concat()).context("asking for packets")?;
    let mut buffer = [0; 2_048];
    let back = loop {
        let length = socket.recv(&mut buffer).context("receiving packets")?;
        if buffer[0] == b'{' {
            break serde_json::from_slice(&buffer[..length]).context("reading the times")?;
        }
    };
    Ok(CyclesReport { out, back, nothing: Cycles::measure(count, || Ok(()))? })
}

const BEGIN: &[u8] = b"begin";
/// Bytes of content.
const PACKET: usize = 40;
const MOST: u32 = 1_000_000;
const PATIENCE: Duration = Duration::from_secs(5);
/// Time to read what came before, lest a full buffer refuse what counts.
const REST: Duration = Duration::from_millis(50);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_without_interrupts() {
        let samples =
            (0..100).map(|number| if number == 50 { 1_000_000 } else { 100 + number % 2 }).collect();
        let cycles = Cycles::of(samples).unwrap();
        assert!((100.0..=101.0).contains(&cycles.median) && cycles.middle_mean < 101.0, "{cycles:?}");
        assert_eq!(Cycles::of(Vec::new()), None);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn packets_cost_more_than_nothing() {
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = probe.local_addr().unwrap();
        drop(probe);
        // The server lives as long as the test's process.
        thread::spawn(move || serve(server));
        thread::sleep(Duration::from_millis(50));
        let report = exchange(server, 200).unwrap();
        assert!(report.out.median > report.nothing.median && report.back.median > report.nothing.median);
    }
}
