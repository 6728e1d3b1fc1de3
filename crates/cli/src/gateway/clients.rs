//! `anabranch gateway clients`, `revoke` and `forward`.

use std::net::SocketAddr;

use anabranch::control::{
    AllowanceReport, ClientReport, ForwardRequest, InvitationReport, LimitRequest, PortNumber,
    TransportProtocol,
};
use daemon::control::clients;
use identity::wall_time;

use super::offline;
use crate::arguments::{GatewayClients, GatewayForward, GatewayLimit, GatewayRevoke};
use crate::output;
use crate::session::Session;
use crate::table::{Table, bytes};

pub fn list(session: &Session, arguments: &GatewayClients) -> anyhow::Result<()> {
    let answer = offline::ask(
        session,
        |client| client.gateway_clients(),
        |registry, limits| clients::list(registry, limits, wall_time()),
    )?;
    if arguments.json {
        return output::json(&answer);
    }
    if answer.clients.is_empty() && answer.invitations.is_empty() {
        return output::line("No clients and no invitations yet: `anabranch gateway invite NAME` makes one.");
    }
    if !answer.clients.is_empty() {
        output::line(&client_table(&answer.clients))?;
    }
    if !answer.invitations.is_empty() {
        let gap = if answer.clients.is_empty() { "" } else { "\n" };
        output::line(&format!("{gap}{}", invitation_table(&answer.invitations)))?;
    }
    Ok(())
}

pub fn revoke(session: &Session, arguments: &GatewayRevoke) -> anyhow::Result<()> {
    let revoked = offline::ask(
        session,
        |client| client.revoke(&arguments.name),
        |registry, _| clients::revoke(registry, &arguments.name).map(|(revoked, _)| revoked),
    )?;
    if arguments.json {
        return output::json(&revoked);
    }
    let what = match (revoked.client, revoked.invitation) {
        (true, true) => "The client was shut out and its invitation withdrawn",
        (true, false) => "The client was shut out",
        _ => "The invitation was withdrawn",
    };
    output::line(&format!("{what}: {}.", revoked.name))
}

pub fn limit(session: &Session, arguments: &GatewayLimit) -> anyhow::Result<()> {
    let request =
        LimitRequest { client: arguments.name.clone(), rate: arguments.rate, quota: arguments.quota };
    let client = offline::ask(
        session,
        |client| client.limit(&request),
        |registry, limits| clients::limit(registry, limits, &request, wall_time()).map(|(report, _)| report),
    )?;
    if arguments.json {
        return output::json(&client);
    }
    let AllowanceReport { rate, quota, used, slowed } = client.allowance;
    let rate = rate.map_or_else(|| "as much as there is".to_owned(), |rate| format!("{rate} each way"));
    let quota = quota.map_or_else(
        || "no quota".to_owned(),
        |quota| format!("{} of {} used in this month", bytes(used), bytes(quota)),
    );
    let slowed = if slowed { "; it is slowed down until the month is over" } else { "" };
    output::line(&format!("{}: {rate}, {quota}{slowed}.", client.name))
}

pub fn forward(session: &Session, arguments: &GatewayForward) -> anyhow::Result<()> {
    let request = ForwardRequest {
        client: arguments.client.clone(),
        port: PortNumber(arguments.port),
        device_port: arguments.to.map(PortNumber),
        protocol: if arguments.udp { TransportProtocol::Udp } else { TransportProtocol::Tcp },
    };
    let forward = if arguments.remove {
        offline::ask(
            session,
            |client| client.stop_forward(&request),
            |registry, _| clients::stop_forward(registry, &request),
        )?
    } else {
        offline::ask(
            session,
            |client| client.forward(&request),
            |registry, _| clients::forward(registry, &request),
        )?
    };
    if arguments.json {
        return output::json(&forward);
    }
    let (protocol, port) = (forward.protocol.as_str(), forward.port);
    let (client, device_port) = (forward.client, forward.device_port);
    output::line(&match arguments.remove {
        true => format!("{protocol} port {port} of this gateway no longer leads to {client}."),
        false => format!("{protocol} port {port} of this gateway leads to port {device_port} of {client}."),
    })
}

fn client_table(clients: &[ClientReport]) -> String {
    let mut table = Table::new(&HEADINGS);
    for client in clients {
        table.row(cells(client));
    }
    table.render()
}

/// What [`cells`] are.
pub const HEADINGS: [&str; 11] = [
    "CLIENT",
    "CONNECTED SINCE",
    "FROM",
    "ADDRESSES",
    "SENT",
    "RECEIVED",
    "LIMIT",
    "THIS MONTH",
    "LAST SEEN",
    "FORWARDS",
    "KEY",
];

pub fn cells(client: &ClientReport) -> Vec<String> {
    let addresses: Vec<String> = client.addresses.iter().map(ToString::to_string).collect();
    let forwards = client.forwards.iter().map(|forward| {
        let (protocol, port, to) = (forward.protocol.as_str(), forward.port, forward.device_port);
        if port == to { format!("{protocol}/{port}") } else { format!("{protocol}/{port}->{to}") }
    });
    vec![
        client.name.clone(),
        client.connected_since.map_or_else(|| "-".to_owned(), |time| time.to_string()),
        from(&client.paths),
        addresses.join(" "),
        bytes(client.traffic.sent),
        bytes(client.traffic.received),
        client.allowance.rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string()),
        this_month(&client.allowance),
        client.last_seen.map_or_else(|| "never".to_owned(), |time| time.to_string()),
        forwards.collect::<Vec<_>>().join(" "),
        client.public_key.chars().take(8).collect(),
    ]
}

fn this_month(allowance: &AllowanceReport) -> String {
    let used = bytes(allowance.used);
    match allowance.quota {
        None => used,
        Some(quota) if allowance.slowed => format!("{used} of {}, slowed", bytes(quota)),
        Some(quota) => format!("{used} of {}", bytes(quota)),
    }
}

/// The addresses of its paths, each once; ports change with every path.
fn from(paths: &[SocketAddr]) -> String {
    let mut addresses: Vec<String> = Vec::new();
    for path in paths {
        let address = path.ip().to_canonical().to_string();
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    if addresses.is_empty() { "-".to_owned() } else { addresses.join(" ") }
}

fn invitation_table(invitations: &[InvitationReport]) -> String {
    let mut table = Table::new(&["INVITATION", "MADE", "ENDS", ""]);
    for invitation in invitations {
        table.row(vec![
            invitation.name.clone(),
            invitation.created.to_string(),
            invitation.expires.to_string(),
            if invitation.expired { "expired".to_owned() } else { "open".to_owned() },
        ]);
    }
    table.render()
}
