//! What is told of uploads through neighbours, to people and to programs. In network namespaces: needs root, and is left out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod homes;
mod running;

use std::fs;
use std::process::{Output, Stdio};

use homes::{Homes, wait_until};
use running::Running;
use serde_json::Value;

/// What a program has said, by lines.
fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The number in front of a per cent sign.
fn per_cent(words: &str) -> u32 {
    words.trim().strip_suffix(" %").and_then(|number| number.rsplit(' ').next()?.parse().ok()).unwrap()
}

#[test]
fn the_part_of_each_neighbour_is_told() {
    let Some(homes) = Homes::new(2) else { return };
    let destination = homes.accept(3);
    let _neighbours = [homes.share(0, &destination.links[1]), homes.share(1, &destination.links[2])];
    wait_until("both neighbours share", || destination.said().matches("shares its uplink").count() == 2);
    // Three uplinks of 8 Mbit/s: so long that it is told of twice.
    let file = homes.file("long.mp4", 36_000_000);
    let told = said(&homes.upload(&[&file], &destination.links[0]));
    let on_the_way: Vec<&str> = told.lines().filter(|line| line.contains("of 36000000 bytes; ")).collect();
    assert!(!on_the_way.is_empty(), "{told}");
    // `long.mp4: 54 % of 36000000 bytes; own uplink 34 %, one 33 %, other 33 %.`, and the like at the end.
    let end = told.lines().find(|line| line.contains("36000000 bytes, verified; ")).unwrap();
    for line in [*on_the_way.last().unwrap(), end] {
        let shares: Vec<&str> = line.split("; ").last().unwrap().trim_end_matches('.').split(", ").collect();
        assert_eq!(shares.len(), 3, "{line}");
        assert!(shares[0].starts_with("own uplink "), "{line}");
        let parts: Vec<u32> = shares.iter().map(|share| per_cent(share)).collect();
        assert!(parts.iter().all(|part| *part > 0), "{line}");
        assert!((98..=102).contains(&parts.iter().sum::<u32>()), "{line}");
    }

    let file = homes.file("short.mp4", 9_000_000);
    let mut command = homes.uploading(&[&file], "far");
    let told = said(&command.arg("--json").output().unwrap());
    let lines: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.iter().all(|line| line["file"] == "short.mp4"), "{told}");
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!((events[0], events[events.len() - 1]), ("begun", "stored"), "{told}");
    let carried = |line: &Value| -> Vec<u64> {
        let neighbours = line["shares"]["neighbours"].as_array().unwrap();
        let named = |carried: &Value| carried["key"].as_str().is_some() && carried["name"].as_str().is_some();
        assert!(neighbours.iter().all(named), "{line}");
        neighbours.iter().map(|carried| carried["bytes"].as_u64().unwrap()).collect()
    };
    let progress: Vec<&Value> = lines.iter().filter(|line| line["event"] == "progress").collect();
    assert!(progress.iter().any(|line| line["done"].as_u64() < Some(9_000_000) && carried(line).len() == 2));
    let stored = &lines[lines.len() - 1];
    let (own, neighbours) = (stored["shares"]["own"].as_u64().unwrap(), carried(stored));
    assert_eq!((&stored["name"], &stored["size"]), (&"short.mp4".into(), &9_000_000.into()));
    assert!(own > 0 && neighbours.len() == 2 && neighbours.iter().all(|bytes| *bytes > 0), "{stored}");
    // Whole chunks are counted, of 1,380 bytes; the last one is shorter.
    let sum = own + neighbours.iter().sum::<u64>();
    assert!((9_000_000..9_001_380).contains(&sum), "{stored}");
}

#[test]
fn an_adapter_that_leads_nowhere_is_named() {
    let Some(homes) = Homes::new(1) else { return };
    homes.homes[0].join(&homes.far, "off", "cut").unwrap();
    homes.far.set_up("cut", false).unwrap();
    let destination = homes.accept(2);
    let file = homes.file("file", 100_000);
    let mut command = homes.command(&homes.homes[0], "source", &["upload"]);
    command.arg(&file).arg(&destination.links[0]).args(["--name", "far", "--air", "wlan9", "--air", "off"]);
    let told = said(&command.output().unwrap());
    let expected = "file: wlan9 is no adapter of this machine, off is not connected; the file goes by";
    assert!(told.contains(expected), "{told}");

    let file = homes.file("beside", 100_002);
    let mut command = homes.command(&homes.homes[0], "source", &["upload"]);
    let told = said(&command.arg(&file).args(["far", "--air", "lan", "--air", "wlan9"]).output().unwrap());
    let expected = "beside: not all adapters are used: wlan9 is no adapter of this machine.";
    assert_eq!(told.matches(expected).count(), 1, "{told}");

    let file = homes.file("other", 100_001);
    let mut command = homes.command(&homes.homes[0], "source", &["upload", "--json"]);
    let told = said(&command.arg(&file).args(["far", "--air", "wlan9"]).output().unwrap());
    let silent = told.lines().find(|line| line.contains("silent")).unwrap();
    let silent: Value = serde_json::from_str(silent).unwrap();
    assert_eq!(silent["reason"], "wlan9 is no adapter of this machine", "{told}");

    let arguments = ["share", &destination.links[1], "--trust-all", "--air", "wlan9"];
    let mut command = homes.command(&homes.homes[1], "neighbour", &arguments);
    let heard = fs::File::create(homes.path("heard")).unwrap();
    let neighbour = Running(command.stdout(heard).stderr(Stdio::null()).spawn().unwrap());
    wait_until("the neighbour says so", || {
        let told = fs::read_to_string(homes.path("heard")).unwrap();
        told.contains("Nobody is heard: wlan9 is no adapter of this machine.")
    });
    drop(neighbour);
    let link = &destination.links[1];
    let arguments = ["share", link, "--trust-all", "--air", "lan", "--repeat", "wlan9"];
    let mut command = homes.command(&homes.homes[1], "neighbour", &arguments);
    let heard = fs::File::create(homes.path("heard too")).unwrap();
    let _neighbour = Running(command.stdout(heard).stderr(Stdio::null()).spawn().unwrap());
    wait_until("it says what is of no use", || {
        let told = fs::read_to_string(homes.path("heard too")).unwrap();
        told.contains("Not all adapters are used: wlan9 is no adapter of this machine.")
    });
}
