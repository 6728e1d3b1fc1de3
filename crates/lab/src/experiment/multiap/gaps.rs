//! MULTIAP fig 3c: the time from one frame to the next at a device between two access points that hear each other, over either one alone and over both.

use bond::Algorithm;

use super::carrier_sense::{self, Choice, MIDDLE};
use super::nomadic::APART;
use super::shared_air::{Contended, Way};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const LINES: [&str; 3] = ["first", "second", "both"];
const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99)];
/// The longest gaps are drawn, so many half percent of all.
const DRAWN: std::ops::RangeInclusive<u32> = 1..=40;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put(
        "access_points",
        format!("two, {APART} m apart, on one channel, 802.11a; the device is in the middle"),
    );
    put("signal", "17 dBm, path loss of TGn model B, Rayleigh fades of 70 ms".into());
    put("rates", "those that get most through".into());
    put("download", "OLIA, as it comes from the gateway, without steering".into());
    let group = |(quantile, _): &(&str, f64)| BarGroup {
        label: (*quantile).to_owned(),
        bars: LINES.map(|line| (line.to_owned(), format!("{line}.{quantile}_ms"))).to_vec(),
    };
    Experiment {
        id: id("fig3c-gaps"),
        title: "between two access points that hear each other: the time from one frame to the next, over each one alone and over both"
            .to_owned(),
        spec,
        paper: Some(
            "figure 3c: over both most packets are as far apart as over one, and the tail is much shorter"
                .to_owned(),
        ),
        goals: vec![
            Goal::at_most("p50_over_longer", 1.0),
            Goal::at_least("p50_over_shorter", 1.0),
            Goal::at_most("p99_over_shorter", 0.75),
        ],
        beds: vec![Bed::Sim],
        bars: QUANTILES.iter().map(group).collect(),
        unit: "ms",
        axes: Axes { over: Some("percent of the gaps that are longer"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let points = [(0, MIDDLE), (1, APART - MIDDLE)];
    let [first, second] =
        points.map(|(fades, metres)| carrier_sense::point(fades, metres, Choice::MostThrough));
    let both = [first?, second?];
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    for (line, points) in LINES.into_iter().zip([&both[..1], &both[1..], &both[..]]) {
        let run = carrier_sense::air(points, Algorithm::Olia, Way::Plain, seed)?;
        for (name, part) in QUANTILES {
            metrics.insert(format!("{line}.{name}_ms"), rounded(quantile(&run, part)));
        }
        series.push((line.to_owned(), distribution(&run)));
    }
    for (name, _) in QUANTILES {
        let of = |line: &str| metrics.get(&format!("{line}.{name}_ms")).copied().unwrap_or_default();
        let (both, alone) = (of("both"), [of("first"), of("second")]);
        metrics.insert(format!("{name}_over_shorter"), rounded(both / alone[0].min(alone[1])));
        metrics.insert(format!("{name}_over_longer"), rounded(both / alone[0].max(alone[1])));
    }
    Ok(Report { metrics, series, ..Report::default() })
}

/// The gap, ms, than which this part of all is shorter; 0 without any.
pub(super) fn quantile(run: &Contended, part: f64) -> f64 {
    run.gaps_ms.get((run.gaps_ms.len() as f64 * part) as usize).copied().unwrap_or_default()
}

/// Gaps, ms, by the percentage of all that are longer.
fn distribution(run: &Contended) -> Vec<(f64, f64)> {
    let at = |half_percent: u32| {
        (f64::from(half_percent) / 2.0, quantile(run, 1.0 - f64::from(half_percent) / 200.0))
    };
    DRAWN.map(at).collect()
}
