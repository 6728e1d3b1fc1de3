//! `anabranch demo`: bonding at work on one machine, with real processes and real sockets.
//!
//! 1. A file is downloaded over each of two unequal networks alone.
//! 2. A gateway is set up, the device joins it and brings any0 up; the file comes over one plain TCP
//!    connection through any0.
//! 3. Again, and the better network goes silent in the middle and comes back.
//!
//! Everything happens in namespaces that end with this process, however it ends.

mod graph;
mod keyboard;
mod play;
mod progress;
mod report;
mod setting;

pub use report::{DemoReport, NetworkReport};
pub use setting::FetchLine;

use crate::netbed::{Bonded, isolation};
use anyhow::Context;
use progress::Stage;
use setting::{BONDED_FILE, CUT_FILE, Download, PLAIN_FILE, PLAIN_TIME, Setting};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How to run the demo.
#[derive(Clone, Debug, clap::Args)]
pub struct DemoOptions {
    /// Write the figures as JSON to this file; "-" is the terminal
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Cut and restore the networks by keys while graphs of the transfer and of a ping run
    #[arg(long)]
    pub play: bool,
    /// Decides loss and jitter of the networks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The namespaces have been entered: how the demo starts itself again.
    #[arg(long, hide = true)]
    pub isolated: bool,
}

impl DemoOptions {
    /// The command line that starts the demo inside its namespaces.
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["demo".into(), "--isolated".into()];
        if let Some(path) = &self.json {
            arguments.extend(["--json".into(), path.into()]);
        }
        if self.play {
            arguments.push("--play".into());
        }
        arguments.extend(["--seed".into(), self.seed.to_string().into()]);
        arguments
    }
}

/// The better network is away for this long.
const OUTAGE: Duration = Duration::from_secs(3);

/// Runs the demo. The exit code is 0 only if bonding beat the best network and no byte was lost.
///
/// # Errors
/// If something that the demo needs is missing or fails; the message names it.
pub fn run(options: &DemoOptions) -> anyhow::Result<ExitCode> {
    if !options.isolated {
        return Err(isolation::enter(&options.arguments()));
    }
    isolation::settle()?;
    anyhow::ensure!(
        !options.play || std::io::stdout().is_terminal(),
        "--play draws on a terminal, and the output is not one"
    );
    let mut setting = Setting::build(options.seed).context("set the demo's networks up")?;
    if options.play {
        let bonded = Bonded::start(setting.bed())?;
        return play::play(&mut setting, bonded);
    }
    let report = tell(&mut setting)?;
    report.print();
    if let Some(path) = &options.json {
        report.write(path)?;
    }
    Ok(if report.is_success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The demo's three acts.
fn tell(setting: &mut Setting) -> anyhow::Result<DemoReport> {
    let stage = Stage::new();
    let mut networks = Vec::new();
    for (index, network) in setting.networks().to_vec().into_iter().enumerate() {
        let mut bar = stage.bar(&format!("{} alone", network.name), PLAIN_FILE);
        let download = Download { interface: Some(index), bytes: PLAIN_FILE, most_time: Some(PLAIN_TIME) };
        let report = setting.download(&download, &mut |bytes| bar.advance(bytes))?;
        bar.finish_download(&report);
        networks.push((network.title.to_owned(), report));
    }
    let waiting = stage.spinner("starting a gateway, joining it, bringing any0 up");
    let mut bonded = Bonded::start(setting.bed())?;
    waiting.finish(&format!("any0 is up, paths over {}", setting.network_names().join(" and ")));

    let mut bar = stage.bar("bonded, through any0", BONDED_FILE);
    let download = Download { interface: None, bytes: BONDED_FILE, most_time: None };
    let together = setting
        .download(&download, &mut |bytes| bar.advance(bytes))
        .map_err(|error| bonded.explain(error))?;
    bar.finish_download(&together);

    let mut bar = stage.bar("again, and the better network is cut", CUT_FILE);
    let mut outage = Outage::Before;
    let download = Download { interface: None, bytes: CUT_FILE, most_time: None };
    let with_cut = setting
        .download_watched(&download, &mut |bytes, setting| {
            bar.advance(bytes);
            outage.watch(bytes, setting, &mut bar);
        })
        .map_err(|error| bonded.explain(error))?;
    bar.finish_download(&with_cut);
    bonded.stop();
    Ok(DemoReport::new(&networks, &together, &with_cut))
}

/// Where the better network's outage stands.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Outage {
    Before,
    Since(Instant),
    Over,
}

impl Outage {
    /// Cuts the better network after 30 % of the file and gives it back when its time is over.
    fn watch(&mut self, bytes: u64, setting: &mut Setting, bar: &mut progress::Bar) {
        match *self {
            Self::Before if bytes * 10 >= CUT_FILE.0 * 3 => {
                setting.cut_better();
                bar.note("better network cut");
                *self = Self::Since(Instant::now());
            }
            Self::Since(start) if start.elapsed() >= OUTAGE => {
                setting.restore_better();
                bar.note("better network back");
                *self = Self::Over;
            }
            Self::Before | Self::Since(_) | Self::Over => {}
        }
    }
}
