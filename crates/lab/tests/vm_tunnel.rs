//! The real programs on Debian's kernel, which is older than a developer's: a gateway, a device that joins it, a download
//! through any0 over two shaped networks. Skipped with a reason where a part of the bed cannot be had.

use std::time::Duration;

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
