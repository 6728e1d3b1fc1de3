//! The examples do what they say.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// An example, built if `cargo test` of this file alone has not done so; with the whole workspace's features, as those that are built already have.
fn example(name: &str) -> PathBuf {
    // target/debug/deps/examples-0123
    let own = std::env::current_exe().unwrap();
    let directory = own.parent().and_then(|deps| deps.parent()).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo
        .args(["build", "--locked", "-q", "--workspace", "--example", name, "--target-dir"])
        .arg(directory.parent().unwrap());
    // What cargo told this test of its package. The build script of ring asks for it, so all that needs ring would be built once more, and again later.
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"].iter().any(|of| name.to_string_lossy().starts_with(of)) {
            cargo.env_remove(name);
        }
    }
    if directory.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    directory.join("examples").join(name)
}

#[test]
fn echo_says_everything_again() {
    let output = Command::new(example("echo")).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("connected to ") && told.ends_with("it says: hello\n"), "{told}");
}

#[test]
fn copy_carries_standard_input_to_the_other_end() {
    let copy = example("copy");
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let mut listening = Command::new(&copy)
        .args(["listen", &port])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut says = BufReader::new(listening.stderr.take().unwrap());
    let mut key = String::new();
    says.read_line(&mut key).unwrap();
    let key = key.trim().strip_prefix("key ").unwrap().to_owned();
    let sent: Vec<u8> = (0..2_000_000u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let mut calling = Command::new(&copy)
        .args(["call", &key, &format!("127.0.0.1:{port}")])
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (mut input, bytes) = (calling.stdin.take().unwrap(), sent.clone());
    let writing = std::thread::spawn(move || input.write_all(&bytes).unwrap());
    let mut received = Vec::new();
    listening.stdout.take().unwrap().read_to_end(&mut received).unwrap();
    writing.join().unwrap();
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
    assert!(calling.wait().unwrap().success());
    assert!(listening.wait().unwrap().success());
}
