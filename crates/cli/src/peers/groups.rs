//! Groups: `anabranch group`, and what `--group` makes of other commands.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch::apps::group::{self, GROUP, GroupTold};
use anabranch::apps::{read_line, usual};
use anabranch::blocking::Endpoint;
use anabranch::nearby::{Circle, Search, Sighting};
use anabranch::{Admission, Caller, ConnectOptions, EndpointOptions, Membership, Peer, PeerAddress};
use anyhow::{Context, bail};
use identity::{
    GroupError, GroupKeys, GroupSecret, Groups, InvitationKind, InvitationSecret, KeyPair, Peers, PublicKey,
    StateDirectory, wall_time,
};
use rand::TryRngCore;
use serde::Serialize;
use wire::hello::Name;
use wire::join_link::JoinLink;

use super::{Known, Typed};
use crate::arguments::{GroupCommand, GroupInvite, GroupJoin, GroupList, GroupNamed, Spare};
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;

/// How long a member whom this machine has never met is looked for.
const FIRST_SIGHT: Duration = Duration::from_secs(5);

/// `anabranch group`.
pub fn run(session: &Session, command: &GroupCommand) -> anyhow::Result<()> {
    match command {
        GroupCommand::Create(arguments) => create(session, arguments),
        GroupCommand::Invite(arguments) => invite(session, arguments),
        GroupCommand::Join(arguments) => join(session, arguments),
        GroupCommand::Leave(arguments) => leave(session, arguments),
        GroupCommand::List(arguments) => list(session, arguments),
    }
}

/// The groups of these names, as endpoints and announcements have them.
pub fn memberships<'a>(
    state: &StateDirectory,
    names: impl IntoIterator<Item = &'a String>,
) -> anyhow::Result<Vec<Membership>> {
    let groups = Groups::load(state)?;
    let mut found: Vec<Membership> = Vec::new();
    for name in names {
        let group = groups.get(name)?;
        if !found.iter().any(|known| known.group == *name) {
            let members = group.members.iter().map(|member| member.public_key).collect();
            found.push(Membership { group: name.clone(), keys: GroupKeys::new(&group.secret), members });
        }
    }
    if found.len() > wire::group::MAX_AT_ONCE {
        bail!(WrongUsage(format!("at most {} groups at a time", wire::group::MAX_AT_ONCE)));
    }
    Ok(found)
}

/// A member of a group who can be called: one whom this machine has met, or who is nearby now.
pub fn find(
    state: &StateDirectory,
    key: &KeyPair,
    typed: &Typed<'_>,
    group: String,
) -> anyhow::Result<Known> {
    let groups = memberships(state, [&group])?;
    let known = Groups::load(state)?;
    let met = known.get(&group)?.member(typed.text).map(|member| member.public_key);
    let public_key = match met {
        Some(public_key) => public_key,
        None => first_sight(state, key, &groups, typed)?,
    };
    let mut addresses = super::given(typed.addresses, typed.port)?;
    // A link says where it is called by Bluetooth, if it is a known peer too.
    let peers = Peers::load(state).unwrap_or_default();
    if let Some(peer) = peers.of_kind(InvitationKind::Peer).find(|peer| peer.public_key == public_key) {
        let port = typed.port;
        let devices = usual::devices(peer).into_iter();
        addresses.extend(devices.map(|device| PeerAddress::Bluetooth { device, port }));
    }
    // Where it is is seen later, or it is found over relays, by its port.
    addresses.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, typed.port)).into());
    let peer = Peer { key: public_key, addresses };
    Ok(Known { name: typed.text.to_owned(), peer, invitation: None, groups })
}

/// Looks for a member nearby by the name that it goes by.
fn first_sight(
    state: &StateDirectory,
    key: &KeyPair,
    groups: &[Membership],
    typed: &Typed<'_>,
) -> anyhow::Result<PublicKey> {
    let mut search = Search::begin(key, Circle { peers: &[], groups, only: typed.only.as_slice() })?;
    let deadline = Instant::now() + FIRST_SIGHT;
    while let Some(sighting) = search.next(deadline.saturating_duration_since(Instant::now())) {
        let Sighting::Member { group, key, called, .. } = sighting else { continue };
        if remember(state, &group, called.as_ref(), key)?.as_deref() == Some(typed.text) {
            return Ok(key);
        }
    }
    let group = groups.first().map_or("", |membership| membership.group.as_str());
    bail!("nobody called {} is nearby in the group {group}, or was met before", typed.text)
}

/// Keeps a member in mind; what it is called here.
pub fn remember(
    state: &StateDirectory,
    group: &str,
    called: Option<&Name>,
    key: PublicKey,
) -> anyhow::Result<Option<String>> {
    let called = called.map_or("member", Name::as_str);
    let known = Groups::load(state)?;
    let met = known.get(group)?.members.iter().find(|member| member.public_key == key);
    if let Some(met) = met {
        return Ok(Some(met.name.clone()));
    }
    Ok(Groups::change(state, |groups| Ok::<_, GroupError>(groups.remember(group, called, key)))?)
}

fn create(session: &Session, arguments: &GroupNamed) -> anyhow::Result<()> {
    let (state, _) = super::identity(session)?;
    Groups::change(&state, |groups| groups.create(&arguments.group, wall_time()))?;
    output::line(&format!("The group {} has one member: this machine.", arguments.group))?;
    output::remark(&format!("Invite others with `anabranch group invite {}`.", arguments.group));
    Ok(())
}

fn leave(session: &Session, arguments: &GroupNamed) -> anyhow::Result<()> {
    let (state, _) = super::identity(session)?;
    Groups::change(&state, |groups| groups.leave(&arguments.group))?;
    output::line(&format!("This machine has left the group {}.", arguments.group))?;
    Ok(())
}

#[derive(Serialize)]
struct Row {
    group: String,
    joined: u64,
    /// Public keys by name.
    members: BTreeMap<String, String>,
}

fn list(session: &Session, arguments: &GroupList) -> anyhow::Result<()> {
    let (state, _) = super::identity(session)?;
    let groups = Groups::load(&state)?;
    let rows = groups.iter().map(|group| Row {
        group: group.name.clone(),
        joined: group.joined.0,
        members: group
            .members
            .iter()
            .map(|member| (member.name.clone(), member.public_key.to_string()))
            .collect(),
    });
    let rows: Vec<Row> = rows.collect();
    if arguments.json {
        return output::json(&rows);
    }
    if rows.is_empty() {
        return output::line("This machine is in no group: `anabranch group create NAME` makes one.");
    }
    let mut table = crate::table::Table::new(&["GROUP", "MEMBERS MET"]);
    for row in rows {
        let names: Vec<String> = row.members.into_keys().collect();
        table.row(vec![row.group, if names.is_empty() { "-".to_owned() } else { names.join(", ") }]);
    }
    output::line(&table.render())
}

fn invite(session: &Session, arguments: &GroupInvite) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let groups = Groups::load(&state)?;
    let group = groups.get(&arguments.group)?;
    let mut secret = InvitationSecret([0; 16]);
    rand::rngs::OsRng.try_fill_bytes(&mut secret.0).context("no randomness from the system")?;
    // Whoever has shown the link first is the one, also if its connection breaks and it calls again.
    let guest: Arc<Mutex<Option<PublicKey>>> = Arc::default();
    let (open, expected) = (Arc::clone(&guest), secret.clone());
    let admission = Admission::Ask(Arc::new(move |caller: &Caller<'_>| {
        let mut guest = open.lock().unwrap_or_else(PoisonError::into_inner);
        caller.invitation == Some(&expected) && *guest.get_or_insert(caller.key) == caller.key
    }));
    let name = super::own_name();
    let options = EndpointOptions::listening(key.clone(), arguments.port, admission);
    let (name_told, only) = (name.clone(), arguments.only.list());
    let endpoint = anabranch::Endpoint::bind(EndpointOptions { name: name_told, only, ..options })?;
    super::show(&endpoint, key.public(), std::slice::from_ref(&secret), InvitationKind::Group)?;
    let endpoint = Endpoint::from(endpoint);
    let listener = endpoint.listen();
    let members = group.members.iter();
    let members = members.filter_map(|member| Some((member.public_key.0, Name::new(&member.name).ok()?)));
    let members = members.collect();
    let told = GroupTold {
        secret: group.secret.0,
        name: Name::new(&group.name).map_err(|_| GroupError::Name)?,
        inviter: name,
        members,
    };
    loop {
        let mut stream = listener.accept()?;
        let handed_over = read_line(&mut stream).and_then(|line| match line == GROUP {
            true => group::hand_over(&mut stream, &told),
            false => Err(std::io::ErrorKind::InvalidData.into()),
        });
        match handed_over {
            Ok(called) => {
                let called = remember(&state, &group.name, called.as_ref(), stream.peer())?;
                // It has all already.
                let _ = stream.finish();
                let called = called.unwrap_or_default();
                output::line(&format!("{called} is in the group {} from now on.", group.name))?;
                break;
            }
            Err(error) => output::remark(&format!("anabranch: nobody has joined: {error}")),
        }
    }
    endpoint.close();
    Ok(())
}

fn join(session: &Session, arguments: &GroupJoin) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let link = JoinLink::parse(&arguments.link).map_err(|error| WrongUsage(error.to_string()))?;
    if link.kind != InvitationKind::Group {
        bail!(WrongUsage(format!("this is a link to a {}, not to a group", link.kind)));
    }
    if link.public_key == key.public().0 {
        bail!(identity::JoinError::OwnLink);
    }
    let addresses = link.addresses.iter().flat_map(super::resolve).collect();
    let inviter = Peer { key: PublicKey(link.public_key), addresses };
    let (name, own) = (super::own_name(), key.public());
    let endpoint =
        Endpoint::from(super::caller(&state, key, Vec::new(), (&arguments.only, &Spare::default()))?);
    let options = ConnectOptions { invitation: Some(link.secret.clone()), ..ConnectOptions::default() };
    let mut stream = endpoint.connect(&inviter, &options)?;
    stream.write_all(format!("{GROUP}\n").as_bytes())?;
    let told = group::take_over(&mut stream, name.as_ref()).context("the group was not told")?;
    let called = arguments.name.as_deref().unwrap_or(told.name.as_str());
    Groups::change(&state, |groups| {
        groups.join(called, GroupSecret(told.secret), wall_time())?;
        groups.remember(called, told.inviter.as_ref().map_or("member", Name::as_str), inviter.key);
        for (key, name) in told.members.iter().filter(|(key, _)| PublicKey(*key) != own) {
            groups.remember(called, name.as_str(), PublicKey(*key));
        }
        Ok::<_, GroupError>(())
    })?;
    // The inviter waits for the word that all is well.
    let _ = stream.finish();
    endpoint.close();
    output::line(&format!("This machine is in the group {called} from now on."))?;
    Ok(())
}
