//! Grouped bars.

use super::legend::{Legend, SIZE, label_at};
use crate::experiment::{BarGroup, Metrics, Record, spread};
use trace::canvas::{Area, COLOURS, Canvas, draw_axis, short_number};

/// Of the lines from the least to the greatest value over the seeds.
pub(super) const SPREAD_COLOUR: &str = "#444444";

/// What shows one thing throughout a plot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Look {
    /// Of the legend.
    pub(super) label: String,
    pub(super) colour: &'static str,
}

/// How the bars look whose metrics are those of `name`, as `name.mbps` or `near.name.mbps`, if those are the same bar in every group.
pub(super) fn look_of(name: &str, groups: &[BarGroup]) -> Option<Look> {
    let is_its = |metric: &str| metric.split('.').any(|part| part == name);
    let mut places = groups.iter().flat_map(|group| {
        let bars = group.bars.iter().enumerate();
        bars.filter(|(_, (_, metric))| is_its(metric)).map(|(place, _)| place)
    });
    let place = places.next()?;
    let label = groups.first()?.bars.get(place)?.0.clone();
    places.all(|other| other == place).then(|| Look { label, colour: COLOURS[place % COLOURS.len()] })
}

/// Draws `groups` of bars with the values that `record` has, and over each a line from the least to the greatest value that a
/// seed gave; a legend on top names the bars of the first group, which all groups share.
pub(super) fn draw_bars(canvas: &mut Canvas, area: Area, groups: &[BarGroup], record: &Record, unit: &str) {
    let value = |metric: &String| record.metrics.get(metric).copied().filter(|value| value.is_finite());
    let most = |metric: &String| Some(spread(&record.runs, metric).map_or(value(metric)?, |(_, most)| most));
    let all = groups.iter().flat_map(|group| &group.bars).filter_map(|(_, metric)| most(metric));
    let shared = groups.first().map(|group| group.bars.as_slice()).unwrap_or_default();
    let legend = Legend::new(area, shared.iter().map(|(label, _)| label.as_str()));
    let inner = legend.below(area);
    let top = draw_axis(canvas, inner, all.fold(0.0, f64::max));
    for ((index, (label, _)), place) in shared.iter().enumerate().zip(legend.places) {
        let swatch = Area { left: place.0, top: place.1 - 5.0, width: 10.0, height: 10.0 };
        canvas.rectangle(swatch, COLOURS[index % COLOURS.len()]);
        let (x, y) = label_at(place);
        canvas.text(x, y, SIZE, label);
    }
    let group_width = inner.width / groups.len().max(1) as f64;
    for (index, group) in groups.iter().enumerate() {
        let left = inner.left + index as f64 * group_width;
        let bar_width = group_width * 0.8 / group.bars.len().max(1) as f64;
        for (bar, (_, metric)) in group.bars.iter().enumerate() {
            let x = left + group_width * 0.1 + bar as f64 * bar_width;
            let Some(value) = value(metric) else {
                canvas.centred_text(x + bar_width / 2.0, inner.bottom() - 4.0, 10.0, "?");
                continue;
            };
            let height = value / top * inner.height;
            let shape = Area { left: x, top: inner.bottom() - height, width: bar_width * 0.92, height };
            canvas.rectangle(shape, COLOURS[bar % COLOURS.len()]);
            let middle = x + shape.width / 2.0;
            let mut label_at = shape.top;
            if let Some((least, most)) = spread(&record.runs, metric) {
                let [least, most] = [least, most].map(|value| inner.bottom() - value / top * inner.height);
                canvas.line((middle, least), (middle, most), SPREAD_COLOUR);
                label_at = most;
            }
            canvas.centred_text(
                x + bar_width / 2.0,
                label_at - 3.0,
                9.0,
                &short_number(if value < 10.0 { value } else { (value * 10.0).round() / 10.0 }),
            );
        }
        canvas.centred_text(left + group_width / 2.0, inner.bottom() + 16.0, 12.0, &group.label);
    }
    canvas.line((inner.left, inner.bottom()), (inner.right(), inner.bottom()), "#222222");
    canvas.faint_text(area.left, inner.top - 6.0, 10.0, unit);
}

/// Without bars that no group has a value for.
pub(super) fn without_absent(groups: &[BarGroup], metrics: &Metrics) -> Vec<BarGroup> {
    let is_present = |bar: usize| {
        groups.iter().any(|group| group.bars.get(bar).is_some_and(|(_, metric)| metrics.contains_key(metric)))
    };
    let present = |group: &BarGroup| BarGroup {
        label: group.label.clone(),
        bars: group
            .bars
            .iter()
            .enumerate()
            .filter(|(bar, _)| is_present(*bar))
            .map(|(_, bar)| bar.clone())
            .collect(),
    };
    groups.iter().map(present).collect()
}
