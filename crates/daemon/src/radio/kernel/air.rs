//! How much of a channel's air others take, from what the drivers of our cards count of their own time.
//!
//! ```text
//! busy - what the card sent - what it received of its own networks        what our other cards there sent and received
//! ---------------------------------------------------------------   -     --------------------------------------------
//!                      time on the channel                                               their time
//! ```
//! Gaps between frames are not in it, so others take somewhat more. Acknowledgements that we get count as theirs where the driver
//! does not count them as ours: some per cent of what we send without aggregates.

use std::collections::BTreeMap;
use std::time::Duration;

use linux::wireless::Survey;
use units::{Frequency, Timestamp};

/// Less time on a channel tells nothing: counters are in milliseconds, and some drivers renew them seldom.
const ENOUGH: Duration = Duration::from_millis(50);
/// What is older is forgotten.
const REMEMBERED: Duration = Duration::from_secs(2);
/// Cards times channels; what is new beyond is left alone.
const MOST: usize = 64;

/// A card, by the kernel's number of it, on a channel.
pub(super) type Place = (u32, Frequency);

/// What is known of each card on each channel where it has a network.
#[derive(Default)]
pub(super) struct Air(BTreeMap<Place, Counted>);

struct Counted {
    /// Where what is being counted began.
    begin: Survey,
    /// What our stations there received since; `None` if that is not known of all.
    received: Option<Duration>,
    last: Timestamp,
    parts: Option<Parts>,
}

/// Parts of a card's time on a channel.
#[derive(Clone, Copy)]
struct Parts {
    busy: f64,
    own: f64,
    at: Timestamp,
}

impl Air {
    /// Takes what a card's driver tells now. `received`: air time of what all our stations on that card and channel got since the last
    /// time, if known; it serves where the driver does not count it.
    pub fn take(&mut self, now: Timestamp, card: u32, survey: Survey, received: Option<Duration>) {
        let place = (card, survey.frequency);
        if self.0.len() >= MOST && !self.0.contains_key(&place) {
            return;
        }
        let new = Counted { begin: survey, received: Some(Duration::ZERO), last: now, parts: None };
        let Some(counted) = self.0.get_mut(&place) else {
            self.0.insert(place, new);
            return;
        };
        counted.last = now;
        counted.received = counted.received.zip(received).map(|(before, more)| before.saturating_add(more));
        if let Ok(parts) = parts(now, &counted.begin, &survey, counted.received) {
            *counted = Counted { parts, ..new };
        }
    }

    /// Forgets what was not told of lately.
    pub fn forget(&mut self, now: Timestamp) {
        self.0.retain(|_, counted| now.since(counted.last) <= REMEMBERED);
    }

    /// The part of a channel's air that others take as a card there sees it, 0 to 1; `None` if its driver does not tell.
    pub fn others(&self, now: Timestamp, place: Place) -> Option<f64> {
        let known = |counted: &Counted| counted.parts.filter(|parts| now.since(parts.at) <= REMEMBERED);
        let here = known(self.0.get(&place)?)?;
        let beside = self.0.iter().filter(|((card, channel), _)| *channel == place.1 && *card != place.0);
        let ours: f64 = beside.filter_map(|(_, counted)| known(counted)).map(|parts| parts.own).sum();
        Some((here.busy - here.own - ours).clamp(0.0, 1.0))
    }
}

/// Too little time has passed on the channel.
struct TooSoon;

/// What the time between two readings was spent on; `None` if the driver does not tell, or counts anew.
fn parts(
    now: Timestamp,
    before: &Survey,
    after: &Survey,
    received: Option<Duration>,
) -> Result<Option<Parts>, TooSoon> {
    let since = |counter: fn(&Survey) -> Option<Duration>| counter(after)?.checked_sub(counter(before)?);
    let Some(time) = since(|one| one.time) else { return Ok(None) };
    if time < ENOUGH {
        return Err(TooSoon);
    }
    let received = since(|one| one.receiving_own).or(received);
    let told = since(|one| one.busy).zip(since(|one| one.transmitting)).zip(received);
    Ok(told.map(|((busy, sent), received)| {
        let part = |of: Duration| (of.as_secs_f64() / time.as_secs_f64()).min(1.0);
        Parts { busy: part(busy), own: part(sent.saturating_add(received)), at: now }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANNEL: Frequency = Frequency(5_180);

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(10_000 + millis)
    }

    fn survey(time: u64, busy: u64, sent: u64, received: Option<u64>) -> Survey {
        let millis = |value| Some(Duration::from_millis(value));
        Survey {
            frequency: CHANNEL,
            time: millis(time),
            busy: millis(busy),
            transmitting: millis(sent),
            receiving_own: received.and_then(millis),
        }
    }

    fn near(air: &Air, now: Timestamp, card: u32, expected: f64) {
        let others = air.others(now, (card, CHANNEL)).unwrap();
        assert!((others - expected).abs() < 1e-9, "{others}");
    }

    /// By hand: of 500 ms 300 were busy, 100 with what we sent and 50 with what we got: others had 150 of 500.
    #[test]
    fn others_have_what_is_busy_and_not_ours() {
        let mut air = Air::default();
        air.take(at(0), 0, survey(1_000, 900, 400, Some(100)), None);
        assert_eq!(air.others(at(0), (0, CHANNEL)), None, "one reading says nothing");
        air.take(at(500), 0, survey(1_500, 1_200, 500, Some(150)), None);
        near(&air, at(500), 0, 0.3);
        near(&air, at(2_500), 0, 0.3);
        assert_eq!(air.others(at(2_501), (0, CHANNEL)), None, "too old");
        assert_eq!(air.others(at(500), (1, CHANNEL)), None, "another card");
        air.forget(at(2_501));
        assert!(air.0.is_empty());
    }

    #[test]
    fn what_stations_got_serves_where_the_driver_does_not_count_it() {
        let mut air = Air::default();
        air.take(at(0), 0, survey(0, 0, 0, None), None);
        // Too soon, but what was received is kept.
        air.take(at(10), 0, survey(10, 10, 0, None), Some(Duration::from_millis(10)));
        assert_eq!(air.others(at(10), (0, CHANNEL)), None);
        air.take(at(100), 0, survey(100, 60, 10, None), Some(Duration::from_millis(20)));
        near(&air, at(100), 0, 0.2);
        air.take(at(200), 0, survey(200, 160, 10, None), None);
        assert_eq!(air.others(at(200), (0, CHANNEL)), None, "nobody knows what we got");
        air.take(at(300), 0, survey(300, 160, 10, None), Some(Duration::from_millis(90)));
        near(&air, at(300), 0, 0.0);
    }

    #[test]
    fn another_card_of_ours_is_not_others() {
        let mut air = Air::default();
        for card in [0, 1] {
            air.take(at(0), card, survey(0, 0, 0, Some(0)), None);
        }
        air.take(at(100), 0, survey(100, 80, 20, Some(10)), None);
        air.take(at(100), 1, survey(100, 70, 0, Some(30)), None);
        near(&air, at(100), 0, 0.2);
        near(&air, at(100), 1, 0.1);
    }

    #[test]
    fn drivers_that_tell_less_or_begin_anew_tell_nothing() {
        let mut air = Air::default();
        let little = |time| Survey { transmitting: None, ..survey(time, time / 8, 0, Some(0)) };
        air.take(at(0), 0, little(0), None);
        air.take(at(500), 0, little(500), None);
        assert_eq!(air.others(at(500), (0, CHANNEL)), None);
        air.take(at(1_000), 0, survey(100, 50, 0, Some(0)), None);
        assert_eq!(air.others(at(1_000), (0, CHANNEL)), None, "went back");
        air.take(at(1_500), 0, survey(600, 50, 0, Some(0)), None);
        near(&air, at(1_500), 0, 0.0);
    }
}
