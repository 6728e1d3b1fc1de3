//! JUGGLER table 1, upper half: how long one radio takes from one access point to another, and of what that time consists.

use super::id;
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::simbed::quantile;
use crate::vm::air::{Air, Radios};
use crate::vm::direct::{Answers, DirectJob, Way};
use anyhow::Context;
use sim::NetworkSpec;

/// Changes of channel in each case: ten thousand in all.
const SWITCHES: usize = 3_400;
const SLOT_MS: u32 = 100;
/// What the card takes for a change of channel, in microseconds, and the paper's mean for a switch with that card, in milliseconds.
const CASES: [(u32, Option<f64>); 3] = [(0, None), (400, None), (3_000, Some(3.328))];
/// The paper's mean for a switch between access points on one channel.
const PAPER_SAME_MS: f64 = 0.381;
const RATE_MBPS: f64 = 30.0;
const ROUND_TRIP_MS: u64 = 10;
const DOWNLOAD_SECONDS: u32 = 5;
/// As many on one channel, in turns, with the second network and without: rates are tried at random.
const DOWNLOADS: u32 = 6;
/// The device's radio, counted from 0 after those of the access points.
const DEVICE: u64 = 2;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "radio".into(),
        format!("one, in turns of {SLOT_MS} ms in two open networks, otherwise idle").into(),
    );
    spec.insert("access_points".into(), "hostapd on channels 1 and 11; on 6 and 6".into());
    spec.insert("switches".into(), (SWITCHES as i64).into());
    spec.insert(
        "channel_cost_us".into(),
        CASES.map(|(cost, _)| toml::Value::from(i64::from(cost))).to_vec().into(),
    );
    spec.insert(
        "own".into(),
        "from the end of a slot until the card is on the other channel, less what the card takes for the channel, less the time from the \
         moment that the air has our null frame until its acknowledgement is over"
            .into(),
    );
    spec.insert(
        "overhead".into(),
        format!(
            "switch and null frame of the arrival, over {SLOT_MS} ms; on one channel what {DOWNLOADS} downloads of {DOWNLOAD_SECONDS} s lose by the radio's being in the second network too"
        )
        .into(),
    );
    let mut goals = Vec::new();
    let mut bars = Vec::new();
    for (cost, paper) in CASES {
        goals.push(Goal::at_most(format!("cost_{cost}.own.p50_ms"), 0.1));
        goals.push(Goal::at_most(format!("cost_{cost}.own.p99_ms"), 0.5));
        let mut group: Vec<(String, String)> = Vec::new();
        group.extend(paper.map(|_| ("paper".to_owned(), format!("paper.cost_{cost}_ms"))));
        group.extend(
            [("all", "total"), ("card", "channel"), ("air", "air"), ("own", "own")]
                .map(|(label, part)| (label.to_owned(), format!("cost_{cost}.{part}.mean_ms"))),
        );
        bars.push(BarGroup { label: format!("card {} ms", f64::from(cost) / 1e3), bars: group });
    }
    goals.push(Goal::at_most("same_channel.overhead_percent", 1.0));
    Experiment {
        id: id("table1-switch"),
        title: "the time from one access point to another with one radio, and its parts".to_owned(),
        spec,
        paper: Some(
            "table 1: 3.328 ms to an access point on another channel, of which the card takes 3 ms, 0.381 ms on the same channel"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars,
        unit: "ms",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    for (cost, paper) in CASES {
        let name = format!("cost_{cost}");
        // Slots end early where group traffic is due elsewhere, never late.
        let seconds = SWITCHES as f64 * (f64::from(SLOT_MS) + f64::from(cost) / 1e3 + 0.5) / 1e3;
        let arguments = format!("--slot {SLOT_MS} --alpha 0 --channel-cost {cost} --trace /results/switches");
        let air = Air { partings: true, ..Air::shared(&[1, 11], arguments) };
        let job = DirectJob {
            air: Some(air),
            ..DirectJob::new(networks(), Way::Plain, format!("{COUNT}sleep {seconds}\n"))
        };
        let answers = laboratory.run(&name, job)?;
        put_parts(&mut laboratory, &name, &answers)?;
        if let Some(paper) = paper {
            laboratory.put(&format!("paper.{name}_ms"), paper);
        }
    }
    put_same_channel(&mut laboratory)?;
    Ok(laboratory.report)
}

fn networks() -> Vec<NetworkSpec> {
    ["a", "b"].map(|name| NetworkSpec::symmetric(name, RATE_MBPS, ROUND_TRIP_MS)).into()
}

/// On one channel nothing is switched: what is left is what being in a second network takes from a download in the first.
fn put_same_channel(laboratory: &mut Laboratory) -> anyhow::Result<()> {
    for (name, joined) in [("same_channel_one", 1), ("same_channel", 2)] {
        let arguments = format!("--slot {SLOT_MS} --alpha 0 --trace /results/switches");
        let radios = Radios::Shared { arguments, weights: vec![1; joined] };
        let air = Air { radios, partings: true, ..Air::shared(&[6, 6], "") };
        let downloads = (1..=DOWNLOADS)
            .map(|at| format!("fetch flow-{at} --seconds {DOWNLOAD_SECONDS} --interface a\nsleep 1\n"));
        let script = COUNT.to_owned() + &downloads.collect::<String>();
        let job = DirectJob { air: Some(air), ..DirectJob::new(networks(), Way::Plain, script) };
        let answers = laboratory.run(name, job)?;
        let mut rates = Vec::new();
        for at in 1..=DOWNLOADS {
            rates.push(laboratory.goodput(&answers, &format!("flow-{at}"), &format!("{name}.mbps_{at}"))?);
        }
        laboratory.put(&format!("{name}.mbps"), rates.iter().sum::<f64>() / f64::from(DOWNLOADS));
        laboratory.put(&format!("{name}.changes_of_channel"), switches(&answers)?.len() as f64);
        let asleep = partings(&answers)?.iter().filter(|parting| parting.asleep).count();
        laboratory.put(&format!("{name}.partings"), asleep as f64);
    }
    let ratio = laboratory.metric("same_channel.mbps") / laboratory.metric("same_channel_one.mbps");
    laboratory.put("same_channel.overhead_percent", (1.0 - ratio) * 100.0);
    laboratory.put("paper.same_channel_ms", PAPER_SAME_MS);
    Ok(())
}

/// Keeps how many changes of channel it took to find the networks.
const COUNT: &str = "wc -l </results/switches >/results/before-switches\n";

/// A change of channel as the radio's trace has it, in milliseconds.
struct Switch {
    begun: f64,
    asleep: f64,
    asked: f64,
    tuned: f64,
}

/// A null frame of the device as the medium has it, in milliseconds.
struct Parting {
    asleep: bool,
    taken: f64,
    ended: f64,
    told: f64,
}

/// Puts the parts of the first [`SWITCHES`] changes.
fn put_parts(laboratory: &mut Laboratory, name: &str, answers: &Answers) -> anyhow::Result<()> {
    let mut switches = switches(answers)?;
    switches.truncate(SWITCHES);
    anyhow::ensure!(switches.len() == SWITCHES, "{name}: only {} changes of channel", switches.len());
    let partings = partings(answers)?;
    let (mut next, mut unconfirmed) = (0, 0);
    let mut parts: [Vec<f64>; 6] = Default::default();
    for switch in &switches {
        while partings.get(next).is_some_and(|parting| parting.taken < switch.begun) {
            next += 1;
        }
        let own = partings[next..].iter().take_while(|parting| parting.taken < switch.asleep);
        let leaving: Vec<&Parting> = own.filter(|parting| parting.asleep).collect();
        let arrival =
            partings[next..].iter().find(|parting| !parting.asleep && parting.taken >= switch.tuned);
        unconfirmed += usize::from(leaving.is_empty());
        let total = switch.tuned - switch.begun;
        let channel = switch.tuned - switch.asked;
        let air: f64 = leaving.iter().map(|parting| parting.ended - parting.taken).sum();
        let medium: f64 = leaving.iter().map(|parting| parting.told - parting.ended).sum();
        let waking = arrival.map_or(0.0, |parting| parting.told - switch.tuned);
        for (part, time) in parts.iter_mut().zip([total, channel, air, total - channel - air, medium, waking])
        {
            part.push(time);
        }
    }
    laboratory.put(&format!("{name}.without_null_frame"), unconfirmed as f64);
    for (part, times) in ["total", "channel", "air", "own", "own_in_medium", "waking"].iter().zip(&parts) {
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        laboratory.put(&format!("{name}.{part}.mean_ms"), mean);
        for (rank, fraction) in [("p50", 0.5), ("p99", 0.99)] {
            let value = quantile(times, fraction).context("no times")?;
            laboratory.put(&format!("{name}.{part}.{rank}_ms"), value);
        }
    }
    let spent = laboratory.metric(&format!("{name}.total.mean_ms"))
        + laboratory.metric(&format!("{name}.waking.mean_ms"));
    laboratory.put(&format!("{name}.overhead_percent"), spent / f64::from(SLOT_MS) * 100.0);
    Ok(())
}

/// The changes of channel since the networks were found.
fn switches(answers: &Answers) -> anyhow::Result<Vec<Switch>> {
    // With the line of names.
    let before: usize = answers.text("before-switches")?.trim().parse().context("reading before-switches")?;
    let read = |line: Vec<u64>| match line[..] {
        [begun, asleep, asked, tuned] => Ok(Switch {
            begun: milliseconds(begun),
            asleep: milliseconds(asleep),
            asked: milliseconds(asked),
            tuned: milliseconds(tuned),
        }),
        _ => anyhow::bail!("a line of the trace has not 4 numbers"),
    };
    lines(answers, "switches")?.into_iter().skip(before - 1).map(read).collect()
}

/// The device's null frames.
fn partings(answers: &Answers) -> anyhow::Result<Vec<Parting>> {
    let mut partings = Vec::new();
    for line in lines(answers, "partings")? {
        let [radio, asleep, taken, ended, told, _] = line[..] else {
            anyhow::bail!("a line of the medium has not 6 numbers");
        };
        if radio == DEVICE {
            let (taken, ended, told) = (milliseconds(taken), milliseconds(ended), milliseconds(told));
            partings.push(Parting { asleep: asleep == 1, taken, ended, told });
        }
    }
    Ok(partings)
}

/// The numbers of a file of comma-separated numbers with a line of names.
fn lines(answers: &Answers, file: &str) -> anyhow::Result<Vec<Vec<u64>>> {
    let text = answers.text(file)?;
    let numbers = |line: &str| line.split(',').map(str::parse).collect::<Result<Vec<u64>, _>>();
    text.lines().skip(1).map(numbers).collect::<Result<_, _>>().with_context(|| format!("reading {file}"))
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}
