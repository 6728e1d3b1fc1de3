//! One channel: what is on its air, and who notices.

use std::sync::Arc;
use std::time::Duration;

use radio::Rate;
use radio::airtime::Flavour;
use units::{Frequency, Timestamp};

use super::contention::count_down;
use super::propagation::Propagation;
use super::station::{Station, Waiting};
use super::{ChannelStatistics, StationId};

/// The state of a channel.
#[derive(Debug, Default)]
pub(super) struct Channel {
    /// What lasts now: one exchange, or several whose senders do not hear each other or began in the same slot.
    pub on_air: Vec<OnAir>,
    /// What has ended but was there during a part of what lasts.
    pub past: Vec<Transmission>,
    /// Since when each station hears nobody; `None` while it hears somebody. Who is beyond the end has never heard anybody.
    pub quiet: Vec<Option<Timestamp>>,
    /// Who will send next, and when, if those who hear nobody have something to send.
    pub next: Option<(Timestamp, Vec<StationId>)>,
    pub statistics: ChannelStatistics,
    /// Until when the times of the statistics are counted.
    frames_until: Timestamp,
    answers_until: Timestamp,
}

/// An exchange that lasts.
#[derive(Debug)]
pub(super) struct OnAir {
    pub exchange: Exchange,
    pub stage: Stage,
    pub began: Timestamp,
    /// When the frame ends or ended.
    pub frame_ends: Timestamp,
    /// When the present stage ends.
    pub ends: Timestamp,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    Frame,
    /// The frame has ended; an acknowledgement is on the air or awaited.
    Answer,
}

/// An attempt of a frame.
#[derive(Debug)]
pub(super) struct Exchange {
    pub sender: StationId,
    pub waiting: Waiting,
    pub bytes: Arc<[u8]>,
    pub rate: Rate,
    /// The station it is for, if it has heard it.
    pub heard_by: Option<StationId>,
}

/// Something that a station sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Transmission {
    pub from: StationId,
    pub began: Timestamp,
    pub ends: Timestamp,
    /// It is a frame, no acknowledgement.
    pub is_frame: bool,
}

impl Channel {
    /// When something happens next.
    pub fn due(&self) -> Option<Timestamp> {
        let ends = self.on_air.iter().map(|on_air| on_air.ends);
        ends.chain(self.next.as_ref().map(|(at, _)| *at)).min()
    }

    /// The place of what ends at `at`.
    pub fn ending(&self, at: Timestamp) -> Option<usize> {
        self.on_air.iter().position(|on_air| on_air.ends <= at)
    }

    /// Takes an exchange off the air; what it was remains as long as it may have disturbed others.
    pub fn take(&mut self, index: usize, flavour: Flavour) -> OnAir {
        let taken = self.on_air.remove(index);
        self.past.extend(taken.transmissions(flavour));
        let earliest = self.on_air.iter().map(|on_air| on_air.began).min();
        self.past.retain(|past| earliest.is_some_and(|earliest| past.ends > earliest));
        taken
    }

    /// What else was on the air while `transmission` lasted.
    pub fn beside(&self, transmission: Transmission, flavour: Flavour) -> Vec<Transmission> {
        let lasting = self.on_air.iter().flat_map(|on_air| on_air.transmissions(flavour));
        lasting
            .chain(self.past.iter().copied())
            .filter(|other| *other != transmission && other.overlaps(&transmission))
            .collect()
    }

    /// Notes who hears somebody from `at` on, and who does not any more; takes the slots that passed off the back-offs of the former.
    pub fn listen<P: Propagation>(
        &mut self,
        at: Timestamp,
        stations: &mut [Station],
        (frequency, flavour): (Frequency, Flavour),
        propagation: &mut P,
    ) {
        self.quiet.resize(stations.len(), Some(Timestamp::ZERO));
        for (index, (station, quiet)) in stations.iter_mut().zip(&mut self.quiet).enumerate() {
            let listener = StationId(index);
            let hears = self
                .on_air
                .iter()
                .flat_map(OnAir::heard_from)
                .any(|sender| sender == listener || propagation.senses(at, listener, sender));
            match *quiet {
                Some(since) if hears => {
                    if station.counts_on(frequency) {
                        count_down(station, flavour, since, at);
                    }
                    *quiet = None;
                }
                None if !hears => *quiet = Some(at),
                _ => {}
            }
        }
    }

    /// Counts the air of a frame from `at` to `ends`.
    pub fn count_frame(&mut self, at: Timestamp, ends: Timestamp) {
        let beside = self.on_air.iter().any(|on_air| on_air.stage == Stage::Frame);
        self.statistics.attempts += 1;
        self.statistics.collisions += u64::from(beside);
        self.statistics.frames += beyond(&mut self.frames_until, at, ends);
    }

    /// Counts the time of an answer from `at` to `ends`.
    pub fn count_answer(&mut self, at: Timestamp, ends: Timestamp) {
        self.statistics.answers += beyond(&mut self.answers_until, at, ends);
    }
}

/// What `at` to `ends` adds to what is counted up to `until`.
fn beyond(until: &mut Timestamp, at: Timestamp, ends: Timestamp) -> Duration {
    let from = at.max(*until);
    *until = ends.max(*until);
    ends.since(from.min(ends))
}

impl OnAir {
    /// The frame.
    pub fn frame(&self) -> Transmission {
        Transmission { from: self.exchange.sender, began: self.began, ends: self.frame_ends, is_frame: true }
    }

    /// The acknowledgement, if there is one.
    pub fn answer(&self, flavour: Flavour) -> Option<Transmission> {
        let from = self.exchange.heard_by.filter(|_| self.stage == Stage::Answer)?;
        let began = self.frame_ends + flavour.sifs();
        Some(Transmission { from, began, ends: self.ends, is_frame: false })
    }

    fn transmissions(&self, flavour: Flavour) -> impl Iterator<Item = Transmission> {
        std::iter::once(self.frame()).chain(self.answer(flavour))
    }

    /// Whose sending holds others back: the sender's, to the end of the exchange, which its frame announces, and then that of who answers.
    fn heard_from(&self) -> impl Iterator<Item = StationId> {
        let answers = self.exchange.heard_by.filter(|_| self.stage == Stage::Answer);
        std::iter::once(self.exchange.sender).chain(answers)
    }
}

impl Transmission {
    fn overlaps(&self, other: &Self) -> bool {
        self.began < other.ends && other.began < self.ends
    }
}
