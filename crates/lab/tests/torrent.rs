//! The lab's torrent and tracker serve a real BitTorrent client.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const LAB: &str = env!("CARGO_BIN_EXE_anabranch-lab");

/// Ends its program with itself.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn client(directory: &Path, port: u16, torrent: &Path) -> Command {
    let mut command = Command::new("aria2c");
    command
        .args(["--no-conf", "--enable-dht=false", "--enable-dht6=false", "--bt-enable-lpd=false"])
        .args(["--enable-peer-exchange=false", "--check-integrity=true", "--file-allocation=none"])
        .arg(format!("--dir={}", directory.display()))
        .arg(format!("--listen-port={port}"))
        .arg(torrent)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_client_finds_the_seed_and_downloads_the_file() {
    if Command::new("aria2c").arg("--version").stdout(Stdio::null()).status().is_err() {
        println!("skipped: aria2c is not installed (package aria2)");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let [seed, peer] = ["seed", "peer"].map(|name| directory.path().join(name));
    fs::create_dir(&seed).unwrap();
    let (torrent, tracker) = (directory.path().join("torrent"), format!("127.0.0.1:{}", free_port()));
    let made = Command::new(LAB)
        .args(["traffic", "torrent", "--bytes", "3000000", "--tracker"])
        .arg(format!("http://{tracker}/announce"))
        .args([&seed, &torrent])
        .status();
    assert!(made.unwrap().success());
    let _tracker = Running(Command::new(LAB).args(["traffic", "tracker", &tracker]).spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(20);
    while TcpStream::connect(&tracker).is_err() {
        assert!(Instant::now() < deadline, "the tracker does not answer");
        std::thread::sleep(Duration::from_millis(50));
    }
    let _seed = Running(client(&seed, free_port(), &torrent).arg("--seed-ratio=0.0").spawn().unwrap());
    // Who asks before the seed has announced itself is not told of it, and asks again much later.
    std::thread::sleep(Duration::from_secs(3));
    let mut download = Running(client(&peer, free_port(), &torrent).arg("--seed-time=0").spawn().unwrap());
    let deadline = Instant::now() + Duration::from_secs(60);
    let ended = loop {
        if let Some(status) = download.0.try_wait().unwrap() {
            break status;
        }
        assert!(Instant::now() < deadline, "the download does not end");
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(ended.success(), "{ended}");
    let read = |directory: &Path| fs::read(directory.join("file")).expect("the file");
    assert!(read(&peer) == read(&seed), "the bytes differ");
}
