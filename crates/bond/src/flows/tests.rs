use super::*;
use std::net::IpAddr;
use wire::inner::UDP;

const LIMITS: QueueLimits = QueueLimits { bulk: 1_000_000, loss_rate: 0.01 };

fn headers(port: u16, protocol: u8) -> Headers {
    let here: IpAddr = "10.0.0.1".parse().unwrap();
    Headers {
        key: FlowKey { source: here, destination: here, protocol, source_port: port, destination_port: 443 },
        dscp: 0,
        ecn: wire::inner::Ecn::NotEct,
        payload_len: 1_400,
        tcp_flags: 0x10,
        transport_offset: Some(20),
    }
}

fn flows() -> Flows {
    Flows::new(1, Treatment::Bonded)
}

fn push(flows: &mut Flows, port: u16, count: usize) {
    for _ in 0..count {
        let outcome = flows.push(Timestamp::ZERO, &headers(port, TCP), vec![0x45; 1_440], LIMITS);
        assert_eq!(outcome, Queueing::Queued);
    }
}

#[test]
fn a_new_flow_is_sparse_and_a_long_one_becomes_bulk() {
    let mut flows = flows();
    push(&mut flows, 1, 1);
    assert_eq!(flows.urgent_len(), Some(1_440));
    assert!(flows.bulk_len().is_none());
    while flows.take_urgent().is_some() {}
    for _ in 0..100 {
        push(&mut flows, 1, 1);
        flows.take_urgent();
    }
    push(&mut flows, 1, 2);
    assert_eq!(flows.bulk_len(), Some(1_440));
    assert_eq!(flows.bulk_bytes(), flows.queued_packets() * 1_440);
}

#[test]
fn bulk_flows_share_by_turns() {
    let mut flows = flows();
    for port in [1, 2] {
        for _ in 0..100 {
            push(&mut flows, port, 1);
            flows.take_urgent();
        }
        while flows.take_bulk(0).is_some() {}
    }
    push(&mut flows, 1, 40);
    push(&mut flows, 2, 40);
    let mut taken = [0u32; 2];
    for _ in 0..40 {
        let unit = flows.take_bulk(0).unwrap();
        taken[usize::from(unit.flow)] += 1;
    }
    assert!(taken[0].abs_diff(taken[1]) <= 4, "{taken:?}");
}

#[test]
fn a_full_queue_drops_and_numbers_have_no_hole() {
    let mut flows = flows();
    let tight = QueueLimits { bulk: 10_000, loss_rate: 0.0 };
    for _ in 0..100 {
        push(&mut flows, 1, 1);
        flows.take_urgent();
    }
    while flows.take_bulk(0).is_some() {}
    let mut dropped = 0;
    for _ in 0..100 {
        let outcome = flows.push(Timestamp::ZERO, &headers(1, TCP), vec![0x45; 1_440], tight);
        dropped += usize::from(outcome == Queueing::Dropped);
    }
    assert_eq!(dropped, 100 - MIN_BULK_PACKETS);
    let numbers: Vec<u32> = std::iter::from_fn(|| flows.take_bulk(0)).map(|unit| unit.sequence).collect();
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
}

#[test]
fn protected_flows_get_repairs() {
    let mut flows = flows();
    flows.treat(headers(1, UDP).key, Treatment::Protected);
    for _ in 0..20 {
        flows.push(Timestamp::ZERO, &headers(1, UDP), vec![0x45; 200], LIMITS);
    }
    let repairs = std::iter::from_fn(|| flows.take_urgent())
        .filter(|unit| matches!(unit.payload, Payload::Repair { count: 20, .. }))
        .count();
    assert_eq!(repairs, 1, "one for a run of 0.2 / 0.01 packets");
}

#[test]
fn ids_are_bounded_and_numbers_go_on() {
    let mut flows = flows();
    for port in 0..u16::try_from(MAX_FLOWS).unwrap() {
        flows.push(Timestamp::ZERO, &headers(port, UDP), vec![0x45; 100], LIMITS);
        flows.take_urgent();
    }
    let later = Timestamp::ZERO + IDLE_AFTER * 2;
    flows.push(later, &headers(60_000, UDP), vec![0x45; 100], LIMITS);
    let unit = flows.take_urgent().unwrap();
    assert!(usize::from(unit.flow) < MAX_FLOWS);
    assert_eq!(unit.sequence, 1, "the id was used before");
    assert_eq!(flows.flows.len(), MAX_FLOWS);
}
