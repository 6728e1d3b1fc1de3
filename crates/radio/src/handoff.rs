//! Soft hand-off: which network carries the traffic where one is to carry it all (`[JUGGLER] section 6.1`).
//!
//! ```text
//!             better by a margin for a while, or fading and another is not
//!   primary ---------------------------------------------------------------> the best of the others
//!             down, silent while we listen, or nothing lies behind it: at once
//! ```
//! The primary has nine tenths of the radio; the others and the scan slot share the rest, so that they stay associated and keep their
//! leases. Nothing here waits for an application's time-out: beacons, acknowledgements and the signal tell.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use units::{NetworkId, Timestamp};

/// What the owner decides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HandoffSettings {
    /// So many dB stronger another must be ...
    pub margin_db: f32,
    /// ... for so long.
    pub patience: Duration,
    /// A primary that will be weaker than this within a second fades: then a third of the margin, and no patience, will do.
    pub fading_dbm: f32,
    /// After a change nothing but a failure makes another one for so long.
    pub rest: Duration,
}

impl Default for HandoffSettings {
    fn default() -> Self {
        Self {
            margin_db: 9.0,
            patience: Duration::from_secs(3),
            fading_dbm: -78.0,
            rest: Duration::from_secs(5),
        }
    }
}

/// What was last found beyond a network's first hop, by asking what an application would ask.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Beyond {
    /// Nobody has asked yet, or there is nothing to ask.
    #[default]
    Unknown,
    /// The answer came, after so long.
    Answered(Duration),
    /// None came, or that of a login page.
    Nothing,
}

/// How a network is at a moment.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Observation {
    /// Which.
    pub network: NetworkId,
    /// Packets pass, and it has an address.
    pub usable: bool,
    /// Signal of its beacons, smoothed, in dBm.
    pub signal_dbm: Option<f32>,
    /// Beacons that were due in our presence and did not come, since the last one.
    pub missed_beacons: u32,
    /// Frames in a row that were not acknowledged, each with all its attempts.
    pub unanswered: u32,
    /// How long we have been there without a sign of life.
    pub silence: Duration,
    /// What lies beyond it.
    pub beyond: Beyond,
}

/// Why the primary was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Why {
    /// There was none.
    First,
    /// It is down or has no address any more.
    Down,
    /// It does not acknowledge.
    Silent,
    /// Its beacons do not come.
    Unheard,
    /// Nothing answers beyond it.
    Unreachable,
    /// Its signal falls.
    Fading,
    /// Another one is stronger.
    Weaker,
}

impl fmt::Display for Why {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::First => "there was none",
            Self::Down => "the one before is down",
            Self::Silent => "the one before does not acknowledge frames",
            Self::Unheard => "the beacons of the one before do not come",
            Self::Unreachable => "nothing answers beyond the one before",
            Self::Fading => "the signal of the one before fades",
            Self::Weaker => "it is stronger",
        })
    }
}

/// A change of the primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Change {
    /// The new one.
    pub to: NetworkId,
    /// Why.
    pub why: Why,
}

/// Signals of a network of late, at most one each [`SAMPLE`].
#[derive(Clone, Default, Debug)]
struct Trend(VecDeque<(Timestamp, f32)>);

impl Trend {
    fn add(&mut self, now: Timestamp, signal: f32) {
        if self.0.back().is_none_or(|(last, _)| now.since(*last) >= SAMPLE) {
            self.0.push_back((now, signal));
        }
        while self.0.front().is_some_and(|(first, _)| now.since(*first) > MEMORY) {
            self.0.pop_front();
        }
    }

    /// The signal in a second if it goes on as in the last two, in dBm; one that rises is taken as it is.
    fn ahead(&self, signal: f32) -> f32 {
        let (Some((first, old)), Some((last, new))) = (self.0.front(), self.0.back()) else { return signal };
        let time = last.since(*first).as_secs_f32();
        if time < LEAST_TREND.as_secs_f32() {
            return signal;
        }
        signal + ((new - old) / time).min(0.0)
    }
}

/// Which network is the primary.
#[derive(Clone, Debug)]
pub struct Handoff {
    settings: HandoffSettings,
    primary: Option<NetworkId>,
    changed: Timestamp,
    trends: BTreeMap<NetworkId, Trend>,
    /// Who has been better by the margin, since when.
    better: Option<(NetworkId, Timestamp)>,
    /// When a network last failed as the primary.
    failed: BTreeMap<NetworkId, Timestamp>,
}

impl Handoff {
    /// No primary yet.
    pub fn new(settings: HandoffSettings) -> Self {
        let (trends, failed) = (BTreeMap::new(), BTreeMap::new());
        Self { settings, primary: None, changed: Timestamp::ZERO, trends, better: None, failed }
    }

    /// The one that carries the traffic; `None` before the first was usable.
    pub fn primary(&self) -> Option<NetworkId> {
        self.primary
    }

    /// Weight of a network or the scan slot, of `others` that share a tenth with it or have nine tenths before it.
    pub fn weight(is_primary: bool, others: u16) -> u16 {
        if is_primary { 9 * others.max(1) } else { 1 }
    }

    /// Looks at all networks; gives a change of the primary, if there is one.
    pub fn observe(&mut self, now: Timestamp, networks: &[Observation]) -> Option<Change> {
        self.trends.retain(|id, _| networks.iter().any(|network| network.network == *id));
        self.failed.retain(|id, _| networks.iter().any(|network| network.network == *id));
        for network in networks {
            if let Some(signal) = network.signal_dbm {
                self.trends.entry(network.network).or_default().add(now, signal);
            }
        }
        let primary =
            self.primary.and_then(|id| networks.iter().find(|network| network.network == id)).copied();
        let best = self.best_other(now, networks);
        let why = match (primary, self.primary) {
            (None, None) => Some(Why::First),
            (None, Some(_)) => Some(Why::Down),
            (Some(primary), _) => self.failure(&primary, best.as_ref()),
        };
        let Some(best) = best else {
            self.better = None;
            return None;
        };
        let why = why.or_else(|| self.is_outdone(now, &primary?, &best))?;
        if let Some(id) = self.primary.filter(|_| matches!(why, Why::Down | Why::Silent | Why::Unheard)) {
            self.failed.insert(id, now);
        }
        self.primary = Some(best.network);
        self.changed = now;
        self.better = None;
        Some(Change { to: best.network, why })
    }

    /// Why a primary is no use any more, whoever else there is.
    fn failure(&self, primary: &Observation, other: Option<&Observation>) -> Option<Why> {
        if !primary.usable {
            return Some(Why::Down);
        }
        if primary.unanswered >= MOST_UNANSWERED && primary.silence >= LEAST_SILENCE {
            return Some(Why::Silent);
        }
        if primary.missed_beacons >= MOST_UNHEARD && primary.unanswered > 0 {
            return Some(Why::Unheard);
        }
        let answers = |one: &Observation| matches!(one.beyond, Beyond::Answered(_));
        (primary.beyond == Beyond::Nothing && other.is_some_and(answers)).then_some(Why::Unreachable)
    }

    fn is_outdone(&mut self, now: Timestamp, primary: &Observation, best: &Observation) -> Option<Why> {
        let settings = self.settings;
        let (Some(own), Some(other)) = (self.ahead(primary), self.ahead(best)) else {
            self.better = None;
            return None;
        };
        if best.beyond == Beyond::Nothing && primary.beyond != Beyond::Nothing {
            self.better = None;
            return None;
        }
        if now.since(self.changed) < settings.rest {
            return None;
        }
        if own < settings.fading_dbm && other >= own + settings.margin_db / 3.0 {
            return Some(Why::Fading);
        }
        if other < own + settings.margin_db {
            self.better = None;
            return None;
        }
        let since = match self.better {
            Some((network, since)) if network == best.network => since,
            _ => now,
        };
        self.better = Some((best.network, since));
        (now.since(since) >= settings.patience).then_some(Why::Weaker)
    }

    /// The one that would take over: what lies beyond it first, then its signal. One that has just failed is the last choice.
    fn best_other(&self, now: Timestamp, networks: &[Observation]) -> Option<Observation> {
        let rank = |network: &Observation| {
            let failed = self.failed.get(&network.network).is_some_and(|at| now.since(*at) < FORGIVEN_AFTER);
            let beyond = match network.beyond {
                Beyond::Answered(_) => 2,
                Beyond::Unknown => 1,
                Beyond::Nothing => 0,
            };
            (!failed, network.unanswered == 0, beyond)
        };
        let others =
            networks.iter().filter(|network| network.usable && Some(network.network) != self.primary);
        let signal = |network: &Observation| self.ahead(network).unwrap_or(f32::NEG_INFINITY);
        others.max_by(|a, b| rank(a).cmp(&rank(b)).then(signal(a).total_cmp(&signal(b)))).copied()
    }

    fn ahead(&self, network: &Observation) -> Option<f32> {
        let signal = network.signal_dbm?;
        Some(self.trends.get(&network.network).map_or(signal, |trend| trend.ahead(signal)))
    }
}

/// Frames in a row without acknowledgement, seven attempts each, after which a network is silent ...
const MOST_UNANSWERED: u32 = 3;
/// ... if nothing else was heard of it either for so long in our presence: a burst of noise is shorter.
const LEAST_SILENCE: Duration = Duration::from_millis(40);
/// Beacons missed in our presence after which it counts as gone, if a frame went unanswered too.
const MOST_UNHEARD: u32 = 3;
/// For so long a network that failed is the last choice.
const FORGIVEN_AFTER: Duration = Duration::from_secs(10);
const SAMPLE: Duration = Duration::from_millis(100);
/// The trend is that of so long.
const MEMORY: Duration = Duration::from_secs(2);
const LEAST_TREND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    const A: NetworkId = NetworkId(1);
    const B: NetworkId = NetworkId(2);

    fn network(id: NetworkId, signal: f32) -> Observation {
        Observation {
            network: id,
            usable: true,
            signal_dbm: Some(signal),
            missed_beacons: 0,
            unanswered: 0,
            silence: Duration::ZERO,
            beyond: Beyond::Unknown,
        }
    }

    /// Observes every 20 ms from `from` for `time`; `all` gives the networks by the milliseconds since then. Gives the changes with their times.
    fn run(
        handoff: &mut Handoff,
        from: u64,
        time: u64,
        all: impl Fn(u64) -> Vec<Observation>,
    ) -> Vec<(u64, Change)> {
        let steps = (0..time).step_by(20);
        steps
            .filter_map(|at| Some((at, handoff.observe(Timestamp::from_millis(from + at), &all(at))?)))
            .collect()
    }

    /// A is the primary since long ago.
    fn with_primary() -> Handoff {
        let mut handoff = Handoff::new(HandoffSettings::default());
        let first = run(&mut handoff, 0, 10_000, |_| vec![network(A, -50.0), network(B, -55.0)]);
        assert_eq!(first, [(0, Change { to: A, why: Why::First })]);
        handoff
    }

    #[test]
    fn nine_tenths_are_the_primarys() {
        // By hand, as in the paper: with one secondary and the scan slot, 18 : 1 : 1 is 90 %, 5 %, 5 %.
        assert_eq!((Handoff::weight(true, 2), Handoff::weight(false, 2)), (18, 1));
    }

    #[test]
    fn a_primary_that_does_not_acknowledge_is_left_at_once() {
        let mut handoff = with_primary();
        let dead = |at: u64| {
            let silence = Duration::from_millis(at);
            let unanswered = (at / 10) as u32;
            vec![Observation { unanswered, silence, ..network(A, -50.0) }, network(B, -55.0)]
        };
        let changes = run(&mut handoff, 10_000, 3_000, dead);
        assert_eq!(changes, [(40, Change { to: B, why: Why::Silent })]);
        // It has failed, so it is not gone back to though it is stronger.
        let back = run(&mut handoff, 13_000, 1_000, |_| vec![network(A, -50.0), network(B, -55.0)]);
        assert_eq!(back, []);
    }

    #[test]
    fn noise_is_not_taken_for_death() {
        let mut handoff = with_primary();
        let noisy = |at: u64| {
            // Three frames of one burst are lost, but beacons and other frames are heard.
            let unanswered = if at % 200 < 40 { 4 } else { 0 };
            let silence = Duration::from_millis(at % 40);
            vec![
                Observation { unanswered, silence, missed_beacons: 2, ..network(A, -50.0) },
                network(B, -55.0),
            ]
        };
        assert_eq!(run(&mut handoff, 10_000, 5_000, noisy), []);
    }

    #[test]
    fn a_walk_changes_once_and_in_time() {
        // 3 dB a second away from A towards B: A fades below -78 dBm after about 9 s; B is stronger by 9 dB after 4 s, and 3 s later still.
        let walk = |at: u64| {
            let seconds = at as f32 / 1_000.0;
            vec![network(A, -50.0 - 3.0 * seconds), network(B, -65.0 + 3.0 * seconds)]
        };
        let mut handoff = with_primary();
        let changes = run(&mut handoff, 10_000, 12_000, walk);
        assert_eq!(changes.len(), 1, "{changes:?}");
        let (at, change) = changes[0];
        assert_eq!(change, Change { to: B, why: Why::Weaker });
        // What A will have in a second counts: 3 dB less. -53 - 3t against -65 + 3t: 9 dB apart at t = 3.5 s.
        assert!((6_400..6_700).contains(&at), "{at}");
    }

    #[test]
    fn a_signal_that_fades_fast_does_not_wait() {
        let fall = |at: u64| vec![network(A, -60.0 - 12.0 * at as f32 / 1_000.0), network(B, -72.0)];
        let mut handoff = with_primary();
        let changes = run(&mut handoff, 10_000, 3_000, fall);
        let (at, change) = changes[0];
        assert_eq!((changes.len(), change), (1, Change { to: B, why: Why::Fading }));
        assert!(at < 1_500, "{at}");
    }

    #[test]
    fn equals_do_not_take_turns() {
        let mut handoff = with_primary();
        let wavering = |at: u64| {
            let wave = if (at / 500).is_multiple_of(2) { 5.0 } else { -5.0 };
            vec![network(A, -60.0 + wave), network(B, -60.0 - wave)]
        };
        assert_eq!(run(&mut handoff, 10_000, 30_000, wavering), []);
    }

    #[test]
    fn what_an_application_would_get_comes_first() {
        let mut handoff = with_primary();
        let c = NetworkId(3);
        let answered = Beyond::Answered(Duration::from_millis(30));
        let portal = |_| {
            vec![
                Observation { beyond: Beyond::Nothing, ..network(A, -50.0) },
                Observation { beyond: Beyond::Nothing, ..network(B, -45.0) },
                Observation { beyond: answered, ..network(c, -70.0) },
            ]
        };
        let changes = run(&mut handoff, 10_000, 20_000, portal);
        assert_eq!(changes, [(0, Change { to: c, why: Why::Unreachable })]);
        // Where nothing answers anywhere, as without a server to ask, the primary stays.
        let mut handoff = with_primary();
        let nowhere =
            |_| [A, B].map(|id| Observation { beyond: Beyond::Nothing, ..network(id, -50.0) }).to_vec();
        assert_eq!(run(&mut handoff, 10_000, 20_000, nowhere), []);
    }

    #[test]
    fn without_another_nothing_changes_and_the_first_that_comes_is_taken() {
        let mut handoff = with_primary();
        let down = Observation { usable: false, ..network(A, -50.0) };
        assert_eq!(run(&mut handoff, 10_000, 2_000, |_| vec![down]), []);
        let changes = run(&mut handoff, 12_000, 1_000, |_| vec![down, network(B, -80.0)]);
        assert_eq!(changes, [(0, Change { to: B, why: Why::Down })]);
    }
}
