//! Rules as their users see them.

use proptest::prelude::*;

use super::*;
use crate::FlowClass;

const FLOW: FlowFacts<'static> = FlowFacts {
    program: Some("/usr/bin/rsync"),
    cgroup: Some("/user.slice/backup.scope"),
    user: Some(UserId(1_000)),
    destination: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
    domains: &["files.example.org"],
    protocol: Protocol::TCP,
    port: 873,
    dscp: Dscp::of_traffic_class(0),
    class: Some(FlowClass::Bulk),
};

fn port(text: &str) -> Matcher {
    Matcher::Port(text.parse().unwrap())
}

fn program(text: &str) -> Matcher {
    Matcher::Program(text.parse().unwrap())
}

fn to(text: &str) -> Matcher {
    Matcher::Destination(text.parse().unwrap())
}

fn domain(text: &str) -> Matcher {
    Matcher::Domain(text.parse().unwrap())
}

fn direct(key: &str, matchers: Vec<Matcher>) -> Rule {
    Rule::new(key, matchers, Some(Treatment::Direct), None).unwrap()
}

fn rules(rules: Vec<Rule>) -> Rules {
    Rules::new(rules).unwrap()
}

/// RFC 4594 section 2.3 and RFC 8837 section 5, by their names.
#[test]
fn real_time_flows_are_known_by_code_point_or_class() {
    let plain = FlowFacts { dscp: Dscp::default(), class: None, ..FLOW };
    for name in ["ef", "cs3", "cs4", "cs5", "af41", "af42", "af43", "44"] {
        assert!(FlowFacts { dscp: name.parse().unwrap(), ..plain }.is_real_time(), "{name}");
    }
    for name in ["cs0", "cs1", "cs2", "cs6", "cs7", "le", "af11", "af21", "af31", "af33"] {
        assert!(!FlowFacts { dscp: name.parse().unwrap(), ..plain }.is_real_time(), "{name}");
    }
    for (class, expected) in
        [(FlowClass::RealTime, true), (FlowClass::Interactive, false), (FlowClass::Bulk, false)]
    {
        assert_eq!(FlowFacts { class: Some(class), ..plain }.is_real_time(), expected);
    }
}

#[test]
fn every_matcher_matches_and_misses() {
    for (matcher, expected) in [
        (program("rsync"), true),
        (program("/usr/bin/rsync"), true),
        (program("/bin/rsync"), false),
        (program("sync"), false),
        (program("cgroup:/user.slice"), true),
        (program("cgroup:/user.slice/backup.scope/"), true),
        (program("cgroup:/user.slice/back"), false),
        (program("cgroup:/"), true),
        (Matcher::User(UserId(1_000)), true),
        (Matcher::User(UserId(0)), false),
        (to("192.0.2.0/24"), true),
        (to("192.0.3.0/24"), false),
        (to("::/0"), false),
        (domain("*.example.org"), true),
        (domain("example.org"), false),
        (port("873"), true),
        (port("tcp/800-900"), true),
        (port("udp/873"), false),
        (port("tcp"), true),
        (port("udp"), false),
        (Matcher::Dscp("cs0".parse().unwrap()), true),
        (Matcher::Dscp("ef".parse().unwrap()), false),
        (Matcher::Class(FlowClass::Bulk), true),
        (Matcher::Class(FlowClass::RealTime), false),
    ] {
        assert_eq!(matcher.matches(&FLOW), expected, "{matcher}");
    }
}

#[test]
fn what_is_not_known_matches_nothing() {
    let unknown = FlowFacts { program: None, cgroup: None, user: None, domains: &[], class: None, ..FLOW };
    for matcher in [
        program("rsync"),
        program("cgroup:/"),
        Matcher::User(UserId(0)),
        domain("*.example.org"),
        Matcher::Class(FlowClass::Bulk),
    ] {
        assert!(!matcher.matches(&unknown), "{matcher}");
    }
}

#[test]
fn one_of_a_kind_and_all_kinds() {
    let rule = direct("web", vec![port("80"), port("873"), program("rsync")]);
    assert!(rule.matches(&FLOW));
    assert!(rule.matches(&FlowFacts { port: 80, ..FLOW }));
    assert!(!rule.matches(&FlowFacts { port: 81, ..FLOW }));
    assert!(!rule.matches(&FlowFacts { program: Some("/usr/bin/curl"), ..FLOW }));
    assert!(direct("all", vec![]).matches(&FLOW));
}

#[test]
fn the_first_match_decides_and_explains() {
    let networks =
        NetworkChoice { names: vec!["wlan0".into(), "wwan0".into()], strictness: Strictness::Only };
    let rules = rules(vec![
        direct("calls", vec![port("udp/3478")]),
        direct("work", vec![Matcher::User(UserId(7)), port("873")]),
        Rule::new("backup", vec![program("rsync")], Some(Treatment::Direct), Some(networks)).unwrap(),
        direct("rest", vec![]),
        direct("never", vec![port("1")]),
    ]);
    let (number, rule) = rules.decide(&FLOW).unwrap();
    assert_eq!((number, rule.key()), (RuleNumber(2), "backup"));
    assert_eq!(
        rules.explain(&FLOW).to_string(),
        "rule 1 (calls): port: wants udp/3478, is tcp/873\n\
         rule 2 (work): user: wants 7, is 1000\n\
         rule 3 (backup): matches: direct over wlan0 or wwan0 only\n\
         rule 4 (rest): would match, but an earlier rule decided\n\
         rule 5 (never): does not match, and an earlier rule decided\n"
    );
    let unknown = FlowFacts { program: None, cgroup: None, ..FLOW };
    let lines = rules.explain(&unknown).lines;
    assert_eq!(
        lines[2].to_string(),
        "rule 3 (backup): program: wants rsync, which is not known of this flow"
    );
}

#[test]
fn nonsense_is_refused_with_its_mending() {
    assert_eq!(
        "tcp/90-80".parse::<PortPattern>().unwrap_err().to_string(),
        "port range 90-80 is empty: the first must not be greater than the last"
    );
    for text in ["", "0", "65536", "80-", "-80", "sctp/80", "tcp/", "80/tcp", "tcp/0-5"] {
        assert!(text.parse::<PortPattern>().is_err(), "{text}");
    }
    for text in ["", "64", "cs8", "af44", "af50", "-1", "e"] {
        assert!(text.parse::<Dscp>().is_err(), "{text}");
    }
    for (text, expected) in [("EF", 46), ("le", 1), ("cs5", 40), ("af41", 34), ("63", 63)] {
        assert_eq!(text.parse::<Dscp>().unwrap().get(), expected, "{text}");
    }
    for text in ["", "bin/rsync", "/", "/usr/bin/", "cgroup:", "cgroup:user.slice"] {
        assert!(text.parse::<ProgramPattern>().is_err(), "{text}");
    }
    assert_eq!(Rule::new("x", vec![], None, None), Err(RuleError::NothingToDo("x".into())));
    let none = NetworkChoice { names: vec![], strictness: Strictness::Prefer };
    assert_eq!(Rule::new("x", vec![], None, Some(none)), Err(RuleError::NoNetworks("x".into())));
    let many = vec![port("80"); Rule::MOST_MATCHERS + 1];
    assert!(matches!(
        Rule::new("x", many, Some(Treatment::Direct), None),
        Err(RuleError::TooManyMatchers(_))
    ));
    assert_eq!(Rules::new(vec![direct("x", vec![]); Rules::MOST + 1]), Err(RulesError::TooMany(1_001)));
}

#[test]
fn patterns_read_back_as_they_are_shown() {
    for text in ["80", "tcp/443", "udp/5000-6000", "udp", "icmp"] {
        assert_eq!(text.parse::<PortPattern>().unwrap().to_string(), text);
    }
    for text in ["rsync", "/usr/bin/rsync", "cgroup:/user.slice", "cgroup:/"] {
        assert_eq!(text.parse::<ProgramPattern>().unwrap().to_string(), text);
    }
}

#[test]
fn conflicts_are_named() {
    let only = |name: &str| NetworkChoice { names: vec![name.into()], strictness: Strictness::Only };
    let rules = rules(vec![
        direct("web", vec![port("tcp/1-1000")]),
        direct("ssh", vec![port("tcp/22"), to("10.0.0.0/8")]),
        Rule::new("calls", vec![program("phone")], Some(Treatment::Duplicated), Some(only("wlan9"))).unwrap(),
    ]);
    let messages: Vec<String> =
        rules.conflicts(&["wlan0", "wwan0"], false).iter().map(ToString::to_string).collect();
    assert_eq!(
        messages,
        [
            "rule 2 (ssh) is never reached: rule 1 (web) takes all its flows; move it before that one",
            "rule 3 (calls) names network \"wlan9\", which is not known; known are wlan0, wwan0",
            "rule 3 (calls) wants its flows duplicated, which needs a gateway, and none is set: they go direct; join a gateway \
             with `anabranch join LINK`",
            "rule 3 (calls) wants its flows duplicated but allows one network only; name a second one",
        ]
    );
    assert_eq!(rules.conflicts(&["wlan9"], true).len(), 2);
}

#[test]
fn networks_are_found_by_name() {
    let choice =
        NetworkChoice { names: vec!["b".into(), "x".into(), "a".into()], strictness: Strictness::Prefer };
    let find = |name: &str| ["a", "b"].iter().position(|known| *known == name).map(|at| NetworkId(at as u32));
    assert_eq!(choice.resolve(find), [NetworkId(1), NetworkId(0)]);
}

fn any_matcher() -> impl Strategy<Value = Matcher> {
    prop_oneof![
        prop_oneof![
            Just("rsync"),
            Just("/usr/bin/rsync"),
            Just("/bin/sh"),
            Just("cgroup:/a"),
            Just("cgroup:/a/b")
        ]
        .prop_map(program),
        (0u32..3).prop_map(|user| Matcher::User(UserId(user))),
        (0u8..4, prop_oneof![Just(0u8), Just(8), Just(31), Just(32)])
            .prop_map(|(last, length)| to(&format!("10.0.0.{last}/{length}"))),
        prop_oneof![Just("*.org"), Just("*.a.org"), Just("a.org"), Just("b.a.org")].prop_map(domain),
        (0u16..6, 0u16..4, proptest::option::of(prop_oneof![Just(Protocol::TCP), Just(Protocol::UDP)]))
            .prop_map(|(first, more, protocol)| {
                Matcher::Port(PortPattern::new(protocol, first + 1, first + 1 + more).unwrap())
            }),
        (0u8..3).prop_map(|dscp| Matcher::Dscp(Dscp::try_from(dscp).unwrap())),
        prop_oneof![Just(FlowClass::Bulk), Just(FlowClass::RealTime)].prop_map(Matcher::Class),
    ]
}

proptest! {
    /// A rule that is said never to be reached never decides.
    #[test]
    fn unreachable_rules_never_decide(
        matchers in proptest::collection::vec(proptest::collection::vec(any_matcher(), 0..4), 1..6),
        flows in proptest::collection::vec((0usize..3, 0usize..3, 0u32..3, 0u8..4, 0usize..4, 1u16..10, any::<bool>(), 0u8..3), 30)
    ) {
        let list: Vec<Rule> =
            matchers.into_iter().enumerate().map(|(at, matchers)| direct(&at.to_string(), matchers)).collect();
        let rules = rules(list);
        let dead: Vec<RuleNumber> = rules
            .conflicts(&[], true)
            .iter()
            .filter_map(|conflict| match conflict {
                Conflict::NeverReached { rule, .. } => Some(rule.0),
                _ => None,
            })
            .collect();
        for (program, group, user, last, name, port, tcp, dscp) in flows {
            let domains = [["a.org"], ["b.a.org"], ["c.b.a.org"], ["org"]];
            let flow = FlowFacts {
                program: [None, Some("/usr/bin/rsync"), Some("/bin/sh")][program],
                cgroup: [None, Some("/a"), Some("/a/b/c")][group],
                user: Some(UserId(user)),
                destination: std::net::Ipv4Addr::new(10, 0, 0, last).into(),
                domains: &domains[name],
                protocol: if tcp { Protocol::TCP } else { Protocol::UDP },
                port,
                dscp: Dscp::try_from(dscp).unwrap(),
                class: Some(FlowClass::Bulk),
            };
            let decided = rules.decide(&flow).map(|(number, _)| number);
            prop_assert_eq!(rules.explain(&flow).decided, decided);
            prop_assert!(decided.is_none_or(|number| !dead.contains(&number)), "{decided:?} of {rules:?}");
        }
    }

    #[test]
    fn any_text_is_safe(text: String) {
        drop((text.parse::<PortPattern>(), text.parse::<DomainPattern>(), text.parse::<ProgramPattern>(), text.parse::<Dscp>()));
        if let Ok(pattern) = "*.a".parse::<DomainPattern>() {
            pattern.matches(&text);
        }
    }
}
