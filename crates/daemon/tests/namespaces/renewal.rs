//! A gateway that becomes the program installed in its place, while a device is connected.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anabranch::control::{EventKind, EventSequence};
use identity::{DaemonLock, StateDirectory};

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
    // Who ends the gateway meanwhile must not find that none runs.
    let state = StateDirectory::open(bed.directory("gateway"), "the test").unwrap();
    let is_over = Arc::new(AtomicBool::new(false));
    let until = Arc::clone(&is_over);
    let tries = std::thread::spawn(move || {
        let mut tries = 0;
        while !until.load(Ordering::Relaxed) {
            assert!(DaemonLock::take(&state).is_err(), "the lock was free at try {tries}");
            tries += 1;
            std::thread::sleep(Duration::from_millis(1));
        }
        tries
    });
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
    is_over.store(true, Ordering::Relaxed);
    let tries = tries.join().expect("it was held all the time");
    println!("longest pause of the download: {longest:?}; the lock was tried {tries} times");
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

pub fn who_ends_a_gateway_that_is_being_renewed_ends_it() {
    let bed = Bed::new(false);
    let before = ruleset(&bed);
    // Before the worker has ended, while the one program follows the other, and when the next one has begun.
    for delay in [0, 15, 30, 45, 60, 90, 150].map(Duration::from_millis) {
        let gateway = bed.start("gateway");
        bed.client("gateway").renew().unwrap();
        std::thread::sleep(delay);
        let sent = Command::new("kill").args(["-TERM", &gateway.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert!(gateway.ends(&format!("it ends on a signal {delay:?} after the renewal was begun")));
        assert_eq!(ruleset(&bed), before, "after {delay:?}");
    }
    let gateway = bed.start("gateway");
    let client = bed.client("gateway");
    client.renew().unwrap();
    client.down().unwrap();
    assert!(gateway.ends("it ends on \"down\" in the middle of the renewal"));
    assert_eq!(ruleset(&bed), before);
}

/// User and group of a process.
fn whose(process: u32) -> [u32; 2] {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    ["Uid:", "Gid:"].map(|of| {
        let line = status.lines().find_map(|line| line.strip_prefix(of)).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    })
}

/// The daemon's user has the state directory, so it can put any file of its own, or a link, in the place of root's.
pub fn root_takes_its_settings_from_its_own_files_only() {
    let bed = Bed::new(false);
    let file = bed.directory("gateway").join("config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let (gateway, _device) = bed.connected();
    let client = bed.client("gateway");
    let status = client.status().unwrap();
    let [user, group] = whose(status.pid);
    assert_ne!(user, 0);
    let owner = || fs::metadata(&file).map(|found| (found.uid(), found.gid(), found.mode() & 0o777)).unwrap();
    assert_eq!(owner(), (0, group, 0o640));
    client.reload().expect("the worker reads it all the same");

    let taken = "user = \"root\"\n[gateway]\ndns = []\n";
    let put = |role: &str, text: &str, user: u32| {
        let path = bed.directory(role).join("config.toml");
        fs::remove_file(&path).unwrap();
        fs::write(&path, text).unwrap();
        chown(&path, Some(user), None).unwrap();
    };
    put("gateway", taken, user);
    let refused = client.renew().unwrap_err().to_string();
    assert!(refused.contains("sets user") && refused.contains("chown root:root"), "{refused}");
    let elsewhere = bed.directory("gateway").join("other.toml");
    fs::write(&elsewhere, taken).unwrap();
    fs::remove_file(&file).unwrap();
    symlink(&elsewhere, &file).unwrap();
    let refused = client.renew().unwrap_err().to_string();
    assert!(refused.contains("sets user") && refused.contains("is a link"), "{refused}");
    assert_eq!(client.status().unwrap().started, status.started);
    // What the worker may do anyway it may write there.
    put("gateway", "[gateway]\ndns = []\nclient_to_client = true\n", user);
    client.renew().unwrap();
    eventually("the new one answers", || client.status().is_ok_and(|now| now.started != status.started));
    assert_eq!(owner().0, user, "root makes nothing its own that others have written");
    client.down().unwrap();
    assert!(gateway.ends("it ends"));

    put("gateway", "[gateway]\nregistry = \"host=/tmp user=a dbname=b\"\n", user);
    let said = bed.start_in_vain("gateway");
    assert!(said.contains("sets gateway.registry") && said.contains("chown root:root"), "{said}");
    put("device", taken, user);
    let said = bed.start_in_vain("device");
    assert!(said.contains("sets user"), "{said}");
    put("gateway", "user = \"daemon\"\n[gateway]\ndns = []\n", 0);
    let _gateway = bed.start("gateway");
    let [other, _] = whose(client.status().unwrap().pid);
    assert!(other != 0 && other != user, "root's own file counts: {other}");
    assert_eq!(owner().0, 0);
}
