//! Who hears whom, and what collides: one channel without access points, as in an 802.11g group.
//!
//! A node that has something to send waits until it hears nobody, then a random number of slots (IEEE 802.11-2020 10.3.4). Two that
//! do not hear each other may still be heard at once by a third, who then understands neither. What is for everybody is sent once; what is for one is sent
//! again, with a longer wait each time, until it is understood or was tried seven times.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use units::Timestamp;

use crate::SeededRandom;

/// Slot and inter-frame space of 802.11g.
const SLOT: Duration = Duration::from_micros(9);
const SPACE: Duration = Duration::from_micros(28);
const LEAST_WINDOW: u32 = 16;
const MOST_WINDOW: u32 = 1_024;
/// `dot11ShortRetryLimit`.
const ATTEMPTS: u32 = 7;
/// What everybody understands: 6 Mbit/s, with headers of 802.11, IP and UDP (66 bytes) and 20 us in front.
const MICROS_PER_BYTE: f64 = 8.0 / 6.0;
const HEADER_BYTES: usize = 66;
const PREAMBLE_MICROS: f64 = 20.0;
/// Acknowledgement of a unicast frame and the space before it.
const ACKNOWLEDGEMENT: Duration = Duration::from_micros(44);
/// Frames that wait at one node.
const QUEUE: usize = 128;

/// A frame.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) from: usize,
    /// `None` for everybody.
    pub(super) to: Option<usize>,
    pub(super) bytes: Vec<u8>,
    attempt: u32,
}

/// Something on the air.
#[derive(Clone, Debug)]
struct Transmission {
    frame: Frame,
    end: Timestamp,
    /// Who is in range.
    hearers: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Station {
    queue: VecDeque<Frame>,
    /// It is about to send, or sending.
    is_busy: bool,
    is_sending: bool,
    /// What it hears, and whether it still understands it.
    hears: Vec<(u64, bool)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Air {
    stations: Vec<Station>,
    /// Who is in whose range.
    near: Vec<Vec<usize>>,
    on_air: BTreeMap<u64, Transmission>,
    next: u64,
    loss: f64,
    random: SeededRandom,
}

/// A transmission that is over.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) frame: Frame,
    /// Who has understood it.
    pub(super) understood: Vec<usize>,
    /// What is due next at its sender.
    pub(super) next: Option<(Timestamp, Due)>,
}

/// When to come again, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) enum Due {
    /// The node may try to send.
    Try(usize),
    /// The transmission ends.
    End(u64),
}

impl Air {
    /// `loss` is the share of frames that fade away by themselves.
    pub(super) fn new(nodes: usize, loss: f64, seed: u64) -> Self {
        Self {
            stations: vec![Station::default(); nodes],
            near: vec![Vec::new(); nodes],
            on_air: BTreeMap::new(),
            next: 0,
            loss,
            random: SeededRandom::derive(seed, "air"),
        }
    }

    pub(super) fn set_near(&mut self, near: Vec<Vec<usize>>) {
        self.near = near;
    }

    pub(super) fn near(&self, node: usize) -> &[usize] {
        self.near.get(node).map_or(&[], Vec::as_slice)
    }

    /// Hands a frame to its sender's queue; what is due for it.
    pub(super) fn send(
        &mut self,
        now: Timestamp,
        from: usize,
        to: Option<usize>,
        bytes: Vec<u8>,
    ) -> Option<(Timestamp, Due)> {
        let station = self.stations.get_mut(from)?;
        if station.queue.len() >= QUEUE {
            return None;
        }
        station.queue.push_back(Frame { from, to, bytes, attempt: 0 });
        if station.is_busy {
            return None;
        }
        station.is_busy = true;
        Some((now + SPACE + self.back_off(0), Due::Try(from)))
    }

    fn back_off(&mut self, attempt: u32) -> Duration {
        let window = (LEAST_WINDOW << attempt.min(6)).min(MOST_WINDOW);
        SLOT * (self.random.unit() * f64::from(window)) as u32
    }

    /// The node wants to send.
    pub(super) fn attempt(&mut self, now: Timestamp, node: usize) -> Option<(Timestamp, Due)> {
        let heard = self.stations.get(node)?.hears.iter().filter_map(|(number, _)| self.on_air.get(number));
        if let Some(until) = heard.map(|other| other.end).max() {
            let attempt = self.stations.get(node)?.queue.front().map_or(0, |frame| frame.attempt);
            return Some((until + SPACE + self.back_off(attempt), Due::Try(node)));
        }
        let station = self.stations.get_mut(node)?;
        let Some(frame) = station.queue.pop_front() else {
            station.is_busy = false;
            return None;
        };
        station.is_sending = true;
        let micros = PREAMBLE_MICROS + MICROS_PER_BYTE * (frame.bytes.len() + HEADER_BYTES) as f64;
        let mut end = now + Duration::from_micros(micros as u64);
        if frame.to.is_some() {
            end += ACKNOWLEDGEMENT;
        }
        // Who sends does not hear.
        station.hears.iter_mut().for_each(|(_, still)| *still = false);
        self.next += 1;
        let hearers = self.near.get(node).cloned().unwrap_or_default();
        for hearer in &hearers {
            let Some(other) = self.stations.get_mut(*hearer) else { continue };
            let understands = !other.is_sending && other.hears.is_empty();
            other.hears.iter_mut().for_each(|(_, still)| *still = false);
            other.hears.push((self.next, understands));
        }
        self.on_air.insert(self.next, Transmission { frame, end, hearers });
        Some((end, Due::End(self.next)))
    }

    /// A transmission ends.
    pub(super) fn end(&mut self, now: Timestamp, number: u64) -> Option<Ended> {
        let Transmission { frame, hearers, .. } = self.on_air.remove(&number)?;
        let mut understood: Vec<usize> = Vec::new();
        for hearer in hearers {
            let Some(other) = self.stations.get_mut(hearer) else { continue };
            let Some(at) = other.hears.iter().position(|(known, _)| *known == number) else { continue };
            let (_, still) = other.hears.swap_remove(at);
            let is_meant = frame.to.is_none_or(|to| to == hearer);
            if still && is_meant && !self.random.chance(self.loss) {
                understood.push(hearer);
            }
        }
        let again = frame.to.is_some() && understood.is_empty() && frame.attempt + 1 < ATTEMPTS;
        let attempt = if again { frame.attempt + 1 } else { 0 };
        let wait = SPACE + self.back_off(attempt);
        let station = self.stations.get_mut(frame.from)?;
        station.is_sending = false;
        if again {
            station.queue.push_front(Frame { attempt, ..frame.clone() });
        }
        station.is_busy = !station.queue.is_empty();
        let next = station.is_busy.then_some((now + wait, Due::Try(frame.from)));
        Some(Ended { frame, understood, next })
    }
}
