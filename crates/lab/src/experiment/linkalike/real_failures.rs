//! LINKALIKE/real-failures: real programs whose neighbours are killed or cut off during a transfer, and come back.

use std::fmt::Write as _;

use sim::neighbourhood::{NeighbourhoodSpec, parse};

use super::failures::HOMES;
use super::strategies::{chunk_rate, uplinks};
use super::{id, quantile};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::vm::homes::{HomesJob, HomesOutcome, value_at};

/// How a neighbour goes, and how it comes back.
struct Kind {
    name: &'static str,
    /// Shell commands for the neighbour `$name`.
    fails: &'static str,
    returns: &'static str,
    /// Until then.
    away_s: f64,
}

const KINDS: [Kind; 4] = [
    Kind { name: "killed", fails: "kill_share $name", returns: "share $name", away_s: STEADY_S },
    Kind {
        name: "unplugged",
        fails: "ip -n $name link set uplink down",
        returns: "ip -n $name link set uplink up; ip -n $name route add default via 10.9.${name#home}.2",
        away_s: STEADY_S,
    },
    Kind { name: "silent", fails: "lose $name 100%", returns: "lose $name 0%", away_s: STEADY_S },
    // The connection is given up, and made anew.
    Kind { name: "silent_long", fails: "lose $name 100%", returns: "lose $name 0%", away_s: 3.0 * STEADY_S },
];
/// The neighbours that fail, one after the other: those with the largest and with the second slowest uplink.
const FAILING: [usize; 2] = [1, 3];
/// Until the first failure, and between two events: longer than anything is watched.
const STEADY_S: f64 = 13.0;
/// So long after an event what was missing is counted.
const WATCHED_S: f64 = 10.0;
/// The end, beyond the last event.
const REST_S: f64 = 6.0;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("neighbourhood".into(), HOMES.into());
    spec.insert("programs".into(), "anabranch accept, share and upload --air-rates 1,2,5.5,11".into());
    spec.insert("killed".into(), "kill -9 of the neighbour's program, which is started again".into());
    spec.insert("unplugged".into(), "the neighbour's kernel is told that its uplink is down".into());
    spec.insert(
        "silent".into(),
        "nothing passes the neighbour's uplink in either direction, and nobody is told".into(),
    );
    let away = |kind: &Kind| format!("{} for {} s", kind.name, kind.away_s);
    let away = KINDS.iter().map(away).collect::<Vec<_>>().join(", ");
    spec.insert("failing".into(), format!("neighbours {FAILING:?}, one after the other: {away}").into());
    spec.insert(
        "missing_s".into(),
        format!("what came less in {WATCHED_S} s than the others, or after the return all, carry, in seconds of the neighbour's own share").into(),
    );
    let metrics = |name: &str| [format!("{name}.gone_missing_s"), format!("{name}.returned_missing_s")];
    let mut goals = vec![Goal::at_least("identical", 1.0)];
    goals.extend(KINDS.iter().flat_map(|kind| metrics(kind.name)).map(|metric| Goal::at_most(metric, 2.0)));
    Experiment {
        id: id("real-failures"),
        title: "real programs: neighbours that are killed or cut off and come back, and what that costs of their own share".to_owned(),
        spec,
        paper: Some("section VI.E: transfers go on; no figures".to_owned()),
        goals,
        beds: vec![Bed::Vm],
        bars: [("after it has gone", "gone"), ("after it is back", "returned")]
            .map(|(label, which)| BarGroup {
                label: label.to_owned(),
                bars: KINDS
                    .iter()
                    .map(|kind| (kind.name.to_owned(), format!("{}.{which}_missing_s", kind.name)))
                    .collect(),
            })
            .to_vec(),
        unit: "s of its own share, worst",
        axes: Axes { over: None, unit: Some("kbit/s of the file") },
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let neighbourhood =
        parse(HOMES)?.into_iter().next().ok_or_else(|| anyhow::anyhow!("there is no neighbourhood"))?;
    let all = chunk_rate(&neighbourhood.own) + uplinks(&neighbourhood).iter().sum::<f64>();
    let mut laboratory = Laboratory::open(seed)?;
    for kind in &KINDS {
        let seconds = FAILING.len() as f64 * (STEADY_S + kind.away_s) + STEADY_S + REST_S;
        let job = HomesJob {
            neighbourhood: neighbourhood.clone(),
            chunks: (all * seconds) as u32,
            seed,
            meanwhile: events(kind),
        };
        let answers = laboratory.run_job(kind.name, job.job()?)?;
        let outcome = HomesOutcome::of(&answers, neighbourhood.neighbours.len())?;
        let (mut gone, mut returned) = (Vec::new(), Vec::new());
        for home in FAILING {
            let missing = missing(&outcome, &neighbourhood, home)?;
            laboratory.put(&format!("{}.home{home}.gone_missing_s", kind.name), missing.gone);
            laboratory.put(&format!("{}.home{home}.returned_missing_s", kind.name), missing.returned);
            laboratory.put(&format!("{}.home{home}.until_connected_s", kind.name), missing.until_connected);
            gone.push(missing.gone);
            returned.push(missing.returned);
        }
        laboratory.put(&format!("{}.gone_missing_s", kind.name), quantile(&gone, 1.0));
        laboratory.put(&format!("{}.returned_missing_s", kind.name), quantile(&returned, 1.0));
        laboratory.report.series.push((kind.name.to_owned(), per_second(&outcome)));
    }
    // A run whose file differed has ended with an error.
    laboratory.put("identical", 1.0);
    Ok(laboratory.report)
}

/// The shell commands of a run.
fn events(kind: &Kind) -> String {
    let mut script = LOSE.to_owned();
    for home in FAILING {
        let Kind { fails, returns, away_s, .. } = kind;
        // Writing to a string cannot fail.
        let _ = writeln!(
            script,
            "name=home{home}; sleep {STEADY_S}; note gone $name; {fails}\nsleep {away_s}; note back $name; {returns}; note connected $name"
        );
    }
    script
}

const LOSE: &str = r#"lose() { # a home, and how much is lost
    for end in home core; do at isp-$1 tc qdisc change dev $end root netem limit 100000 delay "$(delay_of $1)" loss $2; done
}
delay_of() { at isp-$1 tc qdisc show dev core | sed -n 's/.* delay \([0-9.a-z]*\).*/\1/p'; }
"#;

/// What a neighbour's absence cost, in seconds of its own share.
struct Missing {
    /// Beyond what it cannot carry while it is away.
    gone: f64,
    /// After it was connected again.
    returned: f64,
    /// Until then, from its return on.
    until_connected: f64,
}

fn missing(outcome: &HomesOutcome, spec: &NeighbourhoodSpec, home: usize) -> anyhow::Result<Missing> {
    let noted = |what: &str| outcome.noted(&format!("{what} home{home}"));
    let (gone, back, connected) = (noted("gone")?, noted("back")?, noted("connected")?);
    let stored = |at: f64| value_at(outcome.stored.iter().copied(), at);
    let came = |from: f64| stored(from + WATCHED_S) - stored(from);
    // All uplinks were full before.
    let before = came(gone - WATCHED_S) / WATCHED_S;
    let all = chunk_rate(&spec.own) + uplinks(spec).iter().sum::<f64>();
    let part = spec.neighbours.get(home - 1).map_or(0.0, |neighbour| chunk_rate(&neighbour.uplink) / all);
    let own = before * part;
    Ok(Missing {
        gone: ((before - own) * WATCHED_S - came(gone)) / own,
        returned: (before * WATCHED_S - came(connected)) / own,
        until_connected: connected - back,
    })
}

/// Kilobits of the file that came in each second.
fn per_second(outcome: &HomesOutcome) -> Vec<(f64, f64)> {
    let stored = |at: f64| value_at(outcome.stored.iter().copied(), outcome.begun + at);
    let seconds = 0..outcome.took as u32;
    seconds
        .map(|second| {
            (f64::from(second), (stored(f64::from(second) + 1.0) - stored(f64::from(second))) * 8e-3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_counted_in_the_neighbours_own_seconds() {
        // Four uplinks alike and the own one: 5 units a second; home1 is away from 20 to 40 and its rest needs a second more to be noticed.
        let spec = parse("800/50 | 800/50 1 1 1 1 | 800/50 1 1 1 1 | 800/50 1 1 1 1 | 800/50 1 1 1 1")
            .unwrap()
            .remove(0);
        let stored = |at: f64| match at {
            _ if at <= 20.0 => 5.0 * at,
            _ if at <= 21.0 => 100.0 + 3.0 * (at - 20.0),
            _ if at <= 41.0 => 103.0 + 4.0 * (at - 21.0),
            _ => 183.0 + 5.0 * (at - 41.0),
        };
        let outcome = HomesOutcome {
            took: 60.0,
            begun: 0.0,
            stored: (0..600)
                .map(|tenth| (f64::from(tenth) / 10.0, stored(f64::from(tenth) / 10.0)))
                .collect(),
            parts: Vec::new(),
            on_the_wire: Vec::new(),
            notes: [(20.0, "gone home1"), (40.0, "back home1"), (40.5, "connected home1")]
                .map(|(at, text)| (at, text.to_owned()))
                .to_vec(),
        };
        let missing = missing(&outcome, &spec, 1).unwrap();
        assert!((missing.gone - 1.0).abs() < 1e-6, "{}", missing.gone);
        assert!((missing.returned - 0.5).abs() < 1e-6, "{}", missing.returned);
        assert!((missing.until_connected - 0.5).abs() < 1e-6);
        assert!(super::missing(&outcome, &spec, 2).is_err(), "nothing happened to it");
    }
}
