//! Groups on one LAN and over relays: who is found, called and relayed for. Needs root, and is left out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod running;

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anabranch::blocking::Endpoint;
use anabranch::{ConnectError, ConnectOptions, EndpointOptions, Membership, Peer};
use identity::{GroupKeys, Groups, KeyPair, PublicKey, StateDirectory};
use linux::netns::Namespace;
use running::Running;

const PATIENCE: Duration = Duration::from_secs(30);
/// IPv6 addresses are tried out by the kernel for a second or two before they serve (RFC 4862 section 5.4).
const SETTLED: Duration = Duration::from_millis(2_500);
/// Four people; bob is in both groups, dan in none.
const ANN: usize = 0;
const BOB: usize = 1;
const CAT: usize = 2;
const DAN: usize = 3;

/// People's machines, and a switch or cables between them.
struct Bed {
    machines: Vec<Namespace>,
    _switch: Option<Namespace>,
    directory: tempfile::TempDir,
}

impl Bed {
    fn machines(count: usize) -> Option<Vec<Namespace>> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("left out: not root");
            return None;
        }
        Some((0..count).map(|_| Namespace::anonymous().unwrap()).collect())
    }

    /// All on one LAN.
    fn lan() -> Option<Self> {
        let (machines, switch) = (Self::machines(4)?, Namespace::anonymous().unwrap());
        let run = |arguments: &[&str]| {
            assert!(switch.command("ip").unwrap().args(arguments).status().unwrap().success());
        };
        run(&["link", "add", "lan", "type", "bridge"]);
        run(&["link", "set", "lan", "up"]);
        for (number, machine) in machines.iter().enumerate() {
            let port = format!("port{number}");
            machine.join(&switch, "lan0", &port).unwrap();
            run(&["link", "set", &port, "master", "lan"]);
            machine.add_address("lan0", format!("10.31.0.{}/24", number + 1).parse().unwrap()).unwrap();
        }
        Some(Self::of(machines, Some(switch)))
    }

    /// Each beside the next only.
    fn chain() -> Option<Self> {
        let machines = Self::machines(3)?;
        for (number, pair) in machines.windows(2).enumerate() {
            pair[0].join(&pair[1], "next", "last").unwrap();
            pair[0].add_address("next", format!("10.32.{number}.1/24").parse().unwrap()).unwrap();
            pair[1].add_address("last", format!("10.32.{number}.2/24").parse().unwrap()).unwrap();
        }
        Some(Self::of(machines, None))
    }

    fn of(machines: Vec<Namespace>, switch: Option<Namespace>) -> Self {
        std::thread::sleep(SETTLED);
        Self { machines, _switch: switch, directory: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, who: usize, arguments: &[&str]) -> Command {
        let mut command = self.machines[who].command(env!("CARGO_BIN_EXE_anabranch")).unwrap();
        command.arg("--state").arg(self.path(&format!("state{who}"))).args(arguments);
        command
    }

    fn run(&self, who: usize, arguments: &[&str]) -> Output {
        self.command(who, arguments).output().unwrap()
    }

    fn says(&self, who: usize, arguments: &[&str]) -> String {
        let output = self.run(who, arguments);
        assert!(output.status.success(), "{who} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    }

    fn waiting(&self, who: usize, arguments: &[&str]) -> Running {
        let mut command = self.command(who, arguments);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// `guest` joins a group by an invitation of `host`'s.
    fn invite(&self, host: usize, guest: usize, group: &str) {
        let mut command = self.command(host, &["group", "invite", group]);
        let mut host = Running(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        let mut link = String::new();
        BufReader::new(host.0.stdout.as_mut().unwrap()).read_line(&mut link).unwrap();
        self.says(guest, &["group", "join", link.trim()]);
        assert!(host.0.wait().unwrap().success());
    }

    /// Bob makes two groups; ann is in one and cat in the other.
    fn make_groups(&self) {
        for (group, guest) in [("hikers", ANN), ("chess", CAT)] {
            self.says(BOB, &["group", "create", group]);
            self.invite(BOB, guest, group);
        }
    }

    fn key(&self, who: usize) -> KeyPair {
        let state = StateDirectory::create(self.path(&format!("state{who}"))).unwrap();
        KeyPair::load_or_create(&state).unwrap()
    }

    fn groups(&self, who: usize) -> Groups {
        Groups::load(&StateDirectory::create(self.path(&format!("state{who}"))).unwrap()).unwrap()
    }

    /// What `who` calls a member.
    fn name(&self, who: usize, group: &str, key: PublicKey) -> String {
        let groups = self.groups(who);
        let members = &groups.get(group).unwrap().members;
        members.iter().find(|member| member.public_key == key).unwrap().name.clone()
    }

    /// Calls somebody from a machine, in a group of that machine's or in none.
    fn call(&self, who: usize, group: Option<&str>, peer: &Peer) -> Result<(), ConnectError> {
        let (groups, key) = (self.groups(who), self.key(who));
        let of = |name: &str| Membership {
            group: name.to_owned(),
            keys: GroupKeys::new(&groups.get(name).unwrap().secret),
            members: Vec::new(),
        };
        let options =
            EndpointOptions { groups: group.map(of).into_iter().collect(), ..EndpointOptions::new(key) };
        let endpoint = self.machines[who].run(|| Endpoint::bind(options)).unwrap().unwrap();
        let options = ConnectOptions { deadline: Duration::from_secs(10), ..ConnectOptions::default() };
        endpoint.connect(peer, &options).map(drop)
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn two_groups_on_one_lan_do_not_see_each_other_and_who_is_in_both_sees_both() {
    let Some(bed) = Bed::lan() else { return };
    bed.make_groups();
    let out = bed.path("out");
    let receive = ["receive", "--to", out.to_str().unwrap(), "--group", "hikers"];
    let _ann = bed.waiting(ANN, &receive);
    let _bob = bed.waiting(BOB, &[&receive[..], &["--group", "chess"]].concat());
    let [ann, bob] = [ANN, BOB].map(|who| bed.key(who).public());
    let peers = |who, group| bed.says(who, &["peers", "--json", "--group", group]);
    wait_until("ann sees bob", || peers(ANN, "hikers").contains("10.31.0.2:4610"));
    wait_until("bob sees ann", || peers(BOB, "hikers").contains("10.31.0.1:4610"));
    wait_until("cat sees bob", || peers(CAT, "chess").contains("10.31.0.2:4610"));
    let seen = peers(CAT, "chess");
    assert!(seen.contains(&bob.to_string()) && !seen.contains(&ann.to_string()), "{seen}");
    // Bob would see ann among the chess players, if she were one.
    assert!(!peers(BOB, "chess").contains(&ann.to_string()));
    let refused = bed.run(CAT, &["peers", "--group", "hikers"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8(refused.stderr).unwrap().contains("in no group called hikers"));
    // Who is in none learns that somebody is there.
    let seen = bed.says(DAN, &["peers", "--seconds", "5"]);
    assert!(seen.contains("2 others are nearby"), "{seen}");
    assert!(!seen.contains(&ann.to_string()) && !seen.contains(&bob.to_string()), "{seen}");

    // Ann's key and address are told to others outside of the group: they are refused all the same.
    let ann_at = Peer { key: ann, addresses: vec!["10.31.0.1:4610".parse().unwrap()] };
    assert_eq!(bed.call(BOB, Some("hikers"), &ann_at), Ok(()));
    assert_eq!(bed.call(BOB, Some("chess"), &ann_at), Err(ConnectError::NotKnown(ann)));
    assert_eq!(bed.call(BOB, None, &ann_at), Err(ConnectError::NotKnown(ann)));
    assert_eq!(bed.call(CAT, Some("chess"), &ann_at), Err(ConnectError::NotKnown(ann)));
    assert_eq!(bed.call(DAN, None, &ann_at), Err(ConnectError::NotKnown(ann)));

    for (who, group) in [(ANN, "hikers"), (CAT, "chess")] {
        let file = bed.path(group);
        fs::write(&file, group.repeat(10_000)).unwrap();
        let to = bed.name(who, group, bob);
        bed.says(who, &["send", file.to_str().unwrap(), &to, "--group", group]);
        assert_eq!(fs::read(&file).unwrap(), fs::read(out.join(group)).unwrap());
    }
    // Who has left finds nobody, and is not let in.
    bed.says(ANN, &["group", "leave", "hikers"]);
    assert!(!bed.run(ANN, &["peers", "--group", "hikers"]).status.success());
    let bob_at = Peer { key: bob, addresses: vec!["10.31.0.2:4610".parse().unwrap()] };
    assert_eq!(bed.call(ANN, None, &bob_at), Err(ConnectError::NotKnown(bob)));
}

#[test]
fn a_relay_passes_on_for_its_own_group_alone() {
    let Some(bed) = Bed::chain() else { return };
    bed.says(BOB, &["group", "create", "hikers"]);
    bed.says(BOB, &["group", "create", "chess"]);
    for guest in [ANN, CAT] {
        bed.invite(BOB, guest, "hikers");
        bed.invite(BOB, guest, "chess");
    }
    let (out, cat) = (bed.path("out"), bed.key(CAT).public());
    // Bob has told cat of ann, who came first; ann hears of cat when she calls.
    let ann = bed.name(CAT, "hikers", bed.key(ANN).public());
    let receive = |who| {
        bed.waiting(who, &["receive", "--to", out.to_str().unwrap(), "--group", "hikers", "--group", "chess"])
    };
    let _receivers = [receive(ANN), receive(CAT)];
    let file = bed.path("file");
    fs::write(&file, "over a hill".repeat(20_000)).unwrap();
    {
        let _relay = bed.waiting(BOB, &["serve", "--relay", "--group", "hikers"]);
        bed.says(CAT, &["send", file.to_str().unwrap(), &ann, "--group", "hikers"]);
        assert_eq!(fs::read(&file).unwrap(), fs::read(out.join("file")).unwrap());
        assert!(!bed.name(ANN, "hikers", cat).is_empty());
        // The same two in their other group, and in none, which bob does not relay for.
        let ann_at = |port| Peer {
            key: bed.key(ANN).public(),
            addresses: vec![std::net::SocketAddr::from(([0, 0, 0, 0], port)).into()],
        };
        assert_eq!(bed.call(CAT, Some("hikers"), &ann_at(4610)), Ok(()));
        for group in [Some("chess"), None] {
            let called = bed.call(CAT, group, &ann_at(4610));
            assert!(matches!(called, Err(ConnectError::NoAnswer { .. })), "{group:?} {called:?}");
        }
    }
    // Nor does who relays for all relay for a group.
    let _relay = bed.waiting(BOB, &["serve", "--relay"]);
    let ann_at = Peer { key: bed.key(ANN).public(), addresses: vec!["0.0.0.0:4610".parse().unwrap()] };
    assert!(matches!(bed.call(CAT, Some("hikers"), &ann_at), Err(ConnectError::NoAnswer { .. })));
}
