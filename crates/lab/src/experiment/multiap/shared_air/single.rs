//! What others do with several access points of one channel: one at a time, by handing over or by turns.

use std::collections::VecDeque;
use std::time::Duration;

use policy::PathStatus;
use units::{NetworkId, Timestamp};

use super::{JOINED_AFTER, STEERING, Way, World};

/// Which access point is used when.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Single {
    /// The best one at every moment, known at once and without any gap.
    Ideal,
    /// Another one when of it more beacons were heard in the last two seconds, by ten; the old one is left first (`[MULTIAP] section 6.3`).
    Beacons,
    /// Each in turn, the sender being told so by MPTCP's backup flag or the like (`[MULTIAP] section 5`).
    TurnsByBackup,
    /// Each in turn, while the others hold packets back for a device that seems to sleep.
    TurnsByPowerSave,
}

/// `[MULTIAP] section 5` speaks of a duty cycle of 200 ms.
const CYCLE: Duration = Duration::from_millis(200);
/// Beacons that are counted: one in [`STEERING`], of two seconds; and how many more another one must have.
const COUNTED: usize = 20;
const MORE: usize = 10;
const _: () = assert!(STEERING.as_millis() * COUNTED as u128 == 2_000);

/// Which one is used now.
#[derive(Default)]
pub(super) struct Turn {
    /// `None`: none yet, or none at present.
    pub current: Option<usize>,
    /// The next one and since when it may be used.
    joining: Option<(usize, Timestamp)>,
    /// Whether a beacon of each was heard, lately.
    heard: VecDeque<Vec<bool>>,
}

impl Turn {
    /// How many beacons of `point` were heard.
    fn count(&self, point: usize) -> usize {
        self.heard.iter().filter(|heard| heard[point]).count()
    }
}

impl World {
    /// The way, if it is one at a time.
    pub(super) fn single(&self) -> Option<Single> {
        if let Way::Single(single) = self.run.way { Some(single) } else { None }
    }

    /// Every 100 ms.
    pub(super) fn hand_over(&mut self, single: Single) {
        let count = self.packet_times.len();
        if single == Single::Ideal {
            let near = (0..count).filter_map(|index| Some((self.packet_times[index]?, index)));
            if let Some((_, best)) = near.min() {
                self.use_only(best);
            }
            return;
        }
        self.turn.heard.push_back(self.packet_times.iter().map(Option::is_some).collect());
        if self.turn.heard.len() > COUNTED {
            self.turn.heard.pop_front();
        }
        if let Some((next, at)) = self.turn.joining {
            if self.now >= at {
                self.turn.joining = None;
                self.turn.current = Some(next);
                self.device.network_up(self.now, network(next));
            }
            return;
        }
        let most =
            (0..count).max_by_key(|index| (self.turn.count(*index), count - index)).unwrap_or_default();
        match self.turn.current {
            None => {
                (0..count)
                    .filter(|index| *index != most)
                    .for_each(|index| self.device.network_down(self.now, network(index)));
                self.turn.current = Some(most);
            }
            Some(current) if self.turn.count(most) >= self.turn.count(current) + MORE => {
                self.device.network_down(self.now, network(current));
                self.turn.joining = Some((most, self.now + JOINED_AFTER));
            }
            Some(_) => {}
        }
    }

    /// Every millisecond: whose turn it is.
    pub(super) fn take_turn(&mut self, single: Single) {
        let joined: Vec<usize> = (0..self.joined.len()).filter(|index| self.joined[*index]).collect();
        if joined.is_empty() {
            return;
        }
        let slot = CYCLE / joined.len() as u32;
        let turn = self.now.since(Timestamp::ZERO).div_duration_f64(slot) as usize % joined.len();
        if single == Single::TurnsByBackup {
            self.use_only(joined[turn]);
        } else if self.turn.current.replace(joined[turn]) != Some(joined[turn]) {
            self.take_turns();
        }
    }

    /// The other end is told to send by this one.
    fn use_only(&mut self, point: usize) {
        if self.turn.current.replace(point) == Some(point) {
            return;
        }
        for index in 0..self.packet_times.len() {
            let status = if index == point { PathStatus::Active } else { PathStatus::Backup };
            self.device.set_path_status(self.device_session, network(index), status, 0);
        }
    }

    /// Whether an access point believes that the device is awake.
    pub(super) fn is_awake(&self, point: usize) -> bool {
        let sleeps = self.single() == Some(Single::TurnsByPowerSave) && self.turn.current.is_some();
        !sleeps || self.turn.current == Some(point)
    }
}

fn network(point: usize) -> NetworkId {
    NetworkId(point as u32 + 1)
}
