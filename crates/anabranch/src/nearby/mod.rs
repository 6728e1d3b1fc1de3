//! Peers nearby: DNS service discovery (RFC 6763) over multicast DNS (RFC 6762), on the adapters that virtual sockets use; and Low Energy
//! advertisements where there is Bluetooth (`bluetooth`).
//!
//! ```text
//! RANDOM._anabranch._udp.local.  SRV port, host RANDOM.local.
//!                                TXT what is served, a nonce, tags, sealed entries      wire::announcement
//! ```
//!
//! An announcement names nobody: there is a tag for each peer that is known, made from the nonce with the secret of the two keys, so that
//! only that peer knows it for its own ([`identity::PairKeys::tag`], as in the neighbours' beacons). Strangers see that somebody is there, and by a new
//! random name each time. To its groups it tells who it is, by an entry that only their members can open
//! ([`wire::group::Entry`]). Addresses are hints, as ever: whoever answers there must have the key.
//!
//! Over Bluetooth there is room for one peer or one group at a time, and not for the key of who announces itself to a group: members know each other there
//! who have met or been told of each other.

mod bluetooth;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use identity::{GroupUse, KeyPair, PairKeys, PlaceKey, PublicKey};
use mdns_sd::{
    IfKind, IfPredicate, Receiver, ResolvedService, ServiceDaemon, ServiceEvent, ServiceInfo, TxtProperty,
};
use thiserror::Error;
use tracing::debug;
use wire::announcement::Announcement as Told;
use wire::group::{Entry, MAX_AT_ONCE};
use wire::hello::Name;
use wire::neighbour::{MAX_TAGS, NONCE_LEN, TAG_LEN};
use wire::peer::PeerAddress;
use wire::short_announcement::{Served, ShortAnnouncement};

use bluetooth::{Announcing, Listening};

use crate::machine;
use crate::sockets::{AdapterMonitor, BindError, Membership};

const SERVICE: &str = "_anabranch._udp.local.";
/// Announcements of others that one search looks at, each once for each port; whoever shouts more is not heard.
const MAX_SIGHTINGS: usize = 1_000;
/// Addresses of one announcement that are tried.
const MAX_ADDRESSES: usize = 16;
/// How long the last word of an announcement may take to be said.
const GOODBYE: Duration = Duration::from_millis(300);
/// How soon an announcement over Bluetooth is looked at.
const GLANCE: Duration = Duration::from_millis(50);
/// Until a peer on the same link is heard: three questions of multicast DNS.
const SOON: Duration = Duration::from_secs(3);
/// The same over Bluetooth: two turns of an announcer, whose kernel advertises each 1.28 s.
const SOON_BY_BLUETOOTH: Duration = Duration::from_secs(8);

/// Why peers nearby are neither told nor found.
#[derive(Debug, Error)]
pub enum NearbyError {
    /// Multicast DNS cannot be spoken.
    #[error("peers nearby cannot be looked for: {0}")]
    MulticastDns(#[from] mdns_sd::Error),
    /// The kernel does not tell of its adapters, or gives no randomness.
    #[error(transparent)]
    System(#[from] BindError),
}

/// To whom an announcement speaks, or for whom a search looks.
#[derive(Clone, Copy, Default, Debug)]
pub struct Circle<'a> {
    /// Peers that know this machine's key, and whose key it knows; 64 at most.
    pub peers: &'a [PublicKey],
    /// Groups, eight at most.
    pub groups: &'a [Membership],
    /// By these adapters only, by name.
    pub only: Option<&'a [String]>,
}

/// How long those of a circle who are nearby may take to be seen by this machine.
pub fn first_sight(circle: Circle<'_>) -> Duration {
    let has_bluetooth = || {
        let monitor = AdapterMonitor::shared();
        monitor.is_ok_and(|monitor| !bluetooth::controllers(&monitor, circle.only).is_empty())
    };
    let has_members = || circle.groups.iter().any(|membership| !membership.members.is_empty());
    let is_known = !circle.peers.is_empty() || has_members();
    if is_known && has_bluetooth() { SOON_BY_BLUETOOTH } else { SOON }
}

/// Tells peers nearby that this machine takes their calls, until it is dropped.
pub struct Announcement {
    daemon: ServiceDaemon,
    full_name: String,
    /// Where what is served has a number there, and somebody is to be told.
    _by_bluetooth: Option<Announcing>,
}

impl Announcement {
    /// For that circle; `what` is served on UDP port `port`, in a word for the program that looks for it. `called` is told to groups.
    ///
    /// # Errors
    /// [`NearbyError`].
    pub fn begin(
        key: &KeyPair,
        circle: Circle<'_>,
        called: Option<&Name>,
        what: &str,
        port: u16,
    ) -> Result<Self, NearbyError> {
        let seed = machine::seed().map_err(BindError::from)?;
        let (nonce, name) = seed.split_at(NONCE_LEN);
        let mut of_nonce = [0; NONCE_LEN];
        of_nonce.copy_from_slice(nonce);
        let name: String = name.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let tags: Vec<[u8; TAG_LEN]> = circle
            .peers
            .iter()
            .filter_map(|peer| Some(PairKeys::new(key, *peer)?.tag(&of_nonce)))
            .take(MAX_TAGS)
            .collect();
        let entry = Entry { public_key: key.public().0, name: called.cloned() }.encode();
        // The nonce is used once, for one announcement.
        let seal = |membership: &Membership| {
            membership.keys.seal(GroupUse::Announcements, &of_nonce, &entry)?.try_into().ok()
        };
        let entries = circle.groups.iter().take(MAX_AT_ONCE).filter_map(seal).collect();
        let told = Told { what: what.to_owned(), nonce: of_nonce, tags, entries };
        let properties: Vec<TxtProperty> = told.values().into_iter().map(TxtProperty::from).collect();
        let host = format!("{name}.local.");
        let service = ServiceInfo::new(SERVICE, &name, &host, "", port, properties)?.enable_addr_auto();
        let full_name = service.get_fullname().to_owned();
        let daemon = speaker(circle.only)?;
        daemon.register(service)?;
        Ok(Self { daemon, full_name, _by_bluetooth: tell_by_bluetooth(key, circle, what, port) })
    }
}

fn tell_by_bluetooth(key: &KeyPair, circle: Circle<'_>, what: &str, port: u16) -> Option<Announcing> {
    let served = Served::of_word(what)?;
    let peers = circle.peers.iter().filter_map(|peer| Some(PairKeys::new(key, *peer)?.own_place()));
    let groups = circle.groups.iter().take(MAX_AT_ONCE);
    let groups = groups.map(|membership| membership.keys.place_of(key.public()));
    let told: Vec<PlaceKey> = peers.take(MAX_TAGS).chain(groups).collect();
    let only = circle.only.map(<[String]>::to_vec);
    let begun = (!told.is_empty()).then(|| Announcing::begin(told, served, port, only))?;
    begun.inspect_err(|error| debug!(%error, "peers in reach of Bluetooth are not told")).ok()
}

impl Drop for Announcement {
    fn drop(&mut self) {
        // Without it peers forget it by themselves, only later.
        if let Ok(said) = self.daemon.unregister(&self.full_name) {
            let _ = said.recv_timeout(GOODBYE);
        }
        let _ = self.daemon.shutdown();
    }
}

/// Somebody who was seen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Sighting {
    /// A known peer; the announcement could be an old one that was repeated by somebody else, so its addresses are hints.
    Peer {
        /// Who.
        key: PublicKey,
        /// What it serves.
        what: String,
        /// Where.
        addresses: Vec<PeerAddress>,
    },
    /// A member of a group.
    Member {
        /// The group, by its name here.
        group: String,
        /// Who, as a member of the group says.
        key: PublicKey,
        /// What it calls itself.
        called: Option<Name>,
        /// What it serves.
        what: String,
        /// Where.
        addresses: Vec<PeerAddress>,
    },
    /// Somebody whom this machine does not know, or who does not know this machine.
    Stranger {
        /// The name of the announcement, which is random.
        name: String,
    },
}

/// By what somebody is known in a short announcement.
struct Place {
    by: PlaceKey,
    key: PublicKey,
    /// Of which it is a member.
    group: Option<String>,
}

/// Looks for peers nearby, until it is dropped.
pub struct Search {
    daemon: ServiceDaemon,
    events: Receiver<ServiceEvent>,
    own: PublicKey,
    known: Vec<(PublicKey, PairKeys)>,
    groups: Vec<Membership>,
    by_bluetooth: Option<Listening>,
    places: Vec<Place>,
    seen: BTreeSet<String>,
}

impl Search {
    /// For those of that circle.
    ///
    /// # Errors
    /// [`NearbyError`].
    pub fn begin(key: &KeyPair, circle: Circle<'_>) -> Result<Self, NearbyError> {
        let known = circle.peers.iter().filter_map(|peer| Some((*peer, PairKeys::new(key, *peer)?)));
        let known: Vec<_> = known.take(MAX_TAGS).collect();
        let daemon = speaker(circle.only)?;
        let events = daemon.browse(SERVICE)?;
        let groups: Vec<Membership> = circle.groups.iter().take(MAX_AT_ONCE).cloned().collect();
        let places = places(key.public(), &known, &groups);
        let listening = || Listening::begin(circle.only.map(<[String]>::to_vec));
        let by_bluetooth = (!places.is_empty()).then(listening).and_then(|listening| {
            listening.inspect_err(|error| debug!(%error, "peers in reach of Bluetooth are not heard")).ok()
        });
        let (own, seen) = (key.public(), BTreeSet::new());
        Ok(Self { daemon, events, own, known, groups, by_bluetooth, places, seen })
    }

    /// The next sighting, also of somebody who was seen before and is elsewhere now; `None` if there is none in that time.
    pub fn next(&mut self, patience: Duration) -> Option<Sighting> {
        let deadline = Instant::now() + patience;
        loop {
            let heard = self.by_bluetooth.as_ref().and_then(Listening::next);
            if let Some(sighting) = heard.and_then(|(served, told)| self.look_at_short(served, &told)) {
                return Some(sighting);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let patience = if self.by_bluetooth.is_some() { left.min(GLANCE) } else { left };
            let sighting = match self.events.recv_timeout(patience) {
                Ok(ServiceEvent::ServiceResolved(service)) => self.look_at(&service),
                Ok(_) => None,
                Err(_) if left.is_zero() || self.by_bluetooth.is_none() => return None,
                Err(_) => {
                    // Without multicast DNS there is Bluetooth still.
                    if self.events.is_disconnected() {
                        std::thread::sleep(patience);
                    }
                    None
                }
            };
            if sighting.is_some() {
                return sighting;
            }
        }
    }

    /// Those for others say nothing, not even how many others there are: one machine has many.
    fn look_at_short(&mut self, served: Served, told: &ShortAnnouncement) -> Option<Sighting> {
        let ours = |place: &Place| {
            Some((place.key, place.group.clone(), bluetooth::place(&place.by, served, told)?))
        };
        let (key, group, address) = self.places.iter().find_map(ours)?;
        let news = format!("{served:?} {key} {group:?} {address}");
        let is_news = self.seen.len() < MAX_SIGHTINGS && self.seen.insert(news);
        debug!(%address, "a peer is in reach of Bluetooth");
        let (what, addresses) = (served.word().to_owned(), vec![address]);
        is_news.then_some(match group {
            Some(group) => Sighting::Member { group, key, called: None, what, addresses },
            None => Sighting::Peer { key, what, addresses },
        })
    }

    fn look_at(&mut self, service: &ResolvedService) -> Option<Sighting> {
        let mut addresses: Vec<SocketAddr> = service
            .get_addresses()
            .iter()
            .map(|address| address.to_ip_addr())
            .filter(is_hint)
            .take(MAX_ADDRESSES)
            .map(|address| SocketAddr::new(address, service.get_port()))
            .collect();
        addresses.sort_unstable();
        let name = service.get_fullname();
        let news = format!("{name} {addresses:?}");
        if self.seen.len() >= MAX_SIGHTINGS || !self.seen.insert(news) {
            return None;
        }
        let value = |name: &str| service.get_property_val(name).flatten();
        let told = Told::read(&value);
        debug!(name, ?addresses, "somebody is nearby");
        let recognized =
            told.filter(|_| !addresses.is_empty()).and_then(|told| self.recognize(told, addresses));
        Some(recognized.unwrap_or_else(|| Sighting::Stranger { name: name.to_owned() }))
    }

    fn recognize(&self, told: Told, addresses: Vec<SocketAddr>) -> Option<Sighting> {
        let addresses: Vec<PeerAddress> = addresses.into_iter().map(PeerAddress::from).collect();
        let Told { what, nonce, tags, entries } = told;
        let is_own = |keys: &PairKeys| tags.contains(&keys.expected_tag(&nonce));
        if let Some((key, _)) = self.known.iter().find(|(_, keys)| is_own(keys)) {
            return Some(Sighting::Peer { key: *key, what, addresses });
        }
        self.groups.iter().find_map(|membership| {
            let open = |sealed| membership.keys.open(GroupUse::Announcements, &nonce, sealed);
            let entry = entries.iter().find_map(|sealed| Entry::parse(&open(sealed)?).ok())?;
            let (group, key) = (membership.group.clone(), PublicKey(entry.public_key));
            let (what, addresses) = (what.clone(), addresses.clone());
            let member = Sighting::Member { group, key, called: entry.name, what, addresses };
            (key != self.own).then_some(member)
        })
    }
}

/// By what all of a circle are known in short announcements, but for this machine itself.
fn places(own: PublicKey, peers: &[(PublicKey, PairKeys)], groups: &[Membership]) -> Vec<Place> {
    let peers = peers.iter().map(|(key, keys)| Place { by: keys.place(), key: *key, group: None });
    let members = groups.iter().flat_map(|membership| {
        let others = membership.members.iter().filter(move |member| **member != own);
        others.map(|member| {
            let group = Some(membership.group.clone());
            Place { by: membership.keys.place_of(*member), key: *member, group }
        })
    });
    peers.chain(members).collect()
}

impl Drop for Search {
    fn drop(&mut self) {
        let _ = self.daemon.shutdown();
    }
}

/// Link-local IPv6 addresses would need their link, loopback ones are never another machine's.
fn is_hint(address: &IpAddr) -> bool {
    let is_link_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

/// What speaks multicast DNS, on the adapters of virtual sockets only: neither on tunnels nor within this machine.
fn speaker(only: Option<&[String]>) -> Result<ServiceDaemon, NearbyError> {
    let only = only.map(<[String]>::to_vec);
    let monitor = AdapterMonitor::shared()?;
    let daemon = ServiceDaemon::new()?;
    daemon.disable_interface(IfKind::All)?;
    daemon.enable_interface(IfKind::Predicate(IfPredicate::new(move |interface| {
        let adapters = monitor.look().0;
        let is_meant = only.as_ref().is_none_or(|only| only.contains(&interface.name));
        is_meant && adapters.iter().any(|adapter| adapter.name == interface.name && !adapter.loopback)
    })))?;
    Ok(daemon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_other_machines_are_hints() {
        for (text, fits) in [
            ("10.0.0.1", true),
            ("fd00::1", true),
            ("127.0.0.1", false),
            ("fe80::1", false),
            ("224.0.0.1", false),
            ("::", false),
        ] {
            assert_eq!(is_hint(&text.parse().unwrap()), fits, "{text}");
        }
    }
}
