//! A device that moves between real access points, or whose way to them changes while it stands: hostapd, mac80211 with its own rate control, kernel MPTCP and our
//! bond. A walk past five (fig 8), two that change places from one moment to the next, and two whose air varies (fig 9).

use std::time::Duration;

use anyhow::Context;

use super::course::{ASIDE, Course, NAMES, spec};
use super::mptcp_commands::{BEACON_SECONDS, MARKS_HEARD, MORE_BEACONS, marks_heard, mbps_in_pieces};
use super::reaction::{MOVED, course, until_moved};
use super::varying::{PAPER_MEDIANS, paper_bar, paper_metric};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use crate::simbed::quantile;
use crate::traffic;
use crate::vm::direct::Answers;
use crate::vm::topology::SERVER_ADDRESS;

/// Access points of the walk, metres apart, and how fast one walks: a minute in all, as in the paper.
const APART: f64 = 30.0;
const METRES_A_SECOND: f64 = 2.0;
/// How long a fade lasts: 0.423 of the inverse of a Doppler spread of 16 Hz, that of somebody who walks so fast at 2.4 GHz.
const WALKING_FADES_MS: f64 = 26.0;
/// How far from the nearest access point it is measured what an ideal hand-over would have there, in metres along the line.
const STANDS: [u32; 4] = [0, 5, 10, 15];
/// Of each download so many seconds are not counted: the device stands still yet.
const LEAD: u32 = 4;
/// What an ideal hand-over has is measured for so long at each place, after as long that is not counted.
const STANDING: u32 = 4;
/// How long the turn of an access point lasts.
const TURN_SECONDS: f64 = 0.1;

/// Two change places: how near the device is to one of them, how often and when.
const SWAP_METRES: f64 = 5.0;
const CHANGES: u32 = 6;
const BETWEEN: u32 = 6;
const REACTION_ROUND_TRIP_MS: u64 = 50;
/// What arrives is counted in these pieces; half a second of them is to be good enough.
const PIECE: Duration = Duration::from_millis(100);
const STEADY: usize = 5;

/// Two vary: how far the device is from both, how long a fade lasts, and how long it is measured, seconds.
const BESIDE: f64 = 10.0;
const VARYING_FADES_MS: f64 = 5_000.0;
const VARYING: u32 = 80;
/// Megabytes.
const DOWNLOAD: f64 = 10.0;

/// A single walk is a minute in which chance is large: what the product has is measured on so many, one after the other.
const TURNS: usize = 3;
/// What is compared on the walk, with its name in the plot.
const WALKS: [(&str, &str); 5] = [
    ("beacons", "by beacons"),
    ("turns", "turns by backup"),
    ("mptcp_plain", "kernel MPTCP"),
    ("mptcp_marks", "with our marks"),
    ("ours", "ours"),
];
/// What stays in one place has no hand-over.
const STAYS: [(&str, &str); 3] =
    [("mptcp_plain", "kernel MPTCP"), ("mptcp_marks", "with our marks"), ("ours", "ours")];

pub(super) fn walk() -> Experiment {
    let mut spec = spec();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put("marks_heard", MARKS_HEARD.into());
    put("points", format!("{} on a line, {APART} m apart, open, 802.11g, channel 6", NAMES.len()));
    put("walk", format!("from the first to the last at {METRES_A_SECOND} m/s, {ASIDE} m beside the line"));
    put("fades", format!("Rayleigh, each pair of radios by itself, {WALKING_FADES_MS} ms each"));
    put("round_trip_ms", "20".into());
    put(
        "walks",
        format!(
            "{TURNS} of ours and of mptcp_marks each: their mean, and the longest time without anything in all; one of the others"
        ),
    );
    put(
        "ideal",
        format!(
            "standing {STANDS:?} m along the line from the first one, plain TCP by it alone for {STANDING} s; in between by distance, at every moment of the nearest"
        ),
    );
    put(
        "beacons",
        format!(
            "kernel MPTCP over one at a time, another one when {MORE_BEACONS} more of its beacons were heard in {BEACON_SECONDS} s; the old one is left first. Those in reach are joined beforehand, so a change costs no association"
        ),
    );
    put(
        "turns",
        format!(
            "kernel MPTCP over all; one after the other for {TURN_SECONDS} s, the others backups (MP_PRIO)"
        ),
    );
    put("mptcp_plain", "kernel MPTCP over all that have an address, by ip mptcp every half second".into());
    let bars =
        |metric: &str| WALKS.map(|(way, label)| (label.to_owned(), format!("{way}.{metric}"))).to_vec();
    Experiment {
        id: id("fig8-mptcp"),
        title: "a walk past five real access points on one channel: what arrives, as a part of what an ideal hand-over has"
            .to_owned(),
        spec,
        paper: Some(
            "figure 8: all access points at once track the best one; a hand-over by beacon counts stands still for 5 to 10 s".to_owned(),
        ),
        goals: vec![
            Goal::at_least("ours.of_ideal", 0.92),
            Goal::at_most("ours.longest_gap_ms", 200.0),
            Goal::at_least("mptcp_marks.over_plain", 1.0),
        ],
        beds: vec![Bed::Vm],
        bars: vec![BarGroup { label: "the whole walk".into(), bars: bars("of_ideal") }],
        unit: "part of an ideal hand-over",
        axes: Axes { over: Some("s"), unit: Some("Mbit/s") },
        runner: Box::new(|_, seed| run_walk(seed)),
    }
}

pub(super) fn reaction() -> Experiment {
    let mut spec = spec();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put("marks_heard", MARKS_HEARD.into());
    put("points", format!("two, {APART} m apart, open, 802.11g, channel 6; nothing fades"));
    put(
        "way",
        format!(
            "the device stands {SWAP_METRES} m from one, and at once as near to the other, {CHANGES} times, every {BETWEEN} s"
        ),
    );
    put("round_trip_ms", REACTION_ROUND_TRIP_MS.to_string());
    put("moved", format!("{MOVED} of what the near one alone carries, over half a second"));
    let bars =
        |metric: &str| STAYS.map(|(way, label)| (label.to_owned(), format!("{way}.{metric}"))).to_vec();
    Experiment {
        id: id("reaction-mptcp"),
        title: "two real access points change places at once: until the traffic has moved".to_owned(),
        spec,
        paper: Some("section 6.1: the traffic has shifted after 1 to 2 s at 50 ms; no figure".to_owned()),
        goals: vec![Goal::at_most("ours.worst_s", 1.0), Goal::at_most("mptcp_marks.mean_s", 2.0)],
        beds: vec![Bed::Vm],
        bars: vec![
            BarGroup { label: "mean".into(), bars: bars("mean_s") },
            BarGroup { label: "worst".into(), bars: bars("worst_s") },
        ],
        unit: "s",
        axes: Axes { over: Some("s after a change"), unit: Some("part of the near one alone") },
        runner: Box::new(|_, seed| run_reaction(seed)),
    }
}

pub(super) fn varying() -> Experiment {
    let mut spec = spec();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put("marks_heard", MARKS_HEARD.into());
    put("points", format!("two, {BESIDE} m from the device, open, 802.11g, channel 6"));
    put("fades", format!("Rayleigh, each access point by itself, {} s each", VARYING_FADES_MS / 1e3));
    put("round_trip_ms", "20".into());
    put("download", format!("{DOWNLOAD} MB of one long flow of {VARYING} s, from each second of it on"));
    put("one, other", "plain TCP by one access point alone; each way has the same fades".into());
    put("ideal", "the better one of both in each second".into());
    let ways = STAYS.iter().map(|(way, label)| ((*way).to_owned(), (*label).to_owned()));
    let ways: Vec<(String, String)> =
        ["one", "other"].map(|one| (one.to_owned(), one.to_owned())).into_iter().chain(ways).collect();
    let bars = |metric: &str| -> Vec<(String, String)> {
        ways.iter().map(|(way, label)| (label.clone(), format!("{way}.{metric}"))).collect()
    };
    Experiment {
        id: id("fig9-mptcp"),
        title: "10 MB again and again over two real access points whose air varies".to_owned(),
        spec,
        paper: Some(
            "figure 9: medians of 5 s and 5.6 s over one access point and 6 s over both; the 99th percentile over both is half".to_owned(),
        ),
        goals: vec![Goal::at_most("ours.median_over_best", 1.0), Goal::at_most("ours.p99_over_best", 0.5)],
        beds: vec![Bed::Vm],
        bars: vec![
            BarGroup { label: "median".into(), bars: bars("median_s").into_iter().chain(PAPER_MEDIANS.map(paper_bar)).collect() },
            BarGroup { label: "99th percentile".into(), bars: bars("p99_s") },
        ],
        unit: "s",
        axes: Axes { over: Some("s"), unit: Some("Mbit/s") },
        runner: Box::new(|_, seed| run_varying(seed)),
    }
}

fn run_walk(seed: u64) -> anyhow::Result<Report> {
    let points: Vec<f64> = (0..NAMES.len()).map(|point| point as f64 * APART).collect();
    let last = APART * (NAMES.len() - 1) as f64;
    let seconds = (last / METRES_A_SECOND).floor() as u32;
    let course = Course { points, fades_ms: WALKING_FADES_MS, seed, ..Course::default() };
    let lead = f64::from(LEAD);
    let mut ways = vec![
        ("start".to_owned(), vec![(0.0, 0.0)]),
        ("walk".to_owned(), vec![(lead, 0.0), (lead + last / METRES_A_SECOND, last)]),
    ];
    ways.extend(STANDS.map(|metres| (format!("stand-{metres}"), vec![(0.0, f64::from(metres))])));
    let script = format!(
        r#"at_start() {{ air start; sleep 8; at_home ping -q -c 50 -i 0.02 -s 1000 -W 2 -I wl-a {SERVER_ADDRESS} >/dev/null || true; sleep 3; }}
walk() {{ air walk; cut -d' ' -f1 /proc/uptime >/results/began-$2; "$@" --seconds {whole}; }}
follow() {{ follow_endpoints; sleep 0.5; }}
take_turns() {{
    follow_endpoints
    number=0
    for name in $networks; do
        number=$((number + 1))
        if grep -q "^$name " /tmp/up; then turn $number; sleep {TURN_SECONDS}; fi
    done
}}
count() {{ count_beacons >&3; sleep 0.3; }}
hand_over() {{ awk -v more={MORE_BEACONS} -v window={BEACON_SECONDS} '{CHOOSE}' | while read -r number; do echo $number; only $number; done >/results/hand-overs; }}
radio_up --kernel --channels 6; address_on wl-a; address_on wl-b
serve
fetch warm --bytes 100000 --interface wl-a
head -1 /proc/stat >/results/before
for metres in {stands}; do air stand-$metres; sleep 2; fetch stand-$metres --seconds {standing} --interface wl-a; done
at_start
plain_endpoints; fetch warm --transport mptcp --bytes 100000
managed follow walk fetch mptcp_plain --transport mptcp; at_start
managed take_turns walk fetch turns --transport mptcp; at_start
no_endpoints; ip -n device mptcp limits set subflow 8 add_addr_accepted 8; only 1
mkfifo /tmp/beacons; hand_over </tmp/beacons & handing_over=$!
exec 3>/tmp/beacons; managed count walk fetch beacons --transport mptcp; exec 3>&-
wait $handing_over; no_endpoints; at_start
direct_up
fetch warm --bytes 200000 --interface wl-a; sleep 3
steered warm --seconds 3; sleep 1
heard_marks >/results/heard-before
for turn in {turns}; do walk steered mptcp_marks$turn; at_start; done
heard_marks >/results/heard-after
direct_down
tunnel_up
for turn in {turns}; do walk fetch ours$turn; at_start; done
tunnel_down; radio_down
"#,
        turns = (1..=TURNS).map(|turn| turn.to_string()).collect::<Vec<_>>().join(" "),
        whole = LEAD + seconds + 1,
        standing = 2 * STANDING,
        stands = STANDS.map(|metres| metres.to_string()).join(" "),
    );
    let answers = course.answers(0.0, &ways, &script, Duration::from_secs(2_700))?;
    let stands = STANDS
        .iter()
        .map(|metres| {
            let report = answers.read(&format!("stand-{metres}"))?;
            let settled = mbps_in_pieces(&report, STANDING.into(), STANDING.into(), 1)?;
            Ok((f64::from(*metres), mean(&settled)))
        })
        .collect::<anyhow::Result<Vec<(f64, f64)>>>()?;
    let ideal: Vec<f64> = (0..seconds)
        .map(|second| {
            let along = (f64::from(second) + 0.5) * METRES_A_SECOND;
            between(&stands, (along / APART - (along / APART).round()).abs() * APART)
        })
        .collect();
    let mut metrics = Metrics::new();
    for (metres, mbps) in &stands {
        metrics.insert(format!("standing_{metres}_m.mbps"), rounded(*mbps));
    }
    metrics.insert("processor_idle".into(), rounded(answers.processor_idle));
    metrics.insert("marks_heard".into(), marks_heard(&answers)?);
    let hand_overs = answers.text("hand-overs").map_or(0, |text| text.lines().count());
    metrics.insert("beacons.hand_overs".into(), hand_overs as f64);
    let mut series = vec![("ideal".to_owned(), by_second(&ideal))];
    for (way, _) in WALKS {
        let walks = match way {
            "ours" | "mptcp_marks" => (1..=TURNS).map(|turn| format!("{way}{turn}")).collect(),
            _ => vec![way.to_owned()],
        };
        let (mut walked, mut longest_gap) = (vec![0.0; ideal.len()], 0.0_f64);
        for walk in &walks {
            let report: traffic::Report = answers.read(walk)?;
            let begin = lead - late(&answers, walk, &report)?;
            let had = mbps_in_pieces(&report, begin, 1.0, seconds).with_context(|| walk.clone())?;
            let gaps = report.flows.iter().flat_map(|flow| flow.gaps.iter().chain([&flow.longest_gap]));
            let gaps = gaps.filter(|gap| gap.at_seconds + gap.milliseconds / 1e3 > begin);
            longest_gap = gaps.map(|gap| gap.milliseconds).fold(longest_gap, f64::max);
            if walks.len() > 1 {
                metrics.insert(format!("{walk}.of_ideal"), rounded(mean(&had) / mean(&ideal)));
            }
            walked.iter_mut().zip(had).for_each(|(sum, had)| *sum += had / walks.len() as f64);
        }
        metrics.insert(format!("{way}.of_ideal"), rounded(mean(&walked) / mean(&ideal)));
        metrics.insert(format!("{way}.longest_gap_ms"), rounded(longest_gap));
        let least = walked.windows(5).zip(ideal.windows(5)).map(|(had, ideal)| mean(had) / mean(ideal));
        metrics.insert(format!("{way}.worst_5_s"), rounded(least.fold(f64::INFINITY, f64::min)));
        series.push((way.to_owned(), by_second(&walked)));
    }
    let over_plain = metrics["mptcp_marks.of_ideal"] / metrics["mptcp_plain.of_ideal"];
    metrics.insert("mptcp_marks.over_plain".into(), rounded(over_plain));
    Ok(Report { metrics, series, void: answers.air.and_then(|air| air.void) })
}

/// Awk: lines of [`commands`]' `count_beacons` come in, the number of the access point to change to goes out.
const CHOOSE: &str = r#"BEGIN { at = 1 }
{
    time[NR] = $1; from = NR
    for (point = 1; point < NF; point++) {
        # Counted from nothing since it was joined again.
        total[point] += $(point + 1) - ($(point + 1) < last[point] ? 0 : last[point])
        last[point] = $(point + 1); count[NR, point] = total[point]
    }
    while (from > 1 && time[from] > $1 - window) from--
    for (point = 1; point < NF; point++) heard[point] = total[point] - count[from, point]
    best = 0
    for (point = 1; point < NF; point++)
        if (heard[point] - heard[at] >= more && (!best || heard[point] > heard[best])) best = point
    if (best) { at = best; print at; fflush() }
}"#;

fn run_reaction(seed: u64) -> anyhow::Result<Report> {
    let (near, far) = (SWAP_METRES, APART - SWAP_METRES);
    let course_of_two =
        Course { points: vec![0.0, APART], round_trip_ms: REACTION_ROUND_TRIP_MS, seed, ..Course::default() };
    let mut swaps = vec![(0.0, near)];
    for change in 1..=CHANGES {
        let at = f64::from(LEAD + BETWEEN * change);
        let [before, after] = if change % 2 == 1 { [near, far] } else { [far, near] };
        swaps.extend([(at, before), (at, after)]);
    }
    let ways = [("start".to_owned(), vec![(0.0, near)]), ("swaps".to_owned(), swaps)];
    let script = format!(
        r#"swaps() {{ name=$2; air swaps; cut -d' ' -f1 /proc/uptime >/results/began-$name; "$@" --seconds {whole}; air start; sleep 2; }}
radio_up --kernel --channels 6; address_on wl-a; address_on wl-b
serve
fetch warm --bytes 100000 --interface wl-a; fetch warm --bytes 100000 --interface wl-b
head -1 /proc/stat >/results/before
fetch alone --seconds {standing} --interface wl-a
plain_endpoints; fetch warm --transport mptcp --bytes 100000
swaps fetch mptcp_plain --transport mptcp
no_endpoints
direct_up
steered warm --seconds 3; sleep 1
heard_marks >/results/heard-before
swaps steered mptcp_marks
heard_marks >/results/heard-after
direct_down
tunnel_up
swaps fetch ours
tunnel_down; radio_down
"#,
        whole = LEAD + BETWEEN * (CHANGES + 1),
        standing = 2 * STANDING,
    );
    let answers = course_of_two.answers(near, &ways, &script, Duration::from_secs(900))?;
    let alone = mean(&mbps_in_pieces(&answers.read("alone")?, STANDING.into(), STANDING.into(), 1)?);
    let mut metrics = Metrics::new();
    metrics.insert("alone.mbps".into(), rounded(alone));
    metrics.insert("processor_idle".into(), rounded(answers.processor_idle));
    metrics.insert("marks_heard".into(), marks_heard(&answers)?);
    let mut series = Vec::new();
    for (way, _) in STAYS {
        let report: traffic::Report = answers.read(way)?;
        let first = f64::from(LEAD + BETWEEN) - late(&answers, way, &report)?;
        let pieces = BETWEEN * 1_000 / PIECE.as_millis() as u32;
        let parts: Vec<f64> = mbps_in_pieces(&report, first, PIECE.as_secs_f64(), pieces * CHANGES)?
            .into_iter()
            .map(|mbps| mbps / alone)
            .collect();
        let after: Vec<&[f64]> = parts.chunks_exact(pieces as usize).collect();
        let moved: Vec<f64> =
            after.iter().map(|parts| until_moved(parts, PIECE, STEADY).as_secs_f64()).collect();
        metrics.insert(format!("{way}.mean_s"), rounded(mean(&moved)));
        metrics.insert(format!("{way}.worst_s"), rounded(quantile(&moved, 1.0).unwrap_or(f64::NAN)));
        metrics.insert(format!("{way}.of_alone"), rounded(mean(&parts)));
        series.push((way.to_owned(), course(&after, PIECE)));
    }
    Ok(Report { metrics, series, void: answers.air.and_then(|air| air.void) })
}

/// How many seconds after the device's way its download began.
fn late(answers: &Answers, way: &str, report: &traffic::Report) -> anyhow::Result<f64> {
    let flow = report.flows.first().context("no flow was measured")?;
    let began: f64 =
        answers.text(&format!("began-{way}"))?.trim().parse().context("reading when it began")?;
    Ok(flow.began_at - began)
}

fn run_varying(seed: u64) -> anyhow::Result<Report> {
    let two =
        Course { points: vec![0.0, 2.0 * BESIDE], fades_ms: VARYING_FADES_MS, seed, ..Course::default() };
    let ways = [("varying".to_owned(), vec![(0.0, BESIDE)])];
    let script = format!(
        r#"vary() {{ air varying; "$@" --seconds {whole}; }}
radio_up --kernel --channels 6; address_on wl-a; address_on wl-b
serve
fetch warm --bytes 100000 --interface wl-a; fetch warm --bytes 100000 --interface wl-b
head -1 /proc/stat >/results/before
vary fetch one --interface wl-a; vary fetch other --interface wl-b
plain_endpoints; fetch warm --transport mptcp --bytes 100000
vary fetch mptcp_plain --transport mptcp
no_endpoints
direct_up
steered warm --seconds 3; sleep 1
heard_marks >/results/heard-before
vary steered mptcp_marks
heard_marks >/results/heard-after
direct_down
tunnel_up
vary fetch ours
tunnel_down; radio_down
"#,
        whole = LEAD + VARYING,
    );
    let answers = two.answers(BESIDE, &ways, &script, Duration::from_secs(1_800))?;
    let names = ["one", "other"].into_iter().chain(STAYS.map(|(way, _)| way));
    let had = names
        .map(|name| {
            let report = answers.read(name)?;
            Ok((name, mbps_in_pieces(&report, LEAD.into(), PIECE.as_secs_f64(), VARYING * 10).context(name)?))
        })
        .collect::<anyhow::Result<Vec<(&str, Vec<f64>)>>>()?;
    let mut metrics: Metrics = PAPER_MEDIANS.map(|(over, median)| (paper_metric(over), median)).into();
    metrics.insert("processor_idle".into(), rounded(answers.processor_idle));
    metrics.insert("marks_heard".into(), marks_heard(&answers)?);
    let mut put = |name: &str, mbps: &[f64]| {
        let times = downloads(mbps);
        metrics.insert(format!("{name}.mbps"), rounded(mean(mbps)));
        for (rank, fraction) in [("median_s", 0.5), ("p99_s", 0.99)] {
            metrics.insert(format!("{name}.{rank}"), rounded(quantile(&times, fraction).unwrap_or(f64::NAN)));
        }
    };
    had.iter().for_each(|(name, mbps)| put(name, mbps));
    if let [(_, one), (_, other), ..] = had.as_slice() {
        // Within a second no better one can be told.
        let better = one
            .chunks_exact(10)
            .zip(other.chunks_exact(10))
            .flat_map(|(one, other)| if mean(one) > mean(other) { one } else { other });
        put("ideal", &better.copied().collect::<Vec<f64>>());
    }
    for (rank, ratio) in [("median_s", "median_over_best"), ("p99_s", "p99_over_best")] {
        let best = metrics[&format!("one.{rank}")].min(metrics[&format!("other.{rank}")]);
        for name in STAYS.map(|(way, _)| way).into_iter().chain(["ideal"]) {
            let value = metrics[&format!("{name}.{rank}")] / best;
            metrics.insert(format!("{name}.{ratio}"), rounded(value));
        }
    }
    let series = had.iter().map(|(name, mbps)| {
        let seconds: Vec<f64> = mbps.chunks_exact(10).map(mean).collect();
        ((*name).to_owned(), by_second(&seconds))
    });
    Ok(Report { metrics, series: series.collect(), void: answers.air.and_then(|air| air.void) })
}

/// How long each download took, one from each second on; those that the end cut off are not there.
fn downloads(mbps: &[f64]) -> Vec<f64> {
    let piece = PIECE.as_secs_f64();
    (0..mbps.len())
        .step_by(10)
        .map_while(|begin| {
            let mut left = DOWNLOAD * 8.0;
            let pieces = mbps[begin..].iter().position(|mbps| {
                left -= mbps * piece;
                left <= 0.0
            })?;
            Some((pieces + 1) as f64 * piece)
        })
        .collect()
}

/// Seconds and values, one for each second.
fn by_second(values: &[f64]) -> Vec<(f64, f64)> {
    (0_u32..).map(f64::from).zip(values.iter().map(|value| rounded(*value))).collect()
}

/// What lies between two known points on a straight line; beyond the last one it is as there.
fn between(known: &[(f64, f64)], at: f64) -> f64 {
    let next = known.partition_point(|(place, _)| *place <= at);
    match (next.checked_sub(1).and_then(|before| known.get(before)), known.get(next)) {
        (Some((from, low)), Some((to, high))) => low + (high - low) * (at - from) / (to - from),
        (Some((_, value)), None) | (None, Some((_, value))) => *value,
        (None, None) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_download_from_each_second_on_is_timed_until_the_end_cuts_it_off() {
        // 80 Mbit/s: 10 MB take a second. Then nothing for two seconds, then as before.
        let mbps = [vec![80.0; 20], vec![0.0; 20], vec![80.0; 10]].concat();
        let times = downloads(&mbps);
        assert_eq!(
            times.iter().map(|time| (time * 10.0).round()).collect::<Vec<_>>(),
            [10.0, 10.0, 30.0, 20.0, 10.0]
        );
        assert_eq!(downloads(&mbps[..45]).len(), 2);
    }

    #[test]
    fn beacons_of_two_seconds_decide_and_come_back_from_nothing_with_a_new_association() {
        use std::io::Write;
        use std::process::{Command, Stdio};

        let mut awk = Command::new("awk")
            .args(["-v", &format!("more={MORE_BEACONS}"), "-v", &format!("window={BEACON_SECONDS}"), CHOOSE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The first one is heard 20 times in two seconds, then 6 times; the second one always 18 times, and is joined anew at 6 s.
        let lines =
            ["0 100 50", "1 110 59", "2 120 68", "3 123 77", "4 126 86", "5 129 95", "6 139 3", "7 149 12"];
        awk.stdin.take().unwrap().write_all((lines.join("\n") + "\n").as_bytes()).unwrap();
        let output = awk.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "2\n", "and is not left for as many");
    }

    #[test]
    fn an_ideal_hand_over_is_measured_at_some_places() {
        let known = [(0.0, 20.0), (10.0, 10.0)];
        assert_eq!([-1.0, 0.0, 5.0, 12.0].map(|at| between(&known, at)), [20.0, 20.0, 15.0, 10.0]);
    }
}
