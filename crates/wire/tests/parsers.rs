//! The fuzz targets' properties on random bytes, on mutated real messages, and on the committed corpus.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU16;
use std::path::Path;
use wire::announcement::Announcement;
use wire::datagram::{Initiation, MAC_LEN, Reset, Retry, VERSION};
use wire::frame::{Ack, Arrived, Data, Frame, GaveUp, Part, PathStatus, Rekey, Repair};
use wire::group;
use wire::hello::{DefaultTreatment, Features, Hello, Name, Prefixed, Refusal, Reply, Welcome};
use wire::inner::FlowKey;
use wire::join_link::{Host, HostName, HostPort, InvitationKind, InvitationSecret, JoinLink, UnixSeconds};
use wire::mesh::{self, LinkAddress, Node, NodeId, RequestId, Sequence};
use wire::neighbour::{self, Message, Number};
use wire::peer::{AdapterAddress, Adapters, Answer, Conversation, FurtherAdapters, Greeting};
use wire::request::Request;
use wire::short_announcement::{SHORT_ANNOUNCEMENT_LEN, ShortAnnouncement};
use wire::stream::{StreamData, StreamFrame, StreamId};
use wire::upload::{
    AirChunk, AirCombination, AirHeader, AirNumber, Chunk, Feedback, Generation, Grant, Member, MemberState,
    Offer, RateIndex, Reception, Report, Run, Runs, Transfer,
};

#[path = "../../../fuzz/properties/wire.rs"]
mod properties;

type Property = fn(&[u8]);

const ALL: [(&str, Property); 14] = [
    ("datagram", properties::datagram),
    ("frames", properties::frames),
    ("hello", properties::hello),
    ("request", properties::request),
    ("join_link", properties::join_link),
    ("inner", properties::inner),
    ("mesh", properties::mesh),
    ("neighbour", properties::neighbour),
    ("peer", properties::peer),
    ("translation", properties::translation),
    ("announcement", properties::announcement),
    ("group", properties::group),
    ("short_announcement", properties::short_announcement),
    ("upload", properties::upload),
];

/// One valid message of each kind: (target, bytes).
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let mut samples = Vec::new();
    samples.extend(datagrams().into_iter().map(|bytes| ("datagram", bytes)));
    samples.extend(frames().into_iter().map(|bytes| ("frames", bytes)));
    samples.extend(hellos().into_iter().map(|bytes| ("hello", bytes)));
    samples.push(("request", request().encode()));
    samples.extend(links().into_iter().map(|text| ("join_link", text.into_bytes())));
    samples.extend(packets().into_iter().map(|bytes| ("inner", bytes)));
    samples.extend(meshes().into_iter().map(|bytes| ("mesh", bytes)));
    samples.extend(neighbours().into_iter().map(|bytes| ("neighbour", bytes)));
    samples.extend(peers().into_iter().map(|bytes| ("peer", bytes)));
    samples.extend(packets().into_iter().chain(translated()).map(|bytes| ("translation", bytes)));
    samples.push(("announcement", announcement()));
    samples.extend(groups().into_iter().map(|bytes| ("group", bytes)));
    samples.push(("short_announcement", (1..=SHORT_ANNOUNCEMENT_LEN as u8).collect()));
    samples.extend(uploads().into_iter().map(|bytes| ("upload", bytes)));
    samples
}

fn uploads() -> Vec<Vec<u8>> {
    let (transfer, air, rate) = (Transfer(7), AirNumber(70_000), RateIndex(2));
    let member = Member::new(3).unwrap();
    let run = |first, last| Run::new(Chunk(first), Chunk(last)).unwrap();
    let runs = |runs: Vec<Run>| Runs::rising(runs).unwrap();
    let on_air = |header: AirHeader| {
        let mut bytes = Vec::new();
        header.put(&mut bytes);
        bytes.extend(b"sealed chunk");
        bytes.extend([8; wire::upload::AUTHENTICATOR_LEN]);
        bytes
    };
    let (generation, coefficients) = (Generation(5), vec![1, 0, 7, 255]);
    let combination = AirCombination { transfer, air, rate, generation, coefficients: coefficients.clone() };
    let receptions = vec![Reception { period: 9, heard: vec![(RateIndex(0), 1), (rate, 128)] }];
    let report = Report {
        transfer,
        through: air,
        window: 12,
        buffered: 300,
        receptions: receptions.clone(),
        heard: runs(vec![run(0, 4), run(6, 6), run(1_000, 70_000)]),
        away: 104,
    };
    let grant = Grant {
        transfer,
        carry: runs(vec![run(2, 3)]),
        stored: runs(vec![run(0, 1)]),
        withdrawn: Runs::new(),
        forget: runs(vec![run(9, 9)]),
        repeat: runs(vec![run(11, 12)]),
    };
    let feedback = Feedback {
        transfer,
        through: air,
        shortage: -40,
        stored: runs(vec![run(0, 1)]),
        held: runs(vec![run(2, 4)]),
        lost: runs(vec![run(6, 6)]),
        spare: runs(vec![run(4, 4)]),
        members: vec![MemberState { member, target: 60, room: 5, receptions }],
    };
    let offer = Offer { transfer, length: 1 << 30, chunk_length: 1_400 };
    let messages = [
        wire::upload::Message::Offer(offer),
        wire::upload::Message::Carried(transfer, Chunk(8), b"sealed"),
        wire::upload::Message::Mixed(transfer, generation, coefficients, b"sealed"),
        wire::upload::Message::Report(report),
        wire::upload::Message::Grant(grant),
        wire::upload::Message::Feedback(feedback),
    ];
    let headers = [
        AirHeader::Chunk(AirChunk { transfer, air, rate, addressee: Some(member), chunk: Chunk(8) }),
        AirHeader::Repeat(wire::upload::AirRepeat { transfer, chunk: Chunk(8) }),
        AirHeader::Combination(combination),
    ];
    let messages = messages.iter().map(wire::upload::Message::encode).chain(upload_roles(offer));
    headers.into_iter().map(on_air).chain(messages).collect()
}

fn upload_roles(offer: Offer) -> Vec<Vec<u8>> {
    use wire::upload::roles::{End, FileOffer, RoleMessage, Shares, TransferOffer};
    let Offer { transfer, chunk_length, .. } = offer;
    let (hash, chunk_key, air_key, signature) = ([1; 32], [2; 32], [3; 32], [4; 64]);
    let file = FileOffer { offer, hash, chunk_key, air_key, signature, name: "video.mp4".to_owned() };
    let told = TransferOffer { transfer, source: [5; 32], air_key, chunks: 9, chunk_length, signature };
    let stored = Runs::of_chunks(&[Chunk(2), Chunk(3)]).0;
    let messages = [
        RoleMessage::File(Box::new(file)),
        RoleMessage::Ready(transfer, true, stored),
        RoleMessage::Join,
        RoleMessage::Transfer(Box::new(told)),
        RoleMessage::Taking(transfer, true),
        RoleMessage::Over(transfer, End::Failed, "no room".to_owned()),
        RoleMessage::Shares(Shares { transfer, own: 4, neighbours: vec![([6; 32], 5)] }),
    ];
    messages.iter().map(RoleMessage::encode).collect()
}

/// Packets that a translator of IPv4 and IPv6 has something to do with: an error of each kind, a fragment, an echo.
fn translated() -> Vec<Vec<u8>> {
    let (own, far) = ("fd61:6e61:6272::10.99.0.1", "2001:db8::198.51.100.9");
    let v6 = |source: &str, destination: &str, next: u8, body: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, body.len() as u8, next, 61];
        packet.extend(source.parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(destination.parse::<Ipv6Addr>().unwrap().octets());
        packet.extend(body);
        packet
    };
    let v4 = |from: [u8; 4], to: [u8; 4], protocol: u8, fragment: u8, body: &[u8]| {
        let mut packet = vec![0x45, 0, 0, 20 + body.len() as u8, 0, 1, fragment, 0, 61, protocol, 0, 0];
        packet.extend([from, to].concat());
        packet.extend(body);
        packet
    };
    let (here, there) = ([10, 99, 0, 1], [198, 51, 100, 9]);
    let datagram = [0x9c, 0x40, 0, 53, 0, 12, 7, 7, 1, 2, 3, 4];
    let too_big = [&[2, 0, 0, 0, 0, 0, 5, 0][..], &v6(own, far, 17, &datagram)].concat();
    let unreachable = [&[3, 3, 0, 0, 0, 0, 0, 0][..], &v4(there, here, 17, 0, &datagram)].concat();
    let fragment = [&[17, 0, 0, 1, 0, 0, 0, 9][..], &datagram].concat();
    vec![
        v6("2001:db8::1", own, 58, &too_big),
        v6(far, own, 44, &fragment),
        v6(far, own, 58, &[129, 0, 1, 1, 0, 7, 0, 1]),
        v4(here, there, 1, 0, &unreachable),
        v4(here, there, 1, 0, &[8, 0, 1, 1, 0, 7, 0, 1]),
        v4(here, there, 17, 0x20, &datagram),
    ]
}

fn neighbours() -> Vec<Vec<u8>> {
    let number = Number { epoch: 7, number: 70_000 };
    let hello = neighbour::Hello {
        number,
        link_address: "fe80::7".parse().unwrap(),
        any0_v4: Some(Ipv4Addr::new(10, 254, 0, 1)),
        asks: true,
        echo: Some(neighbour::Echo { of: number, held_micros: 5 }),
    };
    vec![
        Message::Hello(hello).encode(),
        Message::Broadcast { number, packet: &[0x60; 48] }.encode(),
        Message::Left { number, of: number }.encode(),
        neighbour::encode_beacon([3; neighbour::NONCE_LEN], &[[4; neighbour::TAG_LEN]; 2]),
        neighbour::encode_sealed([5; neighbour::SALT_LEN], &[6; 80]),
    ]
}

fn meshes() -> Vec<Vec<u8>> {
    let (node, signature) = (Node { key: [7; 32], port: 4_612 }, mesh::Signature([8; mesh::SIGNATURE_LEN]));
    let (sequence, destination) = (Sequence(70_000), NodeId([9; 16]));
    let mut data = Vec::new();
    mesh::DataHeader { hops_left: 30, destination, source: NodeId([6; 16]) }.put(&mut data);
    data.extend(b"sealed");
    let addresses = vec![
        LinkAddress::V4(Ipv4Addr::new(192, 0, 2, 1), 4_612),
        LinkAddress::V6(Ipv6Addr::LOCALHOST, 4_612),
        LinkAddress::Bluetooth([1, 2, 3, 4, 5, 6], 4_099),
    ];
    let (id, originator) = (RequestId(5), node);
    let request = mesh::Request { hop_count: 1, reach: 7, id, sequence, originator, destination, signature };
    let reply = mesh::Reply {
        hop_count: 2,
        id,
        originator: destination,
        sequence,
        lifetime_ms: 3_000,
        destination: node,
        signature,
    };
    let error = mesh::RouteError { sequence, node, lost: vec![destination; 2], signature };
    let hello = mesh::Hello { asks: true, relays: true, sequence, node, addresses, signature };
    vec![data, request.encode(), reply.encode(), error.encode(), hello.encode()]
}

fn peers() -> Vec<Vec<u8>> {
    let greeting = Greeting {
        conversation: Conversation(7),
        name: Some(Name::new("laptop").unwrap()),
        invitation: Some(InvitationSecret([5; 16])),
        proof: Some([6; wire::group::PROOF_LEN]),
    };
    let address = |text: &str| AdapterAddress { kind: 2, address: text.parse().unwrap() };
    let adapters = vec![address("192.0.2.1:4610"), address("[2001:db8::1]:4610")];
    vec![
        greeting.encode(),
        Answer::Continued.encode(),
        Adapters { sequence: 3, battery: Some(19), adapters }.encode(),
        FurtherAdapters { sequence: 3, adapters: vec![address("bt:00:11:22:33:44:55:4610")] }.encode(),
    ]
}

/// As a TXT record has it.
fn announcement() -> Vec<u8> {
    let told = Announcement {
        what: "files".to_owned(),
        nonce: [7; neighbour::NONCE_LEN],
        tags: vec![[4; neighbour::TAG_LEN]; 30],
        entries: vec![[5; group::ENTRY_LEN]; 2],
    };
    let mut bytes = Vec::new();
    for (name, value) in told.values() {
        bytes.push((name.len() + 1 + value.len()) as u8);
        bytes.extend(name.bytes().chain([b'=']).chain(value));
    }
    bytes
}

fn groups() -> Vec<Vec<u8>> {
    let name = Name::new("hikers").unwrap();
    let entry = group::Entry { public_key: [3; 32], name: Some(name.clone()) };
    let members = vec![([4; 32], name.clone())];
    let told = group::Told { secret: [9; group::SECRET_LEN], name, inviter: None, members };
    let mut sealed = Vec::new();
    group::put_sealed(&mut sealed, &[1; neighbour::SALT_LEN], &[2; 60]);
    vec![entry.encode(), told.encode(), sealed]
}

fn request() -> Request {
    let (source, destination) = (Ipv4Addr::new(10, 86, 0, 2).into(), Ipv4Addr::new(198, 51, 100, 9).into());
    let flow = FlowKey { source, destination, protocol: 6, source_port: 40_000, destination_port: 443 };
    Request::TreatFlow { flow, treatment: DefaultTreatment::Protected }
}

fn datagrams() -> Vec<Vec<u8>> {
    let mut initiation = Vec::new();
    let message = Initiation {
        version: VERSION,
        features: 1,
        sender_index: 7,
        noise: &[3; 96],
        retry_token: &[4; 24],
        mac: [5; MAC_LEN],
    };
    message.put_without_mac(&mut initiation);
    initiation.extend_from_slice(&message.mac);
    let mut retry = Vec::new();
    Retry { receiver_index: 1, token: [2; 24], mac: [3; MAC_LEN] }.put(&mut retry);
    let mut reset = Vec::new();
    Reset { unknown_index: 9, token: [1; 16] }.put(&mut reset);
    let response = [&[2, VERSION, 0, 0, 0, 7, 0, 0, 0, 8][..], &[6; 48]].concat();
    let data = [&[0x88, 0, 0, 0, 7, 2, 0x12, 0x34][..], &[9; 40]].concat();
    vec![initiation, retry, reset, response, data]
}

fn frames() -> Vec<Vec<u8>> {
    let ack = Ack {
        ranges: [1_000..=1_005, 990..=990, 3..=70].into_iter().collect(),
        delay_micros: 70,
        receive_time: 99,
        received_bytes: 123,
        reordering_micros: 2_000,
        ce_count: 3,
    };
    let part = Some(Part { offset: 1_200, more: true });
    let data = Data { flow: 300, sequence: 70_000, long: true, ordered: true, part, payload: b"some bytes" };
    let repair = Repair { flow: 3, first: 9, count: 8, length_xor: 2, payload_xor: b"xor" };
    let path = units::PathId(2);
    let bytes = StreamData { stream: StreamId(4), offset: 70_000, fin: true, bytes: b"of a stream" };
    let frames = [
        Frame::Ping,
        Frame::Ack(ack),
        Frame::Challenge([1; 8]),
        Frame::Response([2; 8]),
        Frame::PathStatus(PathStatus { path, sequence: 5, status: 1, priority: 3, limit: 7 }),
        Frame::PathAbandon(path),
        Frame::GaveUp(GaveUp { flow: 7, first: u32::MAX, count: 2 }),
        Frame::Hold { sequence: 1, micros: 250_000 },
        Frame::Rekey(Rekey { step: 1, epoch: 2, noise: &[9; 48] }),
        Frame::Close { reason: 0 },
        Frame::Message(b"hello"),
        Frame::Arrived(Arrived { path, ranges: [80..=90, 3..=70].into_iter().collect() }),
        Frame::Stream(StreamFrame::Data(bytes)),
        Frame::Stream(StreamFrame::Reset { stream: StreamId(5), code: 1, final_size: 70_000 }),
        Frame::Stream(StreamFrame::Stop { stream: StreamId(4), code: 0 }),
        Frame::Stream(StreamFrame::StreamLimit { stream: StreamId(4), offset: 1 << 24 }),
        Frame::Stream(StreamFrame::SessionLimit(1 << 26)),
        Frame::Stream(StreamFrame::StreamCount(300)),
        Frame::Stream(StreamFrame::Datagram(b"once")),
        Frame::Data(data),
        Frame::Repair(repair),
    ];
    let mut samples: Vec<Vec<u8>> = Vec::new();
    let mut all = Vec::new();
    for frame in &frames {
        let mut one = Vec::new();
        frame.put(&mut one);
        all.extend_from_slice(&one);
        samples.push(one);
    }
    samples.push(all);
    samples
}

fn hellos() -> Vec<Vec<u8>> {
    let name = Name::new("van").unwrap();
    let hello = Hello {
        name: name.clone(),
        secret: Some(InvitationSecret([7; 16])),
        features: Features(3),
        treatment: DefaultTreatment::Protected,
    };
    let welcome = Welcome {
        name,
        features: Features(1),
        v4: Some(Prefixed { address: Ipv4Addr::new(10, 99, 0, 2), prefix: 16 }),
        v6: Some(Prefixed { address: Ipv6Addr::LOCALHOST, prefix: 64 }),
        dns: [Ipv4Addr::new(9, 9, 9, 9).into(), Ipv6Addr::LOCALHOST.into()].into_iter().collect(),
        mtu: 1_400,
    };
    vec![hello.encode(), Reply::Welcome(welcome).encode(), Reply::Refusal(Refusal::InvitationUsed).encode()]
}

fn links() -> Vec<String> {
    let port = NonZeroU16::new(4_433).unwrap();
    let host = |host| HostPort { host, port };
    let link = JoinLink {
        kind: InvitationKind::Gateway,
        public_key: [8; 32],
        addresses: vec![
            host(Host::Address(Ipv4Addr::new(192, 0, 2, 1).into())),
            host(Host::Address(Ipv6Addr::LOCALHOST.into())),
            host(Host::Name(HostName::new("gateway.example").unwrap())),
            host(Host::Bluetooth(units::MacAddress([0, 0x11, 0x22, 0x33, 0x44, 0x55]))),
        ],
        tcp_port: NonZeroU16::new(443),
        secret: InvitationSecret([6; 16]),
        expires: UnixSeconds(1_900_000_000),
    };
    vec![
        link.encode().unwrap(),
        "gateway.example:443".into(),
        "[::1]:9".into(),
        "192.0.2.1".into(),
        "bt:00:11:22:33:44:55".into(),
    ]
}

fn packets() -> Vec<Vec<u8>> {
    let tcp_syn = [
        &[0x45, 2, 0, 44, 0, 1, 0x40, 0, 64, 6, 0x12, 0x34, 10, 0, 0, 1, 192, 0, 2, 1][..],
        &[0x9c, 0x40, 1, 0xbb, 0, 0, 0, 1, 0, 0, 0, 0, 0x60, 2, 0xff, 0xff, 0xab, 0xcd, 0, 0],
        &[2, 4, 5, 0xb4],
    ]
    .concat();
    let mut udp = vec![0x60, 0x20, 0, 0, 0, 12, 17, 64];
    udp.extend_from_slice(&[0x20; 32]);
    udp.extend_from_slice(&[0x9c, 0x40, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4]);
    let mut extended = vec![0x60, 0, 0, 0, 0, 16, 0, 64];
    extended.extend_from_slice(&[0x20; 32]);
    extended.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0, 0x9c, 0x40, 0, 53, 0, 8, 0, 0]);
    vec![tcp_syn, udp, extended]
}

fn property(name: &str) -> Property {
    ALL.iter().find(|(target, _)| *target == name).map(|(_, property)| *property).unwrap()
}

#[test]
fn every_sample_is_accepted_by_its_parser() {
    for (target, bytes) in samples() {
        property(target)(&bytes);
        let accepted = match target {
            "datagram" => wire::datagram::Datagram::parse(&bytes).is_ok(),
            "frames" => wire::frame::Frames::new(&bytes).all(|frame| frame.is_ok()),
            "hello" => Hello::parse(&bytes).is_ok() || Reply::parse(&bytes).is_ok(),
            "request" => matches!(Request::parse(&bytes), Ok(Some(_))),
            "inner" | "translation" => wire::inner::parse(&bytes).is_ok(),
            "neighbour" => {
                neighbour::Datagram::parse(&bytes).is_ok() || matches!(Message::parse(&bytes), Ok(Some(_)))
            }
            "mesh" => mesh::Message::parse(&bytes).is_ok(),
            "peer" => {
                Greeting::parse(&bytes).is_ok()
                    || Answer::parse(&bytes).is_ok()
                    || matches!(Adapters::parse(&bytes), Ok(Some(_)))
                    || matches!(FurtherAdapters::parse(&bytes), Ok(Some(_)))
            }
            "announcement" => properties::announcement_in(&bytes).is_some(),
            "short_announcement" => ShortAnnouncement::read(&bytes).is_some(),
            "upload" => {
                wire::upload::AirFrame::parse(&bytes).is_ok()
                    || wire::upload::Message::parse(&bytes).is_ok()
                    || wire::upload::roles::RoleMessage::parse(&bytes).is_ok()
            }
            "group" => {
                group::Entry::parse(&bytes).is_ok()
                    || group::Told::parse(&bytes).is_ok()
                    || group::sealed(&bytes).is_ok()
            }
            _ => std::str::from_utf8(&bytes).is_ok_and(|text| {
                JoinLink::parse(text).is_ok() || HostPort::parse_with_default(text, NonZeroU16::MIN).is_ok()
            }),
        };
        assert!(accepted, "{target}: {bytes:02x?}");
    }
}

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, property) in ALL {
        let files = std::fs::read_dir(corpus.join(target)).unwrap();
        let mut count = 0;
        for file in files {
            property(&std::fs::read(file.unwrap().path()).unwrap());
            count += 1;
        }
        assert!(count > 0, "no corpus for {target}");
    }
}

/// Writes the samples into the corpus: `cargo test -p anabranch-wire --test parsers -- --ignored`.
#[test]
#[ignore = "writes to the source tree"]
fn write_the_corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (index, (target, bytes)) in samples().into_iter().enumerate() {
        let folder = corpus.join(target);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("sample-{index:02}")), bytes).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        for (_, property) in ALL {
            property(&bytes);
        }
    }

    #[test]
    fn mutated_messages(
        which in any::<prop::sample::Index>(),
        edits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<prop::sample::Index>(),
        cuts in any::<bool>(),
        tail in proptest::collection::vec(any::<u8>(), 0..20),
    ) {
        let samples = samples();
        let (target, mut bytes) = samples[which.index(samples.len())].clone();
        for (at, value) in edits {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if cuts {
            bytes.truncate(cut.index(bytes.len() + 1));
            bytes.extend_from_slice(&tail);
        }
        property(target)(&bytes);
        properties::inner(&bytes);
    }

    #[test]
    fn packet_numbers_survive(acked in proptest::option::of(0u64..1 << 40), ahead in 1u64..(1 << 22), seen in 0u64..1 << 22) {
        let number = acked.map_or(0, |largest| largest + 1) + ahead - 1;
        let length = wire::datagram::packet_number_len(number, acked);
        // The receiver has seen at least what was acknowledged and at most what was sent before.
        let low = acked.map_or(0, |largest| largest + 1);
        let seen = (low + seen).min(number).checked_sub(1);
        let truncated = (number & ((1 << (8 * u32::from(length))) - 1)) as u32;
        prop_assert_eq!(wire::datagram::expand_packet_number(truncated, length, seen), number);
    }
}
