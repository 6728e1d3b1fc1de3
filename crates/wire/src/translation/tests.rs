use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::*;

const HERE: Ipv4Addr = Ipv4Addr::new(10, 99, 0, 1);
const THERE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 9);
const MTU: u16 = 1_500;

fn translator() -> Translator {
    let prefix = |text: &str| Prefix::new(text.parse().unwrap(), 96).unwrap();
    Translator { own: prefix("fd61:6e61:6272::"), far: prefix("64:ff9b::") }
}

/// An IPv4 packet with right checksums; `flags` are its third pair of octets.
fn v4(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, flags: u16, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0x28];
    packet.extend(((20 + body.len()) as u16).to_be_bytes());
    packet.extend([0x12, 0x34]);
    packet.extend(flags.to_be_bytes());
    packet.extend([61, protocol, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let checksum = checksum::of(checksum::sum(&packet));
    set_word(&mut packet, 10, checksum);
    packet.extend(body);
    packet
}

fn v6(source: Ipv6Addr, destination: Ipv6Addr, next: u8, body: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x62, 0x80, 0, 0];
    packet.extend((body.len() as u16).to_be_bytes());
    packet.extend([next, 61]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(body);
    packet
}

/// The transport checksum made anew, over everything: for a right one the sum is 0xffff.
fn total(addresses: &[u8], protocol: u8, body: &[u8]) -> u16 {
    checksum::fold(checksum::sum(addresses) + u32::from(protocol) + body.len() as u32 + checksum::sum(body))
}

fn total_v4(packet: &[u8]) -> u16 {
    total(&packet[12..20], packet[9], &packet[20..])
}

fn total_v6(packet: &[u8]) -> u16 {
    total(&packet[8..40], packet[6], &packet[40..])
}

/// A TCP or UDP segment with the checksum that IPv4 wants.
fn segment(source: Ipv4Addr, destination: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let (length, at) = if protocol == TCP { (20, 16) } else { (8, 6) };
    let mut body = vec![0; length];
    body[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
    if protocol == TCP {
        body[12] = 0x50;
    } else {
        body[4..6].copy_from_slice(&((length + payload.len()) as u16).to_be_bytes());
    }
    body.extend(payload);
    let addresses = [source.octets(), destination.octets()].concat();
    let checksum = !total(&addresses, protocol, &body);
    set_word(&mut body, at, if checksum == 0 { 0xffff } else { checksum });
    body
}

fn echo(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, 0, 7, 0, 1];
    body.extend(payload);
    let checksum = checksum::of(checksum::sum(&body));
    set_word(&mut body, 2, checksum);
    body
}

fn to_v6(packet: &[u8], mtu: u16) -> Result<Vec<Vec<u8>>, Untranslated> {
    let mut packets = Vec::new();
    translator().to_v6(packet, mtu, &mut |packet| packets.push(packet.to_vec()))?;
    Ok(packets)
}

fn only(packet: &[u8]) -> Vec<u8> {
    let mut all = to_v6(packet, MTU).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

/// The packet that the far side would send if it sent back what it got.
fn returned(packet: &[u8]) -> Vec<u8> {
    let mut back = packet.to_vec();
    let embedded = |range: std::ops::Range<usize>| Ipv4Addr::from(*packet[range].first_chunk::<4>().unwrap());
    let translator = translator();
    let (source, destination) = (embedded(36..40), embedded(20..24));
    back[8..24].copy_from_slice(&translator.far.embed(source).octets());
    back[24..40].copy_from_slice(&translator.own.embed(destination).octets());
    back
}

/// RFC 6052 section 2.4, table 2.
#[test]
fn published_prefixes() {
    let address = Ipv4Addr::new(192, 0, 2, 33);
    for (prefix, length, expected) in [
        ("2001:db8::", 32, "2001:db8:c000:221::"),
        ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
        ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
        ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
        ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
        ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
    ] {
        let prefix = Prefix::new(prefix.parse().unwrap(), length).unwrap();
        let embedded: Ipv6Addr = expected.parse().unwrap();
        assert_eq!(prefix.embed(address), embedded, "/{length}");
        assert_eq!(prefix.extract(embedded), Some(address), "/{length}");
        assert_eq!(Prefix::around(embedded, &[HERE, address]), Some(prefix), "/{length}");
        assert_eq!(prefix.extract("2001:db9::1".parse().unwrap()), None);
    }
    assert_eq!(Prefix::around("2001:db8::1".parse().unwrap(), &[address]), None);
    assert_eq!(Prefix::new(Ipv6Addr::UNSPECIFIED, 95), None);
}

/// By hand: every field of both headers.
#[test]
fn a_header_by_hand() {
    let packet = v4(HERE, THERE, TCP, 0x4000, &segment(HERE, THERE, TCP, b"hello"));
    let sent = only(&packet);
    assert_eq!(sent[..8], [0x62, 0x80, 0, 0, 0, 25, TCP, 61], "class 0x28, 25 bytes, hop limit as it was");
    assert_eq!(sent[8..24], "fd61:6e61:6272::10.99.0.1".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(sent[24..40], "64:ff9b::198.51.100.9".parse::<Ipv6Addr>().unwrap().octets());
    assert_eq!(total_v6(&sent), 0xffff);
    assert_eq!(&sent[sent.len() - 5..], b"hello");
}

#[test]
fn echoes_change_their_type_and_keep_the_rest() {
    let sent = only(&v4(HERE, THERE, ICMP_V4, 0, &echo(8, b"abcde")));
    assert_eq!(
        (sent[6], sent[40], &sent[44..]),
        (ICMP_V6, 128, &[0, 7, 0, 1, b'a', b'b', b'c', b'd', b'e'][..])
    );
    assert_eq!(total_v6(&sent), 0xffff);
    let mut answer = returned(&sent);
    answer[40] = 129;
    set_word(&mut answer, 42, 0);
    let checksum = !total_v6(&answer);
    set_word(&mut answer, 42, checksum);
    let back = translator().to_v4(&answer).unwrap();
    assert_eq!((back[9], back[20], &back[24..]), (ICMP_V4, 0, &sent[44..]));
    assert_eq!(checksum::fold(checksum::sum(&back[20..])), 0xffff);
}

/// A router on the way that has no IPv4 says that a packet of ours is too big.
#[test]
fn too_big_finds_its_way_back_to_the_sender() {
    let packet = v4(HERE, THERE, TCP, 0x4000, &segment(HERE, THERE, TCP, &[7; 1_400]));
    let sent = only(&packet);
    let mut message = vec![2, 0, 0, 0, 0, 0, 0x05, 0x14];
    message.extend(&sent[..600]);
    let own: Ipv6Addr = "fd61:6e61:6272::10.99.0.1".parse().unwrap();
    let back = translator().to_v4(&v6("2001:db8::1".parse().unwrap(), own, ICMP_V6, &message)).unwrap();
    assert_eq!(back[12..20], [192, 0, 0, 8, 10, 99, 0, 1]);
    assert_eq!(back[20..22], [3, 4]);
    assert_eq!(word(&back, 26), Some(1_300 - 28));
    assert_eq!(checksum::fold(checksum::sum(&back[20..])), 0xffff);
    // The quoted packet is the one that was sent, as far as it goes; but for its identification, which IPv6 has not.
    let quoted = &back[28..];
    assert_eq!(quoted[..4], packet[..4]);
    assert_eq!(quoted[6..10], packet[6..10]);
    assert_eq!(quoted[12..], packet[12..quoted.len()]);
    // Nothing but errors may come from there.
    let data = v6("2001:db8::1".parse().unwrap(), own, UDP, &[0, 1, 0, 2, 0, 8, 1, 1]);
    assert_eq!(translator().to_v4(&data), Err(Untranslated::Address));
    // A path of less than IPv6 allows is one of the least that it allows.
    message[6..8].copy_from_slice(&600u16.to_be_bytes());
    let back = translator().to_v4(&v6("2001:db8::1".parse().unwrap(), own, ICMP_V6, &message)).unwrap();
    assert_eq!(word(&back, 26), Some(1_280 - 28));
}

#[test]
fn errors_of_this_side_quote_what_had_come() {
    let came = v4(THERE, HERE, UDP, 0, &segment(THERE, HERE, UDP, b"question"));
    for (kind, code, expected) in [
        (3, 3, Some([1, 4])),
        (3, 1, Some([1, 0])),
        (3, 13, Some([1, 1])),
        (3, 2, Some([4, 1])),
        (3, 4, Some([2, 0])),
        (11, 0, Some([3, 0])),
        (12, 0, Some([4, 0])),
        (4, 0, None),
        (5, 1, None),
        (13, 0, None),
    ] {
        let mut message = vec![kind, code, 0, 0, 0, 0, 0x05, 0x78];
        message.extend(&came);
        let answer = to_v6(&v4(HERE, THERE, ICMP_V4, 0, &message), MTU);
        let Some(expected) = expected else {
            assert_eq!(answer, Err(Untranslated::NoCounterpart), "{kind}/{code}");
            continue;
        };
        let answer = answer.unwrap().remove(0);
        assert_eq!(answer[40..42], expected, "{kind}/{code}");
        assert_eq!(total_v6(&answer), 0xffff, "{kind}/{code}");
        if code == 4 {
            assert_eq!(answer[44..48], [0, 0, 0x05, 0x94], "1400 and 28");
        }
        let quoted = &answer[48..];
        assert_eq!(quoted[8..24], translator().far.embed(THERE).octets());
        assert_eq!(quoted[24..40], translator().own.embed(HERE).octets());
        assert_eq!(total_v6(quoted), 0xffff, "what had come had this checksum");
    }
}

#[test]
fn long_packets_are_cut_or_refused() {
    let body = segment(HERE, THERE, UDP, &[9; 3_000]);
    let kept = to_v6(&v4(HERE, THERE, UDP, 0x4000, &body), MTU);
    assert_eq!(kept, Err(Untranslated::TooLong { mtu: 1_472 }));
    let pieces = to_v6(&v4(HERE, THERE, UDP, 0, &body), MTU).unwrap();
    assert_eq!(pieces.len(), 3);
    let mut whole = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        assert!(piece.len() <= usize::from(MTU) && piece[6] == FRAGMENT && piece[40] == UDP);
        let offset = word(piece, 42).unwrap();
        assert_eq!(usize::from(offset & !7), whole.len());
        assert_eq!(offset & 1 == 1, at < 2);
        assert_eq!(piece[44..48], [0, 0, 0x12, 0x34]);
        whole.extend(&piece[48..]);
    }
    assert_eq!(total(&pieces[0][8..40], UDP, &whole), 0xffff);
    // A fragment in the middle of a larger packet stays in the middle.
    let middle = to_v6(&v4(HERE, THERE, UDP, 0x2000 | 100, &[5; 1_464]), MTU).unwrap();
    let offsets: Vec<u16> = middle.iter().map(|piece| word(piece, 42).unwrap()).collect();
    assert_eq!(offsets, [801, 800 + 1_448 + 1]);
    assert_eq!(to_v6(&v4(HERE, THERE, UDP, 0x1fff, &[5; 60]), MTU), Err(Untranslated::Malformed));
}

#[test]
fn the_sender_of_a_long_packet_is_told() {
    let packet = v4(HERE, THERE, TCP, 0x4000, &segment(HERE, THERE, TCP, &[1; 3_000]));
    let told = translator().too_long(&packet, 1_472).unwrap();
    assert_eq!((&told[12..16], &told[16..20]), (&THERE.octets()[..], &HERE.octets()[..]));
    assert_eq!((&told[20..22], word(&told, 26)), (&[3, 4][..], Some(1_472)));
    assert_eq!(told[28..], packet[..548]);
    assert_eq!(checksum::fold(checksum::sum(&told[..20])), 0xffff);
    assert_eq!(checksum::fold(checksum::sum(&told[20..])), 0xffff);
    assert_eq!(translator().too_long(&told, 100), None, "never about an error");
}

#[test]
fn what_has_no_counterpart_is_not_translated() {
    let of = |protocol, flags, body: &[u8]| to_v6(&v4(HERE, THERE, protocol, flags, body), MTU);
    assert_eq!(
        of(ICMP_V4, 0x2000, &echo(8, &[0; 64])),
        Err(Untranslated::NoCounterpart),
        "a fragmented echo"
    );
    assert_eq!(of(ICMP_V6, 0, &[128; 20]), Err(Untranslated::NoCounterpart));
    assert_eq!(of(2, 0, &[0; 20]), Err(Untranslated::NoCounterpart), "IGMP");
    assert_eq!(of(UDP, 0x2000, &[0; 16]), Err(Untranslated::NoCounterpart), "a fragment without a checksum");
    for nowhere in ["224.0.0.1", "127.0.0.1", "0.0.0.0", "255.255.255.255", "169.254.1.1"] {
        let packet = v4(HERE, nowhere.parse().unwrap(), UDP, 0, &[0; 8]);
        assert_eq!(to_v6(&packet, MTU), Err(Untranslated::Address), "{nowhere}");
    }
    // A loose source route; the same header with "no operation" instead passes.
    let mut routed = v4(HERE, THERE, 132, 0, &[131, 3, 4, 0, 1, 2, 3, 4]);
    routed[0] = 0x46;
    assert_eq!(to_v6(&routed, MTU), Err(Untranslated::NoCounterpart));
    routed[20] = 1;
    assert!(to_v6(&routed, MTU).is_ok_and(|sent| sent[0][40..] == [1, 2, 3, 4]));
    let elsewhere = v6(Ipv6Addr::LOCALHOST, "fd61::1".parse().unwrap(), UDP, &[1; 8]);
    assert_eq!(translator().to_v4(&elsewhere), Err(Untranslated::Address));
    let own = translator().own.embed(HERE);
    let far = translator().far.embed(THERE);
    let solicitation = v6(far, own, ICMP_V6, &[135; 24]);
    assert_eq!(translator().to_v4(&solicitation), Err(Untranslated::NoCounterpart));
    let stations = v6(far, own, 43, &[UDP, 0, 0, 1, 0, 0, 0, 0, 1, 1, 1, 1, 0, 8, 1, 1]);
    assert_eq!(translator().to_v4(&stations), Err(Untranslated::NoCounterpart), "it has stations to visit");
}

#[test]
fn extension_headers_are_dropped() {
    let (own, far) = (translator().own.embed(HERE), translator().far.embed(THERE));
    let mut body = segment(THERE, HERE, UDP, b"x");
    let old = word(&body, 6).unwrap();
    let sum = |addresses: [&[u8]; 2]| checksum::sum(addresses[0]) + checksum::sum(addresses[1]);
    let new =
        checksum::updated(old, sum([&THERE.octets(), &HERE.octets()]), sum([&far.octets(), &own.octets()]));
    set_word(&mut body, 6, new);
    let mut extended = vec![60, 0, 1, 4, 0, 0, 0, 0, UDP, 0, 1, 4, 0, 0, 0, 0];
    extended.extend(&body);
    let back = translator().to_v4(&v6(far, own, 0, &extended)).unwrap();
    assert_eq!((back[9], back.len()), (UDP, 20 + body.len()));
    assert_eq!(total_v4(&back), 0xffff);
}

proptest! {
    /// There and back again is the same packet; checksums are right on the way.
    #[test]
    fn there_and_back(
        payload in proptest::collection::vec(any::<u8>(), 0..1_400),
        here in any::<[u8; 4]>(),
        there in any::<[u8; 4]>(),
        protocol in prop_oneof![Just(TCP), Just(UDP)],
    ) {
        let (here, there) = (Ipv4Addr::from(here), Ipv4Addr::from(there));
        let packet = v4(here, there, protocol, 0x4000, &segment(here, there, protocol, &payload));
        let Ok(sent) = to_v6(&packet, MTU) else { return Ok(()) };
        prop_assert_eq!(total_v6(&sent[0]), 0xffff);
        let back = translator().to_v4(&returned(&sent[0])).unwrap();
        prop_assert_eq!(total_v4(&back), 0xffff);
        prop_assert_eq!(checksum::fold(checksum::sum(&back[..20])), 0xffff);
        prop_assert_eq!(&back[20 + checksum_at(protocol).unwrap() + 2..], &packet[20 + checksum_at(protocol).unwrap() + 2..]);
        prop_assert_eq!(&back[12..16], &there.octets());
        prop_assert_eq!(&back[16..20], &here.octets());
        prop_assert_eq!(word(&back, 2), word(&packet, 2));
    }

    /// Fragments there and back again hold the same bytes at the same places.
    #[test]
    fn fragments_there_and_back(
        payload in proptest::collection::vec(any::<u8>(), 8..6_000),
        offset in 0u16..1_000,
        more: bool,
    ) {
        prop_assume!(offset > 0);
        let flags = offset | if more { 0x2000 } else { 0 };
        let payload = &payload[..if more { payload.len() / 8 * 8 } else { payload.len() }];
        let pieces = to_v6(&v4(HERE, THERE, UDP, flags, payload), 1_280).unwrap();
        let mut whole = Vec::new();
        for (at, piece) in pieces.iter().enumerate() {
            prop_assert!(piece.len() <= 1_280);
            let back = translator().to_v4(&returned(piece)).unwrap();
            let flags = word(&back, 6).unwrap();
            prop_assert_eq!(usize::from(flags & 0x1fff), usize::from(offset) + whole.len() / 8);
            prop_assert_eq!(flags & 0x2000 != 0, more || at + 1 < pieces.len());
            prop_assert_eq!(word(&back, 4), Some(0x1234));
            whole.extend_from_slice(&back[20..]);
        }
        prop_assert_eq!(&whole[..], payload);
    }
}
