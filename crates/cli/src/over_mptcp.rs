//! `anabranch run --treat mptcp`: the command's TCP sockets speak MPTCP, and each connection begins over the network that the policy likes best.

use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use anabranch::control::{BlockingClient, ExplainRequest};
use anyhow::Context;
use linux::mptcp::supervised::Supervised;
use linux::netlink::Netlink;
use linux::signals::EndSignals;

/// Runs the command to its end and ends as it did.
pub fn run(client: &BlockingClient, mut command: Command) -> anyhow::Result<()> {
    let name = command.get_program().to_owned();
    let program =
        Supervised::start(&mut command).with_context(|| format!("cannot run {}", name.display()))?;
    let signals = EndSignals::catch().context("cannot hold signals back")?;
    let status = program
        .serve(&signals, |destination| first_address(client, destination))
        .with_context(|| format!("cannot look after {}", name.display()))?;
    std::process::exit(code(status))
}

/// The address of the network that has the largest part of such flows, of those that let MPTCP through; `None` if the daemon leads them nowhere.
fn first_address(client: &BlockingClient, destination: SocketAddr) -> Option<IpAddr> {
    let request = ExplainRequest {
        destination: destination.ip(),
        domain: None,
        port: destination.port(),
        udp: false,
        dscp: 0,
    };
    let explained = client.explain(&request).ok()?;
    Netlink::open().ok()?.address_on(explained.preferred_for_mptcp()?, destination.is_ipv6()).ok()?
}

/// As a shell tells it.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1)
}
