//! JUGGLER figure 7: a tenth of the radio for a neighbour without an access point, beside a download over one.

use super::{ROUND_TRIP_MS, id};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{BarGroup, Bed, Experiment, Goal, Report};
use crate::vm::air::{Air, Radios};
use crate::vm::direct::{DirectJob, Way};
use sim::NetworkSpec;

/// What the access point's back-haul carries, in thousand bytes a second, as the fastest of figure 3.
const RATE: u32 = 625;
/// The group is on another channel than the access point.
const CHANNEL: u8 = 1;
const SECONDS: u32 = 10;
/// How the radio is shared: name, weights of the access point and of the group.
const SHARES: [(&str, [u16; 2]); 3] = [("primary_alone", [1, 0]), ("side_alone", [0, 1]), ("both", [9, 1])];
const GOALS: (f64, f64) = (0.97, 0.9);

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "network".into(),
        format!("hostapd, open, 802.11g on channel {CHANNEL}; {RATE} KB/s, round trip {ROUND_TRIP_MS} ms")
            .into(),
    );
    spec.insert(
        "side".into(),
        "an open ad hoc group on channel 6 with a computer whose station is the kernel's own and which knows nothing of our turns".into(),
    );
    spec.insert(
        "radio".into(),
        "one, by `anabranch radio up --alpha 0`: weights 9 and 1; alone: that network is the only one".into(),
    );
    spec.insert(
        "traffic".into(),
        format!("a download from the server and an upload to the neighbour, both tcp-cubic, {SECONDS} s, at once in \"both\"").into(),
    );
    spec.insert(
        "shares".into(),
        "the primary's: what it carries alone, as its back-haul is slower than nine tenths of the air; the side's: a tenth of what it carries alone".into(),
    );
    let bars = [("primary", "primary_of_share"), ("side", "side_of_share")];
    Experiment {
        id: id("fig7-sidechannel"),
        title: "a download over an access point with nine tenths of the radio and a neighbour with one"
            .to_owned(),
        spec,
        paper: Some(
            "figure 7: the primary loses a few percent, the side channel has 40 of its 50 KB/s".to_owned(),
        ),
        goals: vec![Goal::at_least("primary_of_share", GOALS.0), Goal::at_least("side_of_share", GOALS.1)],
        beds: vec![Bed::Vm],
        bars: bars
            .map(|(label, metric)| BarGroup {
                label: label.to_owned(),
                bars: vec![("of its share".to_owned(), metric.to_owned())],
            })
            .to_vec(),
        unit: "times its share",
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    for (name, [primary, side]) in SHARES {
        let network = NetworkSpec::symmetric("a", f64::from(RATE) * 8e-3, ROUND_TRIP_MS);
        let mut script = String::from(NEIGHBOUR);
        if side > 0 {
            script += MEET;
            script += &format!(
                "traffic fetch 10.9.0.2:9000 --upload --seconds {SECONDS} --interface side --json /results/side & side=$!\n"
            );
        }
        if primary > 0 {
            script += &format!("fetch primary --seconds {SECONDS} --interface a\n");
        }
        if side > 0 {
            script += "wait $side || fail 'the upload'\n";
        }
        let radios = Radios::Shared { arguments: "--alpha 0".to_owned(), weights: vec![primary.max(1)] };
        let known = format!(
            "[[network]]\nssid = \"side\"\ninterface = \"side\"\nad_hoc_channel = 6\naddress = \"10.9.0.1/24\"\nweight = {side}\n"
        );
        let set_up =
            if side > 0 { format!("cat >>/job/radio.toml <<END\n{known}END\n") } else { String::new() };
        let air = Air { channels: vec![CHANNEL], radios, partings: false, others: vec![("neighbour", 1)] };
        // Without the access point there is nothing to warm up over it: it is left once that is done.
        let script = if primary == 0 { LEAVE.to_owned() + &script } else { script };
        let job = DirectJob { air: Some(air), set_up, ..DirectJob::new(vec![network], Way::Plain, script) };
        let answers = laboratory.run(name, job)?;
        if primary > 0 {
            laboratory.goodput(&answers, "primary", &format!("{name}.primary_mbps"))?;
        }
        if side > 0 {
            laboratory.goodput(&answers, "side", &format!("{name}.side_mbps"))?;
        }
    }
    let primary = laboratory.metric("both.primary_mbps") / laboratory.metric("primary_alone.primary_mbps");
    let side = laboratory.metric("both.side_mbps") / (laboratory.metric("side_alone.side_mbps") * 0.1);
    laboratory.put("primary_of_share", primary);
    laboratory.put("side_of_share", side);
    laboratory.put("paper.side_of_share", 0.8);
    Ok(laboratory.report)
}

/// The neighbour's computer.
const NEIGHBOUR: &str = r#"neighbour() { in_namespace neighbour "$@"; }
neighbour iw dev wlan0 set type ibss; ip -n neighbour link set dev wlan0 up
ip -n neighbour addr add 10.9.0.2/24 dev wlan0; neighbour iw dev wlan0 ibss join side 2437
neighbour anabranch-lab traffic serve 10.9.0.2:9000 &
"#;
/// Waits until both are in one group, and has everything started once.
const MEET: &str = r#"for _ in $(seq 60); do in_namespace device ping -q -c 1 -W 1 -I side 10.9.0.2 >/dev/null && break; done
in_namespace device ping -q -c 1 -W 1 -I side 10.9.0.2 >/dev/null || fail 'the neighbour is not met'
traffic fetch 10.9.0.2:9000 --bytes 20000 --upload --interface side --json /tmp/warm || fail 'the first upload'
sleep 2
"#;
const LEAVE: &str = "in_namespace device anabranch --state /tmp/device radio remove a; sleep 2\n";
