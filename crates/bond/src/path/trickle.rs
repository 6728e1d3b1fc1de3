//! A link that has all but failed still carries a packet now and then, so its path is not silent, while what it has under way would take seconds to arrive.
//! Where another path could take it, such a path counts as silent until it answers as quickly as it used to.
//!
//! ```text
//!            what is under way needs far longer than a round trip, another path works
//! Usable ----------------------------------------------------------------------------> Suspect, trickling
//!        <----------------------------------------------------------------------------
//!                          an answer within three round trips, or nothing else works
//! ```

use std::time::Duration;

use policy::PathStatus;
use units::Timestamp;

use super::{Path, PathState, Progress};

/// What is acknowledged is counted over one to two of these.
const PIECE: Duration = Duration::from_millis(100);
/// For so long it has to look like that: the first answer after a pause is one, and the next ones follow it at once.
const LASTING: Duration = Duration::from_millis(150);
/// No path fails by this that has less under way, in packets: each may wait for the one before.
const LEAST_UNDER_WAY: u64 = 16;
/// What is under way needs this much longer than a round trip has lately been ...
const ROUND_TRIPS: u32 = 4;
/// ... and at least so long.
const LEAST_TIME: Duration = Duration::from_millis(300);
/// Of what is under way the oldest is that late: what has just been sent has no rate yet.
const LATE_ROUND_TRIPS: u32 = 3;
const LATE: Duration = Duration::from_millis(100);
/// It works again when it answers within so many of its least round trips, or so much later than in one.
const QUICK_ROUND_TRIPS: u32 = 3;
const QUICK_LATER: Duration = Duration::from_millis(60);
/// After one that trickled was needed all the same it is not found out again for so long.
const LEFT_ALONE: Duration = Duration::from_secs(1);

/// What was acknowledged lately, and whether the path trickles.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Trickle {
    is_on: bool,
    /// Since when it has looked like that.
    poor_since: Option<Timestamp>,
    left_alone_until: Timestamp,
    /// Since when it is counted: not across a pause, behind which a rate would be that of one packet.
    counted_from: Timestamp,
    piece_from: Timestamp,
    /// Bytes in the present piece, and in the one before.
    acked: [u64; 2],
}

impl Trickle {
    pub(super) fn note(&mut self, now: Timestamp, bytes: u64) {
        let passed = now.since(self.piece_from);
        if passed >= PIECE * 2 {
            (self.counted_from, self.piece_from, self.acked) = (now, now, [0; 2]);
        } else if passed >= PIECE {
            self.piece_from += PIECE;
            self.acked = [0, self.acked[0]];
        }
        self.acked[0] += bytes;
    }

    /// How long `bytes` take at the rate of late; nothing if that is not known.
    fn time_for(self, now: Timestamp, bytes: u64) -> Duration {
        let counted = now.since(self.counted_from.max(self.piece_from - PIECE));
        if counted < PIECE {
            return Duration::ZERO;
        }
        let acked = self.acked[0] + self.acked[1];
        counted.mul_f64((bytes as f64 / acked.max(1) as f64).min(1e4))
    }
}

impl Path {
    /// Whether what is under way would arrive far later than by a working link.
    fn all_but_fails(&self, now: Timestamp) -> bool {
        let under_way = self.sent.in_flight();
        let is_free = self.status() == PathStatus::Active && self.limit().is_none();
        let oldest = self.sent.oldest_sent_at().map_or(Duration::ZERO, |sent_at| now.since(sent_at));
        is_free
            && self.state == PathState::Usable
            && now >= self.trickle.left_alone_until
            && under_way > LEAST_UNDER_WAY * u64::from(self.mtu.current())
            && oldest > self.base_rtt() * LATE_ROUND_TRIPS + LATE
            && self.trickle.time_for(now, under_way) > (self.rtt.smoothed() * ROUND_TRIPS).max(LEAST_TIME)
    }

    /// Something was acknowledged: takes what is under way back, to be sent on other paths, if it would take too long.
    pub(super) fn look_whether_it_trickles(
        &mut self,
        now: Timestamp,
        another_works: bool,
        progress: &mut Progress,
    ) {
        let is_poor = another_works && self.all_but_fails(now);
        let since = self.trickle.poor_since.filter(|_| is_poor).unwrap_or(now);
        self.trickle.poor_since = is_poor.then_some(since);
        if is_poor && now.since(since) >= LASTING {
            self.trickle.poor_since = None;
            self.trickle.is_on = true;
            self.state = PathState::Suspect;
            self.ping_wanted = true;
            self.sent.take_items(&mut progress.losses.items);
        }
        self.keep_asking(now);
    }

    /// Whether what was just acknowledged shows that it works again. What only trickles does not, unless no other could take its place any more.
    pub(super) fn works_again(&mut self, another_works: bool) -> bool {
        let quick = (self.base_rtt() * QUICK_ROUND_TRIPS).max(self.base_rtt() + QUICK_LATER);
        self.trickle.is_on &= another_works && self.rtt.latest() > quick;
        !self.trickle.is_on
    }

    /// Whether it is suspect since next to nothing gets through.
    pub(crate) fn trickles(&self) -> bool {
        self.state == PathState::Suspect && self.trickle.is_on
    }

    /// Nothing else works: little is better than nothing.
    pub(crate) fn use_though_it_trickles(&mut self, now: Timestamp) -> bool {
        let was_on = self.trickles();
        if was_on {
            self.trickle.is_on = false;
            self.state = PathState::Usable;
            self.trickle.left_alone_until = now + LEFT_ALONE;
        }
        was_on
    }
}
