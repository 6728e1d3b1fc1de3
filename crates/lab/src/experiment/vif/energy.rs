//! VIF table 4 and graph 1: 600 s of mixed traffic, without any0, with it, and with power saving on an almost empty battery.
//!
//! Measured are what each interface moved, every 20 ms, and the processor's instructions; the energy follows from the one
//! model of cards (`policy::energy`) and a published figure for an instruction. The rest of a laptop is the paper's.

use super::{FAST_MBPS, ROUND_TRIP_MS, SCALE, SLOW_MBPS, behind_point, describe_air, id, old_rates};
use crate::experiment::direct_laboratory::{Laboratory, Links};
use crate::experiment::record::RATE_SCALE;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::{CountersReport, Transfer, TransferReport};
use crate::vm::air::Air;
use crate::vm::direct::{DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use anyhow::Context;
use policy::energy::{Card, CardMeter};
use sim::{NetworkSpec, SeededRandom};
use std::fmt::Write as _;
use std::time::Duration;
use units::Bytes;

/// As long as the paper's.
const SECONDS: u64 = 600;
/// For transfers that are late and for the last tail.
const AFTERWARDS: u64 = 20;
const INTERVAL_MS: u64 = 20;
/// The card of the fast network, and those that the slow one may have, by name.
const FAST_CARD: &str = "wifi-2012";
const SLOW_CARDS: [&str; 3] = ["wavelan-11", "lte-2012", "3g-2012"];
/// What the battery has left, percent: `[VIF] 3.2.4` saves power below 10.
const BATTERY: u32 = 9;
/// Energy of an instruction, nanojoules. Grochowski and Annavaram, "Energy per Instruction Trends in Intel Microprocessors",
/// Technology@Intel Magazine, March 2006: 11 nJ for the Core Duo, a laptop's processor of the paper's time.
const INSTRUCTION_NANOJOULES: f64 = 11.0;
/// Instructions a second that the guest's processor executes when it is not idle.
const INSTRUCTIONS: f64 = 1e9;
/// `[VIF] table 4`: 3,123.333 mWh of the whole laptop in 600 s.
const LAPTOP_JOULES: f64 = 3_123.333 * 3.6;
/// Saved by the paper's laptop, percent.
const PAPER_SAVED: f64 = 5.4;
/// Added by the paper's virtual interface, percent.
const PAPER_OVERHEAD: f64 = 0.427;
/// Transfers may take so much longer while power is saved: what the clock of a busy machine cannot tell from nothing.
const SAME_TIME: f64 = 1.02;

pub(super) fn experiment(links: Links) -> Experiment {
    let mut spec = toml::Table::new();
    if links == Links::Air {
        describe_air(&mut spec, &[("g", FAST_MBPS), ("b", SLOW_MBPS)]);
    }
    let mut put = |key: &str, value: toml::Value| spec.insert(key.to_owned(), value);
    if links == Links::Wired {
        put(
            "networks",
            format!("g {FAST_MBPS} Mbit/s, b {SLOW_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into(),
        );
        put("rate_scale_vm", SCALE.into());
    }
    put("seconds", (SECONDS as i64).into());
    put(
        "traffic",
        "pages of 10 objects, 8 to 120 kB, every 20 s; 2 kB sent every 7 s; 300 kB sent every 60 s; 8 MB at 100, 300 and 480 s"
            .into(),
    );
    put("cards", format!("g {FAST_CARD}; b {}", SLOW_CARDS.join(", ")).into());
    put("counters_ms", (INTERVAL_MS as i64).into());
    put("battery_percent", i64::from(BATTERY).into());
    put("nanojoules_per_instruction", INSTRUCTION_NANOJOULES.into());
    put("laptop_joules", LAPTOP_JOULES.into());
    let bar = |label: &str, metric: String| (label.to_owned(), metric);
    let mut goals = vec![Goal::at_most("overhead.of_laptop_percent", 0.43)];
    let mut bars = vec![BarGroup {
        label: "added by any0".into(),
        bars: vec![
            bar("paper, of the laptop", "paper.overhead_percent".into()),
            bar("direct, of the laptop", "overhead.of_laptop_percent".into()),
        ],
    }];
    for card in SLOW_CARDS {
        goals.push(Goal::at_least(format!("{card}.saved_percent"), PAPER_SAVED));
        goals.push(Goal::at_most(format!("{card}.median_time_ratio"), SAME_TIME));
        bars.push(BarGroup {
            label: format!("saved beside {card}"),
            bars: vec![
                bar("paper, of the laptop", "paper.saved_percent".into()),
                bar("direct, of the cards", format!("{card}.saved_percent")),
                bar("direct, of the laptop", format!("{card}.saved_of_laptop_percent")),
            ],
        });
    }
    Experiment {
        id: id(&links.of("table4-energy")),
        title: "energy of 600 s of mixed traffic: what any0 adds, and what power saving saves".to_owned(),
        spec,
        paper: Some(
            "table 4 and section 4.4: the virtual interface takes 0.427 % more energy of the laptop (3,136.7 mWh for 3,123.3 in \
             600 s); power saving takes 5.4 % less (about 190 mWh)"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars,
        unit: "%",
        axes: Axes::default(),
        runner: Box::new(move |_, seed| run(links, seed)),
    }
}

fn run(links: Links, seed: u64) -> anyhow::Result<Report> {
    let network = |name, mbps: f64| match links {
        Links::Wired => NetworkSpec::symmetric(name, mbps * SCALE, ROUND_TRIP_MS),
        Links::Air => behind_point(name),
    };
    // Radios 0 and 1 are the access points, 2 and 3 the cards.
    let air = |networks: &[NetworkSpec]| match (links, networks.len()) {
        (Links::Wired, _) => None,
        (Links::Air, 1) => Some(Air::cards(&[1])),
        (Links::Air, _) => Some(Air { links: vec![old_rates([1, 3])], ..Air::cards(&[1, 11]) }),
    };
    let both = vec![network("g", FAST_MBPS), network("b", SLOW_MBPS)];
    let transfers = transfers(seed);
    let job = |networks: &[NetworkSpec], way, configuration: &str| DirectJob {
        air: air(networks),
        set_up: set_up(&transfers, configuration),
        ..DirectJob::new(networks.to_vec(), way, script(networks))
    };
    let mut laboratory = Laboratory::open(seed)?;
    for (metric, value) in [
        (RATE_SCALE, links.scale()),
        ("paper.overhead_percent", PAPER_OVERHEAD),
        ("paper.saved_percent", PAPER_SAVED),
    ] {
        laboratory.put(metric, value);
    }
    let plain = measure(&mut laboratory, "plain", job(&both[..1], Way::Plain, ""), &transfers)?;
    let direct = measure(&mut laboratory, "direct", job(&both[..1], Way::Direct, ""), &transfers)?;
    put_overhead(&mut laboratory, &plain, &direct)?;

    let never = "power_saving_below = 0\ncheapest_below = 0\n";
    let spread = measure(&mut laboratory, "spread", job(&both, Way::Direct, never), &transfers)?;
    for card in SLOW_CARDS {
        let cards = format!("[network.g]\ncard = \"{FAST_CARD}\"\n[network.b]\ncard = \"{card}\"\n");
        let saving = measure(&mut laboratory, card, job(&both, Way::Direct, &cards), &transfers)?;
        put_saving(&mut laboratory, card, &spread, &saving)?;
    }
    Ok(laboratory.report)
}

/// What a run showed.
struct Measured {
    counters: CountersReport,
    median_seconds: f64,
    /// Of the processor's time.
    busy: f64,
}

fn measure(
    laboratory: &mut Laboratory,
    name: &str,
    job: DirectJob,
    transfers: &[Transfer],
) -> anyhow::Result<Measured> {
    let answers = laboratory.run(name, job)?;
    let reports: Vec<TransferReport> = answers.read("transfers")?;
    let is_whole = |(report, transfer): (&TransferReport, &Transfer)| {
        report.transfer == *transfer && report.bytes == transfer.bytes
    };
    anyhow::ensure!(
        reports.len() == transfers.len() && reports.iter().zip(transfers).all(is_whole),
        "not all bytes arrived in \"{name}\""
    );
    let mut times: Vec<f64> = reports.iter().map(|report| report.seconds).collect();
    times.sort_by(f64::total_cmp);
    let median_seconds = *times.get(times.len() / 2).context("no transfers")?;
    laboratory.put(&format!("{name}.median_ms"), median_seconds * 1e3);
    laboratory.put(&format!("{name}.mean_ms"), times.iter().sum::<f64>() / times.len() as f64 * 1e3);
    let counters: CountersReport = answers.read("counters")?;
    for (network, moved) in &counters.moved {
        let bytes: u64 = moved.iter().map(|moved| moved.sent + moved.received).sum();
        laboratory.put(&format!("{name}.{network}_megabytes"), bytes as f64 / 1e6);
    }
    Ok(Measured { counters, median_seconds, busy: 1.0 - answers.processor_idle })
}

/// Energy of the card of one network in a run, joules.
fn energy(run: &Measured, network: &str, card: &str) -> anyhow::Result<f64> {
    let model = Card::by_name(card).with_context(|| format!("there is no card {card}"))?.model;
    let interval = Duration::from_millis(run.counters.interval_ms);
    let mut meter = CardMeter::new(model);
    let mut moved = run.counters.moved.get(network).into_iter().flatten().peekable();
    for number in 0..run.counters.intervals {
        let now = moved.next_if(|moved| moved.interval == number);
        let bytes = now.map_or((0, 0), |moved| (moved.sent, moved.received));
        let transfer = policy::energy::Transfer { sent: Bytes(bytes.0), received: Bytes(bytes.1) };
        meter.on_interval(interval, transfer);
    }
    Ok(meter.used().0)
}

fn put_overhead(laboratory: &mut Laboratory, plain: &Measured, direct: &Measured) -> anyhow::Result<()> {
    let seconds = (SECONDS + AFTERWARDS) as f64;
    let processor = |run: &Measured| run.busy * INSTRUCTIONS * INSTRUCTION_NANOJOULES / 1e9 * seconds;
    let cards = (energy(plain, "g", FAST_CARD)?, energy(direct, "g", FAST_CARD)?);
    laboratory.put("plain.card_joules", cards.0);
    laboratory.put("direct.card_joules", cards.1);
    laboratory.put("plain.processor_joules", processor(plain));
    laboratory.put("direct.processor_joules", processor(direct));
    let added = cards.1 - cards.0 + processor(direct) - processor(plain);
    laboratory.put("overhead.joules", added);
    laboratory.put("overhead.of_laptop_percent", added / LAPTOP_JOULES * 100.0);
    laboratory.put("overhead.of_card_percent", (cards.1 / cards.0 - 1.0) * 100.0);
    Ok(())
}

fn put_saving(
    laboratory: &mut Laboratory,
    card: &str,
    spread: &Measured,
    saving: &Measured,
) -> anyhow::Result<()> {
    let of =
        |run: &Measured| Ok::<f64, anyhow::Error>(energy(run, "g", FAST_CARD)? + energy(run, "b", card)?);
    let (without, with) = (of(spread)?, of(saving)?);
    laboratory.put(&format!("{card}.joules_without"), without);
    laboratory.put(&format!("{card}.joules_with"), with);
    laboratory.put(&format!("{card}.saved_percent"), (1.0 - with / without) * 100.0);
    laboratory.put(&format!("{card}.saved_of_laptop_percent"), (without - with) / LAPTOP_JOULES * 100.0);
    laboratory.put(&format!("{card}.median_time_ratio"), saving.median_seconds / spread.median_seconds);
    Ok(())
}

/// The mixed traffic, in order of time.
fn transfers(seed: u64) -> Vec<Transfer> {
    let mut random = SeededRandom::derive(seed, "mixed traffic");
    let mut all = Vec::new();
    let mut between = |low: u64, high: u64| random.between(low as f64, high as f64) as u64;
    for page in (0..SECONDS).step_by(20) {
        let begin = page * 1_000 + between(0, 3_000);
        for _ in 0..10 {
            let (at_ms, bytes) = (begin + between(0, 1_500), between(8_000, 120_000));
            all.push(Transfer { at_ms, bytes, upload: false });
        }
    }
    let sent = |at: u64, bytes| Transfer { at_ms: at * 1_000, bytes, upload: true };
    all.extend((0..SECONDS).step_by(7).map(|at| sent(at, 2_000)));
    all.extend((30..SECONDS).step_by(60).map(|at| sent(at, 300_000)));
    all.extend([100, 300, 480].map(|at| Transfer { at_ms: at * 1_000, bytes: 8_000_000, upload: false }));
    all.sort_by_key(|transfer| transfer.at_ms);
    all
}

/// Writes the list of transfers, the configuration and a battery that is almost empty.
fn set_up(transfers: &[Transfer], configuration: &str) -> String {
    let mut text = String::from("cat >/tmp/transfers <<'END'\n[");
    for (number, transfer) in transfers.iter().enumerate() {
        let Transfer { at_ms, bytes, upload } = transfer;
        let comma = if number > 0 { ",\n" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{{\"at_ms\":{at_ms},\"bytes\":{bytes},\"upload\":{upload}}}");
    }
    text += "]\nEND\nmkdir -p /tmp/supplies/BAT0\n";
    for (file, value) in
        [("type", "Battery"), ("status", "Discharging"), ("capacity", BATTERY.to_string().as_str())]
    {
        text += &format!("echo {value} >/tmp/supplies/BAT0/{file}\n");
    }
    text + &format!("cat >/tmp/more.toml <<'END'\n{configuration}END\n")
}

/// Every network is used for a while first, as a choice by energy needs their figures; then cards come to rest.
fn script(networks: &[NetworkSpec]) -> String {
    let names: Vec<&str> = networks.iter().map(|network| network.name).collect();
    let length = SECONDS + AFTERWARDS;
    format!(
        "fetch first --flows 4 --seconds 5
sleep 20
head -1 /proc/stat >/results/before
traffic counters {} --interval-ms {INTERVAL_MS} --seconds {length} --json /results/counters &
counters=$!
traffic transfers {SERVER_ADDRESS}:9000 /tmp/transfers --json /results/transfers || fail transfers
wait $counters || fail counters
",
        names.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Moved;
    use std::collections::BTreeMap;

    /// By hand, with wifi-2012: 20 ms active with 1 Mbit received, the tail of 238.1 ms, then nothing: 124.4 mW * 79.1 ms +
    /// 132.86 mW * 20 ms + 137.01 nJ * 1 Mbit + 119.3 mW * 238.1 ms.
    #[test]
    fn energy_follows_from_the_counters() {
        let moved = vec![Moved { interval: 3, sent: 0, received: 125_000 }];
        let counters = CountersReport {
            interval_ms: INTERVAL_MS,
            intervals: 100,
            moved: BTreeMap::from([("g".to_owned(), moved)]),
        };
        let run = Measured { counters, median_seconds: 1.0, busy: 0.0 };
        let by_hand = 0.124_4 * 0.079_1 + 0.132_86 * 0.02 + 0.137_01 + 0.119_3 * 0.238_1;
        assert!((energy(&run, "g", FAST_CARD).unwrap() - by_hand).abs() < 1e-9);
        assert_eq!(energy(&run, "b", FAST_CARD).unwrap(), 0.0, "idle listening is left out of this card");
        assert!(energy(&run, "g", "none").is_err());
    }

    #[test]
    fn the_traffic_is_the_same_for_a_seed() {
        let all = transfers(1);
        assert_eq!(all, transfers(1));
        assert_ne!(all, transfers(2));
        assert_eq!(all.len(), 300 + 86 + 10 + 3);
        assert!(all.iter().all(|transfer| transfer.at_ms < SECONDS * 1_000));
        let text = set_up(&all, "");
        let list = text.split_once("'END'\n").and_then(|(_, text)| text.split_once("\nEND")).unwrap().0;
        assert_eq!(serde_json::from_str::<Vec<Transfer>>(list).unwrap(), all);
    }
}
