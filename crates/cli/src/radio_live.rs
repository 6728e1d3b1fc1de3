//! `anabranch radio list|scan|events|down`: what a running radio tells, and what is known without one.

use anabranch::control::{ClientError, HeardNetwork, RadioNetworkReport, RadioNetworkState, RadioStatus};
use anyhow::Context;
use daemon::radio::{KnownNetwork, KnownNetworks, heard_networks};
use identity::StateDirectory;
use linux::radio::{Radio, Radios, kernel_scan};
use serde::Serialize;

use crate::arguments::{Down, Events, RadioList, RadioScan};
use crate::session::{Session, is_not_running};
use crate::table::{Table, percent};
use crate::{down, events, output};

/// Without state there is neither a known network nor a running radio.
fn known(session: &Session) -> anyhow::Result<KnownNetworks> {
    let path = session.radio().path().to_owned();
    if !path.exists() {
        return Ok(KnownNetworks::default());
    }
    Ok(KnownNetworks::load(&StateDirectory::open(path, "anabranch radio add")?)?)
}

/// What the running radio says; `None` if none runs.
fn live(session: &Session) -> anyhow::Result<Option<RadioStatus>> {
    let answer = session.radio().client()?.radio();
    if is_not_running(&answer) { Ok(None) } else { Ok(Some(answer?)) }
}

/// One network of the list, without its secret.
#[derive(Serialize)]
struct Listed<'a> {
    ssid: &'a str,
    interface: String,
    weight: u16,
    hidden: bool,
    protected: bool,
    /// How it is, while the radio runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    now: Option<&'a RadioNetworkReport>,
}

impl<'a> Listed<'a> {
    fn new(network: &'a KnownNetwork, radio: Option<&'a RadioStatus>) -> anyhow::Result<Self> {
        let interface = network.interface_name()?;
        let now = radio.and_then(|radio| radio.networks.iter().find(|one| one.interface == interface));
        Ok(Self {
            ssid: &network.ssid,
            interface,
            weight: network.weight,
            hidden: network.hidden,
            protected: network.passphrase.is_some() || network.login.is_some(),
            now,
        })
    }
}

/// Shows the networks that the radio knows, and how they are.
pub fn list(session: &Session, arguments: &RadioList) -> anyhow::Result<()> {
    let radio = live(session)?;
    let known = known(session)?;
    let listed = known.network.iter().map(|network| Listed::new(network, radio.as_ref()));
    let listed: Vec<Listed<'_>> = listed.collect::<anyhow::Result<_>>()?;
    if arguments.json {
        return output::json(&listed);
    }
    if listed.is_empty() {
        return output::line("The radio knows no network yet: `anabranch radio add NAME` adds one.");
    }
    if let Some(trouble) = radio.as_ref().and_then(|radio| radio.trouble.as_ref()) {
        output::line(trouble)?;
    }
    if radio.is_some() {
        return output::line(&table_of(&listed));
    }
    for network in &listed {
        let kind = if network.protected { "with a secret" } else { "open" };
        let hidden = if network.hidden { ", hidden" } else { "" };
        output::line(&format!(
            "{}: {kind}{hidden}, weight {}, as {}",
            network.ssid, network.weight, network.interface
        ))?;
    }
    Ok(())
}

fn table_of(listed: &[Listed<'_>]) -> String {
    let mut table = Table::new(&HEADINGS);
    let mut remarks = Vec::new();
    for network in listed {
        let Some(now) = network.now else {
            table.row(vec![
                network.ssid.to_owned(),
                network.interface.clone(),
                "not yet taken over".to_owned(),
            ]);
            continue;
        };
        let counters = now.counters;
        table.row(cells(now));
        if let Some(trouble) = now.trouble.as_ref().filter(|_| now.state != RadioNetworkState::Up) {
            remarks.push(format!("{}: {trouble}", now.ssid));
        }
        if counters.full_buffers > 0 {
            remarks.push(format!(
                "{}: the access point's buffer was full after {} absences; packets may be lost",
                now.ssid, counters.full_buffers
            ));
        }
    }
    let notes: String = remarks.iter().map(|remark| format!("\n{remark}")).collect();
    table.render() + &notes
}

/// What [`cells`] are.
pub const HEADINGS: [&str; 10] = [
    "NETWORK",
    "INTERFACE",
    "STATE",
    "CHANNEL",
    "ACCESS POINT",
    "SIGNAL",
    "ADDRESS",
    "SHARE",
    "QUEUE",
    "MISSED",
];

/// One network of a running radio.
pub fn cells(network: &RadioNetworkReport) -> Vec<String> {
    let dash = || "-".to_owned();
    let counters = network.counters;
    vec![
        network.ssid.clone(),
        network.interface.clone(),
        state(network),
        network.channel.map_or_else(dash, |channel| channel.to_string()),
        network.bssid.clone().unwrap_or_else(dash),
        network.signal_dbm.map_or_else(dash, |signal| format!("{signal:.0} dBm")),
        network.addresses.first().map_or_else(dash, ToString::to_string),
        percent(network.share, 0),
        network.queue.to_string(),
        format!("{} of {}", counters.missed_dtims, counters.heard_dtims + counters.missed_dtims),
    ]
}

/// How far a network has come, in words.
pub fn state(network: &RadioNetworkReport) -> String {
    let state = match network.state {
        RadioNetworkState::Searching => "searching",
        RadioNetworkState::Joining => "joining",
        RadioNetworkState::Asking => "no address yet",
        RadioNetworkState::Up => "up",
    };
    format!("{state}{}", if network.primary == Some(true) { ", carries" } else { "" })
}

/// Shows the networks in range.
pub fn scan(session: &Session, arguments: &RadioScan) -> anyhow::Result<()> {
    let heard = session.radio().client()?.radio_scan();
    let heard = if is_not_running(&heard) {
        let known = known(session)?;
        let known: Vec<&KnownNetwork> = known.network.iter().collect();
        heard_networks(kernel_scan(&free_card(arguments)?)?.iter(), &known)
    } else {
        heard?
    };
    if arguments.json {
        return output::json(&heard);
    }
    if heard.is_empty() {
        return output::line("No network is heard.");
    }
    output::line(&heard_table(&heard))
}

/// The card that listens if no radio runs.
fn free_card(arguments: &RadioScan) -> anyhow::Result<Radio> {
    let mut radios = Radios::open()?;
    if let Some(name) = &arguments.card {
        return radios.find(name)?.with_context(|| format!("there is no card \"{name}\""));
    }
    let mut all = radios.list()?;
    anyhow::ensure!(!all.is_empty(), "this machine has no Wi-Fi card that the kernel knows");
    anyhow::ensure!(all.len() == 1, "there are {} Wi-Fi cards; name one with --card", all.len());
    Ok(all.remove(0))
}

fn heard_table(heard: &[HeardNetwork]) -> String {
    let mut table = Table::new(&["NETWORK", "ACCESS POINT", "CHANNEL", "SIGNAL", "SECURITY", ""]);
    for one in heard {
        let mut marks = Vec::new();
        marks.extend(one.known.then_some("known"));
        marks.extend(one.ad_hoc.then_some("ad hoc"));
        table.row(vec![
            one.ssid.clone().unwrap_or_else(|| "(hidden)".to_owned()),
            one.bssid.clone(),
            one.channel.map_or_else(|| format!("{} MHz", one.megahertz), |channel| channel.to_string()),
            one.signal_dbm.map_or_else(|| "-".to_owned(), |signal| format!("{signal:.0} dBm")),
            one.security.clone(),
            marks.join(", "),
        ]);
    }
    table.render()
}

/// Tells what has happened.
pub fn events(session: &Session, arguments: &Events) -> anyhow::Result<()> {
    events::run(&session.radio(), arguments).map_err(no_radio)
}

/// Ends the radio.
pub fn down(session: &Session, arguments: &Down) -> anyhow::Result<()> {
    let radio = session.radio();
    anyhow::ensure!(radio.path().exists(), NO_RADIO);
    down::run(&radio, arguments)
}

/// Says that no radio runs, if that is what went wrong.
pub fn no_radio(error: anyhow::Error) -> anyhow::Error {
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::NotRunning(_)) => anyhow::anyhow!(NO_RADIO),
        _ => error,
    }
}

const NO_RADIO: &str = "no radio is running here; `anabranch radio up` starts it";

#[cfg(test)]
mod tests {
    use anabranch::control::{Fraction, RadioCounters};

    use super::*;

    #[test]
    fn a_running_radio_tells_how_each_network_is() {
        let up = RadioNetworkReport {
            ssid: "home".into(),
            interface: "wl-home".into(),
            state: RadioNetworkState::Up,
            bssid: Some("02:00:00:00:01:00".into()),
            channel: Some(11),
            signal_dbm: Some(-48.6),
            addresses: vec!["10.64.2.100".parse().unwrap()],
            share: Fraction(0.5),
            counters: RadioCounters {
                heard_dtims: 7,
                missed_dtims: 3,
                full_buffers: 2,
                ..Default::default()
            },
            ..Default::default()
        };
        let searching = RadioNetworkReport {
            ssid: "cafe".into(),
            interface: "wl-cafe".into(),
            trouble: Some("it wants a passphrase".into()),
            ..Default::default()
        };
        let listed = |now| Listed {
            ssid: "x",
            interface: "wl-x".into(),
            weight: 1,
            hidden: false,
            protected: true,
            now: Some(now),
        };
        let text = table_of(&[listed(&up), listed(&searching)]);
        for part in
            ["-49 dBm", "10.64.2.100", "50 %", "3 of 10", "cafe: it wants a passphrase", "was full after 2"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
}
