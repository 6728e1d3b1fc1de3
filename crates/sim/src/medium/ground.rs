//! Where stations are, and what signal follows from it: distance, and fades that each pair of stations has for itself.

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;

use super::StationId;
use crate::random::SeededRandom;

/// How a signal becomes weaker with distance and time.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PathLoss {
    /// The signal one metre away, dBm.
    pub metre_dbm: f64,
    /// By how many times ten decibels it is weaker at ten times the distance: 2 in the open, 3 to 4 inside a building.
    pub exponent: f64,
    /// How long a fade lasts; `None`: signals do not fade.
    pub coherence: Option<Duration>,
    /// A station notices another one's sending from this mean signal on, dBm.
    pub senses_from_dbm: f64,
}

impl PathLoss {
    /// The mean signal so many metres away, dBm. Nearer than one metre it is that of one.
    pub fn signal_dbm(&self, metres: f64) -> f64 {
        self.metre_dbm - 10.0 * self.exponent * metres.max(1.0).log10()
    }
}

/// The way of a station: where it is at which time, in between on a straight line; before the first point and after the last one it stays there.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Trace(Vec<(Duration, [f64; 2])>);

impl Trace {
    /// A way through these points, each with its time since the beginning and metres east and north; `None` if there is none, times go back, or a place is
    /// none. Two points of one time are a jump.
    pub fn new(points: Vec<(Duration, [f64; 2])>) -> Option<Self> {
        let in_order = points.is_sorted_by_key(|(time, _)| *time);
        let sound = points.iter().flat_map(|(_, place)| place).all(|metres| metres.is_finite());
        (in_order && sound && !points.is_empty()).then_some(Self(points))
    }

    /// Where it is after `time`.
    pub fn place(&self, time: Duration) -> [f64; 2] {
        let next = self.0.partition_point(|(at, _)| *at <= time);
        let before = next.checked_sub(1).and_then(|last| self.0.get(last));
        match (before, self.0.get(next)) {
            (Some((from, here)), Some((to, there))) => {
                let part = (time - *from).div_duration_f64(*to - *from);
                std::array::from_fn(|axis| here[axis] + part * (there[axis] - here[axis]))
            }
            (Some((_, place)), None) | (None, Some((_, place))) => *place,
            (None, None) => [0.0; 2],
        }
    }
}

/// Stations that have places.
#[derive(Clone, Debug)]
pub struct Ground {
    path_loss: PathLoss,
    traces: BTreeMap<StationId, Trace>,
    fades: BTreeMap<(StationId, StationId), Fade>,
    began: Timestamp,
    seed: u64,
}

impl Ground {
    /// Nobody is there yet. Traces begin at `began`; fades are those of `seed`.
    pub fn new(path_loss: PathLoss, began: Timestamp, seed: u64) -> Self {
        Self { path_loss, traces: BTreeMap::new(), fades: BTreeMap::new(), began, seed }
    }

    /// Gives a station its way.
    pub fn place(&mut self, station: StationId, trace: Trace) {
        self.traces.insert(station, trace);
    }

    /// The signal between two stations with places, dBm, with its fades; both directions have the same.
    pub(super) fn signal_dbm(&mut self, at: Timestamp, one: StationId, other: StationId) -> Option<f64> {
        let mean = self.mean_dbm(at, one, other)?;
        let Some(coherence) = self.path_loss.coherence else { return Some(mean) };
        let (began, seed) = (self.began, self.seed);
        let pair = (one.min(other), one.max(other));
        let fade = self.fades.entry(pair).or_insert_with(|| {
            Fade::new(
                coherence,
                began,
                SeededRandom::derive(seed, &format!("fades {} {}", pair.0.0, pair.1.0)),
            )
        });
        Some(mean + fade.gain_db(at))
    }

    /// Whether either would notice the other's sending; `None` where one of them has no place.
    pub(super) fn senses(&self, at: Timestamp, one: StationId, other: StationId) -> Option<bool> {
        Some(self.mean_dbm(at, one, other)? >= self.path_loss.senses_from_dbm)
    }

    fn mean_dbm(&self, at: Timestamp, one: StationId, other: StationId) -> Option<f64> {
        let time = at.since(self.began);
        let [here, there] = [self.traces.get(&one)?, self.traces.get(&other)?].map(|trace| trace.place(time));
        Some(self.path_loss.signal_dbm((here[0] - there[0]).hypot(here[1] - there[1])))
    }
}

/// A signal that fades as one without a direct way (Rayleigh), drawn anew after each coherence time.
#[derive(Clone, Debug)]
pub struct Fade {
    coherence: Duration,
    began: Timestamp,
    random: SeededRandom,
    /// How many were drawn.
    drawn: u128,
    gain_db: f64,
}

impl Fade {
    /// Fades of at least 1 ms each, the first from `began` on.
    pub fn new(coherence: Duration, began: Timestamp, random: SeededRandom) -> Self {
        let coherence = coherence.max(Duration::from_millis(1));
        Self { coherence, began, random, drawn: 0, gain_db: 0.0 }
    }

    /// What the signal has now beyond its mean, dB. Time does not go back.
    pub fn gain_db(&mut self, at: Timestamp) -> f64 {
        let block = at.since(self.began).as_micros() / self.coherence.as_micros();
        while self.drawn <= block {
            self.drawn += 1;
            self.gain_db = fade_db(self.random.unit());
        }
        self.gain_db
    }
}

/// A fade in dB, of which so many parts of one are deeper: the power of a Rayleigh link is distributed exponentially around its mean.
pub fn fade_db(deeper: f64) -> f64 {
    let power = -f64::ln_1p(-deeper.clamp(1e-6, 1.0 - 1e-6));
    10.0 * power.log10()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: StationId = StationId(0);
    const OTHER: StationId = StationId(1);
    const THIRD: StationId = StationId(2);

    fn at(seconds: f64) -> Timestamp {
        Timestamp::ZERO + Duration::from_secs_f64(seconds)
    }

    fn ground(coherence: Option<Duration>) -> Ground {
        let path_loss = PathLoss { metre_dbm: -30.0, exponent: 3.0, coherence, senses_from_dbm: -90.0 };
        let mut ground = Ground::new(path_loss, at(10.0), 1);
        ground.place(ONE, Trace::new(vec![(Duration::ZERO, [0.0, 0.0])]).unwrap());
        let seconds = Duration::from_secs;
        ground.place(OTHER, Trace::new(vec![(seconds(1), [10.0, 0.0]), (seconds(3), [110.0, 0.0])]).unwrap());
        ground
    }

    #[test]
    fn who_walks_away_is_heard_less_and_at_last_not_noticed() {
        let mut ground = ground(None);
        let mut signal = |time| ground.signal_dbm(at(time), ONE, OTHER).unwrap();
        assert!((signal(10.0) - -60.0).abs() < 1e-9 && (signal(11.0) - -60.0).abs() < 1e-9);
        // Half of the way: 60 m.
        assert!((signal(12.0) - -83.344).abs() < 1e-3, "{}", signal(12.0));
        assert!((signal(99.0) - signal(13.0)).abs() < 1e-9);
        assert_eq!([12.0, 13.0].map(|time| ground.senses(at(time), ONE, OTHER)), [Some(true), Some(false)]);
        assert_eq!(ground.senses(at(12.0), ONE, THIRD), None, "who has no place");
    }

    #[test]
    fn a_way_is_straight_and_may_jump() {
        let seconds = Duration::from_secs;
        let trace = Trace::new(vec![
            (seconds(0), [0.0, 0.0]),
            (seconds(2), [2.0, 4.0]),
            (seconds(2), [50.0, 0.0]),
            (seconds(4), [50.0, 2.0]),
        ])
        .unwrap();
        assert_eq!(trace.place(seconds(1)), [1.0, 2.0]);
        assert_eq!(trace.place(seconds(2)), [50.0, 0.0]);
        assert_eq!(trace.place(seconds(3)), [50.0, 1.0]);
        assert_eq!(trace.place(seconds(9)), [50.0, 2.0]);
        assert_eq!(Trace::new(vec![]), None);
        assert_eq!(Trace::new(vec![(seconds(1), [0.0; 2]), (seconds(0), [0.0; 2])]), None);
        assert_eq!(Trace::new(vec![(seconds(1), [f64::NAN, 0.0])]), None);
    }

    #[test]
    fn fades_are_each_pairs_own_and_the_same_both_ways() {
        let mut ground = ground(Some(Duration::from_millis(40)));
        ground.place(THIRD, Trace::new(vec![(Duration::ZERO, [0.0, 10.0])]).unwrap());
        let (mut power, mut same) = (0.0, 0);
        for block in 0..20_000_u32 {
            let now = at(10.0) + Duration::from_millis(40) * block;
            let own = ground.signal_dbm(now, ONE, THIRD).unwrap();
            assert_eq!(Some(own), ground.signal_dbm(now + Duration::from_millis(39), THIRD, ONE));
            let mean = ground.mean_dbm(now, ONE, OTHER).unwrap();
            let others = ground.signal_dbm(now, ONE, OTHER).unwrap() - mean;
            same += u32::from((own - -60.0 - others).abs() < 1e-9);
            power += 10f64.powf((own - -60.0) / 10.0) / 20_000.0;
        }
        assert!((power - 1.0).abs() < 0.03, "fades change nothing on average: {power}");
        assert_eq!(same, 0);
        // exp(-x) of them are x times as strong as the mean.
        assert!((fade_db(0.5) - -1.592).abs() < 0.001 && (fade_db(0.1) - -9.773).abs() < 0.001);
    }
}
