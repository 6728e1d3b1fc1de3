//! A device that records its networks and flows, and what another policy would have made of them.

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use anabranch::control::EventSequence;
use daemon::trace::{self, Trace};
use policy::replay::{Decisions, PolicySet, TraceEvent, TraceFlow, difference, replay};
use policy::{NetworkPreference, Treatment};

use crate::bed::{Bed, SERVER_V4, eventually, within};
use crate::direct::{bed, calls, listing, started};
use crate::disk::Disk;

const CONFIGURATION: &str = "[device]\ndns = \"off\"\nprobe = \"off\"\nrecord = \"day.jsonl\"\n";

fn file(bed: &Bed) -> PathBuf {
    bed.directory("device").join("day.jsonl")
}

fn flows(trace: &Trace) -> Vec<&TraceFlow> {
    let mut flows = Vec::new();
    for record in &trace.records {
        if let TraceEvent::Flow(flow) = &record.event {
            flows.push(flow);
        }
    }
    flows
}

/// How many different flows it tells of.
fn distinct(trace: &Trace) -> usize {
    flows(trace).iter().map(|flow| flow.id).collect::<std::collections::BTreeSet<u64>>().len()
}

/// Two flows that carry a megabyte each, one over each network.
fn carry(bed: &Bed, port: u16) {
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), port);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    for _ in 0..2 {
        let mut call = bed.device.run(|| TcpStream::connect(address)).unwrap().unwrap();
        let (mut answer, _) = listener.accept().unwrap();
        let sent = std::thread::spawn(move || answer.write_all(&[7; 1_000_000]).unwrap());
        let mut received = Vec::new();
        // Lasts a few looks of the recorder, on a busy machine too.
        std::thread::sleep(Duration::from_millis(2_500));
        call.read_to_end(&mut received).unwrap();
        sent.join().unwrap();
        assert_eq!(received.len(), 1_000_000);
    }
}

fn without(network: &str) -> PolicySet {
    let off = NetworkPreference { off: true, ..NetworkPreference::default() };
    PolicySet {
        treatment: Treatment::Direct,
        preferences: [(network.to_owned(), off)].into(),
        ..PolicySet::default()
    }
}

fn networks(decisions: &Decisions) -> Vec<String> {
    decisions.networks.keys().cloned().collect()
}

pub fn another_policy_is_tried_on_a_recorded_day() {
    let bed = bed();
    bed.write_config("device", CONFIGURATION);
    let daemon = started(&bed);
    let written = || fs::read_to_string(file(&bed)).is_ok_and(|text| text.contains("networks"));
    eventually("the networks are written", written);
    carry(&bed, 8_100);
    // Opened and ended between two looks; a busy machine may look past one.
    let called = std::cell::Cell::new(0);
    eventually("short flows are recorded", || {
        called.set(called.get() + calls(&bed, 4).values().sum::<usize>());
        std::thread::sleep(Duration::from_millis(1_500));
        trace::read(&file(&bed))
            .is_ok_and(|trace| flows(&trace).iter().filter(|flow| flow.port == 8_080).count() >= 4)
    });
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_101);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let living = bed.device.run(|| TcpStream::connect(address)).unwrap().unwrap();
    // Longer than the longest pause between two looks, which a busy machine brings about.
    std::thread::sleep(Duration::from_secs(12));
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    drop((living, listener));
    assert_eq!(fs::metadata(file(&bed)).unwrap().permissions().mode() & 0o777, 0o600);

    let trace = trace::read(&file(&bed)).unwrap();
    assert!(!trace.is_cut_off);
    let recorded = flows(&trace);
    let to = |port: u16| recorded.iter().filter(|flow| flow.port == port).collect::<Vec<_>>();
    let (large, small, open) = (to(8_100), to(8_080), to(8_101));
    assert_eq!((large.len(), open.len()), (2, 1), "{recorded:#?}");
    assert!((4..=called.get()).contains(&small.len()), "{} calls, {recorded:#?}", called.get());
    let server: IpAddr = SERVER_V4.parse().unwrap();
    assert!(recorded.iter().all(|flow| flow.destination == server && flow.protocol == 6), "{recorded:#?}");
    for flow in large {
        assert!((1_000_000..1_200_000).contains(&flow.bytes.0), "{flow:#?}");
        assert_eq!(flow.class, policy::FlowClass::Bulk);
    }
    // A busy machine may not find the socket of each in time, but never another's.
    let owned: Vec<_> = recorded.iter().filter(|flow| flow.program.is_some()).collect();
    assert!(!owned.is_empty(), "{recorded:#?}");
    for flow in owned {
        assert!(flow.program.as_ref().is_some_and(|program| program.contains("namespaces")), "{flow:#?}");
        assert_eq!(flow.user, Some(0));
    }
    let decided = |network| replay(&trace.records, &without(network), 1).unwrap();
    let (before, after) = (decided("none"), decided("wan0"));
    assert_eq!(
        (networks(&before), networks(&after)),
        (vec!["wan0".into(), "wan1".into()], vec!["wan1".into()])
    );
    let difference = difference(&before, &after);
    assert_eq!(difference.flows, recorded.len());
    assert!((1..recorded.len()).contains(&difference.changes.len()), "{difference}");
    assert!(difference.to_string().contains("direct over wan0 -> direct over wan1"), "{difference}");
    assert!(before.networks.values().map(|carried| carried.bytes.0).sum::<u64>() > 2_000_000);
}

pub fn a_record_outlives_a_kill_and_names_a_full_disk() {
    let bed = bed();
    bed.write_config("device", CONFIGURATION);
    let disk = Disk::under(&bed, "device");
    let daemon = started(&bed);
    eventually("the networks are written", || file(&bed).exists());
    // A busy machine may look past a flow that lasts a moment.
    let carried = |flows_wanted: usize| {
        within(Duration::from_secs(40), "the flows are written", || {
            carry(&bed, 8_100);
            trace::read(&file(&bed)).is_ok_and(|trace| distinct(&trace) >= flows_wanted)
        });
    };
    carried(2);
    daemon.kill();
    let half = r#"{"at":{"secs":9"#;
    fs::OpenOptions::new().append(true).open(file(&bed)).unwrap().write_all(half.as_bytes()).unwrap();
    assert!(trace::read(&file(&bed)).unwrap().is_cut_off);

    let daemon = started(&bed);
    let whole = || !fs::read_to_string(file(&bed)).unwrap().contains(half) || listing(&bed.device).is_empty();
    eventually("half a line is removed", whole);
    let told = |wanted: &str| {
        let events = bed.client("device").events(EventSequence(0)).unwrap();
        events.iter().any(|event| event.text.contains(wanted))
    };
    disk.fill();
    // More than what the file's last page has room for.
    assert_eq!(calls(&bed, 60).values().sum::<usize>(), 60, "all else goes on");
    within(Duration::from_secs(20), "a full disk is told", || told("day.jsonl: No space left"));
    disk.empty();
    within(Duration::from_secs(40), "it goes on", || {
        carry(&bed, 8_102);
        told("recorded again")
    });
    carried(4);
    bed.client("device").down().unwrap();
    assert!(daemon.wait());
    let trace = trace::read(&file(&bed)).unwrap();
    assert!(!trace.is_cut_off && distinct(&trace) >= 4, "{trace:#?}");
    let times: Vec<_> = trace.records.iter().map(|record| record.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(replay(&trace.records, &without("wan1"), 1).is_ok());
}
