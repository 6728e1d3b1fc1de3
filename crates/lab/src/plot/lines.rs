//! Lines over time, or over something else.

use super::Series;
use super::bars::{Look, look_of};
use super::legend::{Legend, SIZE, label_at};
use crate::experiment::BarGroup;
use trace::canvas::{Area, COLOURS, Canvas, axis, draw_axis, short_number};

/// Draws `series`, values in `unit`, over seconds or over what `over` says. Lines of what has bars in `groups` look like those.
pub(super) fn draw_lines(
    canvas: &mut Canvas,
    area: Area,
    series: &Series,
    groups: &[BarGroup],
    over: Option<&str>,
    unit: &str,
) {
    let points = || series.iter().flat_map(|(_, points)| points);
    let looks = looks(series, groups);
    let legend = Legend::new(area, looks.iter().map(|look| look.label.as_str()));
    let inner = legend.below(area);
    let top = draw_axis(canvas, inner, points().map(|(_, value)| *value).fold(0.0, f64::max));
    let end = points().map(|(seconds, _)| *seconds).fold(0.0, f64::max).max(1e-9);
    let (_, step) = axis(end);
    for mark in 0..=(end / step).floor() as u32 {
        let seconds = f64::from(mark) * step;
        let x = inner.left + seconds / end * inner.width;
        let number = short_number(seconds);
        let label = if over.is_some() { number } else { format!("{number} s") };
        canvas.centred_text(x, inner.bottom() + 14.0, 10.0, &label);
    }
    if let Some(over) = over {
        canvas.centred_text(inner.left + inner.width / 2.0, inner.bottom() + 28.0, 10.0, over);
    }
    // The last line is the one to look at: drawn last, and thicker.
    for (index, (((_, points), look), entry)) in series.iter().zip(looks).zip(legend.places).enumerate() {
        let is_last = index + 1 == series.len();
        let Look { label, colour } = look;
        let place = |(seconds, value): &(f64, f64)| {
            (inner.left + seconds / end * inner.width, inner.bottom() - value / top * inner.height)
        };
        let placed: Vec<(f64, f64)> = points.iter().map(place).collect();
        canvas.polyline(&placed, colour, if is_last { 2.0 } else { 1.2 });
        canvas.line(entry, (entry.0 + 14.0, entry.1), colour);
        let (x, y) = label_at(entry);
        canvas.text(x, y, SIZE, &label);
    }
    canvas.faint_text(area.left, inner.top - 6.0, 10.0, unit);
}

/// How each line looks. Those without a bar have their names and colours of their own, the last one the strongest.
fn looks(series: &Series, groups: &[BarGroup]) -> Vec<Look> {
    let of_bars: Vec<Option<Look>> = series.iter().map(|(name, _)| look_of(name, groups)).collect();
    let taken: Vec<&str> = of_bars.iter().flatten().map(|look| look.colour).collect();
    let is_free = |colour: &&str| !taken.contains(colour);
    let mut others = OTHERS.map(|place| COLOURS[place]).into_iter().filter(is_free).cycle();
    let strongest = Some(STRONGEST).filter(is_free);
    let look = |(at, ((name, _), of_bar)): (usize, (&(String, _), Option<Look>))| {
        let is_last = at + 1 == series.len();
        let mut own = || strongest.filter(|_| is_last).or_else(|| others.next()).unwrap_or(STRONGEST);
        of_bar.unwrap_or_else(|| Look { label: name.clone(), colour: own() })
    };
    series.iter().zip(of_bars).enumerate().map(look).collect()
}

const STRONGEST: &str = COLOURS[4];
/// Of the colours, for all lines but the last one.
const OTHERS: [usize; 6] = [2, 3, 5, 6, 0, 1];
