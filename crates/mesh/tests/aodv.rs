//! What RFC 3561 says of searches, repairs and errors, message by message.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::net::Ipv4Addr;
use std::time::Duration;

use identity::{KeyPair, PublicKey};
use mesh::{Event, Forwarding, Hop, Recipient, Relaying, Router, Settings, Signer, node_id};
use units::{BitRate, NetworkId, Timestamp};
use wire::mesh::{
    DataHeader, LinkAddress, Message, Node, NodeId, PURPOSE, Reply, Request, RequestId, RouteError, Sequence,
    Signature,
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

/// Whoever is far away, in all of these.
const FAR: u8 = 9;

fn key(number: u8) -> KeyPair {
    KeyPair::from_private([number; 32]).unwrap()
}

fn node(number: u8) -> Node {
    Node { key: key(number).public().0, port: 4_612 }
}

fn id(number: u8) -> NodeId {
    node_id(&node(number))
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_000 + millis)
}

fn hop(number: u8) -> Hop {
    Hop { network: NetworkId(1), address: LinkAddress::V4(Ipv4Addr::new(10, 0, 0, number), 4_612) }
}

fn router(number: u8, relaying: Option<Relaying>) -> Router {
    let settings = Settings { relaying, ..Settings::default() };
    Router::new(at(0), settings, node(number), Box::new(Key(key(number))), Sequence(10), u64::from(number))
}

fn relay(number: u8) -> Router {
    router(number, Some(Relaying { rate: BitRate(100_000_000), control_per_second: 50 }))
}

/// What a router sends until nothing is due before `until`, but for hellos.
fn sent(router: &mut Router, until: Timestamp) -> Vec<(Recipient, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        while let Some(transmit) = router.poll_transmit() {
            if !matches!(Message::parse(&transmit.bytes), Ok(Message::Hello(_))) {
                all.push((transmit.to, transmit.bytes));
            }
        }
        match router.poll_timeout().filter(|due| *due <= until) {
            Some(due) => router.handle_timeout(due),
            None => return all,
        }
    }
}

/// The requests among them, and to nobody else than everybody.
fn requests(sent: &[(Recipient, Vec<u8>)]) -> Vec<Request> {
    let request = |(to, bytes): &(Recipient, Vec<u8>)| match Message::parse(bytes) {
        Ok(Message::Request(request)) => {
            assert_eq!(*to, Recipient::Everybody);
            Some(request)
        }
        _ => None,
    };
    sent.iter().filter_map(request).collect()
}

/// The errors among them, and to whom.
fn errors(sent: &[(Recipient, Vec<u8>)]) -> Vec<(Recipient, RouteError)> {
    let error = |(to, bytes): &(Recipient, Vec<u8>)| match Message::parse(bytes) {
        Ok(Message::Error(error)) => Some((*to, error)),
        _ => None,
    };
    sent.iter().filter_map(error).collect()
}

fn request(from: u8, number: u32, sequence: u32) -> Request {
    let unsigned = Request {
        hop_count: 0,
        reach: 35,
        id: RequestId(number),
        sequence: Sequence(sequence),
        originator: node(from),
        destination: id(FAR),
        signature: Signature([0; 64]),
    };
    Request { signature: Key(key(from)).sign(&unsigned.signed_bytes()), ..unsigned }
}

/// The far node's answer, after so many relays.
fn answer(request: &Request, sequence: u32, relays: u8) -> Vec<u8> {
    let unsigned = Reply {
        hop_count: relays,
        id: request.id,
        originator: node_id(&request.originator),
        sequence: Sequence(sequence),
        lifetime_ms: 10_000,
        destination: node(FAR),
        signature: Signature([0; 64]),
    };
    Reply { signature: Key(key(FAR)).sign(&unsigned.signed_bytes()), ..unsigned }.encode()
}

/// Searches until nobody is found; how far each request was to go.
fn reaches(router: &mut Router) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        while let Some(transmit) = router.poll_transmit() {
            all.push((transmit.to, transmit.bytes));
        }
        while let Some(event) = router.poll_event() {
            if event == Event::Nobody(id(FAR)) {
                return requests(&all).iter().map(|request| request.reach).collect();
            }
        }
        let due = router.poll_timeout().unwrap();
        router.handle_timeout(due);
    }
}

/// RFC 3561 section 6.4, with this protocol's rings.
#[test]
fn a_search_goes_further_each_time_and_first_where_the_destination_was() {
    let mut nowhere = router(1, None);
    nowhere.find(at(0), id(FAR));
    assert_eq!(reaches(&mut nowhere), [2, 5, 35, 35, 35]);
    for (relays, expected) in [(2, vec![5, 35, 35, 35]), (4, vec![7, 35, 35])] {
        let mut router = router(1, None);
        router.find(at(0), id(FAR));
        let asked = requests(&sent(&mut router, at(0))).remove(0);
        router.handle_message(at(1), hop(5), &answer(&asked, 7, relays));
        assert_eq!(router.poll_event(), Some(Event::Found { destination: id(FAR), hops: relays + 1 }));
        router.hop_lost(at(2_000), hop(5));
        assert_eq!(reaches(&mut router), expected, "{relays} relays before");
    }
}

/// A relay between two that send to the far node and `relays` more before it; what it has said so far is left out.
fn relay_in_use(relays: u8) -> Router {
    let mut router = relay(2);
    let asked = request(1, 1, 50);
    router.handle_message(at(0), hop(1), &asked.encode());
    sent(&mut router, at(100));
    router.handle_message(at(100), hop(3), &answer(&asked, 7, relays));
    for from in [1, 5] {
        assert_eq!(passes_on(&mut router, 100, from), Some(hop(3)));
    }
    sent(&mut router, at(100));
    router
}

/// Where a packet for the far node goes that comes from a neighbour.
fn passes_on(router: &mut Router, millis: u64, from: u8) -> Option<Hop> {
    let header = DataHeader { hops_left: 9, destination: id(FAR), source: id(from) };
    match router.handle_data(at(millis), hop(from), header, 100) {
        Forwarding::PassOn(hop, _) => Some(hop),
        Forwarding::Deliver | Forwarding::Drop => None,
    }
}

/// RFC 3561 section 6.12: whoever sends hears nothing of it, and need not search.
#[test]
fn a_relay_mends_a_way_to_what_is_near_by_itself() {
    let mut router = relay_in_use(1);
    router.hop_lost(at(200), hop(3));
    let said = sent(&mut router, at(200));
    let asked = requests(&said);
    assert_eq!(
        asked.iter().map(|request| (request.originator, request.reach)).collect::<Vec<_>>(),
        [(node(2), 4)]
    );
    // What comes meanwhile is lost, and nobody is told.
    assert_eq!(passes_on(&mut router, 201, 1), None);
    router.handle_message(at(202), hop(4), &answer(&asked[0], 8, 1));
    for from in [1, 5] {
        assert_eq!(passes_on(&mut router, 203, from), Some(hop(4)));
    }
    let later = sent(&mut router, at(300));
    assert_eq!((errors(&said), errors(&later)), (Vec::new(), Vec::new()));
    assert_eq!(requests(&later), []);
}

/// RFC 3561 section 6.11: those who send by here are told, each of what it sends, and the next relay tells its own.
#[test]
fn who_sends_by_a_way_that_ends_is_told() {
    // Too far away to be mended here; and near, but nobody answers.
    for (relays, searches) in [(6, 0), (1, 1)] {
        let mut router = relay_in_use(relays);
        router.hop_lost(at(200), hop(3));
        let said = sent(&mut router, at(200) + Duration::from_secs(1));
        assert_eq!(requests(&said).len(), searches);
        let told = errors(&said);
        assert_eq!(
            told.iter().map(|(to, _)| *to).collect::<Vec<_>>(),
            [1, 5].map(|from| Recipient::One(hop(from)))
        );
        assert!(told.iter().all(|(_, error)| error.node == node(2) && error.lost == [id(FAR)]));
        assert_eq!(passes_on(&mut router, 1_300, 1), None);
        // The relay before: its way leads by this one, and somebody sends by it.
        let mut before = relay(6);
        let asked = request(7, 3, 60);
        before.handle_message(at(0), hop(7), &asked.encode());
        sent(&mut before, at(100));
        before.handle_message(at(100), hop(2), &answer(&asked, 7, relays + 1));
        assert_eq!(passes_on(&mut before, 100, 7), Some(hop(2)));
        before.handle_message(at(300), hop(2), &told[0].1.encode());
        let said = sent(&mut before, at(300) + Duration::from_secs(1));
        let on = errors(&said);
        assert_eq!(on.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [Recipient::One(hop(7))]);
        assert!(on.iter().all(|(_, error)| error.node == node(6) && error.lost == [id(FAR)]));
    }
}
