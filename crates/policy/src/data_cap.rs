//! Bytes per billing period: counted, and what follows near the cap and over it.
//!
//! ```text
//!          day in a later period                    day in an earlier period: the clock was set back
//!   period ---------------------> next period       period <--------------------- ahead
//!     ^      total kept: closed       |                |     totals added up, the later one kept: ahead
//!     |                               |                |
//!     +--- set back: both added up ---+                +--- set right by a jump: `ahead` goes on
//!                                                      +--- set right all along, next period comes: from 0
//! ```
//!
//! Clocks jump: a board without a battery wakes up years back, a user mistypes a date. Bytes counted under a wrong date
//! belong to the period that the right date shows, so nothing is lost when the clock jumps and comes back, and no byte
//! counts twice in one total. A wrong date that stays past a midnight is taken for the right one.

use serde::{Deserialize, Serialize};
use units::Bytes;

use crate::calendar::{BillingDay, Day};
use crate::network::{CapEffect, CapReport, Percent};

/// Limit and consequences.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CapSettings {
    /// Bytes allowed in a billing period, both directions.
    pub limit: Bytes,
    /// When periods begin.
    #[serde(default)]
    pub billing_day: BillingDay,
    /// Part of the limit that counts as near.
    #[serde(default = "default_near")]
    pub near: Percent,
    /// What follows near the limit.
    #[serde(default = "default_near_effect")]
    pub when_near: CapEffect,
    /// What follows at the limit.
    #[serde(default = "default_over_effect")]
    pub when_over: CapEffect,
}

impl CapSettings {
    /// A limit with periods from `billing_day`; a backup from 90 % of it, off at all of it.
    pub fn new(limit: Bytes, billing_day: BillingDay) -> Self {
        Self {
            limit,
            billing_day,
            near: default_near(),
            when_near: default_near_effect(),
            when_over: default_over_effect(),
        }
    }

    /// Where a network stands that has carried so much in its period.
    pub fn report(&self, used: Bytes) -> CapReport {
        let effect = if used >= self.limit {
            self.when_over
        } else if used >= self.near.of(self.limit) {
            self.when_near
        } else {
            CapEffect::None
        };
        CapReport { used, limit: self.limit, effect }
    }
}

/// Counts one network's traffic against its cap. Kept over restarts by whoever owns it: it can be serialised whole.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataCap {
    settings: CapSettings,
    today: Day,
    current: Total,
    /// The period before, as long as the clock may yet go back into it.
    closed: Option<Closed>,
    /// Later periods that the clock showed before it was set back; they count on, in case it was right.
    ahead: Vec<Total>,
    /// Midnights since the clock was set back.
    midnights: u8,
    /// The interface's counter as of the last sample.
    counter: Option<Bytes>,
}

/// Bytes of a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Total {
    start: Day,
    used: Bytes,
}

/// A period that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Closed {
    total: Total,
    /// Bytes that count in it and in the one after it: that one was begun before the clock was set back.
    shared: Bytes,
}

impl DataCap {
    /// Nothing used yet, as of `today`.
    pub fn new(settings: CapSettings, today: Day) -> Self {
        let current = Total { start: today.period_start(settings.billing_day), used: Bytes(0) };
        Self { settings, today, current, closed: None, ahead: Vec::new(), midnights: 0, counter: None }
    }

    /// Takes other settings; what was used stays. Another billing day begins its first period with what is used now.
    pub fn set(&mut self, settings: CapSettings) {
        if settings.billing_day != self.settings.billing_day {
            self.current.start = self.today.period_start(settings.billing_day);
            self.closed = None;
            self.ahead.clear();
        }
        self.settings = settings;
    }

    /// A sample: `counter` is all that the interface has carried since it came up, both directions.
    ///
    /// The first sample counts nothing. A counter that is less than before began anew at 0.
    pub fn on_counter(&mut self, today: Day, counter: Bytes) {
        let before = self.counter.replace(counter);
        let more = before.map_or(0, |before| counter.0.checked_sub(before.0).unwrap_or(counter.0));
        self.turn_to(today);
        self.current = self.current.plus(more);
        for total in &mut self.ahead {
            *total = total.plus(more);
        }
    }

    /// The interface is a new one, or the machine was started anew: its counter began at 0 again.
    pub fn on_counter_restart(&mut self) {
        self.counter = Some(Bytes(0));
    }

    /// Sets what is used, as the provider says.
    pub fn set_used(&mut self, used: Bytes) {
        self.current.used = used;
        self.ahead.clear();
    }

    /// Where the network stands.
    pub fn report(&self) -> CapReport {
        self.settings.report(self.current.used)
    }

    /// The first day of the current period.
    pub fn period_start(&self) -> Day {
        self.current.start
    }

    fn turn_to(&mut self, today: Day) {
        let next_day = i64::from(today.0) - i64::from(self.today.0) == 1;
        let start = today.period_start(self.settings.billing_day);
        if start > self.current.start {
            let came_by_itself = next_day && self.midnights > 0;
            self.go_on(start, came_by_itself);
        } else if start < self.current.start {
            self.go_back(start);
        }
        self.midnights =
            if today < self.today { 0 } else { self.midnights.saturating_add(u8::from(next_day)) };
        self.today = today;
    }

    fn go_on(&mut self, start: Day, came_by_itself: bool) {
        if came_by_itself {
            self.ahead.clear();
        }
        let resumed = self.ahead.iter().find(|total| total.start == start).map(|total| total.used);
        let shared = resumed.unwrap_or_default();
        self.ahead.retain(|total| total.start > start);
        self.closed = Some(Closed { total: self.current, shared });
        self.current = Total { start, used: shared };
    }

    fn go_back(&mut self, start: Day) {
        self.remember(self.current);
        let since = |shared: Bytes| self.current.used.0.saturating_sub(shared.0);
        match self.closed.take().map(|closed| (closed.total.start, closed.total.plus(since(closed.shared)))) {
            Some((closed, total)) if closed == start => self.current = total,
            Some((closed, total)) if closed > start => self.remember(total),
            _ => {}
        }
        self.current.start = start;
    }

    fn remember(&mut self, total: Total) {
        self.ahead.retain(|known| known.start != total.start);
        if self.ahead.len() >= MOST_AHEAD {
            self.ahead.remove(0);
        }
        self.ahead.push(total);
    }
}

impl Total {
    fn plus(self, more: u64) -> Self {
        Self { used: Bytes(self.used.0.saturating_add(more)), ..self }
    }
}

fn default_near() -> Percent {
    NEAR
}

fn default_near_effect() -> CapEffect {
    CapEffect::Backup
}

fn default_over_effect() -> CapEffect {
    CapEffect::Off
}

/// Leaves room for what is under way when the network becomes a backup.
const NEAR: Percent = Percent::new(90);
/// Wrong dates in a row that are remembered.
const MOST_AHEAD: usize = 4;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// 2026-11-21; the period of the first of the month began on day 20,758.
    const TODAY: Day = Day(20_778);

    fn cap(limit: u64) -> DataCap {
        let mut cap = DataCap::new(CapSettings::new(Bytes(limit), BillingDay::FIRST), TODAY);
        cap.on_counter(TODAY, Bytes(0));
        cap
    }

    /// Adds `more` on `day`.
    fn carry(cap: &mut DataCap, day: i32, more: u64) {
        let counter = cap.counter.unwrap().0 + more;
        cap.on_counter(Day(day), Bytes(counter));
    }

    #[test]
    fn effects_follow_the_use() {
        let mut cap = cap(1_000);
        for (more, used, effect) in [
            (899, 899, CapEffect::None),
            (1, 900, CapEffect::Backup),
            (99, 999, CapEffect::Backup),
            (1, 1_000, CapEffect::Off),
            (5_000, 6_000, CapEffect::Off),
        ] {
            carry(&mut cap, TODAY.0, more);
            assert_eq!(cap.report(), CapReport { used: Bytes(used), limit: Bytes(1_000), effect });
        }
        carry(&mut cap, TODAY.0 + 10, 7);
        assert_eq!(cap.report().used, Bytes(7), "the first of December");
        cap.set_used(Bytes(500));
        assert_eq!(cap.report().used, Bytes(500));
    }

    #[test]
    fn counters_may_begin_anew() {
        let mut cap = DataCap::new(CapSettings::new(Bytes(1_000), BillingDay::FIRST), TODAY);
        for (counter, used) in [(500, 0), (600, 100), (50, 150), (60, 160)] {
            cap.on_counter(TODAY, Bytes(counter));
            assert_eq!(cap.report().used, Bytes(used), "{counter}");
        }
        cap.on_counter_restart();
        cap.on_counter(TODAY, Bytes(70));
        assert_eq!(cap.report().used, Bytes(230), "all of 70, though 70 is more than 60");
    }

    #[test]
    fn a_midnight_that_is_set_back_by_seconds_loses_nothing() {
        let mut cap = cap(1_000_000);
        let last = TODAY.0 + 9;
        carry(&mut cap, last, 1_000);
        carry(&mut cap, last + 1, 10);
        assert_eq!(cap.report().used, Bytes(10));
        carry(&mut cap, last, 1);
        assert_eq!(cap.report().used, Bytes(1_011), "November again, with all that was counted");
        carry(&mut cap, last + 1, 2);
        assert_eq!(cap.report().used, Bytes(13), "December goes on where it was");
    }

    #[test]
    fn a_date_far_ahead_is_forgotten_with_the_next_period() {
        let mut cap = cap(1_000_000);
        carry(&mut cap, TODAY.0, 100);
        carry(&mut cap, 30_000, 5);
        assert_eq!(cap.report().used, Bytes(5));
        for day in TODAY.0..=TODAY.0 + 9 {
            carry(&mut cap, day, 1);
        }
        assert_eq!(cap.report().used, Bytes(115));
        carry(&mut cap, TODAY.0 + 10, 3);
        assert_eq!(cap.report().used, Bytes(3), "December begins from 0");
        carry(&mut cap, 30_000, 4);
        assert_eq!(cap.report().used, Bytes(4));
    }

    /// Once in the same wrong month and back, twice over: what was carried in between is in both months' totals.
    #[test]
    fn the_same_wrong_month_twice_counts_once() {
        let mut cap = cap(1_000_000);
        for (day, more, used) in [(12, 5, 5), (0, 1, 6), (12, 7, 13), (0, 2, 15)] {
            carry(&mut cap, TODAY.0 + day, more);
            assert_eq!(cap.report().used, Bytes(used));
        }
    }

    #[test]
    fn a_new_billing_day_keeps_the_use() {
        let mut cap = cap(1_000);
        carry(&mut cap, TODAY.0, 100);
        cap.set(CapSettings::new(Bytes(50), BillingDay::try_from(15).unwrap()));
        assert_eq!((cap.report().used, cap.period_start()), (Bytes(100), Day(20_772)));
    }

    proptest! {
        /// With a right clock a total is what was carried since the period began.
        #[test]
        fn totals_are_sums(
            steps in proptest::collection::vec((0i32..40, 0u64..1_000_000), 1..60),
            billing in 1u8..=31,
        ) {
            let billing = BillingDay::try_from(billing).unwrap();
            let mut cap = DataCap::new(CapSettings::new(Bytes(1), billing), TODAY);
            cap.on_counter(TODAY, Bytes(0));
            let (mut day, mut carried) = (TODAY.0, Vec::new());
            for (days, more) in steps {
                day += days;
                carry(&mut cap, day, more);
                carried.push((Day(day), more));
                let start = Day(day).period_start(billing);
                let sum: u64 = carried.iter().filter(|(day, _)| *day >= start).map(|(_, more)| more).sum();
                prop_assert_eq!(cap.report().used, Bytes(sum));
            }
        }

        /// However the clock is set within a day, once it is right again nothing is lost and nothing counts twice.
        #[test]
        fn wrong_dates_cost_nothing(
            wrong in proptest::collection::vec((-25_000i32..25_000, 0u64..1_000), 0..4),
            near in proptest::collection::vec((-40i32..40, 0u64..1_000), 0..4),
            before in 0u64..1_000,
            billing in 1u8..=31,
        ) {
            let billing = BillingDay::try_from(billing).unwrap();
            let mut cap = DataCap::new(CapSettings::new(Bytes(1), billing), TODAY);
            cap.on_counter(TODAY, Bytes(0));
            carry(&mut cap, TODAY.0, before);
            let mut sum = before;
            for (offset, more) in wrong.into_iter().chain(near) {
                carry(&mut cap, TODAY.0 + offset, more);
                carry(&mut cap, TODAY.0, 1);
                sum += more + 1;
                prop_assert_eq!(cap.report().used, Bytes(sum), "after a day that was off by {}", offset);
            }
        }

        #[test]
        fn any_input_is_safe(samples in proptest::collection::vec(any::<(i32, u64)>(), 0..50), limit: u64) {
            let mut cap = DataCap::new(CapSettings::new(Bytes(limit), BillingDay::FIRST), Day(0));
            for (day, counter) in samples {
                cap.on_counter(Day(day), Bytes(counter));
                prop_assert!(cap.ahead.len() <= MOST_AHEAD);
            }
            cap.report();
        }
    }
}
