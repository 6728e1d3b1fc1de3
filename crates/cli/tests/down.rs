//! `down` after the daemon was killed: what it left changed is taken back. In a network namespace of its own.

mod program;

use std::process::Command;

use linux::journal::{Change, Journal};
use program::Program;

const JOB: &str = "ANABRANCH_TEST_JOB";

#[test]
fn a_killed_daemons_changes_are_taken_back() {
    let isolated = Command::new("unshare")
        .args(["--net", "--"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "job_in_the_namespace", "--nocapture"])
        .env(JOB, "1")
        .output();
    let output = isolated.unwrap();
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if text.contains("unshare failed") {
        eprintln!("skipped: no right to make a network namespace");
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Not a test of its own: what the other one does inside the namespace.
#[test]
fn job_in_the_namespace() {
    if std::env::var_os(JOB).is_none() {
        return;
    }
    let device = Program::gateway().joined();
    let setting = std::path::PathBuf::from("/proc/sys/net/ipv4/ip_forward");
    let before = std::fs::read_to_string(&setting).unwrap();
    let other = if before.trim() == "0" { "1" } else { "0" };
    // A daemon that dies here leaves the journal as it is.
    let mut journal = Journal::open(&device.state).unwrap();
    journal.apply(&[Change::Setting { path: setting.clone(), value: other.to_owned() }]).unwrap();
    drop(journal);
    assert_eq!(std::fs::read_to_string(&setting).unwrap().trim(), other);

    let down = device.run(&["down"]);
    assert_eq!(down.code, 0, "{down:?}");
    assert!(down.stdout.starts_with("No daemon was running; taking back what it left behind:"), "{down:?}");
    assert!(down.stdout.contains("undone: ") && down.stdout.contains("ip_forward"), "{down:?}");
    assert_eq!(std::fs::read_to_string(&setting).unwrap(), before);
    let again = device.run(&["down"]);
    assert_eq!(again.stdout, "No daemon was running, and nothing was left to take back.\n");
}
