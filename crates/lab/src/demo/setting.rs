//! The demo's networks, its server, and downloads between them.

use crate::netbed::{ChildProcess, FetchReport, NetBed, SERVER_ADDRESS};
use anyhow::{Context, bail};
use sim::{Jitter, Loss, NetworkSpec};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;
use units::Bytes;

/// What is downloaded over each network alone, and for how long at most.
pub(super) const PLAIN_FILE: Bytes = Bytes(24 << 20);
pub(super) const PLAIN_TIME: Duration = Duration::from_secs(8);
/// What is downloaded through any0.
pub(super) const BONDED_FILE: Bytes = Bytes(40 << 20);
/// What is downloaded while the better network is cut.
pub(super) const CUT_FILE: Bytes = Bytes(56 << 20);
/// Where the server listens.
const SERVER_PORT: u16 = 80;
/// Downloads that receive nothing for this long have failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A network of the demo and how to describe it.
#[derive(Clone, Debug)]
pub(super) struct DemoNetwork {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    spec: NetworkSpec,
}

/// Namespaces, networks and the server, all running.
pub(super) struct Setting {
    bed: NetBed,
    networks: Vec<DemoNetwork>,
    _server: ChildProcess,
    lab: PathBuf,
    seed: u64,
    downloads: u64,
}

/// One download.
#[derive(Clone, Copy, Debug)]
pub(super) struct Download {
    /// Over the network with this index; wherever the routes lead if not given.
    pub(super) interface: Option<usize>,
    pub(super) bytes: Bytes,
    pub(super) most_time: Option<Duration>,
}

/// A line that the downloading program prints.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FetchLine {
    /// So many bytes came.
    Progress(u64),
    /// The download is over.
    Report(FetchReport),
}

/// How often a download is looked at.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// The lines that a downloading program prints, read by a thread that ends with them.
pub(super) fn read_lines(output: ChildStdout) -> Receiver<anyhow::Result<FetchLine>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines() {
            let line = line.context("read the download's progress").and_then(|line| {
                serde_json::from_str(&line).with_context(|| format!("not a progress line: {line:?}"))
            });
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn demo_networks() -> Vec<DemoNetwork> {
    let slow = NetworkSpec::symmetric("slow", 20.0, 50)
        .with_jitter(Jitter::OrderKept(Duration::from_millis(5)))
        .with_loss(Loss::Random(0.005));
    vec![
        DemoNetwork {
            name: "net1",
            title: "net1: 40 Mbit/s, 20 ms",
            spec: NetworkSpec::symmetric("fast", 40.0, 20),
        },
        DemoNetwork { name: "net2", title: "net2: 20 Mbit/s, 50 ms, jitter, 0.5 % loss", spec: slow },
    ]
}

impl Setting {
    pub(super) fn build(seed: u64) -> anyhow::Result<Self> {
        let networks = demo_networks();
        let specs: Vec<NetworkSpec> = networks.iter().map(|network| network.spec.clone()).collect();
        let bed = NetBed::build(&specs, seed)?;
        let lab = std::env::current_exe().context("find this program's file")?;
        let address = format!("{SERVER_ADDRESS}:{SERVER_PORT}");
        let mut server = ChildProcess::start(&bed.server, lab.as_os_str(), &["serve-file", &address])?;
        server.wait_until("the server must listen", Duration::from_secs(5), || {
            bed.server
                .run(|| std::net::TcpStream::connect((SERVER_ADDRESS, SERVER_PORT)).is_ok())
                .unwrap_or(false)
        })?;
        Ok(Self { bed, networks, _server: server, lab, seed, downloads: 0 })
    }

    pub(super) fn bed(&self) -> &NetBed {
        &self.bed
    }

    pub(super) fn networks(&self) -> &[DemoNetwork] {
        &self.networks
    }

    pub(super) fn network_names(&self) -> Vec<&'static str> {
        self.networks.iter().map(|network| network.name).collect()
    }

    /// The better network goes silent.
    pub(super) fn cut_better(&mut self) {
        self.set_silent(0, true);
    }

    /// The better network works again.
    pub(super) fn restore_better(&mut self) {
        self.set_silent(0, false);
    }

    /// Makes the network with this index silent, or ends its silence.
    pub(super) fn set_silent(&mut self, index: usize, silent: bool) {
        if let Some(network) = self.bed.networks.get_mut(index) {
            if silent { network.cut() } else { network.restore() }
        }
    }

    /// Bytes that the network with this index has brought to the device.
    pub(super) fn delivered(&mut self, index: usize) -> Option<u64> {
        let [_, down] = self.bed.networks.get_mut(index)?.statistics()?;
        Some(down.delivered_bytes)
    }

    /// Downloads; `progress` hears the bytes so far.
    pub(super) fn download(
        &mut self,
        download: &Download,
        progress: &mut dyn FnMut(u64),
    ) -> anyhow::Result<FetchReport> {
        self.download_watched(download, &mut |bytes, _| progress(bytes))
    }

    /// Downloads; `progress` hears the bytes so far, several times a second even if none come, and may act
    /// on the networks.
    pub(super) fn download_watched(
        &mut self,
        download: &Download,
        progress: &mut dyn FnMut(u64, &mut Self),
    ) -> anyhow::Result<FetchReport> {
        let mut child = self.start_download(download)?;
        let output = child.stdout.take().context("read the download's progress")?;
        let lines = read_lines(output);
        let (mut bytes, mut report) = (0, None);
        loop {
            match lines.recv_timeout(WATCH_INTERVAL) {
                Ok(Ok(FetchLine::Progress(so_far))) => bytes = so_far,
                Ok(Ok(FetchLine::Report(end))) => report = Some(end),
                Ok(Err(error)) => return Err(error),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            progress(bytes, self);
        }
        let output = child.wait_with_output().context("wait for the download")?;
        match report {
            Some(report) => Ok(report),
            None => bail!("a download failed: {}", String::from_utf8_lossy(&output.stderr).trim()),
        }
    }

    /// Starts the program that downloads, in the device's namespace; its output are [`FetchLine`]s.
    pub(super) fn start_download(&mut self, download: &Download) -> anyhow::Result<Child> {
        self.downloads += 1;
        let mut command = self.bed.device.command(&self.lab).context("enter the device's namespace")?;
        command.args(["fetch-file", &format!("{SERVER_ADDRESS}:{SERVER_PORT}")]);
        command.args(["--bytes", &download.bytes.0.to_string()]);
        command.args(["--seed", &(self.seed * 1_000 + self.downloads).to_string()]);
        command.args(["--patience-s", &PATIENCE.as_secs().to_string()]);
        if let Some(index) = download.interface {
            command.args(["--interface", &NetBed::interface(index)]);
        }
        if let Some(most) = download.most_time {
            command.args(["--most-s", &most.as_secs().to_string()]);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start a download")
    }
}
