//! The picture of a recording: what goes over the paths, how long it takes, what is under way and lost, how the paths do, and what happened.

use std::collections::BTreeMap;

use crate::canvas::{Area, COLOURS, Canvas, axis, draw_axis, short_number};
use crate::read::Recording;
use crate::record::{Delivery, Event, Happening, Metrics, PathFigures};

/// One path through time: what is known of it from each moment on, in seconds since the recording began.
#[derive(Default)]
struct Course {
    metrics: Vec<(f64, Metrics)>,
    figures: Vec<(f64, PathFigures)>,
}

/// A recording by what it is about.
struct Courses {
    /// Seconds.
    length: f64,
    paths: BTreeMap<String, Course>,
    delivery: Vec<(f64, Delivery)>,
    happened: Vec<(f64, Happening)>,
    left_out: usize,
}

/// Draws a recording as an SVG picture.
pub fn picture(recording: &Recording) -> String {
    let courses = courses(recording);
    let states_height = 30.0 + ROW * courses.paths.len() as f64;
    let listed = courses.happened.len().min(MOST_LISTED);
    let height = HEAD + 5.0 * PANEL + states_height + 40.0 + ROW * (listed + 1) as f64;
    let mut canvas = Canvas::new(WIDTH, height);
    canvas.text(MARGIN, 24.0, 15.0, &format!("What the bond of {} did", recording.name));
    canvas.faint_text(MARGIN, 42.0, 11.0, &summary(&courses));
    draw_legend(&mut canvas, &courses);
    let mut top = HEAD;
    for panel in [throughput, round_trips, windows, losses, deliveries] {
        let area = Area {
            left: MARGIN + AXIS,
            top: top + 22.0,
            width: WIDTH - 2.0 * MARGIN - AXIS,
            height: PANEL - 40.0,
        };
        panel(&mut canvas, area, &courses);
        draw_moments(&mut canvas, area, &courses);
        top += PANEL;
    }
    let area = Area {
        left: MARGIN + AXIS,
        top: top + 22.0,
        width: WIDTH - 2.0 * MARGIN - AXIS,
        height: states_height - 30.0,
    };
    draw_states(&mut canvas, area, &courses);
    draw_moments(&mut canvas, area, &courses);
    draw_seconds(&mut canvas, area, courses.length);
    draw_list(&mut canvas, area.bottom() + 46.0, &courses);
    canvas.finish()
}

fn courses(recording: &Recording) -> Courses {
    let times = || recording.records.iter().map(|record| record.time);
    let start = times().next().unwrap_or_default();
    let length = ((times().next_back().unwrap_or_default() - start) / 1_000.0).max(0.1);
    let mut courses =
        Courses { length, paths: BTreeMap::new(), delivery: Vec::new(), happened: Vec::new(), left_out: 0 };
    for record in &recording.records {
        let at = (record.time - start) / 1_000.0;
        let name = record.tuple.clone().unwrap_or_default();
        let is_new = !courses.paths.contains_key(&name);
        match &record.event {
            Event::Metrics(_) | Event::Path(_) if is_new && courses.paths.len() >= MOST_PATHS => {
                courses.left_out += 1
            }
            Event::Metrics(metrics) => courses.paths.entry(name).or_default().metrics.push((at, *metrics)),
            Event::Path(figures) => {
                courses.paths.entry(name).or_default().figures.push((at, figures.clone()))
            }
            Event::Delivery(delivery) => courses.delivery.push((at, *delivery)),
            Event::Happened(happening) => courses.happened.push((at, happening.clone())),
        }
    }
    courses
}

fn summary(courses: &Courses) -> String {
    let sum = |of: fn(&PathFigures) -> u64| {
        let grown = |course: &Course| match (course.figures.first(), course.figures.last()) {
            (Some((_, first)), Some((_, last))) => of(last).saturating_sub(of(first)),
            _ => 0,
        };
        courses.paths.values().map(grown).fold(0, u64::saturating_add)
    };
    let megabytes = |bytes: u64| short_number(bytes as f64 / 1e6);
    let mut text = format!(
        "{} s, {} paths, {} MB sent, {} MB received, {} packets lost",
        short_number(courses.length),
        courses.paths.len(),
        megabytes(sum(|figures| figures.sent_bytes)),
        megabytes(sum(|figures| figures.received_bytes)),
        sum(|figures| figures.lost_packets),
    );
    if courses.left_out > 0 {
        text.push_str(&format!("; records of further paths left out: {}", courses.left_out));
    }
    text
}

/// How many steps the picture's time has.
fn steps(courses: &Courses) -> usize {
    (courses.length / SHORTEST_STEP).clamp(1.0, MOST_STEPS) as usize
}

/// How much a sum grows in each step. What begins again (a new path of the same name) counts from nothing.
fn growth<T>(course: &[(f64, T)], courses: &Courses, of: impl Fn(&T) -> u64) -> Vec<f64> {
    let count = steps(courses);
    let mut grown = vec![0.0; count];
    for pair in course.windows(2) {
        let [(_, before), (at, now)] = pair else { continue };
        let step = ((at / courses.length * count as f64) as usize).min(count - 1);
        grown[step] += of(now).saturating_sub(of(before)) as f64;
    }
    grown
}

/// The middle of a step, seconds.
fn middle(step: usize, courses: &Courses) -> f64 {
    (step as f64 + 0.5) * courses.length / steps(courses) as f64
}

fn throughput(canvas: &mut Canvas, area: Area, courses: &Courses) {
    title(canvas, area, "Carried by each path, both ways, stacked (Mbit/s)");
    let seconds = courses.length / steps(courses) as f64;
    let rates: Vec<Vec<f64>> = courses
        .paths
        .values()
        .map(|course| {
            let bytes = |figures: &PathFigures| figures.sent_bytes.saturating_add(figures.received_bytes);
            growth(&course.figures, courses, bytes).iter().map(|bytes| bytes * 8.0 / seconds / 1e6).collect()
        })
        .collect();
    let total = |step: usize| rates.iter().map(|rate| rate[step]).sum::<f64>();
    let top = draw_axis(canvas, area, (0..steps(courses)).map(total).fold(0.0, f64::max));
    let mut below = vec![0.0; steps(courses)];
    for (index, rate) in rates.iter().enumerate() {
        let above: Vec<f64> = below.iter().zip(rate).map(|(below, rate)| below + rate).collect();
        let place = |step: usize, value: f64| {
            (x(area, courses, middle(step, courses)), area.bottom() - value / top * area.height)
        };
        let upper = above.iter().enumerate().map(|(step, value)| place(step, *value));
        let lower = below.iter().enumerate().rev().map(|(step, value)| place(step, *value));
        let corners: Vec<(f64, f64)> = upper.chain(lower).collect();
        canvas.polygon(&corners, colour(index));
        below = above;
    }
}

fn round_trips(canvas: &mut Canvas, area: Area, courses: &Courses) {
    title(canvas, area, "Round trip, smoothed (ms)");
    let lines: Vec<Line> = courses
        .paths
        .values()
        .enumerate()
        .map(|(index, course)| {
            line(&course.metrics, (index, courses.length), 1.5, |metrics| metrics.smoothed_rtt)
        })
        .collect();
    draw_lines(canvas, area, courses, &lines);
}

fn windows(canvas: &mut Canvas, area: Area, courses: &Courses) {
    title(canvas, area, "Congestion window (thin) and bytes in flight (thick), kB");
    let kilobytes = |bytes: Option<u64>| bytes.map(|bytes| bytes as f64 / 1e3);
    let of_path = |(index, course): (usize, &Course)| {
        [
            line(&course.metrics, (index, courses.length), 0.8, |metrics| {
                kilobytes(metrics.congestion_window)
            }),
            line(&course.metrics, (index, courses.length), 2.0, |metrics| kilobytes(metrics.bytes_in_flight)),
        ]
    };
    let lines: Vec<Line> = courses.paths.values().enumerate().flat_map(of_path).collect();
    draw_lines(canvas, area, courses, &lines);
}

fn losses(canvas: &mut Canvas, area: Area, courses: &Courses) {
    title(canvas, area, "Packets found lost, of those sent (%)");
    let of_path = |(index, course): (usize, &Course)| {
        let lost = growth(&course.figures, courses, |figures| figures.lost_packets);
        let sent = growth(&course.figures, courses, |figures| figures.sent_packets);
        // Those lost in a step may have been sent before it.
        let part = |lost: f64, sent: f64| if lost > 0.0 { 100.0 * lost / sent.max(lost) } else { 0.0 };
        let points = lost.iter().zip(&sent).enumerate();
        let points = points.map(|(step, (lost, sent))| (middle(step, courses), part(*lost, *sent))).collect();
        Line { points, colour: colour(index), width: 1.5 }
    };
    let lines: Vec<Line> = courses.paths.values().enumerate().map(of_path).collect();
    draw_lines(canvas, area, courses, &lines);
}

fn deliveries(canvas: &mut Canvas, area: Area, courses: &Courses) {
    title(canvas, area, "Behind the paths, packets a second");
    let seconds = courses.length / steps(courses) as f64;
    type Count = fn(&Delivery) -> u64;
    let kinds: [(&str, Count); 5] = [
        ("sent again", |delivery| delivery.repeats),
        ("arrived twice", |delivery| delivery.duplicates),
        ("repaired", |delivery| delivery.repaired),
        ("given up", |delivery| delivery.skipped.saturating_add(delivery.late)),
        ("dropped", |delivery| delivery.dropped),
    ];
    let mut lines = Vec::new();
    let mut legend = area.left + 230.0;
    for (index, (name, of)) in kinds.into_iter().enumerate() {
        let grown = growth(&courses.delivery, courses, of);
        let points = grown.iter().enumerate().map(|(step, count)| (middle(step, courses), count / seconds));
        lines.push(Line { points: points.collect(), colour: colour(index), width: 1.2 });
        canvas.line((legend, area.top - 10.0), (legend + 14.0, area.top - 10.0), colour(index));
        canvas.text(legend + 18.0, area.top - 6.0, 11.0, name);
        legend += 40.0 + 6.4 * name.len() as f64;
    }
    draw_lines(canvas, area, courses, &lines);
}

fn draw_states(canvas: &mut Canvas, area: Area, courses: &Courses) {
    title(
        canvas,
        area,
        "State: good (green), silent (orange), gone (red), not yet used (grey); pale: kept as a backup, or off",
    );
    for (row, (name, course)) in courses.paths.iter().enumerate() {
        let top = area.top + ROW * row as f64;
        canvas.right_text(area.left - 4.0, top + 12.0, 10.0, &name.chars().take(10).collect::<String>());
        let ends = course.figures.iter().skip(1).map(|(at, _)| *at).chain([courses.length]);
        let mut from = course.figures.first().map(|(at, _)| *at);
        let mut spans: Vec<(f64, f64, &str)> = Vec::new();
        for ((_, figures), end) in course.figures.iter().zip(ends) {
            let colour = state_colour(figures);
            match spans.last_mut() {
                Some(last) if last.2 == colour => last.1 = end,
                _ => spans.push((from.unwrap_or_default(), end, colour)),
            }
            from = Some(end);
        }
        for (from, end, colour) in spans.into_iter().take(MOST_SPANS) {
            let left = x(area, courses, from);
            let shape = Area { left, top, width: x(area, courses, end) - left, height: ROW - 4.0 };
            canvas.rectangle(shape, colour);
        }
    }
}

fn state_colour(figures: &PathFigures) -> &'static str {
    match (figures.health.as_str(), figures.status.as_str()) {
        ("good", "active") => "#009e73",
        ("good", _) => "#b9e3d6",
        ("suspect", _) => "#e69f00",
        ("dead", _) => "#d55e00",
        _ => "#bbbbbb",
    }
}

/// A line through every picture at each thing that happened.
fn draw_moments(canvas: &mut Canvas, area: Area, courses: &Courses) {
    for (at, _) in courses.happened.iter().take(MOST_LISTED) {
        let x = x(area, courses, *at);
        canvas.line((x, area.top), (x, area.bottom()), "#999999");
    }
}

fn draw_seconds(canvas: &mut Canvas, area: Area, length: f64) {
    let (_, step) = axis(length);
    for mark in 0..=(length / step).floor() as u32 {
        let seconds = f64::from(mark) * step;
        let x = area.left + seconds / length * area.width;
        canvas.centred_text(x, area.bottom() + 16.0, 10.0, &format!("{} s", short_number(seconds)));
    }
}

fn draw_list(canvas: &mut Canvas, top: f64, courses: &Courses) {
    for (row, (at, happening)) in courses.happened.iter().take(MOST_LISTED).enumerate() {
        let y = top + ROW * row as f64;
        canvas.right_text(MARGIN + AXIS, y, 11.0, &format!("{at:.1} s"));
        let says_whose = happening.text.starts_with(&happening.subject);
        let about = if says_whose { String::new() } else { format!("{}: ", happening.subject) };
        let text: String = format!("{about}{}", happening.text).chars().take(LONGEST_TEXT).collect();
        canvas.text(MARGIN + AXIS + 8.0, y, 11.0, &text);
    }
    let more = courses.happened.len().saturating_sub(MOST_LISTED);
    if more > 0 {
        canvas.faint_text(
            MARGIN + AXIS + 8.0,
            top + ROW * MOST_LISTED as f64,
            11.0,
            &format!("and {more} more"),
        );
    }
}

fn draw_legend(canvas: &mut Canvas, courses: &Courses) {
    let mut x = MARGIN + AXIS;
    for (index, name) in courses.paths.keys().enumerate() {
        let name: String = name.chars().take(24).collect();
        canvas.rectangle(Area { left: x, top: 54.0, width: 10.0, height: 10.0 }, colour(index));
        canvas.text(x + 14.0, 63.0, 11.0, &name);
        x += 32.0 + 6.4 * name.chars().count() as f64;
    }
}

struct Line {
    points: Vec<(f64, f64)>,
    colour: &'static str,
    width: f64,
}

/// A value that holds until the next one: only changes are recorded.
fn line(
    course: &[(f64, Metrics)],
    (index, end): (usize, f64),
    width: f64,
    of: impl Fn(&Metrics) -> Option<f64>,
) -> Line {
    let mut points: Vec<(f64, f64)> = Vec::new();
    let values = course.iter().filter_map(|(at, metrics)| Some((*at, of(metrics)?)));
    for (at, value) in values.filter(|(_, value)| value.is_finite() && *value >= 0.0) {
        if let Some((_, before)) = points.last().copied() {
            points.push((at, before));
        }
        points.push((at, value));
    }
    if let Some((_, last)) = points.last().copied() {
        points.push((end, last));
    }
    Line { points, colour: colour(index), width }
}

fn draw_lines(canvas: &mut Canvas, area: Area, courses: &Courses, lines: &[Line]) {
    let all = lines.iter().flat_map(|line| &line.points).map(|(_, value)| *value);
    let top = draw_axis(canvas, area, all.fold(0.0, f64::max));
    for line in lines {
        let place =
            |(at, value): &(f64, f64)| (x(area, courses, *at), area.bottom() - value / top * area.height);
        let points: Vec<(f64, f64)> = line.points.iter().map(place).collect();
        // Of many points in one place the first, the highest and the last one are shown.
        let mut placed = Vec::new();
        for group in points.chunk_by(|one, other| (one.0 * 2.0).floor() == (other.0 * 2.0).floor()) {
            let highest = group.iter().copied().min_by(|one, other| one.1.total_cmp(&other.1));
            placed.extend(group.first().copied().into_iter().chain(highest).chain(group.last().copied()));
        }
        placed.dedup();
        canvas.polyline(&placed, line.colour, line.width);
    }
}

fn title(canvas: &mut Canvas, area: Area, text: &str) {
    canvas.faint_text(area.left, area.top - 6.0, 11.0, text);
}

fn x(area: Area, courses: &Courses, at: f64) -> f64 {
    area.left + (at / courses.length).clamp(0.0, 1.0) * area.width
}

fn colour(index: usize) -> &'static str {
    // The strong ones first.
    const ORDER: [usize; 7] = [2, 4, 5, 3, 6, 0, 1];
    COLOURS[ORDER[index % ORDER.len()]]
}

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 20.0;
/// Room for numbers left of a panel.
const AXIS: f64 = 60.0;
const HEAD: f64 = 76.0;
const PANEL: f64 = 150.0;
const ROW: f64 = 18.0;
/// Seconds.
const SHORTEST_STEP: f64 = 0.2;
const MOST_STEPS: f64 = 400.0;
const MOST_PATHS: usize = 32;
const MOST_SPANS: usize = 1_000;
const MOST_LISTED: usize = 40;
/// Letters of an event.
const LONGEST_TEXT: usize = 140;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    fn path(time: f64, name: &str, sent_bytes: u64, health: &str) -> Record {
        let figures = PathFigures {
            health: health.to_owned(),
            status: "active".to_owned(),
            sent_bytes,
            sent_packets: sent_bytes / 1_000,
            lost_packets: sent_bytes / 10_000,
            ..PathFigures::default()
        };
        Record { time, tuple: Some(name.to_owned()), event: Event::Path(figures) }
    }

    fn recording(records: Vec<Record>) -> Recording {
        Recording { name: "van <1>".to_owned(), records, ..Recording::default() }
    }

    #[test]
    fn every_path_is_seen_and_what_happened() {
        let happening = Happening {
            kind: "path-down".to_owned(),
            subject: "wan1".to_owned(),
            text: "is <gone>\u{1}".to_owned(),
        };
        let metrics =
            Metrics { smoothed_rtt: Some(20.0), congestion_window: Some(9_000), ..Metrics::default() };
        let svg = picture(&recording(vec![
            path(0.0, "wan0#1", 0, "good"),
            path(0.0, "wan1#2", 0, "good"),
            Record { time: 0.0, tuple: Some("wan0#1".to_owned()), event: Event::Metrics(metrics) },
            path(1_000.0, "wan0#1", 1_000_000, "good"),
            Record { time: 1_500.0, tuple: None, event: Event::Happened(happening) },
            path(1_500.0, "wan1#2", 1_000_000, "dead"),
            path(2_000.0, "wan0#1", 3_000_000, "good"),
        ]));
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert!(svg.contains("wan0#1") && svg.contains("wan1#2") && svg.contains("van &lt;1&gt;"));
        assert!(svg.contains("wan1: is &lt;gone&gt; "), "what happened is told");
        assert_eq!(svg.matches("<polygon ").count(), 2, "a layer for each path");
        assert!(svg.contains("4 MB sent") && svg.contains("400 packets lost"), "{svg}");
        assert!(svg.contains("#d55e00") && svg.contains("#009e73"));
    }

    #[test]
    fn sums_grow_where_they_grew_and_begin_again() {
        let recording = recording(
            [0, 500, 500, 100]
                .into_iter()
                .enumerate()
                .map(|(at, sent)| path(at as f64 * 1_000.0, "a", sent, "good"))
                .collect(),
        );
        let courses = courses(&recording);
        let grown = growth(&courses.paths["a"].figures, &courses, |figures| figures.sent_bytes);
        assert_eq!(grown.len(), 15);
        assert_eq!((grown[5], grown.iter().sum::<f64>()), (500.0, 500.0));
    }

    #[test]
    fn what_is_measured_holds_until_it_is_measured_anew() {
        let rtt = |smoothed_rtt| Metrics { smoothed_rtt: Some(smoothed_rtt), ..Metrics::default() };
        let line = line(&[(0.0, rtt(1.0)), (2.0, rtt(5.0))], (0, 3.0), 1.0, |metrics| metrics.smoothed_rtt);
        assert_eq!(line.points, [(0.0, 1.0), (2.0, 1.0), (2.0, 5.0), (3.0, 5.0)]);
    }

    #[test]
    fn nothing_and_too_much_are_drawn_too() {
        assert!(picture(&Recording::default()).contains("0 paths"));
        let many = (0..100).map(|number| path(0.0, &format!("tap{number}#1"), 1, "odd")).collect();
        let svg = picture(&recording(many));
        assert!(svg.contains("32 paths") && svg.contains("left out: 68"), "{svg}");
        let wide = recording(vec![path(0.0, "a", 0, "good"), path(1e14, "a", u64::MAX, "good")]);
        assert!(picture(&wide).len() < 100_000);
    }
}
