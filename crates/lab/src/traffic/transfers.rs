//! Files moved at set times, each over a connection of its own: what programs of many kinds do over minutes.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::{Congestion, FetchArguments, Transport, tcp};

/// A file to be moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Transfer {
    /// When, milliseconds from the start.
    pub at_ms: u64,
    /// Its length.
    pub bytes: u64,
    /// Sent, not received.
    pub upload: bool,
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TransferReport {
    /// What was asked for.
    pub transfer: Transfer,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Time from the call to the last byte; for what was sent, to the far end's word that it has it.
    pub seconds: f64,
}

/// Reads a list of transfers.
///
/// # Errors
/// If the file holds none.
pub fn read(file: &Path) -> Result<Vec<Transfer>> {
    let text = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("transfers in {}", file.display()))
}

/// Moves them all, at most 10,000; the reports are in the same order.
///
/// # Errors
/// If one of them fails.
pub fn run(server: SocketAddr, transfers: &[Transfer]) -> Result<Vec<TransferReport>> {
    ensure!(transfers.len() <= MOST_TRANSFERS, "at most {MOST_TRANSFERS} transfers");
    let start = Instant::now();
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for transfer in transfers {
            thread::sleep(Duration::from_millis(transfer.at_ms).saturating_sub(start.elapsed()));
            threads.push(scope.spawn(move || run_one(server, *transfer)));
        }
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread ended"))))
            .collect()
    })
}

fn run_one(server: SocketAddr, transfer: Transfer) -> Result<TransferReport> {
    let began = Instant::now();
    let flows = tcp::fetch(&FetchArguments {
        server,
        transport: Transport::Tcp,
        congestion: Congestion::Cubic,
        flows: 1,
        seconds: LONGEST_SECONDS,
        bytes: Some(transfer.bytes),
        upload: transfer.upload,
        message: None,
        interface: None,
        certificate: None,
        json: None,
    })
    .with_context(|| format!("the transfer of {} bytes at {} ms", transfer.bytes, transfer.at_ms))?;
    ensure!(flows.iter().all(|flow| flow.intact), "bytes arrived that were not sent");
    let bytes = flows.iter().map(|flow| flow.bytes).sum();
    Ok(TransferReport { transfer, bytes, seconds: began.elapsed().as_secs_f64() })
}

const MOST_TRANSFERS: usize = 10_000;
/// A transfer that takes longer is cut.
const LONGEST_SECONDS: f64 = 300.0;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn all_bytes_are_moved_at_their_times() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The server lives as long as the test's process.
        thread::spawn(move || tcp::serve(address, Transport::Tcp));
        thread::sleep(Duration::from_millis(50));
        let transfer = |at_ms, bytes, upload| Transfer { at_ms, bytes, upload };
        let transfers = [transfer(0, 100_000, false), transfer(50, 50_000, true), transfer(60, 1, false)];
        let began = Instant::now();
        let reports = run(address, &transfers).unwrap();
        assert!(began.elapsed() >= Duration::from_millis(60));
        for (report, transfer) in reports.iter().zip(&transfers) {
            assert_eq!((report.transfer, report.bytes), (*transfer, transfer.bytes));
            assert!(report.seconds < 5.0);
        }
    }
}
