//! Peers: whom this machine talks to over virtual sockets, and how they meet.

pub mod chat;
pub mod program;
pub mod reach;
pub mod receive;
pub mod send;
pub mod serve;

use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch::{Admission, Caller, Endpoint, EndpointOptions, Peer};
use anyhow::{Context, bail};
use identity::{
    InvitationKind, InvitationSecret, JoinError, KeyPair, Peers, PublicKey, StateDirectory, UnixSeconds,
    wall_time,
};
use rand::TryRngCore;
use wire::hello::Name;
use wire::join_link::{Host, HostPort, JoinLink, LINK_PREFIX, MAX_ADDRESSES};

use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;

/// Ports of what listens.
pub const FILES_PORT: u16 = 4610;
pub const CHAT_PORT: u16 = 4611;
pub const SERVE_PORT: u16 = 4612;
/// A link that nobody has used ends with the command that showed it, or after this time.
const LINK_SECONDS: u64 = 86_400;
/// How long a link waits for an address to put into it.
const NETWORK_PATIENCE: Duration = Duration::from_secs(3);

/// A peer that can be called.
pub struct Known {
    pub name: String,
    pub peer: Peer,
    pub invitation: Option<InvitationSecret>,
}

/// The identity of this machine, made if there is none.
pub fn identity(session: &Session) -> anyhow::Result<(StateDirectory, KeyPair)> {
    let state = session.create()?;
    let key = KeyPair::load_or_create(&state)?;
    Ok((state, key))
}

/// An endpoint that calls.
pub fn caller(key: KeyPair) -> anyhow::Result<Endpoint> {
    let options = EndpointOptions { name: own_name(), ..EndpointOptions::new(key) };
    Ok(Endpoint::bind(options)?)
}

/// The peer of that name, or of that link, which is then remembered. `addresses` are further places to look for it; what listens there
/// has port `port` unless a link says otherwise.
pub fn find(
    state: &StateDirectory,
    own: PublicKey,
    text: &str,
    name: Option<&str>,
    addresses: &[String],
    port: u16,
) -> anyhow::Result<Known> {
    let mut known_by = text.to_owned();
    let is_link = text.starts_with(LINK_PREFIX);
    if is_link {
        let link = JoinLink::parse(text).map_err(|error| WrongUsage(error.to_string()))?;
        if link.kind != InvitationKind::Peer {
            let kind = link.kind;
            bail!(WrongUsage(format!(
                "this is a link to a {kind}, not to a peer; take it with `anabranch join`"
            )));
        }
        known_by = Peers::change(state, |peers| peers.join(&link, name, own, wall_time()))?.name;
        output::remark(&format!("The peer is called {known_by} on this machine from now on."));
    }
    let peers = Peers::load(state)?;
    let Some(known) = peers.by_name(&known_by) else {
        bail!(
            "no peer called {known_by} is known here; `anabranch receive` or `anabranch chat` there shows a link to it"
        );
    };
    let Some(default_port) = NonZeroU16::new(port) else { bail!("port 0 is none") };
    let mut hosts = Vec::new();
    for address in addresses {
        let host = HostPort::parse_with_default(address, default_port);
        hosts.push(host.map_err(|error| WrongUsage(error.to_string()))?);
    }
    for stored in &known.addresses {
        hosts.push(stored.clone());
        // What made the link may have been another command, with a port of its own.
        hosts.push(HostPort { port: default_port, ..stored.clone() });
    }
    let mut found: Vec<SocketAddr> = hosts.iter().flat_map(resolve).collect();
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
    })
}

fn resolve(host: &HostPort) -> Vec<SocketAddr> {
    let port = host.port.get();
    match &host.host {
        Host::Address(address) => vec![SocketAddr::new(*address, port)],
        Host::Name(name) => {
            (name.as_str(), port).to_socket_addrs().map(Iterator::collect).unwrap_or_default()
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

/// An endpoint that known peers may call, and one more who has the link that is shown.
pub fn listener(session: &Session, port: u16, show_link: bool) -> anyhow::Result<(Endpoint, PathBuf)> {
    let (state, key) = identity(session)?;
    let mut secret = InvitationSecret([0; 16]);
    rand::rngs::OsRng.try_fill_bytes(&mut secret.0).context("no randomness from the system")?;
    let open = Arc::new(Mutex::new(show_link.then(|| secret.clone())));
    let (public, directory) = (key.public(), state.path().to_owned());
    let admission = {
        let directory = directory.clone();
        Admission::Ask(Arc::new(move |caller: &Caller<'_>| admit(&directory, public, &open, caller)))
    };
    let options = EndpointOptions { name: own_name(), ..EndpointOptions::listening(key, port, admission) };
    let endpoint = Endpoint::bind(options)?;
    if show_link {
        show(&endpoint, public, &secret)?;
    }
    Ok((endpoint, directory))
}

/// Prints the link to an endpoint.
fn show(endpoint: &Endpoint, public: PublicKey, secret: &InvitationSecret) -> anyhow::Result<()> {
    let outside = || endpoint.addresses().into_iter().filter(|address| !address.ip().is_loopback());
    let deadline = Instant::now() + NETWORK_PATIENCE;
    while outside().next().is_none() && Instant::now() < deadline {
        // An interface that was just switched on takes a moment.
        std::thread::sleep(Duration::from_millis(50));
    }
    let reachable = outside();
    let addresses: Vec<HostPort> = reachable
        .filter_map(|address| {
            Some(HostPort { host: Host::Address(address.ip()), port: NonZeroU16::new(address.port())? })
        })
        .take(MAX_ADDRESSES)
        .collect();
    if addresses.is_empty() {
        output::remark(
            "anabranch: no network is there, so there is no link to show; known peers may call once one is.",
        );
        return Ok(());
    }
    let link = JoinLink {
        kind: InvitationKind::Peer,
        public_key: public.0,
        addresses,
        tcp_port: None,
        secret: secret.clone(),
        expires: UnixSeconds(wall_time().0 + LINK_SECONDS),
    };
    output::line(&link.encode()?)?;
    output::remark(
        "Whoever has this link may call once, and is known from then on. It ends with this command.",
    );
    Ok(())
}

/// Known peers are let in, and the first one with the open invitation, who is then known.
fn admit(
    directory: &Path,
    own: PublicKey,
    open: &Mutex<Option<InvitationSecret>>,
    caller: &Caller<'_>,
) -> bool {
    let Ok(state) = StateDirectory::create(directory) else { return false };
    let known = Peers::load(&state).unwrap_or_default();
    if known.of_kind(InvitationKind::Peer).any(|peer| peer.public_key == caller.key) {
        return true;
    }
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    if open.is_none() || open.as_ref() != caller.invitation {
        return false;
    }
    let base = caller.name.map_or("peer", Name::as_str);
    let names = std::iter::once(base.to_owned()).chain((2..100).map(|number| format!("{base}-{number}")));
    let kept = Peers::change(&state, |peers| {
        let free = names.into_iter().find(|name| peers.by_name(name).is_none()).unwrap_or_default();
        peers.acquaint(&free, caller.key, own, wall_time())?;
        Ok::<_, JoinError>(free)
    });
    match kept {
        Ok(name) => {
            *open = None;
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
    let peers = StateDirectory::create(directory).ok().and_then(|state| Peers::load(&state).ok());
    let peers = peers.unwrap_or_default();
    let known = peers.of_kind(InvitationKind::Peer).find(|peer| peer.public_key == key);
    known.map_or_else(|| key.to_string().chars().take(8).collect(), |peer| peer.name.clone())
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

/// A peer's name without what tells programs that it is one.
fn bare(host: &str) -> &str {
    host.strip_suffix(".peer").unwrap_or(host)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")
}
