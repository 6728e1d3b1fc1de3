//! What was wished of a path while better ones worked does not hold for the moment in which they fall silent: whoever wished it does not know of that yet.
//!
//! A limit, or the wish that a path only stand by, leaves the air to better ones. Until the owner of the device finds out that there are none and says
//! so, half a second passes, in which what stands by would carry next to nothing.

use std::time::Duration;

use policy::PathStatus;
use units::{BitRate, Timestamp};

use super::{Path, PathState};

/// So long after all better paths fell silent limits hold: they may answer in the next moment, and what is far away would have taken their air.
const LIMITS_HOLD: Duration = Duration::from_millis(100);
/// So long after it they hold again: by then the owner knows, and has said what it wishes now.
const LIMITS_RETURN: Duration = Duration::from_secs(2);

/// Whether a path's limit is lifted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lift {
    /// Since when no better path has worked.
    since: Option<Timestamp>,
    is_on: bool,
    /// When that is to be looked at again.
    due: Option<Timestamp>,
}

/// Which paths better than those with limits there are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Better {
    /// Active ones, with or without a limit, which are better than those that stand by.
    active: Health,
    /// Active ones without a limit, which are better than all with one.
    free: Health,
}

#[derive(Clone, Copy, Debug, Default)]
struct Health {
    some_work: bool,
    some_are_silent: bool,
}

impl Lift {
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }
}

impl Health {
    fn count(&mut self, path: &Path) {
        self.some_work |= path.state == PathState::Usable && path.is_validated();
        self.some_are_silent |= path.state == PathState::Suspect;
    }

    fn has_fallen_silent(self) -> bool {
        self.some_are_silent && !self.some_work
    }
}

impl Better {
    /// `None` if no path has a limit.
    pub(crate) fn among(paths: &[Path]) -> Option<Self> {
        if paths.iter().all(|path| path.wished_limit().is_none() && path.lift.since.is_none()) {
            return None;
        }
        let mut better = Self::default();
        for path in paths.iter().filter(|path| path.status() == PathStatus::Active) {
            better.active.count(path);
            if path.wished_limit().is_none() {
                better.free.count(path);
            }
        }
        Some(better)
    }
}

impl Path {
    /// What both ends together allow.
    pub(super) fn wished_limit(&self) -> Option<BitRate> {
        self.own_limit.into_iter().chain(self.peer_limit).min()
    }

    /// Lifts its limit if all better paths have just fallen silent, and puts it back when one works again.
    pub(crate) fn follow(&mut self, now: Timestamp, better: Better) {
        let lacks_better = self.wished_limit().is_some()
            && match self.status() {
                PathStatus::Active => better.free.has_fallen_silent(),
                PathStatus::Backup => better.active.has_fallen_silent(),
                PathStatus::Off => false,
            };
        if !lacks_better {
            self.lift = Lift::default();
            return;
        }
        let since = self.lift.since.unwrap_or(now);
        let silence = now.since(since);
        let is_on = (LIMITS_HOLD..LIMITS_RETURN).contains(&silence);
        if is_on && !self.lift.is_on {
            self.free(now);
        }
        let due = [LIMITS_HOLD, LIMITS_RETURN].into_iter().find(|after| silence < *after);
        self.lift = Lift { since: Some(since), is_on, due: due.map(|after| since + after) };
    }
}
