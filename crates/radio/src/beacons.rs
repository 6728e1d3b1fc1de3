//! When an access point sends its beacons: what is missed while we are there tells that it is gone, and DTIMs can be met.

use std::time::Duration;

use units::Timestamp;

/// Beacons missed in a row, while we were there to hear them, after which an access point counts as gone.
const MOST_MISSED: u32 = 7;

/// The beacons of one access point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BeaconClock {
    interval: Duration,
    /// When the last one that was heard came.
    last: Timestamp,
    /// Beacons from that one to the next DTIM, and from DTIM to DTIM.
    to_dtim: u32,
    period: u32,
    /// How long we have been on its channel since then.
    present: Duration,
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
            present: Duration::ZERO,
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
        self.present = Duration::ZERO;
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
        if let Some(arrived) = self.arrived.take() {
            self.present += now.since(arrived);
        }
    }

    /// Beacons that should have been heard, since we were there, and were not.
    pub fn missed(&self, now: Timestamp) -> u32 {
        let present = self.present + self.arrived.map_or(Duration::ZERO, |arrived| now.since(arrived));
        u32::try_from(present.as_nanos() / self.interval.as_nanos()).unwrap_or(u32::MAX)
    }

    /// Whether so many were missed that it counts as gone.
    pub fn is_gone(&self, now: Timestamp) -> bool {
        self.missed(now) >= MOST_MISSED
    }

    /// When it counts as gone, if nothing is heard and we stay.
    pub fn gone_at(&self) -> Option<Timestamp> {
        let left = (self.interval * MOST_MISSED).saturating_sub(self.present);
        self.arrived.map(|arrived| arrived + left)
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
        assert_eq!(clock.gone_at(), Some(at(204)));
        assert!(!clock.is_gone(at(203)) && clock.is_gone(at(205)));
        clock.heard(at(203), INTERVAL, 0, 1);
        assert_eq!(clock.missed(at(203)), 0);
    }
}
