//! The networks of a device, the slots of a radio if it has one, and what happened last.

use anabranch::control::NetworkReport;

use super::canvas::Canvas;
use super::grid::{Column, Grid, Row};
use super::{lists, radio};
use crate::table::{bytes, millis, percent, rate};
use crate::top::figures::Figures;
use crate::top::history::{History, KEPT};
use crate::top::look::Tone;
use crate::top::view::View;

/// Places in what [`cells`] makes.
const COLUMNS: [Column; 12] = [
    Column::text("NETWORK", 0, 7, 15, 12),
    Column::text("STATE", 1, 7, 10, 11),
    Column::number("IN", 2, 11, 10),
    Column::number("OUT", 3, 11, 9),
    Column::number("RTT", 4, 8, 8),
    Column::number("LOSS", 5, 6, 7),
    Column::number("QUEUE", 6, 7, 6),
    Column::number("SIGNAL", 7, 7, 6),
    Column::number("SHARE", 8, 5, 6),
    Column::text("P", 9, 3, 5, 5),
    Column::text("LAST 30 S", 10, KEPT as u16, KEPT as u16, 1),
    Column::text("WHY", 11, 18, 200, 4),
];

pub fn draw(canvas: &mut Canvas<'_>, view: &View) {
    let networks = view.networks();
    let height = canvas.area.height;
    let slots = if view.radio.is_some() { radio::TIME_LINE_ROWS } else { 0 };
    let wanted = u16::try_from(networks.len()).unwrap_or(height).saturating_add(1);
    // The chosen one's reason takes a row; events get what is left.
    let most = height.saturating_sub(slots + 1).max(3);
    let list = wanted.min(most);
    let grid = Grid { columns: &COLUMNS, count: networks.len(), chosen: view.cursor.index };
    grid.draw(&mut canvas.rows(0, list), |index| {
        let network = networks.get(index)?;
        let figures = Figures::of(network);
        let tone = Some((1, figures.tone));
        Some(Row { cells: cells(network, &figures, &view.past, view.look.unicode), tone })
    });
    let mut at = list;
    if let Some(network) = networks.get(view.cursor.index) {
        let mut settings = vec![format!("priority {}", network.priority.0)];
        settings.extend(marks(network).into_iter().map(str::to_owned));
        let text = format!("> {} ({}): {}", network.name, settings.join(", "), Figures::of(network).why);
        at += canvas.paragraph(at, 2, &text, Tone::Strong);
    }
    if let Some(status) = &view.radio {
        radio::time_line(&mut canvas.rows(at, slots), status);
        at += slots;
    }
    if at + 1 < height {
        canvas.put(0, at, 20, "EVENTS", Tone::Quiet);
        lists::latest_events(&mut canvas.rows(at + 1, height - at - 1), view);
    }
}

fn cells(network: &NetworkReport, figures: &Figures<'_>, past: &History, unicode: bool) -> Vec<String> {
    let dash = || "-".to_owned();
    vec![
        network.name.clone(),
        figures.state.clone(),
        rate(figures.receiving),
        rate(figures.sending),
        millis(figures.rtt),
        figures.loss.map_or_else(dash, |loss| percent(loss, 1)),
        figures.queue.map_or_else(dash, bytes),
        figures.signal_dbm.map_or_else(dash, |signal| format!("{signal} dBm")),
        figures.share.map_or_else(dash, |share| percent(share, 0)),
        format!("{}{}", network.priority.0, letters(network)),
        trend(past, &network.name, unicode),
        figures.why.to_owned(),
    ]
}

/// What was set for it, in words.
fn marks(network: &NetworkReport) -> Vec<&'static str> {
    let settings = [(network.backup, "backup"), (network.metered, "metered"), (network.off, "off")];
    settings.into_iter().filter(|(on, _)| *on).map(|(_, word)| word).collect()
}

/// The same beside its priority: their first letters, those of the keys.
fn letters(network: &NetworkReport) -> String {
    marks(network).iter().filter_map(|word| word.chars().next()).collect()
}

/// What went over it of late, as a curve of letters; all networks have one scale.
fn trend(past: &History, name: &str, unicode: bool) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const DIGITS: [char; 8] = ['.', '1', '2', '3', '4', '5', '6', '7'];
    let most = past.most().0.max(1);
    let step = |rate: u64| (u128::from(rate) * 7).div_ceil(u128::from(most)).min(7) as usize;
    let signs = if unicode { BARS } else { DIGITS };
    let curve: String = past.of(name).map(|rate| signs[step(rate.0)]).collect();
    format!("{curve:>KEPT$}")
}
