//! Adapters that may be switched off while nobody uses them: their switches, and the note of those that are off.
//!
//! The note is a file, locked while its process lives. What a process that was killed had switched off is found there, and switched on again by
//! whoever looks next ([`SwitchOff::undo`]). A radio leaves the note only once it is on.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use linux::rfkill::{Switch, SwitchError};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use thiserror::Error;
use tracing::{info, warn};

/// More of a note is not read.
const MAX_NOTE: u64 = 4_096;
/// How long whoever tidies up behind an earlier command may take.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// The permission to switch adapters off. When the last clone goes, all are on again.
#[derive(Clone, Debug)]
pub struct SwitchOff(Arc<Owner>);

/// Why adapters cannot be switched off, or were not switched on.
#[derive(Debug, Error)]
pub enum SwitchOffError {
    /// It is none, or nothing but a cable.
    #[error("{0} cannot be switched off: it is no Wi-Fi or Bluetooth adapter with a switch of its own")]
    NoSwitch(String),
    /// Another process has the note.
    #[error("another anabranch command may switch adapters off already ({}); end it first", .0.display())]
    Busy(PathBuf),
    /// This user may not, or the kernel does not.
    #[error(transparent)]
    Switch(#[from] SwitchError),
    /// The note cannot be read or written.
    #[error("{}: {source}", path.display())]
    Note {
        /// Where it is, or should be.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// Drivers take their time, so a thread of its own obeys, one order after the other.
#[derive(Debug)]
struct Owner {
    adapters: Vec<(String, Switch)>,
    /// Gone when it is dropped, which ends the thread.
    orders: Option<Sender<(Switch, bool)>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Switches {
    /// Radios that are off, as the note has them.
    off: BTreeSet<String>,
    note: File,
}

impl SwitchOff {
    /// Allows it for these adapters, by name. What an earlier process left off is switched on.
    ///
    /// # Errors
    /// [`SwitchOffError`]; nothing is switched off then.
    pub fn allow(adapters: &[String], note: &Path) -> Result<Self, SwitchOffError> {
        let adapters = adapters.iter().map(|name| {
            let switch = Switch::of_adapter(name).ok_or_else(|| SwitchOffError::NoSwitch(name.clone()))?;
            Ok((name.clone(), switch))
        });
        let adapters = adapters.collect::<Result<Vec<_>, SwitchOffError>>()?;
        if !adapters.is_empty() {
            Switch::permitted()?;
        }
        let failed = |source| SwitchOffError::Note { path: note.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let deadline = Instant::now() + PATIENCE;
        let mut switches = loop {
            let file = options.open(note).map_err(failed)?;
            match Switches::lock(file, FlockOperation::NonBlockingLockExclusive).map_err(failed)? {
                Some(switches) => break switches,
                None if Instant::now() < deadline => std::thread::sleep(PAUSE),
                None => return Err(SwitchOffError::Busy(note.to_owned())),
            }
        };
        switches.all_on(note)?;
        let (orders, waiting) = channel::<(Switch, bool)>();
        let place = note.to_owned();
        let thread = std::thread::Builder::new().name("switches".to_owned()).spawn(move || {
            for (switch, on) in waiting {
                switches.switch(&switch, on);
            }
            if let Err(error) = switches.all_on(&place) {
                warn!(%error, "stays off");
            }
        });
        let thread = Some(thread.map_err(failed)?);
        Ok(Self(Arc::new(Owner { adapters, orders: Some(orders), thread })))
    }

    /// Switches on what a process that lives no more has left off, as its note says.
    ///
    /// # Errors
    /// If something stays off, or the note is there and cannot be read or written.
    pub fn undo(note: &Path) -> Result<(), SwitchOffError> {
        // Whoever holds the lock does it itself.
        Self::undo_by(note, FlockOperation::NonBlockingLockExclusive)
    }

    /// Waits until the process that has the note ends, in whichever way, and does what it has not done.
    ///
    /// # Errors
    /// As [`Self::undo`].
    pub fn undo_after(note: &Path) -> Result<(), SwitchOffError> {
        Self::undo_by(note, FlockOperation::LockExclusive)
    }

    fn undo_by(note: &Path, lock: FlockOperation) -> Result<(), SwitchOffError> {
        let failed = |source| SwitchOffError::Note { path: note.to_owned(), source };
        let file = match OpenOptions::new().read(true).write(true).open(note) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other.map_err(failed)?,
        };
        Switches::lock(file, lock).map_err(failed)?.map_or(Ok(()), |mut switches| switches.all_on(note))
    }

    pub(super) fn adapters(&self) -> &[(String, Switch)] {
        &self.0.adapters
    }

    /// Switches an adapter, some time soon.
    pub(super) fn switch(&self, adapter: &str, on: bool) {
        let Some((_, switch)) = self.0.adapters.iter().find(|(name, _)| name == adapter) else { return };
        if let Some(orders) = &self.0.orders {
            // The thread ends only with us.
            let _ = orders.send((switch.clone(), on));
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell; what it could not switch stays in the note.
            let _ = thread.join();
        }
    }
}

impl Switches {
    /// The note, locked; `None` if another process has it.
    fn lock(note: File, operation: FlockOperation) -> io::Result<Option<Self>> {
        match flock(&note, operation) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let mut text = Vec::new();
        (&note).take(MAX_NOTE).read_to_end(&mut text)?;
        let off = String::from_utf8_lossy(&text).lines().map(str::to_owned).collect();
        Ok(Some(Self { off, note }))
    }

    fn switch(&mut self, switch: &Switch, on: bool) {
        let radio = switch.radio();
        if on {
            match switch.set(true) {
                Ok(()) | Err(SwitchError::None(_)) => drop(self.off.remove(radio)),
                Err(error) => warn!(radio, %error, "stays off"),
            }
        } else {
            // The note comes first: what it says too much is only switched on in vain.
            self.off.insert(radio.to_owned());
            let done = self.write().map_err(SwitchError::from).and_then(|()| switch.set(false));
            if let Err(error) = done {
                warn!(radio, %error, "stays on");
                self.off.remove(radio);
            }
        }
        info!(radio, on, "switched");
        if let Err(error) = self.write() {
            warn!(radio, %error, "the note of what is off is out of date");
        }
    }

    /// Switches all on; what could not be stays in the note.
    fn all_on(&mut self, note: &Path) -> Result<(), SwitchOffError> {
        if self.off.is_empty() {
            return Ok(());
        }
        let mut failed = None;
        self.off.retain(|radio| match Switch::of_radio(radio).set(true) {
            Ok(()) | Err(SwitchError::None(_)) => false,
            Err(error) => {
                failed = Some(error);
                true
            }
        });
        self.write().map_err(|source| SwitchOffError::Note { path: note.to_owned(), source })?;
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    fn write(&mut self) -> io::Result<()> {
        let text: String = self.off.iter().map(|radio| format!("{radio}\n")).collect();
        self.note.rewind()?;
        self.note.set_len(0)?;
        self.note.write_all(text.as_bytes())?;
        self.note.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_at_a_time_and_what_a_dead_one_left_is_forgotten_once_it_is_on() {
        let directory = tempfile::tempdir().unwrap();
        let note = directory.path().join("switched-off");
        SwitchOff::undo(&note).unwrap();
        assert!(!note.exists(), "nothing was ever off");
        std::fs::write(&note, "phy98\nphy99\n").unwrap();
        SwitchOff::undo(&note).unwrap();
        assert_eq!(std::fs::read(&note).unwrap(), b"");
        let first = SwitchOff::allow(&[], &note).unwrap();
        assert!(matches!(SwitchOff::allow(&[], &note), Err(SwitchOffError::Busy(_))));
        std::fs::write(&note, "phy98\n").unwrap();
        SwitchOff::undo(&note).unwrap();
        assert_eq!(std::fs::read(&note).unwrap(), b"phy98\n", "a living process has it");
        drop(first);
        assert!(SwitchOff::allow(&[], &note).is_ok());
    }

    #[test]
    fn what_has_no_switch_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let error = SwitchOff::allow(&["lo".to_owned()], &directory.path().join("note")).unwrap_err();
        assert!(error.to_string().starts_with("lo cannot be switched off"), "{error}");
    }
}
