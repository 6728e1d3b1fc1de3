//! `anabranch down`: ends the daemon; if that is dead already, takes back what it left changed.

use std::time::{Duration, Instant};

use anabranch::control::{ClientError, DownReport};
use anyhow::bail;
use daemon::control::{RestoreError, restore};
use identity::{DaemonLock, LockError, StateDirectory};

use crate::arguments::Down;
use crate::output;
use crate::session::Session;

/// How long the daemon may take to end after its answer.
const END_TIMEOUT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

pub fn run(session: &Session, arguments: &Down) -> anyhow::Result<()> {
    let state = session.device()?;
    let (report, was_running) = end(session, &state)?;
    tell(&report, was_running, arguments.json)?;
    if !report.failed.is_empty() {
        bail!("{} of the changes could not be taken back; see above", report.failed.len());
    }
    Ok(())
}

/// Has the daemon end, or takes back what a dead one left; and whether one was running.
fn end(session: &Session, state: &StateDirectory) -> anyhow::Result<(DownReport, bool)> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        match session.client()?.down() {
            Ok(report) => {
                wait_for_end(state)?;
                return Ok((report, true));
            }
            Err(ClientError::NotRunning(_)) => {}
            Err(error) => return Err(error.into()),
        }
        match restore(state) {
            // It starts, or becomes another version of itself, and will answer.
            Err(RestoreError::Lock(LockError::Held { .. })) if Instant::now() < deadline => {
                std::thread::sleep(POLL_INTERVAL);
            }
            outcome => return Ok((outcome?, false)),
        }
    }
}

fn tell(report: &DownReport, was_running: bool, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(report);
    }
    match (was_running, report.undone.is_empty() && report.failed.is_empty()) {
        (true, _) => output::line("The daemon has ended.")?,
        (false, true) => output::line("No daemon was running, and nothing was left to take back.")?,
        (false, false) => output::line("No daemon was running; taking back what it left behind:")?,
    }
    for line in &report.undone {
        output::line(&format!("  undone: {line}"))?;
    }
    for line in &report.failed {
        output::line(&format!("  not undone: {line}"))?;
    }
    Ok(())
}

/// Its lock is free when it has ended.
fn wait_for_end(state: &StateDirectory) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        match DaemonLock::take(state) {
            Err(LockError::Held { process, .. }) if started.elapsed() > END_TIMEOUT => {
                let process = process.map_or_else(String::new, |process| format!(" (process {process})"));
                bail!("the daemon{process} has answered but not ended for {} s", END_TIMEOUT.as_secs());
            }
            Err(LockError::Held { .. }) => std::thread::sleep(POLL_INTERVAL),
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}
