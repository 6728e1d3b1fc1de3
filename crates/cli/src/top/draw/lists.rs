//! Flows, paths, events, rules and clients: the rows of the commands, in columns that fit the window.

use anabranch::control::{Event, EventKind, PathHealth};

use super::canvas::Canvas;
use super::grid::{Column, Grid, Row};
use crate::gateway::clients as gateway_clients;
use crate::status::path_cells;
use crate::top::look::Tone;
use crate::top::view::View;
use crate::{flows as flows_command, hold};

/// Places are those of [`flows_command::HEADINGS`].
const FLOWS: [Column; 9] = [
    Column::text("PROGRAM", 0, 12, 22, 9),
    Column::text("PROTO", 2, 5, 9, 3),
    Column::text("DESTINATION", 3, 18, 45, 10),
    Column::text("HOW", 4, 10, 10, 8),
    Column::text("NETWORK", 5, 7, 12, 8),
    Column::number("OUT", 6, 10, 5),
    Column::number("IN", 7, 10, 7),
    Column::number("RTT", 9, 8, 2),
    Column::text("WHY", 10, 12, 200, 4),
];

pub fn flows(canvas: &mut Canvas<'_>, view: &View) {
    let shown: Vec<_> = view.shown_flows().collect();
    let (all, listed) = (view.flows.flows.len(), shown.len());
    let mut summary = if listed == all { format!("{all} flows") } else { format!("{listed} of {all} flows") };
    if view.flows.left_out > 0 {
        summary += &format!(" and {} more", view.flows.left_out);
    }
    for remark in &view.flows.remarks {
        summary += &format!(" ({remark})");
    }
    let (width, height) = (canvas.area.width, canvas.area.height);
    let grid = Grid { columns: &FLOWS, count: listed, chosen: view.cursor.index };
    grid.draw(&mut canvas.rows(0, height - 2), |index| {
        Some(Row { cells: flows_command::cells(shown.get(index)?), tone: None })
    });
    // The reason of the chosen one in full, since its column is narrow or gone.
    if let Some(flow) = shown.get(view.cursor.index) {
        canvas.put(0, height - 2, width, &format!("> {}", flow.why), Tone::Plain);
    }
    canvas.put(0, height - 1, width, &summary, Tone::Quiet);
}

/// Places are those of [`crate::status::PATH_HEADINGS`]; remote and queue follow.
const PATHS: [Column; 13] = [
    Column::text("NETWORK", 0, 7, 15, 10),
    Column::text("STATUS", 1, 6, 8, 9),
    Column::text("HEALTH", 2, 7, 10, 9),
    Column::text("VIA", 3, 4, 9, 3),
    Column::number("SHARE", 4, 5, 6),
    Column::number("CAN SEND", 5, 11, 5),
    Column::number("RTT", 6, 8, 8),
    Column::number("LOSS", 7, 6, 7),
    Column::number("QUEUE", 12, 7, 4),
    Column::number("OUT", 8, 11, 6),
    Column::number("IN", 9, 11, 8),
    Column::text("REMOTE", 11, 16, 47, 1),
    Column::text("WHY", 10, 12, 200, 2),
];

pub fn paths(canvas: &mut Canvas<'_>, view: &View) {
    let paths: Vec<_> = view.paths().collect();
    let height = canvas.area.height;
    let grid = Grid { columns: &PATHS, count: paths.len(), chosen: view.cursor.index };
    grid.draw(&mut canvas.rows(0, height - 1), |index| {
        let (network, path) = paths.get(index)?;
        let mut cells = path_cells(network, path);
        cells.extend([path.remote.to_string(), crate::table::bytes(path.in_flight)]);
        let tone = match path.health {
            PathHealth::Good => Tone::Good,
            PathHealth::Dead => Tone::Bad,
            PathHealth::Validating | PathHealth::Suspect => Tone::Doubtful,
        };
        Some(Row { cells, tone: Some((2, tone)) })
    });
    if let Some((network, path)) = paths.get(view.cursor.index) {
        let text = format!("> {} to {}: {}", network.name, path.remote, crate::status::why(network, path));
        canvas.line(height - 1, &text, Tone::Plain);
    }
}

const EVENTS: [Column; 3] = [
    Column::text("TIME (UTC)", 0, 19, 19, 8),
    Column::text("KIND", 1, 15, 15, 5),
    Column::text("WHAT", 2, 10, 200, 9),
];

pub fn events(canvas: &mut Canvas<'_>, view: &View) {
    let height = canvas.area.height;
    let grid = Grid { columns: &EVENTS, count: view.events.len(), chosen: view.cursor.index };
    grid.draw(&mut canvas.rows(0, height - 2), |index| view.events.get(index).map(event_row));
    if let Some(event) = view.events.get(view.cursor.index) {
        canvas.paragraph(height - 2, 2, &format!("> {}", event.sentence()), Tone::Plain);
    }
}

/// The newest events, as many as fit.
pub fn latest_events(canvas: &mut Canvas<'_>, view: &View) {
    for (row, event) in (0..canvas.area.height).zip(&view.events) {
        let Row { cells, tone } = event_row(event);
        let at = canvas.put(0, row, 8, cells[0].get(11..).unwrap_or_default(), Tone::Quiet);
        let tone = tone.map_or(Tone::Plain, |(_, tone)| tone);
        canvas.put(at + 1, row, u16::MAX, &cells[2], tone);
    }
}

fn event_row(event: &Event) -> Row {
    let tone = match event.kind {
        EventKind::Warning
        | EventKind::PathDown
        | EventKind::NetworkDown
        | EventKind::SessionDown
        | EventKind::Refused => Tone::Bad,
        EventKind::PathSuspect | EventKind::Stopping | EventKind::ClientGone => Tone::Doubtful,
        _ => Tone::Plain,
    };
    let time = event.time.to_string();
    let time = time.trim_end_matches('Z').to_owned();
    let cells = vec![time, event.kind.as_str().to_owned(), event.sentence()];
    Row { cells, tone: Some((2, tone)) }
}

/// Places are those of [`hold::HEADINGS`].
const RULES: [Column; 6] = [
    Column::number("NO", 0, 2, 4),
    Column::text("NAME", 1, 8, 20, 9),
    Column::text("FROM", 2, 4, 10, 6),
    Column::text("MATCHES", 3, 20, 50, 8),
    Column::text("REMARK", 6, 6, 40, 2),
    Column::text("DECIDES", 4, 16, 200, 8),
];

pub fn rules(canvas: &mut Canvas<'_>, view: &View) {
    if view.rules.is_empty() {
        canvas.line(
            1,
            "  No rules: all flows are treated as usual. `h` in the list of flows adds one.",
            Tone::Plain,
        );
        return;
    }
    let grid = Grid { columns: &RULES, count: view.rules.len(), chosen: view.cursor.index };
    grid.draw(canvas, |index| {
        view.rules.get(index).map(|rule| Row { cells: hold::cells(index + 1, rule), tone: None })
    });
}

/// Places are those of [`gateway_clients::HEADINGS`]; the state and both rates follow.
const CLIENTS: [Column; 9] = [
    Column::text("CLIENT", 0, 10, 20, 10),
    Column::text("STATE", 9, 9, 9, 9),
    Column::number("TO IT", 10, 11, 8),
    Column::number("FROM IT", 11, 11, 8),
    Column::text("FROM", 2, 10, 31, 6),
    Column::number("SENT", 4, 8, 5),
    Column::number("RECEIVED", 5, 8, 5),
    Column::text("SINCE, OR LAST SEEN", 6, 20, 20, 4),
    Column::text("ADDRESSES", 3, 10, 200, 3),
];

pub fn clients(canvas: &mut Canvas<'_>, view: &View) {
    let clients = &view.clients;
    let count = clients.clients.len() + clients.invitations.len();
    if count == 0 {
        canvas.line(1, "  No clients yet: `anabranch gateway invite NAME` lets one in.", Tone::Plain);
        return;
    }
    let grid = Grid { columns: &CLIENTS, count, chosen: view.cursor.index };
    grid.draw(canvas, |index| {
        let Some(client) = clients.clients.get(index) else {
            let invitation = clients.invitations.get(index - clients.clients.len())?;
            let mut cells = vec![String::new(); 12];
            cells[0].clone_from(&invitation.name);
            cells[9] = if invitation.expired { "expired" } else { "invited" }.to_owned();
            cells[6] = format!("{}", invitation.created);
            cells[3] = format!("the invitation holds until {}", invitation.expires);
            return Some(Row { cells, tone: Some((9, Tone::Doubtful)) });
        };
        let mut cells = gateway_clients::cells(client);
        if client.connected {
            cells.swap(1, 6);
        }
        let (state, tone) = if client.connected { ("connected", Tone::Good) } else { ("away", Tone::Quiet) };
        let (to, from) = (client.traffic.sending, client.traffic.receiving);
        cells.extend([state.to_owned(), crate::table::rate(to), crate::table::rate(from)]);
        Some(Row { cells, tone: Some((9, tone)) })
    });
}
