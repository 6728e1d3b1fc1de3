//! Traffic as applications make it, and what the meter takes it for.

use super::*;
use crate::FlowClass::{Bulk, Interactive, RealTime};
use proptest::prelude::*;
use std::net::{IpAddr, Ipv4Addr};
use wire::inner::{Ecn, FlowKey};

/// A flow of which only what the meter looks at is real.
struct Flow {
    meter: FlowMeter,
    now: Timestamp,
    headers: Headers,
    sequence: u16,
    random: u64,
}

impl Flow {
    fn new(protocol: u8) -> Self {
        let key = FlowKey {
            source: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
            destination: IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
            protocol,
            source_port: 40_000,
            destination_port: 443,
        };
        let headers = Headers {
            key,
            dscp: 0,
            ecn: Ecn::NotEct,
            payload_len: 100,
            tcp_flags: 0x10,
            transport_offset: Some(20),
        };
        let now = Timestamp::from_millis(1_000);
        Self { meter: FlowMeter::new(now), now, headers, sequence: 0, random: 9 }
    }

    /// A number below `bound`.
    fn random(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// One packet of `size` bytes after `micros`; `first` is the first byte behind the UDP header.
    fn packet(&mut self, micros: u64, size: usize, first: u8) -> FlowClass {
        self.now += Duration::from_micros(micros);
        let mut packet = vec![0; size];
        if let Some(place) = packet.get_mut(28..32) {
            let [high, low] = self.sequence.to_be_bytes();
            place.copy_from_slice(&[first, 96, high, low]);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.headers.payload_len = size - 28;
        self.meter.on_packet(self.now, &packet, &self.headers)
    }

    fn stream(&mut self, packets: usize, micros: u64, size: usize, first: u8) -> FlowClass {
        for _ in 0..packets {
            self.packet(micros, size, first);
        }
        self.meter.class()
    }
}

const QUIC: u8 = 0x40;
const RTP: u8 = 0x80;
const OTHER: u8 = 0x17;

#[test]
fn a_meter_is_small() {
    assert!(size_of::<FlowMeter>() <= 64, "{}", size_of::<FlowMeter>());
}

#[test]
fn voice_without_any_hint_is_real_time() {
    let mut flow = Flow::new(inner::UDP);
    assert_eq!(flow.stream(10, 20_000, 200, OTHER), Interactive, "not at once");
    assert_eq!(flow.stream(65, 20_000, 200, OTHER), RealTime, "after a second and a half");
    for _ in 0..3_000 {
        let micros = 10_000 + flow.random(20_000);
        assert_eq!(flow.packet(micros, 160, OTHER), RealTime, "jitter does not end it");
    }
}

#[test]
fn a_game_and_a_video_call_are_real_time() {
    let mut game = Flow::new(inner::UDP);
    for _ in 0..300 {
        let size = 60 + game.random(300) as usize;
        game.packet(16_000, size, OTHER);
    }
    assert_eq!(game.meter.class(), RealTime);

    let mut call = Flow::new(inner::UDP);
    for _ in 0..90 {
        for _ in 0..5 {
            call.packet(300, 1_100, OTHER);
        }
        let last = 100 + call.random(800) as usize;
        call.packet(300, last, OTHER);
        call.packet(31_000, 160, OTHER);
    }
    assert_eq!(call.meter.class(), RealTime);
}

#[test]
fn rtp_is_known_after_three_packets() {
    let mut flow = Flow::new(inner::UDP);
    assert_eq!(flow.stream(3, 1_000, 1_200, RTP), RealTime);
    assert_eq!(flow.stream(3_000, 3_000, 1_200, RTP), RealTime, "3 Mbit/s of video");
    flow.now += Duration::from_secs(8);
    assert_eq!(flow.packet(0, 1_200, RTP), RealTime, "after a silence");
    assert_eq!(flow.stream(4_000, 100, 1_200, RTP), Bulk, "100 Mbit/s is no call, whatever it says");
}

#[test]
fn dscp_is_heard() {
    let mut flow = Flow::new(inner::UDP);
    flow.headers.dscp = 46;
    assert_eq!(flow.packet(0, 200, OTHER), RealTime);
    flow.headers.dscp = 1;
    assert_eq!(flow.packet(0, 200, OTHER), Bulk);
    let mut tcp = Flow::new(inner::TCP);
    tcp.headers.dscp = 46;
    assert_eq!(tcp.stream(50, 20_000, 200, 0), Interactive, "TCP must stay in order");
}

#[test]
fn quic_bulk_is_bulk() {
    for micros in [100, 600, 5_000] {
        let mut flow = Flow::new(inner::UDP);
        flow.stream(1_000, micros, 1_250, QUIC);
        assert_eq!(flow.meter.class(), Bulk, "a packet every {micros} us");
    }
}

#[test]
fn tcp_becomes_bulk_and_interactive_again() {
    let mut flow = Flow::new(inner::TCP);
    assert_eq!(flow.stream(30, 500, 1_400, 0), Interactive, "a page");
    assert_eq!(flow.stream(30, 500, 1_400, 0), Bulk, "a download");
    flow.now += Duration::from_millis(700);
    assert_eq!(flow.stream(1, 0, 1_400, 0), Bulk, "a pause of a long path");
    flow.now += Duration::from_secs(3);
    assert_eq!(flow.stream(1, 0, 1_400, 0), Interactive);
}

#[test]
fn keystrokes_and_acknowledgements_stay_interactive() {
    let mut keys = Flow::new(inner::TCP);
    assert_eq!(keys.stream(500, 80_000, 90, 0), Interactive);
    let mut acks = Flow::new(inner::TCP);
    acks.headers.payload_len = 0;
    for _ in 0..20_000 {
        acks.now += Duration::from_micros(100);
        assert_eq!(acks.meter.on_packet(acks.now, &[0; 52], &acks.headers), Interactive);
    }
}

#[test]
fn slow_tcp_falls_back_without_a_pause() {
    let mut flow = Flow::new(inner::TCP);
    assert_eq!(flow.stream(200, 500, 1_400, 0), Bulk);
    assert_eq!(flow.stream(40, 100_000, 200, 0), Interactive, "four seconds of typing");
}

#[test]
fn a_queue_makes_bulk() {
    let mut flow = Flow::new(inner::TCP);
    flow.packet(0, 1_400, 0);
    assert_eq!(flow.meter.on_queue(Bytes(20_000)), Interactive);
    assert_eq!(flow.meter.on_queue(Bytes(40_000)), Bulk);
    assert_eq!(flow.packet(500, 1_400, 0), Bulk);
    let mut call = Flow::new(inner::UDP);
    call.stream(5, 20_000, 200, RTP);
    assert_eq!(call.meter.on_queue(Bytes(40_000)), RealTime);
}

#[test]
fn a_burst_after_a_call_is_not_a_call() {
    let mut flow = Flow::new(inner::UDP);
    assert_eq!(flow.stream(200, 20_000, 200, OTHER), RealTime);
    assert_eq!(flow.stream(2_000, 300, 1_250, QUIC), Bulk);
}

#[test]
fn classes_do_not_flutter() {
    let mut flow = Flow::new(inner::UDP);
    let mut changes = 0;
    let mut last = Interactive;
    for _ in 0..20_000 {
        let micros = 5_000 + flow.random(30_000);
        let size = 100 + flow.random(900) as usize;
        let class = flow.packet(micros, size, OTHER);
        changes += usize::from(class != last);
        last = class;
    }
    assert!(changes <= 4, "{changes} changes in six minutes");
}

proptest! {
    #[test]
    fn any_traffic_is_safe(
        protocol in any::<u8>(),
        packets in proptest::collection::vec((0u64..20_000_000, 28usize..1_500, any::<u8>(), any::<u8>()), 0..300),
    ) {
        let mut flow = Flow::new(protocol);
        for (micros, size, first, dscp) in packets {
            flow.headers.dscp = dscp & 0x3f;
            let class = flow.packet(micros, size, first);
            prop_assert!(protocol != inner::TCP || class != RealTime);
        }
    }

    #[test]
    fn a_clock_that_goes_back_is_safe(times in proptest::collection::vec(any::<u64>(), 0..100)) {
        let mut flow = Flow::new(inner::UDP);
        for nanos in times {
            flow.now = Timestamp::from_nanos(nanos);
            flow.packet(0, 300, OTHER);
        }
    }
}
