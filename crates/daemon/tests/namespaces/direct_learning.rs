//! Rules by class: what flows are is learned while they run.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use policy::Treatment;

use crate::bed::{Bed, SERVER_V4, eventually, within};
use crate::direct::{bed, listing, started};
use crate::scenarios::working_paths;

fn server(port: u16) -> SocketAddr {
    SocketAddr::new(SERVER_V4.parse().unwrap(), port)
}

/// A connection, what the server has of it, and the number of the network that it came by.
fn call(bed: &Bed, listener: &TcpListener) -> (TcpStream, TcpStream, u8) {
    let to = listener.local_addr().unwrap();
    let call = bed.device.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).unwrap();
    let call = call.expect("the server is not reached");
    let (answer, peer) = listener.accept().unwrap();
    let IpAddr::V4(peer) = peer.ip() else { panic!("{peer}") };
    (call, answer, peer.octets()[2])
}

/// The server sends 1 MB each second until `done`; the bytes that came.
fn download(near: &mut TcpStream, far: &mut TcpStream, done: impl Fn() -> bool) -> u64 {
    const PIECE: usize = 50_000;
    let began = Instant::now();
    let (mut sent, mut buffer) = (0, vec![0; PIECE]);
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(20), "the class was not learned");
        far.write_all(&[7; PIECE]).unwrap();
        near.read_exact(&mut buffer).unwrap();
        sent += PIECE as u64;
        std::thread::sleep(Duration::from_millis(50));
    }
    sent
}

/// The first download takes any network; the next one to the same port is known for what it is.
pub fn a_direct_flow_is_taken_for_what_earlier_ones_were() {
    let bed = bed();
    bed.write_config(
        "device",
        "[device]\ndns = \"off\"\n[[rule]]\nname = \"loads\"\nclass = \"bulk\"\nnetworks = \"wan1\"\n",
    );
    let _daemon = started(&bed);
    let [loads, others] =
        [8_301, 8_302].map(|port| bed.server.run(|| TcpListener::bind(server(port))).unwrap().unwrap());
    let networks =
        |listener: &TcpListener| -> BTreeSet<u8> { (0..8).map(|_| call(&bed, listener).2).collect() };
    assert_eq!(networks(&loads).len(), 2, "nothing is known yet");
    let (mut near, mut far, _) = call(&bed, &loads);
    let is_known = || listing(&bed.device).contains("198.51.100.9 . tcp . 8301");
    download(&mut near, &mut far, is_known);
    assert_eq!(networks(&loads), [1].into());
    assert_eq!(networks(&others).len(), 2, "another port is another service");
    let flows = bed.client("device").flows().unwrap().flows;
    assert!(flows.iter().any(|flow| flow.why.contains("rule loads")), "{flows:?}");
}

/// A download that has begun as all others is duplicated from when it is known as one.
pub fn a_bonded_flow_is_treated_otherwise_while_it_runs() {
    let bed = Bed::new(false);
    bed.write_config(
        "device",
        "[device]\ndns = \"off\"\n[[rule]]\nname = \"loads\"\nclass = \"bulk\"\ntreat = \"duplicated\"\n",
    );
    let _daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    eventually("flows are followed", || listing(&bed.device).contains("anabranch_direct"));
    let listener = bed.server.run(|| TcpListener::bind(server(8_303))).unwrap().unwrap();
    let (mut near, mut far, _) = call(&bed, &listener);
    let received = || -> Vec<u64> {
        let networks = bed.status().networks;
        networks.iter().flat_map(|network| &network.paths).map(|path| path.traffic.received.0).collect()
    };
    let until = |time: Duration| {
        let end = Instant::now() + time;
        move || Instant::now() >= end
    };
    let twice = |near: &mut TcpStream, far: &mut TcpStream| {
        let before = received();
        let carried = download(near, far, until(Duration::from_secs(2)));
        received().iter().zip(before).all(|(now, before)| now - before > carried * 8 / 10)
    };
    assert!(!twice(&mut near, &mut far), "it is duplicated before anything is known of it");
    let both = std::cell::RefCell::new((near, far));
    within(Duration::from_secs(20), "both paths carry all of it", || {
        let (near, far) = &mut *both.borrow_mut();
        twice(near, far)
    });
    // The list says so, and has what the bond carries, not the bond's own packets.
    let flows = bed.client("device").flows().unwrap().flows;
    let treatments: Vec<Treatment> = flows.iter().map(|flow| flow.treatment).collect();
    assert_eq!(treatments, [Treatment::Duplicated], "{flows:?}");
}
