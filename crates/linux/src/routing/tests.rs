//! Rules and routes in a real kernel: packets go where they should, and everything comes back.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use super::*;
use crate::bind::BindTo;
use crate::journal::Journal;
use crate::netlink::Netlink;
use crate::netns::Namespace;
use crate::test_namespace::{joined_pair, knows_root_only, may_test};
use crate::tun::Tun;
use crate::udp::{SendError, UdpPath};

fn directory(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("ab-{}-{name}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}

/// All that `up` could change, as text.
fn snapshot(space: &Namespace) -> String {
    let (routes, rules) = space
        .run(|| {
            let mut netlink = Netlink::open().unwrap();
            (netlink.routes().unwrap(), netlink.rules().unwrap())
        })
        .unwrap();
    // Link-local routes appear when the kernel has checked its addresses, at a time of its own.
    let lasting = |route: &&crate::netlink::Route| !route.destination.to_string().starts_with('f');
    let routes: Vec<_> = routes.iter().filter(lasting).collect();
    let tables = space.command("nft").unwrap().args(["list", "ruleset"]).output().unwrap();
    let settings =
        space.run(|| fs::read_to_string("/proc/sys/net/ipv4/conf/cable/rp_filter").unwrap()).unwrap();
    format!("{routes:#?}\n{rules:#?}\n{}\n{settings}", String::from_utf8_lossy(&tables.stdout))
}

fn routing(tun: &Tun, kill_switch: bool) -> Routing {
    Routing {
        interface: tun.name().to_owned(),
        interface_index: tun.index(),
        mark: 0x77,
        table: 7_700,
        ipv4: true,
        ipv6: true,
        kill_switch,
    }
}

fn reaches(space: &Namespace, tun: &mut Tun, remote: &str) -> bool {
    let family = if remote.starts_with('[') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = space.run(|| UdpSocket::bind(family)).unwrap().unwrap();
    if socket.send_to(b"where to?", remote).is_err() {
        return false;
    }
    let mut seen = false;
    for _ in 0..10 {
        drop(tun.read_packets(&mut |packet| seen |= packet.ends_with(b"where to?")));
    }
    seen
}

#[test]
fn applications_go_to_any0_and_the_bond_does_not() {
    if !may_test() {
        return;
    }
    let (left, right) = joined_pair();
    let state = directory("routing");
    for (all, gateway) in [(IpPrefix::ALL_V4, "10.77.0.2"), (IpPrefix::ALL_V6, "fd77::2")] {
        left.add_route("cable", all, Some(gateway.parse().unwrap()), None).unwrap();
    }
    left.set_sysctl("net.ipv4.conf.cable.rp_filter", "1").unwrap();
    let before = snapshot(&left);
    let addresses = ["10.99.0.2/32".parse().unwrap(), "fd99::2/128".parse().unwrap()];
    let mut tun = left.run(|| Tun::create("any0", 1_400, &addresses)).unwrap().unwrap();
    left.run(|| {
        let mut journal = Journal::open(&state).unwrap();
        journal.apply(&routing(&tun, true).plan()).unwrap();
        journal.apply(loosen_reverse_path("cable").unwrap().as_slice()).unwrap();
    })
    .unwrap();

    for far in ["192.0.2.1:53", "[2001:db8::1]:53"] {
        assert!(reaches(&left, &mut tun, far), "{far} does not go to any0");
    }
    assert!(!reaches(&left, &mut tun, "10.77.0.2:53"), "the local network is captured");

    let receiver = right.run(|| UdpSocket::bind("10.77.0.2:9")).unwrap().unwrap();
    receiver.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let unmarked = left.run(|| UdpSocket::bind("0.0.0.0:0")).unwrap().unwrap();
    let refused = unmarked.send_to(b"unmarked", "10.77.0.2:9");
    assert!(refused.is_err() || receiver.recv(&mut [0; 20]).is_err(), "the kill switch lets packets out");
    let to = BindTo {
        interface: Some("cable".to_owned()),
        local: "0.0.0.0:0".parse::<SocketAddr>().unwrap(),
        mark: Some(0x77),
    };
    let path = left.run(|| UdpPath::bind(&to)).unwrap().unwrap();
    let far = "192.0.2.1:9".parse().unwrap();
    path.send(far, None, 0, b"marked", None).unwrap();
    path.send("10.77.0.2:9".parse().unwrap(), None, 0, b"marked", None).unwrap();
    assert_eq!(receiver.recv(&mut [0; 20]).unwrap(), 6);
    let mut captured = false;
    while tun.read_packets(&mut |packet| captured |= packet.ends_with(b"marked")).is_ok() {}
    assert!(!captured, "the bond's own packets are captured");

    // As after kill -9: the TUN is gone, a new process finds the journal.
    drop(tun);
    let undone = left.run(|| Journal::open(&state).unwrap().restore().unwrap()).unwrap();
    assert!(undone.iter().all(|one| one.failure.is_none()), "{undone:#?}");
    assert_eq!(undone.len(), 10, "{undone:#?}");
    assert_eq!(snapshot(&left), before);
    assert!(!state.join("undo.json").exists());
    fs::remove_dir_all(state).unwrap();
}

#[test]
fn a_journal_of_the_whole_plan_is_on_disk_before_a_failure() {
    if !may_test() {
        return;
    }
    let state = directory("journal");
    let space = Namespace::anonymous().unwrap();
    let broken = Routing {
        interface: "absent".to_owned(),
        interface_index: 999,
        mark: 1,
        table: 7_700,
        ipv4: true,
        ipv6: false,
        kill_switch: true,
    };
    let before = space.run(|| Netlink::open().unwrap().rules().unwrap()).unwrap();
    space
        .run(|| {
            let mut journal = Journal::open(&state).unwrap();
            let error = journal.apply(&broken.plan()).unwrap_err().to_string();
            assert!(error.contains("0.0.0.0/0 table 7700 dev absent"), "{error}");
            assert_eq!(Journal::open(&state).unwrap().pending().count(), 2);
            Journal::open(&state).unwrap().restore().unwrap();
        })
        .unwrap();
    assert_eq!(space.run(|| Netlink::open().unwrap().rules().unwrap()).unwrap(), before);
    fs::write(state.join("undo.json"), b"[{").unwrap();
    let error = Journal::open(&state).err().unwrap().to_string();
    assert!(error.contains("undo.json cannot be understood"), "{error}");
    if !knows_root_only() {
        std::os::unix::fs::chown(state.join("undo.json"), Some(65_534), None).unwrap();
        let error = Journal::open(&state).err().unwrap().to_string();
        assert!(error.contains("belongs to user 65534"), "{error}");
    }
    fs::remove_dir_all(state).unwrap();
}

#[test]
fn an_unreachable_network_is_told_apart() {
    if !may_test() {
        return;
    }
    let space = Namespace::anonymous().unwrap();
    let to = BindTo { interface: None, local: "0.0.0.0:0".parse().unwrap(), mark: None };
    let path = space.run(|| UdpPath::bind(&to)).unwrap().unwrap();
    let result = path.send("192.0.2.1:9".parse().unwrap(), None, 0, b"x", None);
    assert!(matches!(result, Err(SendError::Unreachable(_))), "{result:?}");
}

/// A full disk takes no shorter journal, but it lets the file be removed at the end.
#[test]
fn a_full_disk_does_not_keep_changes_from_being_taken_back() {
    if !may_test() {
        return;
    }
    let (left, _right) = joined_pair();
    let state = directory("full");
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&state)
        .status()
        .unwrap();
    if !mounted.success() {
        eprintln!("skipped: may not mount");
        return;
    }
    let before = snapshot(&left);
    let tun = left.run(|| Tun::create("any0", 1_400, &[])).unwrap().unwrap();
    let outcome = std::panic::catch_unwind(|| {
        left.run(|| {
            let mut journal = Journal::open(&state).unwrap();
            journal.apply(&routing(&tun, false).plan()).unwrap();
            fs::write(state.join("fill"), vec![7; 64 * 1024]).unwrap_err();
            let undone = journal.restore().unwrap();
            assert!(undone.len() == 8 && undone.iter().all(|one| one.failure.is_none()), "{undone:#?}");
            assert!(!state.join("undo.json").exists() && !state.join("undo.new").exists());
            journal.apply(&routing(&tun, false).plan()).unwrap_err();
            let made = journal.pending().count();
            assert!(made < 8, "there was room");
            assert_eq!(journal.restore().unwrap().len(), made, "what is not on disk is not made");
        })
        .unwrap();
    });
    drop(tun);
    assert!(std::process::Command::new("umount").arg(&state).status().unwrap().success());
    fs::remove_dir(state).unwrap();
    outcome.unwrap();
    assert_eq!(snapshot(&left), before);
}
