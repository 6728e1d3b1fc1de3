//! Peers nearby: they hear of what listens here, and are found by what calls. Also `anabranch peers`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch::apps::usual;
use anabranch::nearby::{Announcement, Circle, Search, Sighting, first_sight};
use anabranch::{Endpoint, Membership, Peer, PeerAddress};
use identity::{Groups, InvitationKind, KeyPair, Peers, PublicKey, StateDirectory};
use serde::Serialize;
use tracing::debug;
pub use wire::announcement::{CHAT, FILES, PORTS};

use super::{Known, groups};
use crate::arguments::{Listen, NearbyPeers};
use crate::output;
use crate::session::Session;
use crate::table::Table;

const TURN: Duration = Duration::from_secs(1);

/// Tells known peers nearby, or members of groups, of what listens here, for as long as the outcome is held; `None` if it is hidden or cannot be told.
pub fn announce<const PORT: u16>(
    session: &Session,
    listen: &Listen<PORT>,
    what: &str,
) -> Option<Announcement> {
    if listen.hidden {
        return None;
    }
    let (state, key) = super::identity(session).ok()?;
    let groups = groups::memberships(&state, &listen.group).ok()?;
    let peers = known_keys(&state);
    // Who works in groups is seen by their members, and by nobody else.
    let only = listen.only.as_slice();
    let peers = if groups.is_empty() { &*peers } else { &[] };
    let circle = Circle { peers, groups: &groups, only };
    let told = Announcement::begin(&key, circle, super::own_name().as_ref(), what, listen.port());
    told.inspect_err(|error| debug!(%error, "peers nearby are not told")).ok()
}

fn known_keys(state: &StateDirectory) -> Vec<PublicKey> {
    let peers = Peers::load(state).unwrap_or_default();
    peers.of_kind(InvitationKind::Peer).map(|peer| peer.public_key).collect()
}

/// Looks for peers nearby while something calls them, and tells the endpoint where they are.
pub struct Lookout {
    seen: Arc<Mutex<Seen>>,
    /// How long a peer without any known address is looked for before it is called in vain.
    first_sight: Duration,
}

type Seen = BTreeMap<PublicKey, BTreeSet<PeerAddress>>;
/// Addresses of one peer that are kept; what comes later is told to the endpoint all the same.
const MOST_ADDRESSES: usize = 32;

impl Lookout {
    /// For those who serve `what`.
    pub fn begin(key: &KeyPair, circle: Circle<'_>, what: &'static str, endpoint: &Endpoint) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let first_sight = first_sight(circle);
        match Search::begin(key, circle) {
            Ok(search) => {
                let (seen, endpoint) = (Arc::downgrade(&seen), endpoint.clone());
                std::thread::spawn(move || {
                    let mut search = search;
                    while seen.strong_count() > 0 {
                        let (key, serves, addresses) = match search.next(TURN) {
                            Some(Sighting::Peer { key, what, addresses }) => (key, what, addresses),
                            Some(Sighting::Member { key, what, addresses, .. }) => (key, what, addresses),
                            Some(Sighting::Stranger { .. }) | None => continue,
                        };
                        // Whatever it serves: it is here, and may pass on.
                        for address in &addresses {
                            if let PeerAddress::Bluetooth { device, .. } = address {
                                endpoint.beside(&usual::machine(key, *device));
                            }
                        }
                        if let Some(seen) = seen.upgrade().filter(|_| serves == what) {
                            endpoint.hint(&Peer { key, addresses: addresses.clone() });
                            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                            let known = seen.entry(key).or_default();
                            let room = MOST_ADDRESSES.saturating_sub(known.len());
                            known.extend(addresses.into_iter().take(room));
                        }
                    }
                });
            }
            Err(error) => debug!(%error, "peers nearby are not looked for"),
        }
        Self { seen, first_sight }
    }

    /// The peer with the addresses where it was seen.
    pub fn complete(&self, peer: &Peer) -> Peer {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let mut complete = peer.clone();
        complete.addresses.extend(seen.get(&peer.key).into_iter().flatten());
        complete
    }

    /// As [`Lookout::complete`]; a peer that has no address at all is waited for.
    pub fn wait_for(&self, known: &Known) -> Peer {
        let deadline = Instant::now() + self.first_sight;
        loop {
            let peer = self.complete(&known.peer);
            let is_somewhere = peer.addresses.iter().any(|address| !address.is_unspecified());
            if is_somewhere || Instant::now() >= deadline {
                return peer;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// A peer that was seen, or was not.
#[derive(Serialize)]
struct Row {
    name: String,
    /// The group that it is seen in.
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    public_key: String,
    /// By what it serves.
    nearby: BTreeMap<String, BTreeSet<String>>,
}

/// `anabranch peers`.
pub fn run(session: &Session, arguments: &NearbyPeers) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let in_groups = groups::memberships(&state, &arguments.group)?;
    let peers = if in_groups.is_empty() { known_keys(&state) } else { Vec::new() };
    let only = arguments.only.as_slice();
    let circle = Circle { peers: &peers, groups: &in_groups, only };
    let mut search = Search::begin(&key, circle)?;
    let mut rows = known_rows(&state, &in_groups)?;
    let mut strangers = BTreeSet::new();
    let patience = arguments.seconds.map_or_else(|| first_sight(circle), Duration::from_secs);
    let deadline = Instant::now() + patience;
    while let Some(sighting) = search.next(deadline.saturating_duration_since(Instant::now())) {
        match sighting {
            Sighting::Peer { key, what, addresses } => {
                let row = rows.iter_mut().find(|row| row.public_key == key.to_string());
                if let Some(row) = row {
                    let addresses = addresses.iter().map(ToString::to_string);
                    row.nearby.entry(what).or_default().extend(addresses);
                }
            }
            Sighting::Member { group, key, called, what, addresses } => {
                let name = groups::remember(&state, &group, called.as_ref(), key)?.unwrap_or_default();
                let key = key.to_string();
                let addresses = addresses.iter().map(ToString::to_string);
                let is_row = |row: &&mut Row| row.public_key == key && row.group.as_ref() == Some(&group);
                match rows.iter_mut().find(is_row) {
                    Some(row) => row.nearby.entry(what).or_default().extend(addresses),
                    None => {
                        let nearby = BTreeMap::from([(what, addresses.collect())]);
                        rows.push(Row { name, group: Some(group), public_key: key, nearby });
                    }
                }
            }
            Sighting::Stranger { name } => {
                strangers.insert(name);
            }
        }
    }
    if arguments.json {
        return output::json(&rows);
    }
    if rows.is_empty() && !in_groups.is_empty() {
        output::line("Nobody else of these groups is nearby, or was met before.")?;
    } else if rows.is_empty() {
        output::line(
            "No peer is known: `anabranch receive` or `anabranch chat` on another machine shows a link to it.",
        )?;
    } else {
        let mut table = match in_groups.is_empty() {
            true => Table::new(&["PEER", "NEARBY", "KEY"]),
            false => Table::new(&["MEMBER", "GROUP", "NEARBY", "KEY"]),
        };
        for row in rows {
            let seen: Vec<String> =
                row.nearby.iter().map(|(what, addresses)| told(what, addresses)).collect();
            let seen = if seen.is_empty() { "-".to_owned() } else { seen.join(", ") };
            let cells = [Some(row.name), row.group, Some(seen), Some(row.public_key)];
            table.row(cells.into_iter().flatten().collect());
        }
        output::line(&table.render())?;
    }
    if !strangers.is_empty() {
        let number = strangers.len();
        output::remark(&format!(
            "{number} others are nearby who are not known here, or do not know this machine."
        ));
    }
    Ok(())
}

/// Those whom this machine knows: in the groups, or as peers if there are none.
fn known_rows(state: &StateDirectory, in_groups: &[Membership]) -> anyhow::Result<Vec<Row>> {
    let row = |name: &String, key: PublicKey, group: Option<&String>| Row {
        name: name.clone(),
        group: group.cloned(),
        public_key: key.to_string(),
        nearby: BTreeMap::new(),
    };
    if in_groups.is_empty() {
        let peers = Peers::load(state)?;
        let known = peers.of_kind(InvitationKind::Peer);
        return Ok(known.map(|peer| row(&peer.name, peer.public_key, None)).collect());
    }
    let groups = Groups::load(state)?;
    let asked = groups.iter().filter(|group| in_groups.iter().any(|one| one.group == group.name));
    let members = asked.flat_map(|group| group.members.iter().map(move |member| (group, member)));
    Ok(members.map(|(group, member)| row(&member.name, member.public_key, Some(&group.name))).collect())
}

/// `files at 192.168.0.7:4610`.
fn told(what: &str, addresses: &BTreeSet<String>) -> String {
    format!("{what} at {}", addresses.iter().map(String::as_str).collect::<Vec<_>>().join(" "))
}
