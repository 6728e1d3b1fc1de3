//! Days and months of the civil (Gregorian) calendar, without any clock.

use serde::{Deserialize, Serialize};

/// A day: days since 1970-01-01 by the user's wall clock, which the caller reads.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Day(pub i32);

/// A date.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Date {
    /// The year.
    pub year: i32,
    /// The month, 1 to 12.
    pub month: u8,
    /// The day of the month, from 1.
    pub day: u8,
}

/// The day of each month on which a billing period begins, 1 to 31; in shorter months their last day.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct BillingDay(u8);

/// Why a number is no billing day.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("billing day {0} is not a day of a month: give 1 to 31")]
pub struct BillingDayError(u8);

impl Day {
    /// The date that it falls on.
    pub fn date(self) -> Date {
        // Whole cycles of 400 years first, then the year within: never more than one step off.
        let (cycle, rest) = (self.0.div_euclid(CYCLE_DAYS), self.0.rem_euclid(CYCLE_DAYS));
        let mut year = 1970 + rest / 366;
        while first_day(year + 1) <= rest {
            year += 1;
        }
        let mut day = rest - first_day(year);
        let mut month = 1;
        while day >= i32::from(month_length(year, month)) {
            day -= i32::from(month_length(year, month));
            month += 1;
        }
        Date { year: year + 400 * cycle, month, day: u8::try_from(day + 1).unwrap_or(1) }
    }

    /// The first day of the billing period that it lies in.
    pub fn period_start(self, billing: BillingDay) -> Self {
        let Date { year, month, day } = self.date();
        let begins = billing.in_month(year, month);
        if day >= begins {
            return Self(self.0.saturating_sub(i32::from(day - begins)));
        }
        let (year, month) = if month == 1 { (year - 1, 12) } else { (year, month - 1) };
        let back = i32::from(day) + i32::from(month_length(year, month) - billing.in_month(year, month));
        Self(self.0.saturating_sub(back))
    }
}

impl BillingDay {
    /// The first of each month.
    pub const FIRST: Self = Self(1);

    fn in_month(self, year: i32, month: u8) -> u8 {
        self.0.min(month_length(year, month))
    }
}

impl Default for BillingDay {
    fn default() -> Self {
        Self::FIRST
    }
}

impl TryFrom<u8> for BillingDay {
    type Error = BillingDayError;

    fn try_from(day: u8) -> Result<Self, BillingDayError> {
        if (1..=31).contains(&day) { Ok(Self(day)) } else { Err(BillingDayError(day)) }
    }
}

impl From<BillingDay> for u8 {
    fn from(day: BillingDay) -> Self {
        day.0
    }
}

/// Days from 1970-01-01 to the first day of `year`, for years from 1970.
fn first_day(year: i32) -> i32 {
    let before = year - 1;
    let leap_days = before / 4 - before / 100 + before / 400;
    (year - 1970) * 365 + leap_days - LEAP_DAYS_BEFORE_1970
}

fn month_length(year: i32, month: u8) -> u8 {
    match month {
        2 if is_leap(year) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

fn is_leap(year: i32) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// 400 years.
const CYCLE_DAYS: i32 = 146_097;
/// 1969 / 4 - 1969 / 100 + 1969 / 400.
const LEAP_DAYS_BEFORE_1970: i32 = 477;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn date(year: i32, month: u8, day: u8) -> Date {
        Date { year, month, day }
    }

    #[test]
    fn known_days() {
        for (day, expected) in [
            (0, date(1970, 1, 1)),
            (-1, date(1969, 12, 31)),
            (364, date(1970, 12, 31)),
            (789, date(1972, 2, 29)),
            (11_016, date(2000, 2, 29)),
            (19_782, date(2024, 2, 29)),
            (20_778, date(2026, 11, 21)),
            (47_540, date(2100, 2, 28)),
            (47_541, date(2100, 3, 1)),
        ] {
            assert_eq!(Day(day).date(), expected, "{day}");
        }
    }

    #[test]
    fn periods_by_hand() {
        let billing = |day: u8| BillingDay::try_from(day).unwrap();
        let start = |day: i32, billing_day: u8| Day(day).period_start(billing(billing_day)).date();
        assert_eq!(start(20_778, 1), date(2026, 11, 1));
        assert_eq!(start(20_778, 21), date(2026, 11, 21));
        assert_eq!(start(20_778, 22), date(2026, 10, 22));
        assert_eq!(start(19_782, 31), date(2024, 2, 29), "the last day stands in for the 31st");
        assert_eq!(start(19_781, 31), date(2024, 1, 31));
        assert_eq!(start(19_783, 30), date(2024, 2, 29));
        assert_eq!(start(3, 10), date(1969, 12, 10));
        assert!(BillingDay::try_from(0).is_err() && BillingDay::try_from(32).is_err());
    }

    proptest! {
        /// Dates go on day by day, and a period begins exactly on the billing day.
        #[test]
        fn days_follow_each_other(day in i32::MIN / 2..i32::MAX / 2, billing in 1u8..=31) {
            let (today, tomorrow) = (Day(day).date(), Day(day + 1).date());
            let next_day = tomorrow == Date { day: today.day + 1, ..today };
            let next_month = tomorrow == Date { month: today.month + 1, day: 1, ..today };
            let next_year = tomorrow == date(today.year + 1, 1, 1) && (today.month, today.day) == (12, 31);
            prop_assert!(next_day || next_month || next_year, "{today:?} {tomorrow:?}");
            prop_assert!(today.day <= month_length(today.year, today.month));
            let billing = BillingDay::try_from(billing).unwrap();
            let (start, next) = (Day(day).period_start(billing), Day(day + 1).period_start(billing));
            prop_assert!(start <= Day(day) && day - start.0 < 31);
            prop_assert!(next == start || next == Day(day + 1));
            prop_assert_eq!(next == Day(day + 1), tomorrow.day == billing.in_month(tomorrow.year, tomorrow.month));
        }
    }
}
