//! Far ends that this machine knows by name: who they are, where they may be reached, how they were met.

use std::fs::{self, OpenOptions};
use std::io;
use std::num::NonZeroU16;
use std::path::Path;

use data_encoding::BASE32_NOPAD;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wire::hello::Name;
use wire::join_link::{HostPort, InvitationKind, InvitationSecret, JoinLink, UnixSeconds};
use wire::request::{MOST_SIBLINGS, Sibling};
use zeroize::{Zeroize, Zeroizing};

use crate::atomic_file::{self, Existing, WriteError, open_private};
use crate::key::PublicKey;
use crate::state::StateDirectory;

const FILE_NAME: &str = "peers.toml";
/// Most peers that are kept.
const MAX_PEERS: usize = 1_000;
/// Larger files are not read.
const MAX_FILE: u64 = 4 * 1024 * 1024;

/// One far end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Name on this machine.
    pub name: String,
    /// What it is to this machine.
    pub kind: InvitationKind,
    /// Who it is.
    pub public_key: PublicKey,
    /// Where it may be reached, best first.
    pub addresses: Vec<HostPort>,
    /// Port of its framed-TCP carrier.
    pub tcp_port: Option<NonZeroU16>,
    /// When it was first met.
    pub added: UnixSeconds,
    /// To be shown to it until it has let this machine in.
    pub invitation: Option<InvitationSecret>,
    /// The gateway that named it last, if it was never met by a link.
    pub learned_from: Option<PublicKey>,
}

/// The far ends of one state directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Peers {
    peers: Vec<Peer>,
}

/// What a link did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// Name of the far end on this machine.
    pub name: String,
    /// It was known already; its addresses and its invitation are now those of the link.
    pub renewed: bool,
}

/// Why a link was not taken. Nothing was changed.
#[derive(Debug, Error)]
pub enum JoinError {
    /// Its time is over.
    #[error(
        "the join link expired {} ago by this machine's clock; ask for a new one (or set the clock if it is wrong)",
        span(*.ago)
    )]
    Expired {
        /// Seconds since then.
        ago: u64,
    },
    /// The name belongs to another far end.
    #[error("another {kind} is called {name} here; choose another name with --name")]
    NameTaken {
        /// The name.
        name: String,
        /// What the other is.
        kind: InvitationKind,
    },
    /// The name is none.
    #[error("not a name: 1 to 64 characters, no control characters, no space at either end")]
    Name,
    /// The link was made on this machine.
    #[error("this link was made here, with this machine's own key; use it on the other machine")]
    OwnLink,
    /// Too many.
    #[error("{MAX_PEERS} far ends are known, no more can be kept")]
    TooMany,
    /// The file failed.
    #[error(transparent)]
    Peers(#[from] PeersError),
}

/// Why the known far ends, or groups, cannot be read or written.
#[derive(Debug, Error)]
pub enum PeersError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file makes no sense.
    #[error("{} is damaged: {reason}; mend it, or move it away and join again", path.display())]
    Damaged {
        /// The file.
        path: std::path::PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The file cannot be written.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Peers {
    /// Reads the far ends of a state directory; none if there is no file.
    ///
    /// # Errors
    /// Any [`PeersError`].
    pub fn load(state: &StateDirectory) -> Result<Self, PeersError> {
        let path = state.file(FILE_NAME);
        let Some(text) = read_file(&path)? else { return Ok(Self::default()) };
        let file: PeerFile = toml::from_str(&text).map_err(|error| PeersError::Damaged {
            path: path.clone(),
            reason: first_line(error.message()),
        })?;
        let peers = file.peer.into_iter().map(Peer::try_from).collect::<Result<_, _>>();
        let peers = peers.map_err(|reason| PeersError::Damaged { path, reason })?;
        Ok(Self { peers })
    }

    /// Reads, changes and writes the far ends of a state directory, while no other process does.
    ///
    /// Nothing is written if `change` fails.
    ///
    /// # Errors
    /// That of `change`, or a [`PeersError`].
    pub fn change<T, E: From<PeersError>>(
        state: &StateDirectory,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let path = state.file("peers.lock");
        let lock =
            open_private(&path, OpenOptions::new().write(true).truncate(false)).map_err(PeersError::from)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| PeersError::from(WriteError::new(&path, error.into())))?;
        let mut peers = Self::load(state)?;
        let outcome = change(&mut peers)?;
        peers.save(state)?;
        Ok(outcome)
    }

    /// Adds the far end that a link introduces, or renews it if its key is known. `own` is this machine's key.
    ///
    /// # Errors
    /// Any [`JoinError`].
    pub fn join(
        &mut self,
        link: &JoinLink,
        name: Option<&str>,
        own: PublicKey,
        now: UnixSeconds,
    ) -> Result<Joined, JoinError> {
        let public_key = PublicKey(link.public_key);
        if public_key == own {
            return Err(JoinError::OwnLink);
        }
        if now >= link.expires {
            return Err(JoinError::Expired { ago: now.0 - link.expires.0 });
        }
        if let Some(name) = name {
            Name::new(name).map_err(|_| JoinError::Name)?;
            let other = self.peers.iter().find(|peer| peer.name == name && peer.public_key != public_key);
            if let Some(other) = other {
                return Err(JoinError::NameTaken { name: name.to_owned(), kind: other.kind });
            }
        }
        if let Some(known) = self.peers.iter_mut().find(|peer| peer.public_key == public_key) {
            known.kind = link.kind;
            known.addresses.clone_from(&link.addresses);
            known.tcp_port = link.tcp_port;
            known.invitation = Some(link.secret.clone());
            known.learned_from = None;
            if let Some(name) = name {
                name.clone_into(&mut known.name);
            }
            return Ok(Joined { name: known.name.clone(), renewed: true });
        }
        if self.peers.len() >= MAX_PEERS {
            return Err(JoinError::TooMany);
        }
        let name = name.map_or_else(|| self.free_name(link.kind), str::to_owned);
        self.peers.push(Peer {
            name: name.clone(),
            kind: link.kind,
            public_key,
            addresses: link.addresses.clone(),
            tcp_port: link.tcp_port,
            added: now,
            invitation: Some(link.secret.clone()),
            learned_from: None,
        });
        Ok(Joined { name, renewed: false })
    }

    /// Adds a peer whose key was told in person, or gives a known one a new name. `own` is this machine's key.
    ///
    /// # Errors
    /// [`JoinError::Name`], [`JoinError::NameTaken`], [`JoinError::OwnLink`] or [`JoinError::TooMany`].
    pub fn acquaint(
        &mut self,
        name: &str,
        public_key: PublicKey,
        own: PublicKey,
        now: UnixSeconds,
    ) -> Result<(), JoinError> {
        Name::new(name).map_err(|_| JoinError::Name)?;
        if public_key == own {
            return Err(JoinError::OwnLink);
        }
        if let Some(other) = self.by_name(name).filter(|peer| peer.public_key != public_key) {
            return Err(JoinError::NameTaken { name: name.to_owned(), kind: other.kind });
        }
        if let Some(known) = self.peers.iter_mut().find(|peer| peer.public_key == public_key) {
            name.clone_into(&mut known.name);
            return Ok(());
        }
        if self.peers.len() >= MAX_PEERS {
            return Err(JoinError::TooMany);
        }
        self.peers.push(Peer {
            name: name.to_owned(),
            kind: InvitationKind::Peer,
            public_key,
            addresses: Vec::new(),
            tcp_port: None,
            added: now,
            invitation: None,
            learned_from: None,
        });
        Ok(())
    }

    /// Takes over which other gateways a gateway names: they let this machine in too. What it named before and does not any more is forgotten;
    /// who was met by a link, or is known otherwise, stays as it is. Whether anything has changed.
    pub fn learn(&mut self, from: PublicKey, siblings: &[Sibling], own: PublicKey, now: UnixSeconds) -> bool {
        let before = self.peers.clone();
        let names = |key: PublicKey| siblings.iter().any(|sibling| sibling.public_key == key.0);
        self.peers.retain(|peer| peer.learned_from != Some(from) || names(peer.public_key));
        for sibling in siblings {
            let public_key = PublicKey(sibling.public_key);
            if public_key == own || public_key == from {
                continue;
            }
            if let Some(known) = self.peers.iter_mut().find(|peer| peer.public_key == public_key) {
                if known.learned_from.is_some() {
                    known.addresses = sibling.addresses.to_vec();
                    known.tcp_port = sibling.tcp_port;
                    known.learned_from = Some(from);
                }
                continue;
            }
            let learned = self.peers.iter().filter(|peer| peer.learned_from.is_some()).count();
            if learned >= MOST_SIBLINGS || self.peers.len() >= MAX_PEERS {
                continue;
            }
            let told = sibling.name.as_str();
            let name = match self.by_name(told) {
                None => told.to_owned(),
                Some(_) => self.free_name(InvitationKind::Gateway),
            };
            self.peers.push(Peer {
                name,
                kind: InvitationKind::Gateway,
                public_key,
                addresses: sibling.addresses.to_vec(),
                tcp_port: sibling.tcp_port,
                added: now,
                invitation: None,
                learned_from: Some(from),
            });
        }
        self.peers != before
    }

    /// Forgets the invitation of a far end, once that has let this machine in; whether there was one.
    pub fn redeemed(&mut self, key: PublicKey) -> bool {
        let peer = self.peers.iter_mut().find(|peer| peer.public_key == key);
        peer.is_some_and(|peer| peer.invitation.take().is_some())
    }

    /// Forgets a far end; whether it was known.
    pub fn forget(&mut self, name: &str) -> bool {
        let before = self.peers.len();
        self.peers.retain(|peer| peer.name != name);
        self.peers.len() < before
    }

    /// The far end of that name.
    pub fn by_name(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    /// All far ends of a kind, in the order they were met.
    pub fn of_kind(&self, kind: InvitationKind) -> impl Iterator<Item = &Peer> {
        self.peers.iter().filter(move |peer| peer.kind == kind)
    }

    fn free_name(&self, kind: InvitationKind) -> String {
        let numbered = (2..).map(|number| format!("{kind}-{number}"));
        let mut names = std::iter::once(kind.to_string()).chain(numbered);
        names.find(|name| self.by_name(name).is_none()).unwrap_or_default()
    }

    fn save(&self, state: &StateDirectory) -> Result<(), PeersError> {
        let path = state.file(FILE_NAME);
        let mut file = PeerFile { peer: self.peers.iter().map(PeerEntry::from).collect() };
        let text = toml::to_string(&file)
            .map(Zeroizing::new)
            .map_err(|error| PeersError::Damaged { path: path.clone(), reason: error.to_string() });
        file.peer.iter_mut().for_each(|entry| entry.invitation.zeroize());
        Ok(atomic_file::write(&path, text?.as_bytes(), Existing::Replace)?)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerFile {
    #[serde(default)]
    peer: Vec<PeerEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerEntry {
    name: String,
    kind: String,
    public_key: String,
    addresses: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tcp_port: Option<NonZeroU16>,
    added: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    invitation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    learned_from: Option<String>,
}

impl From<&Peer> for PeerEntry {
    fn from(peer: &Peer) -> Self {
        Self {
            name: peer.name.clone(),
            kind: peer.kind.to_string(),
            public_key: peer.public_key.to_string(),
            addresses: peer.addresses.iter().map(HostPort::to_string).collect(),
            tcp_port: peer.tcp_port,
            added: peer.added.0.min(i64::MAX as u64),
            invitation: peer.invitation.as_ref().map(|secret| BASE32_NOPAD.encode(&secret.0)),
            learned_from: peer.learned_from.map(|gateway| gateway.to_string()),
        }
    }
}

impl TryFrom<PeerEntry> for Peer {
    type Error = String;

    fn try_from(mut entry: PeerEntry) -> Result<Self, String> {
        let wrong = |key: &str| format!("the {key} of {} makes no sense", entry.name);
        let kind = match entry.kind.as_str() {
            "gateway" => InvitationKind::Gateway,
            "peer" => InvitationKind::Peer,
            "neighbour" => InvitationKind::Neighbour,
            _ => return Err(wrong("kind")),
        };
        let public_key = entry.public_key.parse().map_err(|_| wrong("public_key"))?;
        let addresses = entry.addresses.iter().map(|text| text.parse()).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.map_err(|_| wrong("addresses"))?;
        let invitation = entry.invitation.as_ref().map(|text| {
            let bytes =
                BASE32_NOPAD.decode(text.as_bytes()).map(Zeroizing::new).map_err(|_| wrong("invitation"))?;
            bytes.as_slice().try_into().map(InvitationSecret).map_err(|_| wrong("invitation"))
        });
        let invitation = invitation.transpose()?;
        let learned_from = entry.learned_from.as_ref().map(|text| text.parse());
        let learned_from = learned_from.transpose().map_err(|_| wrong("learned_from"))?;
        entry.invitation.zeroize();
        Ok(Self {
            name: entry.name,
            kind,
            public_key,
            addresses,
            tcp_port: entry.tcp_port,
            added: UnixSeconds(entry.added),
            invitation,
            learned_from,
        })
    }
}

/// The text of a file of the state directory; `None` if there is no such file.
pub(crate) fn read_file(path: &Path) -> Result<Option<Zeroizing<String>>, PeersError> {
    let read = fs::metadata(path).and_then(|metadata| match metadata.len() {
        0..=MAX_FILE => fs::read_to_string(path).map(Zeroizing::new),
        _ => Err(io::ErrorKind::FileTooLarge.into()),
    });
    match read {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PeersError::Read { path: path.to_owned(), source }),
        Ok(text) => Ok(Some(text)),
    }
}

/// TOML's message without the excerpt, which could show an invitation.
pub(crate) fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or("unreadable").to_owned()
}

/// `3 h`, `2 days`: one unit is enough.
fn span(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: PublicKey = PublicKey([9; 32]);
    const NOW: UnixSeconds = UnixSeconds(1_800_000_000);

    fn link(number: u8) -> JoinLink {
        JoinLink {
            kind: InvitationKind::Gateway,
            public_key: [number; 32],
            addresses: vec!["192.0.2.1:4600".parse().unwrap()],
            tcp_port: None,
            secret: InvitationSecret([number; 16]),
            expires: UnixSeconds(NOW.0 + 60),
        }
    }

    fn sibling(number: u8, name: &str, address: &str) -> Sibling {
        Sibling {
            public_key: [number; 32],
            name: Name::new(name).unwrap(),
            tcp_port: NonZeroU16::new(443),
            addresses: std::iter::once(address.parse().unwrap()).collect(),
        }
    }

    fn names(peers: &Peers) -> Vec<&str> {
        peers.of_kind(InvitationKind::Gateway).map(|peer| peer.name.as_str()).collect()
    }

    #[test]
    fn learned_gateways_come_move_and_go() {
        let (first, second, third) = (PublicKey([1; 32]), PublicKey([2; 32]), PublicKey([3; 32]));
        let mut peers = Peers::default();
        peers.join(&link(1), None, OWN, NOW).unwrap();
        let two = sibling(2, "oslo", "198.51.100.2:4600");
        let told =
            [two.clone(), sibling(3, "gateway", "198.51.100.3:4600"), sibling(9, "me", "198.51.100.9:1")];
        assert!(peers.learn(first, &told, OWN, NOW));
        assert_eq!(names(&peers), ["gateway", "oslo", "gateway-2"], "a name that is taken, and this machine");
        assert!(!peers.learn(first, &told, OWN, NOW), "nothing new");
        // The second tells of the first, which was met by a link, and that the third has moved.
        let told = [sibling(1, "evil", "203.0.113.6:6"), sibling(3, "gateway", "198.51.100.33:4600")];
        assert!(peers.learn(second, &told, OWN, NOW));
        let by_link = peers.by_name("gateway").unwrap();
        assert_eq!((by_link.public_key, by_link.addresses.clone()), (first, link(1).addresses));
        let moved = peers.by_name("gateway-2").unwrap();
        assert_eq!(
            (moved.addresses[0].to_string().as_str(), moved.learned_from),
            ("198.51.100.33:4600", Some(second))
        );
        // The first has no say over what the second told last.
        assert!(!peers.learn(first, &[two], OWN, NOW));
        assert!(peers.learn(second, &[], OWN, NOW));
        assert_eq!(names(&peers), ["gateway", "oslo"]);
        // Once it is met by a link it stays.
        peers.join(&link(2), None, OWN, NOW).unwrap();
        assert!(!peers.learn(first, &[], OWN, NOW));
        assert_eq!(names(&peers), ["gateway", "oslo"]);
        assert!(!peers.learn(third, &[], OWN, NOW));
    }

    #[test]
    fn no_more_are_learned_than_there_may_be() {
        let mut peers = Peers::default();
        for from in 1..5 {
            let told: Vec<Sibling> =
                (0..16).map(|number| sibling(from * 40 + number, "x", "192.0.2.7:1")).collect();
            peers.learn(PublicKey([from; 32]), &told, OWN, NOW);
        }
        assert_eq!(names(&peers).len(), MOST_SIBLINGS);
    }

    #[test]
    fn what_was_learned_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        let from = PublicKey([1; 32]);
        Peers::change(&state, |peers| -> Result<bool, PeersError> {
            Ok(peers.learn(from, &[sibling(2, "oslo", "[2001:db8::2]:4600")], OWN, NOW))
        })
        .unwrap();
        let kept = Peers::load(&state).unwrap();
        let peer = kept.by_name("oslo").unwrap();
        assert_eq!((peer.learned_from, peer.tcp_port.map(NonZeroU16::get)), (Some(from), Some(443)));
    }
}
