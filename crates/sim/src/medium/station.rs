//! One station: where it listens, what it has to send, how long it must still hold back.

use std::collections::{BTreeSet, VecDeque};

use units::{Frequency, MacAddress, Timestamp};

use super::frame::{AccessCategory, Frame, Series, Tuning};
use super::statistics::StationStatistics;

/// A station's part of the medium's state.
#[derive(Clone, Debug)]
pub(super) struct Station {
    pub(super) tuning: Tuning,
    /// What it acknowledges.
    pub(super) addresses: BTreeSet<MacAddress>,
    /// Slots of back-off left at the beginning of the silence that it hears; `None`: over.
    pub(super) back_off: Option<u32>,
    /// The channel of its last attempt, on which its back-off counts while nothing waits.
    pub(super) last_channel: Option<Frequency>,
    /// One of its frames is on the air or awaits its answer.
    pub(super) busy: bool,
    /// When its last exchange ended: nothing of it can begin before.
    pub(super) free_since: Timestamp,
    pub(super) statistics: StationStatistics,
    /// Frames to groups, which go first.
    urgent: VecDeque<Waiting>,
    /// [`AccessCategory::Voice`].
    voice: VecDeque<Waiting>,
    usual: VecDeque<Waiting>,
    limit: usize,
}

/// A frame that waits for its next attempt.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) frame: Frame,
    pub(super) receiver: MacAddress,
    pub(super) arrived: Timestamp,
    pub(super) failures: u32,
    /// Its rates, once chosen.
    pub(super) series: Option<Series>,
}

/// Frames of [`AccessCategory::Voice`] for which there is room.
const MOST_VOICE: usize = 32;

impl Station {
    pub(super) fn new(tuning: Tuning, limit: usize) -> Self {
        Self {
            tuning,
            addresses: BTreeSet::new(),
            back_off: None,
            last_channel: None,
            busy: false,
            free_since: Timestamp::ZERO,
            statistics: StationStatistics::default(),
            urgent: VecDeque::new(),
            voice: VecDeque::new(),
            usual: VecDeque::new(),
            limit: limit.max(1),
        }
    }

    /// How many frames wait, the one on the air left out.
    pub(super) fn waiting(&self) -> usize {
        self.urgent.len() + self.voice.len() + self.usual.len()
    }

    /// Whether another frame finds room. The one on the air counts.
    pub(super) fn has_room(&self, category: AccessCategory) -> bool {
        match category {
            AccessCategory::BestEffort => {
                self.urgent.len() + self.usual.len() + usize::from(self.busy) < self.limit
            }
            AccessCategory::Voice => self.voice.len() < MOST_VOICE,
        }
    }

    pub(super) fn append(&mut self, waiting: Waiting) {
        self.queue_of(&waiting).push_back(waiting);
    }

    /// Puts a frame back that needs another attempt.
    pub(super) fn put_back(&mut self, waiting: Waiting) {
        self.queue_of(&waiting).push_front(waiting);
    }

    /// The frame whose turn is next.
    pub(super) fn head(&self) -> Option<&Waiting> {
        self.urgent.front().or_else(|| self.voice.front()).or_else(|| self.usual.front())
    }

    pub(super) fn take_head(&mut self) -> Option<Waiting> {
        self.urgent.pop_front().or_else(|| self.voice.pop_front()).or_else(|| self.usual.pop_front())
    }

    /// Takes all frames out that are for another channel than `frequency`.
    pub(super) fn take_strangers(&mut self, frequency: Option<Frequency>) -> Vec<Waiting> {
        let mut taken = Vec::new();
        for queue in [&mut self.urgent, &mut self.voice, &mut self.usual] {
            let (stay, go) = queue.drain(..).partition(|waiting| Some(waiting.frame.frequency) == frequency);
            *queue = stay;
            taken.extend::<VecDeque<_>>(go);
        }
        taken
    }

    /// Whether it hears `frequency` now; a radio that sends elsewhere does not.
    pub(super) fn listens_on(&self, frequency: Frequency) -> bool {
        match self.tuning {
            Tuning::To(own) => own == frequency,
            Tuning::Off => false,
            Tuning::Unknown => !self.busy || self.last_channel == Some(frequency),
        }
    }

    /// Whether its back-off counts silence on `frequency`.
    pub(super) fn counts_on(&self, frequency: Frequency) -> bool {
        !self.busy
            && self.head().map_or(self.last_channel, |head| Some(head.frame.frequency)) == Some(frequency)
    }

    fn queue_of(&mut self, waiting: &Waiting) -> &mut VecDeque<Waiting> {
        match waiting.frame.category {
            _ if waiting.receiver.is_group() => &mut self.urgent,
            AccessCategory::Voice => &mut self.voice,
            AccessCategory::BestEffort => &mut self.usual,
        }
    }
}

impl Waiting {
    /// Whether an acknowledgement is awaited: never from a group.
    pub(super) fn wants_answer(&self) -> bool {
        self.frame.wants_acknowledgement && !self.receiver.is_group()
    }
}
