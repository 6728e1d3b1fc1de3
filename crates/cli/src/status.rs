//! `anabranch status`.

use anabranch::control::{NetworkReport, PathReport, Role, SessionState, Status};

use crate::arguments;
use crate::output;
use crate::session::Session;
use crate::table::{Table, bytes, millis, rate};

pub fn run(session: &Session, arguments: &arguments::Status) -> anyhow::Result<()> {
    let status = session.client()?.status()?;
    if arguments.json {
        return output::json(&status);
    }
    output::line(&head(&status))?;
    if !status.networks.is_empty() {
        output::line(&format!("\n{}", paths(&status.networks)))?;
        let reasons = reasons(&status.networks);
        if !reasons.is_empty() {
            output::line(&format!("\n{}", reasons.join("\n")))?;
        }
    }
    Ok(())
}

fn head(status: &Status) -> String {
    let role = match status.role {
        Role::Device => "device",
        Role::Gateway => "gateway",
    };
    let state = match status.state {
        SessionState::Starting => "starting",
        SessionState::Connecting => "connecting",
        SessionState::Up => "up",
        SessionState::NoNetwork => "no network",
        SessionState::Refused => "refused",
        SessionState::Stopping => "stopping",
    };
    let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        format!("{} ({role}) is {state}: {}", status.name, status.why),
        format!("interface  {} {} mtu {}", status.interface, addresses.join(" "), status.mtu.0),
    ];
    if let Some(far_end) = &status.far_end {
        let since =
            far_end.connected_since.map_or_else(String::new, |since| format!(", connected since {since}"));
        lines.push(format!("gateway    {}{since}", far_end.name));
    }
    if let Some(clients) = status.connected_clients {
        lines.push(format!("clients    {clients} connected"));
    }
    let traffic = &status.traffic;
    lines.push(format!(
        "traffic    out {} ({}), in {} ({})",
        bytes(traffic.sent),
        rate(traffic.sending),
        bytes(traffic.received),
        rate(traffic.receiving)
    ));
    lines.push(format!("daemon     {} as process {} since {}", status.version, status.pid, status.started));
    lines.join("\n")
}

/// One line for each path, and one for each network without any.
fn paths(networks: &[NetworkReport]) -> String {
    let mut table = Table::new(&[
        "NETWORK", "STATUS", "HEALTH", "CARRIER", "CAN SEND", "RTT", "LOSS", "QUEUE", "OUT", "IN",
    ]);
    for network in networks {
        for path in &network.paths {
            table.row(path_cells(network, path));
        }
        if network.paths.is_empty() {
            table.row(vec![network.name.clone(), word(&network.status), "no path".to_owned()]);
        }
    }
    table.render()
}

fn path_cells(network: &NetworkReport, path: &PathReport) -> Vec<String> {
    vec![
        network.name.clone(),
        word(&path.status),
        word(&path.health),
        word(&path.carrier),
        rate(path.rate),
        millis(path.rtt),
        format!("{:.1} %", path.loss.0 * 100.0),
        bytes(path.queue),
        rate(path.traffic.sending),
        rate(path.traffic.receiving),
    ]
}

fn reasons(networks: &[NetworkReport]) -> Vec<String> {
    networks
        .iter()
        .filter(|network| !network.why.is_empty())
        .map(|n| format!("{}: {}", n.name, n.why))
        .collect()
}

/// The word of an enum in the API.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
