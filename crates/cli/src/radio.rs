//! `anabranch radio probe`: what each Wi-Fi card can do, and who would keep its networks.

use linux::radio::{BackEnd, Block, Channel, Choice, Radio, Radios};
use linux::wireless::{WirelessError, WirelessMode};
use serde::Serialize;

use crate::arguments::RadioProbe;
use crate::output;

/// Asks the kernel itself: no daemon is needed, and no privileges.
pub fn probe(arguments: &RadioProbe) -> anyhow::Result<()> {
    let (radios, country) = match Radios::open() {
        Err(WirelessError::None) => (Vec::new(), None),
        other => {
            let mut control = other?;
            (control.list()?, control.country()?.map(|country| country.to_string()))
        }
    };
    let report = ProbeReport { country, cards: radios.iter().map(CardReport::new).collect() };
    if arguments.json {
        return output::json(&report);
    }
    if report.cards.is_empty() {
        return output::line(NO_CARD);
    }
    output::line(&text(&report))
}

const NO_CARD: &str = "This machine has no Wi-Fi card that the kernel knows. \"lspci -k\" and \"lsusb\" show whether there is one \
     without a driver.";

/// The whole answer in JSON.
#[derive(Serialize)]
struct ProbeReport {
    /// The country whose rules hold; `00` is what all countries have in common.
    country: Option<String>,
    cards: Vec<CardReport>,
}

/// One card.
#[derive(Serialize)]
struct CardReport {
    name: String,
    driver: Option<String>,
    address: Option<String>,
    interfaces: Vec<String>,
    blocked: Option<&'static str>,
    back_end: BackEndReport,
    reason: String,
    monitor: bool,
    acknowledges_in_monitor_mode: bool,
    /// What its interfaces can be used as; what this program does not know is left out.
    modes: Vec<&'static str>,
    /// Interfaces that it can have at the same time.
    combinations: Vec<CombinationReport>,
    channels: Vec<ChannelReport>,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
enum BackEndReport {
    Kernel { networks: u32, channels: u32 },
    TimeSliced,
    None,
}

#[derive(Serialize)]
struct CombinationReport {
    stations: u32,
    interfaces: u32,
    channels: u32,
}

#[derive(Serialize)]
struct ChannelReport {
    band: String,
    channel: Option<u16>,
    megahertz: u32,
    /// `free`, `listen_only`, `radar` or `forbidden`.
    rule: &'static str,
}

impl CardReport {
    fn new(radio: &Radio) -> Self {
        let Choice { back_end, reason } = BackEnd::choose(radio);
        Self {
            name: radio.name.clone(),
            driver: radio.driver.clone(),
            address: radio.address.map(|address| address.to_string()),
            interfaces: radio.interfaces.iter().map(|interface| interface.name.clone()).collect(),
            blocked: radio.block.map(|block| match block {
                Block::Soft => "soft",
                Block::Hard => "hard",
            }),
            back_end: match back_end {
                BackEnd::Kernel { networks, channels } => BackEndReport::Kernel { networks, channels },
                BackEnd::TimeSliced => BackEndReport::TimeSliced,
                BackEnd::None => BackEndReport::None,
            },
            reason,
            monitor: radio.modes.contains(&WirelessMode::Monitor),
            acknowledges_in_monitor_mode: radio.active_monitor,
            modes: radio.modes.iter().filter_map(mode).collect(),
            combinations: radio
                .combinations
                .iter()
                .map(|combination| CombinationReport {
                    stations: combination.stations(),
                    interfaces: combination.interfaces,
                    channels: combination.channels,
                })
                .collect(),
            channels: radio.channels.iter().map(channel).collect(),
        }
    }
}

fn mode(mode: &WirelessMode) -> Option<&'static str> {
    Some(match mode {
        WirelessMode::Station => "station",
        WirelessMode::AdHoc => "ad hoc",
        WirelessMode::AccessPoint => "access point",
        WirelessMode::Monitor => "monitor",
        WirelessMode::Mesh => "mesh",
        WirelessMode::Other(_) => return None,
    })
}

fn channel(channel: &Channel) -> ChannelReport {
    let rule = if channel.disabled {
        "forbidden"
    } else if channel.radar {
        "radar"
    } else if channel.no_initiation {
        "listen_only"
    } else {
        "free"
    };
    ChannelReport {
        band: channel.band.to_string(),
        channel: channel.frequency.channel(),
        megahertz: channel.frequency.0,
        rule,
    }
}

fn text(report: &ProbeReport) -> String {
    let mut lines = Vec::new();
    for card in &report.cards {
        let driver = card.driver.as_deref().unwrap_or("driver not known");
        let interfaces =
            if card.interfaces.is_empty() { "none".to_owned() } else { card.interfaces.join(" ") };
        lines.push(format!("{} ({driver}), interfaces: {interfaces}", card.name));
        let choice = match card.back_end {
            BackEndReport::Kernel { networks, channels: 1 } => {
                format!("the kernel, up to {networks} networks on one channel")
            }
            BackEndReport::Kernel { networks, channels } => {
                format!("the kernel, up to {networks} networks on {channels} channels")
            }
            BackEndReport::TimeSliced => "slots: this program shares the radio's time out".to_owned(),
            BackEndReport::None => "none: one network at a time".to_owned(),
        };
        lines.push(format!("  several networks  {choice}"));
        lines.push(format!("  why               {}", card.reason));
        match card.blocked {
            Some("hard") => lines.push("  switched off      by its key or switch on the machine".to_owned()),
            Some(_) => lines.push("  switched off      \"rfkill unblock wifi\" switches it on".to_owned()),
            None => {}
        }
        lines.push(format!("  can be            {}", card.modes.join(", ")));
        for (rule, word) in [
            ("free", "free channels    "),
            ("listen_only", "to listen only   "),
            ("radar", "radar has priority"),
        ] {
            let channels = channels(card, rule);
            if !channels.is_empty() {
                lines.push(format!("  {word} {channels}"));
            }
        }
        lines.push(String::new());
    }
    match report.country.as_deref() {
        Some("00") => lines.push(
            "Country: not set, so only what all countries allow. \"iw reg set XX\" sets it until the next start.".to_owned(),
        ),
        Some(country) => lines.push(format!("Country: {country}")),
        None => lines.push("Country: the card's own rules".to_owned()),
    }
    lines.join("\n")
}

/// `2.4 GHz 1 2 3; 5 GHz 36 40`.
fn channels(card: &CardReport, rule: &str) -> String {
    let mut bands: Vec<(&str, Vec<String>)> = Vec::new();
    for channel in card.channels.iter().filter(|channel| channel.rule == rule) {
        let number =
            channel.channel.map_or_else(|| format!("{} MHz", channel.megahertz), |one| one.to_string());
        match bands.last_mut() {
            Some((band, numbers)) if *band == channel.band => numbers.push(number),
            _ => bands.push((&channel.band, vec![number])),
        }
    }
    let bands: Vec<String> =
        bands.iter().map(|(band, numbers)| format!("{band} {}", numbers.join(" "))).collect();
    bands.join("; ")
}

#[cfg(test)]
mod tests {
    use linux::radio::{Band, RadioNumber};
    use units::Frequency;

    use super::*;

    fn card() -> Radio {
        let channel = |frequency, band, no_initiation, radar| Channel {
            frequency: Frequency(frequency),
            band,
            disabled: false,
            no_initiation,
            radar,
            most_power: None,
        };
        Radio {
            number: RadioNumber(0),
            name: "phy0".into(),
            driver: Some("ath9k".into()),
            address: None,
            channels: vec![
                channel(2412, Band::Two, false, false),
                channel(2437, Band::Two, false, false),
                channel(5180, Band::Five, true, false),
                channel(5260, Band::Five, true, true),
            ],
            modes: vec![WirelessMode::Station, WirelessMode::Monitor],
            combinations: Vec::new(),
            active_monitor: true,
            block: Some(Block::Soft),
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn people_are_told_what_why_and_where() {
        let report = ProbeReport { country: Some("00".into()), cards: vec![CardReport::new(&card())] };
        let text = text(&report);
        for part in [
            "phy0 (ath9k), interfaces: none",
            "slots: this program",
            "one network at a time with this card",
            "rfkill unblock wifi",
            "free channels     2.4 GHz 1 6",
            "to listen only    5 GHz 36",
            "radar has priority 5 GHz 52",
            "Country: not set",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }

    #[test]
    fn programs_are_told_the_same() {
        let json = serde_json::to_value(CardReport::new(&card())).unwrap();
        assert_eq!(json["back_end"]["kind"], "time_sliced");
        assert_eq!(json["channels"][2]["rule"], "listen_only");
        assert_eq!(json["blocked"], "soft");
    }
}
