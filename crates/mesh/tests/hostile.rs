//! What a router makes of lies, floods and nonsense, message by message.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::net::Ipv4Addr;
use std::time::Duration;

use identity::{KeyPair, PublicKey};
use mesh::{Event, Forwarding, Hop, Recipient, Relaying, Router, Settings, Signer, node_id};
use proptest::prelude::*;
use units::{BitRate, NetworkId, Timestamp};
use wire::mesh::{
    DataHeader, Hello, LinkAddress, Message, Node, NodeId, PURPOSE, Reply, Request, RequestId, RouteError,
    Sequence, Signature,
};

struct Key(KeyPair);

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(PURPOSE, message))
    }

    fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
        PublicKey(*key).has_signed(PURPOSE, message, &signature.0)
    }
}

fn key(number: u8) -> KeyPair {
    KeyPair::from_private([number; 32]).unwrap()
}

fn node(number: u8) -> Node {
    Node { key: key(number).public().0, port: 4_612 }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000 + millis)
}

fn hop(number: u8) -> Hop {
    Hop { network: NetworkId(1), address: LinkAddress::V4(Ipv4Addr::new(10, 0, 0, number), 4_612) }
}

fn relaying(control_per_second: u32, rate: u64) -> Settings {
    Settings { relaying: Some(Relaying { rate: BitRate(rate), control_per_second }), ..Settings::default() }
}

fn router(number: u8, settings: Settings) -> Router {
    Router::new(at(0), settings, node(number), Box::new(Key(key(number))), Sequence(10), u64::from(number))
}

/// The messages that a router sends until nothing is due before `until`.
fn sent(router: &mut Router, until: Timestamp) -> Vec<(Recipient, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        while let Some(transmit) = router.poll_transmit() {
            all.push((transmit.to, transmit.bytes));
        }
        match router.poll_timeout().filter(|due| *due <= until) {
            Some(due) => router.handle_timeout(due),
            None => return all,
        }
    }
}

fn request(from: u8, id: u32, sequence: u32, to: u8) -> Request {
    let unsigned = Request {
        hop_count: 0,
        reach: 9,
        id: RequestId(id),
        sequence: Sequence(sequence),
        originator: node(from),
        destination: node_id(&node(to)),
        signature: Signature([0; 64]),
    };
    Request { signature: Key(key(from)).sign(&unsigned.signed_bytes()), ..unsigned }
}

fn reply_to(request: &Request, signed_by: u8, claims: u8, sequence: u32) -> Reply {
    let unsigned = Reply {
        hop_count: 0,
        id: request.id,
        originator: node_id(&request.originator),
        sequence: Sequence(sequence),
        lifetime_ms: 10_000,
        destination: node(claims),
        signature: Signature([0; 64]),
    };
    Reply { signature: Key(key(signed_by)).sign(&unsigned.signed_bytes()), ..unsigned }
}

/// Node 1 looks for node 9; its request.
fn looking() -> (Router, Request) {
    let mut router = router(1, Settings::default());
    router.find(at(0), node_id(&node(9)));
    let (to, bytes) = sent(&mut router, at(0)).remove(0);
    assert_eq!(to, Recipient::Everybody);
    let Ok(Message::Request(request)) = Message::parse(&bytes) else { panic!("no request") };
    (router, request)
}

#[test]
fn a_reply_counts_only_if_the_destination_has_signed_it_for_this_request() {
    let (mut router, asked) = looking();
    let far = node_id(&node(9));
    let other = Request { id: RequestId(asked.id.0.wrapping_sub(100)), ..asked.clone() };
    let elsewhere = Request { originator: node(3), ..asked.clone() };
    for lie in [
        reply_to(&asked, 5, 9, u32::MAX / 4),
        reply_to(&asked, 5, 5, 7),
        reply_to(&other, 9, 9, 7),
        reply_to(&elsewhere, 9, 9, 7),
        Reply { sequence: Sequence(8), ..reply_to(&asked, 9, 9, 7) },
    ] {
        router.handle_message(at(1), hop(5), &lie.encode());
        assert!(router.way(at(1), far).is_none(), "{lie:?}");
        assert_eq!(router.poll_event(), None);
    }
    assert_eq!(router.counters().refused, 5);
    router.handle_message(at(1), hop(5), &reply_to(&asked, 9, 9, 7).encode());
    assert_eq!(router.way(at(1), far).unwrap().next, hop(5));
    assert_eq!(router.poll_event(), Some(Event::Found { destination: far, hops: 1 }));
}

#[test]
fn nobody_asks_in_anothers_name_or_with_an_old_number() {
    let mut router = router(2, relaying(50, 1_000_000));
    let near = node_id(&node(3));
    let forged = Request { originator: node(3), ..request(4, 1, 50, 9) };
    router.handle_message(at(0), hop(4), &forged.encode());
    let longer = Request { reach: 35, ..request(3, 1, 50, 9) };
    router.handle_message(at(0), hop(4), &longer.encode());
    assert!(router.way(at(0), near).is_none());
    router.handle_message(at(0), hop(3), &request(3, 1, 50, 9).encode());
    assert_eq!(router.way(at(0), near).unwrap().next, hop(3));
    // What was overheard before is said again by somebody else, who wants the answers.
    router.handle_message(at(1), hop(4), &request(3, 0, 49, 9).encode());
    assert_eq!(router.way(at(1), near).unwrap().next, hop(3));
    assert_eq!(router.counters().refused, 3);
}

#[test]
fn errors_count_only_from_who_is_the_next_hop() {
    let (mut router, asked) = looking();
    let far = node_id(&node(9));
    router.handle_message(at(1), hop(5), &reply_to(&asked, 9, 9, 7).encode());
    let hello = |signer: u8, sequence: u32| {
        let unsigned = Hello {
            asks: false,
            relays: true,
            sequence: Sequence(sequence),
            node: node(signer),
            addresses: Vec::new(),
            signature: Signature([0; 64]),
        };
        Hello { signature: Key(key(signer)).sign(&unsigned.signed_bytes()), ..unsigned }.encode()
    };
    let error = |signer: u8, claims: u8, sequence: u32| {
        let (node, sequence, lost) = (node(claims), Sequence(sequence), vec![far]);
        let unsigned = RouteError { sequence, node, lost, signature: Signature([0; 64]) };
        RouteError { signature: Key(key(signer)).sign(&unsigned.signed_bytes()), ..unsigned }.encode()
    };
    router.handle_message(at(2), hop(5), &hello(5, 100));
    // Another takes the neighbour's address, and its place if it could.
    router.handle_message(at(2), hop(5), &hello(6, 200));
    for lie in [error(6, 6, 201), error(6, 5, 201), error(5, 5, 100), error(5, 5, 99)] {
        router.handle_message(at(3), hop(5), &lie);
        assert!(router.way(at(3), far).is_some());
    }
    router.handle_message(at(3), hop(6), &error(5, 5, 101));
    assert!(router.way(at(3), far).is_some(), "by another way than it claims");
    router.handle_message(at(3), hop(5), &error(5, 5, 101));
    assert!(router.way(at(3), far).is_none());
}

#[test]
fn a_storm_is_passed_on_only_as_far_as_the_owner_allows() {
    let mut router = router(2, relaying(30, 1_000_000));
    let mut passed = 0;
    for number in 0..2_000u32 {
        // Originators that somebody has made up, one after the other.
        let from = 20 + (number % 200) as u8;
        let now = at(u64::from(number));
        router.handle_message(
            now,
            hop((number % 50) as u8),
            &request(from, number, 100 + number, 9).encode(),
        );
        let requests = sent(&mut router, now).into_iter().filter(|(_, bytes)| bytes[0] == 0x41);
        passed += requests.count();
    }
    // Two seconds at 30 a second, and one second's worth that was saved up.
    assert!((60..=92).contains(&passed), "{passed}");
}

#[test]
fn one_neighbour_cannot_keep_a_node_busy() {
    let mut router = router(2, relaying(1_000, 1_000_000));
    let wrong = Request { signature: Signature([1; 64]), ..request(3, 1, 1, 9) }.encode();
    for _ in 0..10_000 {
        router.handle_message(at(1), hop(4), &wrong);
    }
    assert_eq!(router.counters().refused, 10_000);
    // Others are heard all the same.
    router.handle_message(at(1), hop(3), &request(3, 2, 2, 9).encode());
    assert!(router.way(at(1), node_id(&node(3))).is_some());
}

#[test]
fn data_is_passed_on_at_the_rate_that_the_owner_allows() {
    // 1 Mbit/s: 125 packets of 1000 bytes a second.
    let mut router = router(2, relaying(50, 1_000_000));
    router.handle_message(at(0), hop(3), &request(3, 1, 50, 9).encode());
    router.handle_message(at(0), hop(4), &request(4, 1, 50, 9).encode());
    let header = DataHeader { hops_left: 9, destination: node_id(&node(3)), source: node_id(&node(4)) };
    let passes = |router: &mut Router, millis| matches!(router.handle_data(at(millis), hop(4), header, 1_000), Forwarding::PassOn(to, _) if to == hop(3));
    let passed = (0..4_000).filter(|millis| passes(&mut router, *millis)).count();
    assert!((500..=570).contains(&passed), "{passed} in four seconds");
    let spent = DataHeader { hops_left: 0, ..header };
    assert_eq!(router.handle_data(at(9_000), hop(4), spent, 100), Forwarding::Drop);
}

#[test]
fn the_destination_answers_three_neighbours_and_each_request_anew() {
    let mut router = router(9, Settings::default());
    let asked = request(1, 1, 50, 9);
    for copy in 0..6u8 {
        let copy_of = Request { hop_count: copy, ..asked.clone() };
        router.handle_message(at(0), hop(copy), &copy_of.encode());
        router.handle_message(at(0), hop(copy), &copy_of.encode());
    }
    let sequences = |messages: Vec<(Recipient, Vec<u8>)>| -> Vec<(Recipient, Sequence)> {
        let read = |(to, bytes): (Recipient, Vec<u8>)| match Message::parse(&bytes) {
            Ok(Message::Reply(reply)) => (to, reply.sequence),
            other => panic!("{other:?}"),
        };
        messages.into_iter().map(read).collect()
    };
    let first = sequences(sent(&mut router, at(0)));
    assert_eq!(
        first.iter().map(|(to, _)| *to).collect::<Vec<_>>(),
        [0, 1, 2].map(|at| Recipient::One(hop(at)))
    );
    assert!(first.iter().all(|(_, sequence)| *sequence == first[0].1));
    router.handle_message(at(1), hop(0), &request(1, 2, 51, 9).encode());
    assert!(sequences(sent(&mut router, at(1)))[0].1.is_newer_than(first[0].1));
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Message(u8, Vec<u8>),
    Request(u8, u8, u32, u8),
    Data(u8, u8, u8),
    Find(u8),
    Own(u8),
    GiveUp(u8),
    Confirm(u8),
    Lost(u8),
    Release(u8),
    Gone,
}

fn step() -> impl Strategy<Value = Step> {
    let few = 0u8..6;
    prop_oneof![
        (0u64..2_000).prop_map(Step::Wait),
        (few.clone(), proptest::collection::vec(any::<u8>(), 0..200)).prop_map(|(from, mut bytes)| {
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | (*first & 7);
            }
            Step::Message(from, bytes)
        }),
        (few.clone(), 1u8..6, 0u32..9, few.clone())
            .prop_map(|(by, from, id, to)| Step::Request(by, from, id, to)),
        (few.clone(), few.clone(), few.clone()).prop_map(|(by, from, to)| Step::Data(by, from, to)),
        few.clone().prop_map(Step::Find),
        few.clone().prop_map(Step::Own),
        few.clone().prop_map(Step::GiveUp),
        few.clone().prop_map(Step::Confirm),
        few.clone().prop_map(Step::Lost),
        few.prop_map(Step::Release),
        Just(Step::Gone),
    ]
}

/// What a router did with the steps, as bytes and as text.
fn play(steps: &[Step]) -> Vec<String> {
    let mut router = router(0, relaying(50, 1_000_000));
    let (mut millis, mut log) = (0, Vec::new());
    let id = |number: u8| -> NodeId { node_id(&node(number)) };
    for step in steps {
        let now = at(millis);
        match step {
            Step::Wait(wait) => millis += wait,
            Step::Message(from, bytes) => router.handle_message(now, hop(*from), bytes),
            Step::Request(by, from, number, to) => {
                router.handle_message(now, hop(*by), &request(*from, *number, *number, *to).encode());
            }
            Step::Data(by, from, to) => {
                let header = DataHeader { hops_left: 3, destination: id(*to), source: id(*from) };
                log.push(format!("{:?}", router.handle_data(now, hop(*by), header, 500)));
            }
            Step::Find(to) => router.find(now, id(*to)),
            Step::Own(to) => log.push(format!("{:?}", router.next_hop(now, id(*to)))),
            Step::GiveUp(to) => router.give_up(now, id(*to)),
            Step::Confirm(to) => router.confirm(id(*to)),
            Step::Lost(who) => router.hop_lost(now, hop(*who)),
            Step::Release(to) => router.release(id(*to)),
            Step::Gone => router.network_gone(now, NetworkId(1)),
        }
        let mut calls = 0;
        while let Some(due) = router.poll_timeout().filter(|due| *due <= at(millis)) {
            router.handle_timeout(due.max(now));
            calls += 1;
            assert!(calls < 5_000, "time does not pass");
        }
        while let Some(transmit) = router.poll_transmit() {
            assert!(Message::parse(&transmit.bytes).is_ok());
            assert!(transmit.bytes.len() <= wire::mesh::MAX_CONTROL_LEN);
            log.push(format!("{transmit:?}"));
        }
        while let Some(event) = router.poll_event() {
            log.push(format!("{event:?}"));
        }
    }
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn any_steps_are_borne_and_the_same_steps_give_the_same_bytes(
        steps in proptest::collection::vec(step(), 0..60),
    ) {
        prop_assert_eq!(play(&steps), play(&steps));
    }
}

#[test]
fn a_vain_search_goes_on_with_pauses() {
    let (mut router, _) = looking();
    let requests = sent(&mut router, at(60_000)).len();
    assert!((60..200).contains(&requests), "{requests} in a minute");
    assert_eq!(router.poll_event(), Some(Event::Nobody(node_id(&node(9)))));
    router.release(node_id(&node(9)));
    assert_eq!(sent(&mut router, at(120_000) + Duration::from_secs(1)), []);
}
