//! The vectors of docs/wire-vectors.json.

use super::{
    Identity, Keys, Place, header, initiation, initiator, nonce, prologue, read, rekey_prologue, responder,
    response, retry, seal, split, write,
};
use data_encoding::HEXLOWER;
use serde_json::{Value, json};
use std::num::NonZeroU16;
use units::PathId;
use wire::cursor::put_varint;
use wire::datagram::{Reset, VERSION, expand_packet_number};
use wire::frame::{Ack, Arrived, Data, Frame, GaveUp, Part, PathStatus, Rekey, Repair, STATUS_GONE};
use wire::hello::{DefaultTreatment, Features, Hello, Name, Prefixed, Refusal, Reply, Welcome};
use wire::join_link::{HostPort, InvitationKind, InvitationSecret, JoinLink, UnixSeconds};
use wire::stream::{StreamData, StreamFrame, StreamId};

/// Fixed ends of all vectors.
pub const DEVICE_PRIVATE: [u8; 32] = [0x11; 32];
pub const GATEWAY_PRIVATE: [u8; 32] = [0x22; 32];
const DEVICE_EPHEMERAL: [u8; 32] = [0x33; 32];
const GATEWAY_EPHEMERAL: [u8; 32] = [0x44; 32];
const DEVICE_REKEY_EPHEMERAL: [u8; 32] = [0x55; 32];
const GATEWAY_REKEY_EPHEMERAL: [u8; 32] = [0x66; 32];
const RESET_TOKEN: [u8; 16] = *b"reset token 16 b";
const RETRY_TOKEN: [u8; 24] = *b"retry token of 24 bytes!";
/// Session numbers.
const DEVICE_INDEX: u32 = 0x0a0b_0c0d;
const GATEWAY_INDEX: u32 = 0x1a1b_1c1d;
/// Nanoseconds since 1970.
pub const STAMP: u64 = 1_800_000_000_000_000_000;

/// Everything, as it stands in the file.
pub fn all() -> Value {
    let (handshake, keys) = handshake();
    json!({
        "about": "Test vectors of Anabranch's wire format, see wire-format.md. Bytes are hexadecimal. \
            Printed by: cargo run -p anabranch-bond --example wire_vectors",
        "version": VERSION,
        "varints": varints(),
        "packet_numbers": packet_numbers(),
        "nonces": nonces(),
        "frames": frames(),
        "refused_frames": refused_frames(),
        "datagrams": datagrams(),
        "refused_datagrams": refused_datagrams(),
        "hello": hello(),
        "join_links": join_links(),
        "handshake": handshake,
        "rekey": rekey(),
        "data_packets": data_packets(&keys),
        "tcp_stream": tcp_stream(),
    })
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    HEXLOWER.encode(bytes.as_ref())
}

fn varints() -> Value {
    let values = [
        0,
        37,
        63,
        64,
        15_293,
        16_383,
        16_384,
        494_878_333,
        (1 << 30) - 1,
        1 << 30,
        151_288_809_941_952_652,
        (1 << 62) - 1,
    ];
    let one = |value: u64| {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, value);
        json!({ "value": value, "bytes": hex(bytes) })
    };
    values.map(one).to_vec().into()
}

fn packet_numbers() -> Value {
    let cases = [
        (0, None, None),
        (30, None, Some(29)),
        (31, None, Some(29)),
        (200, Some(100), Some(190)),
        (0xac_5c02, Some(0xab_e8b3), Some(0xab_e8b3)),
        (0xac_e8fe, Some(0xab_e8b3), Some(0xac_e8fd)),
        (0x1_0000_0000, Some(0xffff_fff0), Some(0xffff_ffff)),
        (0xffff_fffe, Some(0xffff_fff0), Some(0x1_0000_0001)),
    ];
    let one = |(number, largest_acked, largest_seen): (u64, Option<u64>, Option<u64>)| {
        let place = Place { receiver_index: 0, epoch: 0, path: 0, number, largest_acked };
        let sent = header(place).split_off(6);
        let truncated = sent.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        assert_eq!(expand_packet_number(truncated, sent.len() as u8, largest_seen), number);
        json!({
            "number": number, "largest_acknowledged": largest_acked, "largest_received": largest_seen,
            "bytes": hex(sent),
        })
    };
    cases.map(one).to_vec().into()
}

fn nonces() -> Value {
    [(0, 0), (7, 0x1234_5678), (255, u64::MAX >> 2)]
        .map(|(path, number)| json!({ "path": path, "number": number, "bytes": hex(nonce(path, number)) }))
        .to_vec()
        .into()
}

fn frames() -> Value {
    let one_range = Ack {
        ranges: std::iter::once(0..=9).collect(),
        delay_micros: 25,
        receive_time: 1_000_000,
        received_bytes: 12_000,
        reordering_micros: 2_000,
        ce_count: 0,
    };
    let three_ranges = Ack {
        ranges: [90..=100, 80..=80, 3..=70].into_iter().collect(),
        delay_micros: 400,
        receive_time: 0xfffe_0000,
        received_bytes: 0xffff_fff0,
        reordering_micros: 20_000,
        ce_count: 1,
    };
    let part = |offset, more| Some(Part { offset, more });
    let data = Data { flow: 1, sequence: 2, long: false, ordered: true, part: None, payload: b"inner" };
    let stream_data = StreamData { stream: StreamId(4), offset: 70_000, fin: false, bytes: b"abc" };
    let length_xor = 4 ^ 2 ^ 5;
    let repair =
        Repair { flow: 300, first: 5, count: 3, length_xor, payload_xor: &xor(&[b"abcd", b"ef", b"ghijk"]) };
    let ends = |data: Data<'_>| {
        let mut bytes = Vec::new();
        data.put(false, &mut bytes);
        bytes
    };
    let framed = |frame: Frame<'_>| {
        let mut bytes = Vec::new();
        frame.put(&mut bytes);
        bytes
    };
    let mut padded = framed(Frame::Ping);
    padded.extend([0, 0, 0]);
    let mut several = framed(Frame::Ack(one_range.clone()));
    several.extend(framed(Frame::Data(Data { long: true, ..data })));
    several.extend(ends(Data { sequence: 3, ordered: false, ..data }));
    let rows: Vec<(&str, &str, Vec<u8>)> = vec![
        ("padding after ping", "ping; the rest is padding", padded),
        ("ping", "", framed(Frame::Ping)),
        (
            "ack of 0-9",
            "delay 25 us, receive time 1000000, received bytes 12000, reordering 2000 us, CE 0",
            { framed(Frame::Ack(one_range)) },
        ),
        (
            "ack of 90-100, 80, 3-70",
            "delay 400 us, receive time 0xfffe0000, received bytes 0xfffffff0, reordering 20000 us, CE 1",
            framed(Frame::Ack(three_ranges)),
        ),
        ("challenge", "0102030405060708", framed(Frame::Challenge([1, 2, 3, 4, 5, 6, 7, 8]))),
        ("response", "0102030405060708", framed(Frame::Response([1, 2, 3, 4, 5, 6, 7, 8]))),
        (
            "path status",
            "path 2, sequence 300, backup, priority 3, 90000 bytes/s",
            framed(Frame::PathStatus(PathStatus {
                path: PathId(2),
                sequence: 300,
                status: 1,
                priority: 3,
                limit: 90_000,
            })),
        ),
        (
            "path status, gone",
            "path 2, sequence 301, gone",
            framed(Frame::PathStatus(PathStatus {
                path: PathId(2),
                sequence: 301,
                status: STATUS_GONE,
                priority: 0,
                limit: 0,
            })),
        ),
        ("path abandon", "path 3", framed(Frame::PathAbandon(PathId(3)))),
        (
            "gave up",
            "flow 7, two packets from 0xffffffff on",
            framed(Frame::GaveUp(GaveUp { flow: 7, first: u32::MAX, count: 2 })),
        ),
        ("hold", "sequence 1, 250000 us", framed(Frame::Hold { sequence: 1, micros: 250_000 })),
        (
            "rekey",
            "step 1, epoch 2, Noise message of five bytes",
            framed(Frame::Rekey(Rekey { step: 1, epoch: 2, noise: b"noise" })),
        ),
        ("close", "reason 1, revoked", framed(Frame::Close { reason: 1 })),
        ("repair", "flow 300, packets 5 to 7: abcd, ef, ghijk", {
            let mut bytes = Vec::new();
            repair.put(&mut bytes);
            bytes
        }),
        ("message", "bytes hello", framed(Frame::Message(b"hello"))),
        (
            "arrived",
            "path 2, packets 90 to 100, 80 and 3 to 70",
            framed(Frame::Arrived(Arrived {
                path: PathId(2),
                ranges: [90..=100, 80..=80, 3..=70].into_iter().collect(),
            })),
        ),
        (
            "stream",
            "stream 4, offset 70000, the last bytes: abc",
            framed(Frame::Stream(StreamFrame::Data(StreamData { fin: true, ..stream_data }))),
        ),
        ("stream, ends the packet", "stream 4, offset 70000: abc", {
            let mut bytes = Vec::new();
            stream_data.put(false, &mut bytes);
            bytes
        }),
        (
            "stream reset",
            "stream 5, code 1, final size 70000",
            framed(Frame::Stream(StreamFrame::Reset { stream: StreamId(5), code: 1, final_size: 70_000 })),
        ),
        (
            "stream stop",
            "stream 4, code 2",
            framed(Frame::Stream(StreamFrame::Stop { stream: StreamId(4), code: 2 })),
        ),
        (
            "stream limit",
            "stream 4, up to offset 16777216",
            framed(Frame::Stream(StreamFrame::StreamLimit { stream: StreamId(4), offset: 1 << 24 })),
        ),
        ("session limit", "67108864 bytes", framed(Frame::Stream(StreamFrame::SessionLimit(1 << 26)))),
        ("stream count", "300 streams", framed(Frame::Stream(StreamFrame::StreamCount(300)))),
        ("datagram", "once", framed(Frame::Stream(StreamFrame::Datagram(b"once")))),
        ("data, ends the packet", "flow 1, sequence 2, ordered", ends(data)),
        ("data, unordered", "flow 1, sequence 2", ends(Data { ordered: false, ..data })),
        ("data with length", "flow 1, sequence 2, ordered", framed(Frame::Data(data))),
        (
            "data, long sequence",
            "flow 16383, sequence 70000, ordered",
            ends(Data { flow: 16_383, sequence: 70_000, long: true, ..data }),
        ),
        (
            "data, first part",
            "flow 1, sequence 2, ordered, offset 0, more follow",
            ends(Data { part: part(0, true), ..data }),
        ),
        (
            "data, last part",
            "flow 1, sequence 70000, offset 1200, with length",
            framed(Frame::Data(Data {
                sequence: 70_000,
                long: true,
                ordered: false,
                part: part(1_200, false),
                ..data
            })),
        ),
        ("several frames", "ack of 0-9, data with length and long sequence, data", several),
    ];
    rows.into_iter()
        .map(|(name, meaning, bytes)| json!({ "name": name, "meaning": meaning, "bytes": hex(bytes) }))
        .collect()
}

fn xor(packets: &[&[u8]]) -> Vec<u8> {
    let mut sum = vec![0; packets.iter().map(|packet| packet.len()).max().unwrap_or(0)];
    for packet in packets {
        sum.iter_mut().zip(*packet).for_each(|(to, from)| *to ^= from);
    }
    sum
}

fn refused_frames() -> Value {
    let rows: [(&str, &[u8]); 11] = [
        ("unknown type", &[0x0d]),
        ("kept for streams", &[0x19, 0, 0]),
        ("stream beyond 2^62", &[0x10, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ("challenge cut short", &[0x03, 1, 2, 3]),
        ("ack with a range below zero", &[0x02, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 6]),
        ("ack with 33 ranges", &[0x02, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0]),
        ("status above 3", &[0x05, 1, 0, 4, 0, 0]),
        ("gave up nothing", &[0x07, 0, 1, 0, 0, 0, 1, 0]),
        ("repair of 65 packets", &[0x0b, 0, 1, 0, 1, 65, 0, 1, 7]),
        ("flow 16384", &[0x20, 0x40, 0, 0, 1, 7]),
        ("message of 1025 bytes", &[0x0c, 0x44, 0x01]),
    ];
    rows.map(|(why, bytes)| json!({ "why": why, "bytes": hex(bytes) })).to_vec().into()
}

fn datagrams() -> Value {
    let gateway = Identity::new(GATEWAY_PRIVATE);
    let place = Place {
        receiver_index: 0x0102_0304,
        epoch: 2,
        path: 7,
        number: 0x12_0a0b,
        largest_acked: Some(0x12_0000),
    };
    let mut data = header(place);
    data.extend([0xee; 17]);
    let mut reset = Vec::new();
    Reset { unknown_index: GATEWAY_INDEX, token: RESET_TOKEN }.put(&mut reset);
    json!([
        { "name": "data", "bytes": hex(data), "meaning": "epoch 2, receiver index 0x01020304, path 7, two bytes of packet number, sealed bytes that nobody can open" },
        { "name": "initiation", "bytes": hex(initiation(&gateway.public, 0, DEVICE_INDEX, &[5; 96], &[])), "meaning": "Noise message of 96 bytes, no token, mac of the gateway's public key" },
        { "name": "initiation", "bytes": hex(initiation(&gateway.public, 1, DEVICE_INDEX, &[5; 96], &RETRY_TOKEN)), "meaning": "the same with AES-256-GCM offered and a retry token" },
        { "name": "response", "bytes": hex(response(DEVICE_INDEX, GATEWAY_INDEX, &[6; 48])), "meaning": "Noise message of 48 bytes" },
        { "name": "retry", "bytes": hex(retry(&gateway.public, DEVICE_INDEX, RETRY_TOKEN)), "meaning": "mac of the gateway's public key" },
        { "name": "reset", "bytes": hex(reset), "meaning": "the gateway does not know the session that it once numbered 0x1a1b1c1d" },
    ])
}

fn refused_datagrams() -> Value {
    let rows: [(&str, Vec<u8>); 7] = [
        ("empty", vec![]),
        ("unknown type", vec![0x05, 0, 0, 0, 0]),
        ("data with reserved bits", [&[0x81, 0, 0, 0, 1, 0, 0][..], &[0; 17]].concat()),
        (
            "data with a packet number of four bytes",
            [&[0x98, 0, 0, 0, 1, 0, 0, 0, 0, 0][..], &[0; 17]].concat(),
        ),
        ("data without frames", [&[0x80, 0, 0, 0, 1, 0, 0][..], &[0; 16]].concat()),
        ("reset of 22 bytes", [&[0x04][..], &[0; 21]].concat()),
        ("retry cut short", [&[0x03][..], &[0; 43]].concat()),
    ];
    rows.map(|(why, bytes)| json!({ "why": why, "bytes": hex(bytes) })).to_vec().into()
}

/// What a joining device says, and what it is answered.
pub fn hello_bytes() -> Vec<u8> {
    Hello {
        name: Name::new("van").unwrap(),
        secret: Some(InvitationSecret(*b"sixteen byte key")),
        features: Features(0),
        treatment: DefaultTreatment::Bonded,
    }
    .encode()
}

fn welcome() -> Reply {
    Reply::Welcome(Welcome {
        name: Name::new("gateway").unwrap(),
        features: Features(1),
        v4: Some(Prefixed { address: "10.86.0.2".parse().unwrap(), prefix: 16 }),
        v6: Some(Prefixed { address: "fd12:3456:789a::2".parse().unwrap(), prefix: 64 }),
        dns: ["9.9.9.9".parse().unwrap(), "2620:fe::9".parse().unwrap()].into_iter().collect(),
        mtu: 1_400,
    })
}

fn hello() -> Value {
    let plain = Hello {
        name: Name::new("Bücherbus").unwrap(),
        secret: None,
        features: Features(0x0102_0304),
        treatment: DefaultTreatment::Bonded,
    };
    let protected = Hello { treatment: DefaultTreatment::Protected, ..plain.clone() };
    let unknown = [&plain.encode()[..], &[0x70, 2, 9, 9]].concat();
    let essential = [&plain.encode()[..], &[0xf0, 0]].concat();
    json!([
        { "name": "hello", "meaning": "name van, invitation secret \"sixteen byte key\", no features", "bytes": hex(hello_bytes()) },
        { "name": "hello", "meaning": "name Bücherbus, no secret, features 0x01020304", "bytes": hex(plain.encode()) },
        { "name": "hello", "meaning": "the same, and wants forward error correction towards it", "bytes": hex(protected.encode()) },
        { "name": "hello", "meaning": "the one before and a field that may be ignored", "bytes": hex(unknown) },
        { "name": "hello", "meaning": "that one and an essential field that is not known", "refused": true, "bytes": hex(essential) },
        { "name": "reply", "meaning": "welcome: name gateway, features 1, 10.86.0.2/16, fd12:3456:789a::2/64, DNS 9.9.9.9 and 2620:fe::9, MTU 1400", "bytes": hex(welcome().encode()) },
        { "name": "reply", "meaning": "refusal 4: the invitation was already used", "bytes": hex(Reply::Refusal(Refusal::InvitationUsed).encode()) },
        { "name": "reply", "meaning": "welcome without an address", "refused": true, "bytes": "010001026777070205dc" },
    ])
}

fn join_links() -> Value {
    let gateway = Identity::new(GATEWAY_PRIVATE);
    let link = |addresses: &[&str], kind, tcp_port| {
        let addresses: Vec<HostPort> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        JoinLink {
            kind,
            public_key: gateway.public,
            addresses,
            tcp_port: NonZeroU16::new(tcp_port),
            secret: InvitationSecret(*b"sixteen byte key"),
            expires: UnixSeconds(1_800_000_000),
        }
        .encode()
        .unwrap()
    };
    json!([
        { "text": link(&["203.0.113.7:4600"], InvitationKind::Gateway, 0), "meaning": "gateway, secret \"sixteen byte key\", expires 1800000000, no TCP, 203.0.113.7:4600" },
        { "text": link(&["gw.example.org:4600", "[2001:db8::7]:443"], InvitationKind::Peer, 4_600), "meaning": "peer, TCP port 4600, gw.example.org:4600 and [2001:db8::7]:443" },
    ])
}

fn key_pair(pair: &Identity) -> Value {
    json!({ "private": hex(pair.private), "public": hex(pair.public) })
}

/// The handshake that begins a session, and its keys.
fn handshake() -> (Value, Keys) {
    let (device, gateway) = (Identity::new(DEVICE_PRIVATE), Identity::new(GATEWAY_PRIVATE));
    let prologue = prologue(0);
    let mut left = initiator(&device, &gateway.public, &prologue, Some(&DEVICE_EPHEMERAL));
    let first_payload = [&STAMP.to_be_bytes()[..], &hello_bytes()].concat();
    let first = write(&mut left, &first_payload);
    let mut right = responder(&gateway, &prologue, Some(&GATEWAY_EPHEMERAL));
    assert_eq!(read(&mut right, &first), first_payload);
    let second_payload = [&RESET_TOKEN[..], &[0, 0], &welcome().encode()].concat();
    let second = write(&mut right, &second_payload);
    assert_eq!(read(&mut left, &second), second_payload);
    let keys = split(&mut left);
    assert_eq!(keys, split(&mut right));
    let value = json!({
        "initiator": key_pair(&device),
        "responder": key_pair(&gateway),
        "initiator_ephemeral": key_pair(&Identity::new(DEVICE_EPHEMERAL)),
        "responder_ephemeral": key_pair(&Identity::new(GATEWAY_EPHEMERAL)),
        "prologue": hex(&prologue),
        "stamp": STAMP.to_string(),
        "initiator_index": DEVICE_INDEX,
        "responder_index": GATEWAY_INDEX,
        "reset_token": hex(RESET_TOKEN),
        "payload_1": hex(first_payload),
        "payload_2": hex(second_payload),
        "initiation": hex(initiation(&gateway.public, 0, DEVICE_INDEX, &first, &[])),
        "response": hex(response(DEVICE_INDEX, GATEWAY_INDEX, &second)),
        "key_to_responder": hex(keys.to_responder),
        "key_to_initiator": hex(keys.to_initiator),
    });
    (value, keys)
}

/// The handshake inside that session that leads to epoch 1.
fn rekey() -> Value {
    let (device, gateway) = (Identity::new(DEVICE_PRIVATE), Identity::new(GATEWAY_PRIVATE));
    let epoch = 1;
    let mut left = initiator(&device, &gateway.public, rekey_prologue(), Some(&DEVICE_REKEY_EPHEMERAL));
    let first = write(&mut left, &[epoch]);
    let mut right = responder(&gateway, rekey_prologue(), Some(&GATEWAY_REKEY_EPHEMERAL));
    read(&mut right, &first);
    let second = write(&mut right, &[epoch]);
    read(&mut left, &second);
    let keys = split(&mut left);
    let frame = |step, noise: &[u8]| {
        let mut bytes = Vec::new();
        Frame::Rekey(Rekey { step, epoch, noise }).put(&mut bytes);
        hex(bytes)
    };
    let place = Place { receiver_index: GATEWAY_INDEX, epoch, path: 0, number: 12, largest_acked: Some(11) };
    json!({
        "initiator_ephemeral": key_pair(&Identity::new(DEVICE_REKEY_EPHEMERAL)),
        "responder_ephemeral": key_pair(&Identity::new(GATEWAY_REKEY_EPHEMERAL)),
        "prologue": hex(rekey_prologue()),
        "payload": hex([epoch]),
        "frame_1": frame(0, &first),
        "frame_2": frame(1, &second),
        "key_to_responder": hex(keys.to_responder),
        "key_to_initiator": hex(keys.to_initiator),
        "first_packet": hex(seal(0, &keys.to_responder, place, &[1])),
        "first_packet_number": place.number,
    })
}

/// Packets of that session in epoch 0.
fn data_packets(keys: &Keys) -> Value {
    let to_responder = |path, number, largest_acked| Place {
        receiver_index: GATEWAY_INDEX,
        epoch: 0,
        path,
        number,
        largest_acked,
    };
    let mut challenge = Vec::new();
    Frame::Challenge([1, 2, 3, 4, 5, 6, 7, 8]).put(&mut challenge);
    challenge.resize(40, 0);
    let mut data = Vec::new();
    Data { flow: 1, sequence: 2, long: false, ordered: true, part: None, payload: b"inner" }
        .put(false, &mut data);
    let down = Place { receiver_index: DEVICE_INDEX, ..to_responder(7, 0x1_0000, Some(0x1_0000 - 0x1fff)) };
    let rows = [
        ("to responder", "a challenge with some padding", to_responder(0, 0, None), challenge),
        (
            "to responder",
            "data on path 7 with a packet number of three bytes",
            to_responder(7, 0x12_3456, None),
            data.clone(),
        ),
        ("to initiator", "the same the other way with two bytes", down, data),
    ];
    rows.into_iter()
        .map(|(direction, meaning, place, plain)| {
            let key =
                if place.receiver_index == GATEWAY_INDEX { &keys.to_responder } else { &keys.to_initiator };
            json!({
                "direction": direction, "meaning": meaning, "path": place.path, "number": place.number,
                "header": hex(header(place)), "plain": hex(&plain), "datagram": hex(seal(0, key, place, &plain)),
                "datagram_aes": hex(seal(1, key, place, &plain)),
            })
        })
        .collect()
}

fn tcp_stream() -> Value {
    json!({ "datagrams": ["0708", "09"], "bytes": "000207080001" .to_owned() + "09" })
}
