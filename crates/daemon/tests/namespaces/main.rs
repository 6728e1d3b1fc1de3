//! A device, a gateway and a server in network namespaces: real processes, a real kernel, real packets.
//!
//! The daemon splits its process and gives up root, so it cannot run inside a test harness with threads: this
//! program runs itself again for each daemon (`DAEMON device|gateway DIRECTORY`).
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a failed step is a failed test")]

mod bed;
mod bond_trace;
mod clock;
mod crowd;
#[path = "../../../identity/tests/database/mod.rs"]
mod database;
mod direct;
mod direct_errors;
mod direct_families;
mod direct_hardship;
mod direct_learning;
mod direct_metrics;
mod direct_nat64;
mod direct_real_time;
mod direct_rules;
mod direct_silent;
mod direct_together;
mod direct_twins;
mod disk;
mod far_peers;
mod hardship;
mod holding;
mod hostile;
mod lacking;
mod leases;
mod limits;
mod message_bus;
mod names;
mod nat64;
mod neighbours;
mod network_manager;
mod over_mptcp;
mod parts;
mod recording;
mod renewal;
mod resolved;
mod scenarios;
mod several_gateways;
mod shared_registry;
mod treatments;
mod web_page;

use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::thread;
use std::time::Duration;

use daemon::config::Config;
use daemon::device::{self, DeviceOptions};
use daemon::gateway::{self, GatewayOptions, Renewal};
use identity::StateDirectory;
use linux::netns::Namespace;

/// Set where mounts are this program's own.
const OWN_MOUNTS: &str = "ANABRANCH_TEST_OWN_MOUNTS";
/// The scenario that stood still, where this program has begun anew after it.
const STOOD_STILL: &str = "ANABRANCH_TEST_STOOD_STILL";
/// None takes as long on a machine that can do anything else.
const LONGEST: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [marker, role, directory, check @ ..] = &arguments[..]
        && marker == "DAEMON"
    {
        return run_daemon(role, Path::new(directory), !check.is_empty());
    }
    if let [marker, rest @ ..] = &arguments[..]
        && marker == "CALLER"
    {
        return holding::caller(rest);
    }
    if let [marker, script] = &arguments[..]
        && marker == "SUPERVISED"
    {
        return over_mptcp::supervised(script);
    }
    let filter = arguments.iter().find(|argument| !argument.starts_with('-'));
    if arguments.iter().any(|argument| argument == "--list") {
        scenarios::ALL.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    if std::env::var_os(OWN_MOUNTS).is_none()
        && let Some(kinds) = own_namespaces()
    {
        // Becomes the same program where nobody else sees what it mounts, and all of it goes with it.
        let error = Command::new("unshare")
            .args(kinds)
            .arg(std::env::current_exe().unwrap())
            .args(&arguments)
            .env(OWN_MOUNTS, "1")
            .exec();
        println!("cannot run unshare: {error}");
        return ExitCode::FAILURE;
    }
    if let Err(error) = Namespace::anonymous() {
        println!(
            "skipped: cannot make network namespaces: {error}; an ordinary user needs user namespaces and a /dev/net/tun \
             that everybody may open"
        );
        println!("test result: ok. 0 passed; 0 failed; {} ignored", scenarios::ALL.len());
        return ExitCode::SUCCESS;
    }
    // A user namespace that knows one user only: no other can be tried, nor can files of the machine's root be mounted over.
    let alone = !std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default().contains("4294967295");
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    let mut left = scenarios::ALL.iter();
    if let Ok(stood_still) = std::env::var(STOOD_STILL) {
        failed += 1;
        left.find(|(name, _)| *name == stood_still);
    }
    for (name, scenario) in left {
        if filter.is_some_and(|filter| !name.contains(filter.as_str())) {
            continue;
        }
        if alone && scenarios::NEED_ROOT.contains(name) {
            println!("test {name} ... ignored: skipped, it needs root itself");
            ignored += 1;
            continue;
        }
        let watched = watch(name);
        let outcome = catch_unwind(AssertUnwindSafe(scenario));
        drop(watched);
        println!("test {name} ... {}", if outcome.is_ok() { "ok" } else { "FAILED" });
        if outcome.is_ok() {
            passed += 1;
        } else {
            failed += 1;
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {word}. {passed} passed; {failed} failed; {ignored} ignored");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Until what is returned is dropped the scenario may take no longer than [`LONGEST`]. A step that waits for ever cannot be called back: then the scenario has
/// failed, and the program begins anew with the next one.
fn watch(name: &'static str) -> SyncSender<()> {
    let (watched, ended) = mpsc::sync_channel(0);
    thread::spawn(move || {
        if ended.recv_timeout(LONGEST) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        println!("{name} stands still:");
        // Daemons, and programs beside them.
        let show = "ps -o pid,stat,wchan:24,args --ppid $1; ps -L -o comm,wchan:24 -p $1; pkill -KILL -P $1";
        let mut command = Command::new("sh");
        drop(command.args(["-c", show, "sh"]).arg(std::process::id().to_string()).status());
        println!("test {name} ... FAILED");
        let mut again = Command::new(std::env::current_exe().unwrap());
        let error = again.args(std::env::args().skip(1)).env(STOOD_STILL, name).exec();
        println!("cannot go on: {error}");
        std::process::exit(1);
    });
    watched
}

/// What `unshare` may make here: mounts alone for root; for an ordinary user also a user namespace, in which it is root.
fn own_namespaces() -> Option<&'static [&'static str]> {
    const MOUNTS: &[&str] = &["--mount", "--propagation", "private"];
    const EVERYTHING: &[&str] =
        &["--user", "--map-root-user", "--net", "--mount", "--propagation", "private"];
    let may = |kinds: &&&[&str]| {
        let mut command = Command::new("unshare");
        command.args(**kinds).args(["test", "-w", "/dev/net/tun"]).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    [MOUNTS, EVERYTHING].iter().find(may).copied()
}

fn run_daemon(role: &str, directory: &Path, only_check: bool) -> ExitCode {
    let state = StateDirectory::open(directory, "the test").unwrap();
    let config = match Config::load(None, directory) {
        Ok((config, _)) => config,
        Err(error) => {
            eprintln!("{role}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let renewal = Renewal::of_this_process(&["check"]).ok();
    let options = GatewayOptions { state: state.clone(), config: config.clone(), named: None, renewal };
    if only_check {
        return match gateway::plan(&options) {
            Ok(_) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{role}: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let outcome = match role {
        "gateway" | bed::SECOND => gateway::run(options).map_err(|error| error.to_string()),
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
