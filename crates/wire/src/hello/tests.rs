use proptest::prelude::*;

use super::*;

fn hello() -> Hello {
    Hello {
        name: Name::new("van").unwrap(),
        secret: Some(InvitationSecret(*b"sixteen byte key")),
        features: Features(0x0102_0304),
        treatment: DefaultTreatment::Bonded,
    }
}

fn welcome() -> Welcome {
    Welcome {
        name: Name::new("gw").unwrap(),
        features: Features(1),
        v4: Some(Prefixed { address: Ipv4Addr::new(10, 86, 0, 2), prefix: 16 }),
        v6: Some(Prefixed { address: "fd00::2".parse().unwrap(), prefix: 64 }),
        dns: ["10.86.0.1".parse().unwrap(), "fd00::1".parse().unwrap()].into_iter().collect(),
        mtu: 1_420,
    }
}

#[test]
fn the_wanted_treatment_stands_last_and_an_unknown_one_is_none() {
    let protected = Hello { treatment: DefaultTreatment::Protected, ..hello() };
    let bytes = protected.encode();
    assert_eq!(bytes[bytes.len() - 3..], [9, 1, 2]);
    assert_eq!(Hello::parse(&bytes).unwrap(), protected);
    let unknown = [&bytes[..bytes.len() - 1], &[200]].concat();
    assert_eq!(Hello::parse(&unknown).unwrap(), hello());
    let twice = [&bytes[..], &[9, 1, 2]].concat();
    assert_eq!(Hello::parse(&twice), Err(HelloError::Repeated(9)));
}

#[test]
fn hello_bytes_are_as_drawn() {
    let mut expected = vec![1, 1, 3, b'v', b'a', b'n', 2, 16];
    expected.extend(b"sixteen byte key");
    expected.extend([3, 4, 1, 2, 3, 4]);
    assert_eq!(hello().encode(), expected);
    assert_eq!(Hello::parse(&expected).unwrap(), hello());
}

#[test]
fn refusal_bytes_are_as_drawn() {
    let bytes = Reply::Refusal(Refusal::InvitationUsed).encode();
    assert_eq!(bytes, [1, 1, 8, 1, 4]);
    assert_eq!(Reply::parse(&bytes).unwrap(), Reply::Refusal(Refusal::InvitationUsed));
    assert_eq!(Reply::parse(&[1, 1, 8, 1, 200]).unwrap(), Reply::Refusal(Refusal::Other(200)));
}

#[test]
fn unknown_fields_are_skipped_unless_essential() {
    let mut bytes = hello().encode();
    bytes.extend([0x70, 2, 9, 9]);
    assert_eq!(Hello::parse(&bytes).unwrap(), hello());
    bytes.extend([0xf0, 0]);
    assert_eq!(Hello::parse(&bytes), Err(HelloError::Essential(0xf0)));
}

#[test]
fn names_each_fault() {
    let missing_name = [1, 3, 4, 0, 0, 0, 0];
    assert_eq!(Hello::parse(&missing_name), Err(HelloError::Missing(1)));
    assert_eq!(Hello::parse(&[]), Err(HelloError::Truncated));
    assert_eq!(Hello::parse(&[2, 1, 1, b'a']), Err(HelloError::Version(2)));
    assert_eq!(Hello::parse(&[1, 1, 1, b'a', 1, 1, b'b']), Err(HelloError::Repeated(1)));
    assert_eq!(Hello::parse(&[1, 1, 1, b'a', 2, 3, 1, 2, 3]), Err(HelloError::Value(2)));
    assert_eq!(Hello::parse(&[1, 1, 2, b'a', b'\n']), Err(HelloError::Name));
    assert_eq!(Hello::parse(&[1, 1, 1, 0xff]), Err(HelloError::Name));
    assert_eq!(Hello::parse(&[1; MAX_HELLO_LENGTH + 1]), Err(HelloError::TooLong));
    assert_eq!(Reply::parse(&[1, 5]), Err(HelloError::Sort(5)));
    assert_eq!(Reply::parse(&[1, 1]), Err(HelloError::Missing(8)));

    let change = |edit: fn(&mut Welcome)| {
        let mut changed = welcome();
        edit(&mut changed);
        Reply::parse(&Reply::Welcome(changed).encode())
    };
    assert_eq!(change(|welcome| welcome.mtu = 1_279), Err(HelloError::Value(7)));
    assert_eq!(change(|welcome| welcome.v4.as_mut().unwrap().prefix = 33), Err(HelloError::Value(4)));
    assert_eq!(change(|welcome| welcome.v6.as_mut().unwrap().prefix = 129), Err(HelloError::Value(5)));
    assert_eq!(change(|welcome| (welcome.v4, welcome.v6) = (None, None)), Err(HelloError::Missing(4)));
    let mut crowded = Reply::Welcome(welcome()).encode();
    for _ in 0..3 {
        crowded.extend([6, 4, 9, 9, 9, 9]);
    }
    assert_eq!(Reply::parse(&crowded), Err(HelloError::Repeated(6)));
}

#[test]
fn the_largest_messages_fit() {
    let longest = Name::new(&"n".repeat(MAX_NAME)).unwrap();
    assert!(Hello { name: longest.clone(), ..hello() }.encode().len() <= MAX_HELLO_LENGTH);
    let dns = std::iter::repeat_n("fd00::1".parse().unwrap(), MAX_DNS_SERVERS).collect();
    let full = Reply::Welcome(Welcome { name: longest, dns, ..welcome() });
    assert!(full.encode().len() <= MAX_HELLO_LENGTH);
    assert_eq!(Reply::parse(&full.encode()).unwrap(), full);
}

fn any_name() -> impl Strategy<Value = Name> {
    "[a-zA-Zäß0-9][a-z ßü.-]{0,20}[a-z0-9]".prop_map(|text| Name::new(&text).unwrap())
}

prop_compose! {
    fn any_welcome()(
        name in any_name(),
        features in any::<u32>(),
        v4 in (any::<[u8; 4]>(), 0u8..=32),
        v6 in prop::option::of((any::<[u8; 16]>(), 0u8..=128)),
        dns in prop::collection::vec(any::<IpAddr>(), 0..=MAX_DNS_SERVERS),
        mtu in MIN_MTU..,
    ) -> Welcome {
        Welcome {
            name,
            features: Features(features),
            v4: Some(Prefixed { address: v4.0.into(), prefix: v4.1 }),
            v6: v6.map(|(octets, prefix)| Prefixed { address: octets.into(), prefix }),
            dns: dns.into_iter().collect(),
            mtu,
        }
    }
}

proptest! {
    #[test]
    fn any_hello_comes_back(name in any_name(), secret in any::<Option<[u8; 16]>>(), features in any::<u32>(), code in any::<u8>()) {
        let treatment = DefaultTreatment::from_code(code);
        let hello = Hello { name, secret: secret.map(InvitationSecret), features: Features(features), treatment };
        prop_assert_eq!(Hello::parse(&hello.encode()).unwrap(), hello);
    }

    #[test]
    fn any_welcome_comes_back(welcome in any_welcome()) {
        let reply = Reply::Welcome(welcome);
        prop_assert_eq!(Reply::parse(&reply.encode()).unwrap(), reply);
    }

    #[test]
    fn any_refusal_comes_back(code in any::<u8>()) {
        let reply = Reply::Refusal(Refusal::from_code(code));
        prop_assert_eq!(Reply::parse(&reply.encode()).unwrap(), reply);
    }

    #[test]
    fn cuts_and_noise_never_panic(welcome in any_welcome(), cut in any::<prop::sample::Index>(), noise in prop::collection::vec(any::<u8>(), 0..600)) {
        let bytes = Reply::Welcome(welcome).encode();
        prop_assert!(Reply::parse(&bytes[..cut.index(bytes.len())]).is_err());
        let _ = Reply::parse(&noise);
        let _ = Hello::parse(&noise);
        let _ = Hello::parse(&[&[VERSION][..], &noise].concat());
        let _ = Reply::parse(&[&[VERSION, WELCOME][..], &noise].concat());
    }
}
