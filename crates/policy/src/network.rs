//! What the policy is told about each network and about the device's power.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{BitRate, Bytes, NetworkId};

use crate::energy::PowerModel;
use crate::{NetworkPreference, RttEstimator};

/// All that is known about one network at one time.
///
/// Metrics are the monitor's; the policy reads them and keeps none.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkInput {
    /// Its number.
    pub id: NetworkId,
    /// Its name, as rules and people call it: usually the interface.
    pub name: String,
    /// What it is.
    #[serde(default)]
    pub kind: NetworkKind,
    /// What the user prefers.
    #[serde(default)]
    pub preference: NetworkPreference,
    /// Whether packets can leave by it: carrier, address and route are there.
    pub up: bool,
    /// What lies beyond the first hop.
    #[serde(default)]
    pub reach: Reach,
    /// What was measured.
    #[serde(default)]
    pub metrics: Metrics,
    /// What its card draws; `None` if nobody told.
    #[serde(default)]
    pub power: Option<PowerModel>,
    /// What its traffic costs; `None` if it costs nothing.
    #[serde(default)]
    pub price: Option<Price>,
    /// Where it stands against its data cap; `None` if it has none.
    #[serde(default)]
    pub cap: Option<CapReport>,
    /// Its access point takes more air from better ones of its channel than it brings, by [`crate::steering`].
    #[serde(default)]
    pub spared: bool,
}

impl NetworkInput {
    /// A network that is up and of which nothing else is known.
    pub fn new(id: NetworkId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            kind: NetworkKind::Other,
            preference: NetworkPreference::default(),
            up: true,
            reach: Reach::Unknown,
            metrics: Metrics::default(),
            power: None,
            price: None,
            cap: None,
            spared: false,
        }
    }
}

/// What a network is made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum NetworkKind {
    /// Wi-Fi, as a station of an access point.
    Wifi,
    /// A modem of a mobile network.
    Cellular,
    /// A cable.
    Ethernet,
    /// Bluetooth.
    Bluetooth,
    /// Wi-Fi without an access point.
    AdHoc,
    /// Anything else.
    #[default]
    Other,
}

/// What was found beyond a network's first hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// Nobody looked yet. Counts as good.
    #[default]
    Unknown,
    /// The Internet.
    Internet,
    /// A captive portal: somebody must log in.
    Captive,
    /// Nothing.
    Nothing,
}

/// What was measured on a network. `None` where there was no sample yet.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Metrics {
    /// Round-trip time.
    pub rtt: Option<RttSummary>,
    /// Rate that the link itself claims: bit rate, port speed.
    pub nominal: Option<BitRate>,
    /// Its capacity as far as flows could tell: what very many of them would get. Samples that the
    /// application limited (TCP tells) are to be left out: an idle network must look unknown here, not slow.
    pub delivered: Option<BitRate>,
    /// How many bulk flows of other people share that capacity, as far as ours could tell.
    pub others: OtherFlows,
    /// Rate that flows over it now, ours and others' as far as seen.
    pub load: BitRate,
    /// Bulk flows that use it now.
    pub bulk_flows: u32,
    /// Part of packets lost.
    pub loss: Loss,
}

/// Round-trip time as RFC 6298 keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RttSummary {
    /// SRTT.
    pub smoothed: Duration,
    /// RTTVAR.
    pub variation: Duration,
}

impl RttSummary {
    /// What an estimator has learned; `None` before its first sample.
    pub fn of(estimator: &RttEstimator) -> Option<Self> {
        let summary = Self { smoothed: estimator.smoothed(), variation: estimator.variation() };
        estimator.is_measured().then_some(summary)
    }
}

/// Part of packets that are lost, 0 to 1.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct Loss(f64);

impl Loss {
    /// The part as a number from 0 to 1.
    pub const fn part(self) -> f64 {
        self.0
    }
}

impl From<f64> for Loss {
    /// Clamps to 0 to 1; what is not a number counts as 0.
    fn from(part: f64) -> Self {
        Self(if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) })
    }
}

impl From<Loss> for f64 {
    fn from(loss: Loss) -> Self {
        loss.0
    }
}

/// Bulk flows of other people at a network's bottleneck. Nobody counts them: it is how many flows like ours would take what ours
/// do not get, so it need not be a whole number.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default, Serialize, Deserialize)]
#[serde(from = "f64", into = "f64")]
pub struct OtherFlows(f64);

impl OtherFlows {
    /// How many, nought or more.
    pub const fn number(self) -> f64 {
        self.0
    }
}

impl From<f64> for OtherFlows {
    /// Clamps to 0 to 1,000; what is not a number counts as 0.
    fn from(number: f64) -> Self {
        Self(if number.is_nan() { 0.0 } else { number.clamp(0.0, 1_000.0) })
    }
}

impl From<OtherFlows> for f64 {
    fn from(others: OtherFlows) -> Self {
        others.0
    }
}

/// Price of traffic: thousandths of the user's currency unit per gigabyte (10^9 bytes).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Price(pub u64);

impl fmt::Display for Price {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:.2} per GB", self.0 as f64 / 1e3)
    }
}

/// Where a network stands against its data cap; see [`crate::DataCap::report`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CapReport {
    /// Used in the current billing period.
    pub used: Bytes,
    /// Allowed in a billing period.
    pub limit: Bytes,
    /// What follows.
    pub effect: CapEffect,
}

/// What a data cap does to its network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CapEffect {
    /// Nothing.
    #[default]
    None,
    /// The network is a backup.
    Backup,
    /// The network is off.
    Off,
}

/// Where the device's power comes from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum PowerSupply {
    /// The mains, or a device that cannot tell.
    #[default]
    Mains,
    /// A battery with so much left.
    Battery(Percent),
}

impl PowerSupply {
    /// The charge that is left if it is below `threshold` and the device is off the mains.
    pub fn below(self, threshold: Option<Percent>) -> Option<Percent> {
        match (self, threshold) {
            (Self::Battery(left), Some(threshold)) if left < threshold => Some(left),
            _ => None,
        }
    }
}

/// A whole number of per cent, 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(from = "u8", into = "u8")]
pub struct Percent(u8);

impl Percent {
    /// `value` per cent; more than 100 counts as 100.
    pub const fn new(value: u8) -> Self {
        Self(if value > 100 { 100 } else { value })
    }

    /// As a number from 0 to 100.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// This part of `whole`, rounded down.
    pub const fn of(self, whole: Bytes) -> Bytes {
        Bytes((whole.0 / 100) * self.0 as u64 + (whole.0 % 100) * self.0 as u64 / 100)
    }
}

impl From<u8> for Percent {
    fn from(value: u8) -> Self {
        Self::new(value)
    }
}

impl From<Percent> for u8 {
    fn from(percent: Percent) -> Self {
        percent.0
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} %", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_clamped_and_exact() {
        assert_eq!(Loss::from(f64::NAN).part(), 0.0);
        assert_eq!(Loss::from(7.0).part(), 1.0);
        assert_eq!(Percent::new(200).get(), 100);
        assert_eq!(Percent::new(90).of(Bytes(u64::MAX)), Bytes(u64::MAX / 100 * 90 + 13));
        assert_eq!(Percent::new(90).of(Bytes(1_050)), Bytes(945));
        assert_eq!(Price(1_500).to_string(), "1.50 per GB");
    }

    #[test]
    fn mains_is_never_low() {
        let threshold = Some(Percent::new(10));
        assert_eq!(PowerSupply::Mains.below(threshold), None);
        assert_eq!(PowerSupply::Battery(Percent::new(10)).below(threshold), None, "below, not at");
        assert_eq!(PowerSupply::Battery(Percent::new(9)).below(threshold), Some(Percent::new(9)));
        assert_eq!(PowerSupply::Battery(Percent::new(1)).below(None), None);
    }
}
