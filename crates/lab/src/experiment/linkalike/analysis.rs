//! LINKALIKE fig 3: what broadcast gains over unicast, where all neighbours are alike.

use sim::neighbourhood::{NeighbourSpec, NeighbourhoodSpec, UplinkSpec};
use std::time::Duration;
use units::BitRate;

use super::capacity::{closed_form, neighbourhood_bound, unicast_bound};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

/// Neighbours and the chance that each hears a frame.
const LINES: [(u32, f64); 4] = [(5, 0.25), (5, 0.5), (10, 0.25), (10, 0.5)];
/// Wireless bandwidths in uplinks.
const BANDWIDTHS: std::ops::RangeInclusive<u32> = 1..=50;
const RATE: usize = 2;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("uplink".into(), 1.into());
    spec.insert("wireless".into(), "1 to 50 uplinks".into());
    spec.insert(
        "neighbours_and_chance".into(),
        LINES.map(|(n, p)| toml::Value::from(format!("{n}, {p}"))).to_vec().into(),
    );
    Experiment {
        id: id("fig3-analysis"),
        title: "what broadcast gains over unicast where all neighbours are alike".to_owned(),
        spec,
        paper: Some("figure 3: the gain is at most 1/p, and 1 where uplinks are the bottleneck".to_owned()),
        goals: vec![Goal::at_most("worst_difference", 1e-4), Goal::at_most("most_over_limit", 1e-9)],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "the greatest gain".into(),
            bars: LINES.map(|(n, p)| (format!("N {n}, p {p}"), format!("gain.{n}.{p}"))).to_vec(),
        }],
        unit: "broadcast / unicast",
        axes: Axes { over: Some("wireless bandwidth, in uplinks"), unit: None },
        runner: Box::new(|_bed, _seed| run()),
    }
}

fn run() -> anyhow::Result<Report> {
    let (mut metrics, mut series, mut worst, mut over) = (Metrics::new(), Vec::new(), 0.0_f64, 0.0_f64);
    for (neighbours, chance) in LINES {
        let uplink = UplinkSpec { rate: BitRate(1), delay: Duration::ZERO };
        let each = NeighbourSpec { uplink, reception: [chance; 4] };
        let spec = NeighbourhoodSpec {
            own: uplink,
            neighbours: vec![each; neighbours as usize],
            common_loss: 0.0,
            between: Vec::new(),
            together: Vec::new(),
        };
        let uplinks = vec![1.0; neighbours as usize];
        let mut line = Vec::new();
        for bandwidth in BANDWIDTHS.map(f64::from) {
            let (broadcast, unicast) = closed_form(bandwidth, neighbours, 1.0, chance);
            let solved = neighbourhood_bound(&spec, RATE, bandwidth, &uplinks)?;
            let solved_unicast = unicast_bound(bandwidth, &uplinks, &vec![chance; neighbours as usize])?;
            worst = worst.max((solved - broadcast).abs()).max((solved_unicast - unicast).abs());
            over = over.max(broadcast / unicast - 1.0 / chance);
            line.push((bandwidth, broadcast / unicast));
        }
        let greatest = line.iter().map(|(_, gain)| *gain).fold(0.0, f64::max);
        metrics.insert(format!("gain.{neighbours}.{chance}"), rounded(greatest));
        series.push((format!("N {neighbours} p {chance}"), line));
    }
    metrics.insert("worst_difference".into(), worst);
    metrics.insert("most_over_limit".into(), over.max(0.0));
    Ok(Report { metrics, series, ..Report::default() })
}
