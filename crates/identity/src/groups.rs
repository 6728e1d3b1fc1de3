//! Groups ("webs"): circles of peers with an interest in common. Who has a group's secret is in it, and can let others in.
//!
//! All that a group does hangs on one secret of 32 bytes, which each member gets from another over an encrypted connection, by an
//! invitation. Keys for different uses are derived from it (HMAC-SHA-256), so what is said for one cannot serve for another.

use std::fmt;
use std::fs::OpenOptions;

use data_encoding::BASE32_NOPAD;
use rand::TryRngCore;
use rand::rngs::OsRng;
use ring::hmac;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use wire::group::{PROOF_LEN, SECRET_LEN};
use wire::hello::Name;
use wire::join_link::UnixSeconds;
use wire::neighbour::SALT_LEN;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use crate::atomic_file::{self, Existing, WriteError, open_private};
use crate::key::PublicKey;
use crate::pair_keys::{self, PlaceKey};
use crate::peers::{PeersError, first_line, read_file};
use crate::state::StateDirectory;

const FILE_NAME: &str = "groups.toml";
/// Most groups that are kept.
pub const MAX_GROUPS: usize = 64;
/// Members of one group that are remembered; further ones are still found nearby.
const MAX_MEMBERS: usize = 256;

/// What makes a member of a group; wiped when dropped, never shown by `Debug`.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct GroupSecret(pub [u8; SECRET_LEN]);

impl fmt::Debug for GroupSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GroupSecret(..)")
    }
}

/// The keys of a group, made from its secret.
#[derive(Clone)]
pub struct GroupKeys {
    announcements: hmac::Key,
    relays: hmac::Key,
    proofs: hmac::Key,
}

impl fmt::Debug for GroupKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("GroupKeys(..)")
    }
}

/// What members seal for each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupUse {
    /// Announcements to those nearby.
    Announcements,
    /// What relays say and pass on.
    Relays,
}

impl GroupKeys {
    /// Of a group with this secret.
    pub fn new(secret: &GroupSecret) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, b"anabranch group keys 1");
        let root = hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, &secret.0).as_ref());
        let of = |label: &[u8]| hmac::Key::new(hmac::HMAC_SHA256, hmac::sign(&root, label).as_ref());
        Self { announcements: of(b"announcements"), relays: of(b"relays"), proofs: of(b"proofs") }
    }

    /// Shows whom `caller` calls that it is a member. It serves for these two alone, so who is shown one can do nothing with it.
    pub fn proof(&self, caller: PublicKey, called: PublicKey) -> [u8; PROOF_LEN] {
        let mut proof = [0; PROOF_LEN];
        let whole = hmac::sign(&self.proofs, &[caller.0, called.0].concat());
        proof.copy_from_slice(whole.as_ref());
        proof
    }

    /// Whether a proof is right; takes equally long for each wrong one.
    pub fn is_proved(&self, caller: PublicKey, called: PublicKey, proof: &[u8; PROOF_LEN]) -> bool {
        hmac::verify(&self.proofs, &[caller.0, called.0].concat(), proof).is_ok()
    }

    /// Seals a message for all members; `salt` must never be used again for this use.
    pub fn seal(&self, what: GroupUse, salt: &[u8; SALT_LEN], message: &[u8]) -> Option<Vec<u8>> {
        pair_keys::seal(self.of(what), salt, message)
    }

    /// Opens what a member has sealed; `None` for all else.
    pub fn open(&self, what: GroupUse, salt: &[u8; SALT_LEN], sealed: &[u8]) -> Option<Vec<u8>> {
        pair_keys::open(self.of(what), salt, sealed)
    }

    /// What tells the other members where a member serves something, in a short announcement: it has no room for the key of who it is from, so they try those
    /// that they know.
    pub fn place_of(&self, member: PublicKey) -> PlaceKey {
        let own = hmac::sign(&self.announcements, &[&b"place of"[..], &member.0].concat());
        PlaceKey(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
    }

    fn of(&self, what: GroupUse) -> &hmac::Key {
        match what {
            GroupUse::Announcements => &self.announcements,
            GroupUse::Relays => &self.relays,
        }
    }
}

/// One group that this machine is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Name on this machine.
    pub name: String,
    /// What makes its members.
    pub secret: GroupSecret,
    /// Since when this machine is in it.
    pub joined: UnixSeconds,
    /// Members that this machine has met, by what they call themselves: each name stays with the key that had it first.
    pub members: Vec<Member>,
}

/// A member of a group, as this machine knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Name within the group on this machine.
    pub name: String,
    /// Who it is.
    pub public_key: PublicKey,
}

/// The groups of one state directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
}

/// Why a group was not made or joined. Nothing was changed.
#[derive(Debug, Error)]
pub enum GroupError {
    /// The name is none.
    #[error("not a name: 1 to 64 characters, no control characters, no space at either end")]
    Name,
    /// There is another.
    #[error("this machine is in another group called {0}; choose another name with --name")]
    NameTaken(String),
    /// It is in it.
    #[error("this machine is in that group already, which is called {0} here")]
    Member(String),
    /// No such group.
    #[error("this machine is in no group called {0}; `anabranch group list` shows its groups")]
    Unknown(String),
    /// Too many.
    #[error(
        "this machine is in {MAX_GROUPS} groups, no more can be kept; leave one with `anabranch group leave`"
    )]
    TooMany,
    /// The system gives no randomness.
    #[error("no randomness from the system: {0}")]
    Randomness(#[from] rand::rand_core::OsError),
    /// The file failed.
    #[error(transparent)]
    File(#[from] PeersError),
}

impl Groups {
    /// Reads the groups of a state directory; none if there is no file.
    ///
    /// # Errors
    /// Any [`PeersError`].
    pub fn load(state: &StateDirectory) -> Result<Self, PeersError> {
        let path = state.file(FILE_NAME);
        let Some(text) = read_file(&path)? else { return Ok(Self::default()) };
        let damaged = |reason: String| PeersError::Damaged { path: path.clone(), reason };
        let file: GroupFile = toml::from_str(&text).map_err(|error| damaged(first_line(error.message())))?;
        let groups = file.group.into_iter().map(Group::try_from).collect::<Result<_, _>>();
        Ok(Self { groups: groups.map_err(damaged)? })
    }

    /// Reads, changes and writes the groups of a state directory, while no other process does. Nothing is written if `change` fails.
    ///
    /// # Errors
    /// That of `change`, or a [`PeersError`].
    pub fn change<T, E: From<PeersError>>(
        state: &StateDirectory,
        change: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let path = state.file("groups.lock");
        let lock =
            open_private(&path, OpenOptions::new().write(true).truncate(false)).map_err(PeersError::from)?;
        flock(&lock, FlockOperation::LockExclusive)
            .map_err(|error| PeersError::from(WriteError::new(&path, error.into())))?;
        let mut groups = Self::load(state)?;
        let outcome = change(&mut groups)?;
        groups.save(state)?;
        Ok(outcome)
    }

    /// Makes a new group, of which this machine is the only member.
    ///
    /// # Errors
    /// Any [`GroupError`] but `Member`.
    pub fn create(&mut self, name: &str, now: UnixSeconds) -> Result<(), GroupError> {
        let mut secret = GroupSecret([0; SECRET_LEN]);
        OsRng.try_fill_bytes(&mut secret.0)?;
        self.join(name, secret, now)
    }

    /// Makes this machine a member of a group whose secret a member has told.
    ///
    /// # Errors
    /// [`GroupError::Name`], [`GroupError::NameTaken`], [`GroupError::Member`] or [`GroupError::TooMany`].
    pub fn join(&mut self, name: &str, secret: GroupSecret, now: UnixSeconds) -> Result<(), GroupError> {
        Name::new(name).map_err(|_| GroupError::Name)?;
        if let Some(same) = self.groups.iter().find(|group| group.secret == secret) {
            return Err(GroupError::Member(same.name.clone()));
        }
        if self.by_name(name).is_some() {
            return Err(GroupError::NameTaken(name.to_owned()));
        }
        if self.groups.len() >= MAX_GROUPS {
            return Err(GroupError::TooMany);
        }
        self.groups.push(Group { name: name.to_owned(), secret, joined: now, members: Vec::new() });
        Ok(())
    }

    /// Forgets a group and its members: this machine finds and serves nobody in it any more.
    ///
    /// # Errors
    /// [`GroupError::Unknown`].
    pub fn leave(&mut self, name: &str) -> Result<(), GroupError> {
        let before = self.groups.len();
        self.groups.retain(|group| group.name != name);
        if self.groups.len() < before { Ok(()) } else { Err(GroupError::Unknown(name.to_owned())) }
    }

    /// Remembers a member; returns its name here: the one that it was first known by, or one with a number if that is another's.
    pub fn remember(&mut self, group: &str, called: &str, key: PublicKey) -> Option<String> {
        let group = self.groups.iter_mut().find(|known| known.name == group)?;
        if let Some(known) = group.members.iter().find(|member| member.public_key == key) {
            return Some(known.name.clone());
        }
        let base = if Name::new(called).is_ok() { called } else { "member" };
        let numbered = (2..=MAX_MEMBERS + 1).map(|number| format!("{base}-{number}"));
        let mut names = std::iter::once(base.to_owned()).chain(numbered);
        let name = names.find(|name| group.member(name).is_none() && Name::new(name).is_ok())?;
        if group.members.len() < MAX_MEMBERS {
            group.members.push(Member { name: name.clone(), public_key: key });
        }
        Some(name)
    }

    /// The group of that name.
    ///
    /// # Errors
    /// [`GroupError::Unknown`].
    pub fn get(&self, name: &str) -> Result<&Group, GroupError> {
        self.by_name(name).ok_or_else(|| GroupError::Unknown(name.to_owned()))
    }

    /// All groups, in the order in which they were joined.
    pub fn iter(&self) -> impl Iterator<Item = &Group> {
        self.groups.iter()
    }

    fn by_name(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    fn save(&self, state: &StateDirectory) -> Result<(), PeersError> {
        let path = state.file(FILE_NAME);
        let mut file = GroupFile { group: self.groups.iter().map(GroupEntry::from).collect() };
        let text = toml::to_string(&file)
            .map(Zeroizing::new)
            .map_err(|error| PeersError::Damaged { path: path.clone(), reason: error.to_string() });
        file.group.iter_mut().for_each(|entry| entry.secret.zeroize());
        Ok(atomic_file::write(&path, text?.as_bytes(), Existing::Replace)?)
    }
}

impl Group {
    /// The member of that name.
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupFile {
    #[serde(default)]
    group: Vec<GroupEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupEntry {
    name: String,
    secret: String,
    joined: u64,
    #[serde(default)]
    member: Vec<MemberEntry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MemberEntry {
    name: String,
    public_key: String,
}

impl From<&Group> for GroupEntry {
    fn from(group: &Group) -> Self {
        let member = |member: &Member| MemberEntry {
            name: member.name.clone(),
            public_key: member.public_key.to_string(),
        };
        Self {
            name: group.name.clone(),
            secret: BASE32_NOPAD.encode(&group.secret.0),
            joined: group.joined.0.min(i64::MAX as u64),
            member: group.members.iter().map(member).collect(),
        }
    }
}

impl TryFrom<GroupEntry> for Group {
    type Error = String;

    fn try_from(mut entry: GroupEntry) -> Result<Self, String> {
        let wrong = |key: &str| format!("the {key} of {} makes no sense", entry.name);
        let bytes = BASE32_NOPAD.decode(entry.secret.as_bytes()).map(Zeroizing::new);
        let secret = bytes.ok().and_then(|bytes| bytes.as_slice().try_into().ok()).map(GroupSecret);
        let secret = secret.ok_or_else(|| wrong("secret"))?;
        let members = entry.member.iter().take(MAX_MEMBERS).map(|member| {
            let public_key = member.public_key.parse().map_err(|_| wrong("member"))?;
            Ok::<_, String>(Member { name: member.name.clone(), public_key })
        });
        let members = members.collect::<Result<_, _>>()?;
        entry.secret.zeroize();
        Ok(Self { name: entry.name, secret, joined: UnixSeconds(entry.joined), members })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: UnixSeconds = UnixSeconds(1);

    #[test]
    fn a_group_is_its_secret_and_names_stay_with_their_keys() {
        let mut groups = Groups::default();
        groups.create("hikers", NOW).unwrap();
        groups.create("chess", NOW).unwrap();
        assert!(matches!(groups.create("chess", NOW), Err(GroupError::NameTaken(_))));
        assert!(matches!(groups.create(" chess", NOW), Err(GroupError::Name)));
        let secret = groups.get("hikers").unwrap().secret.clone();
        assert!(
            matches!(groups.join("walks", secret, NOW), Err(GroupError::Member(name)) if name == "hikers")
        );
        let remember = |groups: &mut Groups, called: &str, key| {
            groups.remember("hikers", called, PublicKey([key; 32])).unwrap()
        };
        assert_eq!(remember(&mut groups, "bob", 1), "bob");
        assert_eq!(remember(&mut groups, "bob", 2), "bob-2");
        assert_eq!(remember(&mut groups, "alice", 1), "bob");
        assert_eq!(remember(&mut groups, "\u{1b}[2J", 3), "member");
        assert_eq!(groups.remember("sailors", "bob", PublicKey([1; 32])), None);
        groups.leave("hikers").unwrap();
        assert!(matches!(groups.get("hikers"), Err(GroupError::Unknown(_))));
        assert!(matches!(groups.leave("hikers"), Err(GroupError::Unknown(_))));
    }

    #[test]
    fn groups_are_kept_and_a_damaged_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        let made = Groups::change(&state, |groups| {
            groups.create("hikers", NOW)?;
            groups.remember("hikers", "bob", PublicKey([7; 32]));
            Ok::<_, GroupError>(groups.clone())
        });
        assert_eq!(Groups::load(&state).unwrap(), made.unwrap());
        let text = std::fs::read_to_string(state.file(FILE_NAME)).unwrap();
        for (from, to) in
            [("secret = \"", "secret = \"A"), ("public_key = \"", "public_key = \"?"), ("name", "nam")]
        {
            state.replace(FILE_NAME, text.replacen(from, to, 1).as_bytes()).unwrap();
            let error = Groups::load(&state).unwrap_err().to_string();
            assert!(error.contains("damaged"), "{error}");
        }
    }

    #[test]
    fn each_use_has_its_own_key_and_proofs_serve_for_two_alone() {
        let [one, other] = [1, 2].map(|seed| GroupKeys::new(&GroupSecret([seed; SECRET_LEN])));
        let salt = [3; SALT_LEN];
        let sealed = one.seal(GroupUse::Relays, &salt, b"hello").unwrap();
        assert_eq!(one.open(GroupUse::Relays, &salt, &sealed).as_deref(), Some(&b"hello"[..]));
        assert_eq!(one.open(GroupUse::Announcements, &salt, &sealed), None);
        assert_eq!(other.open(GroupUse::Relays, &salt, &sealed), None);
        let [ann, bob, eve] = [1, 2, 3].map(|key| PublicKey([key; 32]));
        let proof = one.proof(ann, bob);
        assert!(one.is_proved(ann, bob, &proof));
        assert!(!one.is_proved(bob, ann, &proof) && !one.is_proved(ann, eve, &proof));
        assert!(!other.is_proved(ann, bob, &proof));
    }
}
