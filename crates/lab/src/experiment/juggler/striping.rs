//! JUGGLER figure 4: a file in two halves over two networks, against one network and against two cards to which the program binds its
//! sockets.

use super::{FILE_BYTES, Links, bars_over_one, id, listed};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, Bed, Experiment, Goal, Report};
use crate::traffic::Report as TrafficReport;
use crate::vm::direct::{Answers, DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use std::time::Duration;

/// What each network carries, thousand bytes a second of the plain link, and whether a goal holds there.
const RATES: [(u32, bool); 6] =
    [(25, true), (50, true), (100, true), (250, true), (500, true), (1_000, false)];
const GOAL: f64 = 0.95;
/// Over one network where networks are slow, with one radio that takes turns and with two cards.
const PAPER_SLOW: f64 = 2.0;

/// Downloads in direct mode: which networks two connections get may be a matter of chance.
fn downloads(links: Links) -> u32 {
    match links {
        Links::Wired => 5,
        Links::Air => 1,
    }
}

pub(super) fn experiment(links: Links) -> Experiment {
    let (rates, mut spec) = (links.rates(RATES), toml::Table::new());
    links.describe(&mut spec);
    spec.insert("kilobytes_a_second".into(), listed(rates.iter().map(|(rate, _)| *rate)));
    spec.insert("file_bytes".into(), (FILE_BYTES as i64).into());
    spec.insert("one".into(), "the whole file by one connection bound to one card (SO_BINDTODEVICE)".into());
    spec.insert("two_cards".into(), "half of it by each of two connections, bound to one card each".into());
    spec.insert(
        "direct".into(),
        format!(
            "half of it by each of two connections that nobody bound; the mean of {} downloads",
            downloads(links)
        )
        .into(),
    );
    let held = rates.iter().filter(|(_, is_goal)| *is_goal);
    Experiment {
        id: id(&links.of("fig4-striping")),
        title: "a file in two halves over two networks, against one network and two bound cards".to_owned(),
        spec,
        paper: Some(
            "figure 4: about 2 times one card at low rates, as much as two cards; more than 1 up to about 500 KB/s, with one radio \
             that takes turns"
                .to_owned(),
        ),
        goals: held.map(|(rate, _)| Goal::at_least(format!("rate_{rate}.direct_over_two_cards"), GOAL)).collect(),
        beds: vec![Bed::Vm],
        bars: bars_over_one(rates.iter().map(|(rate, _)| *rate)),
        unit: "times one card",
        axes: Axes::default(),
        runner: Box::new(move |_, seed| run(links, seed)),
    }
}

fn run(links: Links, seed: u64) -> anyhow::Result<Report> {
    let (mut laboratory, downloads) = (Laboratory::open(seed)?, downloads(links));
    for (rate, _) in links.rates(RATES) {
        let (whole, most_seconds) = (FILE_BYTES, 3_000);
        let half = whole / 2;
        let bound = |file: &str, interface: &str| {
            format!(
                "traffic fetch {SERVER_ADDRESS}:9000 --seconds {most_seconds} --bytes {half} --interface {interface} \
                 --json /results/{file}"
            )
        };
        let plain = format!(
            "fetch one --seconds {most_seconds} --bytes {whole} --interface a\nsleep 2\n{} &\nother=$!\n{} || fail 'one half'\n\
             wait $other || fail 'the other half'\n",
            bound("half-b", "b"),
            bound("half-a", "a"),
        );
        let direct: String = (1..=downloads)
            .map(|time| {
                format!("fetch halves-{time} --seconds {most_seconds} --bytes {half} --flows 2\nsleep 2\n")
            })
            .collect();
        let length = Duration::from_secs(u64::from(downloads) * most_seconds);
        let job = |way, script| DirectJob { length, ..links.job(rate, way, script) };
        let plain = laboratory.run(&format!("rate_{rate}.plain"), job(Way::Plain, plain))?;
        let dealt = laboratory.run(&format!("rate_{rate}.direct"), job(Way::Direct, direct))?;
        let one = seconds(&plain, "one", whole)?;
        let two_cards = seconds(&plain, "half-a", half)?.max(seconds(&plain, "half-b", half)?);
        let times: Vec<f64> = (1..=downloads)
            .map(|time| seconds(&dealt, &format!("halves-{time}"), half))
            .collect::<anyhow::Result<_>>()?;
        let direct = times.iter().sum::<f64>() / f64::from(downloads);
        laboratory.put(&format!("rate_{rate}.direct_worst_s"), times.iter().copied().fold(0.0, f64::max));
        for (name, value) in [("one_s", one), ("two_cards_s", two_cards), ("direct_s", direct)] {
            laboratory.put(&format!("rate_{rate}.{name}"), value);
        }
        laboratory.put(&format!("rate_{rate}.two_cards_over_one"), one / two_cards);
        laboratory.put(&format!("rate_{rate}.direct_over_one"), one / direct);
        laboratory.put(&format!("rate_{rate}.direct_over_two_cards"), two_cards / direct);
    }
    laboratory.put("paper.slow_over_one", PAPER_SLOW);
    Ok(laboratory.report)
}

/// How long the flows of a report took, which must have brought `bytes` each.
fn seconds(answers: &Answers, file: &str, bytes: u64) -> anyhow::Result<f64> {
    let report: TrafficReport = answers.read(file)?;
    let whole = report.intact && report.flows.iter().all(|flow| flow.bytes == bytes);
    anyhow::ensure!(whole, "{file} was not downloaded whole");
    Ok(report.seconds)
}
