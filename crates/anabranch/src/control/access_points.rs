//! Access points in range, and how much each is worth.

use std::collections::BTreeSet;

use hyper::Method;
use serde::{Deserialize, Serialize};

use units::BitRate;

use super::{BlockingClient, Client, ClientError, Fraction, Micros};

/// Whose frames an estimate is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum QualitySource {
    /// Those that the access point sent to us.
    ToUs,
    /// Those that it sent to others.
    Overheard,
    /// Those that we sent, as the kernel counts them.
    Sent,
}

/// How well an access point's frames reach us, over half a second.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct QualityReport {
    /// How often an attempt succeeds.
    pub delivery_ratio: Fraction,
    /// Half of the interval in which that lies with 95 %.
    pub margin: Fraction,
    /// Air time for a full packet that arrives, if nobody else wants the air.
    #[serde(rename = "packet_time_us", skip_serializing_if = "Option::is_none")]
    pub packet_time: Option<Micros>,
    /// Frames that it is made from.
    pub frames: u32,
    /// Whose.
    pub source: QualitySource,
    /// How far to believe it.
    pub confidence: Fraction,
    /// Why it may be wrong.
    pub doubts: Vec<String>,
}

/// An access point in range.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AccessPointReport {
    /// The network's name; `None` if it hides it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssid: Option<String>,
    /// Its address.
    pub bssid: String,
    /// Its channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<u16>,
    /// Centre of its channel in MHz.
    pub megahertz: u32,
    /// Its signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_dbm: Option<f32>,
    /// Our interface in its network, if we are associated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// What is known of it; `None` if nothing was heard of it in the last half second but beacons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quality: Option<QualityReport>,
    /// The packet time that decisions rest on, which may be some seconds old.
    #[serde(rename = "held_packet_time_us", skip_serializing_if = "Option::is_none")]
    pub held_packet_time: Option<Micros>,
    /// Its channel's part of the radio's time; 0 without an association.
    pub share: Fraction,
    /// The part of its channel's air that others took lately, as far as is known: they may have taken more. `None` if nobody knows: without an
    /// association, or if of a card that the kernel keeps neither the driver tells nor frames are heard.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub others: Option<Fraction>,
    /// Whether it is to carry data, or is only kept ready; false without an association.
    pub used: bool,
    /// No more than this is to go over it, or over one that is kept ready if the others fail, since better ones need the air; `None`: as much as it takes.
    #[serde(rename = "limit_bps", skip_serializing_if = "Option::is_none")]
    pub limit: Option<BitRate>,
    /// No more than this is to come over it from a gateway, which sends over several networks at once, since other stations want the air as well; only without
    /// another limit.
    #[serde(rename = "fair_limit_bps", default, skip_serializing_if = "Option::is_none")]
    pub fair_limit: Option<BitRate>,
    /// The most of its packets that may be marked so that senders prefer others.
    pub marks: Fraction,
    /// How often flows over it whose senders cannot be told were to begin anew, as those know it as worse than it is.
    #[serde(default)]
    pub renewals: u32,
    /// Why.
    pub reason: String,
}

/// Networks of a radio behind which nothing answers, while something does behind others: what the device says that uses them.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Unreached {
    /// Their interfaces. Those that are no network of the radio are passed over.
    pub interfaces: BTreeSet<String>,
}

impl Client {
    /// Tells a radio behind which of its networks nothing answers, in place of what was told before. It forgets it after ten seconds.
    ///
    /// # Errors
    /// Any [`ClientError`]; other daemons answer `WrongRole`.
    pub async fn tell_unreached(&self, unreached: &Unreached) -> Result<Unreached, ClientError> {
        self.send(Method::PUT, "/v1/radio/unreached", Some(unreached)).await
    }

    /// Access points in range of a radio.
    ///
    /// # Errors
    /// Any [`ClientError`]; other daemons answer `WrongRole`.
    pub async fn radio_access_points(&self) -> Result<Vec<AccessPointReport>, ClientError> {
        self.get("/v1/radio/aps").await
    }
}

impl BlockingClient {
    /// See [`Client::tell_unreached`].
    ///
    /// # Errors
    /// As there.
    pub fn tell_unreached(&self, unreached: &Unreached) -> Result<Unreached, ClientError> {
        self.wait(self.client.tell_unreached(unreached))
    }

    /// See [`Client::radio_access_points`].
    ///
    /// # Errors
    /// As there.
    pub fn radio_access_points(&self) -> Result<Vec<AccessPointReport>, ClientError> {
        self.wait(self.client.radio_access_points())
    }
}
