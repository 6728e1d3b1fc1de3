//! Which bit rate serves: reception by counting, and expected transmission times (`[LINKALIKE] III.B`, ETT).

use std::collections::VecDeque;
use std::time::Duration;

use wire::upload::{AirNumber, MAX_MEMBERS, MAX_RATES, Member, PERIOD_FRAMES, RateIndex, Reception};

use crate::settings::RateChoice;

/// The bit rates that a source can send at, slowest first, by how long a frame with a chunk takes at each, gaps included. Told by the owner, who knows
/// the card.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BitRates(Vec<Duration>);

impl BitRates {
    /// `None` if there are none, more than [`MAX_RATES`], or one that takes no time.
    pub fn new(air_times: Vec<Duration>) -> Option<Self> {
        let sound =
            (1..=MAX_RATES).contains(&air_times.len()) && air_times.iter().all(|time| !time.is_zero());
        sound.then_some(Self(air_times))
    }

    /// How long a frame takes; the slowest rate's time for a rate that is not there.
    pub fn air_time(&self, rate: RateIndex) -> Duration {
        self.0.get(usize::from(rate.0)).or(self.0.first()).copied().unwrap_or(Duration::from_millis(1))
    }

    fn indices(&self) -> impl Iterator<Item = RateIndex> + use<> {
        (0..self.0.len() as u8).map(RateIndex)
    }
}

/// Frames sent and heard, old ones fading away.
#[derive(Clone, Copy, Default, Debug)]
struct Count {
    sent: f64,
    heard: f64,
}

/// Frames of one rate whose outcome decides; older ones are halved away.
const REMEMBERED: f64 = 1_024.0;
/// Of so many frames one is sent at another rate than the best, each in turn, to know what it would do.
const PROBED: u32 = 128;
/// So many first frames go to all rates in turn.
const PROBED_FIRST: u32 = 64;
/// Periods whose frames are remembered.
const PERIODS: usize = 64;

/// What the source knows of each neighbour's ears.
#[derive(Clone, Debug)]
pub(crate) struct Receptions {
    rates: BitRates,
    counts: Vec<[Count; MAX_RATES]>,
    /// Frames sent in each period, by rate; the first is that of `oldest`.
    sent: VecDeque<[u8; MAX_RATES]>,
    oldest: u32,
    best: RateIndex,
    next_probe: u8,
}

impl Receptions {
    pub(crate) fn new(rates: BitRates) -> Self {
        let best = RateIndex((rates.0.len() - 1) as u8);
        let counts = vec![[Count::default(); MAX_RATES]; MAX_MEMBERS];
        Self { rates, counts, sent: VecDeque::new(), oldest: 0, best, next_probe: 0 }
    }

    pub(crate) const fn rates(&self) -> &BitRates {
        &self.rates
    }

    /// The rate of the next frame for everybody.
    pub(crate) fn next_rate(&mut self, air: AirNumber, choice: RateChoice) -> RateIndex {
        if let RateChoice::Fixed(rate) = choice {
            return rate;
        }
        if air.0 < PROBED_FIRST || air.0.is_multiple_of(PROBED) {
            self.next_probe = (self.next_probe + 1) % self.rates.0.len() as u8;
            return RateIndex(self.next_probe);
        }
        self.best
    }

    /// A frame was sent to all ears.
    pub(crate) fn handle_sent(&mut self, air: AirNumber, rate: RateIndex) {
        let period = air.0 / PERIOD_FRAMES;
        while self.oldest + self.sent.len() as u32 <= period {
            self.sent.push_back([0; MAX_RATES]);
            if self.sent.len() > PERIODS {
                self.sent.pop_front();
                self.oldest += 1;
            }
        }
        let sent = self.sent.get_mut(period.saturating_sub(self.oldest) as usize);
        if let Some(count) = sent.and_then(|sent| sent.get_mut(usize::from(rate.0))) {
            *count = count.saturating_add(1);
        }
    }

    /// A neighbour's count of a period. What it claims beyond what was sent is cut off.
    pub(crate) fn handle_reception(&mut self, member: Member, reception: &Reception) {
        let at = reception.period.checked_sub(self.oldest);
        let Some(sent) = at.and_then(|at| self.sent.get(at as usize)).copied() else { return };
        for (rate, sent) in sent.into_iter().enumerate().filter(|(_, sent)| *sent > 0) {
            let heard = reception.heard.iter().find(|(heard, _)| usize::from(heard.0) == rate);
            let heard = heard.map_or(0, |(_, count)| (*count).min(sent));
            self.add(member, RateIndex(rate as u8), f64::from(sent), f64::from(heard));
        }
    }

    /// Attempts to reach a neighbour, and how many did.
    pub(crate) fn add(&mut self, member: Member, rate: RateIndex, sent: f64, heard: f64) {
        let count = self
            .counts
            .get_mut(usize::from(member.number()))
            .and_then(|rates| rates.get_mut(usize::from(rate.0)));
        if let Some(count) = count {
            count.sent += sent;
            count.heard += heard;
            if count.sent > REMEMBERED {
                count.sent /= 2.0;
                count.heard /= 2.0;
            }
        }
    }

    /// A neighbour is gone; the next one with its number has other ears.
    pub(crate) fn forget(&mut self, member: Member) {
        if let Some(rates) = self.counts.get_mut(usize::from(member.number())) {
            *rates = [Count::default(); MAX_RATES];
        }
    }

    /// The chance that a neighbour hears a frame; unknown rates are hoped to be as good as not.
    pub(crate) fn probability(&self, member: Member, rate: RateIndex) -> f64 {
        let counts = self.counts.get(usize::from(member.number()));
        let count = counts.and_then(|rates| rates.get(usize::from(rate.0))).copied().unwrap_or_default();
        (count.heard + 0.5) / (count.sent + 1.0)
    }

    /// The rate at which a neighbour is reached in the least time, and that time in seconds.
    pub(crate) fn best_for(&self, member: Member) -> (RateIndex, f64) {
        let times = self.rates.indices().map(|rate| (rate, self.expected_time(member, rate)));
        times.min_by(|one, other| one.1.total_cmp(&other.1)).unwrap_or((self.best, f64::INFINITY))
    }

    /// ETT: air time over the chance to be heard.
    fn expected_time(&self, member: Member, rate: RateIndex) -> f64 {
        self.rates.air_time(rate).as_secs_f64() / self.probability(member, rate)
    }

    /// Chooses the rate for everybody anew, for the `members` with room.
    pub(crate) fn choose(&mut self, choice: RateChoice, members: &[Member]) {
        if members.is_empty() {
            return;
        }
        self.best = match choice {
            RateChoice::Fixed(rate) => rate,
            RateChoice::BestMember => {
                let best = members.iter().map(|member| self.best_for(*member));
                best.min_by(|one, other| one.1.total_cmp(&other.1)).map_or(self.best, |(rate, _)| rate)
            }
            RateChoice::AnyMember => {
                let gain = |rate: RateIndex| {
                    let unheard: f64 =
                        members.iter().map(|member| 1.0 - self.probability(*member, rate)).product();
                    (1.0 - unheard) / self.rates.air_time(rate).as_secs_f64()
                };
                let gains = self.rates.indices().map(|rate| (rate, gain(rate)));
                gains.max_by(|one, other| one.1.total_cmp(&other.1)).map_or(self.best, |(rate, _)| rate)
            }
        };
    }

    /// The rate in use.
    pub(crate) const fn best(&self) -> RateIndex {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receptions() -> Receptions {
        let millis = [12, 3].map(Duration::from_millis).to_vec();
        Receptions::new(BitRates::new(millis).unwrap())
    }

    const ONE: Member = Member::new(0).unwrap();
    const OTHER: Member = Member::new(1).unwrap();

    #[test]
    fn rates_are_bounded() {
        assert_eq!(BitRates::new(Vec::new()), None);
        assert_eq!(BitRates::new(vec![Duration::ZERO]), None);
        assert_eq!(BitRates::new(vec![Duration::from_millis(1); 17]), None);
    }

    #[test]
    fn a_period_counts_for_what_was_sent_in_it() {
        let mut receptions = receptions();
        for air in 0..PERIOD_FRAMES {
            receptions.handle_sent(AirNumber(air), RateIndex(u8::from(air >= 28)));
        }
        let heard = vec![(RateIndex(0), 120), (RateIndex(1), 50)];
        receptions.handle_reception(ONE, &Reception { period: 0, heard });
        assert!((receptions.probability(ONE, RateIndex(0)) - 28.5 / 29.0).abs() < 1e-9, "a lie is cut off");
        assert!((receptions.probability(ONE, RateIndex(1)) - 50.5 / 101.0).abs() < 1e-9);
        receptions.handle_reception(ONE, &Reception { period: 9, heard: Vec::new() });
    }

    #[test]
    fn the_best_rate_is_that_of_the_least_expected_time_or_of_most_ears() {
        let mut receptions = receptions();
        // One hears the slow rate only; the other hears a third of the fast frames.
        for (member, rate, heard) in [(ONE, 0, 99.5), (ONE, 1, 0.5), (OTHER, 0, 100.5), (OTHER, 1, 33.5)] {
            receptions.add(member, RateIndex(rate), 100.0, heard);
        }
        assert_eq!(receptions.best_for(ONE).0, RateIndex(0));
        assert_eq!(receptions.best_for(OTHER).0, RateIndex(1));
        receptions.choose(RateChoice::BestMember, &[ONE]);
        assert_eq!(receptions.best(), RateIndex(0));
        receptions.choose(RateChoice::BestMember, &[ONE, OTHER]);
        assert_eq!(receptions.best(), RateIndex(1));
        receptions.choose(RateChoice::AnyMember, &[ONE]);
        assert_eq!(receptions.best(), RateIndex(0));
    }
}
