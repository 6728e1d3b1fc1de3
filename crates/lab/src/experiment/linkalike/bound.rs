//! LINKALIKE/bound: the bounds of section V for each neighbourhood of a file, the committed one or another.

use std::fmt::Write as _;
use std::path::Path;

use sim::neighbourhood::{CHUNK, NeighbourhoodSpec, RATE_NAMES, RATES};

use super::capacity::{neighbourhood_bound, unicast_bound};
use super::one::neighbourhoods_of;
use super::strategies::{FIXED_RATE, chunk_rate, medium_rate, neighbourhoods, uplinks};
use super::{id, quantile, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("neighbourhoods".into(), "experiments/LINKALIKE/neighbourhoods.txt".into());
    spec.insert("bit_rate_mbps".into(), 5.5.into());
    Experiment {
        id: id("bound"),
        title: "the most that each neighbourhood of a file can carry, by broadcast and by unicast".to_owned(),
        spec,
        paper: Some("section V: the linear programs; no figure".to_owned()),
        goals: vec![Goal::at_least("least_broadcast_over_unicast", 0.9999)],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "median gain over the own uplink".into(),
            bars: ["unicast", "broadcast", "any_rate"]
                .map(|name| (name.to_owned(), format!("gain.{name}")))
                .to_vec(),
        }],
        unit: "own uplinks",
        axes: Axes { over: Some("number of the neighbourhood"), unit: None },
        runner: Box::new(|_bed, _seed| run()),
    }
}

/// What a neighbourhood can carry at the most, chunks a second, own uplink included.
struct Bounds {
    own: f64,
    unicast: f64,
    broadcast: f64,
    /// By broadcast at the bit rate where that is most, and which one this is.
    any_rate: (f64, usize),
}

impl Bounds {
    fn of(spec: &NeighbourhoodSpec) -> anyhow::Result<Self> {
        let (own, each) = (chunk_rate(&spec.own), uplinks(spec));
        let chances: Vec<f64> = spec.neighbours.iter().map(|one| one.reception[FIXED_RATE]).collect();
        let unicast = own + unicast_bound(medium_rate(FIXED_RATE), &each, &chances)?;
        let at_rate =
            |rate: usize| neighbourhood_bound(spec, rate, medium_rate(rate), &each).map(|bound| own + bound);
        let broadcast = at_rate(FIXED_RATE)?;
        let mut any_rate = (broadcast, FIXED_RATE);
        for rate in 0..RATES.len() {
            let bound = at_rate(rate)?;
            if bound > any_rate.0 {
                any_rate = (bound, rate);
            }
        }
        Ok(Self { own, unicast, broadcast, any_rate })
    }
}

/// The bounds of each neighbourhood of a file as a table; keeps nothing.
///
/// # Errors
/// If the file cannot be read; where a line of it is wrong, the message has its number and how it should look.
pub fn bound_table(path: &Path) -> anyhow::Result<String> {
    let fixed = RATE_NAMES[FIXED_RATE];
    let mut text = format!(
        "chunks of {} bytes a second at the most, own uplink included; gain: broadcast over the own uplink alone\n\
         number  neighbours  losses       own uplink  unicast  broadcast   gain  best broadcast\n",
        CHUNK.0
    );
    for (at, spec) in neighbourhoods_of(path)?.iter().enumerate() {
        let bounds = Bounds::of(spec)?;
        let losses = if spec.sets(FIXED_RATE).is_empty() { "independent" } else { "measured" };
        let (best, rate) = bounds.any_rate;
        let _ = writeln!(
            text,
            "{at:6}  {:10}  {losses:11}  {:10.1}  {:7.1}  {:9.1}  {:5.2}  {best:.1} at {} Mbit/s",
            spec.neighbours.len(),
            bounds.own,
            bounds.unicast,
            bounds.broadcast,
            bounds.broadcast / bounds.own,
            RATE_NAMES.get(rate).copied().unwrap_or_default(),
        );
    }
    let _ = writeln!(text, "losses, unicast, broadcast and gain: all frames at {fixed} Mbit/s");
    Ok(text)
}

fn run() -> anyhow::Result<Report> {
    let mut gains: [Vec<f64>; 3] = Default::default();
    let (mut least, mut series) = (f64::INFINITY, [Vec::new(), Vec::new()]);
    for (at, spec) in neighbourhoods()?.iter().enumerate() {
        let Bounds { own, unicast, broadcast, any_rate: (any_rate, _) } = Bounds::of(spec)?;
        least = least.min(broadcast / unicast);
        for (gains, bound) in gains.iter_mut().zip([unicast, broadcast, any_rate]) {
            gains.push(bound / own);
        }
        for (line, bound) in series.iter_mut().zip([unicast, broadcast]) {
            line.push((at as f64, bound / own));
        }
    }
    let mut metrics = Metrics::new();
    for (name, gains) in ["unicast", "broadcast", "any_rate"].into_iter().zip(&gains) {
        metrics.insert(format!("gain.{name}"), rounded(quantile(gains, 0.5)));
    }
    metrics.insert("least_broadcast_over_unicast".into(), rounded(least));
    let series = ["unicast", "broadcast"].map(str::to_owned).into_iter().zip(series).collect();
    Ok(Report { metrics, series, ..Report::default() })
}
