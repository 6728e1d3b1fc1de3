//! Which networks are in the air: what beacons and answers to probes said.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Frequency, MacAddress, Ssid, Timestamp};

use crate::frame::management::Beacon;
use crate::frame::{KeyManagement, RobustSecurity};
use crate::{Heard, Rate};

/// Access points and groups that are remembered; the one not heard for longest goes first.
pub const MOST_SEEN: usize = 256;
/// What was not heard for so long is forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// Weight of a new signal in the average.
const NEW_SIGNAL: f32 = 0.25;

/// A signal, dBm, over the last beacons, after one more.
pub fn smoothed_signal(average: Option<f32>, new: Option<f32>) -> Option<f32> {
    match (average, new) {
        (Some(average), Some(new)) => Some(average + (new - average) * NEW_SIGNAL),
        (average, new) => new.or(average),
    }
}

/// How a network is protected, as far as it matters for joining it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Not at all.
    Open,
    /// By an RSN element, which says how.
    Robust(RobustSecurity),
    /// In a way that is not joined: WEP, WPA of the first generation, or an element that breaks the standard.
    Unsupported,
}

impl Protection {
    /// In a word, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Unsupported => "old or unknown",
            Self::Robust(security) => {
                let offers = |suite| security.key_management.contains(&suite);
                if offers(KeyManagement::Psk) || offers(KeyManagement::PskSha256) {
                    if offers(KeyManagement::Sae) { "WPA2/WPA3" } else { "WPA2" }
                } else if offers(KeyManagement::Sae) {
                    "WPA3"
                } else if offers(KeyManagement::Enterprise) {
                    "enterprise"
                } else if offers(KeyManagement::Opportunistic) {
                    "open, encrypted"
                } else {
                    "other"
                }
            }
        }
    }
}

/// An access point or an ad hoc group.
#[derive(Clone, PartialEq, Debug)]
pub struct Seen {
    /// Its address.
    pub bssid: MacAddress,
    /// Its name; `None` if it hides it and nobody has told it.
    pub ssid: Option<Ssid>,
    /// Its channel.
    pub frequency: Frequency,
    /// Smoothed, in dBm.
    pub signal_dbm: Option<f32>,
    /// Its clock when it was heard last, in microseconds.
    pub clock: u64,
    /// Time between beacons.
    pub interval: Duration,
    /// A group without an access point.
    pub ad_hoc: bool,
    /// How it is protected.
    pub protection: Protection,
    /// Rates that it takes, lowest first.
    pub rates: Vec<Rate>,
    /// Those that every member takes.
    pub basic: Vec<Rate>,
    /// When it was heard last.
    pub heard: Timestamp,
}

/// All that was seen lately. Equal addresses on two channels are two access points.
#[derive(Clone, Default, Debug)]
pub struct SeenNetworks(BTreeMap<(MacAddress, Frequency), Seen>);

impl SeenNetworks {
    /// Takes a beacon or an answer to a probe. Gives what is remembered now, and whether it is new.
    ///
    /// A frame that was heard on a neighbouring channel is not taken, if it names its own.
    pub fn take(
        &mut self,
        now: Timestamp,
        bssid: MacAddress,
        beacon: &Beacon<'_>,
        heard: &Heard<'_>,
    ) -> Option<(&Seen, bool)> {
        let own_channel = heard.frequency.channel();
        let named = beacon.elements.channel().map(u16::from);
        if bssid.is_group() || named.is_some_and(|channel| Some(channel) != own_channel) {
            return None;
        }
        let protection = match beacon.elements.security() {
            Ok(Some(security)) => Protection::Robust(security),
            Ok(None) if !beacon.privacy => Protection::Open,
            _ => Protection::Unsupported,
        };
        let rates = beacon.elements.rates();
        let ssid = beacon.elements.ssid().and_then(Ssid::new);
        let key = (bssid, heard.frequency);
        let is_new = !self.0.contains_key(&key);
        if is_new && self.0.len() >= MOST_SEEN {
            let oldest = self.0.iter().min_by_key(|(_, seen)| seen.heard).map(|(key, _)| *key);
            oldest.and_then(|key| self.0.remove(&key));
        }
        let before = self.0.get(&key);
        let signal_dbm =
            smoothed_signal(before.and_then(|seen| seen.signal_dbm), heard.signal_dbm.map(f32::from));
        // The beacons of a hidden network have no name; the answers to our probes have it.
        let ssid = ssid.or_else(|| before.and_then(|seen| seen.ssid.clone()));
        let seen = Seen {
            bssid,
            ssid,
            frequency: heard.frequency,
            signal_dbm,
            clock: beacon.timestamp,
            interval: beacon.interval,
            ad_hoc: beacon.ad_hoc,
            protection,
            rates: rates.all,
            basic: rates.basic,
            heard: now,
        };
        self.0.insert(key, seen);
        self.0.get(&key).map(|seen| (seen, is_new))
    }

    /// Forgets what was not heard for a minute.
    pub fn forget_old(&mut self, now: Timestamp) {
        self.0.retain(|_, seen| now.since(seen.heard) < FORGOTTEN_AFTER);
    }

    /// One of them.
    pub fn get(&self, bssid: MacAddress, frequency: Frequency) -> Option<&Seen> {
        self.0.get(&(bssid, frequency))
    }

    /// All, by address and channel.
    pub fn iter(&self) -> impl Iterator<Item = &Seen> {
        self.0.values()
    }
}
