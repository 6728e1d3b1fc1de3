//! The real `anabranch` on both sides: a gateway, an invitation, a device that joins and goes up.

use super::{ChildProcess, GATEWAY_ADDRESS, NetBed, SERVER_ADDRESS, program_beside};
use anyhow::{Context, ensure};
use linux::netlink::Netlink;
use linux::netns::Namespace;
use socket2::{Domain, Socket, Type};
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

/// The interface that applications see.
pub(super) const INTERFACE: &str = "any0";
/// How long the gateway and the device may take to get ready.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running gateway and a running device.
pub struct Bonded {
    gateway: ChildProcess,
    device: ChildProcess,
    gateway_state: PathBuf,
}

impl Bonded {
    /// Sets a gateway up, invites the device, lets it join and brings any0 up, all by the commands that a
    /// user types.
    ///
    /// Their state lies in /run, so the namespaces of [`super::isolation`] must have been entered.
    ///
    /// # Errors
    /// If a command fails; the message has what it said.
    pub fn start(bed: &NetBed) -> anyhow::Result<Self> {
        let program = program_beside("anabranch");
        let (gateway_state, device_state) = state_directories()?;
        let on_gateway =
            |arguments: &[&str], input: &str| run(&bed.gateway, &program, &gateway_state, arguments, input);
        on_gateway(&["gateway", "init", "--address", &GATEWAY_ADDRESS.to_string()], "")?;
        let mut gateway = ChildProcess::start(
            &bed.gateway,
            program.as_os_str(),
            &with_state(&gateway_state, &["gateway", "run"]),
        )?;
        gateway.wait_until("its control socket must be there", PATIENCE, || {
            gateway_state.join("control.sock").exists()
        })?;
        let link = on_gateway(&["gateway", "invite", "laptop", "--qr", "never", "--json"], "")?;
        let link = link_in(&link.stdout)?;
        run(&bed.device, &program, &device_state, &["join", "-"], &link)?;
        let mut device = ChildProcess::start(
            &bed.device,
            program.as_os_str(),
            &with_state(&device_state, &["up", "--foreground"]),
        )?;
        let is_up = || has_interface(&bed.device) && reaches_server(&bed.device);
        device
            .wait_until("any0 must be up and lead to the Internet", PATIENCE, is_up)
            .map_err(|error| error.context(format!("the gateway said:\n{}", gateway.last_words())))?;
        Ok(Self { gateway, device, gateway_state })
    }

    /// The device's first process.
    pub fn device_process(&self) -> u32 {
        self.device.id()
    }

    /// The gateway's first process.
    pub fn gateway_process(&self) -> u32 {
        self.gateway.id()
    }

    /// Where the gateway keeps its state and its control socket.
    pub fn gateway_state(&self) -> &Path {
        &self.gateway_state
    }

    /// Adds to `error` what both sides said last.
    pub fn explain(&mut self, error: anyhow::Error) -> anyhow::Error {
        error.context(format!(
            "the device said:\n{}\nthe gateway said:\n{}",
            self.device.last_words(),
            self.gateway.last_words()
        ))
    }

    /// Ends device and gateway in good order.
    pub fn stop(&mut self) {
        self.device.stop(Duration::from_secs(5));
        self.gateway.stop(Duration::from_secs(5));
    }
}

/// New directories in the bed's own /run, which ends with the bed: keys of a gateway that is gone do not stay.
pub(super) fn state_directories() -> anyhow::Result<(PathBuf, PathBuf)> {
    let place = PathBuf::from(format!("/run/anabranch-lab-{}", linux::clock::now().as_nanos()));
    std::fs::create_dir(&place).with_context(|| format!("make the directory {}", place.display()))?;
    Ok((place.join("gateway"), place.join("device")))
}

pub(super) fn with_state(state: &Path, arguments: &[&str]) -> Vec<OsString> {
    let mut all: Vec<OsString> = vec!["--state".into(), state.into()];
    all.extend(arguments.iter().map(OsString::from));
    all
}

/// Runs `anabranch` to its end with `input` on its standard input.
fn run(
    namespace: &Namespace,
    program: &Path,
    state: &Path,
    arguments: &[&str],
    input: &str,
) -> anyhow::Result<Output> {
    let what = || format!("anabranch {}", arguments.join(" "));
    let mut child = namespace
        .command(OsStr::new(program))?
        .args(with_state(state, arguments))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {} ({})", what(), program.display()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read its input need not.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().with_context(|| format!("wait for {}", what()))?;
    ensure!(
        output.status.success(),
        "{} failed ({}): {}",
        what(),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output)
}

/// The join link in the answer to `gateway invite --json`.
fn link_in(answer: &[u8]) -> anyhow::Result<String> {
    let answer: serde_json::Value =
        serde_json::from_slice(answer).context("read the answer to gateway invite")?;
    let link =
        answer.get("link").and_then(serde_json::Value::as_str).context("gateway invite gave no link")?;
    Ok(format!("{link}\n"))
}

pub(super) fn has_interface(namespace: &Namespace) -> bool {
    let there = namespace.run(|| Netlink::open().ok()?.link(INTERFACE).ok()?);
    there.is_ok_and(|link| link.is_some())
}

/// Whether the server answers a connection through any0, be it by refusing it.
fn reaches_server(namespace: &Namespace) -> bool {
    let answers = || {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind_device(Some(INTERFACE.as_bytes()))?;
        socket.connect_timeout(&SocketAddr::from((SERVER_ADDRESS, 80)).into(), Duration::from_secs(1))
    };
    match namespace.run(answers) {
        Ok(Ok(())) => true,
        Ok(Err(error)) => error.kind() == ErrorKind::ConnectionRefused,
        Err(_) => false,
    }
}
