//! `anabranch neighbours`.

use anabranch::control::{NeighbourKey, NeighbourLinkReport, Neighbourhood};

use crate::arguments::{Neighbours, NeighboursCommand};
use crate::output;
use crate::session::Session;
use crate::table::{Table, millis};

pub fn run(session: &Session, arguments: &Neighbours) -> anyhow::Result<()> {
    let client = session.client()?;
    let neighbourhood = match &arguments.command {
        None => client.neighbours()?,
        Some(NeighboursCommand::Add { name, key }) => {
            client.add_neighbour(name, &NeighbourKey { public_key: key.clone() })?
        }
        Some(NeighboursCommand::Remove { name }) => client.forget_neighbour(name)?,
    };
    if arguments.json {
        return output::json(&neighbourhood);
    }
    output::line(&text(&neighbourhood))?;
    if !neighbourhood.on {
        output::remark("They are not looked for: set neighbours = true under [device] in the configuration.");
    }
    Ok(())
}

fn text(neighbourhood: &Neighbourhood) -> String {
    let mut table = Table::new(&["NEIGHBOUR", "ADDRESSES", "OVER", "HEARD OVER", "KEY"]);
    for neighbour in &neighbourhood.neighbours {
        let addresses: Vec<String> = neighbour.addresses.iter().map(ToString::to_string).collect();
        let links: Vec<String> = neighbour.links.iter().map(link).collect();
        table.row(vec![
            neighbour.name.clone(),
            addresses.join(" "),
            neighbour.network.clone().unwrap_or_else(|| "-".to_owned()),
            if links.is_empty() { "-".to_owned() } else { links.join(", ") },
            neighbour.public_key.clone(),
        ]);
    }
    let own: Vec<String> = neighbourhood.addresses.iter().map(ToString::to_string).collect();
    let mut lines = vec![format!("This device's key: {}", neighbourhood.public_key)];
    if !own.is_empty() {
        lines.push(format!("Its addresses for neighbours: {}", own.join(" ")));
    }
    if neighbourhood.neighbours.is_empty() {
        lines.push(
            "No neighbour's key is known: \"anabranch neighbours add NAME KEY\" makes it so.".to_owned(),
        );
    } else {
        lines.push(table.render());
    }
    lines.join("\n")
}

/// `wlan0 (2.1 ms, 0.4 s ago)`.
fn link(link: &NeighbourLinkReport) -> String {
    format!("{} ({}, {:.1} s ago)", link.network, millis(link.rtt), link.last_seen.as_millis_f64() / 1e3)
}
