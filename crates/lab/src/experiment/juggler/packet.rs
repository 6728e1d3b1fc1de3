//! JUGGLER table 1, lower half: what the translation of addresses costs each packet, in cycles of this machine.
//!
//! The paper's module rewrites addresses in front of one radio. Here each network has an interface of its own and the kernel translates: a rule
//! of nftables chooses the network of a packet and conntrack rewrites its addresses. What that takes is the difference between sending
//! a packet with `anabranch up` in direct mode and without it.

use super::id;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::netbed::{ChildProcess, DirectDevice, GATEWAY_ADDRESS, NetBed};
use crate::simbed::quantile;
use crate::traffic::{Cycles, CyclesReport};
use anyhow::Context;
use radio::frame::{Header, Kind};
use radio::security::ccmp;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;
use units::MacAddress;
use wire::translation::{Prefix, Translator};

/// The paper's means: a packet that goes out, and one that comes in.
const PAPER: [(&str, f64); 2] = [("out", 6975.3), ("in", 284.0)];
const ROUNDS: usize = 15;
const PACKETS: u32 = 20_000;
const PORT: u16 = 9_003;
/// Bytes of an IP packet, where length counts.
const LONG: usize = 1_500;
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "counter".into(),
        "RDTSC after LFENCE, as in the paper; it counts at the processor's nominal rate".into(),
    );
    spec.insert(
        "packets".into(),
        format!("{ROUNDS} rounds of {PACKETS} UDP packets of 40 bytes each way and set-up").into(),
    );
    spec.insert("translation".into(), "direct mode with a rule (nftables chooses, conntrack translates) less plain routing; the median round's difference of medians".into());
    spec.insert(
        "plain, direct".into(),
        "sendto() with all that follows until the packet is in the other namespace's socket".into(),
    );
    spec.insert(
        "nat64".into(),
        format!(
            "IPv4 to IPv6 and back by our own stateless translator, for networks with IPv6 only; {LONG} bytes"
        )
        .into(),
    );
    spec.insert(
        "ccmp".into(),
        format!("sealing and opening {LONG} bytes in a Wi-Fi network with a passphrase").into(),
    );
    spec.insert("system_call".into(), "getppid(), which does next to nothing".into());
    let bars = PAPER.map(|(way, _)| BarGroup {
        label: way.to_owned(),
        bars: [
            ("paper", format!("paper.{way}_cycles")),
            ("translation", format!("{way}.translation_cycles")),
            ("NAT64", format!("{way}.nat64_cycles")),
        ]
        .map(|(label, metric)| (label.to_owned(), metric))
        .to_vec(),
    });
    Experiment {
        id: id("table1-packet"),
        title: "cycles that the translation of addresses takes from each packet, out and in".to_owned(),
        spec,
        paper: Some("table 1: 6975.3 cycles for a packet that goes out, 284.0 for one that comes in, on a 1.79 GHz Core 2".to_owned()),
        goals: PAPER.map(|(way, cycles)| Goal::at_most(format!("{way}.translation_cycles"), cycles)).to_vec(),
        beds: vec![Bed::Netns],
        bars: bars.to_vec(),
        unit: "cycles",
        axes: Axes::default(),
        runner: Box::new(|_, _| run()),
    }
}

fn run() -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    put_translation(&mut metrics)?;
    put_nat64(&mut metrics)?;
    put_ccmp(&mut metrics)?;
    let call = Cycles::measure(PACKETS, || {
        black_box(rustix::process::getppid());
        Ok(())
    })?;
    let nothing = Cycles::measure(PACKETS, || Ok(()))?;
    metrics.insert("system_call_cycles".into(), call.median - nothing.median);
    for (way, cycles) in PAPER {
        metrics.insert(format!("paper.{way}_cycles"), cycles);
    }
    Ok(Report { metrics, ..Report::default() })
}

/// Packets with and without direct mode, in turns.
fn put_translation(metrics: &mut Metrics) -> anyhow::Result<()> {
    let (plain, direct) = (NetBed::unshaped(1)?, NetBed::unshaped(1)?);
    let mut device = DirectDevice::start(&direct, true)?;
    let measured = || -> anyhow::Result<Vec<[CyclesReport; 2]>> {
        let _servers = [serve(&plain)?, serve(&direct)?];
        (0..ROUNDS).map(|_| Ok([exchange(&plain)?, exchange(&direct)?])).collect()
    };
    let rounds = measured().map_err(|error| device.explain(error))?;
    device.stop();
    let median = |values: Vec<f64>| quantile(&values, 0.5).context("no round was run");
    for (way, part) in
        [("out", (|report| report.out) as fn(&CyclesReport) -> Cycles), ("in", |report| report.back)]
    {
        let of = |index: usize| rounds.iter().map(|round| part(&round[index]).median).collect();
        let differences =
            rounds.iter().map(|[plain, direct]| part(direct).median - part(plain).median).collect();
        metrics.insert(format!("{way}.plain_cycles"), median(of(0))?);
        metrics.insert(format!("{way}.direct_cycles"), median(of(1))?);
        metrics.insert(format!("{way}.translation_cycles"), median(differences)?);
        let means =
            rounds.iter().map(|[plain, direct]| part(direct).middle_mean - part(plain).middle_mean).collect();
        metrics.insert(format!("{way}.translation_mean_cycles"), median(means)?);
    }
    Ok(())
}

fn serve(bed: &NetBed) -> anyhow::Result<ChildProcess> {
    let lab = std::env::current_exe().context("find this program's file")?;
    // Answers come from the address that is asked.
    let listen = SocketAddr::from((GATEWAY_ADDRESS, PORT)).to_string();
    let mut server =
        ChildProcess::start(&bed.gateway, lab.as_os_str(), &["traffic", "cycles-serve", &listen])?;
    server.wait_until("it must be reached from the device", PATIENCE, || run_exchange(bed, 10).is_ok())?;
    Ok(server)
}

fn exchange(bed: &NetBed) -> anyhow::Result<CyclesReport> {
    run_exchange(bed, PACKETS)
}

fn run_exchange(bed: &NetBed, count: u32) -> anyhow::Result<CyclesReport> {
    let lab = std::env::current_exe().context("find this program's file")?;
    let mut command = bed.device.command(lab).context("enter the device's namespace")?;
    let server = SocketAddr::from((GATEWAY_ADDRESS, PORT)).to_string();
    command.args(["traffic", "cycles", &server, "--count", &count.to_string()]);
    let output = command.stdin(Stdio::null()).output().context("start the traffic")?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "the traffic failed ({}): {}", output.status, said.trim());
    serde_json::from_slice(&output.stdout).context("read the report on the traffic")
}

/// A UDP packet through our own translator, there and back.
fn put_nat64(metrics: &mut Metrics) -> anyhow::Result<()> {
    let prefix = |text: &str| Prefix::new(text.parse()?, 96).context("no prefix for addresses");
    let translator = Translator { own: prefix("2001:db8:1::")?, far: prefix("64:ff9b::")? };
    let packet = udp_packet();
    let mut translated = Vec::new();
    translator
        .to_v6(&packet, u16::MAX, &mut |packet| translated = packet.to_vec())
        .context("translate a packet of our own")?;
    // The same packet with its addresses exchanged, as its answer would be.
    let (source, destination) = (translated[8..24].to_vec(), translated[24..40].to_vec());
    translated[8..24].copy_from_slice(&destination);
    translated[24..40].copy_from_slice(&source);
    let out = Cycles::measure(PACKETS, || {
        Ok(translator.to_v6(black_box(&packet), u16::MAX, &mut |packet| {
            black_box(packet);
        })?)
    })?;
    let back = Cycles::measure(PACKETS, || {
        black_box(translator.to_v4(black_box(&translated))?);
        Ok(())
    })?;
    metrics.insert("out.nat64_cycles".into(), out.median);
    metrics.insert("in.nat64_cycles".into(), back.median);
    Ok(())
}

/// An IPv4 packet of [`LONG`] bytes without checksums of its content, which are 0 in UDP where there is none; here it has one.
fn udp_packet() -> Vec<u8> {
    let length = (LONG as u16).to_be_bytes();
    let mut packet =
        vec![0x45, 0, length[0], length[1], 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 198, 51, 100, 2];
    let sum = !packet.chunks(2).fold(0_u16, |sum, word| {
        let (sum, carried) = sum.overflowing_add(u16::from_be_bytes([word[0], word[1]]));
        sum + u16::from(carried)
    });
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend_from_slice(&[0x30, 0x39, 0x23, 0x28]);
    packet.extend_from_slice(&((LONG - 20) as u16).to_be_bytes());
    // Any checksum will do: translation changes it by what the addresses change.
    packet.extend_from_slice(&[0x12, 0x34]);
    packet.resize(LONG, 7);
    packet
}

fn put_ccmp(metrics: &mut Metrics) -> anyhow::Result<()> {
    let (us, point) = (MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2]));
    let mut key = ccmp::Key::new(&[7; 16], 0, 0);
    let header = Header::new(Kind::Data, point, us, point);
    let body = vec![7; LONG];
    let mut frames = Vec::with_capacity(PACKETS as usize);
    let seal = Cycles::measure(PACKETS, || {
        let mut frame = Vec::with_capacity(LONG + 40);
        key.seal(&header, &body, &mut frame).context("seal a frame")?;
        frames.push(frame);
        Ok(())
    })?;
    let mut frames = frames.iter();
    let open = Cycles::measure(PACKETS, || {
        let frame = frames.next().context("as many frames are opened as were sealed")?;
        black_box(key.open(&header, frame)?);
        Ok(())
    })?;
    metrics.insert("out.ccmp_cycles".into(), seal.median);
    metrics.insert("in.ccmp_cycles".into(), open.median);
    Ok(())
}
