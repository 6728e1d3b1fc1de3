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

    /// A suspect path of which no answer is due has to be asked: nothing else would find out that it is back.
    pub(super) fn keep_asking(&mut self, now: Timestamp) {
        if self.state == PathState::Suspect && self.sent.in_flight() == 0 && !self.ping_wanted {
            self.probe_at.get_or_insert(now + self.probe_interval());
        }
    }

    /// One that stood by may be wanted now, freely or for a few packets: then it is no longer asked as seldom as before.
    pub(super) fn ask_sooner(&mut self, now: Timestamp) {
        let soon = now + self.probe_interval();
        self.probe_at = self.probe_at.map(|at| at.min(soon));
    }

    /// Asks a path that was given up whether it is back, unless that has just been done.
    pub(super) fn ask_again(&mut self, now: Timestamp) {
        let is_given_up = self.timeouts >= PERSISTENT_TIMEOUTS || self.probe_at.is_some();
        if is_given_up && now.since(self.last_sent_at) >= self.probe_timeout().min(MAX_PROBE_INTERVAL) {
            self.ping_wanted = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use units::{NetworkId, PathId};
    use wire::frame::{Ack, Ranges};

    use super::super::sent::{Items, SentPacket};
    use super::super::{Others, Path, PathState};
    use super::*;
    use crate::address::{Address, Carrier};
    use crate::congestion::Algorithm;

    const BEGIN: Timestamp = Timestamp::from_millis(1_000);

    /// A path on which an answer takes seven seconds.
    fn slow_path() -> Path {
        let remote = std::net::SocketAddr::from(([192, 0, 2, 1], 4_600));
        let address = Address { network: NetworkId(1), carrier: Carrier::Udp, remote };
        let mut path = Path::new(BEGIN, PathId(0), address, Algorithm::Model, 1_472);
        (0..20).for_each(|_| path.rtt.on_sample(Duration::from_secs(7)));
        (path.state, path.sampled_at) = (PathState::Suspect, BEGIN);
        path
    }

    fn send(path: &mut Path, now: Timestamp) {
        path.sent.push(SentPacket {
            sent_at: now,
            in_flight: 1_200,
            application_limited: false,
            delivered: path.delivered,
            items: Items::default(),
            mtu_probe: false,
            taken: false,
        });
    }

    fn acknowledged(path: &mut Path, now: Timestamp, number: u64) {
        let ack = Ack {
            ranges: Ranges::from_iter([number..=number]),
            delay_micros: 0,
            receive_time: now.as_micros() as u32,
            received_bytes: 1_200,
            reordering_micros: 0,
            ce_count: 0,
        };
        path.on_ack(now, &ack, &[], Others { overshadow: false, fade: false, works: true });
    }

    #[test]
    fn a_suspect_path_is_asked_when_all_that_was_under_way_is_lost() {
        let mut path = slow_path();
        (0..2).for_each(|_| send(&mut path, BEGIN));
        path.sent.on_ack(&Ranges::from_iter([1..=1]));
        path.loss_at = Some(BEGIN);
        let lost = BEGIN + Duration::from_secs(60);
        path.on_timeout(lost, &[]);
        assert_eq!((path.sent.in_flight(), path.state), (0, PathState::Suspect));
        let due = path.next_timeout();
        assert!(due.is_some_and(|due| due <= lost + MAX_PROBE_INTERVAL), "{due:?}");
        path.on_timeout(lost + MAX_PROBE_INTERVAL, &[]);
        assert!(path.ping_wanted);
    }

    #[test]
    fn one_that_stood_by_is_asked_sooner_when_it_is_to_carry_data() {
        let mut path = slow_path();
        path.own_status = PathStatus::Backup;
        path.keep_asking(BEGIN);
        assert_eq!(path.probe_at, Some(BEGIN + MAX_BACKUP_PROBE_INTERVAL));
        path.own_status = PathStatus::Active;
        path.take_wish(BEGIN);
        assert_eq!(path.probe_at, Some(BEGIN + MAX_PROBE_INTERVAL));
    }

    #[test]
    fn an_answer_that_comes_at_once_ends_what_was_known_of_a_slow_time() {
        let mut path = slow_path();
        let mut now = BEGIN;
        for number in 0..3 {
            send(&mut path, now);
            now += Duration::from_millis(40);
            acknowledged(&mut path, now, number);
            let is_over = path.rtt.smoothed() == Duration::from_millis(40);
            assert_eq!(is_over, number > 0, "{number}: {:?}", path.rtt.smoothed());
        }
        // Half as long is no other time.
        (0..20).for_each(|_| path.rtt.on_sample(Duration::from_secs(1)));
        send(&mut path, now);
        acknowledged(&mut path, now + Duration::from_millis(500), 3);
        assert!(path.rtt.smoothed() > Duration::from_millis(700), "{:?}", path.rtt.smoothed());
    }
}
