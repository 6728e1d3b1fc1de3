//! Uploads through neighbours: programs in network namespaces, a LAN between homes, and an uplink of each. Needs root, and is left out without.

mod homes;
mod running;

use std::fs;
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use homes::{Homes, wait_until};
use running::Running;

#[test]
fn a_file_goes_up_through_two_neighbours() {
    let Some(homes) = Homes::new(2) else { return };
    let destination = homes.accept(3);
    let _neighbours = [homes.share(0, &destination.links[1]), homes.share(1, &destination.links[2])];
    wait_until("both neighbours share", || destination.said().matches("shares its uplink").count() == 2);
    let file = homes.file("video.mp4", 6_000_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/video.mp4")).unwrap() == fs::read(&file).unwrap());
    let said = String::from_utf8_lossy(&sent.stdout).into_owned();
    assert!(said.contains("verified; own uplink"), "{said}");
    for neighbour in 0..2 {
        let carried = homes.ledger(neighbour);
        assert!(carried > 500_000, "neighbour {neighbour} has carried {carried}: {said}");
    }
    assert_eq!(homes.listed("out"), ["video.mp4"], "nothing is left beside it");
}

#[test]
fn a_destination_that_is_killed_goes_on_where_it_was() {
    let Some(homes) = Homes::new(1) else { return };
    let destination = homes.accept(2);
    let _neighbour = homes.share(0, &destination.links[1]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("long", 12_000_000);
    let mut sending = homes.uploading(&[&file], &destination.links[0]);
    let sending = sending.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("something is stored", || homes.journal("out") > 150);
    drop(destination);
    let again = homes.accept(0);
    let sent = sending.wait_with_output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/long")).unwrap() == fs::read(&file).unwrap());
    assert!(again.said().contains("of them before, verified"), "{}", again.said());
    assert_eq!(homes.listed("out"), ["long"]);
}

#[test]
fn a_neighbour_that_is_killed_costs_no_byte() {
    let Some(homes) = Homes::new(2) else { return };
    let destination = homes.accept(3);
    let mut neighbours = vec![homes.share(0, &destination.links[1]), homes.share(1, &destination.links[2])];
    wait_until("both neighbours share", || destination.said().matches("shares its uplink").count() == 2);
    let file = homes.file("file", 12_000_000);
    let mut sending = homes.uploading(&[&file], &destination.links[0]);
    let sending = sending.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("something is stored", || homes.journal("out") > 150);
    neighbours.pop();
    let sent = sending.wait_with_output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
}

#[test]
fn two_sources_share_a_neighbour() {
    let Some(homes) = Homes::new(2) else { return };
    let destination = homes.accept(3);
    let _neighbour = homes.share(0, &destination.links[0]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let files = [homes.file("one", 8_000_000), homes.file("two", 8_000_100)];
    let sources = [(0, "source", 1), (2, "other", 2)];
    let sending = sources.iter().zip(&files).map(|((home, state, link), file)| {
        let mut command = homes.uploading_from(*home, state, &[file], &destination.links[*link]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for (sending, file) in sending.collect::<Vec<_>>().into_iter().zip(&files) {
        let sent = sending.wait_with_output().unwrap();
        assert!(sent.status.success(), "{sent:?}");
        let stored = homes.path("out").join(file.file_name().unwrap());
        assert!(fs::read(stored).unwrap() == fs::read(file).unwrap());
    }
    let carried: Vec<u64> = homes.ledger_by_source(0).into_values().collect();
    let [less, more] = carried[..] else { panic!("carried for {} sources", carried.len()) };
    let (less, more) = (less.min(more), less.max(more));
    assert!(less * 2 > more && less > 500_000, "{carried:?}");
}

#[test]
fn who_is_not_trusted_gets_nothing_and_sends_alone() {
    let Some(homes) = Homes::new(1) else { return };
    let destination = homes.accept(2);
    // Some key, and not the source's.
    let other = identity::KeyPair::generate().unwrap().public().to_string();
    let _neighbour = homes.share_as(0, &["share", &destination.links[1], "--trust", &other]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 8_000_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
    let said = String::from_utf8_lossy(&sent.stdout).into_owned();
    assert!(said.contains("no neighbour shares its uplink with this machine"), "{said}");
    assert!(said.contains("own uplink 100 %"), "{said}");
    let neighbour = fs::read_to_string(homes.path("neighbour0.said")).unwrap();
    assert!(neighbour.contains("is not trusted, and gets nothing"), "{neighbour}");
    assert_eq!(homes.ledger(0), 0);
}

#[test]
fn the_same_file_is_not_sent_twice_and_another_does_not_replace_it() {
    let Some(homes) = Homes::new(0) else { return };
    let destination = homes.accept(1);
    let file = homes.file("a.txt", 100_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    let again = homes.upload(&[&file], "far");
    assert!(again.status.success(), "{again:?}");
    assert!(String::from_utf8_lossy(&again.stdout).contains("nothing was sent"), "{again:?}");
    fs::write(&file, "other").unwrap();
    let other = homes.upload(&[&file, &homes.file("empty", 0)], "far");
    assert!(other.status.success(), "{other:?}");
    assert_eq!(homes.listed("out"), ["a (2).txt", "a.txt", "empty"]);
    assert_eq!(fs::read(homes.path("out/a (2).txt")).unwrap(), b"other");
    // The link was used.
    let mut stranger = homes.command(&homes.homes[0], "stranger", &["upload"]);
    let stranger = stranger.arg(&file).arg(&destination.links[0]).output().unwrap();
    assert!(String::from_utf8_lossy(&stranger.stderr).contains("refuses the invitation"), "{stranger:?}");
}

#[test]
fn a_full_disk_is_told_to_both_ends_and_leaves_no_file() {
    let Some(homes) = Homes::new(0) else { return };
    let out = homes.path("small");
    fs::create_dir(&out).unwrap();
    // The destination alone sees it.
    let script = format!(
        "mount -t tmpfs -o size=2m none {0} && exec {1} --state {2} accept --dir {0}",
        out.display(),
        env!("CARGO_BIN_EXE_anabranch"),
        homes.path("far").display()
    );
    let mut command = homes.far.command("unshare").unwrap();
    command.args(["--mount", "sh", "-c", &script]);
    let destination = homes.start(command, 1);
    let sent = homes.upload(&[&homes.file("large", 6_000_000)], &destination.links[0]);
    let said = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert_eq!(sent.status.code(), Some(1), "{said}");
    assert!(said.contains("refuses") && said.contains("No space left on device"), "{said}");
    wait_until("the destination says so", || destination.said().contains("did not come: cannot write"));
    // What fits comes all the same.
    let sent = homes.upload(&[&homes.file("small.txt", 1_000)], "far");
    assert!(sent.status.success(), "{sent:?}");
}

#[test]
fn a_file_that_is_changed_on_the_way_does_not_arrive() {
    let Some(homes) = Homes::new(0) else { return };
    let destination = homes.accept(1);
    let file = homes.file("log", 12_000_000);
    let mut sending = homes.uploading(&[&file], &destination.links[0]);
    let sending = sending.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("something is stored", || homes.journal("out") > 150);
    fs::OpenOptions::new().append(true).open(&file).unwrap().write_all(b"one more line").unwrap();
    let sent = sending.wait_with_output().unwrap();
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    assert!(String::from_utf8_lossy(&sent.stderr).contains("was changed while it was sent"), "{sent:?}");
    wait_until("the destination says so", || destination.said().contains("did not come: it was changed"));
    wait_until("nothing is left", || homes.listed("out").is_empty());
}

#[test]
fn what_is_lent_is_limited() {
    let Some(homes) = Homes::new(1) else { return };
    let destination = homes.accept(2);
    let mut neighbour =
        homes.share_as(0, &["share", &destination.links[1], "--trust-all", "--volume", "1", "--rate", "100"]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 8_000_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
    assert!(neighbour.0.wait().unwrap().success(), "it ends once its volume is used up");
    let carried = homes.ledger(0);
    assert!((1_000_000..1_010_000).contains(&carried), "{carried}");
    // What nobody has allowed is not done.
    let refused = homes.command(&homes.homes[1], "neighbour0", &["share", "far"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("say for whom"), "{refused:?}");
}

#[test]
fn what_is_lent_is_lent_no_faster_than_was_said() {
    let Some(homes) = Homes::new(1) else { return };
    let destination = homes.accept(2);
    let limited = ["share", &destination.links[1], "--trust-all", "--rate", "1"];
    let _neighbour = homes.share_as(0, &limited);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 10_000_000);
    let began = Instant::now();
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
    // 1 Mbit/s, and a tenth of a second at once.
    let most = began.elapsed().as_secs_f64() * 125_000.0 + 15_000.0;
    let carried = homes.ledger(0);
    assert!(carried > 100_000 && (carried as f64) < most, "{carried} bytes, {most} at most");
}

#[test]
fn what_is_lent_is_lent_for_the_time_that_was_said() {
    let Some(homes) = Homes::new(1) else { return };
    let destination = homes.accept(2);
    let began = Instant::now();
    let limited = ["share", &destination.links[1], "--trust-all", "--for", "6s"];
    let mut neighbour = homes.share_as(0, &limited);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 20_000_000);
    let mut sending = homes.uploading(&[&file], &destination.links[0]);
    let mut sending = sending.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    assert!(neighbour.0.wait().unwrap().success(), "it ends by itself");
    assert!(began.elapsed() >= Duration::from_secs(6));
    assert!(sending.try_wait().unwrap().is_none(), "the file is under way");
    let said = fs::read_to_string(homes.path("neighbour0.said")).unwrap();
    assert!(said.contains("The time is over."), "{said}");
    let carried = homes.ledger(0);
    assert!(carried > 100_000, "{carried}");
    let sent = sending.wait_with_output().unwrap();
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
    assert_eq!(homes.ledger(0), carried, "nothing after its time");
    assert!(destination.said().contains("does not share its uplink any more"), "{}", destination.said());
}

#[test]
fn a_lan_of_ipv6_alone_will_do() {
    let Some(homes) = Homes::new(1) else { return };
    homes.leave_ipv4();
    let destination = homes.accept(2);
    let _neighbour = homes.share(0, &destination.links[1]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 8_000_000);
    let before = homes.sent_to_groups_by_ipv6(0);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
    let (carried, frames) = (homes.ledger(0), homes.sent_to_groups_by_ipv6(0) - before);
    assert!(carried > 500_000 && frames > 1_000, "{carried} bytes of {frames} frames");
}

/// As where there is neither DHCP nor a router.
#[test]
fn a_lan_of_link_local_addresses_will_do_if_it_is_named() {
    let Some(homes) = Homes::new(1) else { return };
    homes.leave_link_local();
    let destination = homes.accept(2);
    let _neighbour = homes.share(0, &destination.links[1]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 8_000_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/file")).unwrap() == fs::read(&file).unwrap());
    let carried = homes.ledger(0);
    assert!(carried > 500_000, "{carried} bytes");
}

#[test]
fn who_may_send_and_how_much_is_for_the_destination_to_say() {
    let Some(homes) = Homes::new(0) else { return };
    let out = homes.path("out");
    let accept = |rights: &[&str]| {
        let arguments = [&["accept", "--dir", out.to_str().unwrap()], rights].concat();
        homes.start(homes.command(&homes.far, "far", &arguments), 1)
    };
    let (small, large) = (homes.file("small", 100_000), homes.file("large", 2_000_000));
    let destination = accept(&["--largest", "1"]);
    let sent = homes.upload(&[&large], &destination.links[0]);
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    assert!(String::from_utf8_lossy(&sent.stderr).contains("larger than is taken here"), "{sent:?}");
    assert!(homes.upload(&[&small], "far").status.success());
    drop(destination);
    let other = identity::KeyPair::generate().unwrap().public().to_string();
    let destination = accept(&["--from", &other]);
    let sent = homes.upload(&[&large], "far");
    assert_eq!(sent.status.code(), Some(1), "{sent:?}");
    assert!(String::from_utf8_lossy(&sent.stderr).contains("may not send files here"), "{sent:?}");
    assert_eq!(homes.listed("out"), ["small"]);
    drop(destination);
    let refused = homes.command(&homes.far, "far", &["accept", "--dir", "/tmp", "--from", "nobody"]).output();
    let refused = refused.unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--from nobody"), "{refused:?}");
}

#[test]
fn a_neighbour_in_another_lan_carries_what_is_repeated_for_it() {
    let Some(homes) = Homes::new(2) else { return };
    // The second neighbour is out of the source's LAN, and has one of its own with the first.
    homes.homes[2].set_up("lan", false).unwrap();
    homes.homes[1].join(&homes.homes[2], "yard", "yard").unwrap();
    for (home, address) in [(1, "192.168.8.1/24"), (2, "192.168.8.2/24")] {
        homes.homes[home].add_address("yard", address.parse().unwrap()).unwrap();
    }
    let destination = homes.accept(3);
    let _near = homes.share_as(0, &["share", &destination.links[1], "--trust-all", "--repeat", "yard"]);
    let _far = homes.share_as(1, &["share", &destination.links[2], "--trust-all", "--air", "yard"]);
    wait_until("both neighbours share", || destination.said().matches("shares its uplink").count() == 2);
    let file = homes.file("far.mp4", 24_000_000);
    let sent = homes.upload(&[&file], &destination.links[0]);
    assert!(sent.status.success(), "{sent:?}");
    assert!(fs::read(homes.path("out/far.mp4")).unwrap() == fs::read(&file).unwrap());
    let carried = homes.ledger(1);
    assert!(carried > 1_000_000, "{carried}: {}", String::from_utf8_lossy(&sent.stdout));
}

/// By `--equal` the owner had 0.21 of what goes up.
#[test]
fn what_is_lent_gives_way_to_its_owner_and_comes_back() {
    let Some(homes) = Homes::new(1) else { return };
    let destination = homes.accept(2);
    let _neighbour = homes.share(0, &destination.links[1]);
    wait_until("the neighbour shares", || destination.said().contains("shares its uplink"));
    let file = homes.file("file", 100_000_000);
    let mut sending = homes.uploading(&[&file], &destination.links[0]);
    let _sending = Running(sending.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    wait_until("the neighbour carries", || homes.sent_up(0) > 4_000_000);
    let owner = homes.owner(0);
    wait_until("the owner has begun", || owner.arrived() > 4_000_000);
    let (of_owner, of_all) = (owner.arrived(), homes.sent_up(0));
    std::thread::sleep(Duration::from_secs(8));
    let (of_owner, of_all) = (owner.arrived() - of_owner, homes.sent_up(0) - of_all);
    let part = of_owner as f64 / of_all as f64;
    assert!(part >= 0.5, "{part:.2}: {of_owner} of {of_all} bytes were the owner's");
    drop(owner);
    let before = homes.sent_up(0);
    wait_until("the neighbour carries again", || homes.sent_up(0) > before + 4_000_000);
}
