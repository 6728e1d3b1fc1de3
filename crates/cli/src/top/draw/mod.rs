//! The screen, drawn from the view and nothing else.

mod canvas;
mod front;
mod grid;
mod lists;
mod networks;
mod radio;

use ratatui_core::terminal::Frame;

use super::look::Tone;
use super::view::{Kind, Line, Tab, View};
use crate::status;
use crate::table::{bytes, rate};
use canvas::Canvas;

/// Rows around a list: three of head, the lists' names, the list's headings, the remark, the keys.
pub const FRAME_ROWS: usize = 7;
/// A window below this is only told so.
const LEAST: (u16, u16) = (50, 12);

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, view: &View) {
    let mut canvas = Canvas::new(frame.buffer_mut(), view.look);
    let (width, height) = (canvas.area.width, canvas.area.height);
    if width < LEAST.0 || height < LEAST.1 {
        let text = format!(
            "The window is too small: {width}x{height}, and {}x{} are needed. q quits.",
            LEAST.0, LEAST.1
        );
        canvas.paragraph(0, height, &text, Tone::Plain);
        return;
    }
    let head = head(&mut canvas.rows(0, 3), view);
    tabs(&mut canvas.rows(head, 1), view);
    let below = head + 1;
    let mut body = canvas.rows(below, height - below - 2);
    match view.tab {
        _ if view.kind.is_none() => waiting(&mut body, view),
        Tab::Networks => networks::draw(&mut body, view),
        Tab::Radio => radio::draw(&mut body, view),
        Tab::Flows => lists::flows(&mut body, view),
        Tab::Paths => lists::paths(&mut body, view),
        Tab::Events => lists::events(&mut body, view),
        Tab::Rules => lists::rules(&mut body, view),
        Tab::Clients => lists::clients(&mut body, view),
    }
    front::remark(&mut canvas.rows(height - 2, 1), view);
    front::keys(&mut canvas.rows(height - 1, 1), view);
    front::dialog(&mut canvas, view);
}

/// Who it is, how it is, what bonding is worth; returns the rows that it took.
fn head(canvas: &mut Canvas<'_>, view: &View) -> u16 {
    let clock = view.now.to_string();
    let clock = clock.get(11..).unwrap_or_default();
    let width = canvas.area.width;
    let room = width - 10;
    match &view.line {
        Line::Gone { since, why } => {
            let since = since.to_string();
            let since = since.get(11..).unwrap_or_default();
            canvas.put(0, 0, room, &format!("NO ANSWER since {since}, trying again: {why}"), Tone::Bad);
            canvas.tint(0, Tone::Chosen);
        }
        _ => {
            let (text, tone) = title(view);
            canvas.put(0, 0, room, &text, tone);
        }
    }
    canvas.put_right(0, 0, width, clock, Tone::Quiet);
    let Some(status) = &view.status else { return 1 };
    let traffic = &status.traffic;
    let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    let mut second = format!(
        "{} {}  in {} ({})  out {} ({})",
        status.interface,
        addresses.join(" "),
        rate(traffic.receiving),
        bytes(traffic.received),
        rate(traffic.sending),
        bytes(traffic.sent)
    );
    if let Some(far) = &status.far_end {
        second += &format!("  gateway {}", far.name);
    }
    if let Some(connected) = status.connected_clients {
        second += &format!("  {connected} clients connected");
    }
    canvas.line(1, &second, Tone::Plain);
    let Some(gain) = &status.gain else { return 2 };
    canvas.line(2, &status::worth(gain), Tone::Good);
    3
}

fn title(view: &View) -> (String, Tone) {
    match (&view.status, view.kind, &view.radio) {
        (Some(status), _, _) => {
            let up = status.state == anabranch::control::SessionState::Up;
            (status::sentence(status), if up { Tone::Strong } else { Tone::Doubtful })
        }
        (None, Some(Kind::Radio), Some(radio)) => match &radio.trouble {
            Some(trouble) => (format!("shared radio: {trouble}"), Tone::Bad),
            None => ("shared radio".to_owned(), Tone::Strong),
        },
        _ => ("anabranch top: asking the daemon".to_owned(), Tone::Strong),
    }
}

fn tabs(canvas: &mut Canvas<'_>, view: &View) {
    let mut at = 0;
    for (number, tab) in (1..).zip(view.tabs()) {
        let name = tab.name();
        let (text, tone) = match *tab == view.tab {
            true => (format!("[{number} {name}]"), Tone::Strong),
            false => (format!(" {number} {name} "), Tone::Quiet),
        };
        at = canvas.put(at, 0, 20, &text, tone);
    }
}

fn waiting(canvas: &mut Canvas<'_>, view: &View) {
    if let Line::Gone { why, .. } = &view.line {
        let rows = canvas.area.height;
        canvas.paragraph(1, rows, why, Tone::Plain);
    }
}
