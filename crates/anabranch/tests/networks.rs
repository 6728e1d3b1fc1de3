//! Virtual sockets between network namespaces whose links come and go. Needs root, and is left out without.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod bed;

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use anabranch::blocking::Endpoint;
use anabranch::{Admission, ConnectOptions, EndpointOptions, EventKind, Peer};
use identity::KeyPair;

use bed::{Bed, Pair, in_one_of_three, silence, transfer};

#[test]
fn all_pairs_of_adapters_that_reach_each_other_become_paths() {
    let Some(bed) = Bed::new(2) else { return };
    let pair = bed.connect();
    // The peer's second address is known from itself.
    pair.wait_for_paths(2);
}

#[test]
fn a_cable_that_is_pulled_out_costs_less_than_200_ms_and_no_byte() {
    in_one_of_three(Duration::from_millis(200), || {
        let bed = Bed::new(2)?;
        let pair = bed.connect();
        pair.wait_for_paths(2);
        let Pair { client, server, near, far, events } = pair;
        let carries = near.standing().adapter.unwrap();
        let (longest, _) = transfer(near, far, || {
            std::thread::sleep(Duration::from_millis(500));
            bed.far.set_up(&carries, false).unwrap();
            std::thread::sleep(Duration::from_millis(1_000));
        });
        let events = events.lock().unwrap().clone();
        assert!(
            events.iter().any(|event| matches!(event, EventKind::Switch { from, .. } if *from == carries)),
            "{events:?}"
        );
        drop((client, server));
        Some(longest)
    });
}

/// Nothing passes any more, and neither kernel knows: the transport must find out. Ten times, by turns.
#[test]
fn a_network_that_falls_silent_costs_less_than_200_ms_and_no_byte() {
    in_one_of_three(Duration::from_millis(200), || {
        let bed = Bed::new(2)?;
        let pair = bed.connect();
        pair.wait_for_paths(2);
        let Pair { client, server, near, far, .. } = pair;
        let (longest, _) = transfer(near, far, || {
            for trial in 0..10 {
                std::thread::sleep(Duration::from_millis(500));
                let cable = format!("cable{}", trial % 2);
                silence(&bed, &[&cable]);
                std::thread::sleep(Duration::from_millis(500));
                silence(&bed, &[]);
                // The path is back within half a second.
                std::thread::sleep(Duration::from_millis(700));
            }
        });
        drop((client, server));
        Some(longest)
    });
}

#[test]
fn a_connection_is_there_in_less_than_10_ms_on_a_lan() {
    let Some(bed) = Bed::new(1) else { return };
    let key = KeyPair::generate().unwrap();
    let peer = Peer { key: key.public(), addresses: vec!["10.9.0.2:4700".parse().unwrap()] };
    let options = EndpointOptions::listening(key, 4700, Admission::Anybody);
    let server = bed.far.run(|| Endpoint::bind(options)).unwrap().unwrap();
    let listener = server.listen();
    std::thread::spawn(move || while listener.accept().is_ok() {});
    let mut times: Vec<Duration> = (0..20)
        .map(|_| {
            let own = EndpointOptions::new(KeyPair::generate().unwrap());
            let client = bed.near.run(|| Endpoint::bind(own)).unwrap().unwrap();
            let start = Instant::now();
            let stream = client.connect(&peer, &ConnectOptions::default()).unwrap();
            let took = start.elapsed();
            drop((stream, client));
            took
        })
        .collect();
    times.sort();
    println!("set-up: least {:?}, median {:?}, most {:?}", times[0], times[10], times[19]);
    // The median is a matter of what else the machine does.
    assert!(times[0] < Duration::from_millis(10), "{times:?}");
}

#[test]
fn a_connection_without_networks_waits_for_one() {
    let Some(bed) = Bed::new(1) else { return };
    let pair = bed.connect();
    let Pair { client, server, near, far, events } = pair;
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(300));
        bed.near.set_up("cable0", false).unwrap();
        std::thread::sleep(Duration::from_millis(4_000));
        bed.near.set_up("cable0", true).unwrap();
        std::thread::sleep(Duration::from_millis(2_500));
    });
    println!("longest gap {longest:?}");
    assert!(longest > Duration::from_secs(3) && longest < Duration::from_secs(12), "{longest:?}");
    let events = events.lock().unwrap().clone();
    assert!(events.iter().any(|event| matches!(event, EventKind::Off { suspended: true, .. })), "{events:?}");
    assert!(events.iter().any(|event| matches!(event, EventKind::On { .. })), "{events:?}");
    drop((client, server));
}

#[test]
fn a_machine_moves_to_another_network_with_other_addresses() {
    let Some(bed) = Bed::new(1) else { return };
    let pair = bed.connect();
    let Pair { client, server, near, far, .. } = pair;
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(300));
        // Never both at once: what the peer knows of this end is wrong from then on.
        bed.near.delete_link("cable0").unwrap();
        std::thread::sleep(Duration::from_millis(500));
        bed.plug(0);
        bed.near.add_address("cable0", "10.9.0.77/24".parse().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(4_000));
    });
    println!("longest gap {longest:?}");
    assert!(longest < Duration::from_secs(12), "{longest:?}");
    drop((client, server));
}

#[test]
fn the_end_that_was_called_may_come_back_on_a_new_network() {
    let Some(bed) = Bed::new(1) else { return };
    let pair = bed.connect();
    let Pair { client, server, near, far, .. } = pair;
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(300));
        bed.near.delete_link("cable0").unwrap();
        std::thread::sleep(Duration::from_millis(300));
        // Another adapter and another address: the caller knows nothing that leads there, so the other end must call.
        bed.near.join(&bed.far, "radio", "radio").unwrap();
        bed.near.add_address("radio", "10.9.0.1/24".parse().unwrap()).unwrap();
        bed.far.add_address("radio", "10.9.0.3/24".parse().unwrap()).unwrap();
        std::thread::sleep(Duration::from_millis(6_000));
    });
    println!("longest gap {longest:?}");
    assert!(longest < Duration::from_secs(14), "{longest:?}");
    drop((client, server));
}

/// After so long both ends call, and both calls arrive when the network is back: one must win, whoever has the smaller key.
#[test]
fn both_ends_may_call_each_other_at_once() {
    for smaller_is_near in [true, false] {
        let Some(bed) = Bed::new(1) else { return };
        let mut keys = [KeyPair::generate().unwrap(), KeyPair::generate().unwrap()];
        if (keys[0].public() < keys[1].public()) != smaller_is_near {
            keys.swap(0, 1);
        }
        let Pair { client, server, near, far, .. } = bed.connect_as(keys, Duration::from_secs(15));
        let (longest, _) = transfer(near, far, || {
            for trial in 0..5 {
                std::thread::sleep(Duration::from_millis(300));
                silence(&bed, &["cable0"]);
                std::thread::sleep(Duration::from_millis(2_500 + 370 * trial));
                silence(&bed, &[]);
                std::thread::sleep(Duration::from_millis(2_000));
            }
        });
        println!("longest gap {longest:?}");
        assert!(longest < Duration::from_secs(14), "{longest:?}");
        drop((client, server));
    }
}

/// The network that carries becomes slow; the other one takes over before it is gone.
#[test]
fn a_switch_to_a_better_network_is_not_felt() {
    // A round trip of the network that is left is 60 ms with its queue; a busy machine needs some of its own.
    in_one_of_three(Duration::from_millis(120), slow_network_left);
}

/// The longest gap while a network that has become slow is left; very long if it was lost first. `None` without privileges.
fn slow_network_left() -> Option<Duration> {
    let bed = Bed::new(2)?;
    let pair = bed.connect();
    pair.wait_for_paths(2);
    let Pair { client, server, near, far, events } = pair;
    let carries = loop {
        match near.standing().adapter {
            Some(adapter) if adapter.starts_with("cable") => break adapter,
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    const QUEUE: &str = "60ms";
    let (longest, _) = transfer(near, far, || {
        std::thread::sleep(Duration::from_millis(500));
        for machine in [&bed.near, &bed.far] {
            let mut tc = machine.command("tc").unwrap();
            tc.args([
                "qdisc", "add", "dev", &carries, "root", "tbf", "rate", "6mbit", "burst", "8k", "latency",
                QUEUE,
            ]);
            assert!(tc.status().unwrap().success());
        }
        // It is left once its round trips have become longer, which takes a queue; how long that takes is congestion control's matter.
        let left = |event: &EventKind| matches!(event, EventKind::Switch { from, .. } if *from == carries);
        let deadline = Instant::now() + Duration::from_secs(120);
        while !events.lock().unwrap().iter().any(left) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_millis(500));
    });
    let events = events.lock().unwrap().clone();
    println!("longest gap {longest:?}, {events:?}");
    let first = events.iter().find(|event| match event {
        EventKind::Switch { from: adapter, .. } | EventKind::Off { adapter, .. } => *adapter == carries,
        _ => false,
    });
    drop((client, server));
    Some(if matches!(first, Some(EventKind::Switch { .. })) { longest } else { Duration::MAX })
}

#[test]
fn a_peer_that_vanishes_for_ever_is_an_error_in_time() {
    let Some(bed) = Bed::new(2) else { return };
    let patience = Duration::from_secs(3);
    let Pair { client, server, near, far, .. } =
        bed.connect_as([KeyPair::generate().unwrap(), KeyPair::generate().unwrap()], patience);
    silence(&bed, &["cable0", "cable1"]);
    let start = Instant::now();
    let ends: Vec<_> = [near, far]
        .into_iter()
        .map(|stream| {
            std::thread::spawn(move || {
                let mut stream = stream;
                // What nobody takes must not be waited for for ever either.
                let written = std::iter::repeat_with(|| stream.write_all(&[7; 60_000])).find_map(Result::err);
                (written.unwrap(), stream.read(&mut [0]).unwrap_err())
            })
        })
        .collect();
    for end in ends {
        let (written, read) = end.join().unwrap();
        assert_eq!(
            (written.kind(), read.kind()),
            (std::io::ErrorKind::TimedOut, std::io::ErrorKind::TimedOut)
        );
        assert!(written.to_string().contains("no network reached"), "{written}");
    }
    let took = start.elapsed();
    assert!(took > patience && took < patience + Duration::from_secs(10), "{took:?}");
    drop((client, server));
}
