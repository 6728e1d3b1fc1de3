//! A gateway that becomes the program installed in its place, while a device is connected.

use std::fs;
use std::process::Command;

use anabranch::control::{EventKind, EventSequence};

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::hardship::ruleset;

/// The kernel's number of the gateway's interface: another one if it was made anew.
fn interface(bed: &Bed) -> String {
    let shown = bed
        .gateway
        .run(|| Command::new("ip").args(["-o", "link", "show", "any0"]).output())
        .unwrap()
        .unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    text.split(':').next().unwrap().to_owned()
}

pub fn an_updated_gateway_closes_no_port_and_no_connection() {
    let bed = Bed::new(false);
    let before = ruleset(&bed);
    let (gateway, _device) = bed.connected();
    let process = gateway.id();
    let client = bed.client("gateway");
    let (started, number) = (client.status().unwrap().started, interface(&bed));
    // Two in a row, in the middle of a download: what was handed over once is handed over again.
    let longest = bed.download(SERVER_V4, 30_000_000, || {
        let mut last = started;
        for _ in 0..2 {
            client.renew().unwrap();
            eventually("the new one answers", || client.status().is_ok_and(|status| status.started != last));
            last = client.status().unwrap().started;
            bed.wait_until_up();
            eventually("the device is back", || {
                client.status().is_ok_and(|status| status.connected_clients == Some(1))
            });
        }
    });
    println!("longest pause of the download: {longest:?}");
    assert_eq!(interface(&bed), number, "the interface stayed");
    let command = fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap();
    assert!(command.contains("DAEMON"), "the process has kept its number");
    let events = bed.client("device").events(EventSequence(0)).unwrap();
    let told =
        events.iter().filter(|event| event.kind == EventKind::SessionDown && event.text.contains("updated"));
    assert_eq!(told.count(), 2);

    client.down().unwrap();
    assert!(gateway.wait());
    assert_eq!(ruleset(&bed), before, "all that the first one has changed is taken back by the last");
}

pub fn a_gateway_stays_what_it_is_if_the_new_one_could_not_start() {
    let bed = Bed::new(false);
    let (_gateway, _device) = bed.connected();
    let client = bed.client("gateway");
    let started = client.status().unwrap().started;
    bed.write_config("gateway", "[gateway]\nmtu = 5\n");
    let refused = client.renew().unwrap_err().to_string();
    assert!(refused.contains("could not start") && refused.contains("mtu"), "{refused}");
    bed.download(SERVER_V4, 500_000, || {});
    assert_eq!(client.status().unwrap().started, started);
}
