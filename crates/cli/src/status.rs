//! `anabranch status`.

use anabranch::control::{GainReport, NetworkReport, PathHealth, PathReport, Role, SessionState, Status};

use policy::PathStatus;
use policy::gain::Direction;

use crate::arguments;
use crate::output;
use crate::session::Session;
use crate::table::{Table, bytes, millis, percent, rate};

pub fn run(session: &Session, arguments: &arguments::Status) -> anyhow::Result<()> {
    let status = session.client()?.status()?;
    if arguments.json {
        return output::json(&status);
    }
    output::line(&head(&status))?;
    if !status.networks.is_empty() {
        output::line(&format!("\n{}", paths(&status.networks)))?;
    }
    Ok(())
}

/// Who it is and how it is, in one line.
pub fn sentence(status: &Status) -> String {
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
    format!("{} ({role}) is {state}: {}", status.name, status.why)
}

fn head(status: &Status) -> String {
    let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    let mut lines = vec![
        sentence(status),
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
    if let Some(gain) = &status.gain {
        lines.push(format!("gain       {}", worth(gain)));
    }
    lines.push(format!("daemon     {} as process {} since {}", status.version, status.pid, status.started));
    lines.join("\n")
}

/// What bonding is worth, in words.
pub fn worth(gain: &GainReport) -> String {
    let way = match gain.direction {
        Direction::Sending => "out",
        Direction::Receiving => "in",
    };
    let (bonded, network, alone) = (rate(gain.bonded), &gain.network, rate(gain.best_alone));
    if gain.best_alone > gain.bonded {
        format!("bonded {bonded} {way}; {network} alone could carry it too ({alone})")
    } else {
        format!("bonded {bonded} {way}; {network} alone would be {alone}")
    }
}

/// One line for each path, and one for each network without any.
fn paths(networks: &[NetworkReport]) -> String {
    let mut table = Table::new(&PATH_HEADINGS);
    for network in networks {
        if !network.connected || network.paths.is_empty() {
            let status = if network.connected { word(&network.status) } else { dash() };
            let mut cells = vec![network.name.clone(), status];
            cells.resize_with(10, dash);
            cells.push(network.why.clone());
            table.row(cells);
            continue;
        }
        for path in &network.paths {
            table.row(path_cells(network, path));
        }
    }
    table.render()
}

/// What [`path_cells`] are.
pub const PATH_HEADINGS: [&str; 11] =
    ["NETWORK", "STATUS", "HEALTH", "CARRIER", "SHARE", "CAN SEND", "RTT", "LOSS", "OUT", "IN", "WHY"];

pub fn path_cells(network: &NetworkReport, path: &PathReport) -> Vec<String> {
    let measured = path.rtt.is_some();
    vec![
        network.name.clone(),
        word(&path.status),
        word(&path.health),
        word(&path.carrier),
        path.share.map_or_else(dash, |share| percent(share, 0)),
        path.rate.map_or_else(dash, rate),
        millis(path.rtt),
        if measured { percent(path.loss, 1) } else { dash() },
        rate(path.traffic.sending),
        rate(path.traffic.receiving),
        why(network, path).to_owned(),
    ]
}

/// What explains the line best: a path that does not answer, else what keeps the network back, else how the path does.
pub fn why<'a>(network: &'a NetworkReport, path: &'a PathReport) -> &'a str {
    let answers = path.health == PathHealth::Good;
    if answers && network.status != PathStatus::Active { &network.why } else { &path.why }
}

fn dash() -> String {
    "-".to_owned()
}

/// The word of an enum in the API.
pub fn word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}
