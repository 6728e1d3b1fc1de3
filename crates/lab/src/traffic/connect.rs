//! Many short TCP connections: what a new flow costs, and how long none comes about.

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use socket2::Type;

use super::tcp::bound_socket;

/// How connections went.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ConnectReport {
    /// Connections that came about and were ended by the server.
    pub made: u64,
    /// Those that did not, in time or at all.
    pub failed: u64,
    /// Length of the run.
    pub seconds: f64,
    /// Each connection, in the order of their begins; kept only where there is a pause between them, at most 10,000 of each
    /// thread.
    pub attempts: Vec<Attempt>,
}

/// One connection.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Attempt {
    /// Its begin, seconds since the start.
    pub began: f64,
    /// When it was there; `None` if it failed.
    pub made: Option<f64>,
}

/// What to do.
#[derive(Clone, Debug)]
pub struct Knocking {
    /// An [`accept`].
    pub server: SocketAddr,
    /// Connections at once, at most 64.
    pub threads: u32,
    /// How long to go on.
    pub length: Duration,
    /// After each connection of a thread. The threads begin spread over one pause.
    pub pause: Duration,
    /// For each connection.
    pub patience: Duration,
}

/// Ends every connection that comes. Returns only on error.
///
/// # Errors
/// If the address cannot be used.
pub fn accept(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    loop {
        // A client that is gone again is none of the others' business.
        drop(listener.accept());
    }
}

impl Knocking {
    /// Opens connections until the time is over.
    ///
    /// # Errors
    /// If there can be no sockets; connections that fail are results.
    pub fn run(&self) -> Result<ConnectReport> {
        ensure!((1..=64).contains(&self.threads), "--threads {}: 1 to 64", self.threads);
        let start = Instant::now();
        let threads: Vec<_> = (0..self.threads)
            .map(|thread| {
                let (knocking, wait) = (self.clone(), self.pause * thread / self.threads);
                thread::spawn(move || {
                    thread::sleep(wait);
                    knocking.go_on(start)
                })
            })
            .collect();
        let mut all = ConnectReport { made: 0, failed: 0, seconds: 0.0, attempts: Vec::new() };
        for thread in threads {
            let one = thread.join().map_err(|_| anyhow::anyhow!("a thread failed"))??;
            all.made += one.made;
            all.failed += one.failed;
            all.attempts.extend(one.attempts);
        }
        all.attempts.sort_by(|one, other| one.began.total_cmp(&other.began));
        all.seconds = start.elapsed().as_secs_f64();
        Ok(all)
    }

    fn go_on(&self, start: Instant) -> Result<ConnectReport> {
        let mut report = ConnectReport { made: 0, failed: 0, seconds: 0.0, attempts: Vec::new() };
        while start.elapsed() < self.length {
            let began = start.elapsed().as_secs_f64();
            let is_made = self.knock()?;
            let made = is_made.then(|| start.elapsed().as_secs_f64());
            *(if is_made { &mut report.made } else { &mut report.failed }) += 1;
            if !self.pause.is_zero() {
                if report.attempts.len() < MAX_ATTEMPTS {
                    report.attempts.push(Attempt { began, made });
                }
                thread::sleep(self.pause);
            }
        }
        Ok(report)
    }

    /// Whether a connection came about and the server ended it.
    fn knock(&self) -> Result<bool> {
        let socket = bound_socket(self.server, Type::STREAM, None, None)?;
        if socket.connect_timeout(&self.server.into(), self.patience).is_err() {
            return Ok(false);
        }
        socket.set_read_timeout(Some(self.patience)).context("setting the read time-out")?;
        Ok(matches!((&socket).read(&mut [0]), Ok(0)))
    }
}

const MAX_ATTEMPTS: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn knocking(server: SocketAddr) -> Knocking {
        let pause = Duration::from_millis(5);
        Knocking {
            server,
            threads: 2,
            length: Duration::from_millis(200),
            pause,
            patience: Duration::from_millis(500),
        }
    }

    #[test]
    fn connections_are_counted() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = knocking(address).run().unwrap();
        assert!(refused.made == 0 && refused.failed > 1, "{refused:?}");
        assert!(refused.attempts.iter().all(|attempt| attempt.made.is_none()));
        // The server lives as long as the test's process.
        thread::spawn(move || accept(address));
        thread::sleep(Duration::from_millis(50));
        let report = knocking(address).run().unwrap();
        assert!(report.failed == 0 && report.made > 1, "{report:?}");
        assert!(report.attempts.iter().all(|attempt| attempt.made.is_some_and(|made| made >= attempt.began)));
        assert!(report.attempts.is_sorted_by(|one, next| one.began <= next.began));
    }
}
