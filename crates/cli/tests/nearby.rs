//! Peers find each other on links that they were never told of. Needs root, and is left out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod bed;
mod running;

use std::fs;

use bed::{Bed, wait_until};

/// Both machines have other addresses from now on.
fn move_house(bed: &Bed) {
    for (number, cable) in bed::CABLES.into_iter().enumerate() {
        for (host, machine) in [(1, &bed.near), (2, &bed.far)] {
            let run = |arguments: [&str; 5]| {
                assert!(machine.command("ip").unwrap().args(arguments).status().unwrap().success());
            };
            run(["addr", "del", &format!("10.8.{number}.{host}/24"), "dev", cable]);
            run(["addr", "add", &format!("10.77.{number}.{host}/24"), "dev", cable]);
        }
    }
}

#[test]
fn a_peer_that_has_moved_is_found_by_who_knows_it_and_by_nobody_else() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    move_house(&bed);
    let out = bed.path("out");
    let receive = ["receive", "--no-link", "--to", out.to_str().unwrap()];
    let file = bed.file("moved", 300_000);
    let peers = |state: &str| {
        let said = bed.command(&bed.near, state, &["peers", "--json"]).output().unwrap();
        assert!(said.status.success(), "{said:?}");
        (String::from_utf8(said.stdout).unwrap(), String::from_utf8(said.stderr).unwrap())
    };
    {
        let (_receiver, _) = bed.waiting(&receive, false);
        // Each call asks for a moment only, in which a busy machine may not answer by both cables.
        wait_until("it is seen by both cables", || {
            let (seen, _) = peers("near");
            seen.contains("\"files\"") && seen.contains("10.77.0.2:4610") && seen.contains("10.77.1.2:4610")
        });
        // Somebody else learns nothing but that somebody is there.
        wait_until("a stranger hears that somebody is there", || {
            let shown = bed.command(&bed.near, "stranger", &["peers"]).output().unwrap();
            assert!(!String::from_utf8(shown.stdout).unwrap().contains("10.77."));
            String::from_utf8(shown.stderr).unwrap().contains("1 others are nearby")
        });
        let sent = bed.near(&["send", file.to_str().unwrap(), "far"]);
        assert!(sent.status.success(), "{sent:?}");
        assert!(fs::read(&file).unwrap() == fs::read(out.join("moved")).unwrap());
    }
    let mut hidden = receive.to_vec();
    hidden.push("--hidden");
    let (_receiver, _) = bed.waiting(&hidden, false);
    std::thread::sleep(std::time::Duration::from_millis(500));
    let (seen, said) = peers("near");
    assert!(!seen.contains("10.77.") && !said.contains("others"), "{seen}{said}");
}
