//! LINKALIKE/real: some of the 200 neighbourhoods with the real programs and frames of 802.11b, beside what the simulator says.

use sim::neighbourhood::{CHUNK, NeighbourhoodSpec, RATES, Transfer, carried_bytes};
use upload::Settings;

use super::capacity::neighbourhood_bound;
use super::strategies::{chunk_rate, medium_rate, neighbourhoods, uplinks};
use super::{id, quantile};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::vm::homes::{HomesJob, HomesOutcome};

/// Every twentieth of the file from the seventh on, counted from 1: chosen before the first run.
const CHOSEN: [usize; 10] = [7, 27, 47, 67, 87, 107, 127, 147, 167, 187];
/// So long the file takes at the bound.
const SECONDS: f64 = 30.0;
/// How far from the simulator a run may be.
const AGREEMENT: f64 = 0.15;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "neighbourhoods".into(),
        "experiments/LINKALIKE/neighbourhoods.txt: every 20th from the 7th on".into(),
    );
    spec.insert("programs".into(), "anabranch accept, share and upload --air-rates 1,2,5.5,11".into());
    spec.insert(
        "air".into(),
        "802.11b by mac80211_hwsim, cards in monitor mode; lost per link and rate as the file says".into(),
    );
    spec.insert("uplinks".into(), "tbf and netem as the file says, own uplink too".into());
    spec.insert("file".into(), format!("as much as the bound carries in {SECONDS} s").into());
    spec.insert("time".into(), "from the command's start to its end".into());
    let bars = CHOSEN.map(|number| BarGroup {
        label: number.to_string(),
        bars: ["real", "sim", "bound"]
            .map(|name| (name.to_owned(), format!("n{number}.{name}_kbps")))
            .to_vec(),
    });
    Experiment {
        id: id("real"),
        title: "ten of the 200 neighbourhoods with the real programs and frames, beside the simulator and the bound".to_owned(),
        spec,
        paper: Some("section VI: a testbed with 802.11b; figures 4 and 5 for the 200, not for single ones".to_owned()),
        goals: vec![Goal::at_least("within_15_percent", 1.0)],
        beds: vec![Bed::Vm],
        bars: bars.to_vec(),
        unit: "kbit/s of the file",
        axes: Axes { over: Some("kbit/s of one home in the simulator"), unit: Some("kbit/s of the same home, real") },
        runner: Box::new(|_, seed| run(seed)),
    }
}

/// Kilobits of the file a second, by home; the source's own uplink first.
struct Rates {
    whole: f64,
    homes: Vec<f64>,
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let list = neighbourhoods()?;
    let mut laboratory = Laboratory::open(seed)?;
    let (mut over_sim, mut over_bound, mut over_homes) = (Vec::new(), Vec::new(), Vec::new());
    let mut series = [("own uplinks", Vec::new()), ("neighbours", Vec::new())];
    for number in CHOSEN {
        let Some(neighbourhood) = list.get(number - 1) else { continue };
        let bound = bound(neighbourhood)?;
        let chunks = (bound * SECONDS).ceil() as u32;
        let simulated = simulated(neighbourhood, chunks, seed)?;
        let job = HomesJob { neighbourhood: neighbourhood.clone(), chunks, seed, meanwhile: String::new() };
        let name = format!("n{number}");
        let answers = laboratory.run_job(&name, job.job()?)?;
        let outcome = HomesOutcome::of(&answers, neighbourhood.neighbours.len())?;
        let real = measured(&outcome, chunks);
        for (metric, value) in [("real", real.whole), ("sim", simulated.whole), ("bound", kbps(bound))] {
            laboratory.put(&format!("{name}.{metric}_kbps"), value);
        }
        laboratory.put(&format!("{name}.over_sim"), real.whole / simulated.whole);
        laboratory.put(&format!("{name}.over_bound"), real.whole / kbps(bound));
        laboratory.put(
            &format!("{name}.wire_over_file"),
            wire_bytes(&outcome) / (f64::from(chunks) * CHUNK.0 as f64),
        );
        over_sim.push(real.whole / simulated.whole);
        over_bound.push(real.whole / kbps(bound));
        for (home, (real, sim)) in real.homes.iter().zip(&simulated.homes).enumerate() {
            laboratory.put(&format!("{name}.home{home}.real_kbps"), *real);
            laboratory.put(&format!("{name}.home{home}.sim_kbps"), *sim);
            series[usize::from(home > 0)].1.push((*sim, *real));
            // Of a home that carries next to nothing a ratio says nothing.
            if *sim >= 0.01 * simulated.whole {
                over_homes.push(real / sim);
            }
        }
    }
    let apart = |ratios: &[f64]| ratios.iter().map(|ratio| (ratio - 1.0).abs()).collect::<Vec<_>>();
    let within = apart(&over_sim).iter().filter(|apart| **apart <= AGREEMENT).count();
    laboratory.put("within_15_percent", within as f64 / over_sim.len().max(1) as f64);
    laboratory.put("over_sim.median", quantile(&over_sim, 0.5));
    laboratory.put("over_sim.least", quantile(&over_sim, 0.0));
    laboratory.put("over_sim.most", quantile(&over_sim, 1.0));
    laboratory.put("over_bound.median", quantile(&over_bound, 0.5));
    laboratory.put("over_bound.least", quantile(&over_bound, 0.0));
    laboratory.put("homes.over_sim.median", quantile(&over_homes, 0.5));
    laboratory.put("homes.apart.median", quantile(&apart(&over_homes), 0.5));
    laboratory.put("homes.apart.worst", quantile(&apart(&over_homes), 1.0));
    laboratory.put("sim.wire_over_file", carried_bytes().0 as f64 / CHUNK.0 as f64);
    for (name, mut points) in series {
        points.sort_by(|one: &(f64, f64), other| one.0.total_cmp(&other.0));
        laboratory.report.series.push((name.to_owned(), points));
    }
    Ok(laboratory.report)
}

/// Chunks a second at the best of the bit rates.
fn bound(spec: &NeighbourhoodSpec) -> anyhow::Result<f64> {
    let each = uplinks(spec);
    let bounds = (0..RATES.len()).map(|rate| neighbourhood_bound(spec, rate, medium_rate(rate), &each));
    let best = bounds.collect::<anyhow::Result<Vec<_>>>()?.into_iter().fold(0.0, f64::max);
    Ok(chunk_rate(&spec.own) + best)
}

fn simulated(spec: &NeighbourhoodSpec, chunks: u32, seed: u64) -> anyhow::Result<Rates> {
    let outcome = Transfer::new(spec.clone(), Settings::default(), chunks, seed).run();
    let took =
        outcome.took.ok_or_else(|| anyhow::anyhow!("the simulated transfer did not end"))?.as_secs_f64();
    let own = std::iter::once(outcome.own_chunks);
    let carried = own.chain(outcome.neighbours.iter().map(|report| report.brought));
    let homes = carried.map(|chunks| kbps(f64::from(chunks) / took)).collect();
    Ok(Rates { whole: kbps(f64::from(chunks) / took), homes })
}

fn measured(outcome: &HomesOutcome, chunks: u32) -> Rates {
    let whole = kbps(f64::from(chunks) / outcome.took);
    Rates { whole, homes: outcome.parts.iter().map(|part| part * whole).collect() }
}

fn kbps(chunks_per_second: f64) -> f64 {
    chunks_per_second * CHUNK.0 as f64 * 8.0 / 1e3
}

/// What all uplinks carried, headers and repeats included.
fn wire_bytes(outcome: &HomesOutcome) -> f64 {
    let (first, last) = (outcome.on_the_wire.first(), outcome.on_the_wire.last());
    let sum = |sample: Option<&(f64, Vec<f64>)>| sample.map_or(0.0, |(_, bytes)| bytes.iter().sum());
    sum(last) - sum(first)
}
