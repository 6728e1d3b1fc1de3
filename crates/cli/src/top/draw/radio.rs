//! A radio that several networks share: its slots over the next second, to scale, and how each network is.

use anabranch::control::{RadioNetworkReport, RadioStatus};

use super::canvas::Canvas;
use super::grid::{Column, Grid, Row};
use crate::radio_live::{cells, state};
use crate::top::look::Tone;
use crate::top::view::View;

/// Rows of [`time_line`].
pub const TIME_LINE_ROWS: u16 = 2;
const SECOND_US: u64 = 1_000_000;
/// Slots shorter than this are too short to be drawn.
const LEAST_SLOT_US: u64 = 2_000;

/// Places are those of [`crate::radio_live::HEADINGS`]; the letter, the slot and the weight follow.
const COLUMNS: [Column; 12] = [
    Column::text("", 10, 1, 1, 12),
    Column::text("NETWORK", 0, 8, 20, 12),
    Column::text("STATE", 2, 9, 20, 11),
    Column::number("CH", 3, 3, 8),
    Column::number("SIGNAL", 5, 7, 9),
    Column::number("SHARE", 7, 5, 10),
    Column::number("SLOT", 11, 8, 7),
    Column::number("WEIGHT", 12, 6, 7),
    Column::number("QUEUE", 8, 5, 8),
    Column::text("ADDRESS", 6, 12, 39, 4),
    Column::text("ACCESS POINT", 4, 17, 17, 3),
    Column::text("MISSED", 9, 12, 30, 2),
];

pub fn draw(canvas: &mut Canvas<'_>, view: &View) {
    let Some(radio) = &view.radio else {
        canvas.line(1, "  No radio is shared on this machine; `anabranch radio up` starts one.", Tone::Plain);
        return;
    };
    let height = canvas.area.height;
    let where_now = match (&radio.trouble, radio.channel) {
        (Some(trouble), _) => trouble.clone(),
        (None, Some(channel)) => format!("The card is on channel {channel} now."),
        (None, None) => "The card is between channels now.".to_owned(),
    };
    canvas.line(0, &where_now, if radio.trouble.is_some() { Tone::Bad } else { Tone::Plain });
    time_line(&mut canvas.rows(1, TIME_LINE_ROWS), radio);
    let grid = Grid { columns: &COLUMNS, count: radio.networks.len(), chosen: view.cursor.index };
    grid.draw(&mut canvas.rows(4, height.saturating_sub(5)), |index| {
        let network = radio.networks.get(index)?;
        let mut row = cells(network);
        row.extend([letter(index).to_string(), format!("{:.0} ms", network.slot.as_millis_f64())]);
        row.push(network.weight.to_string());
        Some(Row { cells: row, tone: Some((10, Tone::Series(index))) })
    });
    if let Some(network) = radio.networks.get(view.cursor.index) {
        let why = network.trouble.clone().unwrap_or_else(|| state(network));
        canvas.line(height - 1, &format!("> {}: {why}", network.ssid), Tone::Plain);
    }
}

/// The slots of the next second, each channel by the letters of its networks in turn, and whose letters they are.
pub fn time_line(canvas: &mut Canvas<'_>, radio: &RadioStatus) {
    let label = "RADIO, 1 s ";
    let from = u16::try_from(label.len()).unwrap_or(0);
    canvas.line(0, label, Tone::Quiet);
    let room = canvas.area.width.saturating_sub(from);
    for (column, index) in (from..).zip(slots(&radio.networks, room)) {
        if let Some(index) = index {
            canvas.put(column, 0, 1, &letter(index).to_string(), Tone::Series(index));
        }
    }
    let mut at = from;
    for (index, network) in radio.networks.iter().enumerate() {
        let text = format!("{} {} {:.0} ms  ", letter(index), network.ssid, network.slot.as_millis_f64());
        at = canvas.put(at, 1, u16::MAX, &text, Tone::Series(index));
    }
}

/// Which network each of `columns` columns of a second belongs to: one of the channel whose slot its middle lies in, each in turn.
pub fn slots(networks: &[RadioNetworkReport], columns: u16) -> Vec<Option<usize>> {
    let channels = channels(networks);
    let cycle: u64 = channels.iter().map(|(slot, _)| slot).sum();
    let owner = |column: u16| {
        let middle = (u64::from(column) * 2 + 1) * SECOND_US / (u64::from(columns) * 2);
        let mut left = middle.checked_rem(cycle)?;
        channels.iter().find_map(|(slot, members)| {
            if left < *slot {
                return members.get(usize::from(column) % members.len()).copied();
            }
            left -= slot;
            None
        })
    };
    (0..columns).map(owner).collect()
}

/// The slot of each channel in microseconds, and which networks are there, all of them at once.
fn channels(networks: &[RadioNetworkReport]) -> Vec<(u64, Vec<usize>)> {
    let mut channels: Vec<(Option<u16>, u64, Vec<usize>)> = Vec::new();
    let drawn = networks.iter().enumerate().filter(|(_, network)| network.slot.0 >= LEAST_SLOT_US);
    for (index, network) in drawn {
        let same = channels.iter_mut().find(|(channel, ..)| channel.is_some() && *channel == network.channel);
        match same {
            Some((.., members)) => members.push(index),
            None => channels.push((network.channel, network.slot.0.min(SECOND_US), vec![index])),
        }
    }
    channels.into_iter().map(|(_, slot, members)| (slot, members)).collect()
}

/// The sign of a network in the time-line; a radio has at most eight.
fn letter(index: usize) -> char {
    char::from(b'A' + u8::try_from(index % 26).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use anabranch::control::Micros;

    use super::*;

    fn line(slots_ms: &[u64], columns: u16) -> String {
        let network = |slot: &u64| RadioNetworkReport { slot: Micros(slot * 1_000), ..Default::default() };
        let networks: Vec<RadioNetworkReport> = slots_ms.iter().map(network).collect();
        slots(&networks, columns).iter().map(|slot| slot.map_or('.', letter)).collect()
    }

    #[test]
    fn networks_of_one_channel_share_its_slot() {
        let network = |channel, slot: u64| RadioNetworkReport {
            channel: Some(channel),
            slot: Micros(slot * 1_000),
            ..Default::default()
        };
        let networks = [network(1, 300), network(11, 200), network(1, 300)];
        let line: String = slots(&networks, 20).iter().map(|slot| slot.map_or('.', letter)).collect();
        assert_eq!(line, "ACACACBBBBACACACBBBB");
    }

    #[test]
    fn slots_are_drawn_to_scale() {
        assert_eq!(line(&[100, 200, 200], 20), "AABBBBCCCCAABBBBCCCC");
        assert_eq!(line(&[250, 0, 250], 8), "AACCAACC");
        assert_eq!(line(&[40, 1], 4), "AAAA");
        assert_eq!(line(&[], 4), "....");
        assert_eq!(line(&[u64::MAX / 1_000, 5], 4), "AAAA");
    }
}
