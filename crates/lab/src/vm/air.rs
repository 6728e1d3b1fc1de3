//! Networks that reach the device by Wi-Fi: an access point for each, the medium as the air, and a card for each network or one for all.

use std::fmt::Write as _;

use anyhow::Context;
use sim::NetworkSpec;

use super::wifi::{AccessPoint, Wifi, WifiNetwork};
use super::{Job, MachineError, program};
use crate::medium::{Config, LinkConfig};

/// How the networks of a [`DirectJob`](super::direct::DirectJob) reach the device by Wi-Fi. Access points have the networks' names, are open
/// and 802.11g; the device's interfaces are called like the networks, with cables or without.
#[derive(Clone, Debug)]
pub struct Air {
    /// The channel of each network's access point.
    pub channels: Vec<u8>,
    /// What the device has.
    pub radios: Radios,
    /// Whether the times of null frames come back, as the file `partings`.
    pub partings: bool,
    /// Other computers' namespaces with the number of their radios, `wlan0` and so on.
    pub others: Vec<(&'static str, u32)>,
    /// Links that are not perfect. Radios are counted in this order: access points, cards of the device, others'.
    pub links: Vec<LinkConfig>,
}

/// The device's Wi-Fi cards.
#[derive(Clone, Debug)]
pub enum Radios {
    /// One for each network, with the kernel's own station, without power saving.
    Cards {
        /// Further ones: the interface, and the place of the network that it joins.
        more: Vec<(&'static str, usize)>,
    },
    /// One for all, shared by `anabranch radio up`.
    Shared {
        /// Further arguments of the command.
        arguments: String,
        /// Each network's share of the radio. It is not in those beyond the last weight.
        weights: Vec<u16>,
    },
}

impl Air {
    /// All on the given channels, with one card for all that gives each network the same share.
    pub fn shared(channels: &[u8], arguments: impl Into<String>) -> Self {
        let radios = Radios::Shared { arguments: arguments.into(), weights: vec![1; channels.len()] };
        Self { channels: channels.to_vec(), radios, partings: false, others: Vec::new(), links: Vec::new() }
    }

    /// The same with a card for each network.
    pub fn cards(channels: &[u8]) -> Self {
        Self { radios: Radios::Cards { more: Vec::new() }, ..Self::shared(channels, "") }
    }

    /// Adds what the guest needs for `networks`.
    pub(super) fn add_to(
        &self,
        networks: &[NetworkSpec],
        seed: u32,
        job: &mut Job,
    ) -> Result<(), MachineError> {
        let with_points = networks.iter().zip(&self.channels).map(|(link, channel)| WifiNetwork {
            link: link.clone(),
            points: vec![AccessPoint::open(link.name, *channel)],
        });
        let mut wifi = Wifi::new(with_points.collect());
        if let Radios::Cards { more } = &self.radios {
            let cards = u32::try_from(networks.len() + more.len()).context("too many cards")?;
            wifi.stations = vec![("device", cards)];
        }
        wifi.stations.extend(&self.others);
        wifi.add_to(job)?;
        let config = Config {
            seed: seed.into(),
            report: Some("/results/air.json".into()),
            partings: self.partings.then(|| "/results/partings".into()),
            link: self.links.clone(),
            ..Config::default()
        };
        let config = toml::to_string(&config).context("describe the air")?;
        job.files.insert("/job/air.toml".into(), config.into_bytes());
        job.files.insert("/job/lease".into(), LEASE.into());
        if let Radios::Shared { weights, .. } = &self.radios {
            job.files.insert("/job/radio.toml".into(), known_networks(networks, weights).into_bytes());
        }
        job.programs.push(program("chrt", "util-linux")?);
        Ok(())
    }

    /// Shell commands that build networks and access points.
    pub(super) fn build_commands(&self) -> String {
        format!("{ASSOCIATE}{BUILD}")
    }

    /// Shell commands after which the device is in all `networks` and has their addresses.
    pub(super) fn join_commands(&self, networks: &[NetworkSpec]) -> String {
        let names: Vec<&str> = networks.iter().map(|network| network.name).collect();
        let mut commands = String::new();
        match &self.radios {
            Radios::Cards { more } => {
                let further = more.iter().map(|&(card, network)| (card, names.get(network).copied()));
                let cards = names.iter().map(|&name| (name, Some(name))).chain(further);
                for (at, (card, network)) in cards.enumerate() {
                    // Writing to a string cannot fail.
                    let _ = writeln!(commands, "join_by_card wlan{at} {card} {}", network.unwrap_or(card));
                }
            }
            Radios::Shared { arguments, weights } => {
                let joined = &names[..names.len().min(weights.len())];
                let _ = writeln!(commands, "share_radio {arguments}\nfor name in {}; do", joined.join(" "));
                commands += "    for _ in $(seq 300); do has_address $name && break; sleep 0.1; done\n    \
                             has_address $name || { cat /results/radio.log; fail \"no lease of $name\"; }\ndone\n";
            }
        }
        commands
    }
}

/// Ends radio and medium, which then write what they counted.
pub(super) const END: &str = r#"[ -z "$radio" ] || { kill -TERM $radio; wait $radio; }
kill -TERM $medium; wait $medium || fail 'the medium did not end well'
"#;

/// The radio's known networks, in its own words.
fn known_networks(networks: &[NetworkSpec], weights: &[u16]) -> String {
    let mut text = String::new();
    for (network, weight) in networks.iter().zip(weights) {
        let name = network.name;
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[[network]]\nssid = \"{name}\"\ninterface = \"{name}\"\nweight = {weight}\n");
    }
    text
}

/// The medium is there before any radio is used, and first in line for the processor.
const BUILD: &str = r#"chrt -f 10 anabranch-lab medium /job/air.toml >/results/medium.log 2>&1 &
medium=$!; radio=
for _ in $(seq 100); do grep -q ready /results/medium.log && break; sleep 0.1; done
grep -q ready /results/medium.log || { cat /results/medium.log; fail 'no medium'; }
. /job/wifi
build_networks; build_air
has_address() { ip -n device addr show "$1" 2>/dev/null | grep -q 'inet '; }
join_by_card() { ip -n device link set dev "$1" name "$2"; associate device "$2" "$3" || fail "no lease of $3"; }
share_radio() {
    mkdir -p /tmp/device/radio; cp /job/radio.toml /tmp/device/radio/
    chmod 700 /tmp/device /tmp/device/radio; chmod 600 /tmp/device/radio/radio.toml
    ip netns exec device anabranch --state /tmp/device radio up "$@" >/results/radio.log 2>&1 &
    radio=$!
}
"#;

/// `associate NAMESPACE INTERFACE NETWORK`: the kernel's own station, and an address by DHCP. Needs [`LEASE`] as `/job/lease`.
pub const ASSOCIATE: &str = r#"associate() {
    ip -n "$1" link set dev "$2" up
    in_namespace "$1" iw dev "$2" set power_save off
    in_namespace "$1" iw dev "$2" connect "$3"
    for _ in $(seq 100); do in_namespace "$1" iw dev "$2" link | grep -q '^Connected' && break; sleep 0.1; done
    in_namespace "$1" udhcpc -q -n -t 10 -T 1 -i "$2" -s /job/lease >/dev/null
}
"#;

/// What busybox's DHCP client calls with what it was told.
pub const LEASE: &str = "#!/bin/sh
[ \"$1\" = bound ] || exit 0
ip addr add \"$ip/24\" dev \"$interface\"
ip route add default via \"$router\" dev \"$interface\" metric $((600 + $(cat /sys/class/net/$interface/ifindex)))
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_card_knows_every_network_by_its_name() {
        let networks = [NetworkSpec::symmetric("a", 1.0, 20), NetworkSpec::symmetric("b", 1.0, 20)];
        let air = Air::shared(&[1, 11], "--slot 100");
        let commands = air.join_commands(&networks);
        assert!(commands.starts_with("share_radio --slot 100\nfor name in a b; do\n"), "{commands}");
        assert_eq!(known_networks(&networks, &[9, 1]).matches("[[network]]").count(), 2);
        let cards = Air::cards(&[1, 11]).join_commands(&networks);
        assert_eq!(cards, "join_by_card wlan0 a a\njoin_by_card wlan1 b b\n");
        let radios = Radios::Cards { more: vec![("c", 0)] };
        let cards = Air { radios, ..Air::cards(&[1]) }.join_commands(&networks[..1]);
        assert_eq!(cards, "join_by_card wlan0 a a\njoin_by_card wlan1 c a\n");
    }
}
