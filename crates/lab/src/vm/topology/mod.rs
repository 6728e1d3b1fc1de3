//! Networks inside the guest, as namespaces joined by shaped links.
//!
//! ```text
//!            /- link -\
//! device ---+          +--- core ---- gateway (203.0.113.2)
//!            \- link -/         \---- server  (198.51.100.2)
//! ```
//!
//! The device sees one interface per network, called like it, with an address, a default route and no other set-up. A
//! link is two namespaces with queueing disciplines of the kernel (`kernel_link`) or, if it replays a delivery trace,
//! one namespace with the lab's emulator (`emulated_link`).

mod emulated_link;
mod kernel_link;
mod shaping;

pub(crate) use shaping::rate_command;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Result, ensure};
use sim::{Capacity, NetworkSpec};

/// Where the server answers.
pub const SERVER_ADDRESS: &str = "198.51.100.2";

/// Where the gateway answers.
pub const GATEWAY_ADDRESS: &str = "203.0.113.2";

/// Shell functions that build and change a set of networks.
#[derive(Clone, Debug)]
pub struct Topology {
    /// To be read by the job's shell (`. FILE`); needs `anabranch-lab` among the job's programs. Defines
    /// `build_networks`, `start_changes` (schedules and traces begin now), `silence NETWORK`, `restore NETWORK` and
    /// `in_namespace NAMESPACE COMMAND...`.
    pub functions: String,
    /// Files that the functions need, by their path in the guest.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// The shell commands of one network's link.
#[derive(Debug, Default)]
struct LinkScript {
    build: String,
    /// Starts its schedules or its trace.
    start: String,
    silence: String,
    restore: String,
    files: BTreeMap<String, Vec<u8>>,
}

impl Topology {
    /// Prepares `networks`, at most 200.
    ///
    /// # Errors
    /// If a name is too long for an interface or a link cannot be shaped by this bed.
    pub fn new(networks: &[NetworkSpec]) -> Result<Self> {
        ensure!(networks.len() <= 200, "{} networks; at most 200", networks.len());
        let mut whole = LinkScript { build: BUILD_CORE.to_owned(), ..LinkScript::default() };
        for (network, number) in networks.iter().zip(1..) {
            let name = network.name;
            let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            ensure!(plain && (1..=15).contains(&name.len()), "{name:?} cannot be the name of an interface");
            let is_trace = |capacity: &Capacity| matches!(capacity, Capacity::Trace(_));
            let link = if is_trace(&network.up.capacity) || is_trace(&network.down.capacity) {
                emulated_link::script(network, number)?
            } else {
                kernel_link::script(network, number)?
            };
            whole.build.push_str(&link.build);
            whole.start.push_str(&link.start);
            // Writing to a string cannot fail.
            let _ = writeln!(whole.silence, "    {name})\n{}    ;;", link.silence);
            let _ = writeln!(whole.restore, "    {name})\n{}    ;;", link.restore);
            whole.files.extend(link.files);
        }
        let LinkScript { build, start, silence, restore, files } = whole;
        let functions = format!(
            "in_namespace() {{ namespace=$1; shift; ip netns exec \"$namespace\" \"$@\"; }}\n\
             build_networks() {{\n{build}}}\n\
             start_changes() {{\n    true\n{start}}}\n\
             silence() {{\n    case \"$1\" in\n{silence}    esac\n}}\n\
             restore() {{\n    case \"$1\" in\n{restore}    esac\n}}\n"
        );
        Ok(Self { functions, files })
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

/// `join NS IF NS IF [ADDRESS ADDRESS]` makes a veth pair. One segment per buffer: queues must see packets, not the
/// 64 KiB that offloads would hand them. Socket buffers hold a bandwidth-delay product of 50 Mbit/s and 640 ms.
const BUILD_CORE: &str = r#"    join() {
        ip link add name "$2" netns "$1" gso_max_segs 1 type veth peer name "$4" netns "$3" gso_max_segs 1
        [ -z "$5" ] || ip -n "$1" addr add "$5/24" dev "$2"
        [ -z "$6" ] || ip -n "$3" addr add "$6/24" dev "$4"
        ip -n "$1" link set dev "$2" up
        ip -n "$3" link set dev "$4" up
    }
    prepare() {
        ip -n "$1" link set lo up
        in_namespace "$1" sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 \
            net.ipv4.conf.default.rp_filter=0 net.ipv4.tcp_no_metrics_save=1 \
            net.ipv4.tcp_rmem='4096 131072 16777216' net.ipv4.tcp_wmem='4096 65536 16777216' >/dev/null
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
                let joined = format!("join device {} ", network.name);
                assert!(topology.functions.contains(&joined), "{}", scenario.name);
            }
            let needs_files = scenario.networks.iter().any(|network| {
                !network.down.schedule.is_empty() || matches!(network.down.capacity, Capacity::Trace(_))
            });
            assert_eq!(!topology.files.is_empty(), needs_files, "{}", scenario.name);
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
