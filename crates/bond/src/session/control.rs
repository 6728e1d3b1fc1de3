//! Control frames that wait for a path.
//!
//! What must arrive is never dropped, and yet nothing here grows without end. Frames that state something (a path's status,
//! how long to wait, new keys) are kept as the latest state of each thing, of which there are few. Messages are
//! refused when too many wait. Only "gave up" is a hint: without it the peer waits for its hold time, so the oldest give way.

use crate::unit::Control;
use std::collections::{BTreeMap, VecDeque};
use units::PathId;
use wire::frame::{Arrived, GaveUp, PathStatus};

/// Messages of the owner that may wait.
pub(crate) const MAX_MESSAGES: usize = 64;
/// Runs of numbers that may wait to be given up.
const MAX_GAVE_UP: usize = 1_024;

/// The queue, by what the frames are about.
#[derive(Debug, Default)]
pub(crate) struct ControlQueue {
    /// Latest of each step.
    rekeys: BTreeMap<u8, (u8, Vec<u8>)>,
    /// Of each path what the latest said.
    arrived: BTreeMap<PathId, Box<Arrived>>,
    /// Latest of each path; its number is never used again, so there are 256 at most.
    paths: BTreeMap<PathId, PathNews>,
    hold: Option<(u64, u64)>,
    gave_up: VecDeque<GaveUp>,
    messages: VecDeque<Vec<u8>>,
}

/// What the peer has not been told of a path.
#[derive(Clone, Copy, Debug)]
enum PathNews {
    Status(PathStatus),
    Abandoned,
}

impl ControlQueue {
    /// Puts a frame in line, for the first time or again.
    pub(crate) fn push(&mut self, control: Control) {
        match control {
            Control::Rekey { step, epoch, noise } => {
                let is_older = |known: u8| (known.wrapping_sub(epoch) as i8) > 0;
                if self.rekeys.get(&step).is_none_or(|(known, _)| !is_older(*known)) {
                    self.rekeys.insert(step, (epoch, noise));
                }
            }
            Control::Arrived(arrived) => {
                let newest = |arrived: &Arrived| arrived.ranges.first().map(|range| *range.end());
                if self.arrived.get(&arrived.path).is_none_or(|known| newest(known) <= newest(&arrived)) {
                    self.arrived.insert(arrived.path, arrived);
                }
            }
            Control::PathAbandon(path) => {
                self.paths.insert(path, PathNews::Abandoned);
            }
            Control::PathStatus(status) => match self.paths.get(&status.path) {
                Some(PathNews::Abandoned) => {}
                Some(PathNews::Status(known)) if known.sequence > status.sequence => {}
                _ => {
                    self.paths.insert(status.path, PathNews::Status(status));
                }
            },
            Control::Hold { sequence, micros } => {
                if self.hold.is_none_or(|(known, _)| known < sequence) {
                    self.hold = Some((sequence, micros));
                }
            }
            Control::GaveUp(gave_up) => self.push_gave_up(gave_up),
            Control::Message(bytes) => self.messages.push_back(bytes),
        }
    }

    /// A run that follows the last one makes it longer.
    fn push_gave_up(&mut self, gave_up: GaveUp) {
        if let Some(last) = self.gave_up.back_mut() {
            let sum = last.count.saturating_add(gave_up.count);
            let follows = last.flow == gave_up.flow && last.first.wrapping_add(last.count) == gave_up.first;
            if follows && sum <= u32::from(u16::MAX) {
                last.count = sum;
                return;
            }
        }
        if self.gave_up.len() >= MAX_GAVE_UP {
            self.gave_up.pop_front();
        }
        self.gave_up.push_back(gave_up);
    }

    /// Whether a new message may be put in line. One that was lost always may.
    pub(crate) fn has_room_for_message(&self) -> bool {
        self.messages.len() < MAX_MESSAGES
    }

    /// Nothing waits but messages, whose number is not ours to decide.
    pub(crate) fn only_messages(&self) -> bool {
        self.rekeys.is_empty()
            && self.arrived.is_empty()
            && self.paths.is_empty()
            && self.hold.is_none()
            && self.gave_up.is_empty()
    }

    /// Bytes of the next frame, at most.
    pub(crate) fn max_len(&self) -> Option<usize> {
        if let Some((_, noise)) = self.rekeys.values().next() {
            return Some(noise.len() + 8);
        }
        if let Some(arrived) = self.arrived.values().next() {
            return Some(Arrived::max_len(arrived.ranges.len()));
        }
        if !self.only_messages() {
            return Some(24);
        }
        self.messages.front().map(|bytes| bytes.len() + 8)
    }

    /// The next frame: keys, what arrived on paths, then what becomes of these, times, hints, messages.
    pub(crate) fn pop(&mut self) -> Option<Control> {
        if let Some((step, (epoch, noise))) = self.rekeys.pop_first() {
            return Some(Control::Rekey { step, epoch, noise });
        }
        if let Some((_, arrived)) = self.arrived.pop_first() {
            return Some(Control::Arrived(arrived));
        }
        if let Some((path, news)) = self.paths.pop_first() {
            return Some(match news {
                PathNews::Status(status) => Control::PathStatus(status),
                PathNews::Abandoned => Control::PathAbandon(path),
            });
        }
        if let Some((sequence, micros)) = self.hold.take() {
            return Some(Control::Hold { sequence, micros });
        }
        self.gave_up
            .pop_front()
            .map(Control::GaveUp)
            .or_else(|| self.messages.pop_front().map(Control::Message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(path: u8, sequence: u64) -> Control {
        Control::PathStatus(PathStatus { path: PathId(path), sequence, status: 1, priority: 0, limit: 0 })
    }

    fn gave_up(first: u32) -> Control {
        Control::GaveUp(GaveUp { flow: 1, first, count: 1 })
    }

    #[test]
    fn what_must_arrive_survives_any_number_of_hints() {
        let mut queue = ControlQueue::default();
        queue.push(Control::Message(vec![1]));
        for number in 0..10_000 {
            queue.push(gave_up(number * 2));
        }
        queue.push(status(3, 1));
        queue.push(Control::PathAbandon(PathId(4)));
        queue.push(Control::Hold { sequence: 1, micros: 5 });
        queue.push(Control::Rekey { step: 0, epoch: 1, noise: vec![9] });
        queue.push(Control::Message(vec![2]));
        let all: Vec<Control> = std::iter::from_fn(|| queue.pop()).collect();
        let count = |wanted: fn(&Control) -> bool| all.iter().filter(|control| wanted(control)).count();
        assert_eq!(count(|control| matches!(control, Control::GaveUp(_))), MAX_GAVE_UP);
        assert_eq!(count(|control| matches!(control, Control::PathStatus(_))), 1);
        assert_eq!(count(|control| matches!(control, Control::PathAbandon(PathId(4)))), 1);
        assert_eq!(count(|control| matches!(control, Control::Hold { .. })), 1);
        assert_eq!(count(|control| matches!(control, Control::Rekey { .. })), 1);
        assert_eq!(count(|control| matches!(control, Control::Message(_))), 2);
    }

    #[test]
    fn only_the_latest_state_is_sent() {
        let mut queue = ControlQueue::default();
        queue.push(status(0, 7));
        queue.push(status(0, 6));
        queue.push(status(1, 1));
        queue.push(Control::PathAbandon(PathId(1)));
        queue.push(status(1, 2));
        queue.push(Control::Hold { sequence: 4, micros: 40 });
        queue.push(Control::Hold { sequence: 3, micros: 30 });
        let Some(Control::PathStatus(latest)) = queue.pop() else { panic!("no status") };
        assert_eq!(latest.sequence, 7);
        assert!(matches!(queue.pop(), Some(Control::PathAbandon(PathId(1)))));
        assert!(matches!(queue.pop(), Some(Control::Hold { sequence: 4, micros: 40 })));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn runs_that_follow_each_other_are_one() {
        let mut queue = ControlQueue::default();
        (0..100).for_each(|first| queue.push(gave_up(first)));
        let Some(Control::GaveUp(run)) = queue.pop() else { panic!("nothing given up") };
        assert_eq!((run.first, run.count), (0, 100));
        assert!(queue.pop().is_none());
    }
}
