//! Networks from which nothing comes back any more, as flows show it. Pure.
//!
//! It is a reason to ask over the network, no more: a far end may be dead, or a program may have all that it wanted.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Bytes, NetworkId, Timestamp};

/// What one sample shows of a network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Heard {
    /// Whether connections over it are open.
    pub open: bool,
    /// Whether anything of one has moved.
    pub alive: bool,
    /// Whether one that moved much has stopped, or one has sent the same again without an answer.
    pub stopped: bool,
    /// Whether packets left by it and none came.
    pub one_way: bool,
    /// Whether much came by it, as in a download.
    pub much: bool,
    /// Whether no more came by it than neighbours and routers say.
    pub little: bool,
}

impl Heard {
    /// By the counters of its interface alone.
    pub fn counted(time: Duration, sent: Bytes, received: Bytes) -> Self {
        let seconds = time.as_secs_f64();
        let per_second = |bytes: Bytes| bytes.0 as f64 / seconds;
        let little = seconds > 0.0 && per_second(received) < NOISE;
        let much = seconds > 0.0 && per_second(received) >= MUCH;
        Self { one_way: little && per_second(sent) >= TALK, much, little, ..Self::default() }
    }
}

/// Since when each network is silent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Silences(BTreeMap<NetworkId, Timestamp>);

impl Silences {
    /// Takes in a sample.
    pub fn hear(&mut self, now: Timestamp, network: NetworkId, heard: Heard) {
        if heard.alive {
            self.end(network);
        } else if heard.stopped || heard.one_way {
            self.0.entry(network).or_insert(now);
        } else if !heard.open {
            self.end(network);
        }
    }

    /// The network has answered, or is another one now.
    pub fn end(&mut self, network: NetworkId) {
        self.0.remove(&network);
    }

    /// Forgets networks that are gone, and what nobody has asked about.
    pub fn keep(&mut self, now: Timestamp, is_there: impl Fn(NetworkId) -> bool) {
        self.0.retain(|network, since| is_there(*network) && now.since(*since) < LONGEST);
    }

    /// Whether a network has been silent for long enough.
    pub fn is_silent(&self, network: NetworkId, now: Timestamp) -> bool {
        self.0.get(&network).is_some_and(|since| now.since(*since) >= SILENT)
    }

    /// Whether none is silent.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// After the first sample that shows it, which has seen nothing for up to a second itself.
const SILENT: Duration = Duration::from_millis(900);
const LONGEST: Duration = Duration::from_secs(30);
/// Bytes a second: somebody says something.
const TALK: f64 = 150.0;
/// Bytes a second that come on a link from neighbours and routers though nothing is beyond them.
const NOISE: f64 = 300.0;
/// Bytes a second that a person would miss.
const MUCH: f64 = 20_000.0;

#[cfg(test)]
mod tests {
    use super::*;

    const LAN: NetworkId = NetworkId(0);
    const SECOND: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_download_that_stops_is_silent_until_something_comes() {
        let mut silences = Silences::default();
        let flowing = Heard { open: true, alive: true, ..Heard::default() };
        silences.hear(at(1), LAN, flowing);
        assert!(silences.is_empty());
        silences.hear(at(2), LAN, Heard { open: true, stopped: true, ..Heard::default() });
        assert!(!silences.is_silent(LAN, at(2)));
        silences.hear(at(3), LAN, Heard { open: true, ..Heard::default() });
        assert!(silences.is_silent(LAN, at(3)) && !silences.is_silent(NetworkId(1), at(3)));
        silences.hear(at(4), LAN, flowing);
        assert!(silences.is_empty());
    }

    #[test]
    fn a_download_that_has_ended_is_not_silent() {
        let mut silences = Silences::default();
        silences.hear(at(1), LAN, Heard { open: true, stopped: true, ..Heard::default() });
        silences.hear(at(2), LAN, Heard::default());
        assert!(silences.is_empty());
        silences.hear(at(3), LAN, Heard { open: true, stopped: true, ..Heard::default() });
        silences.keep(at(40), |_| true);
        assert!(silences.is_empty(), "nobody has asked");
    }

    #[test]
    fn questions_without_answers_are_heard_in_the_counters() {
        let mut silences = Silences::default();
        let counted = |sent, received| Heard::counted(SECOND, Bytes(sent), Bytes(received));
        silences.hear(at(1), LAN, counted(500, 100));
        silences.hear(at(2), LAN, counted(500, 0));
        assert!(silences.is_silent(LAN, at(2)));
        silences.hear(at(3), LAN, counted(500, 400));
        assert!(silences.is_empty());
        assert!(!counted(60, 0).one_way, "a question for an address is none");
        assert!(counted(0, 50_000).much && !counted(0, 50_000).little && !counted(0, 5_000).much);
        assert_eq!(Heard::counted(Duration::ZERO, Bytes(9), Bytes(0)), Heard::default());
    }
}
