//! What networks are made of: their kind and speed, their access point, whether they are metered, and the battery.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anabranch::control::WifiReport;
use anabranch::link::{self, classify, supply};
use linux::power::{self, PowerState};
use linux::wireless::{Association, Wireless, WirelessError};
use policy::network::{NetworkKind, PowerSupply};
use units::{BitRate, NetworkId, Timestamp};

use crate::device::networks::Network;

/// Looked at every few seconds.
#[derive(Default)]
pub struct Links {
    wireless: Option<Wireless>,
    /// There is no wireless card; found out once.
    wired: bool,
    power: PowerSupply,
    facts: BTreeMap<NetworkId, LinkFacts>,
    due: Timestamp,
}

/// What is known of one link.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct LinkFacts {
    /// What it is.
    pub kind: NetworkKind,
    /// What it claims to carry.
    pub nominal: Option<BitRate>,
    /// Its access point, if it is Wi-Fi.
    pub wifi: Option<WifiReport>,
}

impl Links {
    /// When to call [`Self::look`] next.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// Looks anew if it is time.
    pub fn look(&mut self, now: Timestamp, networks: &[Network]) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        self.power = supply(&PowerState::read(Path::new(power::SYSTEM)));
        self.facts = networks
            .iter()
            .filter(|network| network.connected)
            .map(|network| (network.id, self.facts_of(network)))
            .collect();
    }

    /// Makes the next [`Self::look`] look whatever the time, because networks have changed.
    pub fn hurry(&mut self) {
        self.due = Timestamp::ZERO;
    }

    /// Where the device's power comes from.
    pub fn power(&self) -> PowerSupply {
        self.power
    }

    /// What is known of a network's link.
    pub fn of(&self, network: NetworkId) -> LinkFacts {
        self.facts.get(&network).cloned().unwrap_or_default()
    }

    fn facts_of(&mut self, network: &Network) -> LinkFacts {
        let interface = &network.interface;
        let association = self.association(interface.index);
        let (mut kind, speed) = classify(Path::new(link::SYSTEM), &interface.name, interface.index);
        if association.is_some() {
            kind = NetworkKind::Wifi;
        }
        let nominal = association.as_ref().and_then(|association| association.transmit_rate).or(speed);
        LinkFacts { kind, nominal, wifi: association.map(|association| wifi(&association)) }
    }

    fn association(&mut self, index: u32) -> Option<Association> {
        if self.wired {
            return None;
        }
        if self.wireless.is_none() {
            match Wireless::open() {
                Ok(wireless) => self.wireless = Some(wireless),
                Err(WirelessError::None) => self.wired = true,
                Err(WirelessError::Netlink(_)) => {}
            }
        }
        // An interface that is not wireless is an error there.
        self.wireless.as_mut()?.association(index).ok().flatten()
    }
}

fn wifi(association: &Association) -> WifiReport {
    WifiReport {
        ssid: association.ssid.as_ref().map(ToString::to_string),
        bssid: association.bssid.to_string(),
        channel: association.frequency.channel(),
        signal_dbm: association.signal_dbm,
        rate: association.transmit_rate,
    }
}

const INTERVAL: Duration = Duration::from_secs(10);
