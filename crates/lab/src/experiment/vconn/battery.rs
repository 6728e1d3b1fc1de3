//! VCONN/fig8-battery: 1.5 GB over fifteen hours, over Wi-Fi alone and with switching between Bluetooth and Wi-Fi; and what a virtual socket
//! costs over TCP on the same card.
//!
//! The day is simulated with the programs' own policy (`policy::ConnectionPolicy`); the cost is that of packets as the two kinds of
//! sockets send them, between namespaces. Energy follows from the one model of cards (`policy::energy`).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use policy::energy::{Card, CardMeter, Transfer};
use policy::network::{Metrics as NetworkMetrics, NetworkInput, Percent, PowerSupply};
use policy::unused::UNUSED;
use policy::{ChoiceSettings, ConnectionPolicy, ConnectionWish};
use sim::NetworkSpec;
use units::{BitRate, Bytes, NetworkId, Timestamp};

use super::id;
use super::wires::Wires;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::netbed::{GATEWAY_ADDRESS, NetBed};

/// As long as the paper's, and as much.
const HOURS: u64 = 15;
const BYTES: u64 = 1_500_000_000;
/// The file comes in parts, as films do.
const PART: Duration = Duration::from_secs(10);
const INTERVAL: Duration = Duration::from_millis(20);
/// `[VCONN] 5.2`: from Bluetooth's reach out of it, and back.
const BLUETOOTH: Radio = Radio { id: NetworkId(1), name: "bluetooth", card: "bluetooth-2008", mbps: 0.7 };
const WIFI: Radio = Radio { id: NetworkId(2), name: "wifi", card: "wavelan-11", mbps: 5.0 };
/// Below 20 % the cheapest adapter is used.
const BATTERY: u8 = 19;
const PAPER_SAVED: f64 = 67.0;
const MOST_COST: f64 = 1.0;
/// How long the cost over TCP is measured, each kind and card.
const MEASURED: Duration = Duration::from_secs(40);
const ROUND_TRIP_MS: u64 = 6;

#[derive(Clone, Copy)]
struct Radio {
    id: NetworkId,
    name: &'static str,
    card: &'static str,
    mbps: f64,
}

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: toml::Value| spec.insert(key.to_owned(), value);
    put("hours", (HOURS as i64).into());
    put("bytes", (BYTES as i64).into());
    put("part_s", (PART.as_secs() as i64).into());
    put("walk", "a third within Bluetooth's reach, a third out of it, a third within".into());
    put("battery_percent", i64::from(BATTERY).into());
    put("unused_s", (UNUSED.as_secs() as i64).into());
    for radio in [BLUETOOTH, WIFI] {
        put(radio.name, format!("{} at {} Mbit/s", radio.card, radio.mbps).into());
    }
    put(
        "cost",
        format!("{} s of such parts over each card, TCP beside virtual sockets", MEASURED.as_secs()).into(),
    );
    let bar = |label: &str, metric: &str| (label.to_owned(), metric.to_owned());
    Experiment {
        id: id("fig8-battery"),
        title: "energy of 1.5 GB in fifteen hours with switching, and what virtual sockets add to TCP's"
            .to_owned(),
        spec,
        paper: Some(
            "figure 8 and section 5.3: 67 % saved by switching; little more than native sockets".to_owned(),
        ),
        goals: vec![
            Goal::at_least("walk.saved_percent", PAPER_SAVED),
            Goal::at_most(format!("{}.cost_percent", BLUETOOTH.card), MOST_COST),
            Goal::at_most(format!("{}.cost_percent", WIFI.card), MOST_COST),
        ],
        beds: vec![Bed::Netns],
        bars: vec![BarGroup {
            label: "saved".to_owned(),
            bars: vec![
                bar("paper", "paper.saved_percent"),
                bar("walk", "walk.saved_percent"),
                bar("always within reach", "near.saved_percent"),
                bar("walk, nothing switched off", "walk.saved_percent_all_on"),
            ],
        }],
        unit: "%",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    let mut put = |name: String, value: f64| {
        metrics.insert(name, (value * 1e3).round() / 1e3);
    };
    put("paper.saved_percent".to_owned(), PAPER_SAVED);
    let alone = day(&|_| false, true)?;
    put("wifi_alone.joules".to_owned(), alone);
    let third = Duration::from_secs(HOURS * 3_600 / 3);
    let within = move |at: Duration| at < third || at >= third * 2;
    for (name, outcome) in [
        ("walk.saved_percent", day(&within, true)?),
        ("walk.saved_percent_all_on", day(&within, false)?),
        ("near.saved_percent", day(&|_| true, true)?),
    ] {
        put(name.to_owned(), (1.0 - outcome / alone) * 100.0);
    }
    for (radio, card) in [(BLUETOOTH, BLUETOOTH.card), (WIFI, WIFI.card), (WIFI, "wifi-2012")] {
        let (plain, ours) = cost(radio, card, seed)?;
        put(format!("{card}.tcp_joules"), plain);
        put(format!("{card}.sockets_joules"), ours);
        put(format!("{card}.cost_percent"), (ours / plain - 1.0) * 100.0);
    }
    Ok(Report { metrics, ..Report::default() })
}

fn model(card: &str) -> anyhow::Result<policy::energy::PowerModel> {
    Ok(Card::by_name(card).with_context(|| format!("there is no card {card}"))?.model)
}

/// Joules of both cards over the whole time, with Bluetooth in reach as `within` has it.
fn day(within: &dyn Fn(Duration) -> bool, switches_off: bool) -> anyhow::Result<f64> {
    let mut policy = ConnectionPolicy::new(ChoiceSettings::default(), ConnectionWish::Balanced);
    let mut meters: BTreeMap<NetworkId, (CardMeter, Duration)> = BTreeMap::new();
    let mut inputs = Vec::new();
    for radio in [BLUETOOTH, WIFI] {
        let model = model(radio.card)?;
        meters.insert(radio.id, (CardMeter::new(model), Duration::ZERO));
        let rate = Some(BitRate::from_mbps(radio.mbps));
        let metrics = NetworkMetrics { delivered: rate, nominal: rate, ..NetworkMetrics::default() };
        inputs.push((
            radio,
            NetworkInput { metrics, power: Some(model), ..NetworkInput::new(radio.id, radio.name) },
        ));
    }
    let power = PowerSupply::Battery(Percent::new(BATTERY));
    let length = Duration::from_secs(HOURS * 3_600);
    let part = BYTES * PART.as_secs() / length.as_secs();
    let (mut at, mut waiting, mut used, mut was_within) = (Duration::ZERO, 0u64, None, None);
    while at < length {
        if at.as_millis().is_multiple_of(PART.as_millis()) {
            waiting += part;
        }
        let now = Timestamp::ZERO + at;
        let is_within = within(at);
        if now >= policy.next_evaluation() || was_within != Some(is_within) {
            was_within = Some(is_within);
            let seen: Vec<NetworkInput> = inputs
                .iter()
                .map(|(radio, input)| NetworkInput { up: radio.id == WIFI.id || is_within, ..input.clone() })
                .collect();
            used = policy.evaluate(now, &seen, power);
        }
        for (radio, _) in &inputs {
            let Some((meter, unused)) = meters.get_mut(&radio.id) else { continue };
            let is_used = used == Some(radio.id);
            *unused = if is_used { Duration::ZERO } else { *unused + INTERVAL };
            let rate = (radio.mbps * 1e6 / 8.0 * INTERVAL.as_secs_f64()) as u64;
            let moved = if is_used { waiting.min(rate) } else { 0 };
            waiting -= moved;
            if !(switches_off && *unused > UNUSED) {
                meter.on_interval(INTERVAL, Transfer { sent: Bytes(0), received: Bytes(moved) });
            }
        }
        at += INTERVAL;
    }
    anyhow::ensure!(waiting < 2 * part, "{waiting} bytes of the file have not come");
    Ok(meters.values().map(|(meter, _)| meter.used().0).sum())
}

/// Joules of a card for the same parts of a file, by TCP and by virtual sockets.
fn cost(radio: Radio, card: &str, seed: u64) -> anyhow::Result<(f64, f64)> {
    let bed = NetBed::build(&[NetworkSpec::symmetric(radio.name, radio.mbps, ROUND_TRIP_MS)], seed)?;
    let wires = Wires::open(&bed, GATEWAY_ADDRESS)?;
    let model = model(card)?;
    let part = (BYTES * PART.as_secs() / (HOURS * 3_600)) as usize;
    let plain = wires.tcp_pair()?;
    let plain = metered(&bed, model, part, plain.0, plain.1)?;
    let ours = wires.virtual_pair()?;
    let ours = metered(&bed, model, part, ours.0, ours.1)?;
    Ok((plain, ours))
}

/// Sends parts to the device as long as is measured; joules of its card.
fn metered(
    bed: &NetBed,
    model: policy::energy::PowerModel,
    part: usize,
    mut near: impl Read + Send,
    mut far: impl Write + Send,
) -> anyhow::Result<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let stop = &stop;
        let meter = scope.spawn(|| bed.device.run(|| read_counters(model, stop)));
        let reader = scope.spawn(move || -> std::io::Result<()> {
            let (mut buffer, mut left) = (vec![0; 65_536], part * parts());
            while left > 0 {
                match near.read(&mut buffer)? {
                    0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                    count => left = left.saturating_sub(count),
                }
            }
            Ok(())
        });
        let start = Instant::now();
        for number in 0..parts() {
            let due = start + PART * number as u32;
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            far.write_all(&vec![7; part])?;
        }
        std::thread::sleep((start + MEASURED).saturating_duration_since(Instant::now()));
        stop.store(true, Ordering::Relaxed);
        reader.join().map_err(|_| anyhow::anyhow!("the reader has panicked"))??;
        meter.join().map_err(|_| anyhow::anyhow!("the meter has panicked"))??
    })
}

const fn parts() -> usize {
    (MEASURED.as_secs() / PART.as_secs()) as usize
}

/// Reckons with what the device's interface moves until it is told to stop.
fn read_counters(model: policy::energy::PowerModel, stop: &AtomicBool) -> anyhow::Result<f64> {
    let mut meter = CardMeter::new(model);
    let mut before = counters()?;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        next += INTERVAL;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        let now = counters()?;
        let moved = Transfer { sent: Bytes(now.1 - before.1), received: Bytes(now.0 - before.0) };
        meter.on_interval(INTERVAL, moved);
        before = now;
    }
    Ok(meter.used().0)
}

/// Bytes that the device's interface has received and sent.
fn counters() -> anyhow::Result<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
    let interface = format!("{}:", NetBed::interface(0));
    let line = text.lines().find_map(|line| line.trim_start().strip_prefix(&interface));
    let mut fields = line.context("the interface is not there")?.split_whitespace();
    let (received, sent) = (fields.next(), fields.nth(7));
    Ok((received.context("no counters")?.parse()?, sent.context("no counters")?.parse()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: Wi-Fi alone draws 156 mA at 4.74 V all the time, and 14.65 nJ for each of 12 Gbit: 39,929 J and 176 J.
    #[test]
    fn a_day_of_wifi_by_hand() {
        let joules = day(&|_| false, false).unwrap();
        assert!((joules - 40_105.0).abs() < 20.0, "{joules}");
    }
}
