//! Two nodes that talk: small packets, each answered, as a bond does it. Silence is noticed by the one that asks, and the way given up.

use std::time::Duration;

use units::Timestamp;

/// Between packets.
pub(super) const INTERVAL: Duration = Duration::from_millis(10);
/// The bond takes a path for silent after a probe timeout; with round trips of some ms that is this, in its own tests 56 ms at most.
const SILENCE: Duration = Duration::from_millis(60);

/// What a conversation came to.
#[derive(Clone, Debug, Default)]
pub struct Told {
    /// Packets that the asking end sent.
    pub sent: u64,
    /// Answers that came back.
    pub answered: u64,
    /// Longest time without an answer since the first, and when it began.
    pub longest_gap: Duration,
    /// See `longest_gap`.
    pub gap_began: Timestamp,
    /// Round trips, in the order of their answers.
    pub round_trips: Vec<Duration>,
    /// How often the way was given up.
    pub given_up: u32,
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Conversation {
    pub(super) asking: usize,
    pub(super) asked: usize,
    pub(super) told: Told,
    next: u32,
    /// When each packet left, by its number.
    left: Vec<Timestamp>,
    answered: Option<Timestamp>,
    /// Oldest packet that went out over a way since the last answer.
    waits_since: Option<Timestamp>,
}

impl Conversation {
    pub(super) fn new(asking: usize, asked: usize) -> Self {
        let told = Told::default();
        Self { asking, asked, told, next: 0, left: Vec::new(), answered: None, waits_since: None }
    }

    /// The next packet's number; it leaves now if there is a way.
    pub(super) fn next(&mut self) -> u32 {
        self.next
    }

    pub(super) fn sent(&mut self, now: Timestamp) {
        self.left.push(now);
        self.next += 1;
        self.told.sent += 1;
        self.waits_since.get_or_insert(now);
    }

    /// Whether the way is to be given up.
    pub(super) fn is_silent(&mut self, now: Timestamp) -> bool {
        let is_silent = self.waits_since.is_some_and(|since| now.since(since) >= SILENCE);
        if is_silent {
            self.waits_since = None;
            self.told.given_up += 1;
        }
        is_silent
    }

    pub(super) fn answer(&mut self, now: Timestamp, number: u32) {
        let Some(left) = self.left.get(number as usize).copied() else { return };
        self.told.answered += 1;
        self.told.round_trips.push(now.since(left));
        self.note_gap(now);
        self.answered = Some(now);
        self.waits_since = None;
    }

    /// The time since the last answer counts too.
    pub(super) fn note_gap(&mut self, now: Timestamp) {
        let Some(before) = self.answered else { return };
        if now.since(before) > self.told.longest_gap {
            self.told.longest_gap = now.since(before);
            self.told.gap_began = before;
        }
    }
}
