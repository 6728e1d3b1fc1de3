//! A device, a gateway and a server in network namespaces: real processes, a real kernel, real packets.
//!
//! The daemon splits its process and gives up root, so it cannot run inside a test harness with threads: this
//! program runs itself again for each daemon (`DAEMON device|gateway DIRECTORY`).
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

mod bed;
mod clock;
mod crowd;
mod direct;
mod direct_metrics;
mod direct_nat64;
mod disk;
mod hardship;
mod holding;
mod hostile;
mod names;
mod nat64;
mod recording;
mod neighbours;
mod resolved;
mod scenarios;
mod treatments;

use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use daemon::config::Config;
use daemon::device::{self, DeviceOptions};
use daemon::gateway::{self, GatewayOptions};
use identity::StateDirectory;
use linux::netns::Namespace;

/// Set where mounts are this program's own.
const OWN_MOUNTS: &str = "ANABRANCH_TEST_OWN_MOUNTS";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [marker, role, directory] = &arguments[..]
        && marker == "DAEMON"
    {
        return run_daemon(role, Path::new(directory));
    }
    if let [marker, rest @ ..] = &arguments[..]
        && marker == "CALLER"
    {
        return holding::caller(rest);
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    if arguments.iter().any(|argument| argument == "--list") {
        scenarios::ALL.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(OWN_MOUNTS).is_none() && may_mount() {
        // Becomes the same program where nobody else sees what it mounts, and all of it goes with it.
        let error = Command::new("unshare")
            .args(["--mount", "--propagation", "private"])
            .arg(std::env::current_exe().unwrap())
            .args(&arguments)
            .env(OWN_MOUNTS, "1")
            .exec();
        println!("cannot run unshare: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = Namespace::anonymous() {
        println!("skipped: cannot make network namespaces: {error}");
        println!("test result: ok. 0 passed; 0 failed; {} ignored", scenarios::ALL.len());
        return ExitCode::SUCCESS;
    }
    let (mut passed, mut failed) = (0, 0);
    for (name, scenario) in scenarios::ALL {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        let outcome = catch_unwind(AssertUnwindSafe(scenario));
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_ok() {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; 0 ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn may_mount() -> bool {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "true"]).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

fn run_daemon(role: &str, directory: &Path) -> ExitCode {
    let state = StateDirectory::open(directory, "the test").unwrap();
    let config = Config::read(&directory.join("config.toml")).unwrap();
    let outcome = match role {
        "gateway" => gateway::run(GatewayOptions { state, config }).map_err(|error| error.to_string()),
        _ => device::run(DeviceOptions { state, config }).map_err(|error| error.to_string()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{role}: {error}");
            ExitCode::FAILURE
        }
    }
}
