//! What happens to connections while adapters come and go: the events, and who moves when. Needs root, and is left out without.

#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

#[expect(dead_code, reason = "shared with other tests")]
mod bed;

use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anabranch::blocking::{Endpoint, VirtualStream};
use anabranch::{Admission, ConnectOptions, EndpointOptions, EventKind, Peer};
use identity::KeyPair;
use policy::ConnectionWish;

use bed::{Bed, Pair, silence, transfer};

type Log = Arc<Mutex<Vec<EventKind>>>;

/// A busy machine may take long for anything.
const PATIENCE: Duration = Duration::from_secs(120);

fn log_of(endpoint: &Endpoint) -> Log {
    let (log, heard) = (Log::default(), endpoint.events());
    let told = Arc::clone(&log);
    std::thread::spawn(move || heard.for_each(|event| told.lock().unwrap().push(event.kind)));
    log
}

/// Waits for an event of those after the first `from`; returns it, and how many there are with it.
fn wait_for(log: &Log, from: usize, is_it: impl Fn(&EventKind) -> bool) -> (EventKind, usize) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let events = log.lock().unwrap().clone();
        if let Some(at) = (from..events.len()).find(|at| is_it(&events[*at])) {
            return (events[at].clone(), at + 1);
        }
        assert!(Instant::now() < deadline, "{from}: {events:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The adapter that carries, as the events have told it.
fn active(log: &Log, first: &str) -> String {
    let events = log.lock().unwrap().clone();
    let switched = events.iter().rev().find_map(|event| match event {
        EventKind::Switch { to, .. } => Some(to.clone()),
        _ => None,
    });
    switched.unwrap_or_else(|| first.to_owned())
}

/// The first cable carries no more than this from now on, and keeps what comes on top waiting for up to 60 ms.
fn slow_down(bed: &Bed, rate: &str) {
    for machine in [&bed.near, &bed.far] {
        let mut tc = machine.command("tc").unwrap();
        tc.args(["qdisc", "add", "dev", "cable0", "root", "tbf"]);
        tc.args(["rate", rate, "burst", "8k", "latency", "60ms"]);
        assert!(tc.status().unwrap().success());
    }
}

/// `CONN_OFF`, `CONN_SWITCH`, `CONT_CHG` both ways and `CONT_DEL` of `[VCONN] table 1`, while bytes go by.
#[test]
fn events_tell_of_channels_that_fall_silent_come_back_and_are_removed() {
    let Some(bed) = Bed::new(2) else { return };
    let pair = bed.connect();
    pair.wait_for_paths(2);
    let Pair { client, server, near, far, events } = pair;
    let at_server = log_of(&server);
    let first = near.standing().adapter.unwrap();
    transfer(near, far, || {
        let carries = active(&events, &first);
        let seen = events.lock().unwrap().len();
        silence(&bed, &[&carries]);
        let off = EventKind::Off { adapter: carries.clone(), suspended: false };
        let (_, seen) = wait_for(&events, seen, |event| *event == off);
        let (_, seen) = wait_for(
            &events,
            seen,
            |event| matches!(event, EventKind::Switch { from, .. } if *from == carries),
        );
        silence(&bed, &[]);
        let back = EventKind::ControlChanged { adapter: carries.clone(), usable: true };
        wait_for(&events, seen, |event| *event == back);
        // Now the one that stands by; which that is may change just then.
        let passive = loop {
            let carries = active(&events, &first);
            let passive = if carries == "cable0" { "cable1" } else { "cable0" };
            let seen = events.lock().unwrap().len();
            silence(&bed, &[passive]);
            let gone = EventKind::ControlChanged { adapter: passive.to_owned(), usable: false };
            let off = EventKind::Off { adapter: passive.to_owned(), suspended: false };
            let (event, _) = wait_for(&events, seen, |event| *event == gone || *event == off);
            if event == gone {
                break passive;
            }
            silence(&bed, &[]);
            let back = EventKind::ControlChanged { adapter: passive.to_owned(), usable: true };
            wait_for(&events, seen, |event| *event == back);
        };
        bed.near.delete_link(passive).unwrap();
        let deleted = EventKind::ControlDeleted { adapter: passive.to_owned() };
        for log in [&events, &at_server] {
            wait_for(log, 0, |event| *event == deleted);
        }
    });
    drop((client, server));
}

/// A machine that goes from network to network has not had its last path after a dozen of them.
#[test]
fn paths_that_lead_nowhere_any_more_make_room_for_new_ones() {
    let Some(bed) = Bed::new(1) else { return };
    let Pair { client, server, near, far, events } = bed.connect();
    for number in 0..14 {
        let (name, seen) = (format!("net{number}"), events.lock().unwrap().len());
        bed.near.join(&bed.far, &name, &name).unwrap();
        bed.near.add_address(&name, format!("10.19.{number}.1/24").parse().unwrap()).unwrap();
        bed.far.add_address(&name, format!("10.19.{number}.2/24").parse().unwrap()).unwrap();
        let usable = EventKind::ControlChanged { adapter: name.clone(), usable: true };
        let (_, seen) = wait_for(&events, seen, |event| {
            *event == usable || matches!(event, EventKind::Switch { to, .. } if *to == name)
        });
        bed.near.delete_link(&name).unwrap();
        wait_for(&events, seen, |event| *event == EventKind::ControlDeleted { adapter: name.clone() });
    }
    transfer(near, far, || std::thread::sleep(Duration::from_millis(300)));
    drop((client, server));
}

/// A connection, and another to the same peer with more bytes than the first cable carries, until told to stop.
fn busy(bed: &Bed, peer: &Peer, wish: ConnectionWish, stop: &Arc<AtomicBool>) -> (VirtualStream, Log) {
    let own = EndpointOptions::new(KeyPair::generate().unwrap());
    let client = bed.near.run(|| Endpoint::bind(own)).unwrap().unwrap();
    let log = log_of(&client);
    let options = ConnectOptions { wish, ..ConnectOptions::default() };
    let (stream, writing) =
        (client.connect(peer, &options).unwrap(), client.connect(peer, &options).unwrap());
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut writing = writing;
        while !stop.load(Ordering::Relaxed) {
            if writing.write_all(&[3; 4_000]).is_err() {
                // The far end has gone first.
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    });
    (stream, log)
}

/// A busy machine stands still by itself now and then, and a channel falls silent with it: what is to be seen must be seen in one of so many attempts.
fn in_one_of_five(attempt: impl Fn() -> Result<Option<()>, String>) {
    let mut disturbed = Vec::new();
    for _ in 0..5 {
        match attempt() {
            Ok(_) => return,
            Err(by) => disturbed.push(by),
        }
    }
    panic!("never undisturbed: {disturbed:#?}");
}

#[test]
fn a_real_time_connection_stays_where_it_is_when_a_better_adapter_appears() {
    in_one_of_five(|| {
        let Some(bed) = Bed::new(1) else { return Ok(None) };
        slow_down(&bed, "6mbit");
        let key = KeyPair::generate().unwrap();
        let peer = Peer { key: key.public(), addresses: vec!["10.9.0.2:4700".parse().unwrap()] };
        let options = EndpointOptions::listening(key, 4700, Admission::Anybody);
        let server = bed.far.run(|| Endpoint::bind(options)).unwrap().unwrap();
        let listener = server.listen();
        std::thread::spawn(move || {
            while let Ok(mut stream) = listener.accept() {
                std::thread::spawn(
                    move || while stream.read(&mut [0; 4_000]).is_ok_and(|count| count > 0) {},
                );
            }
        });
        let stop = Arc::new(AtomicBool::new(false));
        let (_balanced, moves) = busy(&bed, &peer, ConnectionWish::Balanced, &stop);
        let (real_time, stays) = busy(&bed, &peer, ConnectionWish::RealTime, &stop);
        bed.plug(1);
        // The other one shows that there was a reason to move.
        wait_for(&moves, 0, |event| matches!(event, EventKind::Switch { to, .. } if to == "cable1"));
        wait_for(&stays, 0, |event| {
            *event == EventKind::ControlChanged { adapter: "cable1".to_owned(), usable: true }
        });
        std::thread::sleep(Duration::from_secs(3));
        let (events, standing) = (stays.lock().unwrap().clone(), real_time.standing());
        stop.store(true, Ordering::Relaxed);
        // A channel that is dead it leaves too, and no other.
        for (at, event) in events.iter().enumerate() {
            if let EventKind::Switch { from, .. } = event {
                let left = EventKind::Off { adapter: from.clone(), suspended: false };
                assert!(events[..at].contains(&left), "{events:?}");
            }
        }
        if events.iter().any(|event| matches!(event, EventKind::Off { .. })) {
            return Err(format!("{events:?}"));
        }
        assert_eq!((standing.adapter.as_deref(), standing.paths), (Some("cable0"), 2), "{events:?}");
        Ok(Some(()))
    });
}

/// The switch is aborted: what it led to is dead, so the old channel goes on.
#[test]
fn a_switch_to_a_channel_that_dies_just_then_falls_back_and_loses_no_byte() {
    in_one_of_five(|| {
        let Some(bed) = Bed::new(1) else { return Ok(None) };
        slow_down(&bed, "6mbit");
        let Pair { client, server, near, far, events } = bed.connect();
        // What it takes for the silence later is there already.
        silence(&bed, &[]);
        // Every byte is compared, disturbed or not.
        let (longest, _) = transfer(near, far, || {
            std::thread::sleep(Duration::from_millis(300));
            bed.plug(1);
            let (_, seen) =
                wait_for(&events, 0, |event| matches!(event, EventKind::Switch { to, .. } if to == "cable1"));
            silence(&bed, &["cable1"]);
            wait_for(&events, seen, |event| match event {
                EventKind::Switch { from, .. } => from == "cable1",
                EventKind::On { .. } => true,
                _ => false,
            });
            std::thread::sleep(Duration::from_secs(1));
        });
        let events = events.lock().unwrap().clone();
        drop((client, server));
        println!("longest gap {longest:?}, {events:?}");
        assert!(!events.iter().any(|event| matches!(event, EventKind::Ended { .. })), "{events:?}");
        let back = EventKind::Switch { from: "cable1".to_owned(), to: "cable0".to_owned() };
        let suspended = events.iter().any(|event| matches!(event, EventKind::Off { suspended: true, .. }));
        if suspended || !events.contains(&back) || longest > Duration::from_secs(1) {
            return Err(format!("{longest:?} {events:?}"));
        }
        Ok(Some(()))
    });
}
