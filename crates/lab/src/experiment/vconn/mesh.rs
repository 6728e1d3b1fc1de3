//! VCONN/mesh: what finding ways costs, how long it takes, and how ways heal.
//!
//! Three settings of [`sim::meadow`], all with the programs' own signatures:
//! - 500 people who walk, at four densities, searches between pairs drawn by chance; with requests kept back where others have passed them on, and with every
//!   relay passing every request on as in RFC 3561;
//! - five in a row: how long a search over four hops takes, in round trips of that way;
//! - two ways of four hops: a relay of the one in use dies; or one of them drops all data and makes itself look near.

use std::time::Duration;

use ::mesh::{Relaying, Settings, Signer};
use identity::{KeyPair, PublicKey};
use sim::SeededRandom;
use sim::meadow::{Conduct, Meadow, MeadowSpec, TWO_WAYS};
use wire::mesh::{Node, Signature};

use super::id;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const NODES: usize = 500;
const RANGE_METRES: f64 = 100.0;
const METRES_A_SECOND: f64 = 1.5;
const LOSS: f64 = 0.02;
/// Mean number of others that each hears.
const DENSITIES: [u32; 4] = [10, 20, 40, 80];
const WARM_UP: Duration = Duration::from_secs(40);
const SEARCHES: usize = 20;
const SEARCH_INTERVAL: Duration = Duration::from_secs(2);
/// Of the searches that could find somebody.
const LEAST_FOUND: f64 = 0.95;
/// Control messages that a node sends at the greatest of the densities, over those at the least.
const FLAT: f64 = 1.1;
const ROUND_TRIPS: f64 = 4.0;
const HEALED_MS: f64 = 1_000.0;
/// Chains and pairs of ways, each with a seed of its own.
const TRIALS: u64 = 20;
pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("nodes".into(), (NODES as i64).into());
    spec.insert("range_m".into(), RANGE_METRES.into());
    spec.insert("walk_m_per_s".into(), METRES_A_SECOND.into());
    spec.insert("frame_loss".into(), LOSS.into());
    spec.insert(
        "mean_neighbours".into(),
        DENSITIES.map(|density| toml::Value::from(i64::from(density))).to_vec().into(),
    );
    spec.insert("searches".into(), format!("{SEARCHES}, one every {} s", SEARCH_INTERVAL.as_secs()).into());
    spec.insert("air".into(), "one channel, 6 Mbit/s, 802.11g timing, hidden nodes collide".into());
    let mut goals = vec![
        Goal::at_most("four_hops.median_round_trips", ROUND_TRIPS),
        Goal::at_most("relay_dies.longest_gap_ms", HEALED_MS),
        Goal::at_most("black_hole.longest_gap_ms", HEALED_MS),
        Goal::at_most("suppressed.sent_densest_over_sparsest", FLAT),
    ];
    goals.extend(DENSITIES.map(|density| Goal::at_least(format!("suppressed.{density}.found"), LEAST_FOUND)));
    let group = |label: &str, metric: &str| BarGroup {
        label: label.to_owned(),
        bars: KINDS
            .iter()
            .flat_map(|kind| {
                DENSITIES.map(|density| (format!("{kind} {density}"), format!("{kind}.{density}.{metric}")))
            })
            .collect(),
    };
    Experiment {
        id: id("mesh"),
        title: "500 people with radios, at densities of 10 to 80 neighbours: what finding ways costs each of them".to_owned(),
        spec,
        paper: Some("a third device relays between two that share no adapter (figure 1b); no figures".to_owned()),
        goals,
        beds: vec![Bed::Sim],
        bars: vec![group("requests that each node sends in a search", "requests_per_search")],
        unit: "messages",
        axes: Axes::default(),
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

/// Requests kept back where enough were heard, and not.
const KINDS: [&str; 2] = ["suppressed", "flooded"];

fn run(seed: u64) -> anyhow::Result<Report> {
    let keys = (0..NODES).map(key_of).collect::<anyhow::Result<Vec<KeyPair>>>()?;
    let mut metrics = Metrics::new();
    let mut note = |name: String, value: f64| {
        metrics.insert(name, (value * 1e4).round() / 1e4);
    };
    for kind in KINDS {
        let (mut sent, mut heard) = (Vec::new(), Vec::new());
        for density in DENSITIES {
            let outcome = crowd(&keys, density, kind == "flooded", seed);
            sent.push(outcome.sent_per_second);
            heard.push(outcome.heard_per_second);
            for (metric, value) in [
                ("found", outcome.found),
                ("neighbours", outcome.neighbours),
                ("sent_per_second", outcome.sent_per_second),
                ("bytes_per_second", outcome.bytes_per_second),
                ("heard_per_second", outcome.heard_per_second),
                ("requests_per_search", outcome.requests_per_search),
                ("median_ms", outcome.median_ms),
            ] {
                note(format!("{kind}.{density}.{metric}"), value);
            }
        }
        for (what, rates) in [("sent", sent), ("heard", heard)] {
            if let [first, .., last] = rates[..] {
                note(format!("{kind}.{what}_densest_over_sparsest"), last / first);
            }
        }
    }
    note("four_hops.median_round_trips".to_owned(), four_hops(&keys, seed));
    note("relay_dies.longest_gap_ms".to_owned(), longest_gap(&keys, seed, Conduct::Dead));
    note("black_hole.longest_gap_ms".to_owned(), longest_gap(&keys, seed, Conduct::BlackHole));
    Ok(Report { metrics, ..Report::default() })
}

/// What a crowd showed; rates are of each node.
struct Crowd {
    found: f64,
    neighbours: f64,
    sent_per_second: f64,
    bytes_per_second: f64,
    heard_per_second: f64,
    requests_per_search: f64,
    median_ms: f64,
}

fn crowd(keys: &[KeyPair], density: u32, floods: bool, seed: u64) -> Crowd {
    let mut random = SeededRandom::derive(seed, "crowd");
    let area = NODES as f64 * std::f64::consts::PI * RANGE_METRES * RANGE_METRES / f64::from(density);
    let side = area.sqrt();
    let positions = (0..NODES).map(|_| (random.between(0.0, side), random.between(0.0, side))).collect();
    let settings = if floods { Settings { enough_copies: None, ..relaying() } } else { relaying() };
    let mut meadow = meadow(keys, positions, METRES_A_SECOND, &settings, seed);
    meadow.run(WARM_UP);
    let before = meadow.control_traffic();
    let mut possible = Vec::new();
    while possible.len() < SEARCHES {
        let mut draw = || (random.unit() * NODES as f64) as usize;
        let (from, to) = (draw(), draw());
        // Neighbours are called directly.
        if meadow.distance(from, to).is_none_or(|hops| hops < 2) {
            continue;
        }
        possible.push(meadow.searches().len());
        meadow.find(from, to);
        meadow.run(SEARCH_INTERVAL);
        meadow.release(from, to);
    }
    let after = meadow.control_traffic();
    let seconds = SEARCH_INTERVAL.as_secs_f64() * SEARCHES as f64;
    let per_second = |count: u64| count as f64 / seconds / NODES as f64;
    let mut times: Vec<f64> = possible
        .iter()
        .filter_map(|at| meadow.searches().get(*at)?.found)
        .map(|(took, _)| took.as_secs_f64() * 1e3)
        .collect();
    Crowd {
        found: times.len() as f64 / SEARCHES as f64,
        neighbours: meadow.mean_neighbours(),
        sent_per_second: per_second(after.sent - before.sent),
        bytes_per_second: per_second(after.bytes_sent - before.bytes_sent),
        heard_per_second: per_second(after.heard - before.heard),
        requests_per_search: (after.requests_sent - before.requests_sent) as f64 / (SEARCHES * NODES) as f64,
        median_ms: median(&mut times),
    }
}

/// Median of how long a search over four hops takes, in round trips of the way.
fn four_hops(keys: &[KeyPair], seed: u64) -> f64 {
    let mut ratios: Vec<f64> = (0..TRIALS)
        .filter_map(|trial| {
            let positions = (0..5).map(|at| (f64::from(at) * 80.0, 0.0)).collect();
            let mut meadow = meadow(keys, positions, 0.0, &relaying(), seed * 1_000 + trial);
            meadow.run(Duration::from_secs(12));
            let conversation = meadow.talk(0, 4);
            meadow.run(Duration::from_secs(2));
            let (took, _) = meadow.searches().first()?.found?;
            let mut times: Vec<f64> =
                meadow.told(conversation).round_trips.iter().map(Duration::as_secs_f64).collect();
            Some(took.as_secs_f64() / median(&mut times))
        })
        .collect();
    if ratios.len() < TRIALS as usize { f64::NAN } else { median(&mut ratios) }
}

/// The longest time without an answer, of all trials, after a relay in use has begun to behave so.
fn longest_gap(keys: &[KeyPair], seed: u64, conduct: Conduct) -> f64 {
    let gaps = (0..TRIALS).map(|trial| {
        let mut meadow = meadow(keys, TWO_WAYS.to_vec(), 0.0, &relaying(), seed * 1_000 + trial);
        meadow.run(Duration::from_secs(12));
        let conversation = meadow.talk(0, 4);
        meadow.run(Duration::from_secs(3));
        if let Some(relay) = meadow.relays_between(0, 4).get(trial as usize % 3) {
            meadow.set_conduct(*relay, conduct);
        }
        meadow.run(Duration::from_secs(5));
        meadow.told(conversation).longest_gap.as_secs_f64() * 1e3
    });
    gaps.fold(0.0, f64::max)
}

fn relaying() -> Settings {
    Settings { relaying: Some(Relaying::default()), ..Settings::default() }
}

fn meadow(
    keys: &[KeyPair],
    positions: Vec<(f64, f64)>,
    speed: f64,
    settings: &Settings,
    seed: u64,
) -> Meadow {
    let spec = MeadowSpec { positions, range: RANGE_METRES, loss: LOSS, speed, seed };
    Meadow::new(spec, settings, |index| {
        // There are as many keys as nodes at most.
        let pair = keys[index % keys.len()].clone();
        (Node { key: pair.public().0, port: 4_612 }, Box::new(Key(pair)))
    })
}

fn key_of(index: usize) -> anyhow::Result<KeyPair> {
    let mut private = [7; 32];
    private[..8].copy_from_slice(&(index as u64).to_be_bytes());
    Ok(KeyPair::from_private(private)?)
}

/// Signs as the programs do.
struct Key(KeyPair);

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(wire::mesh::PURPOSE, message))
    }

    fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
        PublicKey(*key).has_signed(wire::mesh::PURPOSE, message, &signature.0)
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
