//! A film that is fetched block by block over one or more networks, as in JUGGLER section 6.2.2, with the times at which blocks came.
//!
//! One thread for each network asks for the earliest block that nobody has asked for. `delta` is how far that block lies behind the thread's last one: with
//! two equal networks two. A thread whose delta is greater is the slower one, and takes the block `delta` behind the earliest, which will be
//! due when it has it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use super::tcp::bound_socket;

/// When each block was there.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VideoReport {
    /// Seconds from the start, by block.
    pub finished: Vec<f64>,
    /// How many blocks each network brought.
    pub by_network: Vec<u32>,
}

impl VideoReport {
    /// Pauses of a player that shows `block` seconds of film from each block, and begins, and goes on after a pause, once
    /// `buffered` blocks, or all that are left, are there: when each began on the clock, and how long it was. Filling the buffer at the start is
    /// none.
    pub fn gaps(&self, block: f64, buffered: usize) -> Vec<(f64, f64)> {
        // When the player may begin with a block: all blocks up to `buffered` further ones are there.
        let filled = |at: usize| {
            let end = (at + buffered).min(self.finished.len());
            self.finished[at..end].iter().copied().fold(0.0, f64::max)
        };
        let mut gaps = Vec::new();
        // When block 0 would have been shown had there been no pauses but the first.
        let mut begin = filled(0);
        for (at, finished) in self.finished.iter().enumerate() {
            let due = begin + block * at as f64;
            if *finished > due {
                let gap = filled(at) - due;
                gaps.push((due, gap));
                begin += gap;
            }
        }
        gaps
    }
}

/// Sends blocks of zeros to whoever asks. Returns only on error.
///
/// # Errors
/// If the address cannot be used.
pub fn serve(listen: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("listening on {listen}"))?;
    loop {
        let (stream, _) = listener.accept().context("waiting for viewers")?;
        // A viewer that goes ends its thread.
        thread::spawn(move || answer(stream));
    }
}

fn answer(mut stream: TcpStream) -> Result<()> {
    stream.set_nodelay(true).context("setting up the connection")?;
    let mut length = [0; 4];
    loop {
        stream.read_exact(&mut length).context("waiting for a request")?;
        let length = u32::from_le_bytes(length).min(LONGEST_BLOCK);
        stream.write_all(&vec![0; length as usize]).context("sending a block")?;
    }
}

/// Fetches `blocks` blocks of `length` bytes from a [`serve`], over each of `interfaces`.
///
/// # Errors
/// If a connection fails.
pub fn fetch(server: SocketAddr, interfaces: &[String], blocks: u32, length: u32) -> Result<VideoReport> {
    ensure!((1..=100_000).contains(&blocks), "--blocks {blocks}: 1 to 100000");
    ensure!((1..=LONGEST_BLOCK).contains(&length), "--length {length}: 1 to {LONGEST_BLOCK}");
    let plan = Mutex::new(Plan::new(blocks, interfaces.len()));
    let start = Instant::now();
    let fetch_over = |network: usize, interface: &str| -> Result<()> {
        let socket = bound_socket(server, socket2::Type::STREAM, None, Some(interface))?;
        socket
            .connect_timeout(&server.into(), PATIENCE)
            .with_context(|| format!("connecting by {interface}"))?;
        let mut stream: TcpStream = socket.into();
        stream.set_nodelay(true).context("setting up the connection")?;
        stream.set_read_timeout(Some(PATIENCE)).context("setting up the connection")?;
        let mut last = None;
        let mut buffer = vec![0; length as usize];
        let plan = || plan.lock().map_err(|_| anyhow::anyhow!("another network's thread failed"));
        while let Some(block) = {
            let mut plan = plan()?;
            plan.next(last)
        } {
            stream.write_all(&length.to_le_bytes()).context("asking for a block")?;
            stream
                .read_exact(&mut buffer)
                .with_context(|| format!("receiving block {block} by {interface}"))?;
            plan()?.finish(block, network, start.elapsed());
            last = Some(block);
        }
        Ok(())
    };
    let fetch_over = &fetch_over;
    thread::scope(|scope| {
        let threads: Vec<_> = (0..)
            .zip(interfaces)
            .map(|(network, interface)| scope.spawn(move || fetch_over(network, interface)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|one| one.join().map_err(|_| anyhow::anyhow!("a network's thread failed"))?)
    })?;
    plan.into_inner().map_err(|_| anyhow::anyhow!("a network's thread failed"))?.report()
}

/// Which blocks are asked for and which are there.
struct Plan {
    asked: Vec<bool>,
    finished: Vec<Option<f64>>,
    by_network: Vec<u32>,
}

impl Plan {
    fn new(blocks: u32, networks: usize) -> Self {
        let blocks = blocks as usize;
        Self { asked: vec![false; blocks], finished: vec![None; blocks], by_network: vec![0; networks] }
    }

    /// The block to ask for next over a network whose last one is given.
    fn next(&mut self, last: Option<usize>) -> Option<usize> {
        let earliest = self.asked.iter().position(|asked| !asked)?;
        let delta = last.map_or(0, |last| earliest.saturating_sub(last));
        let slower = delta > self.by_network.len();
        let later = earliest + if slower { delta } else { 0 };
        let free = self.asked.iter().skip(later).position(|asked| !asked).map(|behind| later + behind);
        let block = free.unwrap_or(earliest);
        self.asked[block] = true;
        Some(block)
    }

    fn finish(&mut self, block: usize, network: usize, at: Duration) {
        self.finished[block] = Some(at.as_secs_f64());
        self.by_network[network] += 1;
    }

    fn report(self) -> Result<VideoReport> {
        let finished: Option<Vec<f64>> = self.finished.into_iter().collect();
        Ok(VideoReport { finished: finished.context("a block is missing")?, by_network: self.by_network })
    }
}

/// 1 MiB.
const LONGEST_BLOCK: u32 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_networks_take_every_other_block_and_a_slower_one_looks_ahead() {
        let mut plan = Plan::new(40, 2);
        assert_eq!([plan.next(None), plan.next(None)], [Some(0), Some(1)]);
        assert_eq!([plan.next(Some(0)), plan.next(Some(1))], [Some(2), Some(3)]);
        // The first network fetches three while the second fetches block 3.
        assert_eq!([plan.next(Some(2)), plan.next(Some(4)), plan.next(Some(5))], [Some(4), Some(5), Some(6)]);
        // The earliest is 7, four behind: the second network takes 7 + 4.
        assert_eq!(plan.next(Some(3)), Some(11));
        assert_eq!(plan.next(Some(6)), Some(7));
    }

    #[test]
    fn at_the_end_nothing_is_left_out() {
        let mut plan = Plan::new(10, 2);
        let mut last = [None, None];
        let mut order = Vec::new();
        for turn in 0.. {
            let network = usize::from(turn % 4 == 3);
            let Some(block) = plan.next(last[network]) else { break };
            last[network] = Some(block);
            order.push(block);
        }
        order.sort_unstable();
        assert_eq!(order, (0..10).collect::<Vec<_>>());
    }

    #[test]
    fn gaps_are_reckoned_as_a_player_would_have_had_them() {
        let report = |finished: &[f64]| VideoReport { finished: finished.to_vec(), by_network: vec![] };
        // A block a second, shown for a second each, two buffered.
        assert_eq!(report(&[1.0, 2.0, 3.0, 4.0, 5.0]).gaps(1.0, 2), []);
        // Two seconds a block: begins at 4, block 2 is due at 6 and there at 6; block 3 is due at 7, there at 8, goes on with block 4 at 10.
        assert_eq!(report(&[2.0, 4.0, 6.0, 8.0, 10.0]).gaps(1.0, 2), [(7.0, 3.0)]);
    }

    #[test]
    fn a_film_comes_whole() {
        let probe = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = probe.local_addr().unwrap();
        drop(probe);
        // The server lives as long as the test's process.
        thread::spawn(move || serve(server));
        thread::sleep(Duration::from_millis(50));
        let report = fetch(server, &["lo".to_owned(), "lo".to_owned()], 50, 1_000).unwrap();
        assert_eq!(report.finished.len(), 50);
        assert_eq!(report.by_network.iter().sum::<u32>(), 50);
    }
}
