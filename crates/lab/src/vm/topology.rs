//! Networks inside the guest, as namespaces joined by shaped links.
//!
//! ```text
//!            /- near-NET - far-NET -\
//! device ---+                        +--- core ---- gateway (203.0.113.2)
//!            \- near-NET - far-NET -/         \---- server  (198.51.100.2)
//! ```
//!
//! The device sees one interface per network, called like it, with an address, a default route and no other set-up. The
//! near end shapes the rate upwards and the delay downwards, the far end the rate downwards and the delay upwards.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Result, ensure};
use sim::{LinkSpec, NetworkSpec};

use super::shaping::{Changes, Shaping};

/// Where the server answers.
pub const SERVER_ADDRESS: &str = "198.51.100.2";

/// Where the gateway answers.
pub const GATEWAY_ADDRESS: &str = "203.0.113.2";

/// Shell functions that build and change a set of networks.
#[derive(Clone, Debug)]
pub struct Topology {
    /// To be read by the job's shell (`. FILE`). Defines `build_networks`, `start_changes` (the schedules begin now),
    /// `silence NETWORK`, `restore NETWORK` and `in_namespace NAMESPACE COMMAND...`.
    pub functions: String,
    /// Files that the functions need, by their path in the guest.
    pub files: BTreeMap<String, Vec<u8>>,
}

impl Topology {
    /// Prepares `networks`, at most 200.
    ///
    /// # Errors
    /// If a name is too long for an interface or a link cannot be shaped by this bed.
    pub fn new(networks: &[NetworkSpec]) -> Result<Self> {
        ensure!(networks.len() <= 200, "{} networks; at most 200", networks.len());
        let mut topology = Self { functions: String::new(), files: BTreeMap::new() };
        let mut build = BUILD_CORE.to_owned();
        let mut start = String::new();
        let mut silence = String::new();
        let mut restore = String::new();
        for (network, number) in networks.iter().zip(1..) {
            let name = network.name;
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            ensure!(plain && (1..=15).contains(&name.len()), "{name:?} cannot be the name of an interface");
            let up = Shaping::new(&network.up, "to-far", "to-core")?;
            let down = Shaping::new(&network.down, "to-near", "to-device")?;
            build.push_str(&network_commands(name, number));
            for (end, commands) in
                [("near", &up.rate), ("near", &down.delay), ("far", &down.rate), ("far", &up.delay)]
            {
                for command in commands {
                    // Writing to a string cannot fail.
                    let _ = writeln!(build, "    in_namespace {end}-{name} tc {command}");
                }
            }
            let schedules = [
                ("near", "up-rate", &up.rate_changes),
                ("near", "down-delay", &down.delay_changes),
                ("far", "down-rate", &down.rate_changes),
                ("far", "up-delay", &up.delay_changes),
            ];
            for (end, stage, changes) in schedules {
                topology.add_changes(&mut start, &format!("{end}-{name}"), stage, changes);
            }
            topology.add_carrier_changes(&mut start, name, &down);
            let _ = writeln!(silence, "    {name}) {} ;;", outage_commands(name, network, true)?);
            let _ = writeln!(restore, "    {name}) {} ;;", outage_commands(name, network, false)?);
        }
        let _ = write!(
            topology.functions,
            "in_namespace() {{ namespace=$1; shift; ip netns exec \"$namespace\" \"$@\"; }}\n\
             build_networks() {{\n{build}}}\n\
             start_changes() {{\n    true\n{start}}}\n\
             silence() {{\n    case \"$1\" in\n{silence}    esac\n}}\n\
             restore() {{\n    case \"$1\" in\n{restore}    esac\n}}\n"
        );
        Ok(topology)
    }

    /// Adds the file of a schedule, and to `start` the pipe that carries it out.
    fn add_changes(&mut self, start: &mut String, namespace: &str, stage: &str, changes: &Changes) {
        if changes.lines.is_empty() {
            return;
        }
        let text = paced(changes.lines.iter().map(|(at, line)| (*at, line.as_str())));
        self.add_schedule(
            start,
            &format!("{namespace}-{stage}"),
            text,
            changes.period,
            &format!("in_namespace {namespace} tc -batch -"),
        );
    }

    /// The device sees its interface lose and regain its carrier when the other end goes down and up.
    fn add_carrier_changes(&mut self, start: &mut String, name: &str, shaping: &Shaping) {
        if shaping.carrier_changes.is_empty() {
            return;
        }
        let lines = shaping.carrier_changes.iter().map(|(at, up)| {
            (*at, if *up { "link set dev to-device up" } else { "link set dev to-device down" })
        });
        let command = format!("ip -n near-{name} -batch -");
        self.add_schedule(
            start,
            &format!("near-{name}-carrier"),
            paced(lines),
            shaping.carrier_period,
            &command,
        );
    }

    fn add_schedule(
        &mut self,
        start: &mut String,
        name: &str,
        text: String,
        period: Option<Duration>,
        command: &str,
    ) {
        let file = format!("/job/changes/{name}");
        let period = period.map_or(String::new(), |period| format!(" --period-ms {}", period.as_millis()));
        let _ = writeln!(start, "    anabranch-lab traffic pace {file}{period} | {command} &");
        self.files.insert(file, text.into_bytes());
    }
}

/// Commands for policy routing and kernel MPTCP over all networks of the device, as a phone or router would set them.
pub fn mptcp_commands(networks: &[NetworkSpec]) -> String {
    let mut commands = String::from("ip -n device mptcp limits set subflow 4 add_addr_accepted 4\n");
    commands.push_str("ip -n server mptcp limits set subflow 4 add_addr_accepted 4\n");
    for (network, number) in networks.iter().zip(1..) {
        let _ = write!(
            commands,
            "ip -n device rule add from 10.64.{number}.2 lookup {table}\n\
             ip -n device route add default via 10.64.{number}.1 dev {name} table {table}\n\
             ip -n device mptcp endpoint add 10.64.{number}.2 dev {name} subflow\n",
            table = 100 + number,
            name = network.name,
        );
    }
    commands
}

fn network_commands(name: &str, number: u32) -> String {
    format!(
        r"    ip netns add near-{name}; ip netns add far-{name}
    join device {name} near-{name} to-device 10.64.{number}.2 10.64.{number}.1
    join near-{name} to-far far-{name} to-near 10.65.{number}.1 10.65.{number}.2
    join far-{name} to-core core far-{name} 10.66.{number}.1 10.66.{number}.2
    prepare near-{name}; prepare far-{name}
    ip -n device route add default via 10.64.{number}.1 dev {name} metric {metric}
    ip -n near-{name} route add default via 10.65.{number}.2
    ip -n far-{name} route add 10.64.{number}.0/24 via 10.65.{number}.1
    ip -n far-{name} route add default via 10.66.{number}.2
    ip -n core route add 10.64.{number}.0/24 via 10.66.{number}.1
",
        metric = 100 + number,
    )
}

/// `tc` commands after which a network delivers nothing in either direction, or delivers as at its start again.
fn outage_commands(name: &str, network: &NetworkSpec, silent: bool) -> Result<String> {
    let command = |link: &LinkSpec, interface: &str| -> Result<String> {
        let mut link = LinkSpec { schedule: Vec::new(), ..link.clone() };
        if silent {
            link.loss = sim::Loss::Random(1.0);
        }
        let shaping = Shaping::new(&link, "unused", interface)?;
        Ok(shaping.delay.join(" ").replacen("qdisc add", "qdisc change", 1))
    };
    Ok(format!(
        "in_namespace near-{name} tc {}; in_namespace far-{name} tc {}",
        command(&network.down, "to-device")?,
        command(&network.up, "to-core")?
    ))
}

fn paced<'a>(lines: impl Iterator<Item = (Duration, &'a str)>) -> String {
    let mut text = String::new();
    for (at, line) in lines {
        let _ = writeln!(text, "{} {line}", at.as_millis());
    }
    text
}

/// `join NS IF NS IF ADDRESS ADDRESS` makes a veth pair. One segment per buffer: queues must see packets, not the
/// 64 KiB that offloads would hand them. Socket buffers hold a bandwidth-delay product of 50 Mbit/s and 640 ms.
const BUILD_CORE: &str = r#"    join() {
        ip link add name "$2" netns "$1" gso_max_segs 1 type veth peer name "$4" netns "$3" gso_max_segs 1
        ip -n "$1" addr add "$5/24" dev "$2"; ip -n "$1" link set dev "$2" up
        ip -n "$3" addr add "$6/24" dev "$4"; ip -n "$3" link set dev "$4" up
    }
    prepare() {
        ip -n "$1" link set lo up
        in_namespace "$1" sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
            net.ipv4.conf.default.rp_filter=0 net.ipv4.tcp_no_metrics_save=1 \
            net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 131072 16777216' >/dev/null
    }
    sysctl -q -w net.core.rmem_max=16777216 net.core.wmem_max=16777216 >/dev/null
    for namespace in device core gateway server; do ip netns add $namespace; prepare $namespace; done
    in_namespace device sysctl -q -w net.ipv4.ip_forward=0 >/dev/null
    join core gateway gateway uplink 203.0.113.1 203.0.113.2
    join core server server uplink 198.51.100.1 198.51.100.2
    ip -n gateway route add default via 203.0.113.1
    ip -n server route add default via 198.51.100.1
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_can_be_built() {
        for scenario in sim::scenario::scenarios(1) {
            let topology = Topology::new(&scenario.networks).unwrap();
            for network in &scenario.networks {
                assert!(
                    topology.functions.contains(&format!("join device {} ", network.name)),
                    "{}",
                    scenario.name
                );
            }
            let scheduled = scenario.networks.iter().any(|network| !network.down.schedule.is_empty());
            let traced = scenario
                .networks
                .iter()
                .any(|network| matches!(network.down.capacity, sim::Capacity::Trace(_)));
            assert_eq!(!topology.files.is_empty(), scheduled || traced, "{}", scenario.name);
        }
    }

    #[test]
    fn a_name_must_fit_an_interface() {
        let network = |name| NetworkSpec::symmetric(name, 10.0, 20);
        assert!(Topology::new(&[network("fifteen-letters")]).is_ok());
        for name in ["", "a; reboot", "sixteen-letters-"] {
            assert!(Topology::new(&[network(name)]).is_err(), "{name:?}");
        }
    }
}
