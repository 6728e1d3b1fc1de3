//! When a path has been silent for too long, how often it is asked whether it is back, and how long it is waited for.

use std::time::Duration;

use policy::PathStatus;
use units::Timestamp;

use super::{Path, PathState, Progress};
use crate::congestion::Sibling;

/// Added to the probe timeout: the longest that the peer may wait with an acknowledgement.
const PEER_ACK_DELAY: Duration = Duration::from_millis(10);
/// A busy computer at the other end may be this late without the path being at fault.
const LEAST_PROBE_TIMEOUT: Duration = Duration::from_millis(50);
/// A suspect path is probed at least this often, so that one that returns is used within a second.
const MAX_PROBE_INTERVAL: Duration = Duration::from_millis(500);
/// One that is only a backup, at least this often: on one air with others even a sign of life that has to be repeated takes time of theirs.
const MAX_BACKUP_PROBE_INTERVAL: Duration = Duration::from_secs(2);
/// A path that fell silent and delivered everything after all is waited for that much longer, but no longer than this ...
const MOST_PATIENCE: Duration = Duration::from_millis(150);
/// ... and half as long again after each such time without it.
const PATIENCE_HALVES: Duration = Duration::from_secs(10);
/// Probe timeouts in a row after which everything in flight is given up (RFC 9002 section 7.6).
pub(super) const PERSISTENT_TIMEOUTS: u32 = 3;

impl Path {
    /// Nothing was acknowledged in time.
    pub(super) fn on_silence(&mut self, now: Timestamp, progress: &mut Progress, siblings: &[Sibling]) {
        self.timeouts += 1;
        self.counters.timeouts += 1;
        self.state = PathState::Suspect;
        self.ping_wanted = true;
        self.sent.take_items(&mut progress.losses.items);
        if self.timeouts >= PERSISTENT_TIMEOUTS {
            self.sent.give_up_all(&mut progress.losses);
            self.digest_losses(now, &mut progress.losses, true, siblings);
            self.loss_at = None;
            self.probe_at = Some(now + self.probe_interval());
        }
    }

    /// The peer says that its network there has vanished: as silence, without the wait for it.
    pub(crate) fn on_gone(&mut self, now: Timestamp) -> Progress {
        let mut progress = Progress::default();
        if self.state == PathState::Usable {
            self.state = PathState::Suspect;
            self.timeouts = self.timeouts.max(1);
            self.sent.take_items(&mut progress.losses.items);
            self.probe_at = Some(now + self.probe_interval());
        }
        progress
    }

    /// When the path becomes suspect, or is probed again, if nothing is acknowledged until then.
    pub(super) fn silent_at(&self) -> Option<Timestamp> {
        if self.sent.in_flight() == 0 || self.state == PathState::Down {
            return None;
        }
        let since = self.last_ack_at.max(self.eliciting_since);
        let since = if self.timeouts > 0 { self.last_sent_at.max(since) } else { since };
        Some(since + self.probe_timeout() * (1 << self.timeouts.min(4)).min(8) + self.patience)
    }

    /// What was thought to be lost on a silent path has arrived if `in_vain`.
    pub(super) fn learn_patience(&mut self, now: Timestamp, in_vain: bool) {
        if in_vain {
            let silence = now.since(self.last_ack_at.max(self.eliciting_since));
            let needed = silence.saturating_sub(self.probe_timeout());
            self.patience = self.patience.max(needed).min(MOST_PATIENCE);
            self.patience_since = now;
        } else if now.since(self.patience_since) >= PATIENCE_HALVES {
            self.patience /= 2;
            self.patience_since = now;
        }
    }

    /// When it is to be asked for a sign of life that keeps it open: boxes on the way forget what goes one way only, or not at all. One that does not answer
    /// is asked again by timers of its own.
    pub(crate) fn keep_alive_at(&self, interval: Duration) -> Timestamp {
        let answers = self.state == PathState::Usable && self.sent.in_flight() == 0;
        let since = if answers { self.last_sent_at.min(self.last_received_at) } else { self.last_sent_at };
        since + interval
    }

    /// RFC 9002 section 6.2.1, with the path's own reordering.
    pub(crate) fn probe_timeout(&self) -> Duration {
        (self.rtt.pto() + PEER_ACK_DELAY + self.peer_reordering).max(LEAST_PROBE_TIMEOUT)
    }

    pub(super) fn probe_interval(&self) -> Duration {
        let most = match self.status() {
            PathStatus::Backup if !self.is_needed => MAX_BACKUP_PROBE_INTERVAL,
            PathStatus::Backup | PathStatus::Active | PathStatus::Off => MAX_PROBE_INTERVAL,
        };
        (self.probe_timeout() * (1 << self.timeouts.min(4))).min(most)
    }

    /// No path works: this one is asked now, and as often as one that is to carry data.
    pub(crate) fn need(&mut self, now: Timestamp) {
        self.is_needed = true;
        if self.state == PathState::Suspect {
            self.ask_again(now);
        }
    }

    /// Asks a path that was given up whether it is back, unless that has just been done.
    pub(super) fn ask_again(&mut self, now: Timestamp) {
        let is_given_up = self.timeouts >= PERSISTENT_TIMEOUTS || self.probe_at.is_some();
        if is_given_up && now.since(self.last_sent_at) >= self.probe_timeout() {
            self.ping_wanted = true;
        }
    }
}
