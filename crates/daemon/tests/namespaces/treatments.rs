//! The default treatment holds in both directions.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::scenarios::working_paths;

const LENGTH: u64 = 2_000_000;

/// Bytes that the paths have carried out and in.
fn carried(bed: &Bed) -> (Vec<u64>, Vec<u64>) {
    let networks = bed.status().networks;
    let paths = networks.iter().flat_map(|network| &network.paths);
    paths.map(|path| (path.traffic.sent.0, path.traffic.received.0)).unzip()
}

/// What a transfer of [`LENGTH`] bytes each way costs each path, out and in.
fn cost(treatment: &str) -> (Vec<u64>, Vec<u64>) {
    cost_with(&format!("[device]\ndns = \"off\"\ndefault_treatment = \"{treatment}\"\n"))
}

/// The same for a configuration.
fn cost_with(configuration: &str) -> (Vec<u64>, Vec<u64>) {
    let bed = Bed::new(false);
    bed.write_config("device", configuration);
    let _daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    eventually("the rules hold", || {
        !configuration.contains("[[rule]]") || rules(&bed).contains("goto stay_")
    });
    let before = carried(&bed);
    bed.download(SERVER_V4, LENGTH as usize, || {});
    upload(&bed);
    let after = carried(&bed);
    let difference =
        |after: Vec<u64>, before: Vec<u64>| after.iter().zip(before).map(|(a, b)| a - b).collect();
    (difference(after.0, before.0), difference(after.1, before.1))
}

fn rules(bed: &Bed) -> String {
    let output = bed.device.command("nft").unwrap().args(["list", "ruleset"]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// At a pace that leaves every path room for all of it.
fn upload(bed: &Bed) {
    let address: SocketAddr = "198.51.100.9:82".parse().unwrap();
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let mut stream = bed.device.run(|| TcpStream::connect(address)).unwrap().unwrap();
    let (mut far, _) = listener.accept().unwrap();
    let reader = std::thread::spawn(move || far.read_to_end(&mut Vec::new()).unwrap());
    for _ in 0..LENGTH / 50_000 {
        stream.write_all(&[7; 50_000]).unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(stream);
    assert_eq!(reader.join().unwrap() as u64, LENGTH);
}

pub fn duplicated_flows_go_twice_both_ways() {
    twice(cost("duplicated"));
}

/// The default is bonded; the two flows are others by a rule.
pub fn a_rule_duplicates_a_flow_both_ways() {
    twice(cost_with("[device]\ndns = \"off\"\n[[rule]]\nport = [82, 8080]\ntreat = \"duplicated\"\n"));
}

fn twice((sent, received): (Vec<u64>, Vec<u64>)) {
    for bytes in [&sent[..], &received[..]].concat() {
        assert!(bytes > LENGTH * 8 / 10, "a path carried {bytes} bytes only: {sent:?} {received:?}");
    }
}

/// How much repair is sent follows the loss: where nothing is lost, one packet in 64.
pub fn protected_flows_have_repair_both_ways() {
    let (plain_out, plain_in) = least_cost("bonded");
    let (out, back) = least_cost("protected");
    assert!(out as f64 > plain_out as f64 * 1.008, "out {plain_out} bonded, {out} protected");
    assert!(back as f64 > plain_in as f64 * 1.008, "in {plain_in} bonded, {back} protected");
}

/// The least of three: a busy machine makes for needless repeats, which only add.
fn least_cost(treatment: &str) -> (u64, u64) {
    let total = |bytes: Vec<u64>| bytes.iter().sum::<u64>();
    let costs = [(); 3].map(|()| cost(treatment)).map(|(out, back)| (total(out), total(back)));
    costs.into_iter().fold((u64::MAX, u64::MAX), |least, one| (least.0.min(one.0), least.1.min(one.1)))
}
