//! JUGGLER figure 3: what a download over the primary access point loses when a tenth of the radio's time goes to listening for others.

use super::{ROUND_TRIP_MS, id, listed};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::PingReport;
use crate::vm::air::{Air, Radios};
use crate::vm::direct::{DirectJob, Way};
use crate::vm::topology::SERVER_ADDRESS;
use sim::NetworkSpec;

/// What the back-haul carries each way, in bytes a second, the time between two pings in milliseconds that fit into it, and how long a
/// download lasts, in seconds.
const RATES: [(u32, u64, u32); 7] = [
    (12_500, 20, 40),
    (25_000, 10, 30),
    (50_000, 5, 20),
    (100_000, 5, 15),
    (250_000, 5, 10),
    (500_000, 5, 8),
    (625_000, 5, 8),
];
const PING_SECONDS: u32 = 5;
/// How the radio's time is shared out: name and arguments. The network has nine times the weight of listening.
const SHARES: [(&str, &str); 3] = [
    ("full", "--alpha 0"),
    ("ninety", "--alpha 0 --scan-weight 1"),
    ("ninety_long", "--alpha 0 --scan-weight 1 --slot 100"),
];
const GOAL: f64 = 0.97;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "network".into(),
        format!("hostapd, open, 802.11g on channel 1; round trip {ROUND_TRIP_MS} ms").into(),
    );
    spec.insert("bytes_a_second".into(), listed(RATES.map(|(rate, _, _)| rate)));
    spec.insert("full".into(), "all of the radio's time for the network".into());
    spec.insert(
        "ninety".into(),
        "180 of 200 ms; 20 ms go to the channels in turn, passively and actively".into(),
    );
    spec.insert("ninety_long".into(), "900 of 1,000 ms, as in the paper; no goal".into());
    spec.insert(
        "download".into(),
        "one tcp-cubic flow of 40 s at the lowest rate to 8 s at the highest".into(),
    );
    spec.insert(
        "lost".into(),
        format!("small UDP packets to an echo and back for {PING_SECONDS} s, 50 to 200 a second: those without an answer").into(),
    );
    let mut goals = Vec::new();
    let mut bars = Vec::new();
    for (rate, _, _) in RATES {
        let name = name(rate);
        goals.push(Goal::at_least(format!("{name}.ninety_over_full"), GOAL));
        goals.push(Goal::at_most(format!("{name}.ninety.lost"), 0.0));
        let bars_here = [("90 % of 200 ms", "ninety_over_full"), ("90 % of 1 s", "ninety_long_over_full")];
        bars.push(BarGroup {
            label: format!("{} KB/s", f64::from(rate) / 1e3),
            bars: bars_here.map(|(label, metric)| (label.to_owned(), format!("{name}.{metric}"))).to_vec(),
        });
    }
    Experiment {
        id: id("fig3-primary"),
        title: "a download over the primary access point with 90 % of the radio's time, against all of it"
            .to_owned(),
        spec,
        paper: Some(
            "figure 3 and its text: 90 % of the radio's time cost the primary a few percent at every rate"
                .to_owned(),
        ),
        goals,
        beds: vec![Bed::Vm],
        bars,
        unit: "times all of the radio",
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn name(rate: u32) -> String {
    format!("rate_{}", f64::from(rate) / 1e3)
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    for (rate, ping_ms, seconds) in RATES {
        let name = name(rate);
        let network = NetworkSpec::symmetric("a", f64::from(rate) * 8e-6, ROUND_TRIP_MS);
        let mut script = String::new();
        for (at, (share, arguments)) in SHARES.iter().enumerate() {
            if at > 0 {
                script += &format!("{AGAIN}share_radio {arguments}\n{READY}");
            }
            script += &format!(
                "fetch {share} --seconds {seconds} --interface a\nsleep 5\n\
                 traffic ping {SERVER_ADDRESS}:9100 --interval-ms {ping_ms} --seconds {PING_SECONDS} --interface a \
                 --json /results/{share}-ping || fail ping\n"
            );
        }
        let (_, first) = SHARES[0];
        let radios = Radios::Shared { arguments: first.to_owned(), weights: vec![9] };
        let air = Air { radios, ..Air::shared(&[1], "") };
        let job = DirectJob { air: Some(air), ..DirectJob::new(vec![network], Way::Plain, script) };
        let answers = laboratory.run(&name, job)?;
        for (share, _) in SHARES {
            laboratory.goodput(&answers, share, &format!("{name}.{share}.mbps"))?;
            let ping: PingReport = answers.read(&format!("{share}-ping"))?;
            laboratory.put(&format!("{name}.{share}.lost"), (ping.sent - ping.received) as f64);
            laboratory.put(&format!("{name}.{share}.ping_p50_ms"), ping.p50_milliseconds);
            let ratio = laboratory.metric(&format!("{name}.{share}.mbps"))
                / laboratory.metric(&format!("{name}.full.mbps"));
            laboratory.put(&format!("{name}.{share}_over_full"), ratio);
        }
    }
    Ok(laboratory.report)
}

/// Ends the radio.
const AGAIN: &str = "kill -TERM $radio; wait $radio; sleep 1\n";
/// Waits for the network, and has everything started once.
const READY: &str = "for _ in $(seq 300); do has_address a && break; sleep 0.1; done
fetch warm --bytes 20000 --interface a
sleep 2
";
