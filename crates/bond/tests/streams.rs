//! Streams between two endpoints in virtual time: whatever happens to paths, the bytes that are read are those that were
//! written, in order, each once.
//!
//! A failing run of the random test prints its seed. Run one by `STREAM_SEED=N`, more by `STREAM_SEEDS=500`.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

#[expect(dead_code, reason = "shared with other tests")]
mod bench;

use bench::{Bench, LinkSpec};
use bond::{StreamError, StreamEvent, StreamId, StreamLimits};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;
use units::NetworkId;

fn with_streams(specs: &[LinkSpec]) -> Bench {
    let mut bench = Bench::new(specs);
    bench.streams = true;
    bench.device.carry_streams(StreamLimits::default());
    bench.gateway.carry_streams(StreamLimits::default());
    bench
}

fn connected(specs: &[LinkSpec]) -> Bench {
    let mut bench = with_streams(specs);
    bench.connect();
    bench.run(Duration::from_millis(500));
    assert!(bench.gateway_session.is_some());
    bench
}

/// The byte at a place of a stream: no two streams are alike, nor any two parts of one.
fn byte(stream: u64, offset: u64) -> u8 {
    let mixed = ((offset / 7) ^ (stream << 40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u8 ^ offset as u8
}

/// One direction of one stream.
struct Flow {
    up: bool,
    id: StreamId,
    size: u64,
    written: u64,
    read: u64,
    finished: bool,
    ended: bool,
}

impl Flow {
    fn new(up: bool, id: StreamId, size: u64) -> Self {
        Self { up, id, size, written: 0, read: 0, finished: false, ended: false }
    }

    fn salt(&self) -> u64 {
        self.id.0 * 2 + u64::from(self.up)
    }

    /// Writes and reads what is possible now; checks every byte.
    fn step(&mut self, bench: &mut Bench) {
        let now = bench.now;
        let (device, gateway) = (bench.device_session, bench.gateway_session.unwrap());
        let (sender, from, receiver, to) = match self.up {
            true => (&mut bench.device, device, &mut bench.gateway, gateway),
            false => (&mut bench.gateway, gateway, &mut bench.device, device),
        };
        while self.written < self.size {
            let end = self.size.min(self.written + 10_000);
            let bytes: Vec<u8> = (self.written..end).map(|offset| byte(self.salt(), offset)).collect();
            match sender.write_stream(now, from, self.id, &bytes) {
                Ok(count) => self.written += count as u64,
                Err(StreamError::Blocked) => break,
                // The receiver has not heard of the stream yet.
                Err(StreamError::NoStream) if self.written == 0 => return,
                Err(error) => panic!("{error}"),
            }
        }
        if self.written == self.size && !self.finished {
            sender.finish_stream(now, from, self.id).unwrap();
            self.finished = true;
        }
        let mut buffer = [0; 8_000];
        while !self.ended {
            match receiver.read_stream(to, self.id, &mut buffer) {
                Ok(0) => self.ended = true,
                Ok(count) => {
                    for (at, found) in (self.read..).zip(&buffer[..count]) {
                        assert_eq!(*found, byte(self.salt(), at), "byte {at} of stream {}", self.id.0);
                    }
                    self.read += count as u64;
                }
                Err(StreamError::Blocked | StreamError::NoStream) => break,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn is_done(&self) -> bool {
        assert!(!self.ended || self.read == self.size, "ended after {} of {}", self.read, self.size);
        self.ended
    }
}

fn finish(bench: &mut Bench, flows: &mut [Flow], patience: Duration) {
    let end = bench.now + patience;
    while !flows.iter().all(Flow::is_done) {
        assert!(
            bench.now < end,
            "not over: {:?}\n{}",
            flows.iter().map(|flow| (flow.id, flow.up, flow.written, flow.read)).collect::<Vec<_>>(),
            bench.report()
        );
        flows.iter_mut().for_each(|flow| flow.step(bench));
        bench.run(Duration::from_millis(5));
    }
}

#[test]
fn a_stream_carries_bytes_both_ways_and_is_forgotten() {
    let mut bench = connected(&[LinkSpec::new(40.0, 10)]);
    let id = bench.device.open_stream(bench.now, bench.device_session).unwrap();
    bench.run(Duration::from_millis(30));
    let gateway = bench.gateway_session.unwrap();
    assert_eq!(bench.gateway.accept_stream(gateway), Some(id));
    let mut flows = [Flow::new(true, id, 3_000_000), Flow::new(false, id, 500_000)];
    let start = bench.now;
    finish(&mut bench, &mut flows, Duration::from_secs(3));
    // 3 MB at 40 Mbit/s are 0.6 s without headers.
    let took = bench.now.since(start);
    assert!(took < Duration::from_millis(800), "{took:?}\n{}", bench.report());
    bench.run(Duration::from_millis(200));
    assert_eq!(bench.device.open_streams(bench.device_session), 0);
    assert_eq!(bench.gateway.open_streams(gateway), 0);
}

#[test]
fn what_had_arrived_is_read_after_the_peer_has_closed_the_session() {
    const SIZE: u64 = 600_000;
    let mut bench = connected(&[LinkSpec::new(40.0, 10)]);
    let device = bench.device_session;
    let id = bench.device.open_stream(bench.now, device).unwrap();
    let sent: Vec<u8> = (0..SIZE).map(|at| byte(0, at)).collect();
    let mut written = 0;
    while written < sent.len() {
        match bench.device.write_stream(bench.now, device, id, &sent[written..]) {
            Ok(count) => written += count,
            Err(StreamError::Blocked) => bench.run(Duration::from_millis(5)),
            Err(error) => panic!("{error}"),
        }
    }
    bench.device.finish_stream(bench.now, device, id).unwrap();
    bench.run(Duration::from_millis(500));
    assert_eq!(bench.device.is_stream_finished(device, id), Ok(true), "{}", bench.report());
    // Nobody has read anything so far.
    bench.device.close(device, wire::frame::CLOSE_GOODBYE);
    bench.run(Duration::from_millis(100));
    let mut left = bench.gateway_remains.take().unwrap();
    let (mut read, mut buffer) = (Vec::new(), [0; 7_000]);
    loop {
        match left.read(id, &mut buffer).unwrap() {
            0 => break,
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
    assert!(read == sent, "{} bytes of {SIZE}", read.len());
    assert!(bench.gateway.take_remains(bench.gateway_session.unwrap()).is_none());
}

#[test]
fn a_session_without_streams_refuses_them_and_goes_on() {
    let mut bench = Bench::new(&[LinkSpec::new(20.0, 10)]);
    bench.connect();
    bench.run(Duration::from_millis(300));
    let session = bench.device_session;
    assert_eq!(bench.device.open_stream(bench.now, session), Err(StreamError::NoSession));
    bench.send_up(1, 200);
    bench.run(Duration::from_millis(100));
    assert_eq!(bench.received_up, [1]);
}

#[test]
fn a_reader_that_waits_holds_the_writer_back() {
    let mut bench = connected(&[LinkSpec::new(100.0, 5)]);
    let session = bench.device_session;
    let id = bench.device.open_stream(bench.now, session).unwrap();
    let mut written = 0;
    for _ in 0..4_000 {
        match bench.device.write_stream(bench.now, session, id, &[7; 60_000]) {
            Ok(count) => written += count,
            Err(StreamError::Blocked) => {}
            Err(error) => panic!("{error}"),
        }
        bench.run(Duration::from_millis(2));
    }
    let limits = StreamLimits::default();
    let most = (limits.stream_window.0 + limits.send_buffer.0) as usize;
    assert!(written <= most, "{written} of {most}");
    assert!(written >= limits.stream_window.0 as usize, "{written}");
    // Once it reads again, all of it comes.
    let (gateway, mut read) = (bench.gateway_session.unwrap(), 0);
    bench.device.finish_stream(bench.now, session, id).unwrap();
    let mut buffer = vec![0; 100_000];
    for _ in 0..3_000 {
        while let Ok(count @ 1..) = bench.gateway.read_stream(gateway, id, &mut buffer) {
            read += count;
        }
        bench.run(Duration::from_millis(2));
    }
    assert_eq!(read, written);
}

#[test]
fn streams_take_turns() {
    let mut bench = connected(&[LinkSpec::new(40.0, 10)]);
    let mut flows: Vec<Flow> = (0..10)
        .map(|_| {
            let id = bench.device.open_stream(bench.now, bench.device_session).unwrap();
            Flow::new(true, id, 4_000_000)
        })
        .collect();
    for _ in 0..200 {
        flows.iter_mut().for_each(|flow| flow.step(&mut bench));
        bench.run(Duration::from_millis(5));
    }
    let read: Vec<u64> = flows.iter().map(|flow| flow.read).collect();
    let (least, most) = (*read.iter().min().unwrap(), *read.iter().max().unwrap());
    assert!(least as f64 > 0.9 * most as f64, "{read:?}");
    assert!(read.iter().sum::<u64>() > 4_000_000, "{read:?} of about 5 MB in a second");
}

#[test]
fn streams_and_packets_share_a_path() {
    let mut bench = connected(&[LinkSpec::new(20.0, 10)]);
    let id = bench.gateway.open_stream(bench.now, bench.gateway_session.unwrap()).unwrap();
    let mut flow = Flow::new(false, id, 100_000_000);
    for _ in 0..600 {
        flow.step(&mut bench);
        bench.saturate_down(Duration::from_millis(5));
    }
    let (packets, stream) = (bench.received_down.len() as f64 * 1_440.0, flow.read as f64);
    let part = stream / (packets + stream);
    assert!((0.4..0.6).contains(&part), "streams had {part}");
}

#[test]
fn what_a_dead_path_had_in_flight_is_sent_again_once() {
    let mut bench = connected(&[LinkSpec::new(40.0, 10), LinkSpec::new(40.0, 12)]);
    let id = bench.device.open_stream(bench.now, bench.device_session).unwrap();
    let mut flow = Flow::new(true, id, 6_000_000);
    for _ in 0..60 {
        flow.step(&mut bench);
        bench.run(Duration::from_millis(5));
    }
    let report = |bench: &Bench, network| {
        let reports = bench.device.path_reports(bench.device_session);
        reports.into_iter().find(|report| report.network == NetworkId(network)).unwrap()
    };
    bench.unplug(0);
    let (mut last, mut longest, mut read, mut in_flight) = (bench.now, Duration::ZERO, flow.read, 0);
    while !flow.is_done() {
        flow.step(&mut bench);
        if flow.read > read {
            longest = longest.max(bench.now.since(last));
            (last, read) = (bench.now, flow.read);
        }
        in_flight = in_flight.max(report(&bench, 1).in_flight.0);
        bench.run(Duration::from_millis(1));
    }
    assert!(longest < Duration::from_millis(200), "{longest:?}");
    let sent = report(&bench, 1).counters.sent_bytes + report(&bench, 2).counters.sent_bytes;
    let lost = report(&bench, 2).counters.lost_packets * 1_472;
    // Headers are 30 of 1472 bytes, and more where a gap between pieces is closed.
    let again = sent.saturating_sub(6_000_000 * 104 / 100);
    assert!(again > 0 && again < in_flight + lost, "{again} bytes sent again, {in_flight} were in flight");
}

#[test]
fn streams_outlive_the_loss_of_all_paths_and_the_handshake_after_it() {
    let mut bench = connected(&[LinkSpec::new(20.0, 10)]);
    let up = bench.device.open_stream(bench.now, bench.device_session).unwrap();
    let mut flows = [Flow::new(true, up, 4_000_000), Flow::new(false, up, 4_000_000)];
    for _ in 0..100 {
        flows.iter_mut().for_each(|flow| flow.step(&mut bench));
        bench.run(Duration::from_millis(5));
    }
    bench.unplug(0);
    bench.run(Duration::from_secs(90));
    flows.iter_mut().for_each(|flow| flow.step(&mut bench));
    bench.set_alive(0, true);
    bench.run(Duration::from_secs(2));
    finish(&mut bench, &mut flows, Duration::from_secs(10));
    assert!(bench.connected_events >= 2, "a new session took over");
}

#[test]
fn a_stream_that_is_given_up_ends_at_both_ends() {
    let mut bench = connected(&[LinkSpec::new(20.0, 10)]);
    let (device, gateway) = (bench.device_session, bench.gateway_session.unwrap());
    let id = bench.device.open_stream(bench.now, device).unwrap();
    bench.device.write_stream(bench.now, device, id, &[1; 200_000]).unwrap();
    bench.run(Duration::from_millis(30));
    bench.device.reset_stream(bench.now, device, id, 42);
    bench.run(Duration::from_millis(100));
    let mut buffer = [0; 1_000];
    assert_eq!(bench.gateway.read_stream(gateway, id, &mut buffer), Err(StreamError::Reset(42)));
    assert_eq!(bench.device.write_stream(bench.now, device, id, b"x"), Err(StreamError::Closed));
    bench.gateway.stop_stream(bench.now, gateway, id, 0);
    bench.gateway.finish_stream(bench.now, gateway, id).unwrap();
    bench.device.stop_stream(bench.now, device, id, 0);
    bench.run(Duration::from_millis(200));
    assert_eq!((bench.device.open_streams(device), bench.gateway.open_streams(gateway)), (0, 0));
}

#[test]
fn more_streams_than_allowed_wait_for_others_to_end() {
    let mut bench = connected(&[LinkSpec::new(20.0, 5)]);
    let (device, gateway) = (bench.device_session, bench.gateway_session.unwrap());
    let mut opened = Vec::new();
    while let Ok(id) = bench.device.open_stream(bench.now, device) {
        opened.push(id);
    }
    assert_eq!(opened.len(), 256);
    for id in opened {
        bench.device.reset_stream(bench.now, device, id, 0);
        bench.device.stop_stream(bench.now, device, id, 0);
    }
    bench.run(Duration::from_millis(50));
    while let Some(id) = bench.gateway.accept_stream(gateway) {
        bench.gateway.reset_stream(bench.now, gateway, id, 0);
        bench.gateway.stop_stream(bench.now, gateway, id, 0);
    }
    bench.run(Duration::from_millis(200));
    let told = bench.device_events.iter().any(|event| {
        let wanted = bond::SessionEvent::Stream(StreamEvent::MayOpen);
        matches!(event, bond::EndpointEvent::Session { event, .. } if *event == wanted)
    });
    assert!(told && bench.device.open_stream(bench.now, device).is_ok());
}

#[test]
fn datagrams_arrive_once_or_not_at_all() {
    let mut bench = connected(&[LinkSpec::new(20.0, 10).loss(0.1)]);
    let (device, gateway) = (bench.device_session, bench.gateway_session.unwrap());
    let mut received = Vec::new();
    for number in 0..500u16 {
        let until = bench.now + Duration::from_millis(100);
        bench.device.send_datagram(bench.now, device, number.to_be_bytes().to_vec(), until).unwrap();
        bench.run(Duration::from_millis(5));
        while let Some(bytes) = bench.gateway.receive_datagram(gateway) {
            received.push(u16::from_be_bytes(bytes.try_into().unwrap()));
        }
    }
    assert!((400..490).contains(&received.len()), "{} of 500", received.len());
    assert!(received.windows(2).all(|pair| pair[0] < pair[1]));
    let error = bench.device.send_datagram(bench.now, device, vec![0; 1_101], bench.now);
    assert_eq!(error, Err(StreamError::TooLong));
}

/// What the device's kernel says of the link's network; nothing passes while it is down.
fn set_network(bench: &mut Bench, link: usize, up: bool) {
    let network = NetworkId(link as u32 + 1);
    bench.set_alive(link, up);
    match up {
        true => bench.device.network_up(bench.now, network),
        false => bench.device.network_down(bench.now, network),
    }
    bench.run(Duration::ZERO);
}

/// Streams in both directions while links lose, die, return and rebind.
fn random(seed: u64) {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let links = random.random_range(1..4usize);
    let specs: Vec<LinkSpec> = (0..links)
        .map(|_| {
            let link = LinkSpec::new(random.random_range(2.0..40.0), random.random_range(1..80));
            link.loss(if random.random_bool(0.5) { random.random_range(0.0..0.2) } else { 0.0 })
        })
        .collect();
    let mut bench = with_streams(&specs);
    bench.connect();
    while bench.gateway_session.is_none() {
        bench.run(Duration::from_millis(100));
    }
    let mut flows = Vec::new();
    for _ in 0..random.random_range(1..5) {
        let size = || 1u64 << 22;
        let id = match random.random_bool(0.5) {
            true => bench.device.open_stream(bench.now, bench.device_session).unwrap(),
            false => bench.gateway.open_stream(bench.now, bench.gateway_session.unwrap()).unwrap(),
        };
        flows.push(Flow::new(true, id, random.random_range(0..size())));
        flows.push(Flow::new(false, id, random.random_range(0..size())));
    }
    for _ in 0..120 {
        flows.iter_mut().for_each(|flow| flow.step(&mut bench));
        let link = random.random_range(0..links);
        match random.random_range(0..12) {
            0 => bench.unplug(link),
            1 => bench.set_alive(link, false),
            2..4 => bench.set_alive(link, true),
            4 => set_network(&mut bench, link, false),
            5..7 => set_network(&mut bench, link, true),
            7 => bench.rebind(link, random.random_range(5_000..6_000)),
            8 => bench.connect_again(link),
            _ => {}
        }
        let pause = if random.random_bool(0.05) { 20_000 } else { 60 };
        bench.run(Duration::from_millis(random.random_range(0..pause)));
    }
    (0..links).for_each(|link| set_network(&mut bench, link, true));
    finish(&mut bench, &mut flows, Duration::from_secs(120));
}

#[test]
fn bytes_are_the_same_whatever_happens_to_paths() {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = number("STREAM_SEED").map_or(0..number("STREAM_SEEDS").unwrap_or(40), |seed| seed..seed + 1);
    for seed in seeds {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| random(seed))) {
            eprintln!("seed {seed}");
            resume_unwind(panic);
        }
    }
}
