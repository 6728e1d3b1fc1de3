//! The gateways that a device may use, and how far it is with each.
//!
//! ```text
//!          knock            let in, no other serves
//! Silent -------> Knocking --------------------------> Serving
//!   ^  ^              |  | let in, while the one that serves is silent      ^
//!   |  |   refused    |  '------------------------------------> Ready ------'
//!   |  '--------------|                                           |  that one had its time
//!   |                 v    another serves, or serves again        |
//!   '------------- Outrun <---------------------------------------'
//! ```
//! All are knocked at while none serves; the first that lets the device in serves. It is the nearest that lives, and remains the one until it
//! dies: each move ends the connections that lead through the gateway, which costs more than a few milliseconds of delay are worth,
//! and two gateways that are about as near would take turns.
//!
//! If the one that serves falls silent the others are knocked at, over the same networks. Another that answers shows that the networks work;
//! then the silent one is asked once more and has a moment to answer, so that a network that was dead for a while moves nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use bond::{Address, Carrier, SessionId};
use identity::{Peer, PublicKey};
use units::{NetworkId, Timestamp};
use wire::hello::Welcome;

use super::targets::{GatewayAddresses, Link};

/// A gateway that may be used.
pub struct Gateway {
    /// Who it is, and what it is called here.
    pub peer: Peer,
    /// Where it is, as last looked up.
    pub addresses: GatewayAddresses,
    /// How each network leads to it.
    pub links: BTreeMap<NetworkId, Link>,
    /// How far the device is with it.
    pub contact: Contact,
    /// How often in a row it has refused the device.
    pub refusals: u32,
    /// Why it has refused the device, until it lets it in.
    pub refused: Option<String>,
    /// When its name may be looked up again.
    pub next_resolve: Timestamp,
    /// Whether it may be knocked at: one that is known no more serves until its session ends.
    is_known: bool,
}

/// How far the device is with a gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contact {
    /// Nothing is said; not knocked at before that time.
    Silent {
        /// That time.
        knock_at: Timestamp,
    },
    /// It was asked and has not answered.
    Knocking(SessionId),
    /// It is not needed any more. If it answers until then, it is told goodbye.
    Outrun {
        /// The session that it would open.
        session: SessionId,
        /// How long it has for that.
        until: Timestamp,
    },
    /// It has let the device in, and takes the place of the silent one if that says nothing until then.
    Ready {
        /// The session.
        session: SessionId,
        /// What it said.
        welcome: Box<Welcome>,
        /// How long the other has.
        until: Timestamp,
    },
    /// Packets go by it.
    Serving {
        /// The session.
        session: SessionId,
        /// Since when nothing comes from it.
        silent_since: Option<Timestamp>,
    },
}

impl Gateway {
    /// One that has not been spoken to.
    pub fn new(peer: Peer) -> Self {
        Self {
            addresses: GatewayAddresses { udp: Vec::new(), tcp: peer.tcp_port },
            peer,
            links: BTreeMap::new(),
            contact: Contact::Silent { knock_at: Timestamp::ZERO },
            refusals: 0,
            refused: None,
            next_resolve: Timestamp::ZERO,
            is_known: true,
        }
    }

    /// The session with it, whatever state that is in.
    pub fn session(&self) -> Option<SessionId> {
        match self.contact {
            Contact::Silent { .. } => None,
            Contact::Knocking(session)
            | Contact::Outrun { session, .. }
            | Contact::Ready { session, .. }
            | Contact::Serving { session, .. } => Some(session),
        }
    }

    /// Whether the device wants it, or has it, as its gateway.
    pub fn is_wanted(&self) -> bool {
        matches!(self.contact, Contact::Knocking(_) | Contact::Ready { .. } | Contact::Serving { .. })
    }
}

/// All of them, in the order in which they were met.
pub struct Gateways {
    all: Vec<Gateway>,
    /// Until then only this one is knocked at.
    expected: Option<(PublicKey, Timestamp)>,
}

impl Gateways {
    /// Those that were met; more than [`MOST_GATEWAYS`] are left out.
    pub fn new(mut peers: Vec<Peer>) -> Self {
        // Those that were met by a link go first.
        peers.sort_by_key(|peer| peer.learned_from.is_some());
        Self { all: peers.into_iter().take(MOST_GATEWAYS).map(Gateway::new).collect(), expected: None }
    }

    /// These are known now. Returns those that are new or are elsewhere. One that is known no more goes, unless it is spoken to.
    pub fn update(&mut self, peers: Vec<Peer>) -> Vec<PublicKey> {
        for gateway in &mut self.all {
            gateway.is_known = peers.iter().any(|peer| peer.public_key == gateway.peer.public_key);
        }
        self.all.retain(|gateway| gateway.is_known || gateway.session().is_some());
        let mut news = Vec::new();
        for peer in peers {
            let key = peer.public_key;
            let has_room = self.all.len() < MOST_GATEWAYS;
            match self.get_mut(key) {
                Some(gateway) => {
                    if (&gateway.peer.addresses, gateway.peer.tcp_port) != (&peer.addresses, peer.tcp_port) {
                        gateway.addresses.tcp = peer.tcp_port;
                        gateway.next_resolve = Timestamp::ZERO;
                        news.push(key);
                    }
                    // An invitation that was used stays so.
                    let invitation = gateway.peer.invitation.take();
                    gateway.peer = Peer { invitation, ..peer };
                }
                None if has_room => {
                    self.all.push(Gateway::new(peer));
                    news.push(key);
                }
                None => {}
            }
        }
        news
    }

    /// Whether there is none: then flows go directly only.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether there is more than one.
    pub fn are_several(&self) -> bool {
        self.all.len() > 1
    }

    /// All.
    pub fn iter(&self) -> impl Iterator<Item = &Gateway> {
        self.all.iter()
    }

    /// All, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Gateway> {
        self.all.iter_mut()
    }

    /// The keys of all.
    pub fn keys(&self) -> Vec<PublicKey> {
        self.all.iter().map(|gateway| gateway.peer.public_key).collect()
    }

    /// The one with that key.
    pub fn get(&self, key: PublicKey) -> Option<&Gateway> {
        self.all.iter().find(|gateway| gateway.peer.public_key == key)
    }

    /// The same, to be changed.
    pub fn get_mut(&mut self, key: PublicKey) -> Option<&mut Gateway> {
        self.all.iter_mut().find(|gateway| gateway.peer.public_key == key)
    }

    /// The one that a session is with.
    pub fn of_session(&self, session: SessionId) -> Option<PublicKey> {
        self.all
            .iter()
            .find(|gateway| gateway.session() == Some(session))
            .map(|gateway| gateway.peer.public_key)
    }

    /// The one that packets go by.
    pub fn serving(&self) -> Option<&Gateway> {
        self.all.iter().find(|gateway| matches!(gateway.contact, Contact::Serving { .. }))
    }

    /// The same, or the only one there is.
    pub fn serving_or_only(&self) -> Option<&Gateway> {
        self.serving().or_else(|| self.all.first().filter(|_| !self.are_several()))
    }

    /// The session that packets go by.
    pub fn session(&self) -> Option<SessionId> {
        self.serving().and_then(Gateway::session)
    }

    /// The one that waits for the silent one's time to be over; of several the first that answered.
    pub fn ready(&self) -> Option<(PublicKey, Timestamp)> {
        let ready = self.all.iter().filter_map(|gateway| match gateway.contact {
            Contact::Ready { until, .. } => Some((gateway.peer.public_key, until)),
            _ => None,
        });
        ready.min_by_key(|(_, until)| *until)
    }

    /// Whether some gateway is asked to let the device in.
    pub fn are_knocked_at(&self) -> bool {
        self.all.iter().any(|gateway| matches!(gateway.contact, Contact::Knocking(_)))
    }

    /// Whether each has refused the device.
    pub fn all_refuse(&self) -> bool {
        self.all.iter().all(|gateway| gateway.refused.is_some())
    }

    /// From when on gateways may be knocked at; `None` while there is no reason to. No network, no reason to doubt the one that serves.
    fn knocking_from(&self, has_network: bool) -> Option<Timestamp> {
        if self.ready().is_some() {
            return None;
        }
        match self.serving().map(|serving| &serving.contact) {
            Some(Contact::Serving { silent_since, .. }) => {
                silent_since.filter(|_| has_network).map(|since| since + DOUBT)
            }
            _ => Some(Timestamp::ZERO),
        }
    }

    /// When a gateway may be knocked at, if the device is not at it. One whose last try was not needed may be at once.
    fn knock_at(&self, gateway: &Gateway) -> Option<Timestamp> {
        let at = match gateway.contact {
            _ if !gateway.is_known => return None,
            Contact::Silent { knock_at } => knock_at,
            Contact::Outrun { .. } => Timestamp::ZERO,
            _ => return None,
        };
        let expected = self.expected.filter(|(key, _)| *key != gateway.peer.public_key);
        Some(expected.map_or(at, |(_, until)| at.max(until)))
    }

    /// Those that are to be knocked at now.
    pub fn to_knock_at(&self, now: Timestamp, has_network: bool) -> Vec<PublicKey> {
        if self.knocking_from(has_network).is_none_or(|from| from > now) {
            return Vec::new();
        }
        let due = self.all.iter().filter(|gateway| self.knock_at(gateway).is_some_and(|at| at <= now));
        due.map(|gateway| gateway.peer.public_key).collect()
    }

    /// Those whose try is over.
    pub fn to_give_up(&self, now: Timestamp) -> Vec<(PublicKey, SessionId)> {
        let over = self.all.iter().filter_map(|gateway| match gateway.contact {
            Contact::Outrun { session, until } if until <= now => Some((gateway.peer.public_key, session)),
            _ => None,
        });
        over.collect()
    }

    /// When something is due by itself.
    pub fn next_due(&self, has_network: bool) -> Option<Timestamp> {
        let from = self.knocking_from(has_network);
        let knocks = self.all.iter().filter_map(|gateway| Some(self.knock_at(gateway)?.max(from?)));
        let ends = self.all.iter().filter_map(|gateway| match gateway.contact {
            Contact::Outrun { until, .. } | Contact::Ready { until, .. } => Some(until),
            _ => None,
        });
        let links =
            self.all.iter().filter(|gateway| gateway.is_wanted()).flat_map(|gateway| gateway.links.values());
        let links = links.flat_map(|link| [link.give_up_at(), link.reconnect_at()]).flatten();
        knocks.chain(ends).chain(links).min()
    }

    /// The one that serves is silent from now on, or not any more.
    pub fn note_silence(&mut self, since: Option<Timestamp>) {
        for gateway in &mut self.all {
            if let Contact::Serving { silent_since, .. } = &mut gateway.contact {
                *silent_since = since;
            }
        }
    }

    /// Nothing that was known holds any more: none has to be waited for.
    pub fn try_all_anew(&mut self, now: Timestamp) {
        self.note_network(now);
        for gateway in &mut self.all {
            gateway.next_resolve = now;
            if let Contact::Silent { knock_at } = &mut gateway.contact {
                *knock_at = now;
            }
        }
    }

    /// A network has come: the one that serves and is silent may answer over it, and is given the time to.
    pub fn note_network(&mut self, now: Timestamp) {
        for gateway in &mut self.all {
            if let Contact::Serving { silent_since: Some(since), .. } = &mut gateway.contact {
                *since = now;
            }
        }
    }

    /// Until then no other is knocked at: this one said that it is back at once.
    pub fn expect(&mut self, key: PublicKey, until: Timestamp) {
        self.expected = Some((key, until));
    }

    /// The carrier that works over a network, for whichever gateway.
    pub fn proved(&self, network: NetworkId) -> Option<Carrier> {
        self.all.iter().find_map(|gateway| gateway.links.get(&network)?.proved())
    }

    /// Where packets may be sent: what sockets are needed for.
    pub fn addresses(&self) -> Vec<Address> {
        let with_session = self.all.iter().filter(|gateway| gateway.session().is_some());
        with_session.flat_map(|gateway| gateway.links.values()).filter_map(Link::address).collect()
    }
}

/// More are not knocked at.
pub const MOST_GATEWAYS: usize = 16;
/// A gateway that was silent for less is not doubted: a network that stutters is no reason to knock at others.
const DOUBT: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use arrayvec::ArrayVec;
    use identity::{InvitationKind, InvitationSecret, Peers, UnixSeconds};
    use wire::hello::{Features, Name};
    use wire::join_link::JoinLink;

    use super::*;

    fn peers(count: u8) -> Vec<Peer> {
        let mut peers = Peers::default();
        for number in 1..=count {
            let link = JoinLink {
                kind: InvitationKind::Gateway,
                public_key: [number; 32],
                addresses: vec!["192.0.2.1:4600".parse().unwrap()],
                tcp_port: None,
                secret: InvitationSecret([number; 16]),
                expires: UnixSeconds(1),
            };
            peers.join(&link, None, PublicKey([0xff; 32]), UnixSeconds(0)).unwrap();
        }
        peers.of_kind(InvitationKind::Gateway).cloned().collect()
    }

    fn key(number: u8) -> PublicKey {
        PublicKey([number; 32])
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn set(gateways: &mut Gateways, number: u8, contact: Contact) {
        gateways.get_mut(key(number)).unwrap().contact = contact;
    }

    fn welcome() -> Welcome {
        Welcome {
            name: Name::new("gateway").unwrap(),
            features: Features::default(),
            v4: None,
            v6: None,
            dns: ArrayVec::new(),
            mtu: 1_400,
        }
    }

    fn serving(session: u64) -> Contact {
        Contact::Serving { session: SessionId(session), silent_since: None }
    }

    #[test]
    fn all_are_knocked_at_until_one_serves() {
        let mut gateways = Gateways::new(peers(3));
        assert_eq!(gateways.to_knock_at(at(0), false), [key(1), key(2), key(3)]);
        assert_eq!(gateways.next_due(true), Some(Timestamp::ZERO));
        set(&mut gateways, 1, Contact::Knocking(SessionId(1)));
        set(&mut gateways, 2, Contact::Silent { knock_at: at(5_000) });
        assert_eq!(
            gateways.to_knock_at(at(4_999), true),
            [key(3)],
            "one has refused and is left alone for a while"
        );
        assert_eq!(gateways.to_knock_at(at(5_000), true), [key(2), key(3)]);
        assert!(gateways.are_knocked_at() && gateways.serving_or_only().is_none());
        set(&mut gateways, 1, serving(1));
        assert_eq!(gateways.to_knock_at(at(9_000), true), []);
        assert_eq!(gateways.next_due(true), None);
        assert_eq!(gateways.serving_or_only().map(|gateway| gateway.peer.public_key), Some(key(1)));
    }

    #[test]
    fn a_silent_one_is_doubted_after_a_while_and_where_there_is_a_network() {
        let mut gateways = Gateways::new(peers(2));
        set(&mut gateways, 1, serving(1));
        gateways.note_silence(Some(at(1_000)));
        assert_eq!(gateways.to_knock_at(at(1_199), true), []);
        assert_eq!(gateways.next_due(true), Some(at(1_200)));
        assert_eq!(gateways.to_knock_at(at(1_200), true), [key(2)]);
        assert_eq!((gateways.to_knock_at(at(1_200), false), gateways.next_due(false)), (Vec::new(), None));
        gateways.note_network(at(3_000));
        assert_eq!(gateways.to_knock_at(at(3_100), true), [], "it may answer over the network that has come");
        gateways.note_silence(None);
        assert_eq!(gateways.to_knock_at(at(9_000), true), []);
    }

    #[test]
    fn one_whose_try_was_not_needed_is_given_up_or_knocked_at_again() {
        let mut gateways = Gateways::new(peers(2));
        set(&mut gateways, 1, serving(1));
        set(&mut gateways, 2, Contact::Outrun { session: SessionId(2), until: at(3_000) });
        assert_eq!((gateways.to_give_up(at(2_999)), gateways.next_due(true)), (Vec::new(), Some(at(3_000))));
        assert_eq!(gateways.to_give_up(at(3_000)), [(key(2), SessionId(2))]);
        set(&mut gateways, 1, Contact::Silent { knock_at: at(1_500) });
        assert_eq!(gateways.to_knock_at(at(1_000), true), [key(2)]);
        gateways.expect(key(1), at(2_000));
        assert_eq!(gateways.to_knock_at(at(1_999), true), [key(1)], "it said that it is back at once");
        assert_eq!(gateways.to_knock_at(at(2_000), true), [key(1), key(2)]);
    }

    #[test]
    fn of_several_that_are_ready_the_first_that_answered_is_next() {
        let mut gateways = Gateways::new(peers(3));
        let ready = |session, millis| Contact::Ready {
            session: SessionId(session),
            welcome: Box::new(welcome()),
            until: at(millis),
        };
        set(&mut gateways, 1, serving(1));
        set(&mut gateways, 2, ready(2, 900));
        set(&mut gateways, 3, ready(3, 700));
        assert_eq!(gateways.ready(), Some((key(3), at(700))));
        assert_eq!(gateways.next_due(true), Some(at(700)));
    }

    #[test]
    fn no_more_are_used_than_there_may_be() {
        let mut peers = peers(MOST_GATEWAYS as u8 + 3);
        let gateways = Gateways::new(peers.clone());
        assert_eq!(gateways.keys().len(), MOST_GATEWAYS);
        let joined = peers.len() - 1;
        peers[..joined].iter_mut().for_each(|peer| peer.learned_from = Some(key(1)));
        let last = peers[joined].public_key;
        assert_eq!(Gateways::new(peers).keys()[0], last, "who was met by a link is never left out");
        assert!(Gateways::new(Vec::new()).is_empty());
    }
}
