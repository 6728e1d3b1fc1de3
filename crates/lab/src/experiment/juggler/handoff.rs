//! JUGGLER table 2: how soon a further access point is joined beside the primary one, has lent an address, and takes over.

use super::{ROUND_TRIP_MS, id, takeover};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::simbed::quantile;
use crate::vm::air::Air;
use crate::vm::direct::{Answers, DirectJob, Way};
use crate::vm::program;
use anyhow::Context;
use sim::NetworkSpec;
use std::fmt::Write as _;

/// What is measured: name, the paper's mean in seconds, most in seconds.
const TIMES: [(&str, f64, f64); 2] = [("association", 1.071, 0.5), ("lease", 1.817, 0.5)];
const TRIALS: u32 = 20;
/// The primary's access point, and those that appear by turns.
const CHANNELS: [u8; 3] = [1, 6, 11];
const RATE_MBPS: f64 = 4.0;
/// Nine tenths of 200 ms for the primary, the rest for listening on the three channels in turn.
const RADIO: &str = "--alpha 0 --scan-weight 1 --channels 1,6,11";

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert("networks".into(), format!("hostapd, open, 802.11g on channels 1 (the primary), 6 and 11; {RATE_MBPS} Mbit/s, round trip {ROUND_TRIP_MS} ms").into());
    spec.insert("radio".into(), format!("one, by `anabranch radio up {RADIO}`: weights 9 for the primary, 1 for each other network and for listening").into());
    spec.insert("trials".into(), i64::from(TRIALS).into());
    spec.insert("association".into(), "from the moment that the hostapd of the further network says that it is on, until the station is associated; the other of the two stays off".into());
    spec.insert(
        "lease".into(),
        "from then until the DHCP server has lent an address, its probing of addresses off".into(),
    );
    takeover::describe(&mut spec);
    let mut goals = TIMES.map(|(name, _, most)| Goal::at_most(format!("{name}.mean_s"), most)).to_vec();
    goals.extend(takeover::goals());
    let mut bars = TIMES
        .map(|(name, _, _)| BarGroup {
            label: name.to_owned(),
            bars: vec![
                ("paper".to_owned(), format!("paper.{name}_s")),
                ("mean".to_owned(), format!("{name}.mean_s")),
                ("worst".to_owned(), format!("{name}.worst_s")),
            ],
        })
        .to_vec();
    bars.push(BarGroup {
        label: "fail-over".to_owned(),
        bars: [
            ("paper", "paper.failover_s"),
            ("mean", "failover.connection.mean_s"),
            ("worst", "failover.connection.worst_s"),
        ]
        .map(|(label, metric)| (label.to_owned(), metric.to_owned()))
        .to_vec(),
    });
    Experiment {
        id: id("table2-handoff"),
        title: "how soon a further access point is joined beside the primary one and has lent an address".to_owned(),
        spec,
        paper: Some(
            "table 2: associated 1.071 s after the new access point's first beacon, an address 1.817 s later; a new connection over the other access point \
             1.008 s after the primary's end, of which 1 s is the socket's time-out"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars,
        unit: "s",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    let networks =
        ["a", "b", "c"].map(|name| NetworkSpec::symmetric(name, RATE_MBPS, ROUND_TRIP_MS)).to_vec();
    let mut air = Air::shared(&CHANNELS, RADIO);
    if let crate::vm::air::Radios::Shared { weights, .. } = &mut air.radios {
        weights[0] = 9;
    }
    let mut script = format!("RADIO='{RADIO}'\n{FUNCTIONS}");
    for trial in 0..TRIALS {
        // Access points appear at another moment of the radio's cycle each time.
        let pause = 1.0 + f64::from(trial) * 0.137 % 0.6;
        // Writing to a string cannot fail.
        let _ = writeln!(script, "trial {trial} {} {pause:.3}", name(trial));
    }
    let job = DirectJob {
        air: Some(air),
        programs: vec![program("date", "coreutils")?],
        ..DirectJob::new(networks, Way::Plain, script)
    };
    let answers = laboratory.run("trials", job)?;
    let mut times: [Vec<f64>; 2] = Default::default();
    for trial in 0..TRIALS {
        let [on, up, lent] = moments(&answers, trial)?;
        times[0].push(up - on);
        times[1].push(lent - up);
    }
    for ((name, paper, _), times) in TIMES.iter().zip(&times) {
        laboratory.put(&format!("paper.{name}_s"), *paper);
        laboratory.put(&format!("{name}.mean_s"), times.iter().sum::<f64>() / times.len() as f64);
        for (rank, fraction) in [("median", 0.5), ("worst", 1.0)] {
            laboratory.put(&format!("{name}.{rank}_s"), quantile(times, fraction).context("no trial")?);
        }
    }
    takeover::measure(&mut laboratory)?;
    Ok(laboratory.report)
}

/// The network that appears in a trial.
fn name(trial: u32) -> &'static str {
    if trial.is_multiple_of(2) { "b" } else { "c" }
}

/// When a trial's access point was on, the station associated with it, and the address lent: seconds of one day.
fn moments(answers: &Answers, trial: u32) -> anyhow::Result<[f64; 3]> {
    let on = seconds_of_day(answers.text(&format!("mark-{trial}"))?.trim())
        .context("no time of the access point")?;
    let log = answers.text(&format!("radio-{trial}.log"))?;
    let name = name(trial);
    let after = |what: &str, since: f64| {
        let said = |line: &&str| line.contains(&format!(" {name}: {what}"));
        let mut times = log.lines().filter(said).filter_map(|line| seconds_of_day(line.split(' ').next()?));
        times
            .find(|time| *time >= since)
            .with_context(|| format!("trial {trial}: no \"{name}: {what}\" in {log}"))
    };
    let up = after("up", on)?;
    Ok([on, up, after("address", up)?])
}

/// Of a time such as 2026-01-01T00:00:12.345678Z.
fn seconds_of_day(text: &str) -> Option<f64> {
    let (_, time) = text.trim_end_matches('Z').split_once('T')?;
    let mut parts = time.split(':').map(str::parse::<f64>);
    let mut next = || parts.next()?.ok();
    Some(next()? * 3_600.0 + next()? * 60.0 + next()?)
}

/// `trial NUMBER NETWORK PAUSE`: the radio begins anew with the primary alone; then the network's access point comes.
const FUNCTIONS: &str = r#"trial() {
    kill -TERM $radio; wait $radio; sleep 1
    share_radio $RADIO
    for _ in $(seq 300); do has_address a && break; sleep 0.1; done
    sleep $3
    rm -f /results/point-$2-0.log
    point_on $2 0
    for _ in $(seq 1000); do grep -q AP-ENABLED /results/point-$2-0.log 2>/dev/null && break; sleep 0.005; done
    date -u +%Y-%m-%dT%H:%M:%S.%N >/results/mark-$1
    for _ in $(seq 200); do has_address $2 && break; sleep 0.05; done
    has_address $2 || { cat /results/radio.log; fail "trial $1"; }
    cp /results/radio.log /results/radio-$1.log
    point_off $2 0
}
point_off b 0; point_off c 0
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_logs_and_of_the_script_are_alike() {
        assert_eq!(seconds_of_day("2026-01-01T01:02:03.500000Z"), Some(3_723.5));
        assert_eq!(seconds_of_day("2026-01-01T01:02:03.500000000"), Some(3_723.5));
        assert_eq!(seconds_of_day("INFO"), None);
    }
}
