//! JUGGLER figure 7: a tenth of the radio for a neighbour without an access point, beside a download over one.

use super::{ROUND_TRIP_MS, id};
use crate::experiment::direct_laboratory::Laboratory;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Report};
use crate::traffic::PingReport;
use crate::vm::air::{Air, Radios};
use crate::vm::direct::{Answers, DirectJob, Way};
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
        "an open ad hoc group on channel 6 with a computer that is in nothing else: with `anabranch radio up` too, so that it knows our turns; for `other` by the kernel's own station, which knows nothing of them".into(),
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
        "pings".into(),
        format!("before that {PINGS} packets each way, one in {PING_MS} ms; lost: without an answer").into(),
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
        axes: Axes::default(),
        runner: Box::new(|_, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut laboratory = Laboratory::open(seed)?;
    for (name, [primary, side]) in SHARES {
        let mut script = String::new();
        if primary == 0 {
            // Without the access point there is nothing to warm up over it: it is left once that is done.
            script += LEAVE;
        }
        if side > 0 {
            script += KNOWING;
            script += &meet();
            script += &format!(
                "in_namespace device timeout 60 anabranch-lab traffic fetch 10.9.0.2:9000 --upload --seconds {SECONDS} --interface side --json /results/side & side=$!\n"
            );
        }
        if primary > 0 {
            script += &format!("fetch primary --seconds {SECONDS} --interface a\n");
        }
        if side > 0 {
            script += "wait $side || fail 'the upload'\n";
        }
        let answers = laboratory.run(name, job(primary, side, script))?;
        if primary > 0 {
            laboratory.goodput(&answers, "primary", &format!("{name}.primary_mbps"))?;
        }
        if side > 0 {
            laboratory.goodput(&answers, "side", &format!("{name}.side_mbps"))?;
            put_losses(&mut laboratory, &answers, name)?;
        }
    }
    let [_, _, (_, [primary, side])] = SHARES;
    let answers = laboratory.run("other", job(primary, side, OTHER.to_owned() + &meet()))?;
    put_losses(&mut laboratory, &answers, "other")?;
    let primary = laboratory.metric("both.primary_mbps") / laboratory.metric("primary_alone.primary_mbps");
    let side = laboratory.metric("both.side_mbps") / (laboratory.metric("side_alone.side_mbps") * 0.1);
    laboratory.put("primary_of_share", primary);
    laboratory.put("side_of_share", side);
    laboratory.put("paper.side_of_share", 0.8);
    Ok(laboratory.report)
}

/// One radio with such weights of the access point and of the group; without the group if that is 0.
fn job(primary: u16, side: u16, script: String) -> DirectJob {
    let network = NetworkSpec::symmetric("a", f64::from(RATE) * 8e-3, ROUND_TRIP_MS);
    let radios = Radios::Shared { arguments: "--alpha 0".to_owned(), weights: vec![primary.max(1)] };
    let air = Air { radios, others: vec![("neighbour", 1)], ..Air::shared(&[CHANNEL], "") };
    let known = known_group(1, side);
    let set_up = if side > 0 { format!("cat >>/job/radio.toml <<END\n{known}END\n") } else { String::new() };
    let theirs = format!("cat >/job/neighbour.toml <<END\n{}END\n", known_group(2, 1));
    DirectJob {
        air: Some(air),
        set_up: set_up + &theirs,
        ..DirectJob::new(vec![network], Way::Plain, script)
    }
}

/// The group in a radio's list of networks; `number` is the last one of its address in it.
fn known_group(number: u8, weight: u16) -> String {
    format!(
        "[[network]]\nssid = \"side\"\ninterface = \"side\"\nad_hoc_channel = 6\naddress = \"10.9.0.{number}/24\"\nweight = {weight}\n"
    )
}

/// Puts the parts of the pings that were lost, by who asked.
fn put_losses(laboratory: &mut Laboratory, answers: &Answers, name: &str) -> anyhow::Result<()> {
    for who in ["ours", "theirs"] {
        let report: PingReport = answers.read(&format!("pings-{who}"))?;
        let lost = (report.sent - report.received) as f64 / report.sent as f64;
        laboratory.put(&format!("{name}.lost_of_{who}"), lost);
    }
    Ok(())
}

/// The neighbour's computer, which shares its radio too, with nobody else.
const KNOWING: &str = r#"mkdir -p /tmp/neighbour/radio; cp /job/neighbour.toml /tmp/neighbour/radio/radio.toml
chmod 700 /tmp/neighbour /tmp/neighbour/radio; chmod 600 /tmp/neighbour/radio/radio.toml
ip netns exec neighbour anabranch --state /tmp/neighbour radio up --alpha 0 >/results/neighbour.log 2>&1 &
their_interface=side
"#;
/// The neighbour's computer with the kernel's own station.
const OTHER: &str = r#"in_namespace neighbour iw dev wlan0 set type ibss; ip -n neighbour link set dev wlan0 up
ip -n neighbour addr add 10.9.0.2/24 dev wlan0; in_namespace neighbour iw dev wlan0 ibss join side 2437
their_interface=wlan0
"#;
const PINGS: u32 = 100;
const PING_MS: u32 = 70;

/// Waits until both are in one group, has everything started once, and measures what is lost.
fn meet() -> String {
    let seconds = f64::from(PINGS * PING_MS) / 1e3;
    format!(
        r#"reached() {{ in_namespace device ping -q -c 1 -W 1 -I side 10.9.0.2 >/dev/null; }}
for _ in $(seq 60); do reached && break; done; reached || reached || {{ cat /results/*.log; fail 'the neighbour is not met'; }}
in_namespace neighbour anabranch-lab traffic serve 10.9.0.2:9000 &
in_namespace neighbour anabranch-lab traffic echo 10.9.0.2:9100 &
in_namespace device anabranch-lab traffic echo 10.9.0.1:9100 &
sleep 1
in_namespace device timeout 60 anabranch-lab traffic fetch 10.9.0.2:9000 --bytes 20000 --upload --interface side --json /tmp/warm || echo 'the first upload did not end'
traffic ping 10.9.0.2:9100 --interval-ms {PING_MS} --seconds {seconds} --interface side --json /results/pings-ours || fail 'our pings'
in_namespace neighbour anabranch-lab traffic ping 10.9.0.1:9100 --interval-ms {PING_MS} --seconds {seconds} --interface $their_interface --json /results/pings-theirs || fail 'their pings'
sleep 1
"#
    )
}

const LEAVE: &str = "in_namespace device anabranch --state /tmp/device radio remove a; sleep 2\n";
