//! The last two rows, and what stands in front of all: questions, choices, the list of keys.

use ratatui_core::layout::Rect;

use super::canvas::{Canvas, wrapped};
use crate::top::dialog::Dialog;
use crate::top::keys::KEYS;
use crate::top::look::Tone;
use crate::top::view::{Tab, View};

/// How the last order went, or what is being typed.
pub fn remark(canvas: &mut Canvas<'_>, view: &View) {
    match &view.dialog {
        Some(Dialog::Filter) => {
            canvas.line(0, &format!("show flows with: {}_", view.filter), Tone::Strong);
        }
        _ if view.remark.is_empty() && view.tab == Tab::Flows && !view.filter.is_empty() => {
            canvas.line(0, &format!("only flows with: {} (Esc: all)", view.filter), Tone::Plain);
        }
        _ => {
            canvas.line(0, &view.remark, Tone::Strong);
        }
    }
}

/// The keys of the open list.
pub fn keys(canvas: &mut Canvas<'_>, view: &View) {
    let own = match view.tab {
        Tab::Networks | Tab::Paths => "-+ priority  b backup  m metered  o off",
        Tab::Flows => "h hold  / filter",
        Tab::Radio => "-+ share of the radio",
        Tab::Rules => "d remove",
        Tab::Clients => "r revoke",
        Tab::Events => "",
    };
    let all = "Tab list  ? keys  q quit";
    let width = canvas.area.width;
    let room = width.saturating_sub(all.len() as u16 + 2);
    canvas.put(0, 0, room, own, Tone::Quiet);
    canvas.put_right(0, 0, width, all, Tone::Quiet);
}

pub fn dialog(canvas: &mut Canvas<'_>, view: &View) {
    match &view.dialog {
        None | Some(Dialog::Filter) => {}
        Some(Dialog::Keys) => {
            let most = KEYS.iter().map(|(key, _)| key.len()).max().unwrap_or(0);
            let lines = KEYS.iter().map(|(key, what)| format!("{key:<most$}  {what}"));
            window(canvas, "Keys (any key closes this)", &lines.collect::<Vec<_>>(), None);
        }
        Some(Dialog::Confirm { question, .. }) => {
            let mut lines = wrapped(question, usize::from(canvas.area.width.saturating_sub(8)).min(60));
            lines.extend([String::new(), "y: yes, do it    n: no".to_owned()]);
            window(canvas, "Really?", &lines, None);
        }
        Some(Dialog::Hold(holding)) => {
            let labels: Vec<String> = holding.ways.iter().map(|way| way.label.clone()).collect();
            let title = format!("New flows to {} are to go: (Enter, Esc)", holding.destination);
            window(canvas, &title, &labels, Some(holding.chosen));
        }
    }
}

/// A frame in the middle with a title and lines; of more lines than fit, those around the chosen one.
fn window(canvas: &mut Canvas<'_>, title: &str, lines: &[String], chosen: Option<usize>) {
    let area = canvas.area;
    let widest = lines.iter().map(String::as_str).chain([title]).map(crate::top::text::width).max();
    let width = u16::try_from(widest.unwrap_or(0) + 6).unwrap_or(area.width).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(area.height).min(area.height);
    let (x, y) = (area.x + (area.width - width) / 2, area.y + (area.height - height) / 2);
    let mut window = canvas.part(Rect { x, y, width, height });
    window.clear();
    let room = usize::from(height.saturating_sub(2)).max(1);
    let edge = format!("+{}+", "-".repeat(usize::from(width.saturating_sub(2))));
    window.line(0, &edge, Tone::Quiet);
    window.put(2, 0, width.saturating_sub(4), &format!(" {title} "), Tone::Strong);
    window.line(height - 1, &edge, Tone::Quiet);
    let top = chosen.unwrap_or(0) / room * room;
    for (row, index) in (1..height - 1).zip(top..) {
        let text = lines.get(index).map_or("", String::as_str);
        let is_chosen = chosen == Some(index);
        if is_chosen {
            window.tint(row, Tone::Chosen);
        }
        window.put(0, row, 1, "|", Tone::Quiet);
        window.put(1, row, 1, if is_chosen { ">" } else { " " }, Tone::Strong);
        window.put(3, row, width.saturating_sub(5), text, if is_chosen { Tone::Chosen } else { Tone::Plain });
        window.put(width - 1, row, 1, "|", Tone::Quiet);
    }
}
