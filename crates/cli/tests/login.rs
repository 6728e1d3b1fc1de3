//! A network with a login page: `anabranch login` opens the page over that network, and everything else goes on over the other one.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod bed;
mod running;

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bed::{Bed, CABLES, wait_until};
use linux::cgroup::Hierarchy;
use running::Running;

const SERVER: &str = "203.0.113.9";

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER.parse().unwrap(), port)
}

/// Two networks, and a server behind both.
fn networks() -> Option<Bed> {
    let bed = Bed::new()?;
    bed.far.add_address("lo", format!("{SERVER}/32").parse().unwrap()).unwrap();
    for (number, cable) in (0..).zip(CABLES) {
        let via = format!("10.8.{number}.2").parse().ok();
        bed.near.add_route(cable, "0.0.0.0/0".parse().unwrap(), via, Some(100 + number)).unwrap();
    }
    Some(bed)
}

/// What the second network puts between until somebody has been at its page; who was there is sent on.
fn portal(bed: &Bed) -> std::sync::mpsc::Receiver<IpAddr> {
    let open = Arc::new(AtomicBool::new(false));
    let (visitors, visited) = std::sync::mpsc::channel();
    let listen = |port| bed.far.run(|| TcpListener::bind(server(port))).unwrap().unwrap();
    let (probes, page) = (listen(80), listen(81));
    let is_open = open.clone();
    std::thread::spawn(move || {
        for mut stream in probes.incoming().flatten() {
            let captured = stream.peer_addr().is_ok_and(|peer| peer.to_string().starts_with("10.8.1."));
            drop(stream.read(&mut [0; 1_024]));
            let answer = if captured && !is_open.load(Ordering::Relaxed) {
                format!(
                    "HTTP/1.1 302 Found\r\nLocation: http://{SERVER}:81/hello\r\nContent-Length: 0\r\n\r\n"
                )
            } else {
                "HTTP/1.1 204 No Content\r\n\r\n".to_owned()
            };
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    std::thread::spawn(move || {
        for mut stream in page.incoming().flatten() {
            let Ok(peer) = stream.peer_addr() else { continue };
            drop(stream.read(&mut [0; 1_024]));
            open.store(true, Ordering::Relaxed);
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwelcome"));
            let _ = visitors.send(peer.ip());
        }
    });
    visited
}

#[test]
fn the_page_is_opened_over_its_network_while_others_go_on() {
    if Hierarchy::find().is_err() {
        eprintln!("left out: no control groups of version 2");
        return;
    }
    let Some(bed) = networks() else { return };
    let visited = portal(&bed);
    let state = bed.path("near");
    fs::create_dir(&state).unwrap();
    fs::set_permissions(&state, fs::Permissions::from_mode(0o700)).unwrap();
    let configuration = format!("[device]\ndns = \"off\"\nprobe = \"http://{SERVER}/\"\n");
    fs::write(state.join("config.toml"), configuration).unwrap();
    let _daemon = Running(bed.command(&bed.near, "near", &["up", "--foreground"]).spawn().unwrap());
    let networks = || String::from_utf8_lossy(&bed.near(&["networks"]).stdout).into_owned();
    wait_until("the page is found", || networks().contains("/hello"));

    // A program that is at something meanwhile.
    let listener = bed.far.run(|| TcpListener::bind(server(82))).unwrap().unwrap();
    let mut call = bed.near.run(|| TcpStream::connect(server(82))).unwrap().unwrap();
    let (mut answer, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip().to_string(), "10.8.0.1", "no new flow takes the network with the page");
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = stop.clone();
    let other = std::thread::spawn(move || {
        let mut rounds = 0;
        while !stopped.load(Ordering::Relaxed) {
            call.write_all(b"ping").unwrap();
            answer.read_exact(&mut [0; 4]).unwrap();
            rounds += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        rounds
    });

    let (browser, shown) = (bed.path("browser"), bed.path("shown"));
    let script =
        format!("#!/bin/sh\necho \"$1\" > {0}\nexec curl -s --max-time 20 \"$1\" >> {0}\n", shown.display());
    fs::write(&browser, script).unwrap();
    fs::set_permissions(&browser, fs::Permissions::from_mode(0o755)).unwrap();
    let opened = bed.near(&["login", CABLES[1], "--browser", browser.to_str().unwrap()]);
    assert!(opened.status.success(), "{opened:?}");
    assert_eq!(fs::read_to_string(&shown).unwrap(), format!("http://{SERVER}:81/hello\nwelcome"));
    assert_eq!(visited.recv_timeout(Duration::from_secs(5)).unwrap().to_string(), "10.8.1.1");

    wait_until("the login is seen", || !networks().contains("/hello"));
    stop.store(true, Ordering::Relaxed);
    assert!(other.join().unwrap() > 1, "the other program has gone on");
    let down = bed.near(&["down"]);
    assert!(down.status.success(), "{down:?}");
}
