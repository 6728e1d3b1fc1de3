//! The wire format as docs/wire-format.md has it: the committed vectors are current, and the bond understands an end that
//! was made from that page alone (tests/second).

#![expect(clippy::unwrap_used, reason = "a test: what goes wrong should stop it at once")]

mod second;

use bond::{
    Address, Carrier, Endpoint, EndpointConfig, EndpointEvent, PathConfig, PrivateKey, SessionConfig,
};
use policy::PathStatus;
use second::vectors::{DEVICE_PRIVATE, GATEWAY_PRIVATE, STAMP, hello_bytes};
use second::{Identity, Keys, Place};
use serde_json::Value;
use std::net::SocketAddr;
use units::{NetworkId, PathId, Timestamp};
use wire::datagram::{DataHeader, Datagram, Reset, expand_packet_number};
use wire::frame::{Data, Frame, Frames};
use wire::hello::{Hello, Reply};
use wire::inner::Ecn;
use wire::join_link::JoinLink;

const NOW: Timestamp = Timestamp::from_millis(1_000);
const RESET_TOKEN: [u8; 16] = [9; 16];
const OWN_INDEX: u32 = 77;

fn committed() -> Value {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/wire-vectors.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn bytes(value: &Value) -> Vec<u8> {
    data_encoding::HEXLOWER.decode(value.as_str().unwrap().as_bytes()).unwrap()
}

fn rows<'a>(vectors: &'a Value, name: &str) -> &'a [Value] {
    vectors[name].as_array().unwrap()
}

#[test]
fn the_committed_vectors_are_current() {
    assert!(
        committed() == second::vectors::all(),
        "run: cargo run -p anabranch-bond --example wire_vectors > docs/wire-vectors.json"
    );
}

#[test]
fn what_must_be_read_is_read_and_what_must_be_refused_is_refused() {
    let vectors = committed();
    let frames_of = |row: &Value| Frames::new(&bytes(&row["bytes"])).map(|frame| frame.map(drop)).collect();
    for row in rows(&vectors, "frames") {
        let outcome: Result<Vec<()>, _> = frames_of(row);
        assert!(outcome.is_ok(), "{row}: {outcome:?}");
    }
    for row in rows(&vectors, "refused_frames") {
        let outcome: Result<Vec<()>, _> = frames_of(row);
        assert!(outcome.is_err(), "{row}");
    }
    for row in rows(&vectors, "datagrams") {
        assert!(Datagram::parse(&bytes(&row["bytes"])).is_ok(), "{row}");
    }
    for row in rows(&vectors, "refused_datagrams") {
        assert!(Datagram::parse(&bytes(&row["bytes"])).is_err(), "{row}");
    }
    for row in rows(&vectors, "hello") {
        let refused = row.get("refused").is_some();
        let read = bytes(&row["bytes"]);
        let failed = match row["name"].as_str().unwrap() {
            "hello" => Hello::parse(&read).is_err(),
            _ => Reply::parse(&read).is_err(),
        };
        assert_eq!(failed, refused, "{row}");
    }
    for row in rows(&vectors, "join_links") {
        assert!(JoinLink::parse(row["text"].as_str().unwrap()).is_ok(), "{row}");
    }
    for row in rows(&vectors, "packet_numbers") {
        let sent = bytes(&row["bytes"]);
        let truncated = sent.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let number = expand_packet_number(truncated, sent.len() as u8, row["largest_received"].as_u64());
        assert_eq!(Some(number), row["number"].as_u64(), "{row}");
    }
}

/// The bond's endpoint and what it has sent.
struct Bond {
    endpoint: Endpoint,
    there: Address,
}

impl Bond {
    fn new(key: [u8; 32], accept: bool, retry_above: u32) -> Self {
        let config = EndpointConfig {
            key: PrivateKey::new(key),
            session: SessionConfig::default(),
            accept,
            retry_above,
            aes: true,
        };
        let remote: SocketAddr = "192.0.2.1:4600".parse().unwrap();
        let there = Address { network: NetworkId(1), carrier: Carrier::Udp, remote };
        Self { endpoint: Endpoint::new(config, [7; 32]).unwrap(), there }
    }

    fn give(&mut self, datagram: &[u8]) {
        self.endpoint.handle_datagram(NOW, self.there, Ecn::NotEct, &mut datagram.to_vec());
    }

    /// Answers whoever comes in, and collects events.
    fn events(&mut self) -> Vec<EndpointEvent> {
        let events: Vec<_> = std::iter::from_fn(|| self.endpoint.poll_event()).collect();
        for event in &events {
            if let EndpointEvent::Incoming { id, .. } = event {
                self.endpoint.accept(NOW, *id, b"welcome").unwrap();
            }
        }
        events
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut buffer = Vec::new();
        while let Some(transmit) = self.endpoint.poll_transmit(NOW, &mut buffer, 16) {
            all.extend(buffer[..transmit.size].chunks(transmit.segment_size).map(<[u8]>::to_vec));
        }
        all
    }
}

/// Frames of the data packets among `datagrams`, opened with `key`, each as its bytes.
fn opened(features: u16, key: &[u8; 32], datagrams: &[Vec<u8>]) -> Vec<(DataHeader, Vec<u8>)> {
    let open = |datagram: &Vec<u8>| match Datagram::parse(datagram) {
        Ok(Datagram::Data(header)) => {
            assert_eq!(header.receiver_index, OWN_INDEX);
            Some((header, second::open(features, key, &header, datagram).unwrap()))
        }
        _ => None,
    };
    datagrams.iter().filter_map(open).collect()
}

/// The nonce of the first challenge in it.
fn challenge_in(packets: &[(DataHeader, Vec<u8>)]) -> [u8; 8] {
    let all = packets.iter().flat_map(|(_, plain)| Frames::new(plain));
    all.filter_map(|frame| if let Ok(Frame::Challenge(nonce)) = frame { Some(nonce) } else { None })
        .next()
        .unwrap()
}

fn inner_packet() -> Vec<u8> {
    let mut packet = vec![0; 40];
    packet[0] = 0x45;
    packet[3] = 40;
    packet[9] = 17;
    packet[12..16].copy_from_slice(&[10, 86, 0, 2]);
    packet[16..20].copy_from_slice(&[192, 0, 2, 9]);
    packet[25] = 20;
    packet
}

fn data_of(packet: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    Data { flow: 0, sequence: 0, long: true, ordered: false, part: None, payload: packet }
        .put(false, &mut plain);
    plain
}

#[test]
fn the_gateway_reads_the_vector_of_an_initiation() {
    let vectors = committed();
    let mut gateway = Bond::new(GATEWAY_PRIVATE, true, 100);
    gateway.give(&bytes(&vectors["handshake"]["initiation"]));
    let events = gateway.events();
    let [EndpointEvent::Incoming { peer, payload, .. }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(peer.0, Identity::new(DEVICE_PRIVATE).public);
    assert_eq!(*payload, hello_bytes());
}

/// Shakes hands with the bond's gateway from outside; returns the keys and the gateway's index.
fn join(gateway: &mut Bond, features: u16, stamp: u64, token: &[u8]) -> Option<(Keys, u32)> {
    let (device, far) = (Identity::new(DEVICE_PRIVATE), Identity::new(GATEWAY_PRIVATE).public);
    let mut noise = second::initiator(&device, &far, &second::prologue(features), None);
    let first = second::write(&mut noise, &[&stamp.to_be_bytes()[..], b"hello"].concat());
    gateway.give(&second::initiation(&far, features, OWN_INDEX, &first, token));
    gateway.events();
    let sent = gateway.sent();
    let response = sent.iter().find_map(|datagram| match Datagram::parse(datagram) {
        Ok(Datagram::Response(response)) => Some(response),
        _ => None,
    })?;
    assert_eq!(response.receiver_index, OWN_INDEX);
    let payload = second::read(&mut noise, response.noise);
    assert_eq!(payload[16..18], (features & 1).to_be_bytes(), "uses what both have");
    assert_eq!(&payload[18..], b"welcome");
    Some((second::split(&mut noise), response.sender_index))
}

#[test]
fn a_second_implementation_joins_the_gateway() {
    joins_the_gateway(0, 0);
    joins_the_gateway(1, 1);
    // A feature that the gateway does not know.
    joins_the_gateway(0x8001, 1);
}

fn joins_the_gateway(offered: u16, used: u16) {
    let mut gateway = Bond::new(GATEWAY_PRIVATE, true, 100);
    let (keys, index) = join(&mut gateway, offered, STAMP, &[]).unwrap();
    let place = |number| Place { receiver_index: index, epoch: 0, path: 3, number, largest_acked: None };

    // A path begins with the first packet on it; the gateway answers the challenge there.
    let mut plain = Vec::new();
    Frame::Challenge([5; 8]).put(&mut plain);
    gateway.give(&second::seal(used, &keys.to_responder, place(0), &plain));
    assert!(gateway.events().iter().any(|event| matches!(event, EndpointEvent::Connected { .. })));
    let answer = opened(used, &keys.to_initiator, &gateway.sent());
    let frames: Vec<_> = answer.iter().flat_map(|(_, plain)| Frames::new(plain)).collect();
    assert!(frames.contains(&Ok(Frame::Response([5; 8]))), "{frames:?}");
    assert!(answer.iter().all(|(header, _)| header.path == PathId(3)));

    let packet = inner_packet();
    let datagram = second::seal(used, &keys.to_responder, place(1), &data_of(&packet));
    gateway.give(&datagram);
    assert_eq!(gateway.endpoint.poll_packet().map(|(_, packet)| packet), Some(packet));
    // Again: a replay.
    gateway.give(&datagram);
    assert_eq!(gateway.endpoint.poll_packet(), None);
    assert_eq!(gateway.endpoint.counters().rejected, 1);
}

#[test]
fn an_address_is_proved_where_the_gateway_asks_for_it() {
    // Every initiation is one too many.
    let mut gateway = Bond::new(GATEWAY_PRIVATE, true, 0);
    let (device, far) = (Identity::new(DEVICE_PRIVATE), Identity::new(GATEWAY_PRIVATE).public);
    let mut noise = second::initiator(&device, &far, &second::prologue(0), None);
    let first = second::write(&mut noise, &STAMP.to_be_bytes());
    gateway.give(&second::initiation(&far, 0, OWN_INDEX, &first, &[]));
    assert_eq!(gateway.events(), []);
    let sent = gateway.sent();
    let Ok(Datagram::Retry(retry)) = Datagram::parse(&sent[0]) else { panic!("{sent:?}") };
    let signed = [&OWN_INDEX.to_be_bytes()[..], &retry.token].concat();
    assert_eq!(retry.mac, second::mac(&far, &signed));
    gateway.give(&second::initiation(&far, 0, OWN_INDEX, &first, &retry.token));
    assert_eq!(gateway.events().len(), 1);
    assert!(matches!(Datagram::parse(&gateway.sent()[0]), Ok(Datagram::Response(_))));
}

#[test]
fn an_older_stamp_must_prove_its_address() {
    let mut gateway = Bond::new(GATEWAY_PRIVATE, true, 100);
    join(&mut gateway, 0, STAMP, &[]).unwrap();
    assert!(join(&mut gateway, 0, STAMP, &[]).is_none());
    assert!(join(&mut gateway, 0, STAMP - 1, &[]).is_none());
    assert_eq!(gateway.endpoint.counters().replayed_handshakes, 2);
    assert!(join(&mut gateway, 0, STAMP + 1, &[]).is_some());
}

#[test]
fn the_bond_joins_a_second_implementation() {
    joins_a_second_implementation(0);
    joins_a_second_implementation(1);
}

fn joins_a_second_implementation(used: u16) {
    let mut device = Bond::new(DEVICE_PRIVATE, false, 100);
    let gateway = Identity::new(GATEWAY_PRIVATE);
    let peer = bond::PublicKey(gateway.public);
    let session = device.endpoint.connect(NOW, peer, b"hello".to_vec(), STAMP).unwrap();
    let path =
        PathConfig { address: device.there, mtu_limit: 1_472, status: PathStatus::Active, priority: 0 };
    device.endpoint.add_path(NOW, session, path);
    device.endpoint.handle_timeout(NOW);
    let mut sent = device.sent();
    if sent.is_empty() {
        device.endpoint.handle_timeout(NOW);
        sent = device.sent();
    }
    let Ok(Datagram::Initiation(initiation)) = Datagram::parse(&sent[0]) else { panic!("{sent:?}") };
    let covered = &sent[0][..sent[0].len() - 16];
    assert_eq!(initiation.mac, second::mac(&gateway.public, covered));

    let mut noise = second::responder(&gateway, &second::prologue(1), None);
    let payload = second::read(&mut noise, initiation.noise);
    assert_eq!(payload, [&STAMP.to_be_bytes()[..], b"hello"].concat());
    assert_eq!(initiation.features, 1);
    let answer = [&RESET_TOKEN[..], &used.to_be_bytes(), b"welcome"].concat();
    let second_message = second::write(&mut noise, &answer);
    let keys = second::split(&mut noise);
    device.give(&second::response(initiation.sender_index, OWN_INDEX, &second_message));
    let connected = device.events();
    assert!(
        matches!(connected.first(), Some(EndpointEvent::Connected { payload, .. }) if payload == b"welcome"),
        "{connected:?}"
    );

    // The device challenges the path; its packets are padded to the least size that every path must carry.
    let index = initiation.sender_index;
    assert!(device.endpoint.handle_packet(NOW, session, &inner_packet()));
    let sent = device.sent();
    let packets = opened(used, &keys.to_responder, &sent);
    let delivered = packets.iter().flat_map(|(_, plain)| Frames::new(plain)).any(
        |frame| matches!(frame, Ok(Frame::Data(data)) if data.payload == inner_packet() && data.sequence == 0),
    );
    assert!(delivered, "{packets:?}");
    let mut answer = Vec::new();
    if packets
        .iter()
        .any(|(_, plain)| Frames::new(plain).any(|frame| matches!(frame, Ok(Frame::Challenge(_)))))
    {
        Frame::Response(challenge_in(&packets)).put(&mut answer);
    }
    answer.extend(data_of(&inner_packet()));
    let place = Place { receiver_index: index, epoch: 0, path: 0, number: 0, largest_acked: None };
    device.give(&second::seal(used, &keys.to_initiator, place, &answer));
    assert_eq!(device.endpoint.poll_packet().map(|(_, packet)| packet), Some(inner_packet()));

    // A reset with the right token makes the device begin again; one with another does not.
    let reset = |token| {
        let mut bytes = Vec::new();
        Reset { unknown_index: OWN_INDEX, token }.put(&mut bytes);
        bytes
    };
    let begins = |datagrams: Vec<Vec<u8>>| {
        datagrams.iter().any(|datagram| matches!(Datagram::parse(datagram), Ok(Datagram::Initiation(_))))
    };
    device.give(&reset([8; 16]));
    assert!(!begins(device.sent()));
    device.give(&reset(RESET_TOKEN));
    assert!(begins(device.sent()));
}
