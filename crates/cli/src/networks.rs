//! `anabranch networks` and `anabranch network NAME`.

use anabranch::control::{NetworkChange, NetworkReport};
use policy::Priority;

use crate::arguments::{Network, Networks, Switch};
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;
use crate::status::word;
use crate::table::{Table, yes};

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

fn table(networks: &[NetworkReport]) -> String {
    let mut table = Table::new(&[
        "NETWORK",
        "CONNECTED",
        "STATUS",
        "PRIORITY",
        "BACKUP",
        "METERED",
        "OFF",
        "ADDRESSES",
        "WHY",
    ]);
    for network in networks {
        let addresses: Vec<String> = network.addresses.iter().map(ToString::to_string).collect();
        table.row(vec![
            network.name.clone(),
            yes(network.connected),
            word(&network.status),
            network.priority.0.to_string(),
            yes(network.backup),
            yes(network.metered),
            yes(network.off),
            addresses.join(" "),
            network.why.clone(),
        ]);
    }
    table.render()
}
