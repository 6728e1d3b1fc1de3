//! The kernel's MPTCP over two real access points of one channel, plain and steered by our marks, beside what else a device can do there: one access point,
//! handing over by counts of beacons, and our bond. fig6 and fig6b with the same settings.

use std::collections::BTreeMap;
use std::time::Duration;

use anabranch::control::Status;
use anyhow::Context;
use radio::Rate;
use sim::NetworkSpec;
use units::BitRate;

use super::mptcp_commands::{
    BEACON_SECONDS, MARKS_HEARD, MORE_BEACONS, commands, marks_heard, mbps_in_pieces,
};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report, at_once};
use crate::medium::{Config, Quality};
use crate::traffic;
use crate::vm::direct::{Answers, OTHERS, others_on};
use crate::vm::measurement::Programs;
use crate::vm::scene::near_and_far;
use crate::vm::topology::rate_command;
use crate::vm::{Machine, program};

/// What is counted of a download, seconds.
#[derive(Clone, Copy)]
struct Counted {
    /// Not before this: estimates and windows settle.
    from: u32,
    to: u32,
}

const AIR_COUNTED: Counted = Counted { from: 4, to: 10 };
/// Longer where others share the uplink: what a flow gets there is a matter of chance for seconds, and the paper's is the throughput in the long run.
const UPLINK_COUNTED: Counted = Counted { from: 8, to: 28 };
/// How it begins there is told too.
const BEGINNING: Counted = AIR_COUNTED;
/// Behind each access point, if nothing else is said.
const LINE_MBPS: f64 = 50.0;
const ROUND_TRIP_MS: u64 = 20;
/// Of the good access point's uplink where others share it, as `[MULTIAP] section 6.2.1`.
const UPLINK_MBPS: f64 = 25.0;
/// Flows of others there.
const OTHERS_FLOWS: [u32; 3] = [1, 4, 16];

/// What goals without a wide margin compare.
const SEVERAL: [&str; 2] = ["near", "ours"];

/// What is compared, with its name in the plot; all but the hand-over by beacons is a download.
const WAYS: [(&str, &str); 6] = [
    ("beacons", "by beacons"),
    ("mptcp_plain", "kernel MPTCP"),
    ("cap_marks", "one in 20 marked"),
    ("mptcp_marks", "--treat mptcp"),
    ("tunnel_marks", "ours, by marks"),
    ("ours", "ours"),
];
/// What the uplink's places have too: the best of [`DIVISIONS`] and of the near one alone.
const DIVIDED: (&str, &str) = ("divided", "best by hand");
/// Plain TCP by both at once: with how many Mbit/s of the far one's line.
const DIVISIONS: [(&str, f64); 4] =
    [("division_1", 1.0), ("division_2", 2.0), ("division_3", 3.0), ("division_all", LINE_MBPS)];
/// What a goal compares is downloaded so often where others share the uplink, and the mean counts: what one download gets there is a matter of chance.
const UPLINK_DOWNLOADS: u32 = 3;
/// Others begin so many seconds earlier.
const OTHERS_LEAD: u32 = 1;
/// What the others have beside each way, and in which file the guest says so.
const OTHERS_FILES: [(&str, &str); 10] = [
    ("others_beside_near", "others-near"),
    ("others_beside_mptcp_plain", "others-mptcp_plain"),
    ("others_beside_cap_marks", "others-cap_marks"),
    ("others_beside_mptcp_marks", "others-mptcp_marks"),
    ("others_beside_tunnel_marks", "others-tunnel_marks"),
    ("others_beside_ours", "others-ours"),
    ("others_beside_division_1", "others-division_1"),
    ("others_beside_division_2", "others-division_2"),
    ("others_beside_division_3", "others-division_3"),
    ("others_beside_division_all", "others-division_all"),
];
const OTHERS_PREFIX: &str = "others-";
/// What the names of files of a division end with: what came by each.
const OF_DIVISION: [&str; 2] = ["-near", "-far"];

/// What the paper has on average, as parts.
const AIR_PAPER: [(&str, f64); 2] = [("plain", 0.34), ("marks", 0.85)];
const UPLINK_PAPER: [(&str, f64); 1] = [("marks", 0.84)];
/// Others keep so much beside ours of what they have beside a plain TCP by the good one.
const OTHERS_KEEP: f64 = 0.9;

/// How the far access point reaches the device; the near one's frames all arrive.
struct Place {
    name: String,
    label: String,
    far: Quality,
    /// Flows of others over the near one's uplink.
    others: u32,
    counted: Counted,
    /// Downloads of [`SEVERAL`].
    downloads: u32,
}

pub(super) fn good_and_bad() -> Experiment {
    let mut spec = spec(AIR_COUNTED);
    spec.insert("equal".into(), "everything of both arrives, at 54 Mbit/s".into());
    spec.insert("loss_20".into(), "20 % of the far one's attempts are lost at any rate; so 40 and 60".into());
    spec.insert("slow".into(), "the far one is not understood above 6 Mbit/s".into());
    let places = air_places();
    let goals = vec![
        Goal::at_least("mptcp_marks.over_plain.worst", 0.95),
        Goal::at_least("slow.mptcp_marks.over_plain", 1.1),
        Goal::at_least("mptcp_marks.of_best.mean", 0.85),
        Goal::at_least("mptcp_marks.of_best.worst", 0.65),
        Goal::at_least("ours.of_best.mean", 0.92),
        Goal::at_least("ours.of_best.worst", 0.8),
    ];
    Experiment {
        id: id("fig6-mptcp"),
        title: "two real access points on one channel, the far one worse and worse: the kernel's MPTCP, plain and with our marks".to_owned(),
        spec,
        paper: Some(
            "figure 6a: with marks 85 % of the optimum on average and 65 % at worst; plain MPTCP 34 % on average".to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars: bars(&places, "best", &AIR_PAPER),
        unit: "part of the best one alone",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(&air_places(), "best", &AIR_PAPER, seed)),
    }
}

pub(super) fn busy_uplink() -> Experiment {
    let mut spec = spec(UPLINK_COUNTED);
    spec.insert(
        "beginning".into(),
        format!("beginning.WAY: the same from {} to {} s of each download", BEGINNING.from, BEGINNING.to)
            .into(),
    );
    spec.insert("far".into(), "not understood above 6 Mbit/s".into());
    spec.insert("near_uplink".into(), format!("{UPLINK_MBPS} Mbit/s, shared with others").into());
    spec.insert(
        "others".into(),
        OTHERS_FLOWS.map(|flows| toml::Value::from(i64::from(flows))).to_vec().into(),
    );
    spec.insert(
        "downloads".into(),
        format!("{UPLINK_DOWNLOADS} of near and ours in each place, of which the mean counts (NAME.mbps.1 and so on: each); one of the rest").into(),
    );
    spec.insert(
        "others_kept".into(),
        "what the others have beside ours, as a part of what they have beside a plain TCP by the near one"
            .into(),
    );
    spec.insert(
        "optimum".into(),
        "the near one alone beside the others, and the far one alone for the time that this leaves free of the near one's whole rate".into(),
    );
    spec.insert(
        "divided".into(),
        format!(
            "the best of plain TCP by both at once, with {} Mbit/s of the far one's line (division_1 and so on; the last one is all of it), and of the near one alone, one download each: what this air gives if it is divided by hand, or somewhat more, as the luckiest of them counts",
            DIVISIONS.map(|(_, mbps)| mbps.to_string()).join(", ")
        )
        .into(),
    );
    let places = uplink_places();
    let goals = vec![
        Goal::at_least("mptcp_marks.over_plain.worst", 0.95),
        Goal::at_least("mptcp_marks.of_optimum.mean", 0.84),
        Goal::at_least("ours.of_optimum.mean", 0.92),
        Goal::at_least("others_kept.worst", OTHERS_KEEP),
    ];
    Experiment {
        id: id("fig6b-mptcp"),
        title: "the good one of two real access points has a busy uplink: the kernel's MPTCP, plain and with our marks".to_owned(),
        spec,
        paper: Some("figure 6b and section 6.2.1: 84 % of the optimum on average".to_owned()),
        goals,
        beds: vec![Bed::Vm],
        bars: bars(&places, "optimum", &UPLINK_PAPER),
        unit: "part of the optimum",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(&uplink_places(), "optimum", &UPLINK_PAPER, seed)),
    }
}

fn spec(counted: Counted) -> toml::Table {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put(
        "access_points",
        "two, open, 802.11g, on channel 6; the device's are the kernel's own stations on one radio".into(),
    );
    put(
        "behind",
        format!("{LINE_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms, each, if nothing else is said"),
    );
    let Counted { from, to } = counted;
    put("traffic", format!("one download (CUBIC), of which what arrives from {from} to {to} s is counted"));
    put(
        "best",
        "the better one of both alone, by plain TCP: also what an ideal hand-over has, as nothing moves"
            .into(),
    );
    put("marks_heard", MARKS_HEARD.into());
    put(
        "marks_counted",
        "packets of tunnel_marks that the device counted as marked, since it came up".into(),
    );
    put(
        "beacons",
        format!(
            "handing over when {MORE_BEACONS} more beacons were heard in {BEACON_SECONDS} s, coming from the far one: which one it would use, alone"
        ),
    );
    put(
        "mptcp_plain",
        "kernel MPTCP over both, one endpoint each, by ip mptcp; the server's kernel too".into(),
    );
    put(
        "cap_marks",
        "the same, and of what comes by the far one, where it is worse, one packet in twenty marked by one rule of nftables: the paper's actuator alone, at its cap"
            .into(),
    );
    put(
        "mptcp_marks",
        "anabranch run --treat mptcp in direct mode, with the radio's advice: nftables marks and backups"
            .into(),
    );
    put("ours", "through the tunnel over both, with the radio's advice to the gateway".into());
    put(
        "tunnel_marks",
        "the same with steering = \"marks\", and congestion = \"olia\" at the gateway".into(),
    );
    spec
}

fn air_places() -> Vec<Place> {
    let place = |name: String, label: String, far| Place {
        name,
        label,
        far,
        others: 0,
        counted: AIR_COUNTED,
        downloads: 1,
    };
    let losses = [20_u32, 40, 60].map(|loss| {
        let far = Quality { loss: f64::from(loss) / 100.0, signal_dbm: -70, ..Quality::default() };
        place(format!("loss_{loss}"), format!("{loss} % lost"), far)
    });
    std::iter::once(place("equal".into(), "both good".into(), Quality::default()))
        .chain(losses)
        .chain([place("slow".into(), "far slow".into(), slow())])
        .collect()
}

fn uplink_places() -> Vec<Place> {
    let place = |others| Place {
        name: format!("others_{others}"),
        label: format!("others: {others}"),
        far: slow(),
        others,
        counted: UPLINK_COUNTED,
        downloads: UPLINK_DOWNLOADS,
    };
    OTHERS_FLOWS.map(place).into()
}

fn slow() -> Quality {
    slow_above(Rate(12))
}

/// As rates are told to people, and named in the medium's file.
pub(super) fn mbps(rate: Rate) -> f64 {
    f64::from(rate.0) / 2.0
}

/// Up to this rate of 802.11g everything arrives, above it nothing.
pub(super) fn slow_above(rate: Rate) -> Quality {
    let next = Rate::OFDM.into_iter().find(|higher| *higher > rate);
    let lost = next.map(|rate| (mbps(rate).to_string(), 1.0));
    let loss_at = std::iter::once(("1".to_owned(), 0.0)).chain(lost).collect();
    Quality { loss_at, signal_dbm: -80, ..Quality::default() }
}

/// Parts of what `whole` names, in each place and on average, the paper's beside these.
fn bars(places: &[Place], whole: &str, paper: &[(&str, f64)]) -> Vec<BarGroup> {
    let paper =
        paper.iter().map(|(way, _)| (format!("paper, {way}"), format!("paper.{way}.of_{whole}.mean")));
    let divided = (whole == "optimum").then_some(DIVIDED);
    let ways: Vec<_> = WAYS.into_iter().chain(divided).collect();
    let mean = ways.iter().map(|(way, label)| ((*label).to_owned(), format!("{way}.of_{whole}.mean")));
    let of = |place: &Place| {
        let bar =
            |(way, label): &(&str, &str)| ((*label).to_owned(), format!("{}.{way}.of_{whole}", place.name));
        BarGroup { label: place.label.clone(), bars: ways.iter().map(bar).collect() }
    };
    let bars: Vec<_> = mean.chain(paper).collect();
    std::iter::once(BarGroup { label: "mean".to_owned(), bars }).chain(places.iter().map(of)).collect()
}

/// Each of `places` in a boot of its own; parts are of what `whole` names, `best` or `optimum`. `paper`: what it has by each way on average.
fn run(places: &[Place], whole: &str, paper: &[(&str, f64)], seed: u64) -> anyhow::Result<Report> {
    let (machine, programs) = (Machine::find()?, Programs::beside_this_one()?);
    let mut report = Report::default();
    let mut parts: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let measured = at_once::each(places, at_once::cores(), |place| {
        let answers = place.answers(&machine, &programs, seed)?;
        let figures = place.figures(&answers)?;
        tracing::info!("{}: {figures:?}", place.name);
        Ok((answers, figures))
    });
    for (place, (answers, figures)) in places.iter().zip(measured?) {
        report.void = report.void.or_else(|| answers.air.as_ref().and_then(|air| air.void.clone()));
        let mut put = |name: &str, value: f64| {
            report.metrics.insert(format!("{}.{name}", place.name), rounded(value));
        };
        let of = |name: &str| figures.get(name).copied().unwrap_or_default();
        figures.iter().for_each(|(name, value)| put(&format!("{name}.mbps"), *value));
        put("processor_idle", answers.processor_idle);
        put("marks_heard", marks_heard(&answers)?);
        put("marks_counted", marks_counted(&answers)?);
        if place.others > 0 {
            let kept = of("others_beside_ours") / of("others_beside_near");
            put("others_kept", kept);
            parts.entry("others_kept".into()).or_default().push(kept);
            for (way, mbps) in place.downloads(&answers, BEGINNING)? {
                put(&format!("beginning.{way}.of_{whole}"), mbps / of(whole));
            }
            for way in SEVERAL {
                for (number, mbps) in (1..).zip(place.each(&answers, way, place.counted)?) {
                    put(&format!("{way}.mbps.{number}"), mbps);
                }
            }
        }
        let mut parts_of = WAYS.map(|(way, _)| (way, whole)).to_vec();
        if place.others > 0 {
            parts_of.extend([(DIVIDED.0, whole), ("ours", DIVIDED.0)]);
        }
        for (way, whole) in parts_of {
            let part = of(way) / of(whole);
            put(&format!("{way}.of_{whole}"), part);
            parts.entry(format!("{way}.of_{whole}")).or_default().push(part);
        }
        let over_plain = of("mptcp_marks") / of("mptcp_plain");
        put("mptcp_marks.over_plain", over_plain);
        parts.entry("mptcp_marks.over_plain".into()).or_default().push(over_plain);
    }
    for (way, part) in paper {
        report.metrics.insert(format!("paper.{way}.of_{whole}.mean"), *part);
    }
    for (name, parts) in parts {
        report.metrics.insert(format!("{name}.mean"), rounded(mean(&parts)));
        let worst = parts.iter().copied().fold(f64::INFINITY, f64::min);
        report.metrics.insert(format!("{name}.worst"), rounded(worst));
    }
    Ok(report)
}

impl Place {
    fn answers(&self, machine: &Machine, programs: &Programs, seed: u64) -> anyhow::Result<Answers> {
        let near_uplink = if self.others > 0 { UPLINK_MBPS } else { LINE_MBPS };
        let near = NetworkSpec::symmetric("near", near_uplink, ROUND_TRIP_MS);
        let mut scene = near_and_far(0.0, self.script(&near));
        if let Some(network) = scene.wifi.networks.first_mut() {
            network.link = near;
        }
        scene.programs.push(program("wpa_supplicant", "wpasupplicant")?);
        // Each place downloads eight times and these again, with some seconds before and after.
        let again = SEVERAL.len() as u32 * (self.downloads - 1)
            + if self.others > 0 { DIVISIONS.len() as u32 } else { 0 };
        scene.length = Duration::from_secs(400) + Duration::from_secs(20) * self.counted.to * (8 + again) / 8;
        scene.air = scene.air.map(|mut air| {
            air.link.iter_mut().for_each(|link| link.quality = self.far.clone());
            Config { seed, ..air }
        });
        Answers::of(scene.run(machine, programs)?).with_context(|| format!("in the place {}", self.name))
    }

    /// Stations and the server of both protocols are up; then one download after another.
    fn script(&self, near: &NetworkSpec) -> String {
        let others = if self.others == 0 {
            "beside() { \"$@\"; }\n".to_owned()
        } else {
            format!(
                "{}ip -n core route add 10.67.1.0/24 via 10.66.1.1\n\
                 beside() {{ in_namespace {OTHERS} anabranch-lab traffic fetch $server --flows {} --congestion cubic \
                 --seconds {} --json /results/others-$2 & others=$!; sleep {OTHERS_LEAD}; \"$@\"; wait $others; sleep 1; }}\n\
                 by_both() {{ both=$1; fetch $both-near $whole --interface wl-near & fetching=$!; \
                 fetch $both-far $whole --interface wl-far; wait $fetching || fail $both; }}\n",
                others_on(near, 1),
                self.others,
                self.counted.to + 2 * OTHERS_LEAD,
            )
        };
        format!(
            r#"{commands}{others}repeated() {{
    repeated=$1; shift
    for number in {numbers}; do beside fetch $repeated$number "$@"; sleep 1; done
}}
radio_up --kernel --channels 6; address_on wl-near; address_on wl-far
serve
whole="--seconds {length}"
fetch warm --bytes 100000 --interface wl-near
head -1 /proc/stat >/results/before
{alone}repeated near $whole --interface wl-near
beside fetch far $whole --interface wl-far; sleep 1
{divisions}plain_endpoints
fetch warm --transport mptcp --bytes 100000
while true; do count_beacons; sleep 1; done >/results/beacons & counting=$!
beside fetch mptcp_plain $whole --transport mptcp
kill $counting
{mark}beside fetch cap_marks $whole --transport mptcp
mark_nothing; no_endpoints
direct_up
fetch warm --bytes 200000 --interface wl-near; fetch warm --bytes 200000 --interface wl-far
steered warm --seconds 3; sleep 1
heard_marks >/results/heard-before
beside steered mptcp_marks $whole
heard_marks >/results/heard-after
direct_down
tunnel_up
repeated ours $whole
tunnel_down; tunnel_marks_up
beside fetch tunnel_marks $whole
at_home anabranch --state /tmp/state status --json >/results/tunnel-status
tunnel_down; radio_down
head -1 /proc/stat >/results/after
air_down"#,
            commands = commands(&["near", "far"]),
            length = self.counted.to,
            numbers =
                numbers(self.downloads).map(|number| format!("'{number}'")).collect::<Vec<_>>().join(" "),
            // Where both are alike the paper marks none.
            mark = if self.far == Quality::default() { "" } else { "mark_one_in_20 far; " },
            divisions = if self.others > 0 { divisions() } else { String::new() },
            alone = if self.others > 0 { "fetch alone $whole --interface wl-near; sleep 1\n" } else { "" },
        )
    }

    /// Mbit/s by name.
    fn figures(&self, answers: &Answers) -> anyhow::Result<BTreeMap<&'static str, f64>> {
        let mut figures = self.downloads(answers, self.counted)?;
        if self.others > 0 {
            figures.insert("alone", self.counted.mbps(&answers.read("alone")?)?);
            let Counted { from, to } = self.counted;
            let of_others = Counted { from: from + OTHERS_LEAD, to: to + OTHERS_LEAD };
            for (name, file) in OTHERS_FILES {
                figures.insert(name, mean(&self.each(answers, file, of_others)?));
            }
            let near = figures.get("near").copied();
            let mut divisions = Vec::new();
            for (name, _) in DIVISIONS {
                let by = |one| self.counted.mbps(&answers.read(&format!("{name}{one}"))?);
                let [near, far] = OF_DIVISION.map(by);
                divisions.push((name, near? + far?));
            }
            let best = divisions.iter().map(|(_, mbps)| *mbps).chain(near).fold(0.0, f64::max);
            figures.extend(divisions.into_iter().chain([(DIVIDED.0, best)]));
        }
        let of = |name: &str| figures.get(name).copied().unwrap_or_default();
        let (near, far) = (of("near"), of("far"));
        let alone = figures.get("alone").copied().unwrap_or(near);
        let free = (1.0 - near / alone).max(0.0);
        let beacons = if self.leaves_far(answers)? { near } else { far };
        figures.extend([("best", near.max(far)), ("optimum", near + free * far), ("beacons", beacons)]);
        Ok(figures)
    }

    /// Mbit/s of our downloads by name, on average of several.
    fn downloads(&self, answers: &Answers, counted: Counted) -> anyhow::Result<BTreeMap<&'static str, f64>> {
        ["near", "far", "mptcp_plain", "cap_marks", "mptcp_marks", "tunnel_marks", "ours"]
            .into_iter()
            .map(|name| Ok((name, mean(&self.each(answers, name, counted)?))))
            .collect()
    }

    /// Mbit/s of each download that the file `name` and those of its repetitions tell of.
    fn each(&self, answers: &Answers, name: &str, counted: Counted) -> anyhow::Result<Vec<f64>> {
        let several = SEVERAL.contains(&name.trim_start_matches(OTHERS_PREFIX));
        let report = |number: String| {
            let name = format!("{name}{number}");
            counted.mbps(&answers.read(&name)?).context(name)
        };
        numbers(if several { self.downloads } else { 1 }).map(report).collect()
    }

    /// Whether one that counts beacons leaves the far access point, by what was heard during a download.
    fn leaves_far(&self, answers: &Answers) -> anyhow::Result<bool> {
        let text = answers.text("beacons")?;
        let line = |line: &str| -> Option<[f64; 3]> {
            let words: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            words.try_into().ok()
        };
        let seconds: Vec<[f64; 3]> = text.lines().filter_map(line).collect();
        anyhow::ensure!(
            seconds.len() > BEACON_SECONDS as usize,
            "{}: beacons were not counted: {text}",
            self.name
        );
        let more = |pair: (&[f64; 3], &[f64; 3])| {
            let ([begin, near_before, far_before], [end, near, far]) = pair;
            ((near - near_before) - (far - far_before)) / (end - begin) * f64::from(BEACON_SECONDS)
        };
        Ok(seconds
            .iter()
            .zip(&seconds[BEACON_SECONDS as usize..])
            .map(more)
            .any(|more| more >= f64::from(MORE_BEACONS)))
    }
}

/// Packets that the device counted as marked by its own wish, since it came up for `tunnel_marks`.
fn marks_counted(answers: &Answers) -> anyhow::Result<f64> {
    let status: Status = answers.read("tunnel-status")?;
    let paths = status.networks.iter().flat_map(|network| &network.paths);
    Ok(paths.filter_map(|path| path.packets).map(|packets| packets.marked as f64).sum())
}

/// Each of [`DIVISIONS`], and the whole line again in the end.
fn divisions() -> String {
    let line = |mbps| {
        let link = NetworkSpec::symmetric("far", mbps, ROUND_TRIP_MS).down;
        let rate = rate_command("change", BitRate::from_mbps(mbps), link.queue, "to-near");
        format!("in_namespace far-far tc {rate} || fail 'the line of far'\n")
    };
    let division = |(name, mbps)| format!("{}beside by_both {name}; sleep 1\n", line(mbps));
    format!("{}{}", DIVISIONS.map(division).concat(), line(LINE_MBPS))
}

/// What the names of files of so many downloads, one after the other, end with.
fn numbers(downloads: u32) -> impl Iterator<Item = String> {
    std::iter::once(String::new()).chain((2..=downloads).map(|number| format!("-{number}")))
}

impl Counted {
    /// Mbit/s of what is counted.
    fn mbps(self, report: &traffic::Report) -> anyhow::Result<f64> {
        let pieces = mbps_in_pieces(report, self.from.into(), (self.to - self.from).into(), 1)?;
        Ok(mean(&pieces))
    }
}
