//! A [`Trial`] of the simulated bed, run in network namespaces instead: real programs, real sockets, this
//! machine's kernel, real time.

use super::{Bonded, ChildProcess, NetBed, SERVER_ADDRESS};
use crate::simbed::{Algorithm, Outcome, Traffic, Trial, Way};
use crate::traffic::{Congestion, PingReport, Report, Transport};
use crate::vm::measurement::Measured;
use anyhow::{Context, bail};
use sim::NetworkSpec;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Where the bulk server and the echo of the pings listen.
const SERVER_PORT: u16 = 8_080;
const ECHO_PORT: u16 = 7;
/// Pings begin this long before the flows end and stop with them.
const PING_LEAD: Duration = Duration::from_millis(500);
/// Where the certificate of the QUIC server lies; /run is the bed's own.
const CERTIFICATE: &str = "/run/anabranch-lab-server.der";
const START_PATIENCE: Duration = Duration::from_secs(10);

/// Runs `trial`. The namespaces of [`super::isolation`] must have been entered. The outcome says nothing
/// about the bond's ends.
///
/// # Errors
/// If the trial names a network that is not there, or a program fails.
pub fn run(trial: &Trial) -> anyhow::Result<Outcome> {
    let (indices, is_bonded) = match &trial.way {
        Way::Plain(index) => (vec![*index], false),
        Way::Bonded(indices) => (indices.clone(), true),
    };
    let specs = indices
        .iter()
        .map(|index| {
            trial.networks.get(*index).cloned().with_context(|| format!("there is no network {index}"))
        })
        .collect::<anyhow::Result<Vec<NetworkSpec>>>()?;
    let bed = NetBed::build(&specs, trial.seed)?;
    let lab = std::env::current_exe().context("find this program's file")?;
    let _servers = start_servers(&bed, &lab, trial.traffic)?;
    let mut bonded = if is_bonded { Some(Bonded::start(&bed)?) } else { None };
    let ping = if trial.bytes.is_none() { Some(start_ping(&bed, &lab, trial.duration)?) } else { None };
    std::thread::sleep(PING_LEAD);
    let outcome = measure(trial, &bed, &lab, ping);
    match &mut bonded {
        Some(bonded) => outcome.map_err(|error| bonded.explain(error)),
        None => outcome,
    }
}

fn measure(trial: &Trial, bed: &NetBed, lab: &Path, ping: Option<Child>) -> anyhow::Result<Outcome> {
    let start = Instant::now();
    let report: Report = if trial.traffic == Traffic::Idle {
        std::thread::sleep(trial.duration);
        Report::of_flows(Transport::Tcp, Congestion::Cubic, false, Vec::new())
    } else {
        let output = fetch_command(trial, bed, lab)?.wait_with_output().context("wait for the flows")?;
        read_report(&output, "the flows")?
    };
    let loaded_ping = match ping {
        Some(child) => {
            let output = child.wait_with_output().context("wait for the pings")?;
            Some(read_report::<PingReport>(&output, "the pings")?)
        }
        None => None,
    };
    let measured = Measured {
        report,
        idle_ping: None,
        loaded_ping,
        guest_idle: 1.0,
        wall_seconds: start.elapsed().as_secs_f64(),
        logs: Vec::new(),
    };
    Ok(crate::vm::trial::outcome(trial, measured))
}

fn start_servers(bed: &NetBed, lab: &Path, traffic: Traffic) -> anyhow::Result<Vec<ChildProcess>> {
    let start = |arguments: &[&str]| ChildProcess::start(&bed.server, lab.as_os_str(), arguments);
    let (bulk, echo) = (format!("{SERVER_ADDRESS}:{SERVER_PORT}"), format!("{SERVER_ADDRESS}:{ECHO_PORT}"));
    let mut servers = vec![start(&["traffic", "echo", &echo])?];
    match traffic {
        Traffic::Idle => {}
        Traffic::Tcp { .. } => {
            let mut server = start(&["traffic", "serve", &bulk])?;
            let reachable = || std::net::TcpStream::connect((SERVER_ADDRESS, SERVER_PORT)).is_ok();
            server.wait_until("the bulk server must listen", START_PATIENCE, || {
                bed.server.run(reachable).unwrap_or(false)
            })?;
            servers.push(server);
        }
        Traffic::Quic { .. } => {
            let mut server =
                start(&["traffic", "serve", &bulk, "--transport", "quic", "--certificate", CERTIFICATE])?;
            server.wait_until("the QUIC server must write its certificate", START_PATIENCE, || {
                PathBuf::from(CERTIFICATE).exists()
            })?;
            servers.push(server);
        }
    }
    Ok(servers)
}

fn start_ping(bed: &NetBed, lab: &Path, duration: Duration) -> anyhow::Result<Child> {
    let seconds = (duration + PING_LEAD).as_secs_f64().to_string();
    let echo = format!("{SERVER_ADDRESS}:{ECHO_PORT}");
    spawn(bed, lab, &["traffic", "ping", &echo, "--seconds", &seconds])
}

fn fetch_command(trial: &Trial, bed: &NetBed, lab: &Path) -> anyhow::Result<Child> {
    let server = format!("{SERVER_ADDRESS}:{SERVER_PORT}");
    let (algorithm, flows, is_quic) = match trial.traffic {
        Traffic::Tcp { algorithm, flows } => (algorithm, flows, false),
        Traffic::Quic { algorithm } => (algorithm, 1, true),
        Traffic::Idle => bail!("there is nothing to download"),
    };
    let congestion = match algorithm {
        Algorithm::Cubic => "cubic",
        Algorithm::Bbr => "bbr",
        Algorithm::Reno => "reno",
    };
    let (flows, seconds) = (flows.to_string(), trial.duration.as_secs_f64().to_string());
    let bytes = trial.bytes.map(|bytes| bytes.to_string());
    let mut arguments = vec!["traffic", "fetch", &server, "--congestion", congestion, "--flows", &flows];
    arguments.extend(["--seconds", &seconds]);
    if is_quic {
        arguments.extend(["--transport", "quic", "--certificate", CERTIFICATE]);
    }
    if let Some(bytes) = &bytes {
        arguments.extend(["--bytes", bytes]);
    }
    spawn(bed, lab, &arguments)
}

fn spawn(bed: &NetBed, lab: &Path, arguments: &[&str]) -> anyhow::Result<Child> {
    bed.device
        .command(lab)
        .context("enter the device's namespace")?
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", arguments.join(" ")))
}

fn read_report<T: serde::de::DeserializeOwned>(
    output: &std::process::Output,
    what: &str,
) -> anyhow::Result<T> {
    anyhow::ensure!(
        output.status.success(),
        "{what} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    serde_json::from_slice(&output.stdout).with_context(|| format!("read the report on {what}"))
}
