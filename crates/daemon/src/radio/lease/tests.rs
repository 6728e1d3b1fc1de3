use std::net::Ipv4Addr;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{EthernetProtocol, EthernetRepr, IpProtocol, Ipv4Repr, UdpRepr};

use super::*;

const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const POINT: Option<MacAddress> = Some(MacAddress([2, 0, 0, 0, 0, 5]));
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(10_000 + millis)
}

fn lease(last: u8) -> Lease {
    Lease {
        address: format!("10.0.0.{last}/24").parse().unwrap(),
        gateway: Some(GATEWAY),
        servers: ArrayVec::new(),
    }
}

fn candidate(last: u8) -> Candidate {
    Candidate { lease: lease(last), router: ROUTER, ends: at(60_000) }
}

/// What a server that lends `lease` for an hour says to a client's message; `None` if it is none.
fn served(question: &[u8], lease: &Lease) -> Option<Vec<u8>> {
    let frame = EthernetFrame::new_checked(question).ok()?;
    let ip = Ipv4Packet::new_checked(frame.payload()).ok()?;
    let udp = UdpPacket::new_checked(ip.payload()).ok()?;
    let asked = DhcpPacket::new_checked(udp.payload()).ok()?;
    let asked = DhcpRepr::parse(&asked).ok()?;
    let IpAddr::V4(address) = lease.address.address() else { return None };
    let message_type = match asked.message_type {
        DhcpMessageType::Discover => DhcpMessageType::Offer,
        DhcpMessageType::Request => DhcpMessageType::Ack,
        _ => return None,
    };
    let said = DhcpRepr {
        message_type,
        your_ip: address,
        router: lease.gateway,
        subnet_mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
        requested_ip: None,
        client_identifier: None,
        server_identifier: Some(GATEWAY),
        parameter_request_list: None,
        max_size: None,
        lease_duration: Some(3_600),
        ..asked
    };
    let udp = UdpRepr { src_port: 67, dst_port: 68 };
    let ip = Ipv4Repr {
        src_addr: GATEWAY,
        dst_addr: address,
        next_header: IpProtocol::Udp,
        payload_len: udp.header_len() + said.buffer_len(),
        hop_limit: 64,
    };
    let ethernet = EthernetRepr {
        src_addr: EthernetAddress(ROUTER.0),
        dst_addr: EthernetAddress(OWN.0),
        ethertype: EthernetProtocol::Ipv4,
    };
    let mut bytes = vec![0; 14 + ip.buffer_len() + ip.payload_len];
    ethernet.emit(&mut EthernetFrame::new_unchecked(&mut bytes));
    let sums = ChecksumCapabilities::default();
    ip.emit(&mut Ipv4Packet::new_unchecked(&mut bytes[14..]), &sums);
    udp.emit(
        &mut UdpPacket::new_unchecked(&mut bytes[34..]),
        &GATEWAY.into(),
        &address.into(),
        said.buffer_len(),
        |payload| said.emit(&mut DhcpPacket::new_unchecked(payload)).unwrap(),
        &sums,
    );
    Some(bytes)
}

/// A network: who lends what in it, and which router there is.
struct Bed {
    client: LeaseClient,
    now: Timestamp,
    server: Option<Lease>,
    router: Option<MacAddress>,
    changes: Vec<(Timestamp, LeaseChange)>,
}

impl Bed {
    fn new() -> Self {
        let client = LeaseClient::new(at(0), OWN, 7);
        Self { client, now: at(0), server: None, router: None, changes: Vec::new() }
    }

    /// Lets time pass, in which the network answers within 2 ms.
    fn run(&mut self, millis: u64) {
        let end = self.now + Duration::from_millis(millis);
        while self.now < end {
            if let Some(change) = self.client.poll(self.now) {
                self.changes.push((self.now, change));
            }
            let mut answers = Vec::new();
            while let Some(frame) = self.client.transmit() {
                answers.extend(self.server.as_ref().and_then(|lease| served(&frame, lease)));
                let is_question = frame[12..14] == [0x08, 0x06] && frame[38..42] == GATEWAY.octets();
                let reached = |router: &MacAddress| frame[..6] == [0xff; 6] || frame[..6] == router.0;
                answers.extend(
                    self.router
                        .filter(|router| is_question && reached(router))
                        .map(|router| arp::tests::reply(&frame, router)),
                );
            }
            for answer in answers {
                assert!(LeaseClient::wants(&answer));
                self.client.receive(answer);
            }
            let due = self.client.timeout(self.now);
            let step = Duration::from_millis(2);
            self.now = due.unwrap_or(end).max(self.now + step).min(self.now + step);
        }
    }

    fn take(&mut self) -> Vec<LeaseChange> {
        self.changes.drain(..).map(|(_, change)| change).collect()
    }
}

#[test]
fn it_asks_at_once_and_only_wants_its_own() {
    let mut client = LeaseClient::new(Timestamp::ZERO, OWN, 7);
    let start = Timestamp::from_millis(10);
    assert_eq!(client.poll(start), None, "nothing is lent yet");
    let question = client.transmit().unwrap();
    assert_eq!(&question[..6], [0xff; 6]);
    assert_eq!(&question[36..38], [0, 67], "to the server's port");
    assert!(!LeaseClient::wants(&question));
    let mut answer = question.clone();
    answer[36..38].copy_from_slice(&CLIENT_PORT);
    assert!(LeaseClient::wants(&answer));
    for length in 0..answer.len() {
        LeaseClient::wants(&answer[..length]);
        client.receive(answer[..length].to_vec());
    }
    // Without an answer it asks again.
    let again = client.timeout(start).unwrap();
    assert!(again > start && again.since(start) <= Duration::from_secs(1), "{again:?}");
    client.poll(again + Duration::from_millis(1));
    assert!(client.transmit().is_some());
}

#[test]
fn what_is_lent_is_learnt_with_its_router() {
    let mut bed = Bed::new();
    (bed.server, bed.router) = (Some(lease(7)), Some(ROUTER));
    bed.client.came_up(bed.now, POINT, Vec::new());
    bed.run(100);
    assert_eq!(bed.take(), [LeaseChange::Lent(lease(7))]);
    let learnt = bed.client.learnt().unwrap();
    assert_eq!(
        learnt,
        Learnt { lease: lease(7), point: POINT, router: ROUTER, time: Duration::from_secs(3_600) }
    );
    assert_eq!(bed.client.learnt(), None);
    // Half of the hour later the client renews it, by the router's hardware address, and that is noted.
    bed.now += Duration::from_secs(1_795);
    bed.run(10_000);
    assert_eq!((bed.take(), bed.client.learnt()), (Vec::new(), Some(learnt)));
    // At another access point, with nobody to ask, the server has until the renewed lease ends.
    bed.server = None;
    bed.now += Duration::from_secs(1_810);
    bed.client.came_up(bed.now, POINT, Vec::new());
    bed.run(5_000);
    assert_eq!(bed.take(), []);
}

#[test]
fn the_lease_of_last_time_holds_at_once_where_its_router_is() {
    let mut bed = Bed::new();
    bed.router = Some(ROUTER);
    bed.client.came_up(bed.now, POINT, vec![candidate(9), candidate(7)]);
    bed.run(1_000);
    // The server is silent, and the newer one is taken.
    let (when, change) = bed.changes[0].clone();
    assert_eq!(change, LeaseChange::Again(lease(9)));
    assert!(when.since(at(0)) <= Duration::from_millis(4), "{when:?}");
    assert!(!bed.client.is_settled());
    bed.server = Some(lease(9));
    bed.run(1_000);
    assert_eq!(bed.take().last(), Some(&LeaseChange::Lent(lease(9))), "the server says the same");
    assert!(bed.client.is_settled());
    assert_eq!(bed.client.learnt().unwrap().lease, lease(9));
    // The server has the last word.
    bed.client.came_up(bed.now, POINT, vec![candidate(9)]);
    bed.server = Some(lease(11));
    bed.run(1_000);
    assert_eq!(bed.take().last(), Some(&LeaseChange::Lent(lease(11))));
}

#[test]
fn it_ends_with_its_time_if_no_server_answers() {
    let mut bed = Bed::new();
    bed.router = Some(ROUTER);
    bed.client.came_up(bed.now, POINT, vec![candidate(7)]);
    bed.run(59_900);
    assert_eq!(bed.take(), [LeaseChange::Again(lease(7))]);
    bed.run(200);
    assert_eq!(bed.take(), [LeaseChange::Ended]);
}

#[test]
fn another_router_of_the_same_address_does_not_count() {
    let mut bed = Bed::new();
    bed.router = Some(MacAddress([2, 0, 0, 0, 0, 8]));
    bed.client.came_up(bed.now, POINT, vec![candidate(7)]);
    bed.run(5_000);
    assert_eq!(bed.take(), []);
    // One that answers for the right one, unasked by us.
    let asked = Question { from: [10, 0, 0, 7].into(), about: GATEWAY, whom: Some(ROUTER) };
    bed.client.receive(arp::tests::reply(&asked.frame(OWN), MacAddress([2, 0, 0, 0, 0, 8])));
    bed.run(100);
    assert_eq!(bed.take(), []);
}

#[test]
fn an_address_that_we_had_is_given_up_where_nobody_speaks_for_it() {
    for (router, expected) in [(None, vec![LeaseChange::Ended]), (Some(ROUTER), Vec::new())] {
        let mut bed = Bed::new();
        (bed.server, bed.router) = (Some(lease(7)), Some(ROUTER));
        bed.client.came_up(bed.now, POINT, Vec::new());
        bed.run(100);
        bed.take();
        (bed.server, bed.router) = (None, router);
        bed.client.came_up(bed.now, POINT, vec![candidate(7)]);
        bed.run(2_900);
        assert!(!bed.take().contains(&LeaseChange::Ended), "it is kept for a while");
        bed.run(2_000);
        assert_eq!(bed.take(), expected, "{router:?}");
    }
}
