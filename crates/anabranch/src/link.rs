//! What interfaces and the battery are, as the kernel's files have it.

use std::fs;
use std::path::Path;

use linux::monitor::Interface;
use linux::power::PowerState;
use linux::tap::SHARED_RADIO;
use policy::network::{NetworkKind, Percent, PowerSupply};
use units::BitRate;

/// Where the machine's power comes from.
pub fn supply(state: &PowerState) -> PowerSupply {
    match state.battery {
        Some(battery) if state.is_on_battery() => PowerSupply::Battery(Percent::new(battery.percent as u8)),
        _ => PowerSupply::Mains,
    }
}

/// Kind and speed of an interface as `root`, which is [`SYSTEM`], has them, if it speaks of this very interface: it may be another
/// namespace's.
pub fn classify(root: &Path, name: &str, index: u32) -> (NetworkKind, Option<BitRate>) {
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

/// Whether an interface is a tunnel over other networks, or leads nowhere. Networks of a shared radio are none.
pub fn rides_on_others(interface: &Interface) -> bool {
    let shared_radio = interface.alias.as_deref() == Some(SHARED_RADIO);
    !shared_radio && interface.kind.as_deref().is_some_and(|kind| TUNNELS.contains(&kind))
}

/// Where the kernel shows interfaces.
pub const SYSTEM: &str = "/sys/class/net";
const ETHERNET: &str = "1";
/// Hardware type of modems without Ethernet headers.
const RAW_IP: &str = "519";
/// Kinds of interfaces that ride on other networks or lead nowhere.
const TUNNELS: &[&str] = &[
    "tun",
    "wireguard",
    "ipip",
    "gre",
    "ip6gre",
    "ip6tnl",
    "sit",
    "vti",
    "vti6",
    "xfrm",
    "geneve",
    "vxlan",
    "dummy",
    "ifb",
];

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
