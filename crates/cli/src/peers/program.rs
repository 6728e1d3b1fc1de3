//! `anabranch run --virtual`: a program whose connections to peers survive a change of network.
//!
//! Programs of the C library have a library preloaded (crates/preload), all others that heed a proxy are told of ours by the environment.

use std::env;
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr, SocketAddrV4};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anabranch::apps::tunnel::{Proxy, Route};
use anabranch::nearby::Circle;
use anyhow::Context;
use identity::{Groups, InvitationKind, KeyPair, Peers, PublicKey, StateDirectory, any0_address};
use tokio::process::Command;
use wire::preload::{self, Preload};

use super::Typed;
use super::nearby::Lookout;
use crate::arguments::{Only, Spare};
use crate::output;
use crate::session::Session;

/// Programs of OpenSSH, which heed no proxy of the environment.
const SSH: [&str; 3] = ["ssh", "scp", "sftp"];
const LIBRARY: &str = "libanabranch_preload.so";
/// Where the library is, from the directory of this program: installed, and where cargo builds it.
const PLACES: [&str; 3] = ["../lib/anabranch", ".", "deps"];
const PRELOAD: &str = "LD_PRELOAD";

pub fn run(
    session: &Session,
    program: &OsStr,
    arguments: &[OsString],
    group: Option<String>,
    (only, spare): (&Only, &Spare),
) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let groups = super::groups::memberships(&state, &group)?;
    let status = super::runtime()?.block_on(async {
        let endpoint = super::caller(&state, key.clone(), groups.clone(), (only, spare))?;
        let peers: Vec<PublicKey> =
            reachable(&state, group.as_deref()).into_iter().map(|(_, key)| key).collect();
        let peers = if groups.is_empty() { &*peers } else { &[] };
        let circle = Circle { peers, groups: &groups, only: only.as_slice() };
        let lookout = Lookout::begin(&key, circle, super::nearby::PORTS, &endpoint);
        let proxy = Proxy::bind().await.context("no proxy can listen on the loopback interface")?;
        let SocketAddr::V4(address) = proxy.address() else { anyhow::bail!("the proxy is not on IPv4") };
        let told = told(&reachable(&state, group.as_deref()), address);
        let mut command = Command::new(program);
        match library() {
            Some(library) => preload(&mut command, &library, &told),
            None => {
                output::remark(&format!(
                    "anabranch: {LIBRARY} is not installed; only ssh and programs that heed a proxy reach peers."
                ));
                call_by_command(&mut command, program, &state, group.as_deref())?;
            }
        }
        command.args(arguments);
        let directory = state.path().to_owned();
        let finder = Finder { directory, told, lookout, key, group, only: only.clone() };
        tokio::spawn(proxy.run(endpoint.clone(), move |host| finder.route(host)));
        let socks = format!("socks5h://{address}");
        for name in ["ALL_PROXY", "all_proxy"] {
            command.env(name, &socks);
        }
        for name in ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"] {
            command.env(name, format!("http://{address}"));
        }
        for name in ["NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        let status = command.status().await;
        endpoint.close().await;
        status.with_context(|| format!("cannot run {}", program.display()))
    })?;
    if status.success() {
        return Ok(());
    }
    // The program has said why; its exit code is this command's.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    Err(crate::exit::Quietly(ExitCode::from(u8::try_from(code).unwrap_or(1))).into())
}

/// What the preloaded library is told: whom it can reach, and how.
fn told(peers: &[(String, PublicKey)], proxy: SocketAddrV4) -> Preload {
    let peers =
        peers.iter().map(|(name, key)| (name.clone(), any0_address::v4_of(*key), any0_address::v6_of(*key)));
    Preload::new(proxy, peers)
}

/// Who can be called by name: known peers, or the members of a group whom this machine has met.
fn reachable(state: &StateDirectory, group: Option<&str>) -> Vec<(String, PublicKey)> {
    let Some(group) = group else {
        let known = Peers::load(state).unwrap_or_default();
        let peers = known.of_kind(InvitationKind::Peer);
        return peers.map(|peer| (peer.name.clone(), peer.public_key)).collect();
    };
    let groups = Groups::load(state).unwrap_or_default();
    let members = groups.get(group).map(|group| group.members.clone()).unwrap_or_default();
    members.into_iter().map(|member| (member.name, member.public_key)).collect()
}

/// Where the library is; `None` if it is not installed, or where its path could not be named to the loader.
fn library() -> Option<PathBuf> {
    let own = env::current_exe().ok()?;
    let found = PLACES.iter().map(|place| own.parent().map(|directory| directory.join(place).join(LIBRARY)));
    let found = found.flatten().find(|path| path.is_file())?.canonicalize().ok()?;
    // What separates entries of the variable cannot stand in one.
    found.to_str().is_some_and(|path| !path.contains([' ', ':'])).then_some(found)
}

fn preload(command: &mut Command, library: &Path, told: &Preload) {
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    command.env(PRELOAD, value).env(preload::VARIABLE, told.to_string());
}

/// Programs of OpenSSH, and what starts them, reach peers by a command of ours.
fn call_by_command(
    command: &mut Command,
    program: &OsStr,
    state: &StateDirectory,
    group: Option<&str>,
) -> anyhow::Result<()> {
    let reach = reach_command(state.path(), group)?;
    if SSH.iter().any(|name| Path::new(program).file_name() == Some(OsStr::new(name))) {
        command.arg("-o").arg(format!("ProxyCommand={reach} %h %p"));
    }
    let ssh = format!("ssh -o 'ProxyCommand={reach} %h %p'");
    command.env("RSYNC_RSH", &ssh).env("GIT_SSH_COMMAND", &ssh);
    Ok(())
}

/// What connects ssh with a peer's port.
fn reach_command(state: &Path, group: Option<&str>) -> anyhow::Result<String> {
    let own = env::current_exe().context("where is this program?")?;
    let quoted = |path: &Path| format!("\"{}\"", path.display());
    let group = group.map_or_else(String::new, |group| format!(" --group {}", quoted(Path::new(group))));
    Ok(format!("{} --state {} reach{group}", quoted(&own), quoted(state)))
}

/// Knows where a program's connection is to go.
struct Finder {
    directory: PathBuf,
    told: Preload,
    lookout: Lookout,
    key: KeyPair,
    group: Option<String>,
    only: Only,
}

impl Finder {
    /// Names of those who can be called, and the addresses of their keys, lead to them; everything else where it would lead without.
    fn route(&self, host: &str) -> Route {
        let by_address = host.parse().ok().and_then(|address: IpAddr| self.told.by_address(address));
        let name = by_address.map_or(preload::bare(host), |peer| peer.name.as_str());
        // In a group strangers' names are not looked for, as each host that a program calls would take seconds.
        let is_told = self.group.is_none() || self.told.peers.iter().any(|peer| peer.name == name);
        let group = self.group.as_ref();
        let typed = Typed {
            text: name,
            name: None,
            addresses: &[],
            group,
            port: super::SERVE_PORT,
            only: &self.only,
        };
        let state = StateDirectory::create(&self.directory).ok().filter(|_| is_told);
        let found = state.and_then(|state| super::find(&state, &self.key, &typed).ok());
        found.map_or(Route::Plain, |known| Route::Peer(self.lookout.complete(&known.peer)))
    }
}
