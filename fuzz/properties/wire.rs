//! What must hold for any bytes given to the parsers of `wire`; shared by the fuzz targets and the property tests.
#![allow(dead_code, reason = "each fuzz target uses one of these")]

use std::num::NonZeroU16;
use wire::announcement::Announcement;
use wire::cursor::Malformed;
use wire::datagram::{Datagram, TAG_LEN};
use wire::frame::{Frame, Frames};
use wire::group;
use wire::hello::{Hello, Reply};
use wire::inner::{self, Ecn};
use wire::join_link::{HostPort, JoinLink};
use wire::mesh;
use wire::neighbour;
use wire::peer;
use wire::peer::PeerAddress;
use wire::request::Request;
use wire::short_announcement::{Served, ShortAnnouncement, encode_place, parse_place};
use wire::translation::{Prefix, Translator};
use wire::upload;

/// An outer datagram that is accepted is written back as the same bytes.
pub fn datagram(bytes: &[u8]) {
    let Ok(parsed) = Datagram::parse(bytes) else { return };
    let mut written = Vec::new();
    match parsed {
        Datagram::Data(header) => {
            header.put(&mut written);
            assert_eq!(written.len(), header.len());
            assert!(bytes.len() > header.len() + TAG_LEN, "no room for a frame");
            assert_eq!(bytes.get(..header.len()), Some(&written[..]));
            return;
        }
        Datagram::Initiation(initiation) => {
            initiation.put_without_mac(&mut written);
            written.extend_from_slice(&initiation.mac);
        }
        Datagram::Response(response) => response.put(&mut written),
        Datagram::Retry(retry) => retry.put(&mut written),
        Datagram::Reset(reset) => reset.put(&mut written),
    }
    assert_eq!(bytes, written);
}

/// Frames that are accepted mean the same after they were written and read again; nothing follows an error.
pub fn frames(bytes: &[u8]) {
    let bytes = bytes.get(..60_000).unwrap_or(bytes);
    let mut frames = Frames::new(bytes);
    let mut count = 0;
    while let Some(item) = frames.next() {
        count += 1;
        assert!(count <= bytes.len(), "more frames than bytes");
        match item {
            Ok(frame) => frame_round_trip(&frame),
            Err(Malformed::Truncated | Malformed::Field(_) | Malformed::UnknownType(_)) => {
                assert!(frames.next().is_none(), "read on after an error");
            }
        }
    }
}

fn frame_round_trip(frame: &Frame<'_>) {
    if let Frame::Ack(ack) = frame {
        assert!(!ack.ranges.is_empty());
        for pair in ack.ranges.windows(2) {
            assert!(pair[0].start() > &(pair[1].end() + 1), "ranges touch, overlap or rise: {ack:?}");
        }
        assert!(ack.ranges.iter().all(|range| range.start() <= range.end()));
    }
    let mut written = Vec::new();
    frame.put(&mut written);
    let mut again = Frames::new(&written);
    assert_eq!(again.next(), Some(Ok(frame.clone())));
    assert_eq!(again.next(), None);
}

/// The announcement in the entries of a TXT record (RFC 6763 section 6.1).
pub fn announcement_in(bytes: &[u8]) -> Option<Announcement> {
    let (mut entries, mut rest) = (Vec::new(), bytes);
    while let Some((length, following)) = rest.split_first() {
        let Some((entry, following)) = following.split_at_checked(usize::from(*length)) else { break };
        let equals = entry.iter().position(|byte| *byte == b'=');
        if let Some((name, value)) = equals.and_then(|at| Some((entry.get(..at)?, entry.get(at + 1..)?))) {
            entries.push((name, value));
        }
        rest = following;
    }
    let value = |name: &str| {
        let found = entries.iter().find(|(known, _)| *known == name.as_bytes());
        found.map(|(_, value)| *value)
    };
    Announcement::read(&value)
}

/// An announcement that is accepted is read again from what it is written as.
pub fn announcement(bytes: &[u8]) {
    let Some(told) = announcement_in(bytes) else { return };
    let written = told.values();
    let again = |name: &str| {
        let found = written.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_slice())
    };
    assert_eq!(Announcement::read(&again), Some(told));
}

/// An announcement over Bluetooth is written as it was read; what is in place of the sealed part leads somewhere or nowhere.
pub fn short_announcement(bytes: &[u8]) {
    if let Some(served) = std::str::from_utf8(bytes).ok().and_then(Served::of_uuid) {
        assert_eq!(Served::of_word(served.word()), Some(served));
    }
    let Some(told) = ShortAnnouncement::read(bytes) else { return };
    assert_eq!(told.data(), bytes);
    if let Some((place, _)) = told.sealed.split_first_chunk()
        && let Some(PeerAddress::Bluetooth { device, port }) = parse_place(*place)
    {
        assert_eq!(encode_place(device, port), *place);
    }
}

/// What members of a group tell each other means the same after it was written and read again.
pub fn group(bytes: &[u8]) {
    if let Ok(entry) = group::Entry::parse(bytes) {
        assert_eq!(entry.encode(), bytes);
    }
    if let Ok(told) = group::Told::parse(bytes) {
        assert_eq!(told.encode(), bytes);
    }
    if let Ok((salt, sealed)) = group::sealed(bytes) {
        let mut written = Vec::new();
        group::put_sealed(&mut written, &salt, sealed);
        assert_eq!(written, bytes);
    }
}

/// Handshake payloads that are accepted mean the same after they were written and read again.
pub fn hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::parse(bytes) {
        assert_eq!(Hello::parse(&hello.encode()), Ok(hello));
    }
    if let Ok(reply) = Reply::parse(bytes) {
        assert_eq!(Reply::parse(&reply.encode()), Ok(reply));
    }
}

/// Requests inside a session that are accepted mean the same after they were written and read again.
pub fn request(bytes: &[u8]) {
    if let Ok(Some(request)) = Request::parse(bytes) {
        assert_eq!(Request::parse(&request.encode()), Ok(Some(request)));
    }
}

/// A join link that is accepted means the same after it was written and read again; so does an address.
pub fn join_link(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match JoinLink::parse(&text) {
        Ok(link) => {
            let written = link.encode();
            assert_eq!(written.and_then(|text| JoinLink::parse(&text)), Ok(link));
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if let Ok(address) = HostPort::parse_with_default(&text, NonZeroU16::MIN) {
        assert_eq!(HostPort::parse_with_default(&address.to_string(), NonZeroU16::MAX), Ok(address));
    }
}

/// Headers stay inside the packet; marking and clamping change what they say and nothing else.
pub fn inner(bytes: &[u8]) {
    let mut clamped = bytes.to_vec();
    let parsed = inner::parse(bytes);
    let Ok(headers) = parsed else {
        // Must not panic even on what is no packet.
        inner::mark_ce(&mut clamped);
        return;
    };
    assert!(headers.payload_len <= bytes.len());
    if let Some(offset) = headers.transport_offset {
        assert!(offset + headers.payload_len <= bytes.len());
    }
    inner::clamp_segment_size(&mut clamped, &headers, 1_200);
    assert_eq!(clamped.len(), bytes.len());
    assert_eq!(inner::parse(&clamped), parsed, "clamping changed a header");
    assert!(!inner::clamp_segment_size(&mut clamped, &headers, 1_200), "clamped twice");

    let mut marked = bytes.to_vec();
    let was_marked = inner::mark_ce(&mut marked);
    assert_eq!(was_marked, headers.ecn != Ecn::NotEct);
    let ecn = if was_marked { Ecn::Ce } else { headers.ecn };
    assert_eq!(
        inner::parse(&marked),
        Ok(inner::Headers { ecn, ..headers }),
        "marking changed more than the mark"
    );
}

/// A datagram of a neighbour that is accepted, on the link or after it was opened, is written back as the same bytes.
pub fn neighbour(bytes: &[u8]) {
    match neighbour::Datagram::parse(bytes) {
        Ok(neighbour::Datagram::Beacon(beacon)) => {
            let tags: Vec<_> = beacon.tags().copied().collect();
            assert!(tags.len() <= neighbour::MAX_TAGS);
            assert_eq!(neighbour::encode_beacon(beacon.nonce, &tags), bytes);
        }
        Ok(neighbour::Datagram::Sealed { salt, bytes: sealed }) => {
            assert_eq!(neighbour::encode_sealed(salt, sealed), bytes);
        }
        Err(_) => {}
    }
    if let Ok(Some(message)) = neighbour::Message::parse(bytes) {
        assert_eq!(message.encode(), bytes);
    }
}

/// A message of a mesh that is accepted is written back as the same bytes, and a relay's change leaves what is signed.
pub fn mesh(bytes: &[u8]) {
    let Ok(message) = mesh::Message::parse(bytes) else { return };
    assert!(mesh::is_mesh(bytes));
    let written = match message {
        mesh::Message::Data(header, payload) => {
            let mut written = Vec::new();
            header.put(&mut written);
            assert_eq!(written.len(), mesh::DATA_HEADER_LEN);
            written.extend_from_slice(payload);
            written
        }
        mesh::Message::Request(request) => {
            let passed_on = mesh::Request { hop_count: !request.hop_count, ..request.clone() };
            assert_eq!(request.signed_bytes(), passed_on.signed_bytes());
            request.encode()
        }
        mesh::Message::Reply(reply) => {
            let passed_on = mesh::Reply { hop_count: !reply.hop_count, ..reply.clone() };
            assert_eq!(reply.signed_bytes(), passed_on.signed_bytes());
            reply.encode()
        }
        mesh::Message::Error(error) => error.encode(),
        mesh::Message::Hello(hello) => hello.encode(),
    };
    assert_eq!(written, bytes);
}

/// What peers tell each other means the same after it was written back.
pub fn peer(bytes: &[u8]) {
    if let Ok(greeting) = peer::Greeting::parse(bytes) {
        assert_eq!(peer::Greeting::parse(&greeting.encode()), Ok(greeting));
    }
    if let Ok(answer) = peer::Answer::parse(bytes) {
        assert_eq!(answer.encode(), bytes);
    }
    if let Ok(Some(adapters)) = peer::Adapters::parse(bytes) {
        assert!(adapters.adapters.len() <= peer::MAX_ADAPTERS);
        assert_eq!(peer::Adapters::parse(&adapters.encode()), Ok(Some(adapters)));
    }
    if let Ok(Some(further)) = peer::FurtherAdapters::parse(bytes) {
        assert!(further.adapters.len() <= peer::MAX_ADAPTERS);
        assert_eq!(peer::FurtherAdapters::parse(&further.encode()), Ok(Some(further)));
    }
}

/// Whatever is translated becomes whole packets of the other kind that are no longer than allowed, and an error to its sender is one
/// that is not answered by another.
pub fn translation(bytes: &[u8]) {
    const MTU: u16 = 1_280;
    let prefix = |text: &str, length| text.parse().ok().and_then(|address| Prefix::new(address, length));
    // The length of the far prefix is taken from the packet, so that all are tried.
    let length = Prefix::LENGTHS[usize::from(bytes.last().copied().unwrap_or(0)) % Prefix::LENGTHS.len()];
    let (Some(own), Some(far)) = (prefix("fd61:6e61:6272::", 96), prefix("2001:db8::", length)) else {
        return;
    };
    let translator = Translator { own, far };
    let mut pieces = 0;
    let outcome = translator.to_v6(bytes, MTU, &mut |packet| {
        pieces += 1;
        assert!(packet.len() <= usize::from(MTU));
        assert_eq!(packet.first().map(|first| first >> 4), Some(6));
        assert!(inner::parse(packet).is_ok(), "not a whole packet");
    });
    assert_eq!(outcome.is_ok(), pieces > 0);
    if let Ok(packet) = translator.to_v4(bytes) {
        assert_eq!(packet.first(), Some(&0x45));
        assert!(inner::parse(&packet).is_ok(), "not a whole packet");
    }
    if let Some(error) = translator.too_long(bytes, MTU) {
        assert!(inner::parse(&error).is_ok() && error.len() <= 576);
        assert_eq!(translator.too_long(&error, MTU), None);
    }
}

/// Frames and messages of an upload are written back as bytes that mean the same; runs rise and keep apart.
pub fn upload(bytes: &[u8]) {
    if let Ok(frame) = upload::AirFrame::parse(bytes) {
        let mut written = Vec::new();
        frame.header.put(&mut written);
        written.extend(frame.sealed);
        assert_eq!(frame.authenticated, written);
        written.extend(frame.authenticator);
        assert_eq!(bytes, written);
    }
    if let Ok(message) = upload::roles::RoleMessage::parse(bytes) {
        assert!(upload::roles::RoleMessage::parse(&message.encode()) == Ok(message));
    }
    let Ok(message) = upload::Message::parse(bytes) else { return };
    let runs: Vec<&upload::Runs> = match &message {
        upload::Message::Report(report) => vec![&report.heard],
        upload::Message::Grant(grant) => {
            vec![&grant.carry, &grant.stored, &grant.withdrawn, &grant.forget, &grant.repeat]
        }
        upload::Message::Feedback(told) => vec![&told.stored, &told.held, &told.lost, &told.spare],
        _ => Vec::new(),
    };
    for runs in runs {
        assert!(runs.len() <= upload::MAX_RUNS);
        assert!(runs.windows(2).all(|pair| u64::from(pair[0].last().0) + 1 < u64::from(pair[1].first().0)));
    }
    assert_eq!(upload::Message::parse(&message.encode()), Ok(message));
}
