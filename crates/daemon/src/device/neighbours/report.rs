//! Who is where, for people.

use std::net::IpAddr;

use anabranch::control::{Micros, NeighbourLinkReport, NeighbourReport};
use identity::{Peers, PublicKey, any0_address};
use units::Timestamp;

use super::{Neighbourhood, known_peers};

/// Those whose keys are known, where nobody looks for them.
pub fn unmet(peers: &Peers) -> Vec<NeighbourReport> {
    let report = |(name, key): (String, PublicKey)| NeighbourReport {
        name,
        public_key: key.to_string(),
        addresses: vec![any0_address::v6_of(key).into()],
        network: None,
        links: Vec::new(),
    };
    known_peers(peers).into_iter().map(report).collect()
}

impl Neighbourhood {
    /// All neighbours whose keys are known.
    pub(super) fn report(&self, now: Timestamp) -> Vec<NeighbourReport> {
        let name_of =
            |index: u32| self.links.iter().find(|link| link.index == index).map(|link| link.name.clone());
        let micros =
            |duration: std::time::Duration| Micros(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX));
        self.known
            .iter()
            .map(|known| {
                let links = self.database.links(now, IpAddr::V6(known.v6)).filter_map(|entry| {
                    Some(NeighbourLinkReport {
                        network: self.links.get(entry.network)?.name.clone(),
                        address: known.contact.address(entry.network)?,
                        last_seen: micros(now.since(entry.last_seen)),
                        rtt: entry.rtt.map(micros),
                    })
                });
                let ways: Vec<_> = known.addresses().filter_map(|own| self.routes.get(own)).collect();
                NeighbourReport {
                    name: known.name.clone(),
                    public_key: known.key.to_string(),
                    addresses: known.addresses().collect(),
                    network: ways.first().and_then(|way| name_of(way.interface)),
                    links: links.collect(),
                }
            })
            .collect()
    }
}
