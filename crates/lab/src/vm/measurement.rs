//! One measured run in the virtual machine: a set of networks, a way to use them, a bulk flow and perhaps a ping.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sim::NetworkSpec;

use super::topology::{GATEWAY_ADDRESS, SERVER_ADDRESS, Topology, mptcp_commands};
use super::{Job, Machine, MachineError, Outcome};
use crate::traffic::{Congestion, PingReport, Report, Transport};

/// How the device uses its networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Arrangement {
    /// The first network without any0.
    Plain,
    /// Kernel MPTCP over all networks.
    Mptcp,
    /// `anabranch` over all networks, with default settings.
    Tunnel,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Measurement {
    /// The device's networks; one of them to measure a network alone.
    pub networks: Vec<NetworkSpec>,
    /// How they are used.
    pub arrangement: Arrangement,
    /// What the flows speak; TCP becomes MPTCP in that arrangement.
    pub transport: Transport,
    /// Congestion control of the sender.
    pub congestion: Congestion,
    /// Number of flows, all at once.
    pub flows: u32,
    /// Length of the measured window.
    pub length: Duration,
    /// End sooner, after this many bytes a flow.
    pub bytes: Option<u64>,
    /// The device sends.
    pub upload: bool,
    /// Measure round trips of small UDP packets for 5 s before the flows and beside them.
    pub ping: bool,
    /// Shell commands to run beside the flows from their start on, and waited for; may use the functions of
    /// [`Topology`].
    pub beside: String,
    /// Programs of this machine that those commands use, beside `ip`, `tc`, `nft` and busybox's commands.
    pub beside_programs: Vec<PathBuf>,
    /// Seeds all chance of the run.
    pub seed: u32,
}

/// The programs a measurement runs in the guest.
#[derive(Clone, Debug)]
pub struct Programs {
    /// `anabranch-lab`.
    pub lab: PathBuf,
    /// `anabranch`; for [`Arrangement::Tunnel`].
    pub anabranch: Option<PathBuf>,
}

/// What came of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What the receiving side saw.
    pub report: Report,
    /// Pings before the flows.
    pub idle_ping: Option<PingReport>,
    /// Pings beside the flows.
    pub loaded_ping: Option<PingReport>,
    /// Part of the guest's processor time that was idle during the flows; below 0.2 the processor may be what was
    /// measured.
    pub guest_idle: f64,
    /// Time the whole run took on this machine, in seconds.
    pub wall_seconds: f64,
    /// What the daemons logged, by file name.
    #[serde(skip)]
    pub logs: Vec<(String, String)>,
}

impl Programs {
    /// The running program, if it is `anabranch-lab`, and `anabranch` beside it.
    ///
    /// # Errors
    /// If the running program's place is not known.
    pub fn beside_this_one() -> anyhow::Result<Self> {
        let lab = std::env::current_exe().context("finding this program's file")?;
        let anabranch = lab.with_file_name("anabranch");
        Ok(Self { lab, anabranch: anabranch.exists().then_some(anabranch) })
    }

    /// `anabranch`, for those who cannot do without.
    ///
    /// # Errors
    /// If it is not there.
    pub fn anabranch(&self) -> Result<PathBuf, MachineError> {
        self.anabranch.clone().ok_or_else(|| MachineError::Missing {
            what: "the program anabranch is not beside anabranch-lab".into(),
            remedy: "cargo build --release -p anabranch-cli -p anabranch-lab".into(),
        })
    }
}

impl Measurement {
    /// A 30 s download by one TCP flow with CUBIC, without ping.
    pub fn new(networks: Vec<NetworkSpec>, arrangement: Arrangement) -> Self {
        Self {
            networks,
            arrangement,
            transport: Transport::Tcp,
            congestion: Congestion::Cubic,
            flows: 1,
            length: Duration::from_secs(30),
            bytes: None,
            upload: false,
            ping: false,
            beside: String::new(),
            beside_programs: Vec::new(),
            seed: 1,
        }
    }

    /// Boots `machine` and measures. Blocks for about the time of the flows, times their rate over 40 Mbit/s.
    ///
    /// # Errors
    /// If a program is missing or a step in the guest fails; the message has what it printed.
    pub fn run(&self, machine: &Machine, programs: &Programs) -> Result<Measured, MachineError> {
        let topology = Topology::new(&self.networks)?;
        let mut job = Job::new(self.script());
        job.programs.push(programs.lab.clone());
        job.programs.extend(self.beside_programs.iter().cloned());
        if self.arrangement == Arrangement::Tunnel {
            job.programs.push(programs.anabranch()?);
        }
        job.files = topology.files;
        job.files.insert("/job/networks".into(), topology.functions.into_bytes());
        job.timeout = self.length + Duration::from_secs(300);
        job.wall_timeout = Duration::from_secs(1_800);
        job.seed = self.seed;
        let outcome = machine.run(&job)?;
        Ok(self.read(outcome)?)
    }

    fn script(&self) -> String {
        let seconds = self.length.as_secs_f64();
        let transport =
            if self.arrangement == Arrangement::Mptcp { Transport::Mptcp } else { self.transport };
        let name = match transport {
            Transport::Tcp => "tcp",
            Transport::Mptcp => "mptcp",
            Transport::Quic => "quic",
        };
        let tls = if transport == Transport::Quic { " --certificate /tmp/certificate" } else { "" };
        let interface = match (self.arrangement, self.networks.first()) {
            (Arrangement::Plain, Some(network)) => format!(" --interface {}", network.name),
            _ => String::new(),
        };
        let set_up = match self.arrangement {
            Arrangement::Plain => String::new(),
            Arrangement::Mptcp => mptcp_commands(&self.networks),
            Arrangement::Tunnel => tunnel_commands(),
        };
        let fetch = format!(
            "in_namespace device anabranch-lab traffic fetch {SERVER_ADDRESS}:9000 --transport {name}{tls}{interface} \
             --congestion {}",
            self.congestion.name()
        );
        let mut options = format!(" --flows {} --seconds {seconds}", self.flows);
        if let Some(bytes) = self.bytes {
            options.push_str(&format!(" --bytes {bytes}"));
        }
        if self.upload {
            options.push_str(" --upload");
        }
        let ping = |seconds: f64, file: &str| match self.ping {
            true => format!(
                "in_namespace device anabranch-lab traffic ping {SERVER_ADDRESS}:9100{interface} --seconds {seconds} \
                 --json /results/{file}"
            ),
            false => "true".to_owned(),
        };
        format!(
            "fail() {{ echo \"failed: $1\"; exit 1; }}
. /job/networks
build_networks
in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 --transport {name}{tls} &
in_namespace server anabranch-lab traffic echo {SERVER_ADDRESS}:9100 &
sleep 1
{set_up}
{fetch} --bytes 100000 --json /tmp/warm || fail 'the first download'
sleep 2
{idle_ping} || fail 'the idle ping'
head -1 /proc/stat >/results/before
start_changes
( {beside}
true ) &
beside_process=$!
{loaded_ping} &
ping_process=$!
{fetch}{options} --json /results/flows || fail 'the download'
head -1 /proc/stat >/results/after
wait $ping_process || fail 'the ping'
wait $beside_process
",
            idle_ping = ping(5.0, "idle-ping"),
            loaded_ping = ping(seconds, "loaded-ping"),
            beside = self.beside,
        )
    }

    fn read(&self, outcome: Outcome) -> anyhow::Result<Measured> {
        let logs: Vec<(String, String)> = outcome
            .files
            .iter()
            .filter(|(name, _)| name.ends_with(".log"))
            .map(|(name, text)| (name.clone(), String::from_utf8_lossy(text).into_owned()))
            .collect();
        if outcome.exit != 0 {
            let said: String = logs.iter().map(|(name, text)| format!("\n{name}:\n{text}")).collect();
            return Err(anyhow!(
                "the run in the guest ended with {}: {}{said}",
                outcome.exit,
                outcome.output
            ));
        }
        let report: Report = parse(&outcome, "flows")?;
        ensure!(report.intact, "bytes arrived that were not sent");
        Ok(Measured {
            report,
            idle_ping: if self.ping { Some(parse(&outcome, "idle-ping")?) } else { None },
            loaded_ping: if self.ping { Some(parse(&outcome, "loaded-ping")?) } else { None },
            guest_idle: idle_part(&outcome)?,
            wall_seconds: outcome.wall_time.as_secs_f64(),
            logs,
        })
    }
}

/// Shell commands that set a gateway up, let the device join it and bring any0 up, as a user would; its state is in `/tmp/device`. They need a function `fail`.
pub fn tunnel_commands() -> String {
    format!(
        r#"export RUST_LOG="${{RUST_LOG:-info}}"
in_namespace gateway anabranch gateway init --address {GATEWAY_ADDRESS} --state /tmp/gateway >/results/init.log 2>&1 ||
    fail 'gateway init'
in_namespace gateway anabranch gateway run --state /tmp/gateway >/results/gateway.log 2>&1 &
for _ in $(seq 100); do [ -S /tmp/gateway/control.sock ] && break; sleep 0.1; done
in_namespace gateway anabranch gateway invite laptop --qr never --json --state /tmp/gateway >/tmp/invitation ||
    fail 'gateway invite'
sed -n 's/.*"link": *"\([^"]*\)".*/\1/p' /tmp/invitation |
    in_namespace device anabranch join - --state /tmp/device >/results/join.log 2>&1 || fail 'join'
in_namespace device anabranch up --foreground --state /tmp/device >/results/device.log 2>&1 &
for _ in $(seq 200); do ip -n device link show any0 >/dev/null 2>&1 && break; sleep 0.1; done
ip -n device link show any0 >/dev/null || fail 'up'
sleep 3
"#
    )
}

/// Idle over all processor time between the two samples of `/proc/stat` (proc(5): user nice system idle iowait ...).
pub(super) fn idle_part(outcome: &Outcome) -> anyhow::Result<f64> {
    let sample = |name: &str| -> anyhow::Result<(f64, f64)> {
        let text = outcome.files.get(name).context("a sample of /proc/stat is missing")?;
        let text = String::from_utf8_lossy(text).into_owned();
        let ticks: Vec<f64> = text.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
        Ok((*ticks.get(3).context("/proc/stat has no idle time")?, ticks.iter().sum()))
    };
    let (idle_before, before) = sample("before")?;
    let (idle_after, after) = sample("after")?;
    Ok(if after > before { (idle_after - idle_before) / (after - before) } else { 0.0 })
}

fn parse<T: DeserializeOwned>(outcome: &Outcome, name: &str) -> anyhow::Result<T> {
    let text =
        outcome.files.get(name).with_context(|| format!("the guest left no {name}: {}", outcome.output))?;
    serde_json::from_slice(text).with_context(|| format!("reading {name} of the guest"))
}
