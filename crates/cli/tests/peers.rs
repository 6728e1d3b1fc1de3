//! Files, words and other programs' connections between two machines, which are network namespaces with two cables. Needs root, and is
//! left out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use linux::netns::Namespace;

const CABLES: [&str; 2] = ["cable0", "cable1"];

/// Two machines, and where each keeps its state.
struct Bed {
    near: Namespace,
    far: Namespace,
    directory: tempfile::TempDir,
}

/// A program that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

impl Bed {
    fn new() -> Option<Self> {
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

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, machine: &Namespace, state: &str, arguments: &[&str]) -> Command {
        let mut command = machine.command(env!("CARGO_BIN_EXE_anabranch")).unwrap();
        command.arg("--state").arg(self.path(state)).args(arguments);
        command
    }

    fn near(&self, arguments: &[&str]) -> Output {
        self.command(&self.near, "near", arguments).output().unwrap()
    }

    /// Starts what waits for peers at the far end; the first line that it says, if it is to say one.
    fn waiting(&self, arguments: &[&str], says_link: bool) -> (Running, String) {
        let mut command = self.command(&self.far, "far", arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        if says_link {
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        }
        (Running(child), line.trim().to_owned())
    }

    /// The two machines know each other from now on.
    fn introduce(&self) {
        let (_receiver, link) = self.waiting(&["receive", "--to", self.path("out").to_str().unwrap()], true);
        fs::write(self.path("first"), "first").unwrap();
        let sent = self.near(&["send", self.path("first").to_str().unwrap(), &link, "--name", "far"]);
        assert!(sent.status.success(), "{sent:?}");
    }

    fn file(&self, name: &str, size: usize) -> PathBuf {
        let bytes: Vec<u8> = (0..size as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        fs::write(self.path(name), bytes).unwrap();
        self.path(name)
    }

    fn cut(&self, cable: usize, whole: bool) {
        self.far.set_up(CABLES[cable], whole).unwrap();
    }
}

fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn size(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

#[test]
fn files_go_to_a_peer_by_its_link_and_then_by_its_name() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    assert_eq!(fs::read(bed.path("out/first")).unwrap(), b"first");
    let out = bed.path("out");
    let arguments = ["receive", "--no-link", "--to", out.to_str().unwrap()];
    let (receiver, _) = bed.waiting(&arguments, false);
    let files =
        [bed.file("one", 300_000), bed.file("two", 1), bed.file("none", 0), bed.file("first", 70_000)];
    let mut send = vec!["send"];
    send.extend(files.iter().map(|file| file.to_str().unwrap()));
    send.push("far");
    // The receiver may not be there at once.
    wait_until("it takes the files", || bed.near(&send).status.success());
    for file in &files[..3] {
        let name = file.file_name().unwrap();
        assert!(fs::read(file).unwrap() == fs::read(out.join(name)).unwrap(), "{name:?}");
    }
    assert_eq!(size(&out.join("first")), 5, "what was there is not replaced");
    assert_eq!(size(&out.join("first (2)")), 70_000);
    drop(receiver);
    let gone = bed.near(&["send", files[1].to_str().unwrap(), "nobody"]);
    assert!(String::from_utf8_lossy(&gone.stderr).contains("no peer called nobody"), "{gone:?}");
}

#[test]
fn a_stranger_gets_nothing() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let out = bed.path("out");
    let (_receiver, link) = bed.waiting(&["receive", "--to", out.to_str().unwrap()], true);
    let file = bed.file("file", 10);
    let file = file.to_str().unwrap();
    // The link works once.
    assert!(bed.command(&bed.near, "second", &["send", file, &link]).output().unwrap().status.success());
    let third = bed.command(&bed.near, "third", &["send", file, &link]).output().unwrap();
    assert!(String::from_utf8_lossy(&third.stderr).contains("refuses the invitation"), "{third:?}");
}

#[test]
fn a_transfer_goes_on_after_the_receiver_was_killed() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let out = bed.path("out");
    let file = bed.file("large", 12_000_000);
    let arguments = ["receive", "--no-link", "--count", "1", "--to", out.to_str().unwrap()];
    let (receiver, _) = bed.waiting(&arguments, false);
    std::thread::sleep(Duration::from_millis(500));
    let mut send = bed.command(&bed.near, "near", &["send", file.to_str().unwrap(), "far"]);
    let mut sending = Running(send.stdout(Stdio::null()).spawn().unwrap());
    let part = || {
        let mut found = fs::read_dir(&out).unwrap().flatten().map(|entry| entry.path());
        found.find(|path| path.extension().is_some_and(|extension| extension == "part"))
    };
    wait_until("some of it has come", || part().is_some_and(|part| size(&part) > 3_000_000));
    drop(receiver);
    let (mut receiver, _) = bed.waiting(&arguments, false);
    assert!(sending.0.wait().unwrap().success());
    let mut said = String::new();
    receiver.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.contains("of them before, verified"), "{said}");
    assert!(fs::read(&file).unwrap() == fs::read(out.join("large")).unwrap());
}

#[test]
fn curl_lives_through_a_change_of_network() {
    let Some(bed) = Bed::new() else { return };
    bed.introduce();
    let body = fs::read(bed.file("body", 10_000_000)).unwrap();
    let server = bed.far.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let port = server.local_addr().unwrap().port();
    let served = body.clone();
    std::thread::spawn(move || {
        for connection in server.incoming().flatten() {
            let (mut connection, body) = (connection, served.clone());
            std::thread::spawn(move || {
                let mut request = [0; 4_000];
                let _ = connection.read(&mut request);
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = connection.write_all(head.as_bytes()).and_then(|()| connection.write_all(&body));
            });
        }
    });
    let (_serving, _) = bed.waiting(&["serve", "--no-link", &port.to_string()], false);
    std::thread::sleep(Duration::from_millis(500));
    let got = bed.path("got");
    let url = format!("http://far.peer:{port}/");
    let arguments = ["run", "--virtual", "--", "curl", "-s", "-S", "-o", got.to_str().unwrap(), &url];
    let mut curl = Running(bed.command(&bed.near, "near", &arguments).spawn().unwrap());
    wait_until("it has begun", || size(&got) > 1_000_000);
    bed.cut(0, false);
    wait_until("it goes on by the other cable", || size(&got) > 4_000_000);
    bed.cut(0, true);
    bed.cut(1, false);
    wait_until("and by the first again", || size(&got) > 7_000_000);
    for cable in [0, 1] {
        bed.cut(cable, false);
    }
    std::thread::sleep(Duration::from_millis(1_500));
    for cable in [0, 1] {
        bed.cut(cable, true);
    }
    assert!(curl.0.wait().unwrap().success());
    assert!(fs::read(&got).unwrap() == body);
    // What is not served is refused, and curl's own exit code is told.
    let refused = bed.near(&["run", "--virtual", "--", "curl", "-s", "http://far.peer:1/"]);
    assert_eq!(refused.status.code(), Some(97), "{refused:?}");
}

#[test]
fn people_chat() {
    let Some(bed) = Bed::new() else { return };
    let mut far = bed.command(&bed.far, "far", &["chat"]);
    let far = far.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut far = Running(far);
    let mut far_says = BufReader::new(far.0.stdout.take().unwrap());
    let mut line = String::new();
    far_says.read_line(&mut line).unwrap();
    let mut near = bed.command(&bed.near, "near", &["chat", "--name", "friend", line.trim()]);
    let near = near.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut near = Running(near);
    let mut near_types = near.0.stdin.take().unwrap();
    near_types.write_all("hello over there\n".as_bytes()).unwrap();
    line.clear();
    far_says.read_line(&mut line).unwrap();
    assert!(line.ends_with(": hello over there\n"), "{line}");
    far.0.stdin.as_mut().unwrap().write_all(b"hello back\n").unwrap();
    line.clear();
    BufReader::new(near.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "friend: hello back\n");
    drop(near_types);
    drop(far.0.stdin.take());
    assert!(near.0.wait().unwrap().success());
    assert!(far.0.wait().unwrap().success());
}
