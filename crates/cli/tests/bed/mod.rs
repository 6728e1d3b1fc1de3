//! Two machines that are network namespaces with two cables. Needs root, and is left out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]
#![allow(dead_code, reason = "each test program uses its part")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::running::Running;
use linux::netns::Namespace;

pub const CABLES: [&str; 2] = ["cable0", "cable1"];

/// Two machines, and where each keeps its state.
pub struct Bed {
    pub near: Namespace,
    pub far: Namespace,
    directory: tempfile::TempDir,
}

impl Bed {
    pub fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: not root");
            return None;
        }
        let bed = Self {
            near: Namespace::anonymous().unwrap(),
            far: Namespace::anonymous().unwrap(),
            directory: tempfile::tempdir().unwrap(),
        };
        for (number, cable) in CABLES.into_iter().enumerate() {
            bed.near.join(&bed.far, cable, cable).unwrap();
            bed.near.add_address(cable, format!("10.8.{number}.1/24").parse().unwrap()).unwrap();
            bed.far.add_address(cable, format!("10.8.{number}.2/24").parse().unwrap()).unwrap();
            for machine in [&bed.near, &bed.far] {
                // Slow enough for something to happen during a transfer.
                let shaped = machine
                    .command("tc")
                    .unwrap()
                    .args(["qdisc", "add", "dev", cable, "root", "tbf", "rate", "40mbit"])
                    .args(["burst", "32k", "latency", "50ms"])
                    .status()
                    .unwrap();
                assert!(shaped.success());
            }
        }
        for machine in [&bed.near, &bed.far] {
            machine.set_up("lo", true).unwrap();
        }
        Some(bed)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn command(&self, machine: &Namespace, state: &str, arguments: &[&str]) -> Command {
        let mut command = machine.command(env!("CARGO_BIN_EXE_anabranch")).unwrap();
        command.arg("--state").arg(self.path(state)).args(arguments);
        command
    }

    pub fn near(&self, arguments: &[&str]) -> Output {
        self.command(&self.near, "near", arguments).output().unwrap()
    }

    /// Starts what waits for peers at the far end; the first line that it says, if it is to say one.
    pub fn waiting(&self, arguments: &[&str], says_link: bool) -> (Running, String) {
        let mut command = self.command(&self.far, "far", arguments);
        // With ANABRANCH_LOG both ends tell what they do.
        let says = if std::env::var_os("ANABRANCH_LOG").is_some() { Stdio::inherit() } else { Stdio::null() };
        let mut child = command.stdout(Stdio::piped()).stderr(says).spawn().unwrap();
        let mut line = String::new();
        if says_link {
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        }
        (Running(child), line.trim().to_owned())
    }

    /// The two machines know each other from now on.
    pub fn introduce(&self) {
        let (_receiver, link) = self.waiting(&["receive", "--to", self.path("out").to_str().unwrap()], true);
        fs::write(self.path("first"), "first").unwrap();
        let sent = self.near(&["send", self.path("first").to_str().unwrap(), &link, "--name", "far"]);
        assert!(sent.status.success(), "{sent:?}");
    }

    pub fn file(&self, name: &str, size: usize) -> PathBuf {
        let bytes: Vec<u8> = (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    pub fn cut(&self, cable: usize, whole: bool) {
        self.far.set_up(CABLES[cable], whole).unwrap();
    }
}

pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Serves `body` over HTTP on the far machine's loopback interface, to whoever asks; the port.
pub fn serve_http(bed: &Bed, body: &[u8]) -> u16 {
    let server = bed.far.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let port = server.local_addr().unwrap().port();
    let body = body.to_vec();
    std::thread::spawn(move || {
        for connection in server.incoming().flatten() {
            let (mut connection, body) = (connection, body.clone());
            std::thread::spawn(move || {
                let mut request = [0; 4_000];
                let _ = connection.read(&mut request);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&body));
            });
        }
    });
    port
}

impl Bed {
    /// Moves what is under way from cable to cable, and takes both away for a while. `progress` goes from 0 to 1 meanwhile.
    pub fn change_networks(&self, progress: impl Fn() -> f64) {
        wait_until("it has begun", || progress() > 0.1);
        self.cut(0, false);
        wait_until("it goes on by the other cable", || progress() > 0.4);
        self.cut(0, true);
        self.cut(1, false);
        wait_until("and by the first again", || progress() > 0.7);
        for cable in [0, 1] {
            self.cut(cable, false);
        }
        std::thread::sleep(Duration::from_millis(1_500));
        assert!(progress() < 1.0, "it was over before the cables were cut");
        for cable in [0, 1] {
            self.cut(cable, true);
        }
    }
}
