//! What a machine may lack: said before anything is started, with the command that brings it, or gone without.

use std::fs;
use std::process::Command;

use crate::bed::{Bed, SERVER_V4, SERVER_V6, eventually};
use crate::direct;
use crate::scenarios::snapshot;

/// Runs the daemon of `role` at the end of a shell script that takes something away, in mounts of its own; it is to end by
/// itself. What it said.
fn without(bed: &Bed, role: &str, script: &str) -> String {
    let mut command = lacking(bed, role, script);
    let output = bed.arguments(role, &mut command).output().unwrap();
    assert!(!output.status.success(), "it has started");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The command that does so.
pub fn lacking(bed: &Bed, role: &str, script: &str) -> Command {
    let space = if role == "gateway" { &bed.gateway } else { &bed.device };
    let mut command = space.command("unshare").unwrap();
    let script = format!("{script} \"$@\"");
    command.args(["--mount", "--propagation", "private", "sh", "-e", "-c", &script, "sh"]);
    command
}

/// A program that says what `nft` says where the kernel has no nf_tables; the virtual machine's test has such a kernel.
const NO_TABLES: &str = "#!/bin/sh\necho 'netlink: Error: cache initialization failed: Protocol not supported' >&2\ntest \"$1\" = --version\n";

pub fn what_is_missing_is_named_with_its_remedy() {
    let bed = Bed::new(false);
    let gateway = bed.start("gateway");
    bed.join();
    bed.client("gateway").down().unwrap();
    assert!(gateway.wait());
    bed.write_config("device", "[device]\ndns = \"off\"\nkill_switch = true\n");
    let programs = bed.directory("programs");
    fs::create_dir(&programs).unwrap();
    let fake = programs.join("nft");
    fs::write(&fake, NO_TABLES).unwrap();
    assert!(Command::new("chmod").arg("755").arg(&fake).status().unwrap().success());
    let programs = programs.display();
    let no_tables = format!("PATH={programs}:$PATH exec");
    let cases = [
        ("mount -t tmpfs tmpfs /dev/net; exec", "/dev/net/tun cannot be opened", "modprobe tun"),
        (
            "exec setpriv --bounding-set=-net_admin --inh-caps=-net_admin --ambient-caps=-net_admin",
            "no right to change the network (CAP_NET_ADMIN)",
            "--cap-add NET_ADMIN",
        ),
        ("PATH=/var/empty exec", "the program nft is missing", "apt install nftables"),
        (&no_tables, "the kernel does not take nftables' rules", "modprobe -a nf_tables"),
    ];
    let before = snapshot(&bed.device);
    for role in ["device", "gateway"] {
        for (script, what, remedy) in cases {
            let said = without(&bed, role, script);
            assert!(said.contains(&format!("this machine cannot be a {role} yet")), "{said}");
            assert!(said.contains(what) && said.contains(remedy), "{script}: {said}");
        }
    }
    assert_eq!(snapshot(&bed.device), before);
    let _daemons = bed.connected();
    bed.download(SERVER_V4, 300_000, || {});
}

/// As many servers are set up: no interface gets IPv6, new ones neither. any0 has it, so nothing goes past it.
pub fn where_ipv6_is_switched_off_any0_has_it() {
    let bed = Bed::new(false);
    for space in [&bed.device, &bed.gateway] {
        for which in ["all", "default"] {
            space.set_sysctl(&format!("net.ipv6.conf.{which}.disable_ipv6"), "1").unwrap();
        }
    }
    let (_gateway, device) = bed.connected();
    bed.download(SERVER_V4, 1_000_000, || {});
    assert_eq!(bed.status().addresses.len(), 2);
    // The gateway's own network has it back: so has the device, through any0.
    bed.gateway.set_sysctl("net.ipv6.conf.wan.disable_ipv6", "0").unwrap();
    bed.gateway.add_address("wan", "2001:db8:9::1/64".parse().unwrap()).unwrap();
    bed.download(SERVER_V6, 1_000_000, || {});
    bed.client("device").down().unwrap();
    assert!(device.wait());
}

/// Without control groups of version 2 BPF cannot choose networks for new connections: nftables does.
pub fn direct_without_control_groups_flows_are_dealt_out() {
    let bed = direct::bed();
    let mut command = lacking(&bed, "device", "umount --lazy --all --types cgroup2; exec");
    let child = bed.arguments("device", &mut command).spawn().unwrap();
    let device = bed.answering("device", child);
    bed.wait_until_up();
    eventually("new flows are led out", || direct::listing(&bed.device).contains("numgen inc"));
    eventually("both networks get new flows", || direct::calls(&bed, 16).len() == 2);
    let hold = anabranch::control::Hold { networks: vec!["wan0".to_owned()], treatment: None };
    let refused = bed.client("device").run(&hold).unwrap_err().to_string();
    assert!(refused.contains("mount -t cgroup2 none /sys/fs/cgroup"), "{refused}");
    bed.client("device").down().unwrap();
    assert!(device.wait());
}
