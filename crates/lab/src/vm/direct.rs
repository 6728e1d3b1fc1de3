//! A device in the virtual machine that leads flows out directly: with plain routers that translate addresses, other
//! people's computers behind the same routers, and a script of what is measured.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use serde::de::DeserializeOwned;
use sim::NetworkSpec;

use super::air::{self, Air, Radios};
use super::measurement::{Programs, idle_part, tunnel_commands};
use super::topology::{SERVER_ADDRESS, Topology};
use super::{Job, Machine, MachineError, Outcome};
use crate::medium;

/// How the device uses its networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Without any0: by its routes, or as programs bind their sockets.
    Plain,
    /// `anabranch up` without a gateway.
    Direct,
    /// `anabranch up` with a gateway: all flows bonded.
    Bonded,
}

/// One boot: networks, how the device uses them, and what is measured.
#[derive(Clone, Debug)]
pub struct DirectJob {
    /// The device's networks. Each has a router of its own that translates addresses.
    pub networks: Vec<NetworkSpec>,
    /// How they reach the device by Wi-Fi; by cables without it.
    pub air: Option<Air>,
    /// How they are used.
    pub way: Way,
    /// Shell commands to run when networks are there, before any0 is: for what else is to be built. What they leave in
    /// `/tmp/more.toml` becomes the end of the device's configuration, what in the directory `/tmp/supplies` its batteries.
    pub set_up: String,
    /// Shell commands that measure, with what they write to `/results` as outcome. Beside those of [`Topology`] there are
    /// `traffic ARGUMENTS...` (the lab's traffic program on the device), `fetch NAME ARGUMENTS...` (its bulk flows, with the
    /// report in `/results/NAME`), `others ARGUMENTS...` (the same on [`OTHERS`]) and `fail TEXT`.
    pub script: String,
    /// Further programs of this machine that it uses.
    pub programs: Vec<PathBuf>,
    /// How long it may run, in the guest's time.
    pub length: Duration,
    /// Seeds all chance of the run.
    pub seed: u32,
}

/// What a run left.
#[derive(Clone, Debug)]
pub struct Answers {
    files: BTreeMap<String, Vec<u8>>,
    /// Part of the guest's processor time that was idle while the script ran.
    pub processor_idle: f64,
    /// What the air carried, if there was any.
    pub air: Option<medium::Report>,
}

impl DirectJob {
    /// With nothing to build but the networks, and half an hour of the guest's time.
    pub fn new(networks: Vec<NetworkSpec>, way: Way, script: impl Into<String>) -> Self {
        Self {
            networks,
            air: None,
            way,
            set_up: String::new(),
            script: script.into(),
            programs: Vec::new(),
            length: Duration::from_secs(1_800),
            seed: 1,
        }
    }

    /// Boots `machine` and measures.
    ///
    /// # Errors
    /// If a program is missing or a step in the guest fails; the message has what it and the daemons said.
    pub fn run(&self, machine: &Machine, programs: &Programs) -> Result<Answers, MachineError> {
        let mut job = Job::new(self.whole_script());
        if let Some(air) = &self.air {
            air.add_to(&self.networks, self.seed, &mut job)?;
        } else {
            let topology = Topology::new(&self.networks)?;
            job.files = topology.files;
            job.files.insert("/job/networks".into(), topology.functions.into_bytes());
        }
        job.programs.push(programs.lab.clone());
        job.programs.extend(self.programs.iter().cloned());
        let shares_radio = matches!(&self.air, Some(Air { radios: Radios::Shared { .. }, .. }));
        if self.way != Way::Plain || shares_radio {
            job.programs.push(programs.anabranch()?);
        }
        job.timeout = self.length + Duration::from_secs(120);
        job.wall_timeout = Duration::from_secs(1_800);
        job.seed = self.seed;
        Ok(Answers::of(machine.run(&job)?)?)
    }

    fn whole_script(&self) -> String {
        let start = match self.way {
            Way::Plain => String::new(),
            Way::Direct => DIRECT_COMMANDS.to_owned(),
            Way::Bonded => tunnel_commands(),
        };
        let build = self.air.as_ref().map_or_else(|| "build_networks\n".to_owned(), Air::build_commands);
        let join = self.air.as_ref().map(|air| air.join_commands(&self.networks)).unwrap_or_default();
        let end = if self.air.is_some() { air::END } else { "" };
        format!(
            "fail() {{ echo \"failed: $1\"; exit 1; }}
. /job/networks
traffic() {{ in_namespace device anabranch-lab traffic \"$@\"; }}
fetch() {{ name=$1; shift; traffic fetch {SERVER_ADDRESS}:9000 --json /results/$name \"$@\" || fail \"$name\"; }}
others() {{ in_namespace others anabranch-lab traffic \"$@\"; }}
{build}{translation}{set_up}
in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 &
in_namespace server anabranch-lab traffic echo {SERVER_ADDRESS}:9100 &
in_namespace server anabranch-lab traffic accept {SERVER_ADDRESS}:9200 &
sleep 1
{join}{start}
fetch warm --bytes 20000
traffic ping {SERVER_ADDRESS}:9100 --seconds 0.1 --json /results/warm-ping || fail 'the first ping'
sleep 2
head -1 /proc/stat >/results/before
start_changes
{script}
head -1 /proc/stat >/results/after
{end}",
            translation = translation(&self.networks),
            set_up = self.set_up,
            script = self.script,
        )
    }
}

impl Answers {
    /// What a script left that took the first line of `/proc/stat` into `/results/before` and `/results/after`.
    ///
    /// # Errors
    /// If it failed; the message has what it and the daemons said.
    pub fn of(outcome: Outcome) -> anyhow::Result<Self> {
        if outcome.exit != 0 {
            let mut said = String::new();
            for (name, text) in outcome.files.iter().filter(|(name, _)| name.ends_with(".log")) {
                let _ = write!(said, "\n{name}:\n{}", String::from_utf8_lossy(text));
            }
            return Err(anyhow!(
                "the run in the guest ended with {}: {}{said}",
                outcome.exit,
                outcome.output
            ));
        }
        let processor_idle = idle_part(&outcome)?;
        let air = outcome.files.get("air.json").map(|text| serde_json::from_slice(text)).transpose();
        let air = air.context("reading what the air carried")?;
        Ok(Self { files: outcome.files, processor_idle, air })
    }

    /// Reads a report in JSON.
    ///
    /// # Errors
    /// If the guest left none of this name, or another one.
    pub fn read<T: DeserializeOwned>(&self, name: &str) -> anyhow::Result<T> {
        let text = self.files.get(name).with_context(|| format!("the guest left no {name}"))?;
        serde_json::from_slice(text).with_context(|| format!("reading {name} of the guest"))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// If the guest left none of this name.
    pub fn text(&self, name: &str) -> anyhow::Result<String> {
        let text = self.files.get(name).with_context(|| format!("the guest left no {name}"))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// Whether new connections got their network by BPF, not by nftables; `None` without direct mode.
    pub fn has_fast_path(&self) -> Option<bool> {
        let said = String::from_utf8_lossy(self.files.get("device.log")?);
        Some(!said.contains(WITHOUT_FAST_PATH))
    }
}

/// Commands after which another computer, [`OTHERS`], shares the way of `network` (the device's `number`th, counted from 1)
/// behind the device's own link to the router.
pub fn others_on(network: &NetworkSpec, number: u32) -> String {
    let name = network.name;
    format!(
        "ip netns add others; prepare others
join near-{name} to-others others net 10.67.{number}.1 10.67.{number}.2
ip -n others route add default via 10.67.{number}.1
ip -n far-{name} route add 10.67.{number}.0/24 via 10.65.{number}.1
"
    )
}

/// Each router hides its network behind its own address.
fn translation(networks: &[NetworkSpec]) -> String {
    let mut text = String::new();
    for network in networks {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "in_namespace far-{} nft 'table ip nat {{ chain out {{ type nat hook postrouting priority srcnat; \
             oifname \"to-core\" masquerade; }}; }}' || fail 'address translation'",
            network.name
        );
    }
    text
}

/// What the daemon says where the kernel does not take the BPF programs.
const WITHOUT_FAST_PATH: &str = "nftables alone";

/// The namespace of other people's computer.
pub const OTHERS: &str = "others";

/// Brings any0 up without a gateway. `ip netns exec` hides the control groups, which a real machine has.
const DIRECT_COMMANDS: &str = r#"export RUST_LOG="${RUST_LOG:-info}"
mkdir -p /tmp/device
printf '[device]\ngateway = "none"\nprobe = "off"\n' >/tmp/device/config.toml
[ -f /tmp/more.toml ] && cat /tmp/more.toml >>/tmp/device/config.toml
in_namespace device sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup
[ -d /tmp/supplies ] && mount -o bind /tmp/supplies /sys/class/power_supply
exec anabranch up --foreground --state /tmp/device' >/results/device.log 2>&1 &
is_dealing() { in_namespace device nft list table inet anabranch_direct_any0 >/dev/null 2>&1; }
for _ in $(seq 200); do is_dealing && break; sleep 0.1; done
is_dealing || fail 'up'
sleep 3
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_network_has_its_router() {
        let networks = vec![NetworkSpec::symmetric("a", 10.0, 20), NetworkSpec::symmetric("b", 5.0, 40)];
        let script = DirectJob::new(networks.clone(), Way::Direct, "fetch flows").whole_script();
        for network in &networks {
            assert!(script.contains(&format!("far-{} nft", network.name)), "{script}");
        }
        let position = |text: &str| script.find(text).unwrap();
        assert!(position("anabranch up") < position("fetch warm"));
        assert!(position("start_changes") < position("fetch flows"));
        let plain = DirectJob::new(networks, Way::Plain, "").whole_script();
        assert!(!plain.contains("anabranch up"));
    }
}
