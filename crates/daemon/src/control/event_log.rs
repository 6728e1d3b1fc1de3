//! The events of a daemon's life: the last ones kept, new ones handed to whoever follows.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anabranch::control::{Event, EventKind, EventSequence, UnixMillis};
use tokio::sync::broadcast;
use tracing::{info, warn};

/// Events that are kept; older ones are forgotten.
const KEPT: usize = 1_000;
/// Events that a follower may be behind before it skips to the oldest kept.
const FOLLOWER_LAG: usize = 256;
/// Longest text of an event, in bytes; it is cut there.
const MAX_TEXT: usize = 4_096;

/// A bounded log that any thread may write and any number may follow.
#[derive(Debug)]
pub struct EventLog {
    inner: Mutex<Inner>,
    followers: broadcast::Sender<Event>,
}

#[derive(Debug)]
struct Inner {
    kept: VecDeque<Event>,
    last: EventSequence,
    /// How many there were of each kind, forgotten ones included.
    counts: Vec<(EventKind, u64)>,
}

impl Default for EventLog {
    fn default() -> Self {
        let inner = Inner { kept: VecDeque::new(), last: EventSequence(0), counts: Vec::new() };
        Self { inner: Mutex::new(inner), followers: broadcast::Sender::new(FOLLOWER_LAG) }
    }
}

impl EventLog {
    /// Adds an event with the present wall time, and logs it; `subject` is the network or client it is about.
    pub fn push(&self, kind: EventKind, subject: Option<&str>, text: impl Into<String>) {
        let mut text = text.into();
        let end = (0..=text.len().min(MAX_TEXT)).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
        log(kind, subject, &text);
        let mut inner = self.lock();
        inner.last.0 += 1;
        match inner.counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => inner.counts.push((kind, 1)),
        }
        let event = Event {
            sequence: inner.last,
            time: UnixMillis::now(),
            kind,
            subject: subject.map(str::to_owned),
            text,
        };
        if inner.kept.len() == KEPT {
            inner.kept.pop_front();
        }
        inner.kept.push_back(event.clone());
        // Sent under the lock, so that followers see the order of the numbers; nobody following is no fault.
        let _ = self.followers.send(event);
    }

    /// The events after number `since` that are still kept.
    pub fn since(&self, since: EventSequence) -> Vec<Event> {
        after(&self.lock(), since)
    }

    /// How many there were of each kind so far.
    pub(super) fn counts(&self) -> Vec<(EventKind, u64)> {
        self.lock().counts.clone()
    }

    /// The same, and a receiver of all that come later.
    pub(super) fn follow(&self, since: EventSequence) -> (Vec<Event>, broadcast::Receiver<Event>) {
        let inner = self.lock();
        (after(&inner, since), self.followers.subscribe())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Nothing is left half done under the lock, so a panic elsewhere does not spoil the log.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// With the subject in the words, for logs that are lines; and as fields, for logs that have them.
fn log(kind: EventKind, subject: Option<&str>, text: &str) {
    let sentence = Event::with_subject(subject, text);
    match kind {
        EventKind::Warning | EventKind::Refused => warn!(event = kind.as_str(), subject, "{sentence}"),
        _ => info!(event = kind.as_str(), subject, "{sentence}"),
    }
}

fn after(inner: &Inner, since: EventSequence) -> Vec<Event> {
    inner.kept.iter().filter(|event| event.sequence > since).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_and_numbers_go_on() {
        let log = EventLog::default();
        for number in 0..KEPT + 3 {
            log.push(EventKind::Warning, None, number.to_string());
        }
        let kept = log.since(EventSequence(0));
        assert_eq!((kept.len(), kept[0].sequence, kept[0].text.as_str()), (KEPT, EventSequence(4), "3"));
        assert_eq!(log.since(EventSequence(KEPT as u64 + 2)).len(), 1);
    }

    #[test]
    fn a_follower_misses_nothing() {
        let log = EventLog::default();
        log.push(EventKind::Started, None, "one");
        let (past, mut receiver) = log.follow(EventSequence(0));
        log.push(EventKind::NetworkUp, Some("wan0"), "two");
        assert_eq!(past.len(), 1);
        assert_eq!(receiver.try_recv().unwrap().subject.as_deref(), Some("wan0"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let log = EventLog::default();
        log.push(EventKind::Warning, None, "ü".repeat(MAX_TEXT));
        assert_eq!(log.since(EventSequence(0))[0].text.len(), MAX_TEXT);
    }
}
