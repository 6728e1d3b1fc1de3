//! One Wi-Fi card in several networks, as its daemon tells it.

use std::net::IpAddr;

use hyper::Method;
use serde::{Deserialize, Serialize};
use units::Bytes;

use super::{BlockingClient, Client, ClientError, Fraction, Micros};

/// A radio and its networks at a glance.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RadioStatus {
    /// The process that keeps root and gives the card back.
    pub pid: u32,
    /// The card's address on the air.
    pub address: String,
    /// The channel where it is at this moment; `None` while it changes or has nothing to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<u16>,
    /// Why the card cannot be used now, if so: switched off, pulled out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Its networks, in the order in which they were added.
    pub networks: Vec<RadioNetworkReport>,
}

/// How far a network of the radio has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum RadioNetworkState {
    /// No access point of it is heard, or none that can be joined now.
    #[default]
    Searching,
    /// An access point is being joined.
    Joining,
    /// Packets pass, and an address is asked for.
    Asking,
    /// Packets pass, with an address.
    Up,
}

/// One network of the radio.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RadioNetworkReport {
    /// Its name on the air.
    pub ssid: String,
    /// Its interface.
    pub interface: String,
    /// How far it has come.
    pub state: RadioNetworkState,
    /// Why it was last down or does not come up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// With soft hand-off: whether it is the one that carries the traffic.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub primary: Option<bool>,
    /// Its access point, joined or being joined.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bssid: Option<String>,
    /// Its channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<u16>,
    /// Signal of its beacons, smoothed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_dbm: Option<f32>,
    /// Addresses of the interface.
    pub addresses: Vec<IpAddr>,
    /// Its weight as configured, or as soft hand-off has it.
    pub weight: u16,
    /// The part of the radio's time that its channel has, as slots are now: networks of one channel are there together.
    pub share: Fraction,
    /// How long its channel's slot is now.
    #[serde(rename = "slot_us")]
    pub slot: Micros,
    /// Its channel delivers so little that it is visited seldom.
    pub given_up: bool,
    /// Packets that wait for its turn.
    pub queue: usize,
    /// What a frame that its access point kept for us takes, once both ways of taking them were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_frame: Option<KeptFrame>,
    /// What went through it since it was added.
    pub counters: RadioCounters,
}

/// Time for one frame that an access point kept. The faster way is the one in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KeptFrame {
    /// When we say that we are awake, and all come at once.
    #[serde(rename = "announced_us")]
    pub announced: Micros,
    /// When we poll for one after the other.
    #[serde(rename = "polled_us")]
    pub polled: Micros,
}

/// Counts since a network was added. Packets are those of its interface, frames those on the air.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RadioCounters {
    /// Packets received.
    pub received_packets: u64,
    /// Bytes of those.
    pub received: Bytes,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of those.
    pub sent: Bytes,
    /// Frames that were not acknowledged, with all their attempts.
    pub failed_frames: u64,
    /// Packets refused, since too many waited or the network was down.
    pub refused_packets: u64,
    /// Frames dropped since they do not fit the keys.
    pub dropped_frames: u64,
    /// Beacons that were due in the present visits and have not come since the last one that was heard.
    pub missed_beacons: u32,
    /// Beacons with group traffic to come that were heard.
    pub heard_dtims: u64,
    /// Those that were missed, since away: what was sent to all then is lost.
    pub missed_dtims: u64,
    /// Visits that found as many frames kept as an access point keeps: more may have been lost.
    pub full_buffers: u64,
    /// Visits after which the access point did not confirm that it knows that we sleep.
    pub unconfirmed_partings: u64,
    /// Times that it went up.
    pub ups: u64,
}

/// An access point or ad hoc group that was heard.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeardNetwork {
    /// Its name; `None` if it hides it.
    pub ssid: Option<String>,
    /// Its address.
    pub bssid: String,
    /// Its channel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<u16>,
    /// Centre of its channel in MHz.
    pub megahertz: u32,
    /// Signal of its beacons.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal_dbm: Option<f32>,
    /// How it is protected, in a word.
    pub security: String,
    /// A group without an access point.
    pub ad_hoc: bool,
    /// Whether the radio knows a network of this name.
    pub known: bool,
}

impl Client {
    /// A radio's networks.
    ///
    /// # Errors
    /// Any [`ClientError`]; other daemons answer `WrongRole`.
    pub async fn radio(&self) -> Result<RadioStatus, ClientError> {
        self.get("/v1/radio").await
    }

    /// Listens on every channel once, beside what goes on, and gives what was heard in the last minute. Takes some seconds.
    ///
    /// # Errors
    /// Any [`ClientError`]; other daemons answer `WrongRole`.
    pub async fn radio_scan(&self) -> Result<Vec<HeardNetwork>, ClientError> {
        self.send(Method::POST, "/v1/radio/scan", None::<&()>).await
    }
}

impl BlockingClient {
    /// See [`Client::radio`].
    ///
    /// # Errors
    /// As there.
    pub fn radio(&self) -> Result<RadioStatus, ClientError> {
        self.wait(self.client.radio())
    }

    /// See [`Client::radio_scan`].
    ///
    /// # Errors
    /// As there.
    pub fn radio_scan(&self) -> Result<Vec<HeardNetwork>, ClientError> {
        self.wait(self.client.radio_scan())
    }
}
