//! The one way on to the screen: what is written here is cleaned and cut.

use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;

use crate::top::look::{Look, Tone};
use crate::top::text::{plain, width};

/// A part of the screen.
pub struct Canvas<'a> {
    buffer: &'a mut Buffer,
    pub area: Rect,
    pub look: Look,
}

impl<'a> Canvas<'a> {
    pub fn new(buffer: &'a mut Buffer, look: Look) -> Self {
        Self { area: buffer.area, buffer, look }
    }

    /// The same screen, less these rows.
    pub fn part(&mut self, area: Rect) -> Canvas<'_> {
        Canvas { area: area.intersection(self.area), look: self.look, buffer: self.buffer }
    }

    /// Some rows of it, counted from its top.
    pub fn rows(&mut self, from: u16, count: u16) -> Canvas<'_> {
        let from = from.min(self.area.height);
        let height = count.min(self.area.height - from);
        self.part(Rect { y: self.area.y + from, height, ..self.area })
    }

    /// Writes a text at a column of a row, in at most `room` columns; returns the column after it.
    pub fn put(&mut self, column: u16, row: u16, room: u16, text: &str, tone: Tone) -> u16 {
        if row >= self.area.height || column >= self.area.width {
            return column;
        }
        let room = room.min(self.area.width - column);
        let text = plain(text, self.look.unicode);
        let style = self.look.style(tone);
        let (x, y) = (self.area.x + column, self.area.y + row);
        let long = width(&text) > usize::from(room);
        let keep = if long && room > 1 { room - 1 } else { room };
        let (mut end, _) = self.buffer.set_stringn(x, y, &text, usize::from(keep), style);
        if long && room > 1 {
            // Where something is missing the reader can see it.
            (end, _) = self.buffer.set_stringn(end, y, if self.look.unicode { "…" } else { "~" }, 1, style);
        }
        end - self.area.x
    }

    /// Writes a text so that it ends where the room does.
    pub fn put_right(&mut self, column: u16, row: u16, room: u16, text: &str, tone: Tone) {
        let taken = u16::try_from(width(&plain(text, self.look.unicode))).unwrap_or(u16::MAX);
        let indent = room.saturating_sub(taken);
        self.put(column + indent, row, room - indent, text, tone);
    }

    /// A text from the first column on.
    pub fn line(&mut self, row: u16, text: &str, tone: Tone) -> u16 {
        self.put(0, row, self.area.width, text, tone)
    }

    /// A text in as many rows as it takes, at most `most`; returns how many.
    pub fn paragraph(&mut self, row: u16, most: u16, text: &str, tone: Tone) -> u16 {
        let lines = wrapped(&plain(text, self.look.unicode), usize::from(self.area.width));
        let shown = lines.len().min(usize::from(most));
        for (at, line) in (row..).zip(lines.iter().take(shown)) {
            self.line(at, line, tone);
        }
        u16::try_from(shown).unwrap_or(most)
    }

    /// A whole row in a tone, so that it stands out.
    pub fn tint(&mut self, row: u16, tone: Tone) {
        if row < self.area.height {
            let area = Rect { y: self.area.y + row, height: 1, ..self.area };
            self.buffer.set_style(area, self.look.style(tone));
        }
    }

    /// Empties it.
    pub fn clear(&mut self) {
        for position in self.area.positions() {
            if let Some(cell) = self.buffer.cell_mut(position) {
                cell.reset();
            }
        }
    }
}

/// Words in lines of at most `room` columns; a word that is longer stands alone and is cut when it is written.
pub fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if width(line) + 1 + width(word) <= room => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
