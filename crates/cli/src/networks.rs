//! `anabranch networks` and `anabranch network NAME`.

use anabranch::control::{CellularReport, DirectReport, NetworkChange, NetworkReport, WifiReport};
use policy::Priority;

use crate::arguments::{Network, Networks, Switch};
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;
use crate::status::word;
use crate::table::{Table, millis, rate, yes};

pub fn list(session: &Session, arguments: &Networks) -> anyhow::Result<()> {
    let networks = session.client()?.networks()?;
    if arguments.json {
        return output::json(&networks);
    }
    output::line(&table(&networks))
}

pub fn change(session: &Session, arguments: &Network) -> anyhow::Result<()> {
    let change = NetworkChange {
        priority: arguments.priority.map(Priority),
        backup: arguments.backup.map(Switch::is_on),
        metered: arguments.metered.map(Switch::is_on),
        off: arguments.off.map(Switch::is_on),
    };
    if change == NetworkChange::default() {
        let message = "say what to change: --priority N, --backup, --metered or --off (=off takes one back)";
        return Err(WrongUsage(message.to_owned()).into());
    }
    let network = session.client()?.set_network(&arguments.name, change)?;
    if arguments.json {
        return output::json(&network);
    }
    output::line(&table(std::slice::from_ref(&network)))?;
    output::remark(&format!(
        "This holds until the daemon ends; [network.{}] in the configuration keeps it.",
        arguments.name
    ));
    Ok(())
}

/// What only direct mode, Wi-Fi or a modem knows has columns only where it is known of some network.
fn table(networks: &[NetworkReport]) -> String {
    let direct = networks.iter().any(|network| network.direct.is_some());
    let wifi = networks.iter().any(|network| wifi(network).is_some());
    let mut headings = vec!["NETWORK", "CONNECTED", "STATUS", "PRIORITY", "BACKUP", "METERED", "OFF"];
    if direct {
        headings.extend(["SHARE", "RTT", "DELIVERED", "REACH"]);
    }
    if wifi {
        headings.extend(["SSID", "CHANNEL", "SIGNAL", "BIT RATE"]);
    }
    let cellular = networks.iter().any(|network| self::cellular(network).is_some());
    if cellular {
        headings.extend(["OPERATOR", "TECHNOLOGY", "QUALITY"]);
    }
    headings.extend(["ADDRESSES", "WHY"]);
    let mut table = Table::new(&headings);
    for network in networks {
        let mut cells = vec![
            network.name.clone(),
            yes(network.connected),
            word(&network.status),
            network.priority.0.to_string(),
            yes(network.backup),
            yes(network.metered),
            yes(network.off),
        ];
        if direct {
            cells.extend(direct_cells(network.direct.as_ref()));
        }
        if wifi {
            cells.extend(wifi_cells(self::wifi(network)));
        }
        if cellular {
            cells.extend(cellular_cells(self::cellular(network)));
        }
        let addresses: Vec<String> = network.addresses.iter().map(ToString::to_string).collect();
        cells.extend([addresses.join(" "), why(network).to_owned()]);
        table.row(cells);
    }
    table.render()
}

/// Of a connected network direct mode's word explains more, where there is no path to speak of.
pub fn why(network: &NetworkReport) -> &str {
    match &network.direct {
        Some(direct) if network.connected && network.paths.is_empty() => &direct.why,
        _ => &network.why,
    }
}

fn direct_cells(direct: Option<&DirectReport>) -> [String; 4] {
    let Some(direct) = direct else { return [(); 4].map(|()| dash()) };
    [
        format!("{:.0} %", direct.share.0 * 100.0),
        millis(direct.rtt),
        direct.delivered.map_or_else(dash, rate),
        direct.portal.as_ref().map_or_else(|| word(&direct.reach), |page| format!("captive ({page})")),
    ]
}

fn wifi_cells(wifi: Option<&WifiReport>) -> [String; 4] {
    let Some(wifi) = wifi else { return [(); 4].map(|()| dash()) };
    [
        wifi.ssid.clone().unwrap_or_else(dash),
        wifi.channel.map_or_else(dash, |channel| channel.to_string()),
        wifi.signal_dbm.map_or_else(dash, |signal| format!("{signal} dBm")),
        wifi.rate.map_or_else(dash, rate),
    ]
}

fn cellular_cells(cellular: Option<&CellularReport>) -> [String; 3] {
    let Some(cellular) = cellular else { return [(); 3].map(|()| dash()) };
    let operator = cellular.operator.clone().unwrap_or_else(dash);
    let technologies = Some(cellular.technologies.join(" + ")).filter(|text| !text.is_empty());
    [
        if cellular.roaming { format!("{operator} (roaming)") } else { operator },
        technologies.unwrap_or_else(dash),
        cellular.signal_percent.map_or_else(dash, |percent| format!("{percent} %")),
    ]
}

fn cellular(network: &NetworkReport) -> Option<&CellularReport> {
    network.direct.as_ref()?.cellular.as_ref()
}

fn wifi(network: &NetworkReport) -> Option<&WifiReport> {
    network.direct.as_ref()?.wifi.as_ref()
}

fn dash() -> String {
    "-".to_owned()
}
