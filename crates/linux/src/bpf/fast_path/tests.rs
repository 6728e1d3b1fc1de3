//! The programs run for real: a child process in a cgroup and a namespace of its own connects and reads its marks.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::Duration;

use socket2::{Domain, SockRef, Socket, Type};

use super::*;
use crate::netns::Namespace;
use crate::test_namespace::{TestCgroup, joined_pair, may_test};

/// Set for the child only.
const CGROUP_FILE: &str = "AB_TEST_CGROUP_PROCS";

/// Two joined namespaces, a listener at the far end, a cgroup with programs, and a child in it.
struct Bed {
    right: Namespace,
    path: FastPath,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    cgroup: TestCgroup,
    _left: Namespace,
    _listener: TcpListener,
}

impl Bed {
    /// `None`, with the reason printed, where the kernel or its guard does not allow it.
    fn new(name: &str) -> Option<Self> {
        if !may_test() {
            return None;
        }
        let cgroup = TestCgroup::make(name)?;
        let (left, right) = joined_pair();
        let directory = cgroup.hierarchy.directory(&cgroup.path);
        let path = match left.run(|| FastPath::load(&directory)).unwrap() {
            Err(BpfError::Refused { operation, error, log }) if log.is_empty() => {
                eprintln!("skipped: BPF: cannot {operation}: {error}");
                return None;
            }
            other => other.unwrap(),
        };
        let listener = right.run(|| TcpListener::bind("[::]:80")).unwrap().unwrap();
        let mut child = left
            .command(std::env::current_exe().unwrap())
            .unwrap()
            .args(["--exact", "bpf::fast_path::tests::child", "--nocapture"])
            .env(CGROUP_FILE, directory.join("cgroup.procs"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let output = BufReader::new(output);
        Some(Self { right, path, child, input, output, cgroup, _left: left, _listener: listener })
    }

    /// The marks that `count` sockets of the child got, and how often each.
    fn marks(&mut self, how: &str, destination: &str, count: usize) -> BTreeMap<u32, usize> {
        writeln!(self.input, "{how} {destination} {count}").unwrap();
        let mut found = BTreeMap::new();
        let mut line = String::new();
        while found.values().sum::<usize>() < count {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).unwrap(), 0, "the child has ended");
            // The test harness prints lines of its own.
            if let Some(mark) = line.trim().strip_prefix("mark ") {
                *found.entry(mark.parse().unwrap()).or_default() += 1;
            }
        }
        found
    }

    fn only_mark(&mut self, how: &str, destination: &str) -> u32 {
        let found = self.marks(how, destination, 5);
        assert_eq!(found.len(), 1, "{how} {destination}: {found:?}");
        *found.keys().next().unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Not a test: what the child process does. Obeys lines `HOW DESTINATION COUNT`.
#[test]
fn child() {
    let Ok(cgroup) = std::env::var(CGROUP_FILE) else { return };
    std::fs::write(cgroup, std::process::id().to_string()).unwrap();
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let [how, destination, count] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        for _ in 0..count.parse().unwrap() {
            println!("\nmark {}", connect(how, destination.parse().unwrap()));
        }
    }
}

fn slots<'a>(v4: &'a [u32], v6: &'a [u32]) -> Slots<'a> {
    Slots { v4, v6, real_time: RealTimeMarks::default() }
}

fn connect(how: &str, destination: SocketAddr) -> u32 {
    if how == "tcp" {
        let limit = Duration::from_secs(5);
        return SockRef::from(&TcpStream::connect_timeout(&destination, limit).unwrap()).mark().unwrap();
    }
    let kind = if how.starts_with("udp") { Type::DGRAM } else { Type::STREAM };
    let socket = Socket::new(Domain::for_address(destination), kind, None).unwrap();
    match how {
        "udp" => socket.connect(&destination.into()).unwrap(),
        "udp-send" => {
            socket.send_to(b"x", &destination.into()).unwrap();
        }
        "tcp-marked" => {
            socket.set_mark(77).unwrap();
            socket.connect(&destination.into()).unwrap();
        }
        "tcp-bound" => {
            socket.bind_device(Some(b"cable")).unwrap();
            socket.connect(&destination.into()).unwrap();
        }
        "tcp-ef" | "tcp-ef-with-ecn" | "tcp-af11" => {
            let octet = [("tcp-ef", 46 << 2), ("tcp-ef-with-ecn", 46 << 2 | 2), ("tcp-af11", 10 << 2)];
            let (_, octet) = octet.into_iter().find(|(name, _)| *name == how).unwrap();
            match destination {
                SocketAddr::V4(_) => socket.set_tos_v4(octet).unwrap(),
                SocketAddr::V6(_) => socket.set_tclass_v6(octet).unwrap(),
            }
            socket.connect(&destination.into()).unwrap();
        }
        "tcp-not-blocking" => {
            socket.set_nonblocking(true).unwrap();
            let error = socket.connect(&destination.into()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINPROGRESS));
        }
        other => panic!("{other}"),
    }
    socket.mark().unwrap()
}

#[test]
fn new_sockets_are_spread_as_the_slots_say() {
    let Some(mut bed) = Bed::new("spread") else { return };
    assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), 0, "no slots yet");

    bed.path.set_slots(&slots(&[0x101, 0x102, 0x101, 0x101], &[0x201])).unwrap();
    let found = bed.marks("tcp-not-blocking", "10.77.0.2:81", 400);
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [0x101, 0x102]);
    assert_eq!(found[&0x102], 100, "by turns: {found:?}");
    assert_eq!(bed.only_mark("tcp", "[fd77::2]:80"), 0x201);
    assert!(bed.marks("tcp", "10.77.0.2:80", 20).keys().all(|mark| [0x101, 0x102].contains(mark)));

    // Several times, so that both halves were used.
    for mark in [0x107, 0x108, 0x109] {
        bed.path.set_slots(&slots(&[mark], &[0])).unwrap();
        assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), mark);
        assert_eq!(bed.only_mark("tcp-not-blocking", "10.77.0.2:80"), mark);
        assert_eq!(bed.only_mark("tcp", "[::ffff:10.77.0.2]:80"), mark, "IPv4 through an IPv6 socket");
        assert_eq!(bed.only_mark("tcp", "[fd77::2]:80"), 0, "slot 0 leaves alone");
    }
    bed.path.set_slots(&Slots::default()).unwrap();
    assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), 0);
}

#[test]
fn sockets_that_ask_for_little_delay_take_one_mark() {
    let Some(mut bed) = Bed::new("best") else { return };
    let real_time = |v4, v6| RealTimeMarks { code_points: vec![34, 46, 200], v4, v6 };
    let turns = Slots { real_time: real_time(0x102, 0x203), ..slots(&[0x101, 0x103], &[0x201]) };
    bed.path.set_slots(&turns).unwrap();
    for (how, destination, mark) in [
        ("tcp-ef", "10.77.0.2:80", 0x102),
        ("tcp-ef", "[fd77::2]:80", 0x203),
        ("tcp-ef", "[::ffff:10.77.0.2]:80", 0x102),
        ("tcp-ef-with-ecn", "10.77.0.2:80", 0x102),
        ("tcp-af11", "[fd77::2]:80", 0x201),
    ] {
        assert_eq!(bed.only_mark(how, destination), mark, "{how} {destination}");
    }
    for how in ["tcp", "tcp-af11"] {
        assert_eq!(bed.marks(how, "10.77.0.2:80", 10), [(0x101, 5), (0x103, 5)].into(), "{how}");
    }

    for v4 in [&[0x101][..], &[0x102], &[]] {
        bed.path.set_slots(&Slots { real_time: real_time(0x102, 0), ..slots(v4, &[]) }).unwrap();
        assert_eq!(bed.only_mark("tcp-ef", "10.77.0.2:80"), 0x102, "beside turns {v4:x?}");
        assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), v4.first().copied().unwrap_or(0));
    }

    bed.path.set_slots(&Slots { real_time: real_time(0, 0x203), ..turns }).unwrap();
    assert_eq!(bed.marks("tcp-ef", "10.77.0.2:80", 10).len(), 2, "no mark: by turns");
    bed.path.set_excluded(&["fd77::/64".parse().unwrap()]).unwrap();
    assert_eq!(bed.only_mark("tcp-ef", "[fd77::2]:80"), 0, "rules come first");
    bed.path.set_slots(&Slots::default()).unwrap();
    assert_eq!(bed.only_mark("tcp-ef", "10.77.0.2:80"), 0);
}

#[test]
fn sockets_that_chose_for_themselves_and_local_destinations_are_left_alone() {
    let Some(mut bed) = Bed::new("alone") else { return };
    bed.path.set_slots(&slots(&[5], &[6])).unwrap();
    assert_eq!(bed.only_mark("tcp-marked", "10.77.0.2:80"), 77);
    assert_eq!(bed.only_mark("tcp-bound", "10.77.0.2:80"), 0);
    for local in ["127.0.0.1:9", "[::1]:9", "[::ffff:127.0.0.1]:9"] {
        assert_eq!(bed.only_mark("tcp-not-blocking", local), 0, "{local}");
    }

    let excluded: Vec<IpPrefix> = ["10.77.0.9/24", "fd77::/64"].map(|text| text.parse().unwrap()).into();
    bed.path.set_excluded(&excluded).unwrap();
    for destination in ["10.77.0.2:80", "[fd77::2]:80", "[::ffff:10.77.0.2]:80"] {
        assert_eq!(bed.only_mark("tcp", destination), 0, "{destination}");
    }
    bed.path.set_excluded(&["fd77::/64".parse().unwrap(), "127.0.0.0/8".parse().unwrap()]).unwrap();
    assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), 5);
    assert_eq!(bed.only_mark("tcp", "[fd77::2]:80"), 0);
    bed.path.set_excluded(&[]).unwrap();
    assert_eq!(bed.only_mark("tcp", "[fd77::2]:80"), 6);
    assert_eq!(bed.only_mark("tcp-not-blocking", "127.0.0.1:9"), 0, "loopback stays excluded");
}

#[test]
fn udp_is_left_alone() {
    let Some(mut bed) = Bed::new("udp") else { return };
    bed.path.set_slots(&slots(&[5], &[6])).unwrap();
    for destination in ["10.77.0.2:53", "[fd77::2]:53"] {
        assert_eq!(bed.only_mark("udp", destination), 0);
        assert_eq!(bed.only_mark("udp-send", destination), 0);
    }
}

#[test]
fn only_sockets_of_its_own_namespace_are_touched_and_dropping_it_ends_it() {
    let Some(mut bed) = Bed::new("ends") else { return };
    bed.path.set_slots(&slots(&[5], &[6])).unwrap();
    assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), 5);
    let directory = bed.cgroup.hierarchy.directory(&bed.cgroup.path);
    let elsewhere = bed.right.run(|| FastPath::load(&directory)).unwrap().unwrap();
    drop(std::mem::replace(&mut bed.path, elsewhere));
    // Programs that other tests start hold all descriptors until they are others' programs.
    let gone = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        bed.only_mark("tcp", "10.77.0.2:80") == 0
    });
    assert!(gone, "the first one is gone");
    bed.path.set_slots(&slots(&[7], &[8])).unwrap();
    let knows_namespaces = system::namespace_cookie().is_some();
    assert_eq!(bed.only_mark("tcp", "10.77.0.2:80"), if knows_namespaces { 0 } else { 7 });
}

#[test]
fn too_much_and_the_wrong_place_are_refused() {
    let Some(mut bed) = Bed::new("bounds") else { return };
    let many = vec![1; FastPath::MOST_SLOTS + 1];
    assert!(matches!(bed.path.set_slots(&slots(&many, &[])), Err(BpfError::TooMany { .. })));
    bed.path.set_slots(&slots(&many[1..], &many[1..])).unwrap();
    assert_eq!(bed.only_mark("tcp", "[fd77::2]:80"), 1);
    let prefix =
        |number: u16| IpPrefix::new(Ipv6Addr::new(0xfd00, number, 0, 0, 0, 0, 0, 0).into(), 48).unwrap();
    let many: Vec<IpPrefix> = (0..=FastPath::MOST_EXCLUDED as u16).map(prefix).collect();
    assert!(matches!(bed.path.set_excluded(&many), Err(BpfError::TooMany { .. })));
    bed.path.set_excluded(&many[1..]).unwrap();
    bed.path.set_excluded(&[]).unwrap();

    let wrong = FastPath::load(Path::new("/proc"));
    assert!(matches!(wrong, Err(BpfError::Refused { .. })));
    let missing = FastPath::load(Path::new("/does/not/exist"));
    assert!(matches!(missing, Err(BpfError::Cgroup { .. })));
}
