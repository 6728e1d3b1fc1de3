//! `anabranch run --virtual`: a program whose connections to peers survive a change of network.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitCode;

use anabranch::apps::tunnel::{Proxy, Route};
use anyhow::Context;
use identity::{PublicKey, StateDirectory};
use tokio::process::Command;

use crate::session::Session;

/// Programs of OpenSSH, which heed no proxy of the environment.
const SSH: [&str; 3] = ["ssh", "scp", "sftp"];

pub fn run(session: &Session, program: &OsStr, arguments: &[OsString]) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let own = key.public();
    let status = super::runtime()?.block_on(async {
        let endpoint = super::caller(key)?;
        let proxy = Proxy::bind().await.context("no proxy can listen on the loopback interface")?;
        let address = proxy.address();
        let directory = state.path().to_owned();
        tokio::spawn(proxy.run(endpoint.clone(), move |host| route(&directory, own, host)));
        let mut command = Command::new(program);
        let reach = reach_command(state.path())?;
        if SSH.iter().any(|name| Path::new(program).file_name() == Some(OsStr::new(name))) {
            command.arg("-o").arg(format!("ProxyCommand={reach} %h %p"));
        }
        command.args(arguments);
        let socks = format!("socks5h://{address}");
        for name in ["ALL_PROXY", "all_proxy"] {
            command.env(name, &socks);
        }
        for name in ["HTTPS_PROXY", "https_proxy"] {
            command.env(name, format!("http://{address}"));
        }
        for name in ["HTTP_PROXY", "http_proxy", "NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        let ssh = format!("ssh -o 'ProxyCommand={reach} %h %p'");
        command.env("RSYNC_RSH", &ssh).env("GIT_SSH_COMMAND", &ssh);
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

/// What connects ssh with a peer's port.
fn reach_command(state: &Path) -> anyhow::Result<String> {
    let own = std::env::current_exe().context("where is this program?")?;
    let quoted = |path: &Path| format!("\"{}\"", path.display());
    Ok(format!("{} --state {} reach", quoted(&own), quoted(state)))
}

/// Names of known peers lead to them, everything else where it would lead without.
fn route(directory: &Path, own: PublicKey, host: &str) -> Route {
    let found = StateDirectory::create(directory)
        .ok()
        .and_then(|state| super::find(&state, own, super::bare(host), None, &[], super::SERVE_PORT).ok());
    found.map_or(Route::Plain, |known| Route::Peer(known.peer))
}
