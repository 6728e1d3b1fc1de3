//! Peers: whom this machine talks to over virtual sockets, and how they meet.

pub mod chat;
pub mod groups;
pub mod nearby;
pub mod program;
pub mod reach;
pub mod receive;
pub mod send;
pub mod serve;
pub mod switch_off;
pub mod upload;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch::apps::usual;
use anabranch::nearby::Circle;
use anabranch::{
    Admission, Caller, ConnectOptions, Endpoint, EndpointOptions, MachineBeside, Membership, Peer,
    PeerAddress, Relays, SwitchOff,
};
use anyhow::{Context, bail};
use identity::{
    Groups, InvitationKind, InvitationSecret, JoinError, KeyPair, Peers, PublicKey, StateDirectory,
    UnixSeconds, wall_time,
};
use rand::TryRngCore;
use wire::hello::Name;
use wire::join_link::{Host, HostPort, JoinLink, LINK_PREFIX, MAX_ADDRESSES};

use crate::arguments::{Listen, Only, Spare};
use crate::exit::WrongUsage;
use crate::session::Session;
use crate::{logging, output};

pub use anabranch::apps::usual::{CHAT_PORT, FILES_PORT, SERVE_PORT, UPLOAD_PORT};

/// Those at which commands listen unless they are told others.
const USUAL_PORTS: [u16; 4] = [FILES_PORT, CHAT_PORT, SERVE_PORT, UPLOAD_PORT];
/// A link that nobody has used ends with the command that showed it, or after this time.
const LINK_SECONDS: u64 = 86_400;
/// How long a link waits for an address to put into it.
const NETWORK_PATIENCE: Duration = Duration::from_secs(3);

/// A peer that can be called.
pub struct Known {
    pub name: String,
    pub peer: Peer,
    pub invitation: Option<InvitationSecret>,
    /// The group that it is called in, if any.
    pub groups: Vec<Membership>,
}

impl Known {
    /// How it is called.
    pub fn options(&self) -> ConnectOptions {
        ConnectOptions { invitation: self.invitation.clone(), ..ConnectOptions::default() }
    }

    /// An endpoint that calls it.
    pub fn caller(
        &self,
        state: &StateDirectory,
        key: &KeyPair,
        ways: (&Only, &Spare),
    ) -> anyhow::Result<Endpoint> {
        caller(state, key.clone(), self.groups.clone(), ways)
    }

    /// Looks for it nearby while something calls it.
    pub fn look_out(
        &self,
        key: &KeyPair,
        what: &'static str,
        only: &Only,
        endpoint: &Endpoint,
    ) -> nearby::Lookout {
        let peers = if self.groups.is_empty() { std::slice::from_ref(&self.peer.key) } else { &[] };
        nearby::Lookout::begin(
            key,
            Circle { peers, groups: &self.groups, only: only.as_slice() },
            what,
            endpoint,
        )
    }
}

/// Whom a command is to call, as it was typed.
#[derive(Clone, Copy)]
pub struct Typed<'a> {
    /// A name, or a link.
    pub text: &'a str,
    /// What the peer of a link is to be called.
    pub name: Option<&'a str>,
    /// Further places to look for it.
    pub addresses: &'a [String],
    /// The group that it is in.
    pub group: Option<&'a String>,
    /// Where it listens unless an address or a link says otherwise.
    pub port: u16,
    /// The adapters by which it may be looked for.
    pub only: &'a Only,
}

/// The identity of this machine, made if there is none.
pub fn identity(session: &Session) -> anyhow::Result<(StateDirectory, KeyPair)> {
    logging::start_if_asked();
    let state = session.create()?;
    let key = KeyPair::load_or_create(&state)?;
    if let Err(error) = SwitchOff::undo(&switch_off::note(&state)) {
        output::remark(&format!("anabranch: an adapter that a command has left off stays off: {error}"));
    }
    Ok((state, key))
}

/// An endpoint that calls, in these groups if there are any.
pub fn caller(
    state: &StateDirectory,
    key: KeyPair,
    groups: Vec<Membership>,
    (only, spare): (&Only, &Spare),
) -> anyhow::Result<Endpoint> {
    let beside = beside(state, &groups);
    let endpoint = Endpoint::bind(calling(state, key, groups, (only, spare))?)?;
    beside.iter().for_each(|machine| endpoint.beside(machine));
    Ok(endpoint)
}

/// The machines of known peers that may be beside this one by Bluetooth; where there are groups, of those who are in one of them.
fn beside(state: &StateDirectory, groups: &[Membership]) -> Vec<MachineBeside> {
    // Without them there are other ways.
    let peers = Peers::load(state).unwrap_or_default();
    let mut beside = usual::beside(&peers);
    if !groups.is_empty() {
        let met = Groups::load(state).unwrap_or_default();
        let met = met.iter().filter(|group| groups.iter().any(|one| one.group == group.name));
        let members: Vec<PublicKey> =
            met.flat_map(|group| group.members.iter().map(|member| member.public_key)).collect();
        beside.retain(|machine| members.contains(&machine.key));
    }
    beside
}

/// The settings of such an endpoint.
pub fn calling(
    state: &StateDirectory,
    key: KeyPair,
    groups: Vec<Membership>,
    (only, spare): (&Only, &Spare),
) -> anyhow::Result<EndpointOptions> {
    let switch_off = switch_off::permission(state, spare)?;
    let own = EndpointOptions::new(key);
    Ok(EndpointOptions { name: own_name(), groups, only: only.list(), switch_off, ..own })
}

/// The peer of that name, or of that link, which is then remembered; or the member of a group.
pub fn find(state: &StateDirectory, key: &KeyPair, typed: &Typed<'_>) -> anyhow::Result<Known> {
    let Typed { text, name, addresses, group, port, only: _ } = *typed;
    let is_link = text.starts_with(LINK_PREFIX);
    if let Some(group) = group {
        if is_link {
            bail!(WrongUsage("a link leads to a peer in no group; leave --group out".to_owned()));
        }
        return groups::find(state, key, typed, group.clone());
    }
    let mut known_by = text.to_owned();
    if is_link {
        let link = JoinLink::parse(text).map_err(|error| WrongUsage(error.to_string()))?;
        if link.kind != InvitationKind::Peer {
            let kind = link.kind;
            let command = if kind == InvitationKind::Group { "group join" } else { "join" };
            bail!(WrongUsage(format!(
                "this is a link to a {kind}, not to a peer; take it with `anabranch {command}`"
            )));
        }
        known_by = Peers::change(state, |peers| peers.join(&link, name, key.public(), wall_time()))?.name;
        output::remark(&format!("The peer is called {known_by} on this machine from now on."));
    }
    let peers = Peers::load(state)?;
    let Some(known) = peers.by_name(&known_by) else {
        bail!(
            "no peer called {known_by} is known here; `anabranch receive` or `anabranch chat` there shows a link to it"
        );
    };
    let Some(default_port) = NonZeroU16::new(port) else { bail!("port 0 is none") };
    let mut found = given(addresses, port)?;
    let mut hosts = Vec::new();
    for stored in &known.addresses {
        // What made the link may have been another command. Its usual port is left out: it may run too, and answer first.
        if stored.port == default_port || !USUAL_PORTS.contains(&stored.port.get()) {
            hosts.push(stored.clone());
        }
        hosts.push(HostPort { port: default_port, ..stored.clone() });
    }
    found.extend(hosts.iter().flat_map(resolve));
    let mut seen = Vec::new();
    found.retain(|address| {
        !seen.contains(address) && {
            seen.push(*address);
            true
        }
    });
    Ok(Known {
        name: known_by,
        peer: Peer { key: known.public_key, addresses: found },
        invitation: known.invitation.clone(),
        groups: Vec::new(),
    })
}

/// Addresses as they were typed.
fn given(addresses: &[String], port: u16) -> anyhow::Result<Vec<PeerAddress>> {
    let Some(default_port) = NonZeroU16::new(port) else { bail!("port 0 is none") };
    let mut found = Vec::new();
    for address in addresses {
        let host = HostPort::parse_with_default(address, default_port);
        found.extend(resolve(&host.map_err(|error| WrongUsage(error.to_string()))?));
    }
    Ok(found)
}

fn resolve(host: &HostPort) -> Vec<PeerAddress> {
    let port = host.port.get();
    match &host.host {
        Host::Address(address) => vec![SocketAddr::new(*address, port).into()],
        Host::Bluetooth(device) => vec![PeerAddress::Bluetooth { device: *device, port }],
        Host::Name(name) => {
            let found = (name.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            found.unwrap_or_default().into_iter().map(PeerAddress::from).collect()
        }
    }
}

/// The peer has let this machine in: the invitation is used up.
pub fn redeemed(state: &StateDirectory, peer: PublicKey) -> anyhow::Result<()> {
    Peers::change(state, |peers| {
        peers.redeemed(peer);
        Ok::<_, identity::PeersError>(())
    })?;
    Ok(())
}

/// An endpoint that known peers may call, and one more who has the link that is shown; or the members of groups, and nobody else.
pub fn listener<const PORT: u16>(
    session: &Session,
    listen: &Listen<PORT>,
) -> anyhow::Result<(Endpoint, PathBuf)> {
    relaying_listener(session, listen, !listen.no_link, Relays::default())
}

/// As [`listener`], with so many links: one for each peer that is to be met.
pub fn listener_with_links<const PORT: u16>(
    session: &Session,
    listen: &Listen<PORT>,
    links: u16,
) -> anyhow::Result<(Endpoint, PathBuf)> {
    let links = if listen.no_link { 0 } else { links };
    listener_of(session, listen, links, Relays::default())
}

/// As [`listener`], one that does so much for others.
pub fn relaying_listener<const PORT: u16>(
    session: &Session,
    listen: &Listen<PORT>,
    show_link: bool,
    relays: Relays,
) -> anyhow::Result<(Endpoint, PathBuf)> {
    listener_of(session, listen, u16::from(show_link), relays)
}

fn listener_of<const PORT: u16>(
    session: &Session,
    listen: &Listen<PORT>,
    links: u16,
    relays: Relays,
) -> anyhow::Result<(Endpoint, PathBuf)> {
    let (state, key) = identity(session)?;
    let groups = groups::memberships(&state, &listen.group)?;
    let links = if groups.is_empty() { links } else { 0 };
    let mut secrets = Vec::new();
    for _ in 0..links {
        let mut secret = InvitationSecret([0; 16]);
        rand::rngs::OsRng.try_fill_bytes(&mut secret.0).context("no randomness from the system")?;
        secrets.push(secret);
    }
    let open = Arc::new(Mutex::new(secrets.clone()));
    let (public, directory) = (key.public(), state.path().to_owned());
    let admission = {
        let directory = directory.clone();
        Admission::Ask(Arc::new(move |caller: &Caller<'_>| admit(&directory, public, &open, caller)))
    };
    let options = EndpointOptions::listening(key, listen.port(), admission);
    let (only, switch_off) = (listen.only.list(), switch_off::permission(&state, &listen.spare)?);
    let beside = beside(&state, &groups);
    let options = EndpointOptions { name: own_name(), relays, groups, only, switch_off, ..options };
    let endpoint = Endpoint::bind(options)?;
    beside.iter().for_each(|machine| endpoint.beside(machine));
    if !secrets.is_empty() {
        show(&endpoint, public, &secrets, InvitationKind::Peer)?;
    }
    Ok((endpoint, directory))
}

/// Prints the links to an endpoint.
fn show(
    endpoint: &Endpoint,
    public: PublicKey,
    secrets: &[InvitationSecret],
    kind: InvitationKind,
) -> anyhow::Result<()> {
    let outside = || endpoint.addresses().into_iter().filter(|address| !address.is_loopback());
    let deadline = Instant::now() + NETWORK_PATIENCE;
    while outside().next().is_none() && Instant::now() < deadline {
        // An interface that was just switched on takes a moment.
        std::thread::sleep(Duration::from_millis(50));
    }
    let reachable = outside();
    let addresses: Vec<HostPort> = reachable
        .filter_map(|address| {
            let host = match address {
                PeerAddress::Ip(address) => Host::Address(address.ip()),
                PeerAddress::Bluetooth { device, .. } => Host::Bluetooth(device),
            };
            Some(HostPort { host, port: NonZeroU16::new(address.port())? })
        })
        .take(MAX_ADDRESSES)
        .collect();
    if addresses.is_empty() {
        output::remark(
            "anabranch: no network is there, so there is no link to show; known peers may call once one is.",
        );
        return Ok(());
    }
    for secret in secrets {
        let link = JoinLink {
            kind,
            public_key: public.0,
            addresses: addresses.clone(),
            tcp_port: None,
            secret: secret.clone(),
            expires: UnixSeconds(wall_time().0 + LINK_SECONDS),
        };
        output::line(&link.encode()?)?;
    }
    output::remark(match kind {
        _ if secrets.len() > 1 => {
            "Each link lets one machine call, which is known from then on. They end with this command."
        }
        InvitationKind::Group => "Whoever has this link may join once. It ends with this command.",
        _ => "Whoever has this link may call once, and is known from then on. It ends with this command.",
    });
    Ok(())
}

/// Members of the endpoint's groups are let in; else known peers, and the first one with an open invitation, who is then known.
fn admit(directory: &Path, own: PublicKey, open: &Mutex<Vec<InvitationSecret>>, caller: &Caller<'_>) -> bool {
    let Ok(state) = StateDirectory::create(directory) else { return false };
    if let Some(group) = caller.group {
        // Whom it was is shown by name later; a full disk keeps nobody out.
        let _ = groups::remember(&state, group, caller.name, caller.key);
        return true;
    }
    let known = Peers::load(&state).unwrap_or_default();
    if known.of_kind(InvitationKind::Peer).any(|peer| peer.public_key == caller.key) {
        return true;
    }
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(at) = open.iter().position(|secret| Some(secret) == caller.invitation) else { return false };
    let base = caller.name.map_or("peer", Name::as_str);
    let names = std::iter::once(base.to_owned()).chain((2..100).map(|number| format!("{base}-{number}")));
    let kept = Peers::change(&state, |peers| {
        let free = names.into_iter().find(|name| peers.by_name(name).is_none()).unwrap_or_default();
        peers.acquaint(&free, caller.key, own, wall_time())?;
        Ok::<_, JoinError>(free)
    });
    match kept {
        Ok(name) => {
            open.remove(at);
            output::remark(&format!("{name} has used the link, and is a known peer from now on."));
            true
        }
        Err(error) => {
            output::remark(&format!("anabranch: a peer could not be remembered: {error}"));
            false
        }
    }
}

/// What a peer is called here.
pub fn name_of(directory: &Path, key: PublicKey) -> String {
    let state = StateDirectory::create(directory).ok();
    let peers = state.as_ref().and_then(|state| Peers::load(state).ok()).unwrap_or_default();
    let known = peers.of_kind(InvitationKind::Peer).find(|peer| peer.public_key == key);
    if let Some(known) = known {
        return known.name.clone();
    }
    let groups = state.as_ref().and_then(|state| Groups::load(state).ok()).unwrap_or_default();
    let mut members = groups.iter().flat_map(|group| &group.members);
    let met = members.find(|member| member.public_key == key);
    met.map_or_else(|| key.to_string().chars().take(8).collect(), |member| member.name.clone())
}

fn own_name() -> Option<Name> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    Name::new(text.trim()).ok()
}

/// A line to the terminal that does not tear a progress bar, or plain.
fn tell(bars: &indicatif::MultiProgress, line: &str) {
    if bars.println(line).is_err() || bars.is_hidden() {
        // A closed output leaves nobody to tell.
        let _ = writeln!(io::stdout(), "{line}");
    }
}

fn bar(bars: &indicatif::MultiProgress, name: &str) -> indicatif::ProgressBar {
    const STYLE: &str = "{msg} [{bar:30}] {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    let bar = bars.add(indicatif::ProgressBar::new(0));
    if let Ok(style) = indicatif::ProgressStyle::with_template(STYLE) {
        bar.set_style(style);
    }
    bar.set_message(name.to_owned());
    bar
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")
}
