//! Plots as SVG files, drawn by this crate: bars of metrics, and lines over time or over something else.

mod bars;
mod legend;
mod lines;

use crate::experiment::{Experiment, Record};
use bars::{draw_bars, without_absent};
use lines::draw_lines;
use trace::canvas::{Area, Canvas};

const WIDTH: f64 = 860.0;
const BARS_HEIGHT: f64 = 300.0;
const LINES_HEIGHT: f64 = 240.0;
const TITLE_HEIGHT: f64 = 46.0;
const MARGIN: f64 = 20.0;

/// Lines: name, then (seconds or what else they are over, value).
type Series = [(String, Vec<(f64, f64)>)];

/// The plot of a run: its bars, and below them its lines.
pub fn experiment_plot(experiment: &Experiment, record: &Record, series: &Series) -> String {
    let lines_height = if series.is_empty() { 0.0 } else { LINES_HEIGHT };
    let mut canvas = Canvas::new(WIDTH, TITLE_HEIGHT + BARS_HEIGHT + lines_height + MARGIN);
    let scale = record.rate_scale().map_or(String::new(), |scale| format!(", rates times {scale}"));
    let run = format!(
        "{}: {} on bed {}{scale}, {}",
        experiment.id,
        record.verdict,
        record.bed,
        record.seeds_text()
    );
    canvas.text(MARGIN, 24.0, 15.0, &run);
    canvas.faint_text(MARGIN, 42.0, 11.0, &experiment.title);
    let area = |top, height| Area { left: MARGIN, top, width: WIDTH - 2.0 * MARGIN, height };
    let groups = without_absent(&experiment.bars, &record.metrics);
    draw_bars(&mut canvas, area(TITLE_HEIGHT, BARS_HEIGHT), &groups, record, experiment.unit);
    if !series.is_empty() {
        let unit = experiment.axes.unit.unwrap_or(experiment.unit);
        draw_lines(
            &mut canvas,
            area(TITLE_HEIGHT + BARS_HEIGHT, LINES_HEIGHT),
            series,
            &groups,
            experiment.axes.over,
            unit,
        );
    }
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::bars::SPREAD_COLOUR;
    use super::*;
    use crate::experiment::{Axes, BarGroup, Bed, Metrics, Report, registry};

    fn bars_of(metrics: &[&str]) -> Vec<(String, String)> {
        metrics.iter().enumerate().map(|(at, metric)| (format!("bar {at}"), (*metric).to_owned())).collect()
    }

    #[test]
    fn a_plot_is_well_formed_and_shows_its_bars() {
        let experiment = registry().into_iter().next().unwrap();
        let metrics = experiment.goals.iter().map(|goal| (goal.metric.clone(), 1.0));
        let bars = experiment
            .bars
            .iter()
            .flat_map(|group| group.bars.iter().map(|(_, metric)| (metric.clone(), 7.0)));
        let report = Report { metrics: metrics.chain(bars).collect(), ..Report::default() };
        let other =
            |metrics: &Metrics| metrics.iter().map(|(name, value)| (name.clone(), value + 1.0)).collect();
        let second = Report { metrics: other(&report.metrics), ..Report::default() };
        let record = Record::new(&experiment, Bed::Sim, &[(1, report), (2, second)]);
        let series = [("a <b>".to_owned(), vec![(0.0, 1.0), (1.0, 2.0)])];
        let svg = experiment_plot(&experiment, &record, &series);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("a &lt;b&gt;"));
        assert!(svg.contains(">1 s<"));
        let bars: usize = experiment.bars.iter().map(|group| group.bars.len()).sum();
        assert!(svg.matches("<rect ").count() >= bars);
        assert!(svg.matches(SPREAD_COLOUR).count() >= bars, "each bar shows how far the seeds are apart");
        for tag in ["text", "g"] {
            let open = svg.matches(&format!("<{tag} ")).count();
            assert_eq!(open, svg.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        // A line of what has a bar looks like it.
        let groups = [BarGroup { label: "all".into(), bars: bars_of(&["a.mbps", "x.b.mbps"]) }];
        let looks = ["a", "b", "c"].map(|name| bars::look_of(name, &groups).map(|look| look.label));
        assert_eq!(looks, [Some("bar 0".to_owned()), Some("bar 1".to_owned()), None]);
        let axes = Axes { over: Some("neighbours"), unit: Some("uplinks") };
        let other = experiment_plot(&Experiment { axes, ..experiment }, &record, &series);
        assert!(other.contains(">neighbours<") && other.contains(">uplinks<") && !other.contains(">1 s<"));
    }
}
