//! What one client of a gateway may carry: so much a second, and so much a month before it is slowed down.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes, Timestamp};

use crate::calendar::{BillingDay, Day};

/// A limit of a client's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Limit<T> {
    /// That of all clients, or none.
    Named(NamedLimit),
    /// This much.
    At(T),
}

/// A limit without a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NamedLimit {
    /// That of all clients.
    Default,
    /// None.
    None,
}

impl<T> Default for Limit<T> {
    fn default() -> Self {
        Self::Named(NamedLimit::Default)
    }
}

impl<T> Limit<T> {
    fn or(self, default: Option<T>) -> Option<T> {
        match self {
            Self::At(limit) => Some(limit),
            Self::Named(NamedLimit::Default) => default,
            Self::Named(NamedLimit::None) => None,
        }
    }
}

/// The limits of a client's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientLimits {
    /// In each direction.
    pub rate: Limit<BitRate>,
    /// In a month, both directions together.
    pub quota: Limit<Bytes>,
}

/// The limits of all clients that have none of their own, and what follows when a quota is used up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitSettings {
    /// In each direction.
    pub rate: Option<BitRate>,
    /// In a month, both directions together.
    pub quota: Option<Bytes>,
    /// What is left in each direction once the quota is used up.
    pub beyond_quota: BitRate,
    /// When months begin.
    pub billing_day: BillingDay,
}

impl Default for LimitSettings {
    fn default() -> Self {
        Self { rate: None, quota: None, beyond_quota: BitRate(1_000_000), billing_day: BillingDay::FIRST }
    }
}

/// What holds for a client at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Allowance {
    /// In each direction; `None` for as much as there is.
    pub rate: Option<BitRate>,
    /// The quota, if it has one.
    pub quota: Option<Bytes>,
    /// Whether it is slowed down because the quota is used up.
    pub slowed: bool,
}

impl LimitSettings {
    /// What holds for a client with limits `own` that has used `used` in the month.
    pub fn allowance(&self, own: ClientLimits, used: Bytes) -> Allowance {
        let rate = own.rate.or(self.rate);
        let quota = own.quota.or(self.quota);
        let slowed = quota.is_some_and(|quota| used >= quota);
        let beyond = slowed.then_some(self.beyond_quota);
        Allowance { rate: rate.into_iter().chain(beyond).min(), quota, slowed }
    }

    /// The first day of the month that `today` lies in.
    pub fn month(&self, today: Day) -> Day {
        today.period_start(self.billing_day)
    }
}

/// Lets packets through up to a rate, and drops the rest: the generic cell rate algorithm (ITU-T I.371 annex A, virtual
/// scheduling), with 100 ms as its tolerance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policer {
    rate: BitRate,
    /// When the next packet would leave a queue that is served at `rate`.
    due: Timestamp,
}

impl Policer {
    /// One that has let nothing through. A rate of 0 lets through nothing beyond the first burst.
    pub fn new(rate: BitRate) -> Self {
        Self { rate, due: Timestamp::ZERO }
    }

    /// The rate that it keeps to.
    pub fn rate(&self) -> BitRate {
        self.rate
    }

    /// Whether a packet of this length may go.
    pub fn admits(&mut self, now: Timestamp, length: Bytes) -> bool {
        let due = self.due.max(now);
        if due.since(now) > BURST {
            return false;
        }
        self.due = due + self.rate.time_for(length);
        true
    }
}

/// A window of TCP that grows by bursts fits; longer only fills the queue of whoever sends.
const BURST: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MBIT: BitRate = BitRate(1_000_000);

    #[test]
    fn a_clients_own_limit_goes_before_that_of_all() {
        let all = LimitSettings { rate: Some(MBIT), ..LimitSettings::default() };
        let rate = |own| all.allowance(ClientLimits { rate: own, ..Default::default() }, Bytes(0)).rate;
        assert_eq!(rate(Limit::default()), Some(MBIT));
        assert_eq!(rate(Limit::Named(NamedLimit::None)), None);
        assert_eq!(rate(Limit::At(BitRate(5))), Some(BitRate(5)));
    }

    #[test]
    fn who_has_used_its_quota_is_slowed_down_and_never_made_faster() {
        let all = LimitSettings { quota: Some(Bytes(100)), ..LimitSettings::default() };
        let own = ClientLimits::default();
        let before = all.allowance(own, Bytes(99));
        assert_eq!(before, Allowance { rate: None, quota: Some(Bytes(100)), slowed: false });
        assert_eq!(all.allowance(own, Bytes(100)).rate, Some(all.beyond_quota));
        let slow = ClientLimits { rate: Limit::At(BitRate(64_000)), ..own };
        let after = all.allowance(slow, Bytes(200));
        assert_eq!((after.rate, after.slowed), (Some(BitRate(64_000)), true));
    }

    #[test]
    fn limits_are_words_or_numbers_in_json() {
        let text = |limit: Limit<BitRate>| serde_json::to_string(&limit).unwrap();
        assert_eq!(text(Limit::default()), "\"default\"");
        assert_eq!(text(Limit::At(MBIT)), "1000000");
        assert_eq!(serde_json::from_str::<Limit<Bytes>>("\"none\"").unwrap(), Limit::Named(NamedLimit::None));
        assert!(serde_json::from_str::<Limit<Bytes>>("\"much\"").is_err());
        assert!(serde_json::from_str::<Limit<Bytes>>("-1").is_err());
    }

    #[test]
    fn a_rate_of_nothing_lets_one_packet_through() {
        let mut policer = Policer::new(BitRate(0));
        assert!(policer.admits(Timestamp::ZERO, Bytes(100)));
        assert!(!policer.admits(Timestamp::ZERO + Duration::from_secs(1_000_000), Bytes(100)));
    }

    proptest! {
        /// Over any time a sender that always has a packet gets the rate, and at most a burst and a packet more.
        #[test]
        fn the_rate_is_kept(rate in 64_000_u64..10_000_000_000, length in 40_u64..65_536, step in 1_u64..20_000) {
            let mut policer = Policer::new(BitRate(rate));
            let (mut now, mut sent, mut packets) = (Timestamp::ZERO, 0_u64, 0_u64);
            for _ in 0..2_000 {
                while sent < 1 << 40 && policer.admits(now, Bytes(length)) {
                    sent += length;
                    packets += 1;
                }
                now += Duration::from_micros(step);
            }
            // A packet's time is rounded down to a nanosecond.
            let passed = now.since(Timestamp::ZERO) + Duration::from_nanos(packets);
            let allowed = BitRate(rate).bytes_in(passed + BURST).0 + 2 * length;
            prop_assert!(sent <= allowed, "{sent} of {allowed}");
            let due = BitRate(rate).bytes_in(now.since(Timestamp::ZERO)).0;
            prop_assert!(sent + 2 * length >= due.min(1 << 40), "{sent} of {due}");
        }
    }
}
