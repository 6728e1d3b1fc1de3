//! The real programs on Debian's kernel, which is older than a developer's: a gateway, a device that joins it, a download
//! through any0 over two shaped networks. Skipped with a reason where a part of the bed cannot be had.

use std::time::Duration;

use lab::traffic::Report;
use lab::vm::direct::{DirectJob, Way};
use lab::vm::measurement::{Arrangement, Measurement, Programs};
use sim::NetworkSpec;

#[test]
fn a_download_through_any0_beats_the_best_network() {
    let Some((machine, programs)) = Programs::find_or_skip(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()
    else {
        return;
    };
    let networks = vec![NetworkSpec::symmetric("wide", 4.0, 20), NetworkSpec::symmetric("narrow", 2.0, 50)];
    let measurement =
        Measurement { length: Duration::from_secs(10), ..Measurement::new(networks, Arrangement::Tunnel) };
    let measured = measurement.run(&machine, &programs).unwrap();
    println!("{:.2} Mbit/s, wall time {:.0} s", measured.report.goodput_mbps, measured.wall_seconds);
    assert!(measured.report.intact);
    assert!(measured.report.goodput_mbps > 4.2, "{:.2} of 6 Mbit/s", measured.report.goodput_mbps);
    assert!(measured.report.goodput_mbps < 6.0, "{:.2} of 6 Mbit/s", measured.report.goodput_mbps);
}

/// How many packets programs of the device have sent into any0, before and after a download.
const COUNTED: &str = r#"sent() { in_namespace device awk '$1 == "any0:" { print $11 }' /proc/net/dev; }
sent >/results/before-bulk; fetch bulk --seconds 4; sent >/results/after-bulk
"#;
/// Bytes of payload of a full segment, and a little more.
const SEGMENT: u64 = 1_450;

/// A receiver acknowledges every second segment that it is given by itself, as they come by a network of this speed.
#[test]
fn bulk_is_acknowledged_in_larger_pieces() {
    let Some((machine, programs)) = Programs::find_or_skip(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap()
    else {
        return;
    };
    let job = DirectJob::new(vec![NetworkSpec::symmetric("wifi", 20.0, 30)], Way::Bonded, COUNTED);
    let answers = job.run(&machine, &programs).unwrap();
    let sent = |name: &str| answers.text(name).unwrap().trim().parse::<u64>().unwrap();
    let acknowledgements = sent("after-bulk") - sent("before-bulk");
    let report: Report = answers.read("bulk").unwrap();
    let segments = report.tenths.iter().sum::<u64>() / SEGMENT;
    println!("{acknowledgements} acknowledgements of {segments} segments");
    assert!(report.intact && segments > 4_000, "{segments} segments");
    assert!(acknowledgements * 3 < segments, "{acknowledgements} acknowledgements of {segments} segments");
}
