//! Finds destinations that refuse the gateway's address, so that they can be reached directly.
//!
//! ```text
//!            refusals, apart from each other,
//!            while others are reached               connected directly
//!   Unknown ---------------------------------> Try ---------------------> Direct
//!      ^  ^                                     |                            |
//!      |  +------ connected by the gateway -----+                            |
//!      |  +------ refused directly too ---------+                            |
//!      +----------------------- the verdict's time is over ------------------+
//! ```
//!
//! A reset before any byte of an answer, an ICMP "administratively prohibited" and silence are refusals; what a site says
//! inside TLS (a page with "403") cannot be seen from here. If the gateway reaches nobody, that is its own fault and
//! nothing is concluded.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::Timestamp;

/// What came of one flow's start.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Outcome {
    /// The destination answered and kept talking.
    Connected,
    /// It reset the connection before it sent anything, or forbade it by ICMP.
    Refused,
    /// No answer.
    Silent,
}

/// How a flow went.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Route {
    /// Through the gateway.
    Gateway,
    /// Without it.
    Direct,
}

/// What to do with new flows to a destination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// As policy says.
    Unknown,
    /// It seems to refuse the gateway: send the next flow directly and report what comes of it.
    Try,
    /// It refuses the gateway and answers directly: direct, until then.
    Direct {
        /// When the gateway is to be tried again.
        until: Timestamp,
    },
}

/// How [`RefusalDetector`] judges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RefusalSettings {
    /// Refusals that make a destination suspect.
    pub refusals: u8,
    /// Least time between two that count: a browser opens six connections at once.
    pub apart: Duration,
    /// Refusals older than this are forgotten.
    pub memory: Duration,
    /// How long a verdict holds.
    pub verdict: Duration,
    /// Destinations that are watched; beyond, the one that was quiet for longest is forgotten.
    pub most: u32,
}

impl Default for RefusalSettings {
    fn default() -> Self {
        Self {
            refusals: 3,
            apart: Duration::from_secs(1),
            memory: Duration::from_secs(600),
            verdict: Duration::from_secs(6 * 3_600),
            most: 1_024,
        }
    }
}

/// Judges destinations by what comes of flows to them.
#[derive(Clone, Debug)]
pub struct RefusalDetector {
    settings: RefusalSettings,
    watched: BTreeMap<IpAddr, Watched>,
    /// When the gateway last reached anybody.
    gateway_worked: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
struct Watched {
    first: Timestamp,
    last: Timestamp,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Refusing(u8),
    Direct { until: Timestamp },
}

impl RefusalDetector {
    /// Suspects nobody yet.
    pub fn new(settings: RefusalSettings) -> Self {
        Self { settings, watched: BTreeMap::new(), gateway_worked: None }
    }

    /// What came of a flow to `destination`. Returns the advice for the next one.
    pub fn on_outcome(
        &mut self,
        now: Timestamp,
        destination: IpAddr,
        route: Route,
        outcome: Outcome,
    ) -> Advice {
        match (route, outcome) {
            (Route::Gateway, Outcome::Connected) => {
                self.gateway_worked = Some(now);
                self.watched.remove(&destination);
            }
            (Route::Gateway, Outcome::Refused | Outcome::Silent) => self.on_refusal(now, destination),
            (Route::Direct, Outcome::Connected) => {
                let suspect = self.advice(now, destination) == Advice::Try;
                if let (true, Some(watched)) = (suspect, self.watched.get_mut(&destination)) {
                    watched.state = State::Direct { until: now + self.settings.verdict };
                    watched.last = now;
                }
            }
            // It refuses everybody: the gateway is not to blame.
            (Route::Direct, Outcome::Refused | Outcome::Silent) => {
                self.watched.remove(&destination);
            }
        }
        self.advice(now, destination)
    }

    /// What to do with the next flow to `destination`.
    pub fn advice(&self, now: Timestamp, destination: IpAddr) -> Advice {
        let Some(watched) = self.watched.get(&destination) else { return Advice::Unknown };
        match watched.state {
            State::Direct { until } if now < until => Advice::Direct { until },
            State::Direct { .. } => Advice::Unknown,
            State::Refusing(times) => {
                let fresh = now.since(watched.last) < self.settings.memory;
                let others_work = self.gateway_worked.is_some_and(|worked| worked >= watched.first);
                if fresh && others_work && times >= self.settings.refusals {
                    Advice::Try
                } else {
                    Advice::Unknown
                }
            }
        }
    }

    /// Destinations that go direct now, and until when.
    pub fn direct(&self, now: Timestamp) -> impl Iterator<Item = (IpAddr, Timestamp)> + '_ {
        self.watched.iter().filter_map(move |(destination, watched)| match watched.state {
            State::Direct { until } if now < until => Some((*destination, until)),
            _ => None,
        })
    }

    fn on_refusal(&mut self, now: Timestamp, destination: IpAddr) {
        let fresh = Watched { first: now, last: now, state: State::Refusing(1) };
        let Some(watched) = self.watched.get_mut(&destination) else {
            self.make_room();
            self.watched.insert(destination, fresh);
            return;
        };
        match watched.state {
            State::Direct { until } if now < until => {}
            State::Refusing(times) if now.since(watched.last) < self.settings.memory => {
                if now.since(watched.last) >= self.settings.apart {
                    watched.state = State::Refusing(times.saturating_add(1));
                    watched.last = now;
                }
            }
            _ => *watched = fresh,
        }
    }

    fn make_room(&mut self) {
        while self.watched.len() >= self.settings.most.max(1) as usize {
            let oldest = self.watched.iter().min_by_key(|(_, watched)| watched.last);
            let Some(oldest) = oldest.map(|(destination, _)| *destination) else { return };
            self.watched.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn site(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn detector() -> RefusalDetector {
        RefusalDetector::new(RefusalSettings::default())
    }

    /// Refused at 1, 3 and 5 s, while another site works at 2 s.
    fn suspicious() -> RefusalDetector {
        let mut detector = detector();
        detector.on_outcome(at(1), site(1), Route::Gateway, Outcome::Refused);
        detector.on_outcome(at(2), site(2), Route::Gateway, Outcome::Connected);
        assert_eq!(detector.on_outcome(at(3), site(1), Route::Gateway, Outcome::Silent), Advice::Unknown);
        assert_eq!(detector.on_outcome(at(5), site(1), Route::Gateway, Outcome::Refused), Advice::Try);
        detector
    }

    #[test]
    fn a_site_that_refuses_the_gateway_goes_direct_for_a_while() {
        let mut detector = suspicious();
        let until = at(6 + 6 * 3_600);
        assert_eq!(
            detector.on_outcome(at(6), site(1), Route::Direct, Outcome::Connected),
            Advice::Direct { until }
        );
        assert_eq!(detector.direct(at(7)).collect::<Vec<_>>(), [(site(1), until)]);
        assert_eq!(detector.advice(until, site(1)), Advice::Unknown, "the gateway gets another chance");
        assert_eq!(detector.on_outcome(until, site(1), Route::Gateway, Outcome::Refused), Advice::Unknown);
    }

    #[test]
    fn a_site_that_refuses_everybody_does_not() {
        let mut detector = suspicious();
        assert_eq!(detector.on_outcome(at(6), site(1), Route::Direct, Outcome::Refused), Advice::Unknown);
        let mut detector = suspicious();
        assert_eq!(detector.on_outcome(at(6), site(1), Route::Gateway, Outcome::Connected), Advice::Unknown);
    }

    #[test]
    fn a_gateway_that_reaches_nobody_is_its_own_fault() {
        let mut detector = detector();
        detector.on_outcome(at(0), site(2), Route::Gateway, Outcome::Connected);
        for second in 1..60 {
            for last in [1, 3, 4] {
                let advice = detector.on_outcome(at(second), site(last), Route::Gateway, Outcome::Silent);
                assert_eq!(advice, Advice::Unknown);
            }
        }
    }

    #[test]
    fn a_burst_counts_once_and_old_refusals_do_not_count() {
        let mut detector = detector();
        for _ in 0..6 {
            detector.on_outcome(at(1), site(1), Route::Gateway, Outcome::Refused);
        }
        detector.on_outcome(at(2), site(2), Route::Gateway, Outcome::Connected);
        assert_eq!(detector.advice(at(2), site(1)), Advice::Unknown);
        for second in [1_000, 2_000, 3_000] {
            detector.on_outcome(at(second), site(1), Route::Gateway, Outcome::Refused);
            detector.on_outcome(at(second), site(2), Route::Gateway, Outcome::Connected);
            assert_eq!(detector.advice(at(second), site(1)), Advice::Unknown);
        }
    }

    proptest! {
        /// Nobody goes direct who was not refused through the gateway and then reached directly; memory is bounded.
        #[test]
        fn verdicts_have_grounds(
            events in proptest::collection::vec((0u64..1_500, 0u8..6, any::<bool>(), 0u8..3), 0..300),
            most in 0u32..8,
        ) {
            let mut detector = RefusalDetector::new(RefusalSettings { most, ..RefusalSettings::default() });
            let (mut now, mut refusals, mut direct) = (Timestamp::ZERO, [0u32; 6], [false; 6]);
            for (wait, last, by_gateway, outcome) in events {
                now += Duration::from_millis(wait);
                let route = if by_gateway { Route::Gateway } else { Route::Direct };
                let outcome = [Outcome::Connected, Outcome::Refused, Outcome::Silent][usize::from(outcome)];
                let at = usize::from(last);
                refusals[at] += u32::from(by_gateway && outcome != Outcome::Connected);
                direct[at] |= !by_gateway && outcome == Outcome::Connected;
                if let Advice::Direct { .. } = detector.on_outcome(now, site(last), route, outcome) {
                    prop_assert!(refusals[at] >= 3 && direct[at]);
                }
                prop_assert!(detector.watched.len() <= most.max(1) as usize);
            }
        }
    }
}
