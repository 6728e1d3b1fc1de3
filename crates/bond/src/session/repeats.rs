//! What becomes of packets that were lost, or have waited too long.

use super::{MAX_HOLD, MIN_HOLD, Session, SessionEvent};
use crate::path::Progress;
use crate::unit::{Control, DataUnit, Item, Payload};
use policy::FlowClass;
use std::time::Duration;
use units::{PathId, Timestamp};
use wire::frame::GaveUp;

/// Copies of a lost packet that are sent at most.
const MAX_REPEATS: u8 = 3;
/// Packets wait this long for a path that works.
const QUEUE_PATIENCE: Duration = Duration::from_secs(10);
/// A packet that is older is not sent again.
const REPEAT_PATIENCE: Duration = Duration::from_secs(4);
/// How many repeats the receiver should wait for.
const HOLD_REPEATS: u32 = 3;

impl Session {
    /// Puts lost contents back in line, or tells the peer that they will not come.
    pub(super) fn requeue(&mut self, now: Timestamp, items: Vec<Item>, not_on: Option<PathId>) {
        for item in items {
            match item {
                Item::Control(control) => self.requeue_control(control),
                Item::Data(unit) => self.requeue_data(now, unit, not_on),
                Item::Stream(span) => self.lose_span(&span),
                Item::Notice(notice) => self.lose_notice(notice),
            }
        }
    }

    pub(super) fn requeue_data(&mut self, now: Timestamp, unit: DataUnit, not_on: Option<PathId>) {
        let mut unit = unit;
        if matches!(unit.payload, Payload::Repair { .. }) {
            return;
        }
        let limit = if unit.class == FlowClass::RealTime { 1 } else { MAX_REPEATS };
        if unit.repeats >= limit || now.since(unit.queued_at) > REPEAT_PATIENCE {
            self.give_up(unit.flow, unit.sequence, 1);
            return;
        }
        unit.repeats += 1;
        unit.duplicate = false;
        self.counters.repeats += 1;
        self.repeats.push_back((unit, not_on));
    }

    /// A path that was silent has answered: what has arrived over it need not be sent again, and what is still on its way is not lost yet.
    pub(super) fn recall(&mut self, index: usize, progress: &Progress) {
        if !progress.recovered && progress.arrived_taken.is_empty() {
            return;
        }
        let Some(path) = self.paths.get_mut(index) else { return };
        let (id, before) = (path.id, self.repeats.len());
        let is_wanted = |(unit, not_on): (DataUnit, Option<PathId>)| {
            let Some(number) = unit.taken_from.filter(|_| not_on == Some(id)) else {
                return Some((unit, not_on));
            };
            if progress.arrived_taken.contains(&number) {
                return None;
            }
            if !progress.recovered {
                return Some((unit, not_on));
            }
            let repeats = unit.repeats.saturating_sub(1);
            path.sent
                .give_back(number, DataUnit { repeats, ..unit })
                .err()
                .map(|unit| (DataUnit { repeats: unit.repeats + 1, ..unit }, not_on))
        };
        self.repeats = std::mem::take(&mut self.repeats).into_iter().filter_map(is_wanted).collect();
        self.counters.repeats -= (before - self.repeats.len()) as u64;
    }

    pub(super) fn requeue_control(&mut self, control: Control) {
        let outdated = match &control {
            Control::Hold { sequence, .. } => *sequence < self.announced_hold_sequence,
            Control::PathStatus(frame) => self
                .paths
                .iter()
                .find(|path| path.id == frame.path)
                .is_none_or(|path| frame.sequence < path.own_status_sequence),
            Control::Arrived(arrived) => self.paths.iter().all(|path| path.id != arrived.path),
            _ => false,
        };
        if !outdated {
            self.control.push(control);
        }
    }

    pub(super) fn give_up(&mut self, flow: u16, first: u32, count: u32) {
        let count = count.clamp(1, u32::from(u16::MAX));
        self.control.push(Control::GaveUp(GaveUp { flow, first, count }));
    }

    /// What has waited too long for a path is dropped, and the peer told not to wait for it.
    pub(super) fn expire_queue(&mut self, now: Timestamp) {
        let dropped = self.flows.drop_older(now - QUEUE_PATIENCE);
        if !dropped.is_empty() && self.stalled_since.is_some() {
            self.events.push_back(SessionEvent::QueueExpired);
        }
        for (flow, first, count) in dropped {
            self.give_up(flow, first, count);
        }
        // Second copies too, which must not arrive after the peer has forgotten the first.
        let expired = |unit: &DataUnit| now.since(unit.queued_at) > QUEUE_PATIENCE;
        let old = self.repeats.iter().filter(|(unit, _)| expired(unit));
        let gone: Vec<(u16, u32)> = old.map(|(unit, _)| (unit.flow, unit.sequence)).collect();
        self.repeats.retain(|(unit, _)| !expired(unit));
        for (flow, sequence) in gone {
            self.give_up(flow, sequence, 1);
        }
    }

    /// Tells the peer how long a gap may be waited for: the paths' difference, and the time of some repeats.
    pub(super) fn announce_hold(&mut self) {
        let mut least: Option<f64> = None;
        let mut most: Option<f64> = None;
        let mut repeat = Duration::ZERO;
        for path in self.data_paths() {
            repeat = repeat.max(path.rtt.smoothed() + path.peer_reordering());
            if let Some(delay) = path.one_way_delay() {
                least = Some(least.map_or(delay, |before| before.min(delay)));
                most = Some(most.map_or(delay, |before| before.max(delay)));
            }
        }
        let spread = most.zip(least).map_or(0.0, |(most, least)| (most - least).max(0.0));
        let hold = Duration::from_secs_f64(spread / 1e6) + repeat * HOLD_REPEATS;
        let hold = hold.clamp(MIN_HOLD, MAX_HOLD);
        let told = self.announced_hold;
        if hold.abs_diff(told) > told / 4 {
            self.announced_hold = hold;
            self.announced_hold_sequence += 1;
            let micros = hold.as_micros() as u64;
            self.control.push(Control::Hold { sequence: self.announced_hold_sequence, micros });
        }
    }
}
