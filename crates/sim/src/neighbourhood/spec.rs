//! What a neighbourhood is: uplinks, and who hears whom how well.

use std::time::Duration;

use radio::Rate;
use radio::airtime::Flavour;
use units::{BitRate, Bytes};

/// The bit rates of 802.11b, which the paper's testbed has (`[LINKALIKE] VI.A`), slowest first.
pub const RATES: [Rate; 4] = Rate::CCK;

/// A frame with a chunk on the air, headers and check sequence included (`[LINKALIKE] VI.D`).
pub const AIR_FRAME: Bytes = Bytes(1_500);

/// A way from a home to the destination; the way back has the same delay and room for all that is sent there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UplinkSpec {
    /// Its rate.
    pub rate: BitRate,
    /// Its one-way delay.
    pub delay: Duration,
}

/// A neighbour.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NeighbourSpec {
    /// Its uplink.
    pub uplink: UplinkSpec,
    /// The chance that it hears a frame of [`AIR_FRAME`], at each of [`RATES`].
    pub reception: [f64; 4],
}

/// A source and its neighbours.
#[derive(Clone, PartialEq, Debug)]
pub struct NeighbourhoodSpec {
    /// The source's uplink.
    pub own: UplinkSpec,
    /// Its neighbours.
    pub neighbours: Vec<NeighbourSpec>,
    /// The part of frames that nobody hears, whatever each one's chance: interference at the source. Each one's own chance is what is left of it,
    /// so that it hears as much as it should.
    pub common_loss: f64,
    /// Pairs of neighbours, by their places, that hear each other, and the chance of that at each of [`RATES`].
    pub between: Vec<(usize, usize, [f64; 4])>,
    /// What was measured of who hears frames together; at bit rates that have none, losses are independent.
    pub together: Vec<HeardTogether>,
}

/// A part of the frames at one bit rate: those that exactly these neighbours heard.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct HeardTogether {
    /// The bit rate, by its place among [`RATES`].
    pub rate: usize,
    /// The neighbours, one bit each, the first one's lowest.
    pub neighbours: u64,
    /// How large a part of all frames at this rate, in 1.
    pub part: f64,
}

impl NeighbourhoodSpec {
    /// The chance that a neighbour hears a frame that is not lost to all.
    pub fn own_chance(&self, neighbour: &NeighbourSpec, rate: usize) -> f64 {
        let chance = neighbour.reception.get(rate).copied().unwrap_or(0.0);
        (chance / (1.0 - self.common_loss).max(1e-9)).min(1.0)
    }

    /// The measured sets of neighbours that hear frames at a bit rate together, and how often each; none where losses are independent.
    pub fn sets(&self, rate: usize) -> Vec<(u64, f64)> {
        let sets = self.together.iter().filter(|set| set.rate == rate);
        sets.map(|set| (set.neighbours, set.part)).collect()
    }

    /// The chance that one neighbour hears a frame of another.
    pub fn heard_between(&self, from: usize, to: usize, rate: usize) -> f64 {
        let pair = self
            .between
            .iter()
            .find(|(one, other, _)| (*one, *other) == (from, to) || (*one, *other) == (to, from));
        pair.and_then(|(_, _, chances)| chances.get(rate)).copied().unwrap_or(0.0)
    }

    /// The chance that at least one of a set of neighbours hears a frame: `q_K` of `[LINKALIKE] V.A`.
    pub fn heard_by_any(&self, set: u64, rate: usize) -> f64 {
        let members = self.neighbours.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let unheard: f64 = members.map(|(_, neighbour)| 1.0 - self.own_chance(neighbour, rate)).product();
        (1.0 - self.common_loss) * (1.0 - unheard)
    }
}

/// How long a frame for everybody takes at each of [`RATES`]: with the gap before it and the mean back-off.
pub fn air_times() -> [Duration; 4] {
    let flavour = Flavour::B;
    RATES.map(|rate| flavour.difs() + flavour.mean_back_off(0) + flavour.frame_time(rate, AIR_FRAME))
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    #[test]
    fn losses_in_common_leave_each_one_its_own_chance() {
        let mut spec = parse("1/1 | 1/1 0.5 0.5 0.5 0.5 | 1/1 0.4 0.4 0.4 0.4").unwrap().remove(0);
        assert!((spec.heard_by_any(0b11, 2) - 0.7).abs() < 1e-9);
        spec.common_loss = 0.5;
        assert!((spec.heard_by_any(0b01, 2) - 0.5).abs() < 1e-9);
        assert!(
            (spec.heard_by_any(0b11, 2) - 0.5).abs() < 1e-9,
            "who hears half hears all that can be heard"
        );
    }

    #[test]
    fn air_times_are_those_of_the_standard() {
        // 50 us DIFS, 310 us mean back-off, 192 us preamble, 12,000 bits at 5.5 Mbit/s.
        let by_hand = Duration::from_micros(50 + 310 + 192 + 2_182);
        assert_eq!(air_times()[2], by_hand);
    }
}
