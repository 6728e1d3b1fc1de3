//! Fifty busy clients of one gateway, all served, byte by byte: the benchmark `crowd` in its short form.

use std::path::Path;
use std::process::Command;

const LAB: &str = env!("CARGO_BIN_EXE_anabranch-lab");
/// Bytes of one inner packet, in kB.
const PACKET_KB: f64 = 1.4;

#[test]
fn every_client_of_a_busy_gateway_is_served() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: network namespaces need root here");
        return;
    }
    if !Path::new(LAB).with_file_name("anabranch").is_file() {
        println!("skipped: anabranch is not built beside {LAB}");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let results = directory.path().join("results.json");
    // It writes nothing if a byte of a packet was changed. A goal that a busy machine misses makes it end with 1 all the same, so
    // only what it wrote counts.
    let output =
        Command::new(LAB).args(["bench", "crowd", "--quick", "--json"]).arg(&results).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(results.is_file(), "the benchmark ended with {}:\n{said}", output.status);
    let records: serde_json::Value = serde_json::from_slice(&std::fs::read(&results).unwrap()).unwrap();
    let metric = |name: &str| records[0]["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name}"));
    assert_eq!(metric("clients"), 50.0);
    for case in ["up-single", "up-bursts", "down-single", "down-bursts"] {
        assert_eq!(metric(&format!("{case}.unserved")), 0.0);
        let [least, most] = ["least_kb", "most_kb"].map(|figure| metric(&format!("{case}.{figure}")));
        assert!(PACKET_KB <= least && least <= most, "{case}: from {least} to {most} kB");
        // The load is small; what a busy machine may lose of it is not much.
        let lost = metric(&format!("{case}.crowd_lost_percent"));
        assert!((0.0..50.0).contains(&lost), "{case}: {lost} % were lost");
        assert!(metric(&format!("{case}.crowd_gateway_s_per_gb")) > 0.0);
    }
}
