use proptest::prelude::*;

use super::*;

fn port(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}

fn example() -> JoinLink {
    JoinLink {
        kind: InvitationKind::Gateway,
        public_key: std::array::from_fn(|index| index as u8),
        addresses: ["192.0.2.7:4600", "[2001:db8::7]:4600", "gw.example.org:443"]
            .iter()
            .map(|text| text.parse().unwrap())
            .collect(),
        tcp_port: Some(port(443)),
        secret: InvitationSecret(*b"sixteen byte key"),
        expires: UnixSeconds(1_800_000_000),
    }
}

fn bytes_of(link: &JoinLink) -> Vec<u8> {
    BASE64URL_NOPAD.decode(link.encode().unwrap().strip_prefix(LINK_PREFIX).unwrap().as_bytes()).unwrap()
}

fn text_of(bytes: &[u8]) -> String {
    format!("{LINK_PREFIX}{}", BASE64URL_NOPAD.encode(bytes))
}

/// Replaces the checksum by the right one.
fn resealed(mut bytes: Vec<u8>) -> String {
    bytes.truncate(bytes.len() - CHECKSUM_LENGTH);
    let checksum = crc32(&bytes);
    bytes.extend(checksum.to_be_bytes());
    text_of(&bytes)
}

#[test]
fn checksum_is_the_standard_one() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}

#[test]
fn bytes_stand_where_the_drawing_says() {
    let bytes = bytes_of(&example());
    assert_eq!(bytes[..2], [1, 0]);
    assert_eq!(bytes[2..34], example().public_key);
    assert_eq!(&bytes[34..50], b"sixteen byte key");
    assert_eq!(bytes[50..58], 1_800_000_000u64.to_be_bytes());
    assert_eq!(bytes[58..61], [1, 187, 3]);
    assert_eq!(bytes[61..68], [4, 192, 0, 2, 7, 0x11, 0xf8]);
    assert_eq!(bytes.len(), 61 + 7 + 19 + 18 + 4);
}

#[test]
fn reads_what_it_wrote_even_wrapped() {
    let text = example().encode().unwrap();
    assert_eq!(JoinLink::parse(&text).unwrap(), example());
    let wrapped = format!("  {}\n   {}\r\n", &text[..60], &text[60..]);
    assert_eq!(JoinLink::parse(&wrapped).unwrap(), example());
}

#[test]
fn every_cut_is_called_a_cut() {
    let bytes = bytes_of(&example());
    for length in 0..bytes.len() {
        assert_eq!(JoinLink::parse(&text_of(&bytes[..length])), Err(JoinLinkError::Truncated), "{length}");
    }
}

#[test]
fn names_each_fault() {
    let good = example().encode().unwrap();
    assert_eq!(JoinLink::parse("https://example.org/"), Err(JoinLinkError::NotALink));
    assert_eq!(JoinLink::parse(&good.replacen("join/", "join/*", 1)), Err(JoinLinkError::Character(1)));
    assert_eq!(JoinLink::parse(&" ".repeat(MAX_LINK_TEXT + 1)), Err(JoinLinkError::TooLong));

    let bytes = bytes_of(&example());
    let with = |offset: usize, value: u8| {
        let mut changed = bytes.clone();
        changed[offset] = value;
        changed
    };
    assert_eq!(JoinLink::parse(&text_of(&with(0, 9))), Err(JoinLinkError::Version(9)));
    assert_eq!(JoinLink::parse(&text_of(&with(20, 0))), Err(JoinLinkError::Checksum));
    assert_eq!(JoinLink::parse(&resealed(with(1, 7))), Err(JoinLinkError::Kind(7)));
    assert_eq!(JoinLink::parse(&resealed(with(60, 0))), Err(JoinLinkError::AddressCount(0)));
    assert_eq!(JoinLink::parse(&resealed(with(60, 1))), Err(JoinLinkError::Trailing(37)));
    assert_eq!(JoinLink::parse(&resealed(with(61, 9))), Err(JoinLinkError::Address));
    let mut long = bytes.clone();
    long.splice(bytes.len() - 4..bytes.len() - 4, [0; 5]);
    assert_eq!(JoinLink::parse(&resealed(long)), Err(JoinLinkError::Trailing(5)));
}

#[test]
fn too_many_addresses_are_refused_by_the_writer() {
    let address = example().addresses[0].clone();
    let link = JoinLink { addresses: vec![address; MAX_ADDRESSES + 1], ..example() };
    assert_eq!(link.encode(), Err(JoinLinkError::AddressCount(9)));
    assert_eq!(JoinLink { addresses: vec![], ..example() }.encode(), Err(JoinLinkError::AddressCount(0)));
}

#[test]
fn addresses_with_and_without_port() {
    let parse = |text| HostPort::parse_with_default(text, port(4600)).map(|address| address.to_string());
    assert_eq!(parse("192.0.2.1").unwrap(), "192.0.2.1:4600");
    assert_eq!(parse("192.0.2.1:99").unwrap(), "192.0.2.1:99");
    assert_eq!(parse("2001:db8::1").unwrap(), "[2001:db8::1]:4600");
    assert_eq!(parse("[2001:db8::1]").unwrap(), "[2001:db8::1]:4600");
    assert_eq!(parse("[2001:db8::1]:5").unwrap(), "[2001:db8::1]:5");
    assert_eq!(parse("gw.example.org").unwrap(), "gw.example.org:4600");
    for wrong in
        ["", ":5", "a b", "host:0", "host:65536", "host:port", "[::1", "[::1]5", "1.2.3", "a..b", "é"]
    {
        assert!(parse(wrong).is_err(), "{wrong}");
    }
    for without_port in ["192.0.2.1", "2001:db8::1", "[::1]", "name"] {
        assert_eq!(without_port.parse::<HostPort>(), Err(JoinLinkError::Address), "{without_port}");
    }
}

#[test]
fn debug_hides_the_secret() {
    let shown = format!("{:?}", example());
    assert!(shown.contains("InvitationSecret(..)"));
    assert!(!shown.contains("115, 105, 120"));
}

#[test]
fn bluetooth_addresses_need_no_port_and_no_others_are_taken_for_them() {
    let read = |text: &str| HostPort::parse_with_default(text, port(7));
    assert_eq!(read("bt:00:11:22:33:44:5F").unwrap().to_string(), "bt:00:11:22:33:44:5f:7");
    assert_eq!(read("bt:00:11:22:33:44:5f:9").unwrap().port, port(9));
    assert!(read("bt:00:11:22:33:44").is_err() && read("bt:00:11:22:33:44:5f:0").is_err());
    assert_eq!(read("bt:80").unwrap().host, Host::Name(HostName::new("bt").unwrap()), "as before");
    for name in
        ["00112233445g.bluetooth.invalid", "0011223344.bluetooth.invalid", "é0112233445.bluetooth.invalid"]
    {
        assert_eq!(bluetooth_of(name), None, "{name}");
    }
    assert!(bluetooth_of("00112233445f.bluetooth.invalid").is_some());
}

fn any_host_port() -> impl Strategy<Value = HostPort> {
    let host = prop_oneof![
        any::<[u8; 4]>().prop_map(|octets| Host::Address(IpAddr::from(octets))),
        any::<[u8; 16]>().prop_map(|octets| Host::Address(IpAddr::from(octets))),
        "[a-z][a-z0-9-]{0,20}(\\.[a-z0-9]{1,10}){0,3}"
            .prop_map(|name| Host::Name(HostName::new(&name).unwrap())),
        any::<[u8; 6]>().prop_map(|device| Host::Bluetooth(units::MacAddress(device))),
    ];
    (host, 1u16..).prop_map(|(host, number)| HostPort { host, port: port(number) })
}

prop_compose! {
    fn any_link()(
        kind in prop::sample::select(vec![InvitationKind::Gateway, InvitationKind::Peer, InvitationKind::Neighbour, InvitationKind::Group]),
        public_key in any::<[u8; 32]>(),
        addresses in prop::collection::vec(any_host_port(), 1..=MAX_ADDRESSES),
        tcp in any::<u16>(),
        secret in any::<[u8; 16]>(),
        expires in any::<u64>(),
    ) -> JoinLink {
        JoinLink {
            kind,
            public_key,
            addresses,
            tcp_port: NonZeroU16::new(tcp),
            secret: InvitationSecret(secret),
            expires: UnixSeconds(expires),
        }
    }
}

proptest! {
    #[test]
    fn any_link_comes_back(link in any_link()) {
        prop_assert_eq!(JoinLink::parse(&link.encode().unwrap()).unwrap(), link);
    }

    #[test]
    fn any_address_text_comes_back(address in any_host_port()) {
        prop_assert_eq!(address.to_string().parse::<HostPort>().unwrap(), address);
    }

    #[test]
    fn a_flipped_bit_is_noticed(link in any_link(), position in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = bytes_of(&link);
        let index = position.index(bytes.len());
        bytes[index] ^= 1 << bit;
        prop_assert!(JoinLink::parse(&text_of(&bytes)).is_err());
    }

    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = JoinLink::parse(&text_of(&bytes));
        let mut versioned = bytes;
        if let Some(first) = versioned.first_mut() {
            *first = VERSION;
        }
        let _ = JoinLink::parse(&text_of(&versioned));
    }

    #[test]
    fn random_text_never_panics(text in ".{0,200}") {
        let _ = JoinLink::parse(&text);
        let _ = text.parse::<HostPort>();
        let _ = HostPort::parse_with_default(&text, port(1));
    }
}
