//! MULTIAP section 7.1: one to ten radios, each with an access point on three channels, and no word between them.

use std::time::Duration;

use radio::slots::SlotSettings;

use super::switching_air::{CHANGE_OF_CHANNEL, SwitchingAir};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::jain_index;

const CHANNELS: usize = 3;
/// What each carries, in Mbit/s: the paper's.
const CAPACITY: f64 = 22.0;
const USERS: std::ops::RangeInclusive<usize> = 1..=10;
/// In the plot.
const SHOWN: [usize; 5] = [1, 2, 3, 5, 10];
/// Each with other starts and other chance.
const DRAWS: u64 = 20;
const SETTLING: Duration = Duration::from_secs(20);
const MEASURED: Duration = Duration::from_secs(60);
/// How well they do before they have settled.
const FIRST: Duration = Duration::from_secs(5);
/// The paper's slots are from 67 to 77 ms long: 7 % shorter or longer than their mean.
const PAPER_SPREAD: f64 = 0.07;
/// The paper's figures, by users (`[MULTIAP] section 7.1`).
const PAPER: [(usize, f64); 7] = [(1, 1.0), (2, 0.8), (3, 0.64), (4, 0.7), (5, 0.76), (7, 0.81), (10, 0.87)];

/// Name, settings of the turns, what a change of channel takes, and whether each stays on a channel by chance.
type Way = (&'static str, SlotSettings, Duration, bool);

fn ways() -> [Way; 6] {
    let usual = SlotSettings::default();
    let punctual = SlotSettings { spread: 0.0, ..usual };
    [
        ("even", SlotSettings { alpha: 0.0, ..punctual }, CHANGE_OF_CHANNEL, false),
        ("punctual", punctual, CHANGE_OF_CHANNEL, false),
        ("paper_scheme", SlotSettings { spread: PAPER_SPREAD, ..usual }, Duration::ZERO, false),
        ("random", usual, CHANGE_OF_CHANNEL, true),
        ("ours", usual, CHANGE_OF_CHANNEL, false),
        ("ours_settle", SlotSettings { settle: true, ..usual }, CHANGE_OF_CHANNEL, false),
    ]
}

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "channels".into(),
        format!("{CHANNELS}, {CAPACITY} Mbit/s each, shared evenly by those on it").into(),
    );
    spec.insert("change_of_channel_us".into(), (CHANGE_OF_CHANNEL.as_micros() as i64).into());
    spec.insert(
        "whole".into(),
        format!("what as many channels carry as there are users, {CHANNELS} at most").into(),
    );
    spec.insert("even".into(), "equal slots, cycles of 200 ms, by each one's own clock".into());
    spec.insert("punctual".into(), "eq. 6 with alpha 2, nothing by chance: our radio with --spread 0".into());
    spec.insert(
        "paper_scheme".into(),
        "the paper's rule in this simulation: eq. 6 with alpha 2, slots shorter or longer by chance, 10 ms from the shortest to the longest, changes of channel cost nothing"
            .into(),
    );
    spec.insert(
        "ours".into(),
        "with what changes cost and slots up to 10 % shorter or longer: our radio as it is without options"
            .into(),
    );
    spec.insert("random".into(), "each stays on a channel drawn by chance".into());
    spec.insert("ours_settle".into(), "our radio with --settle".into());
    spec.insert("draws".into(), (DRAWS as i64).into());
    spec.insert("settling_s".into(), (SETTLING.as_secs() as i64).into());
    spec.insert("measured_s".into(), (MEASURED.as_secs() as i64).into());
    let bars = SHOWN.map(|users| BarGroup {
        label: if users == 1 { "1 user".to_owned() } else { format!("{users} users") },
        bars: std::iter::once(("paper", PAPER.iter().any(|(of, _)| *of == users)))
            .chain(ways().map(|(name, ..)| (name, true)))
            .filter(|(_, is_told)| *is_told)
            .map(|(name, _)| (name.to_owned(), format!("{name}.users_{users}")))
            .collect(),
    });
    Experiment {
        id: id("sec71-users"),
        title: "one to ten users with one radio each, access points on three channels, as it is and with --settle: what all receive"
            .to_owned(),
        spec,
        paper: Some("section 7.1: 100, 80, 64, 70, 76, 81 and 87 % with 1, 2, 3, 4, 5, 7 and 10 users".to_owned()),
        goals: ["ours", "ours_settle"]
            .into_iter()
            .flat_map(|way| USERS.map(move |users| Goal::at_least(format!("{way}.users_{users}"), 0.9)))
            .collect(),
        beds: vec![Bed::Sim],
        bars: bars.to_vec(),
        unit: "part of what the channels carry",
        axes: Axes { over: Some("users"), unit: None },
        runner: Box::new(|_bed, seed| Ok(run(seed))),
    }
}

fn run(seed: u64) -> Report {
    let mut metrics: Metrics =
        PAPER.iter().map(|(users, part)| (format!("paper.users_{users}"), *part)).collect();
    let mut series = Vec::new();
    for way in ways() {
        let name = way.0;
        let mut line = Vec::new();
        for users in USERS {
            let draws = draws(way, users, SETTLING, MEASURED, seed);
            let parts = parts(&draws);
            let fairness: Vec<f64> = draws.iter().map(|each| jain_index(each)).collect();
            let worst = parts.iter().copied().fold(f64::INFINITY, f64::min);
            metrics.insert(format!("{name}.users_{users}"), rounded(mean(&parts)));
            metrics.insert(format!("{name}.worst_draw_{users}"), rounded(worst));
            metrics.insert(format!("{name}.fairness_{users}"), rounded(mean(&fairness)));
            line.push((users as f64, mean(&parts)));
        }
        series.push((name.to_owned(), line));
        if way.1.settle {
            for users in USERS {
                let first = mean(&parts(&draws(way, users, Duration::ZERO, FIRST, seed)));
                metrics.insert(format!("{name}.first_{}_s_{users}", FIRST.as_secs()), rounded(first));
            }
        }
    }
    Report { metrics, series, ..Report::default() }
}

/// What each user received in each draw, in Mbit/s.
fn draws(way: Way, users: usize, settling: Duration, measured: Duration, seed: u64) -> Vec<Vec<f64>> {
    let (_, slots, change, stays) = way;
    let draw = |number: u64| {
        let channels = vec![CAPACITY; CHANNELS];
        let seed = seed * 1_000_000 + users as u64 * 1_000 + number;
        SwitchingAir { channels, clients: users, slots, change, stays, settling, measured, seed }.run()
    };
    (0..DRAWS).map(draw).collect()
}

/// Of what as many channels carry as there are users.
fn parts(draws: &[Vec<f64>]) -> Vec<f64> {
    let part = |each: &Vec<f64>| each.iter().sum::<f64>() / (CAPACITY * each.len().min(CHANNELS) as f64);
    draws.iter().map(part).collect()
}
