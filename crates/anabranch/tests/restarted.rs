//! Half-open ends: a peer's process is killed and started anew. The far end is a process of its own, this very test program.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anabranch::blocking::Endpoint;
use anabranch::{Admission, ConnectError, ConnectOptions, EndpointOptions, Peer};
use identity::KeyPair;

/// Says that the program is the far end, and at which port.
const PORT: &str = "ANABRANCH_TEST_FAR_END";
const PRIVATE: [u8; 32] = [77; 32];

/// The far end: takes connections, and says "hello" on each, until it is killed.
#[test]
fn far_end() {
    let Some(port) = std::env::var(PORT).ok().and_then(|port| port.parse().ok()) else { return };
    let key = KeyPair::from_private(PRIVATE).unwrap();
    let endpoint = Endpoint::bind(EndpointOptions::listening(key, port, Admission::Anybody)).unwrap();
    let listener = endpoint.listen();
    println!("\nlistening");
    let mut held = Vec::new();
    while let Ok(mut stream) = listener.accept() {
        stream.write_all(b"hello").unwrap();
        held.push(stream);
    }
}

struct FarEnd(Child);

impl FarEnd {
    fn start(port: u16) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "far_end", "--nocapture"])
            .env(PORT, port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "listening"), "the far end did not start");
        std::thread::spawn(move || lines.count());
        Self(child)
    }
}

impl Drop for FarEnd {
    /// Without a word to its peers.
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn a_peer_that_was_killed_and_started_anew_is_an_error_that_says_so() {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let far = FarEnd::start(port);
    let key = KeyPair::from_private(PRIVATE).unwrap().public();
    let peer = Peer { key, addresses: vec![format!("127.0.0.1:{port}").parse().unwrap()] };
    let client = Endpoint::bind(EndpointOptions::new(KeyPair::generate().unwrap())).unwrap();
    let mut stream = client.connect(&peer, &ConnectOptions::default()).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0; 2]).unwrap();
    drop(far);
    let _far = FarEnd::start(port);
    let (writer, start) = (stream, Instant::now());
    let mut writer = writer;
    let error = loop {
        // Who only reads would be told as soon as the paths are probed; who writes hears at once.
        match writer.write_all(&[0; 100]) {
            Ok(()) => std::thread::sleep(Duration::from_millis(20)),
            Err(error) => break error,
        }
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is told");
    };
    let told = error.get_ref().and_then(|inner| inner.downcast_ref::<ConnectError>()).cloned();
    assert_eq!(told, Some(ConnectError::Restarted(key)), "{error}");
    // What had come before is read first.
    let mut rest = [0; 3];
    writer.read_exact(&mut rest).unwrap();
    assert_eq!((&rest, writer.read(&mut [0]).unwrap_err().kind()), (b"llo", error.kind()));
    // And a new connection is one as any other.
    let mut stream = client.connect(&peer, &ConnectOptions::default()).unwrap();
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut [0; 5]).unwrap();
}
