//! The neighbours whose keys are known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use identity::{PairKeys, PublicKey, any0_address};
use linux::neighbour_routes::NeighbourRoute;
use tracing::{info, warn};
use units::{NetworkId, Timestamp};

use super::Neighbourhood;
use super::contact::Contact;
use super::pace::Pace;

/// One of them.
pub struct Known {
    /// Its name on this machine.
    pub name: String,
    /// Who it is.
    pub key: PublicKey,
    /// What seals to it.
    pub keys: PairKeys,
    /// What is believed of it.
    pub contact: Contact,
    /// How often it is asked for a sign of life.
    pub pace: Pace,
    /// Its IPv6 address on any0.
    pub v6: Ipv6Addr,
    /// Its IPv4 address on any0, if it said one that is not somebody else's.
    pub v4: Option<Ipv4Addr>,
}

impl Known {
    /// Its addresses on any0.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        [Some(IpAddr::V6(self.v6)), self.v4.map(IpAddr::V4)].into_iter().flatten()
    }
}

impl Neighbourhood {
    /// These keys are known, and no others any more.
    pub(super) fn get_to_know(&mut self, peers: Vec<(String, PublicKey)>) {
        let before = std::mem::take(&mut self.known);
        self.heard_from.clear();
        let mut old: Vec<Option<Known>> = before.into_iter().map(Some).collect();
        if peers.len() > MOST_KNOWN {
            warn!("{} keys are known; only the first {MOST_KNOWN} are looked for as neighbours", peers.len());
        }
        for (name, key) in peers.into_iter().take(MOST_KNOWN) {
            let same = old.iter_mut().find(|known| known.as_ref().is_some_and(|known| known.key == key));
            let known = same.and_then(Option::take).or_else(|| {
                Some(Known {
                    name: String::new(),
                    key,
                    keys: PairKeys::new(&self.around.key, key)?,
                    contact: Contact::default(),
                    pace: Pace::default(),
                    v6: any0_address::v6_of(key),
                    v4: None,
                })
            });
            if let Some(known) = known {
                self.known.push(Known { name, ..known });
            }
        }
        // Of those that are forgotten nothing stays.
        let staying: Vec<IpAddr> = self.known.iter().flat_map(Known::addresses).collect();
        self.routes.retain(|destination| staying.contains(destination));
        self.lead_far();
    }

    /// Has packets for those whom no link leads to go to any0, if there is a way from there.
    pub(super) fn lead_far(&mut self) {
        if self.around.far.is_none() {
            return;
        }
        let source = |address: &IpAddr| match address {
            IpAddr::V6(_) => Some(IpAddr::V6(self.own_v6)),
            IpAddr::V4(_) => self.own_v4.map(IpAddr::V4),
        };
        let addresses = self.known.iter().flat_map(|known| {
            [any0_address::v6_of(known.key).into(), IpAddr::V4(any0_address::v4_of(known.key))]
        });
        let wanted = addresses.filter_map(|address| Some((address, source(&address)?)));
        let wanted = wanted.filter(|(address, source)| address != source).collect();
        self.far_routes.set(self.routes.netlink(), wanted);
    }

    /// Tells which peers links lead to now.
    pub(super) fn tell_near(&self) {
        let Some(far) = &self.around.far else { return };
        let is_near = |known: &&Known| known.addresses().any(|address| self.routes.get(address).is_some());
        far.set_near(self.known.iter().filter(is_near).map(|known| known.key).collect());
    }

    /// Takes the network for the `at`th neighbour that policy chooses.
    pub(super) fn choose(&mut self, now: Timestamp, at: usize) {
        let ranked = self.links.ranked();
        let Some(known) = self.known.get(at) else { return };
        let maxdiff = known.pace.tolerance(now, self.settings.maxdiff);
        let mut has_changed = false;
        for destination in known.addresses() {
            // An IPv4 next hop carries no IPv6.
            let carries = |network: NetworkId| {
                known.contact.address(network).is_some_and(|hop| hop.is_ipv6() || destination.is_ipv4())
            };
            let usable: Vec<_> = ranked.iter().filter(|(network, _)| carries(*network)).copied().collect();
            let chosen = self.ways.choose(now, &self.database, destination, &usable, maxdiff);
            let source = match destination {
                IpAddr::V6(_) => Some(IpAddr::V6(self.own_v6)),
                IpAddr::V4(_) => self.own_v4.map(IpAddr::V4),
            };
            let way = chosen.zip(source).and_then(|(network, source)| {
                let (link, next_hop) = (self.links.get(network)?, known.contact.address(network)?);
                Some((
                    link,
                    NeighbourRoute { destination, next_hop: Some(next_hop), interface: link.index, source },
                ))
            });
            let (link, way) = way.map_or((None, None), |(link, way)| (Some(link.name.as_str()), Some(way)));
            if self.routes.set(destination, way) {
                has_changed = true;
                match link {
                    Some(link) => info!("{} ({destination}) is reached over {link}", known.name),
                    None => info!("{} ({destination}) is not reached over any link any more", known.name),
                }
            }
        }
        if has_changed {
            self.tell_near();
        }
    }
}

/// Each tag of a beacon costs a hash for each key.
const MOST_KNOWN: usize = wire::neighbour::MAX_TAGS;
