//! Notices when the list of known networks was changed.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use identity::{StateDirectory, StateError};
use units::Timestamp;

use super::keeping::LOOK_EVERY;
use super::{KNOWN_NETWORKS_FILE, KnownError, KnownNetworks, state_behind};

/// The file of known networks, as it was when it was last read.
pub(super) struct ListWatch {
    state: StateDirectory,
    /// Behind the path of `state`.
    _directory: File,
    looked: Timestamp,
    changed: Option<SystemTime>,
}

impl ListWatch {
    /// Begins to watch the file in `directory`, which has just been read.
    ///
    /// # Errors
    /// [`StateError`] if it is no state directory.
    pub fn new(now: Timestamp, directory: File) -> Result<Self, StateError> {
        let state = state_behind(&directory)?;
        let mut this = Self { state, _directory: directory, looked: now, changed: None };
        this.changed = this.time_of_change();
        Ok(this)
    }

    /// The list, or why it cannot be read, once after each change; looks once in a while.
    pub fn look(&mut self, now: Timestamp) -> Option<Result<KnownNetworks, KnownError>> {
        if now.since(self.looked) < LOOK_EVERY {
            return None;
        }
        self.looked = now;
        let changed = self.time_of_change();
        if changed == self.changed {
            return None;
        }
        self.changed = changed;
        Some(KnownNetworks::load(&self.state))
    }

    fn time_of_change(&self) -> Option<SystemTime> {
        let metadata = fs::metadata(self.state.file(KNOWN_NETWORKS_FILE)).ok()?;
        // A change of the owner counts as well.
        let seconds = u64::try_from(metadata.ctime()).ok()?;
        let nanoseconds = u32::try_from(metadata.ctime_nsec()).ok()?;
        Some(UNIX_EPOCH + Duration::new(seconds, nanoseconds))
    }
}
