//! MULTIAP section 8, what the paper leaves to later work: a device in a vehicle that remembers the access points of its way, against one that
//! has forgotten them; and what a change of channel and each further access point cost in energy.
//!
//! The radio's own station on the simulated medium, with open access points of one name along a road: scan, authentication, association, DHCP by
//! four messages, then a download that takes what the air gives. `remembering` has what an earlier pass left in the station (which channel came
//! after which access point) and uses the address that the network lent then as soon as its router has answered; `channels` and `lease` have one of the two.
//! `ideal` never has to join.

use std::time::Duration;

use anyhow::Context as _;
use policy::energy::{Card, Transfer};
use radio::Succession;
use radio::slots::SlotSettings;
use units::{Bytes, Frequency, Timestamp};

use super::street::{Memory, PAYLOAD, Pass, Passed, Service, WIRE, go};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Metres a second: 18, 36 and 72 km/h.
const SPEEDS: [f64; 3] = [5.0, 10.0, 20.0];
/// Metres between access points: each is heard 129 m to either side, so that there is nothing for 140 m.
const APART: f64 = 400.0;
/// Their channels, all of one network.
const ALONG: [Frequency; 4] = [Frequency(2_412), Frequency(2_462), Frequency(2_437), Frequency(2_412)];
const NETWORK: &[u8] = b"street";
/// Channels of the card: all of 2.4 GHz and those of 5 GHz where radar is not to be feared.
const CHANNELS: [Frequency; 20] = {
    let megahertz = [
        2_412, 2_417, 2_422, 2_427, 2_432, 2_437, 2_442, 2_447, 2_452, 2_457, 2_462, 5_180, 5_200, 5_220,
        5_240, 5_745, 5_765, 5_785, 5_805, 5_825,
    ];
    let mut channels = [Frequency(0); 20];
    let mut at = 0;
    while at < 20 {
        channels[at] = Frequency(megahertz[at]);
        at += 1;
    }
    channels
};
/// Name, decibels, time.
type Case = (&'static str, f64, Duration);
/// What walls take of each signal in dB, and how long a server thinks before it offers an address: a street with its access points outdoors; with
/// them in old houses, the median of ITU-R P.2109 (12.64 + 3.72 log f + 0.96 log^2 f, f in GHz); and those with servers that look whether an address is
/// free, as in `[JUGGLER] table 2`, where DHCP took 1.817 s.
const CASES: [Case; 3] = [
    ("street", 0.0, Duration::ZERO),
    ("houses", 14.2, Duration::ZERO),
    ("houses_slow_lease", 14.2, Duration::from_micros(1_817_000 - 2 * 20_000)),
];
const WAYS: [&str; 4] = ["forgetting", "channels", "lease", "remembering"];

/// At rest, in so many networks at once, with so much to receive in all.
const AT_ONCE: [usize; 4] = [1, 2, 3, 4];
const OTHER_CHANNELS: [Frequency; 4] =
    [Frequency(2_412), Frequency(2_437), Frequency(2_462), Frequency(5_180)];
const NAMES: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
const DOWNLOAD_MBPS: f64 = 2.0;
const SETTLING: Duration = Duration::from_secs(5);
const MEASURED: Duration = Duration::from_secs(20);
/// The one by how long it sends and receives, and two by bits (`policy::energy`).
const BY_TIME: &str = "wavelan-11";
const BY_TIME_MBPS: f64 = 11.0;
const BY_BITS: [&str; 2] = ["wifi-2012", "wifi-2009"];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "access_points".into(),
        format!("{} of one open network, {APART} m apart, 15 m beside the road", ALONG.len()).into(),
    );
    spec.insert(
        "signal".into(),
        "20 dBm, 40 dB at one metre, then 3.5 times the decades; -94 dBm is in range".into(),
    );
    for (case, walls_db, offer_time) in CASES {
        spec.insert(format!("{case}_walls_db"), walls_db.into());
        spec.insert(format!("{case}_offer_ms"), (offer_time.as_millis() as i64).into());
    }
    spec.insert("channels_of_the_card".into(), (CHANNELS.len() as i64).into());
    spec.insert("metres_per_second".into(), SPEEDS.map(toml::Value::from).to_vec().into());
    spec.insert("wire_ms".into(), (WIRE.as_millis() as i64).into());
    spec.insert("energy_download_mbps".into(), DOWNLOAD_MBPS.into());
    spec.insert("energy_measured_s".into(), (MEASURED.as_secs() as i64).into());
    let cards: Vec<_> = [BY_TIME].into_iter().chain(BY_BITS).map(toml::Value::from).collect();
    spec.insert("energy_cards".into(), cards.into());
    let group = |case: &str, speed: f64| BarGroup {
        label: format!("{} {speed:.0}", if case == DRAWN { "slow" } else { case }),
        bars: WAYS.map(|way| (way.to_owned(), format!("{case}.at_{speed:.0}.{way}.part_of_ideal"))).to_vec(),
    };
    let goals = each()
        .map(|((case, ..), speed)| Goal::at_least(format!("{case}.at_{speed:.0}.over_forgetting"), 1.0))
        .collect();
    Experiment {
        id: id("vehicle"),
        title: "past four access points of a street at the speed of a vehicle: what is fetched, as a part of what a device would that never has to join"
            .to_owned(),
        spec,
        paper: Some("section 8: future work, no figure".to_owned()),
        goals,
        beds: vec![Bed::Sim],
        bars: each().map(|((case, ..), speed)| group(case, speed)).collect(),
        unit: "part of the ideal, by metres a second; slow is houses_slow_lease",
        axes: Axes { over: Some("metres a second"), unit: Some("houses_slow_lease: first to last packet, part of the time in range") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

/// Each case at each speed.
fn each() -> impl Iterator<Item = (Case, f64)> {
    CASES.into_iter().flat_map(|case| SPEEDS.map(|speed| (case, speed)))
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics = Metrics::new();
    let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); WAYS.len()];
    for (case, speed) in each() {
        let name = format!("{}.at_{speed:.0}", case.0);
        let with = |memory, seed| go(&pass(case, speed, memory, seed));
        let before = with(Some(Memory::default()), seed)?.succession;
        let ideal = with(None, seed)?;
        tell(&mut metrics, &format!("{name}.ideal"), &ideal);
        let mut results = Vec::new();
        for ((way, memory), line) in WAYS.into_iter().zip(memories(&before)).zip(&mut lines) {
            let passed = with(Some(memory), seed + NEXT_PASS)?;
            tell(&mut metrics, &format!("{name}.{way}"), &passed);
            metrics
                .insert(format!("{name}.{way}.part_of_ideal"), rounded(fetched(&passed) / fetched(&ideal)));
            if case.0 == DRAWN {
                line.push((speed, part_of_time(&passed)));
            }
            results.push(fetched(&passed));
        }
        if let [forgetting, .., remembering] = results[..] {
            metrics.insert(format!("{name}.over_forgetting"), rounded(remembering / forgetting));
        }
    }
    energy(&mut metrics, seed)?;
    let series = WAYS.into_iter().map(str::to_owned).zip(lines).collect();
    Ok(Report { metrics, series, ..Report::default() })
}

/// The case whose times are drawn.
const DRAWN: &str = "houses_slow_lease";
/// The seed of a later pass: other beacons' and back-off's chance than in the one that is remembered.
const NEXT_PASS: u64 = 1_000;

/// What each of [`WAYS`] remembers.
fn memories(before: &Succession) -> [Memory; 4] {
    let forgotten = Succession::default;
    [
        Memory::default(),
        Memory { succession: before.clone(), lease: false },
        Memory { succession: forgotten(), lease: true },
        Memory { succession: before.clone(), lease: true },
    ]
}

fn pass((_, walls_db, offer_time): Case, speed: f64, memory: Option<Memory>, seed: u64) -> Pass {
    let place = |at: usize| APART * (at as f64 + 0.5);
    let length = APART * ALONG.len() as f64;
    Pass {
        points: ALONG
            .into_iter()
            .enumerate()
            .map(|(at, channel)| (place(at), NETWORK.to_vec(), channel))
            .collect(),
        channels: CHANNELS.to_vec(),
        metres_per_second: speed,
        walls_db,
        offer_time,
        time: Duration::from_secs_f64(length / speed),
        spacing: vec![None; ALONG.len()],
        slots: SlotSettings::default(),
        carrier_sense: false,
        steered: false,
        memory,
        counted_from: Timestamp::ZERO,
        seed,
    }
}

/// Megabytes.
fn fetched(passed: &Passed) -> f64 {
    passed.services.iter().map(|service| service.bytes.0 as f64 / 1e6).sum()
}

/// Seconds from in range to the first packet, of each access point that gave any.
fn delays(passed: &Passed) -> Vec<f64> {
    let delay = |service: &Service| {
        let ((begun, _), (first, _)) = (service.in_range?, service.packets?);
        Some(first.as_secs_f64() - begun.as_secs_f64())
    };
    passed.services.iter().filter_map(delay).collect()
}

fn tell(metrics: &mut Metrics, name: &str, passed: &Passed) {
    metrics.insert(format!("{name}.fetched_mb"), rounded(fetched(passed)));
    let delays = delays(passed);
    metrics.insert(format!("{name}.used"), delays.len() as f64);
    metrics.insert(format!("{name}.first_packet_s"), rounded(mean(&delays)));
    metrics.insert(
        format!("{name}.first_packet_worst_s"),
        rounded(delays.iter().copied().fold(f64::NEG_INFINITY, f64::max)),
    );
    let served: Vec<f64> = passed.services.iter().map(|service| seconds(service.packets)).collect();
    metrics.insert(format!("{name}.served_s"), rounded(mean(&served)));
    metrics.insert(format!("{name}.part_of_time"), rounded(part_of_time(passed)));
}

/// From the first to the last packet, as a part of the time in range, over all access points.
fn part_of_time(passed: &Passed) -> f64 {
    let served: f64 = passed.services.iter().map(|service| seconds(service.packets)).sum();
    let in_range: f64 = passed.services.iter().map(|service| seconds(service.in_range)).sum();
    served / in_range
}

fn seconds(span: Option<(Timestamp, Timestamp)>) -> f64 {
    span.map_or(0.0, |(begun, ended)| ended.since(begun).as_secs_f64())
}

/// At rest close to so many access points, the same download in equal parts from all.
fn energy(metrics: &mut Metrics, seed: u64) -> anyhow::Result<()> {
    for (case, same) in [("same_channel", true), ("other_channels", false)] {
        let mut first = None;
        for count in AT_ONCE {
            let channel = |at: usize| OTHER_CHANNELS[if same { 0 } else { at }];
            let packet = Duration::from_secs_f64(PAYLOAD as f64 * 8.0 / (DOWNLOAD_MBPS * 1e6));
            let passed = go(&Pass {
                points: (0..count).map(|at| (0.0, NAMES[at].to_vec(), channel(at))).collect(),
                channels: OTHER_CHANNELS.to_vec(),
                metres_per_second: 0.0,
                walls_db: 0.0,
                offer_time: Duration::ZERO,
                time: SETTLING + MEASURED,
                spacing: vec![Some(packet * count as u32); count],
                slots: SlotSettings::default(),
                carrier_sense: false,
                steered: false,
                memory: Some(Memory { succession: Succession::default(), lease: true }),
                counted_from: Timestamp::ZERO + SETTLING,
                seed,
            })?;
            let name = format!("energy.{case}.{count}");
            let seconds = MEASURED.as_secs_f64();
            metrics.insert(format!("{name}.received_mbps"), rounded(fetched(&passed) * 8.0 / seconds));
            metrics.insert(format!("{name}.sending_part"), rounded(passed.sent.0.as_secs_f64() / seconds));
            metrics
                .insert(format!("{name}.receiving_part"), rounded(passed.received.0.as_secs_f64() / seconds));
            let changes = f64::from(passed.switches) / seconds;
            metrics.insert(format!("{name}.changes_per_s"), rounded(changes));
            let change = passed.switching.as_secs_f64() / f64::from(passed.switches.max(1));
            metrics.insert(format!("{name}.change_ms"), rounded(change * 1e3));
            let powers = powers(&passed)?;
            let alone = *first.get_or_insert(powers);
            for ((card, power), (_, alone)) in powers.into_iter().zip(alone) {
                metrics.insert(format!("{name}.{card}_mw"), rounded(power * 1e3));
                if count > 1 {
                    let each = (power - alone) / (count - 1) as f64;
                    metrics.insert(format!("{name}.{card}_each_further_mw"), rounded(each * 1e3));
                }
                if passed.switches > 0 {
                    let model = Card::by_name(card).context("a card")?.model;
                    let awake = model.active.0.max(model.idle.0);
                    metrics.insert(format!("{name}.{card}_change_mj"), rounded(awake * change * 1e3));
                }
            }
        }
    }
    Ok(())
}

/// Watts over the measured time: the card is awake all the time.
fn powers(passed: &Passed) -> anyhow::Result<[(&'static str, f64); 3]> {
    let seconds = MEASURED.as_secs_f64();
    let card = |name| Card::by_name(name).map(|card| card.model).context("there is no such card");
    let by_time = card(BY_TIME)?;
    // Its figures are per bit at its own rate: so much more while it is on the air at all.
    let as_bytes = |time: Duration| Bytes((time.as_secs_f64() * BY_TIME_MBPS * 1e6 / 8.0) as u64);
    let on_air = Transfer { sent: as_bytes(passed.sent.0), received: as_bytes(passed.received.0) };
    let bits = Transfer { sent: passed.sent.1, received: passed.received.1 };
    let of_bits = |name| anyhow::Ok((name, card(name)?.further_transfer(bits, MEASURED).0 / seconds));
    let [first, second] = BY_BITS.map(of_bits);
    Ok([(BY_TIME, by_time.further_transfer(on_air, MEASURED).0 / seconds), first?, second?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_remembers_fetches_more() {
        let quick = |memory, seed| go(&pass(CASES[2], 20.0, memory, seed)).unwrap();
        let before = quick(Some(Memory::default()), 1).succession;
        let [forgetting, .., remembering] = memories(&before).map(|memory| quick(Some(memory), 2));
        let ideal = quick(None, 2);
        assert!(fetched(&remembering) > fetched(&forgetting));
        assert!(fetched(&ideal) > fetched(&remembering));
        assert_eq!(delays(&ideal).len(), ALONG.len());
    }
}
