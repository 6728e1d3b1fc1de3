//! What networks are made of: their kind and speed, their access point, whether they are metered, and the battery.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anabranch::control::WifiReport;
use linux::power::{self, PowerState};
use linux::wireless::{Association, Wireless, WirelessError};
use policy::network::{NetworkKind, Percent, PowerSupply};
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
        let (mut kind, speed) = classify(Path::new(SYSTEM), &interface.name, interface.index);
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

fn supply(state: &PowerState) -> PowerSupply {
    match state.battery {
        Some(battery) if state.is_on_battery() => PowerSupply::Battery(Percent::new(battery.percent as u8)),
        _ => PowerSupply::Mains,
    }
}

/// Kind and speed as `/sys/class/net` has them, if it speaks of this very interface: it may be another namespace's.
fn classify(root: &Path, name: &str, index: u32) -> (NetworkKind, Option<BitRate>) {
    let directory = root.join(name);
    let text = |file: &str| fs::read_to_string(directory.join(file)).map(|text| text.trim().to_owned()).ok();
    if text("ifindex").and_then(|text| text.parse().ok()) != Some(index) {
        return (NetworkKind::Other, None);
    }
    let device = text("uevent")
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix("DEVTYPE=").map(str::to_owned)));
    let kind = match (device.as_deref(), text("type").as_deref()) {
        (Some("wlan"), _) => NetworkKind::Wifi,
        (Some("wwan"), _) | (_, Some(RAW_IP)) => NetworkKind::Cellular,
        (Some("bluetooth"), _) => NetworkKind::Bluetooth,
        (None, Some(ETHERNET)) if directory.join("device").exists() => NetworkKind::Ethernet,
        _ => NetworkKind::Other,
    };
    // Virtual links claim speeds that nobody measured.
    let speed = text("speed").and_then(|text| text.parse::<u64>().ok());
    let speed =
        speed.filter(|_| kind == NetworkKind::Ethernet).map(|mbps| BitRate(mbps.saturating_mul(1_000_000)));
    (kind, speed.filter(|speed| speed.0 > 0))
}

const SYSTEM: &str = "/sys/class/net";
const ETHERNET: &str = "1";
/// Hardware type of modems without Ethernet headers.
const RAW_IP: &str = "519";
const INTERVAL: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use linux::power::Battery;

    use super::*;

    #[test]
    fn links_are_told_apart() {
        let root = tempfile::tempdir().unwrap();
        let link = |name: &str, index: u32, kind: &str, uevent: &str, speed: &str| {
            let directory = root.path().join(name);
            fs::create_dir_all(directory.join("device")).unwrap();
            for (file, text) in [
                ("ifindex", index.to_string().as_str()),
                ("type", kind),
                ("uevent", uevent),
                ("speed", speed),
            ] {
                fs::write(directory.join(file), format!("{text}\n")).unwrap();
            }
            classify(root.path(), name, index)
        };
        assert_eq!(
            link("eth0", 2, "1", "INTERFACE=eth0", "1000"),
            (NetworkKind::Ethernet, Some(BitRate(1_000_000_000)))
        );
        assert_eq!(link("eth1", 3, "1", "INTERFACE=eth1", "-1"), (NetworkKind::Ethernet, None));
        assert_eq!(link("wlan0", 4, "1", "DEVTYPE=wlan\nINTERFACE=wlan0", ""), (NetworkKind::Wifi, None));
        assert_eq!(link("usb0", 5, "1", "DEVTYPE=wwan", "480"), (NetworkKind::Cellular, None));
        assert_eq!(link("wwan0", 6, "519", "", ""), (NetworkKind::Cellular, None));
        assert_eq!(classify(root.path(), "eth0", 7), (NetworkKind::Other, None), "another namespace's eth0");
    }

    #[test]
    fn only_a_battery_that_is_emptied_counts() {
        let state =
            |mains, discharging| PowerState { mains, battery: Some(Battery { percent: 8.9, discharging }) };
        assert_eq!(supply(&state(Some(false), true)), PowerSupply::Battery(Percent::new(8)));
        assert_eq!(supply(&state(Some(true), true)), PowerSupply::Mains);
        assert_eq!(supply(&state(None, false)), PowerSupply::Mains);
        assert_eq!(supply(&PowerState::default()), PowerSupply::Mains);
    }
}
