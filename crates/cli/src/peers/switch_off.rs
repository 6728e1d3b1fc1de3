//! `--switch-off`, and the process that switches adapters on again whichever way this one ends.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anabranch::SwitchOff;
use anyhow::Context;
use identity::StateDirectory;
use linux::signals::EndSignals;

use crate::arguments::Spare;

/// The subcommand of the process that waits.
const GUARD: &str = "switch-on";
const NOTE: &str = "switched-off";

/// Where it is noted what is off.
pub fn note(state: &StateDirectory) -> PathBuf {
    state.path().join(NOTE)
}

/// The permission that was given, if one was.
pub fn permission(state: &StateDirectory, spare: &Spare) -> anyhow::Result<Option<SwitchOff>> {
    if spare.switch_off.is_empty() {
        return Ok(None);
    }
    let note = note(state);
    let permission = SwitchOff::allow(&spare.switch_off, &note)?;
    guard(&note).context("no process can be started that would switch the adapters on again")?;
    Ok(Some(permission))
}

/// Starts a process that outlives this one, by a key or a signal too, and then does what is left to do.
fn guard(note: &Path) -> anyhow::Result<()> {
    Command::new(std::env::current_exe()?)
        .arg(GUARD)
        .arg(note)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    Ok(())
}

/// The guard's own work: the note is locked for as long as the process that switches lives.
pub fn wait(note: &Path) -> anyhow::Result<()> {
    // Whoever ends a service or a login asks all of its processes to end; this one does, when it has nothing left to do.
    let _held_back = EndSignals::catch()?;
    Ok(SwitchOff::undo_after(note)?)
}
