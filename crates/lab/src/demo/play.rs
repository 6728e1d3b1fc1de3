//! Cut and restore networks by keys while graphs of the transfer and of a ping run.

use super::graph::Graph;
use super::keyboard::{Keyboard, columns};
use super::setting::{Download, FetchLine, Setting, read_lines};
use crate::netbed::{Bonded, Pinger, SERVER_ADDRESS};
use anyhow::Context;
use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, ExitCode};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use units::Bytes;

/// One column of the graphs.
const COLUMN: Duration = Duration::from_millis(250);
const GRAPH_ROWS: usize = 8;
const PING_PORT: u16 = 7;
/// Ctrl-C, when the terminal does not make a signal of it.
const INTERRUPT: u8 = 3;

/// Plays until the viewer ends it.
///
/// # Errors
/// If the terminal, the ping or the transfer cannot be had.
pub(super) fn play(setting: &mut Setting, mut bonded: Bonded) -> anyhow::Result<ExitCode> {
    let keyboard = Keyboard::open()?;
    let echo = SocketAddr::from((SERVER_ADDRESS, PING_PORT));
    let pinger =
        Pinger::start(&setting.bed().device, &setting.bed().server, echo).context("start the ping")?;
    let mut stage = Stage::new(setting);
    let mut transfer = Transfer::start(setting)?;
    let mut next = Instant::now() + COLUMN;
    // Another screen, so that the viewer's own comes back; no cursor.
    print!("\x1b[?1049h\x1b[?25l");
    let ended = loop {
        match keyboard.key_within(next.saturating_duration_since(Instant::now())) {
            Some(b'q' | INTERRUPT) => break Ok(()),
            Some(key) => stage.obey(key, setting),
            None => {}
        }
        if Instant::now() >= next {
            next += COLUMN;
            if let Err(error) = transfer.keep_going(setting) {
                break Err(error);
            }
            stage.advance(setting, transfer.take_bytes(), &pinger.take());
            stage.draw();
        }
    };
    print!("\x1b[?25h\x1b[?1049l");
    drop(keyboard);
    transfer.stop();
    ended.map_err(|error| bonded.explain(error))?;
    bonded.stop();
    Ok(ExitCode::SUCCESS)
}

/// A download that begins anew when it ends.
struct Transfer {
    child: Child,
    lines: Receiver<anyhow::Result<FetchLine>>,
    /// Of the present download.
    bytes: u64,
    fresh: u64,
}

impl Transfer {
    fn start(setting: &mut Setting) -> anyhow::Result<Self> {
        let download = Download { interface: None, bytes: Bytes(1 << 30), most_time: None };
        let mut child = setting.start_download(&download)?;
        let output = child.stdout.take().context("read the transfer's progress")?;
        Ok(Self { lines: read_lines(output), child, bytes: 0, fresh: 0 })
    }

    /// Takes in what came; begins anew if the download ended.
    fn keep_going(&mut self, setting: &mut Setting) -> anyhow::Result<()> {
        for line in self.lines.try_iter() {
            if let Ok(FetchLine::Progress(bytes)) = line {
                self.fresh += bytes.saturating_sub(self.bytes);
                self.bytes = bytes;
            }
        }
        if self.child.try_wait().context("watch the transfer")?.is_some() {
            *self = Self { fresh: self.fresh, ..Self::start(setting)? };
        }
        Ok(())
    }

    /// Bytes since the last call.
    fn take_bytes(&mut self) -> u64 {
        std::mem::take(&mut self.fresh)
    }

    fn stop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is on the screen.
struct Stage {
    networks: Vec<Network>,
    transfer: Graph,
    ping: Graph,
}

struct Network {
    title: &'static str,
    is_cut: bool,
    delivered: u64,
    mbps: f64,
}

impl Stage {
    fn new(setting: &Setting) -> Self {
        let size = (columns() - 10, GRAPH_ROWS);
        let network = |network: &super::setting::DemoNetwork| Network {
            title: network.title,
            is_cut: false,
            delivered: 0,
            mbps: 0.0,
        };
        Self {
            networks: setting.networks().iter().map(network).collect(),
            transfer: Graph::new("transfer through any0, one TCP connection", "Mbit/s", size, 60.0),
            ping: Graph::new("ping through any0 beside it", "ms", size, 100.0),
        }
    }

    /// A digit cuts or restores its network.
    fn obey(&mut self, key: u8, setting: &mut Setting) {
        let index = usize::from(key.wrapping_sub(b'1'));
        if let Some(network) = self.networks.get_mut(index) {
            network.is_cut = !network.is_cut;
            setting.set_silent(index, network.is_cut);
        }
    }

    fn advance(&mut self, setting: &mut Setting, bytes: u64, round_trips: &[Duration]) {
        self.transfer.push(Some(mbps(bytes)));
        let slowest = round_trips.iter().max().map(|time| time.as_secs_f64() * 1e3);
        self.ping.push(slowest);
        for (index, network) in self.networks.iter_mut().enumerate() {
            let delivered = setting.delivered(index).unwrap_or(network.delivered);
            network.mbps = mbps(delivered.saturating_sub(network.delivered));
            network.delivered = delivered;
        }
    }

    fn draw(&self) {
        let mut lines = vec!["anabranch demo --play".to_owned(), String::new()];
        for (index, network) in self.networks.iter().enumerate() {
            let state = if network.is_cut { "\x1b[31mCUT\x1b[0m" } else { "\x1b[32mup \x1b[0m" };
            lines.push(format!("  [{}] {state} {:>6.1} Mbit/s  {}", index + 1, network.mbps, network.title));
        }
        lines.push(String::new());
        lines.extend(self.transfer.lines());
        lines.push(String::new());
        lines.extend(self.ping.lines());
        lines.push(String::new());
        lines.push("1, 2: cut or restore a network    q: end".to_owned());
        // Each line is cleared to its end rather than the whole screen, which would flicker.
        let mut picture = String::from("\x1b[H");
        for line in lines {
            picture.push_str(&line);
            picture.push_str("\x1b[K\r\n");
        }
        picture.push_str("\x1b[J");
        let mut output = std::io::stdout().lock();
        // A terminal that is gone ends the demo by its signal.
        let _ = output.write_all(picture.as_bytes()).and_then(|()| output.flush());
    }
}

/// The rate of `bytes` in one column.
fn mbps(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / COLUMN.as_secs_f64() / 1e6
}
