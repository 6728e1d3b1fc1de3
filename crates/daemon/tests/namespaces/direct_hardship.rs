//! What direct mode does where something is wrong: with the configuration, with the machine, with the networks.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anabranch::control::{EventKind, EventSequence, Hold};

use crate::bed::{Bed, Daemon, eventually, within};
use crate::clock::{Clock, YEAR};
use crate::direct::{bed, calls, dual, listing, started};
use crate::scenarios::nft;

const QUIET: &str = "[device]\ndns = \"off\"\nprobe = \"off\"\n";
const LONG: Duration = Duration::from_secs(30);

/// What the device has warned of.
fn warnings(bed: &Bed) -> Vec<String> {
    let events = bed.client("device").events(EventSequence(0)).unwrap();
    events.into_iter().filter(|event| event.kind == EventKind::Warning).map(|event| event.text).collect()
}

fn told(bed: &Bed, wanted: &[&str]) -> bool {
    warnings(bed).iter().any(|text| wanted.iter().all(|part| text.contains(part)))
}

/// Starts the device by a command that ends with it, such as `setpriv`.
fn started_by(bed: &Bed, command: &mut Command) -> Daemon {
    let daemon = bed.answering("device", bed.arguments("device", command).spawn().unwrap());
    bed.wait_until_up();
    daemon
}

/// A directory with all programs of the search path but some.
fn programs_without(bed: &Bed, missing: &[&str]) -> PathBuf {
    let directory = bed.directory("programs");
    fs::create_dir(&directory).unwrap();
    let path = std::env::var("PATH").unwrap();
    for place in path.split(':').chain(["/usr/sbin", "/sbin"]) {
        for program in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = program.file_name();
            if !missing.iter().any(|missing| name == *missing) {
                // Several places have programs of one name: the first counts.
                drop(std::os::unix::fs::symlink(program.path(), directory.join(&name)));
            }
        }
    }
    directory
}

pub fn rules_that_cannot_hold_are_named() {
    let bed = bed();
    let rules = "[[rule]]\nname = \"all-web\"\nport = \"tcp/443\"\nnetworks = \"wan1\"\n\
                 [[rule]]\nname = \"one-site\"\nport = \"tcp/443\"\nto = \"198.51.100.0/24\"\nnetworks = \"wan0\"\n\
                 [[rule]]\nname = \"gone\"\nport = \"tcp/444\"\nnetworks = \"wwan7\"\nstrict = false\n\
                 [[rule]]\nname = \"calls\"\ndscp = \"ef\"\ntreat = \"duplicated\"\n";
    bed.write_config("device", &format!("{QUIET}{rules}"));
    let daemon = started(&bed);
    eventually("each rule that cannot hold is named", || {
        told(&bed, &["one-site", "never reached", "all-web"])
            && told(&bed, &["gone", "\"wwan7\"", "known are wan0, wan1"])
            && told(&bed, &["calls", "needs a gateway", "go direct"])
    });
    assert_eq!(calls(&bed, 4).values().sum::<usize>(), 4, "the others hold");
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    for (line, named) in [
        ("[device]\nsplit = \"fastest\"\n", ["split", "inverse-rtt"]),
        ("[network.wan0]\npriority = 300\n", ["priority", "0 to 255"]),
        ("[network.wan0]\nprice = -2\n", ["price", "0 to 1000000"]),
        ("[network.wan0]\nweight = 3\n", ["weight", "wan0"]),
        ("[[rule]]\nport = \"tcp/70000\"\nnetworks = \"wan0\"\n", ["port", "tcp/443"]),
    ] {
        bed.write_config("device", line);
        let error = daemon::config::Config::read(&bed.directory("device").join("config.toml")).unwrap_err();
        let text = error.to_string();
        assert!(named.iter().all(|part| text.contains(part)), "{line}: {text}");
    }
}

/// A firewall, another program's marks and rules, and a table at the very hooks that direct mode uses.
pub fn what_other_programs_set_is_left_alone() {
    let bed = bed();
    nft(
        &bed.device,
        "table inet firewall { chain in { type filter hook input priority 0; policy accept; ct state invalid drop; } }\n\
         table ip shaper { chain out { type route hook output priority mangle; meta mark set meta mark | 0x5; } }\n\
         table inet vpn { chain post { type nat hook postrouting priority srcnat; ip daddr 192.0.2.7 masquerade; } }",
    );
    let ip = |arguments: &str| {
        let mut command = bed.device.command("ip").unwrap();
        assert!(command.args(arguments.split(' ')).status().unwrap().success(), "ip {arguments}");
    };
    ip("rule add fwmark 0x9 lookup 99 priority 700");
    ip("route add 192.0.2.0/24 dev wan1 table 99");
    ip("rule add from 10.9.9.9 lookup 98 priority 32600");
    let before = listing(&bed.device);
    let others = |text: &str| -> String {
        let mut lines = Vec::new();
        let mut inside = false;
        for line in text.lines() {
            if line.starts_with("table") {
                inside = ["inet firewall", "ip shaper", "inet vpn"].iter().any(|name| line.contains(name));
            }
            let rule = line.contains("lookup 99") || line.contains("lookup 98") || line.contains("table 99");
            if inside && line.starts_with(['\t', ' ', 't', '}']) || rule {
                lines.push(line.trim().to_owned());
            }
            inside &= !line.starts_with('}');
        }
        lines.join("\n")
    };
    bed.write_config("device", QUIET);
    let daemon = started(&bed);
    assert_eq!(others(&listing(&bed.device)), others(&before));
    assert_eq!(calls(&bed, 8).len(), 2, "their marks do not keep flows from being dealt out");
    // A change of networks replaces the table of our own.
    bed.gateway.set_up("lan0", false).unwrap();
    eventually("one network is left", || !bed.status().networks[0].connected);
    assert_eq!(others(&listing(&bed.device)), others(&before));
    bed.gateway.set_up("lan0", true).unwrap();
    daemon.kill();
    assert_eq!(others(&listing(&bed.device)), others(&before), "after a kill");
    let daemon = started(&bed);
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    let left = listing(&bed.device);
    let missing: Vec<&str> = before.lines().filter(|line| !left.contains(line.trim())).collect();
    assert!(missing.is_empty(), "{missing:#?} of what was there is missing in\n{left}");
    assert!(!left.contains("anabranch"), "{left}");
}

pub fn without_bpf_nftables_deals_flows_out() {
    let bed = bed();
    bed.write_config("device", QUIET);
    let mut command = bed.device.command("setpriv").unwrap();
    command.args(["--bounding-set", "-bpf,-sys_admin"]);
    let _daemon = started_by(&bed, &mut command);
    eventually("what is lost is told", || told(&bed, &["nftables alone", "slower"]));
    within(LONG, "flows are dealt out", || listing(&bed.device).contains("numgen inc"));
    assert_eq!(calls(&bed, 8).len(), 2);
}

pub fn without_control_groups_only_programs_cannot_be_told_apart() {
    let bed = bed();
    let rule = "[[rule]]\nname = \"backups\"\nprogram = \"cgroup:/system.slice/backup.service\"\nnetworks = \"wan1\"\n";
    bed.write_config("device", &format!("{QUIET}{rule}"));
    let mut command = bed.device.command("unshare").unwrap();
    let script = "umount --lazy /sys/fs/cgroup; mount -t tmpfs none /sys/fs/cgroup && exec \"$@\"";
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    let _daemon = started_by(&bed, &mut command);
    within(LONG, "flows are dealt out", || listing(&bed.device).contains("numgen inc"));
    assert_eq!(calls(&bed, 8).len(), 2);
    let hold = Hold { networks: vec!["wan1".to_owned()], treatment: None };
    let error = bed.client("device").run(&hold).unwrap_err().to_string();
    assert!(error.contains("programs cannot be told apart") && error.contains("cgroup"), "{error}");
    assert!(told(&bed, &["match no flow", "backups", "cgroup"]), "{:#?}", warnings(&bed));
}

pub fn without_nft_nothing_is_started() {
    let bed = bed();
    bed.write_config("device", QUIET);
    let before = listing(&bed.device);
    let mut command = bed.command("device");
    let output = command.env("PATH", programs_without(&bed, &["nft"])).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("nft is missing"), "{said}");
    assert!(said.contains("apt install nftables"), "{said}");
    assert!(listing(&bed.device) == before);
}

/// A stand-in for the kernel, which cannot lose its connection tracking for a test: nft says what it says there.
pub fn without_connection_tracking_traffic_goes_as_before() {
    let bed = bed();
    bed.write_config("device", QUIET);
    let programs = programs_without(&bed, &["nft"]);
    let script = "#!/bin/sh\ntext=$(cat)\ncase \"$text\" in *'ct mark'*)\n\
                  echo '/dev/stdin:3:5-11: Error: Could not process rule: No such file or directory' >&2; exit 1;; esac\n\
                  printf '%s\\n' \"$text\" | exec /usr/sbin/nft \"$@\"\n";
    fs::write(programs.join("nft"), script).unwrap();
    fs::set_permissions(programs.join("nft"), fs::Permissions::from_mode(0o755)).unwrap();
    let before = listing(&bed.device);
    let mut command = bed.command("device");
    let output = command.env("PATH", &programs).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    for part in
        ["traffic keeps the machine's own routes", "modprobe -a nf_conntrack", "Could not process rule"]
    {
        assert!(!output.status.success() && said.contains(part), "{said}");
    }
    assert!(listing(&bed.device) == before);
    assert_eq!(calls(&bed, 2), [(0, 2)].into(), "by the machine's own routes");
}

pub fn a_wrong_clock_moves_no_flow() {
    let bed = bed();
    bed.write_config("device", &format!("{QUIET}[network.wan0]\ncap = \"20 GB\"\n"));
    let clock = Clock::new();
    let _daemon = bed.start_with_clock("device", &clock);
    bed.wait_until_up();
    within(LONG, "flows are dealt out", || listing(&bed.device).contains("numgen inc"));
    let used = || {
        let report = bed.status().networks[0].direct.clone().unwrap_or_default();
        report.cap.map_or(0, |cap| cap.used.0)
    };
    calls(&bed, 40);
    within(LONG, "what wan0 carries is counted", || used() > 0);
    for years in [-50, 20, -20, 0] {
        clock.set_wall(years * YEAR);
        assert_eq!(calls(&bed, 8).len(), 2, "{years} years off");
        std::thread::sleep(Duration::from_secs(1));
        assert!(bed.status().networks.iter().all(|network| network.connected), "{years} years off");
    }
    assert_eq!(calls(&bed, 8).len(), 2);
}

/// Held by a process.
#[derive(Debug)]
struct Held {
    /// kB of memory.
    memory: u64,
    descriptors: usize,
}

/// What the process with privileges and the one without hold.
fn held(bed: &Bed, daemon: &Daemon) -> [Held; 2] {
    [daemon.id(), bed.status().pid].map(|process| {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory = line.trim().trim_end_matches(" kB").parse().unwrap();
        // Some are open for a moment only, as the connection by which was just asked.
        let looks = (0..5).map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
        });
        Held { memory, descriptors: looks.min().unwrap() }
    })
}

pub fn a_thousand_addresses_leave_nothing_behind() {
    let bed = dual();
    bed.write_config("device", QUIET);
    let daemon = started(&bed);
    let change = |numbers: std::ops::Range<usize>| {
        for number in numbers {
            // Both families in turn.
            let (old, new) = (3 + number / 2 % 200, 3 + (number / 2 + 1) % 200);
            let prefix = if number % 2 == 0 { "10.1.1.X/24" } else { "2001:db8:1::X/64" };
            for (verb, host) in [("add", new), ("del", old)] {
                let address = prefix.replace('X', &host.to_string());
                let mut command = bed.device.command("ip").unwrap();
                command.args(["address", verb, &address, "dev", "wan1"]).stderr(std::process::Stdio::null());
                let done = command.status().unwrap().success();
                // The very first have no predecessors.
                assert!(done || number < 2, "ip address {verb} {address}");
            }
        }
    };
    let settled = || {
        within(LONG, "both networks are used", || {
            bed.status().networks.iter().all(|network| network.connected) && calls(&bed, 8).len() == 2
        });
        std::thread::sleep(Duration::from_secs(2));
    };
    let lines = || listing(&bed.device).lines().filter(|line| !line.contains("expires")).count();
    let measured = |numbers| {
        change(numbers);
        settled();
        (lines(), held(&bed, &daemon))
    };
    // Whatever is kept for speed or as history is there after the first thousand; what grows on is a leak.
    let [(before, held_before), (after, held_after)] = [0..1_000, 1_000..2_000].map(measured);
    println!("lines {before} and {after}; {held_before:?} and {held_after:?}");
    assert_eq!(before, after);
    for (before, after) in held_before.iter().zip(&held_after) {
        assert!(after.memory <= before.memory + 1_000, "{before:?}, then {after:?}");
        assert!(after.descriptors <= before.descriptors, "{before:?}, then {after:?}");
    }
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    assert!(!listing(&bed.device).contains("anabranch"));
}

/// Strict checks of where packets come from, as some distributions have them.
pub fn strict_checks_of_sources_let_answers_in() {
    let bed = bed();
    for name in ["all", "default", "wan0", "wan1"] {
        bed.device.set_sysctl(&format!("net.ipv4.conf.{name}.rp_filter"), "1").unwrap();
    }
    bed.write_config("device", QUIET);
    let daemon = started(&bed);
    // The main table leads to the server by wan0 alone, so answers by wan1 come from the wrong side.
    assert_eq!(calls(&bed, 8).len(), 2);
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    let read = || fs::read_to_string("/proc/sys/net/ipv4/conf/wan1/rp_filter");
    assert_eq!(bed.device.run(read).unwrap().unwrap().trim(), "1", "as it was");
}

/// The process without privileges, which judges networks, is killed; who watches it takes all back.
pub fn a_worker_that_is_killed_leaves_nothing_behind() {
    let bed = bed();
    bed.write_config("device", QUIET);
    let before = listing(&bed.device);
    let daemon = started(&bed);
    assert_ne!(listing(&bed.device), before);
    let worker = bed.status().pid;
    assert_ne!(worker, daemon.id(), "a process of its own");
    let killed = Command::new("kill").args(["-KILL", &worker.to_string()]).status().unwrap();
    assert!(killed.success());
    assert!(!daemon.ends("the daemon ends"), "it is told as an error");
    let after = listing(&bed.device);
    assert!(after == before, "{after}");
}
