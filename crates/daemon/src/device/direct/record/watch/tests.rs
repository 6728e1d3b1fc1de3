//! Flows as the kernel would list them.

use linux::direct::mark_of;
use linux::netlink::conntrack::{Count, Family, Status};
use policy::FlowClass;

use super::*;

const ANY0: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 255, 86, 1));

fn scene() -> Scene {
    let own = "192.168.1.2".parse().unwrap();
    let names = [("example.org".to_owned(), vec!["198.51.100.9".parse().unwrap()])];
    Scene { any0: vec![ANY0], own: [ANY0, own].into(), names: names.into() }
}

fn entry(id: u32, from: &str, to: &str, bytes: u64) -> Entry {
    let original = Tuple::with_ports(6, from.parse().unwrap(), to.parse().unwrap());
    Entry {
        family: Family::V4,
        protocol: 6,
        original,
        reply: Tuple::with_ports(6, to.parse().unwrap(), from.parse().unwrap()),
        mark: mark_of(1),
        zone: 0,
        original_count: Some(Count { packets: 1 + bytes / 1_000, bytes: bytes / 10 }),
        reply_count: Some(Count { packets: 1 + bytes / 1_000, bytes: bytes - bytes / 10 }),
        tcp_state: Some(TcpState::Established),
        timeout: None,
        status: Status::default(),
        id: Some(id),
    }
}

fn nobody(entries: &[Entry]) -> Vec<Owner> {
    vec![Owner::default(); entries.len()]
}

fn flows(records: &[TraceRecord]) -> Vec<(u64, u64, u64, FlowClass)> {
    let flow = |record: &TraceRecord| match &record.event {
        TraceEvent::Flow(flow) => Some((record.at.as_secs(), flow.id, flow.bytes.0, flow.class)),
        TraceEvent::Networks { .. } => None,
    };
    records.iter().filter_map(flow).collect()
}

fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

#[test]
fn a_flow_is_written_once_when_it_ends_with_the_time_of_its_begin() {
    let (scene, mut watch) = (scene(), Watch::new(40));
    let old = entry(1, "10.255.86.1:1000", "198.51.100.9:443", 500);
    assert_eq!(watch.look(seconds(0), &scene, &[old], nobody), []);
    let small = |bytes| entry(2, "10.255.86.1:1001", "198.51.100.9:443", bytes);
    let large = |bytes| entry(3, "10.255.86.1:1002", "203.0.113.5:80", bytes);
    assert_eq!(watch.look(seconds(1), &scene, &[old, small(900), large(9_000)], nobody), []);
    let over = Entry { tcp_state: Some(TcpState::TimeWait), ..small(1_000) };
    let written = watch.look(seconds(2), &scene, &[old, over, large(900_000)], nobody);
    assert_eq!(flows(&written), [(1, 40, 1_000, FlowClass::Interactive)]);
    let TraceEvent::Flow(flow) = &written[0].event else { panic!() };
    assert_eq!((flow.domains.join(" "), flow.port), ("example.org".to_owned(), 443));
    assert_eq!(watch.look(seconds(3), &scene, &[old, over, large(950_000)], nobody), [], "once");
    assert_eq!(flows(&watch.living()), [(1, 41, 950_000, FlowClass::Bulk)]);
    let written = watch.look(seconds(4), &scene, &[old], nobody);
    assert_eq!(flows(&written), [(1, 41, 950_000, FlowClass::Bulk)], "what is gone has ended");
    assert_eq!(watch.living(), [], "nothing is known of what is older than the record");
}

#[test]
fn the_same_addresses_again_are_another_flow() {
    let (scene, mut watch) = (scene(), Watch::new(0));
    watch.look(seconds(0), &scene, &[], nobody);
    let first = entry(1, "10.255.86.1:1000", "198.51.100.9:443", 500);
    watch.look(seconds(1), &scene, &[first], nobody);
    let written = watch.look(seconds(2), &scene, &[Entry { id: Some(2), ..first }], nobody);
    assert_eq!(flows(&written), [(1, 0, 500, FlowClass::Interactive)]);
    assert_eq!(flows(&watch.living()), [(2, 1, 500, FlowClass::Interactive)]);
}

#[test]
fn what_comes_in_or_stays_in_the_machine_is_no_flow() {
    let (scene, mut watch) = (scene(), Watch::new(0));
    watch.look(seconds(0), &scene, &[], nobody);
    let unmarked = |entry: Entry| Entry { mark: 0, ..entry };
    let entries = [
        entry(1, "203.0.113.5:1000", "192.168.1.2:22", 500),
        unmarked(entry(2, "192.168.1.2:1000", "203.0.113.5:22", 500)),
        unmarked(entry(3, "10.255.86.1:1000", "127.0.0.1:22", 500)),
        unmarked(entry(4, "10.255.86.1:1000", "203.0.113.5:22", 500)),
        entry(5, "192.168.7.7:1000", "203.0.113.5:22", 500),
    ];
    watch.look(seconds(1), &scene, &entries, nobody);
    assert_eq!(watch.living().len(), 2, "one that stays on any0 and one that is forwarded");
}

#[test]
fn owners_are_asked_for_until_they_are_known() {
    let (scene, mut watch) = (scene(), Watch::new(0));
    watch.look(seconds(0), &scene, &[], nobody);
    let [one, two] = [1, 2].map(|id| entry(id, &format!("10.255.86.1:{id}"), "198.51.100.9:443", 10));
    let owner = Owner { program: Some("/usr/bin/curl".to_owned()), user: Some(1_000), ..Owner::default() };
    let know = |entries: &[Entry]| {
        entries
            .iter()
            .map(|entry| if entry.id == Some(1) { owner.clone() } else { Owner::default() })
            .collect()
    };
    watch.look(seconds(1), &scene, &[one, two], know);
    let mut asked = 0;
    for at in 2..9 {
        watch.look(seconds(at), &scene, &[one, two], |entries| {
            asked += entries.len();
            nobody(entries)
        });
    }
    assert_eq!(asked, 2, "the other one three times in all");
    let TraceEvent::Flow(flow) = &watch.living()[0].event else { panic!() };
    assert_eq!((flow.program.as_deref(), flow.user), (Some("/usr/bin/curl"), Some(1_000)));
}

#[test]
fn a_long_flow_is_written_now_and_then() {
    let (scene, mut watch) = (scene(), Watch::new(0));
    watch.look(seconds(0), &scene, &[], nobody);
    let long = entry(1, "10.255.86.1:1000", "198.51.100.9:443", 500);
    let written: usize = (1..=1_801).map(|at| watch.look(seconds(at), &scene, &[long], nobody).len()).sum();
    assert_eq!(written, 3);
}
