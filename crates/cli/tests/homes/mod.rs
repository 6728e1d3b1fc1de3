//! Homes beside each other: a source and its neighbours on one LAN, each with an uplink of its own to a far destination.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]
#![allow(dead_code, reason = "each test program uses its part")]

pub mod listener;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::running::Running;
use linux::netns::Namespace;

/// Each home's uplink.
const UPLINK: &str = "8mbit";

/// `homes[0]` is the source's; the uplinks end at `far`, the LAN at a switch.
pub struct Homes {
    pub homes: Vec<Namespace>,
    pub far: Namespace,
    pub switch: Namespace,
    directory: tempfile::TempDir,
}

/// A destination that runs.
pub struct Accepting {
    pub program: Running,
    pub links: Vec<String>,
    said: PathBuf,
}

impl Accepting {
    pub fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap_or_default()
    }
}

impl Homes {
    pub fn new(neighbours: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: not root");
            return None;
        }
        let (far, switch) = (Namespace::anonymous().unwrap(), Namespace::anonymous().unwrap());
        let homes: Vec<Namespace> = (0..=neighbours).map(|_| Namespace::anonymous().unwrap()).collect();
        let ip = |arguments: &[&str]| {
            assert!(
                switch.command("ip").unwrap().args(arguments).status().unwrap().success(),
                "{arguments:?}"
            );
        };
        ip(&["link", "add", "lan", "type", "bridge", "mcast_snooping", "0"]);
        ip(&["link", "set", "lan", "up"]);
        far.set_up("lo", true).unwrap();
        for (number, home) in homes.iter().enumerate() {
            let (port, wan) = (format!("home{number}"), format!("wan{number}"));
            home.set_up("lo", true).unwrap();
            home.join(&switch, "lan", &port).unwrap();
            ip(&["link", "set", &port, "master", "lan"]);
            home.join(&far, "wan", &wan).unwrap();
            home.add_address("lan", format!("192.168.7.{}/24", number + 1).parse().unwrap()).unwrap();
            home.add_address("wan", format!("10.7.{number}.1/24").parse().unwrap()).unwrap();
            far.add_address(&wan, format!("10.7.{number}.2/24").parse().unwrap()).unwrap();
            let shaped = home
                .command("tc")
                .unwrap()
                .args(["qdisc", "add", "dev", "wan", "root", "tbf", "rate", UPLINK])
                .args(["burst", "16k", "latency", "50ms"])
                .status();
            assert!(shaped.unwrap().success());
        }
        Some(Self { homes, far, switch, directory: tempfile::tempdir().unwrap() })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn file(&self, name: &str, size: usize) -> PathBuf {
        let bytes: Vec<u8> = (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// A file that consists of one pattern again and again.
    pub fn file_of(&self, name: &str, pattern: &[u8], size: usize) -> PathBuf {
        let bytes: Vec<u8> = pattern.iter().copied().cycle().take(size).collect();
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    /// Names of files in a directory, hidden ones too.
    pub fn listed(&self, directory: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(directory)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Bytes of the journals in a directory.
    pub fn journal(&self, directory: &str) -> u64 {
        let entries = fs::read_dir(self.path(directory)).into_iter().flatten().flatten();
        let journals = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".journal"));
        journals.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
    }

    pub fn command(&self, machine: &Namespace, state: &str, arguments: &[&str]) -> Command {
        let mut command = machine.command(env!("CARGO_BIN_EXE_anabranch")).unwrap();
        command.arg("--state").arg(self.path(state)).args(arguments);
        command
    }

    /// Starts the destination; it shows so many links.
    pub fn accept(&self, links: usize) -> Accepting {
        let (out, count) = (self.path("out"), links.to_string());
        let mut arguments = vec!["accept", "--dir", out.to_str().unwrap()];
        if links == 0 {
            arguments.push("--no-link")
        } else {
            arguments.extend(["--links", &count])
        }
        self.start(self.command(&self.far, "far", &arguments), links)
    }

    /// Starts a destination by a command of one's own.
    pub fn start(&self, mut command: Command, links: usize) -> Accepting {
        let said = self.path(&format!("said{}", self.listed("").len()));
        let output = File::create(&said).unwrap();
        let program = Running(command.stdout(output).stderr(told(&self.path("errors"))).spawn().unwrap());
        wait_until("the destination shows its links", || lines(&said).len() >= links);
        let links = lines(&said).into_iter().take(links).collect();
        Accepting { program, links, said }
    }

    /// On the homes' LAN there is IPv6 and no IPv4.
    pub fn leave_ipv4(&self) {
        self.leave_link_local();
        for number in 0..self.homes.len() {
            // Without asking first whether somebody else has it, which takes a second or two.
            self.ip(number, &format!("-6 address add fd07::{}/64 dev lan nodad", number + 1));
        }
    }

    /// On the homes' LAN there are the addresses that IPv6 gives itself, and no others.
    pub fn leave_link_local(&self) {
        for number in 0..self.homes.len() {
            self.ip(number, "-4 address flush dev lan");
        }
    }

    fn ip(&self, home: usize, words: &str) {
        let mut command = self.homes[home].command("ip").unwrap();
        assert!(command.args(words.split(' ')).status().unwrap().success(), "{words}");
    }

    /// Datagrams to groups that home `number` has sent into the LAN by IPv6.
    pub fn sent_to_groups_by_ipv6(&self, number: usize) -> u64 {
        let counted = || fs::read_to_string("/proc/thread-self/net/dev_snmp6/lan").unwrap();
        let counters = self.homes[number].run(counted).unwrap();
        let sent = counters.lines().find_map(|line| line.strip_prefix("Ip6OutMcastPkts")).unwrap();
        sent.trim().parse().unwrap()
    }

    /// Neighbour `number` shares its uplink with everybody.
    pub fn share(&self, number: usize, destination: &str) -> Running {
        self.share_as(number, &["share", destination, "--trust-all"])
    }

    pub fn share_as(&self, number: usize, arguments: &[&str]) -> Running {
        let state = format!("neighbour{number}");
        let mut command = self.command(&self.homes[number + 1], &state, arguments);
        command.args(["--air", "lan"]).stdout(told(&self.path(&format!("{state}.said"))));
        Running(command.stderr(told(&self.path("errors"))).spawn().unwrap())
    }

    /// The source sends files; waits for the end.
    pub fn upload(&self, files: &[&Path], destination: &str) -> Output {
        self.uploading(files, destination).output().unwrap()
    }

    pub fn uploading(&self, files: &[&Path], destination: &str) -> Command {
        self.uploading_from(0, "source", files, destination)
    }

    /// Home `number` sends files.
    pub fn uploading_from(&self, number: usize, state: &str, files: &[&Path], destination: &str) -> Command {
        let mut command = self.command(&self.homes[number], state, &["upload"]);
        command.args(files).args([destination, "--name", "far", "--air", "lan", "--air-rate", "40"]);
        command
    }

    /// Bytes that have left neighbour `number` by its uplink.
    pub fn sent_up(&self, number: usize) -> u64 {
        self.counter(number, "wan:", 8)
    }

    /// Packets that have come to neighbour `number` by the LAN.
    pub fn came_by_lan(&self, number: usize) -> u64 {
        self.counter(number, "lan:", 1)
    }

    fn counter(&self, number: usize, interface: &str, column: usize) -> u64 {
        let interfaces =
            self.homes[number + 1].run(|| fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
        let counters = interfaces.lines().find_map(|line| line.trim().strip_prefix(interface)).unwrap();
        counters.split_whitespace().nth(column).unwrap().parse().unwrap()
    }

    /// Neighbour `number` sends as much as its kernel's TCP lets it, for itself.
    pub fn owner(&self, number: usize) -> Owner {
        let there = format!("10.7.{}.2:9000", number + 1);
        let listener = self.far.run(|| TcpListener::bind(&there).unwrap()).unwrap();
        let mut stream = self.homes[number + 1].run(|| TcpStream::connect(&there).unwrap()).unwrap();
        let mut taken = listener.accept().unwrap().0;
        let closing = stream.try_clone().unwrap();
        std::thread::spawn(move || while stream.write_all(&[0; 16 * 1024]).is_ok() {});
        let arrived = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&arrived);
        std::thread::spawn(move || {
            let mut bytes = vec![0; 64 * 1024];
            while let Ok(count @ 1..) = taken.read(&mut bytes) {
                counted.fetch_add(count as u64, Ordering::Relaxed);
            }
        });
        Owner { stream: closing, arrived }
    }

    /// Bytes that a neighbour has carried by its own account.
    pub fn ledger(&self, neighbour: usize) -> u64 {
        self.ledger_by_source(neighbour).values().sum()
    }

    /// The same for each source.
    pub fn ledger_by_source(&self, neighbour: usize) -> BTreeMap<String, u64> {
        let state = format!("neighbour{neighbour}");
        let told = self
            .command(&self.homes[neighbour + 1], &state, &["share", "--ledger", "--json"])
            .output()
            .unwrap();
        assert!(told.status.success(), "{told:?}");
        let rows: serde_json::Value = serde_json::from_slice(&told.stdout).unwrap();
        let mut sums = BTreeMap::new();
        for row in rows.as_array().unwrap() {
            *sums.entry(row["source"].to_string()).or_default() += row["bytes"].as_u64().unwrap();
        }
        sums
    }
}

/// The most memory that a program has had at once, bytes.
pub fn most_memory(program: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", program.0.id())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1_024
}

/// Somebody who sends beside what is shared, until dropped.
pub struct Owner {
    stream: TcpStream,
    arrived: Arc<AtomicU64>,
}

impl Owner {
    /// Bytes that have arrived.
    pub fn arrived(&self) -> u64 {
        self.arrived.load(Ordering::Relaxed)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        // Both threads end by it.
        drop(self.stream.shutdown(Shutdown::Both));
    }
}

/// What a program says, kept for later.
fn told(path: &Path) -> Stdio {
    File::options().create(true).append(true).open(path).unwrap().into()
}

fn lines(path: &Path) -> Vec<String> {
    File::open(path)
        .map_or_else(|_| Vec::new(), |file| BufReader::new(file).lines().map_while(Result::ok).collect())
}

pub fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
