//! What was wished of a path while better ones worked does not hold for the moment in which they fall silent: whoever wished it does not know of that yet.
//!
//! A limit, or the wish that a path only stand by, leaves the air to better ones. Until the owner of the device finds out that there are none and says
//! so, half a second passes, in which what stands by would carry next to nothing.
//!
//! ```text
//! the last better one falls silent ---0.1 s---> limit lifted ---until 2 s, a wish after 1 s, or a better one works---> limit holds
//! ```

use std::time::Duration;

use policy::PathStatus;
use units::{BitRate, Timestamp};

use super::{Path, PathState};

/// So long after all better paths fell silent limits hold: they may answer in the next moment, and what is far away would have taken their air.
const LIMITS_HOLD: Duration = Duration::from_millis(100);
/// So long after it they hold again, whatever is wished.
const LIMITS_RETURN: Duration = Duration::from_secs(2);
/// Who wishes something so long after it knows of it. Earlier wishes may have been on their way, or tell no more than that what stands by is better or worse
/// than was thought: of that the owner hears at once, as it carries something now.
const OWNER_KNOWS: Duration = Duration::from_secs(1);

/// Of two that stand by the one that may carry so many times more is the better one. The other's few packets would take the air that both have from the
/// better one's, or from that of the one for which both stand by, which may answer in the next moment.
const MUCH_MORE: u64 = 2;

/// Whether a path's limit is lifted, and what that depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lift {
    /// Since when the path has not worked, after it did.
    silent_since: Option<Timestamp>,
    /// When one of both ends last said what it wishes of it.
    wished_at: Timestamp,
    has_new_wish: bool,
    is_on: bool,
    /// When that is to be looked at again.
    due: Option<Timestamp>,
}

impl Lift {
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    pub(super) fn due(&self) -> Option<Timestamp> {
        self.due
    }
}

impl Path {
    /// What both ends together allow.
    pub(super) fn wished_limit(&self) -> Option<BitRate> {
        self.own_limit.into_iter().chain(self.peer_limit).min()
    }

    /// What it may carry while it stands by; all there is if nobody limits it.
    pub(crate) fn worth_standing_by(&self) -> BitRate {
        self.wished_limit().unwrap_or(BitRate(u64::MAX))
    }

    /// Whether one that stands by and may carry `limit` is to be used in its place.
    pub(crate) fn is_much_worse_than(&self, limit: BitRate) -> bool {
        limit.0 / MUCH_MORE >= self.worth_standing_by().0
    }

    /// One of both ends wishes something else of it.
    pub(crate) fn note_wish(&mut self) {
        self.lift.has_new_wish = true;
    }

    fn note_silence(&mut self, now: Timestamp) {
        let lift = &mut self.lift;
        if std::mem::take(&mut lift.has_new_wish) {
            lift.wished_at = now;
        }
        lift.silent_since = match self.state {
            PathState::Suspect | PathState::Down => lift.silent_since.or(Some(now)),
            PathState::Validating | PathState::Usable => None,
        };
    }

    /// Whether it carries before `other`, which has that limit.
    fn is_better_than(&self, other: &Self, limit: BitRate) -> bool {
        match (self.status(), other.status()) {
            (PathStatus::Active, PathStatus::Active) => self.wished_limit().is_none_or(|own| own > limit),
            (PathStatus::Active, PathStatus::Backup) => true,
            (PathStatus::Backup, PathStatus::Backup) if self.priority == other.priority => {
                other.is_much_worse_than(self.worth_standing_by())
            }
            (PathStatus::Backup, PathStatus::Backup) => self.priority < other.priority,
            (PathStatus::Backup | PathStatus::Off, _) | (_, PathStatus::Off) => false,
        }
    }

    /// `silence`: since when all better paths have been silent.
    fn follow(&mut self, now: Timestamp, silence: Option<Timestamp>) {
        let known = self.lift.wished_at;
        let Some(since) = silence.filter(|since| known < *since + OWNER_KNOWS) else {
            (self.lift.is_on, self.lift.due) = (false, None);
            return;
        };
        let passed = now.since(since);
        let is_on = (LIMITS_HOLD..LIMITS_RETURN).contains(&passed);
        if is_on && !self.lift.is_on {
            self.free(now, false);
        }
        let next = [LIMITS_HOLD, LIMITS_RETURN].into_iter().find(|after| passed < *after);
        (self.lift.is_on, self.lift.due) = (is_on, next.map(|after| since + after));
    }
}

/// Lifts the limits of paths all better ones of which have just fallen silent, and puts them back.
pub(crate) fn lift_limits(now: Timestamp, paths: &mut [Path]) {
    paths.iter_mut().for_each(|path| path.note_silence(now));
    for at in 0..paths.len() {
        let silence = better_silent_since(paths, at);
        if let Some(path) = paths.get_mut(at) {
            path.follow(now, silence);
        }
    }
}

/// `None` if one that is better works, or none has.
fn better_silent_since(paths: &[Path], at: usize) -> Option<Timestamp> {
    let path = paths.get(at)?;
    let limit = path.wished_limit()?;
    let others = paths.iter().enumerate().filter(|(other, _)| *other != at);
    let mut since = None;
    for (_, better) in others.filter(|(_, other)| other.is_better_than(path, limit)) {
        if better.state == PathState::Usable && better.is_validated() {
            return None;
        }
        since = since.max(better.lift.silent_since);
    }
    since
}
