//! When an access point sends its beacons: what is missed while we are there tells that it is gone, and DTIMs can be met.

use std::time::Duration;

use units::Timestamp;

/// Beacons missed in a row, while we were there to hear them, after which an access point counts as gone.
const MOST_MISSED: u32 = 7;
/// A beacon may come this much after it was due: others send.
const LATENESS: Duration = Duration::from_millis(10);

/// The beacons of one access point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeaconClock {
    interval: Duration,
    /// When the last one that was heard came.
    last: Timestamp,
    /// Beacons from that one to the next DTIM, and from DTIM to DTIM.
    to_dtim: u32,
    period: u32,
    /// Beacons since then that were due while we were on its channel, in visits that are over.
    unheard: u32,
    /// When the present visit began.
    arrived: Option<Timestamp>,
    pub heard_dtims: u64,
    pub missed_dtims: u64,
}

impl BeaconClock {
    /// For an access point that was just heard.
    pub fn new(now: Timestamp, interval: Duration) -> Self {
        Self {
            interval: interval.max(Duration::from_millis(10)),
            last: now,
            to_dtim: 1,
            period: 1,
            unheard: 0,
            arrived: None,
            heard_dtims: 0,
            missed_dtims: 0,
        }
    }

    /// A beacon came. `count` and `period` are those of its traffic map; a count of 0 is a DTIM.
    pub fn heard(&mut self, now: Timestamp, interval: Duration, count: u8, period: u8) {
        self.missed_dtims += self.dtims_until(now).saturating_sub(u64::from(count == 0));
        self.heard_dtims += u64::from(count == 0);
        self.interval = interval.max(Duration::from_millis(10));
        self.period = u32::from(period.max(1));
        self.to_dtim = if count == 0 { self.period } else { count.into() };
        self.last = now;
        self.unheard = 0;
        self.arrived = self.arrived.map(|_| now);
    }

    /// Time between beacons.
    pub fn interval(&self) -> Duration {
        self.interval
    }

    /// We are on its channel from now on.
    pub fn arrive(&mut self, now: Timestamp) {
        self.arrived = Some(now);
    }

    /// We are not on its channel any more.
    pub fn leave(&mut self, now: Timestamp) {
        self.unheard = self.missed(now);
        self.arrived = None;
    }

    /// Beacons that should have been heard, since we were there when they were due, and were not. Time alone would not do: slots that return about as
    /// often as beacons may lie between them all the time.
    pub fn missed(&self, now: Timestamp) -> u32 {
        let Some(arrived) = self.arrived else { return self.unheard };
        let here = self.number_at(now, LATENESS).saturating_sub(self.number_before(arrived));
        self.unheard.saturating_add(here)
    }

    /// How many beacons since the last one were due so long before a time.
    fn number_at(&self, time: Timestamp, before: Duration) -> u32 {
        let since = time.since(self.last).saturating_sub(before);
        u32::try_from(since.as_nanos() / self.interval.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// How many beacons since the last one were due before we came.
    fn number_before(&self, arrived: Timestamp) -> u32 {
        self.number_at(arrived, Duration::from_nanos(1))
    }

    /// Whether so many were missed that it counts as gone. `sign` is when the last frame of it was heard or one of ours acknowledged: where beacons are
    /// lost to others that are sent at the same time, that shows that it is there.
    pub fn is_gone(&self, now: Timestamp, sign: Timestamp) -> bool {
        self.missed(now) >= MOST_MISSED && now >= sign + self.interval * MOST_MISSED
    }

    /// When it counts as gone, if nothing is heard after `sign` and we stay.
    pub fn gone_at(&self, sign: Timestamp) -> Option<Timestamp> {
        let arrived = self.arrived?;
        let left = MOST_MISSED.saturating_sub(self.unheard);
        let number = self.number_before(arrived).saturating_add(left);
        let missed = self.last + self.interval.saturating_mul(number) + LATENESS;
        Some(missed.max(arrived).max(sign + self.interval * MOST_MISSED))
    }

    /// When the next DTIM is due after `now`.
    pub fn next_dtim(&self, now: Timestamp) -> Timestamp {
        let first = self.last + self.interval * self.to_dtim;
        let apart = self.interval * self.period;
        let behind = now.since(first).as_nanos().checked_div(apart.as_nanos()).unwrap_or_default();
        let steps = if now < first { 0 } else { u32::try_from(behind).unwrap_or(u32::MAX).saturating_add(1) };
        first + apart.saturating_mul(steps)
    }

    /// DTIMs since the last beacon that was heard, the one about now included.
    fn dtims_until(&self, now: Timestamp) -> u64 {
        let first = self.last + self.interval * self.to_dtim;
        let latest = now + self.interval / 2;
        if latest < first {
            return 0;
        }
        (latest.since(first).as_nanos() / (self.interval * self.period).as_nanos().max(1)) as u64 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_micros(102_400);

    fn at(beacon: u32) -> Timestamp {
        Timestamp::from_millis(1_000) + INTERVAL * beacon
    }

    #[test]
    fn dtims_are_foreseen_and_counted() {
        let mut clock = BeaconClock::new(at(0), INTERVAL);
        clock.heard(at(0), INTERVAL, 1, 2);
        assert_eq!(clock.next_dtim(at(0)), at(1));
        assert_eq!(clock.next_dtim(at(1)), at(3));
        assert_eq!(clock.next_dtim(at(8)), at(9));
        clock.heard(at(1), INTERVAL, 0, 2);
        assert_eq!((clock.heard_dtims, clock.missed_dtims), (1, 0));
        // Those of 3 and 5 went unheard, 7 was heard.
        clock.heard(at(7), INTERVAL, 0, 2);
        assert_eq!((clock.heard_dtims, clock.missed_dtims), (2, 2));
        clock.heard(at(8), INTERVAL, 1, 2);
        assert_eq!((clock.heard_dtims, clock.missed_dtims), (2, 2));
    }

    #[test]
    fn only_beacons_that_could_be_heard_are_missed() {
        let mut clock = BeaconClock::new(at(0), INTERVAL);
        assert_eq!(clock.missed(at(100)), 0, "never there");
        clock.arrive(at(100));
        clock.leave(at(103));
        assert_eq!(clock.missed(at(200)), 3);
        clock.arrive(at(200));
        // Those of 200 to 203 complete the seven.
        assert_eq!(clock.gone_at(at(0)), Some(at(203) + LATENESS));
        assert!(!clock.is_gone(at(203), at(0)) && clock.is_gone(at(203) + LATENESS, at(0)));
        assert_eq!(clock.gone_at(at(202)), Some(at(209)), "it has acknowledged something");
        assert!(!clock.is_gone(at(208), at(202)) && clock.is_gone(at(209), at(202)));
        clock.heard(at(203), INTERVAL, 0, 1);
        assert_eq!(clock.missed(at(203)), 0);
    }

    #[test]
    fn visits_between_beacons_miss_none() {
        let mut clock = BeaconClock::new(at(0), INTERVAL);
        for visit in 1..100 {
            clock.arrive(at(visit) + Duration::from_millis(20));
            clock.leave(at(visit) + Duration::from_millis(60));
        }
        assert_eq!(clock.missed(at(100)), 0);
        // Nor one that may still come.
        clock.arrive(at(100) - Duration::from_millis(20));
        clock.leave(at(100) + Duration::from_millis(5));
        assert_eq!(clock.missed(at(101)), 0);
    }
}
