//! Clocks that jump: the wall clock is set, the machine is suspended.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anabranch::control::{EventSequence, SessionState};
use tempfile::TempDir;

use crate::bed::{Bed, SERVER_V4, eventually, within};
use crate::scenarios::working_paths;

const SHIM: &str = include_str!("clock_shim.c");

/// Offsets that processes add to their clocks, while they run too.
pub struct Clock {
    directory: TempDir,
    file: File,
}

impl Clock {
    /// Clocks that are right. Root's processes and those of the daemon's user read the same.
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let source = directory.path().join("shim.c");
        fs::write(&source, SHIM).unwrap();
        let path = directory.path().join("offsets");
        fs::write(&path, [0; 16]).unwrap();
        let clock = Self { file: File::options().write(true).open(&path).unwrap(), directory };
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O2", "-o"]).arg(clock.library()).arg(&source);
        assert!(compiler.status().unwrap().success());
        clock
    }

    fn library(&self) -> PathBuf {
        self.directory.path().join("shim.so")
    }

    pub fn apply(&self, command: &mut Command) {
        command.env("LD_PRELOAD", self.library());
        command.env("ANABRANCH_TEST_CLOCK", self.directory.path().join("offsets"));
    }

    /// Sets the wall clock to `seconds` after (or before) the right time.
    pub fn set_wall(&self, seconds: i64) {
        self.file.write_all_at(&(seconds * NANOS).to_ne_bytes(), 0).unwrap();
    }

    /// As if the machine had been suspended for so long in all.
    fn set_asleep(&self, seconds: i64) {
        self.file.write_all_at(&(seconds * NANOS).to_ne_bytes(), 8).unwrap();
    }
}

/// A board without a battery starts in 1970 and learns the time later; others are set wrong by hand.
pub fn a_wall_clock_that_jumps_locks_nobody_out() {
    let bed = Bed::new(false);
    let (gateways, devices) = (Clock::new(), Clock::new());
    let gateway = bed.start_with_clock("gateway", &gateways);
    bed.join();
    let mut device = bed.start_with_clock("device", &devices);
    bed.wait_until_up();
    for years in [-50, 20, -20, 0] {
        devices.set_wall(years * YEAR);
        bed.download(SERVER_V4, 300_000, || {});
        // A new start takes its stamp from the wall clock, and the gateway has seen later ones.
        drop(device);
        device = bed.start_with_clock("device", &devices);
        bed.wait_until_up();
        let started = i64::try_from(bed.status().started.0 / 1_000).unwrap();
        assert!(started.abs_diff(right_time() + years * YEAR) < 60, "its clock shows {started}");
        bed.download(SERVER_V4, 300_000, || {});
    }
    for years in [-50, 20] {
        gateways.set_wall(years * YEAR);
        bed.download(SERVER_V4, 300_000, || {});
        drop(device);
        device = bed.start_with_clock("device", &devices);
        bed.wait_until_up();
    }
    let clients = bed.client("gateway").gateway_clients().unwrap().clients;
    assert_eq!(clients.len(), 1, "{clients:?}");
    drop((gateway, device));
}

/// A laptop is closed for an hour. Its processes stand still, then its clocks have jumped.
pub fn a_laptop_that_slept_is_connected_at_once() {
    let bed = Bed::new(false);
    let (gateways, laptop) = (Clock::new(), Clock::new());
    let mut gateway = bed.start_with_clock("gateway", &gateways);
    bed.join();
    let device = bed.start_with_clock("device", &laptop);
    bed.wait_until_up();
    eventually("both paths work", || working_paths(&bed) == 2);
    for hours in 1..=2 {
        let processes = [device.id(), bed.status().pid];
        processes.iter().for_each(|process| signal(*process, "-STOP"));
        for clock in [&gateways, &laptop] {
            clock.set_wall(hours * HOUR);
            clock.set_asleep(hours * HOUR);
        }
        std::thread::sleep(Duration::from_millis(1_500));
        if hours == 2 {
            gateway.kill();
            gateway = bed.start_with_clock("gateway", &gateways);
        }
        processes.iter().for_each(|process| signal(*process, "-CONT"));
        let woken = Instant::now();
        bed.download(SERVER_V4, 1_000_000, || {});
        assert!(woken.elapsed() < Duration::from_secs(15), "{:?}", woken.elapsed());
        within(Duration::from_secs(10), "both paths work", || working_paths(&bed) == 2);
        assert_eq!(bed.status().state, SessionState::Up);
    }
    let events = bed.client("device").events(EventSequence(0)).unwrap();
    let slept = events.iter().filter(|event| event.text.contains("the machine has slept for 3"));
    assert_eq!(slept.count(), 2, "{events:#?}");
    drop((gateway, device));
}

fn signal(process: u32, signal: &str) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// Seconds since 1970.
fn right_time() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

const NANOS: i64 = 1_000_000_000;
const HOUR: i64 = 3_600;
pub const YEAR: i64 = 365 * 24 * HOUR;
