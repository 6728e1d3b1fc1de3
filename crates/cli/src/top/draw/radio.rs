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

/// The slots of the next second, each network by its letter, and whose letters they are.
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

/// Which network each of `columns` columns of a second belongs to: the one whose slot its middle lies in.
pub fn slots(networks: &[RadioNetworkReport], columns: u16) -> Vec<Option<usize>> {
    let drawn = || networks.iter().enumerate().filter(|(_, network)| network.slot.0 >= LEAST_SLOT_US);
    let cycle: u64 = drawn().map(|(_, network)| network.slot.0.min(SECOND_US)).sum();
    let owner = |column: u16| {
        let middle = (u64::from(column) * 2 + 1) * SECOND_US / (u64::from(columns) * 2);
        let mut left = middle.checked_rem(cycle)?;
        drawn().find_map(|(index, network)| {
            let slot = network.slot.0.min(SECOND_US);
            if left < slot {
                return Some(index);
            }
            left -= slot;
            None
        })
    };
    (0..columns).map(owner).collect()
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
    fn slots_are_drawn_to_scale() {
        assert_eq!(line(&[100, 200, 200], 20), "AABBBBCCCCAABBBBCCCC");
        assert_eq!(line(&[250, 0, 250], 8), "AACCAACC");
        assert_eq!(line(&[40, 1], 4), "AAAA");
        assert_eq!(line(&[], 4), "....");
        assert_eq!(line(&[u64::MAX / 1_000, 5], 4), "AAAA");
    }
}
