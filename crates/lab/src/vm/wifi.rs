//! Wi-Fi in the guest: access points of unmodified hostapd and stations on simulated radios (`mac80211_hwsim`).
//!
//! ```text
//! device            ap-NAME                near-NAME                     far-NAME
//! radios  ~ air ~  radio -- br0 -- NAME === to-device --- to-far === to-near --- to-core --- core --- server
//!                 hostapd                   DHCP              shaped back-haul
//! ```
//!
//! A network's back-haul is a link of [`Topology`], whose end at the device lies in the access points' namespace instead:
//! all access points of a network are ports of one bridge, as those of an extended service set are. Each has a radio of its own;
//! hostapd and the kernel's part of the access point are those of Debian.
//!
//! Without a medium in user space, each frame arrives at once at every radio on the same channel, and none is lost.

use std::fmt::Write as _;

use anyhow::{Context, ensure};
use sim::NetworkSpec;
use units::MacAddress;

use super::topology::Topology;
use super::{Job, MachineError, program};

/// Networks with their access points, and who else has radios.
#[derive(Clone, Debug)]
pub struct Wifi {
    /// The networks, at most 99.
    pub networks: Vec<WifiNetwork>,
    /// Namespaces with the number of their radios, called `wlan0` and so on there. A namespace that is not `device` is made.
    pub stations: Vec<(&'static str, u32)>,
    /// On how many channels a radio can be at a time by itself. With 1 it cannot.
    pub radio_channels: u32,
    /// Further files for the guest.
    pub files: Vec<(&'static str, Vec<u8>)>,
}

/// A way to the Internet behind one or more access points.
#[derive(Clone, Debug)]
pub struct WifiNetwork {
    /// The back-haul; its name is the network's here.
    pub link: NetworkSpec,
    /// Its access points.
    pub points: Vec<AccessPoint>,
}

/// An access point.
#[derive(Clone, Debug)]
pub struct AccessPoint {
    /// The network's name on the air.
    pub ssid: String,
    /// Its channel: 1 to 11 in the 2.4 GHz band; the guest has no country, so none in other bands.
    pub channel: u8,
    /// Who may join.
    pub security: Security,
    /// It sends beacons without the name.
    pub hidden: bool,
    /// Every how many beacons broadcasts are sent (DTIM), 1 to 255.
    pub broadcast_period: u8,
    /// Time from beacon to beacon in units of 1,024 us. All simulated radios count these from one clock, so access points of one channel need different
    /// ones, or their beacons meet every time.
    pub beacon_interval: u16,
}

/// How an access point is protected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Security {
    /// Not at all.
    Open,
    /// WPA2 with a passphrase of 8 to 63 characters, CCMP.
    Wpa2 {
        /// The passphrase.
        passphrase: String,
        /// Whether management frames are protected.
        protection: Protection,
    },
    /// WPA3 with a passphrase (SAE) and nothing older; management frames are protected.
    Wpa3 {
        /// The passphrase, of 8 to 63 characters.
        passphrase: String,
    },
    /// Encrypted without a passphrase (OWE, RFC 8110); management frames are protected.
    Opportunistic,
    /// WPA2 with a login for everybody (802.1X), by hostapd's own server. In the guest there are `/job/server.pem`, `/job/server.key`, `/job/authority.pem`
    /// and `/job/users`, as [`Wifi::files`] brings them.
    Login,
}

/// Whether management frames are protected (IEEE 802.11w).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Never.
    Off,
    /// For stations that can.
    Offered,
    /// Stations that cannot are refused.
    Required,
}

impl AccessPoint {
    /// An open access point that shows its name.
    pub fn open(ssid: &str, channel: u8) -> Self {
        Self {
            ssid: ssid.into(),
            channel,
            security: Security::Open,
            hidden: false,
            broadcast_period: 2,
            beacon_interval: 100,
        }
    }

    /// One with WPA2, without protection of management frames.
    pub fn wpa2(ssid: &str, channel: u8, passphrase: &str) -> Self {
        let security = Security::Wpa2 { passphrase: passphrase.into(), protection: Protection::Off };
        Self { security, ..Self::open(ssid, channel) }
    }
}

impl Wifi {
    /// `networks` and a device with one radio.
    pub fn new(networks: Vec<WifiNetwork>) -> Self {
        Self { networks, stations: vec![("device", 1)], radio_channels: 1, files: Vec::new() }
    }

    /// The address of a network's access point: both counted from 0.
    pub fn bssid(&self, network: usize, point: usize) -> MacAddress {
        let before: usize = self.networks.iter().take(network).map(|network| network.points.len()).sum();
        radio_address(before + point)
    }

    /// The address of the first radio of `namespace`; `None` if it has none.
    pub fn station_address(&self, namespace: &str) -> Option<MacAddress> {
        let mut number = self.points();
        for (name, radios) in &self.stations {
            if *name == namespace {
                return (*radios > 0).then(|| radio_address(number));
            }
            number += *radios as usize;
        }
        None
    }

    fn points(&self) -> usize {
        self.networks.iter().map(|network| network.points.len()).sum()
    }

    fn radios(&self) -> usize {
        self.points() + self.stations.iter().map(|(_, radios)| *radios as usize).sum::<usize>()
    }

    /// Adds all that the guest needs to `job`. Its script begins with `. /job/networks; . /job/wifi; build_networks; build_air`,
    /// after which every access point sends beacons.
    ///
    /// Beside those of [`Topology`] the shell functions are `point_off NETWORK NUMBER` and `point_on NETWORK NUMBER`, numbers counted
    /// from 0, and `point NETWORK NUMBER COMMAND...` for hostapd_cli (`deauthenticate ADDRESS`, `chan_switch 5 2437`).
    ///
    /// # Errors
    /// [`MachineError::Missing`] if hostapd or iw is not installed; otherwise if the description makes no sense.
    pub fn add_to(&self, job: &mut Job) -> Result<(), MachineError> {
        self.check()?;
        for (name, package) in [("hostapd", "hostapd"), ("hostapd_cli", "hostapd"), ("iw", "iw")] {
            job.programs.push(program(name, package)?);
        }
        let links: Vec<NetworkSpec> = self.networks.iter().map(|network| network.link.clone()).collect();
        let topology = Topology::new(&links)?;
        job.files.extend(topology.files);
        job.files.insert("/job/networks".into(), topology.functions.into_bytes());
        job.files.insert("/job/wifi".into(), self.functions().into_bytes());
        for (number, network) in (1..).zip(&self.networks) {
            let name = network.link.name;
            job.files.insert(format!("/job/air/{name}.dhcp"), address_server(name, number).into_bytes());
            for (at, point) in network.points.iter().enumerate() {
                job.files.insert(configuration_file(name, at), configuration(name, point, at).into_bytes());
            }
        }
        if self
            .networks
            .iter()
            .flat_map(|network| &network.points)
            .any(|point| point.security == Security::Login)
        {
            // Without these old algorithms neither hostapd nor wpa_supplicant begins with TLS.
            let place = format!("/usr/lib/{}-linux-gnu/ossl-modules/legacy.so", std::env::consts::ARCH);
            let module =
                std::fs::read(&place).with_context(|| format!("reading {place} (package libssl3)"))?;
            job.files.insert(place, module);
        }
        job.files.extend(self.files.iter().map(|(path, bytes)| ((*path).to_owned(), bytes.clone())));
        job.modules.extend(CRYPTOGRAPHY.map(str::to_owned));
        job.modules.push(format!("mac80211_hwsim radios={} channels={}", self.radios(), self.radio_channels));
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        ensure!(self.networks.len() <= 99 && self.radios() <= 99, "at most 99 networks and radios");
        for network in &self.networks {
            let name = network.link.name;
            ensure!(name.len() <= 12, "{name} is too long for the name of a network with access points");
            for point in &network.points {
                ensure!((1..=32).contains(&point.ssid.len()), "{:?} is no name of a network", point.ssid);
                ensure!((1..=11).contains(&point.channel), "channel {} is not free here", point.channel);
                ensure!(point.broadcast_period > 0, "broadcasts are sent every 1 to 255 beacons");
                let interval = point.beacon_interval;
                ensure!((15..=10_000).contains(&interval), "beacons are sent every 15 to 10,000 units");
                if let Security::Wpa2 { passphrase, .. } | Security::Wpa3 { passphrase } = &point.security {
                    let plain = passphrase.bytes().all(|byte| (b' '..=b'~').contains(&byte));
                    ensure!(
                        plain && (8..=63).contains(&passphrase.len()),
                        "a passphrase has 8 to 63 characters"
                    );
                }
            }
        }
        Ok(())
    }

    /// Shell functions. Radios are counted as the kernel does: first those of the access points, in order.
    fn functions(&self) -> String {
        let mut build = String::new();
        let mut radio = 0;
        for network in &self.networks {
            let name = network.link.name;
            // Writing to a string cannot fail.
            let _ = writeln!(build, "    bridge {name}");
            for at in 0..network.points.len() {
                let _ = writeln!(build, "    give_radio {radio} ap-{name} wlan{at}; point_on {name} {at}");
                radio += 1;
            }
            let _ = writeln!(
                build,
                "    in_namespace near-{name} udhcpd -f -a 1 /job/air/{name}.dhcp >/dev/null 2>&1 &"
            );
        }
        for (namespace, radios) in &self.stations {
            if *namespace != "device" {
                let _ = writeln!(build, "    ip netns add {namespace}; prepare {namespace}");
            }
            for at in 0..*radios {
                let _ = writeln!(build, "    give_radio {radio} {namespace} wlan{at}");
                radio += 1;
            }
        }
        format!("{FUNCTIONS}build_air() {{\n{build}    wait_for_points\n}}\n")
    }
}

/// The address that `mac80211_hwsim` gives its radios.
fn radio_address(number: usize) -> MacAddress {
    let [.., high, low] = number.to_be_bytes();
    MacAddress([2, 0, 0, high, low, 0])
}

fn configuration_file(network: &str, point: usize) -> String {
    format!("/job/air/{network}-{point}.conf")
}

/// The configuration of hostapd for the `at`th access point of `network`.
fn configuration(network: &str, point: &AccessPoint, at: usize) -> String {
    let name: String = point.ssid.bytes().map(|byte| format!("{byte:02x}")).collect();
    let mut text = format!(
        "interface=wlan{at}\nbridge=br0\ndriver=nl80211\nctrl_interface=/run/points-{network}\nssid2={name}\nhw_mode=g\nchannel={}\n\
         beacon_int={}\ndtim_period={}\nignore_broadcast_ssid={}\nlogger_stdout=-1\nlogger_stdout_level=1\n",
        point.channel,
        point.beacon_interval,
        point.broadcast_period,
        u8::from(point.hidden),
    );
    let (passphrase, keys, number) = match &point.security {
        Security::Open => return text,
        Security::Login => {
            text.push_str(
                "ieee8021x=1\neap_server=1\neap_user_file=/job/users\nca_cert=/job/authority.pem\nserver_cert=/job/server.pem\n\
                 private_key=/job/server.key\n",
            );
            (None, "WPA-EAP", 1)
        }
        Security::Wpa2 { passphrase, protection } => match protection {
            Protection::Off => (Some(passphrase), "WPA-PSK", 0),
            Protection::Offered => (Some(passphrase), "WPA-PSK WPA-PSK-SHA256", 1),
            Protection::Required => (Some(passphrase), "WPA-PSK-SHA256", 2),
        },
        Security::Wpa3 { passphrase } => (Some(passphrase), "SAE", 2),
        Security::Opportunistic => (None, "OWE", 2),
    };
    if let Some(passphrase) = passphrase {
        text.push_str(&format!("wpa_passphrase={passphrase}\n"));
    }
    text.push_str(&format!("wpa=2\nwpa_key_mgmt={keys}\nrsn_pairwise=CCMP\nieee80211w={number}\n"));
    text
}

/// The configuration of busybox's DHCP server for the network counted from 1. Its probing of addresses is off (`-a 1`: for 1 ms). It names the
/// router as name server, where none is: what a lease says is to be seen.
fn address_server(name: &str, number: u32) -> String {
    format!(
        "start 10.64.{number}.100\nend 10.64.{number}.199\ninterface to-device\nmax_leases 100\nauto_time 0\n\
         lease_file /run/{name}.leases\npidfile /run/{name}.dhcp.pid\noption subnet 255.255.255.0\n\
         option router 10.64.{number}.1\noption dns 10.64.{number}.1\noption lease 3600\n"
    )
}

/// `bridge NETWORK` makes the access points' namespace, `give_radio NUMBER NAMESPACE INTERFACE` moves a radio.
///
/// A bridge asks for no port's vote before it forwards (no STP), and learns nothing of multicast groups.
const FUNCTIONS: &str = r#"bridge() {
    ip netns add "ap-$1"; ip -n "ap-$1" link set lo up
    ip -n device link set dev "$1" netns "ap-$1"
    ip -n "ap-$1" link add name br0 type bridge mcast_snooping 0
    ip -n "ap-$1" link set dev "$1" master br0
    ip -n "ap-$1" link set dev "$1" up
    ip -n "ap-$1" link set dev br0 up
}
give_radio() {
    old=$(cd "/sys/class/ieee80211/phy$1/device/net" && echo *)
    iw phy "phy$1" set netns name "$2"
    [ "$old" = "$3" ] || ip -n "$2" link set dev "$old" name "$3"
}
point_on() {
    # Without a shell between, the process is hostapd's own.
    ip netns exec "ap-$1" hostapd "/job/air/$1-$2.conf" >>"/results/point-$1-$2.log" 2>&1 &
    echo $! >"/run/point-$1-$2.pid"
}
point_off() {
    kill -KILL "$(cat "/run/point-$1-$2.pid")"
    # The kernel would go on sending beacons.
    ip -n "ap-$1" link set dev "wlan$2" down
}
point() {
    network=$1; number=$2; shift 2
    in_namespace "ap-$network" hostapd_cli -p "/run/points-$network" -i "wlan$number" "$@"
}
wait_for_points() {
    for log in /results/point-*.log; do
        [ -e "$log" ] || continue
        for _ in $(seq 300); do grep -q AP-ENABLED "$log" && break; sleep 0.1; done
        grep -q AP-ENABLED "$log" || { echo "failed: no access point: $log"; cat "$log"; exit 1; }
    done
}
"#;

/// Loaded for CCMP and the protection of management frames, since nothing loads by itself.
const CRYPTOGRAPHY: [&str; 9] =
    ["aes_generic", "ctr", "ccm", "cmac", "gcm", "ghash_generic", "libarc4", "michael_mic", "sha256_generic"];

#[cfg(test)]
mod tests {
    use super::*;

    fn network(name: &'static str, points: Vec<AccessPoint>) -> WifiNetwork {
        WifiNetwork { link: NetworkSpec::symmetric(name, 10.0, 20), points }
    }

    #[test]
    fn radios_are_dealt_out_in_order() {
        let mut wifi = Wifi::new(vec![
            network("cafe", vec![AccessPoint::open("cafe", 1), AccessPoint::open("cafe", 11)]),
            network("home", vec![AccessPoint::wpa2("home", 6, "correct horse")]),
        ]);
        wifi.stations.push(("other", 2));
        assert_eq!(wifi.bssid(1, 0).to_string(), "02:00:00:00:02:00");
        assert_eq!(wifi.station_address("device"), Some(MacAddress([2, 0, 0, 0, 3, 0])));
        assert_eq!(wifi.station_address("other"), Some(MacAddress([2, 0, 0, 0, 4, 0])));
        assert_eq!(wifi.station_address("nobody"), None);
        let functions = wifi.functions();
        for line in ["give_radio 1 ap-cafe wlan1", "give_radio 3 device wlan0", "give_radio 5 other wlan1"] {
            assert!(functions.contains(line), "{functions}");
        }
        assert_eq!(wifi.radios(), 6);
    }

    #[test]
    fn a_point_is_configured_as_described() {
        let mut point = AccessPoint::wpa2("caf\u{e9}", 6, "correct horse");
        point.hidden = true;
        point.security =
            Security::Wpa2 { passphrase: "correct horse".into(), protection: Protection::Required };
        let text = configuration("cafe", &point, 0);
        for line in ["ssid2=636166c3a9\n", "channel=6\n", "ignore_broadcast_ssid=1\n", "ieee80211w=2\n"] {
            assert!(text.contains(line), "{text}");
        }
        assert!(!configuration("x", &AccessPoint::open("x", 1), 0).contains("wpa"));
        point.security = Security::Opportunistic;
        let text = configuration("cafe", &point, 0);
        assert!(text.contains("wpa_key_mgmt=OWE\n") && !text.contains("passphrase"), "{text}");
    }

    #[test]
    fn what_hostapd_would_refuse_is_refused_before_the_boot() {
        let point = AccessPoint::open("cafe", 1);
        let wrong = [
            AccessPoint { ssid: String::new(), ..point.clone() },
            AccessPoint { channel: 13, ..point.clone() },
            AccessPoint { broadcast_period: 0, ..point.clone() },
            AccessPoint { beacon_interval: 14, ..point.clone() },
            AccessPoint::wpa2("cafe", 1, "short"),
            AccessPoint::wpa2("cafe", 1, "two\nlines of text"),
        ];
        for point in wrong {
            assert!(Wifi::new(vec![network("cafe", vec![point.clone()])]).check().is_err(), "{point:?}");
        }
        assert!(Wifi::new(vec![network("cafe", vec![point.clone()])]).check().is_ok());
        assert!(Wifi::new(vec![network("a-long-name-13", vec![point])]).check().is_err());
    }
}
