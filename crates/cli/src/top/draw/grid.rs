//! Columns that fit the window: the least important ones are left out, the last one takes what remains.

use super::canvas::Canvas;
use crate::top::look::Tone;
use crate::top::text::width;

/// Between columns.
const GAP: u16 = 1;
/// Marks the chosen row, so that it can be told without colours.
const MARK: u16 = 2;

/// One column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    pub heading: &'static str,
    /// Place of its cell in a row.
    pub cell: usize,
    /// Numbers end below each other.
    pub right: bool,
    /// It is at least this wide, so that columns do not move with each figure.
    pub least: u16,
    /// And at most so.
    pub most: u16,
    /// Columns with the lowest number go first where the window is too narrow.
    pub worth: u8,
}

impl Column {
    pub const fn text(heading: &'static str, cell: usize, least: u16, most: u16, worth: u8) -> Self {
        Self { heading, cell, right: false, least, most, worth }
    }

    pub const fn number(heading: &'static str, cell: usize, least: u16, worth: u8) -> Self {
        Self { heading, cell, right: true, least, most: 20, worth }
    }
}

/// One row: its cells, and the tone of one of them.
pub struct Row {
    pub cells: Vec<String>,
    /// Tone of the cell with that place.
    pub tone: Option<(usize, Tone)>,
}

/// A list of rows below their headings, around the one that is chosen.
pub struct Grid<'a> {
    pub columns: &'a [Column],
    /// How many rows there are in all.
    pub count: usize,
    pub chosen: usize,
}

impl Grid<'_> {
    /// Draws the rows that fit; only these are asked for.
    pub fn draw(&self, canvas: &mut Canvas<'_>, row: impl Fn(usize) -> Option<Row>) {
        let height = usize::from(canvas.area.height.saturating_sub(1));
        if height == 0 {
            return;
        }
        // Whole pages: what is shown moves seldom, and a slow line has little to carry.
        let top = self.chosen / height * height;
        let rows: Vec<Row> = (top..self.count).take(height).map_while(row).collect();
        let columns = fit(self.columns, &rows, canvas.area.width);
        let mut at = MARK;
        for (column, room) in &columns {
            put(canvas, at, 0, *room, column, column.heading, Tone::Quiet);
            at += room + GAP;
        }
        for (line, (index, row)) in (1..).zip((top..).zip(&rows)) {
            let chosen = index == self.chosen;
            let mut at = MARK;
            for (column, room) in &columns {
                let text = row.cells.get(column.cell).map_or("", String::as_str);
                let tone = row.tone.filter(|(cell, _)| *cell == column.cell).map(|(_, tone)| tone);
                put(canvas, at, line, *room, column, text, tone.unwrap_or(Tone::Plain));
                at += room + GAP;
            }
            if chosen {
                canvas.put(0, line, 1, ">", Tone::Strong);
                canvas.tint(line, Tone::Chosen);
            }
        }
    }
}

fn put(canvas: &mut Canvas<'_>, at: u16, line: u16, room: u16, column: &Column, text: &str, tone: Tone) {
    if column.right {
        canvas.put_right(at, line, room, text, tone);
    } else {
        canvas.put(at, line, room, text, tone);
    }
}

/// The columns that fit, each with its width.
pub fn fit(columns: &[Column], rows: &[Row], room: u16) -> Vec<(Column, u16)> {
    let natural = |column: &Column| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column.cell)).map(|cell| width(cell));
        let widest = cells.chain([width(column.heading)]).max().unwrap_or(0);
        u16::try_from(widest).unwrap_or(u16::MAX).clamp(column.least, column.most.max(column.least))
    };
    let mut fitted: Vec<(Column, u16)> = columns.iter().map(|column| (*column, natural(column))).collect();
    while let [before @ .., (last, _)] = &fitted[..] {
        let taken: u16 = before.iter().map(|(_, width)| width + GAP).sum::<u16>() + MARK;
        let least = last.least;
        if taken + least <= room || before.is_empty() {
            // The last column is a sentence.
            if let Some((_, width)) = fitted.last_mut() {
                *width = room.saturating_sub(taken);
            }
            break;
        }
        let worth = fitted.iter().map(|(column, _)| column.worth).min();
        let cheapest = fitted.iter().rposition(|(column, _)| Some(column.worth) == worth);
        fitted.remove(cheapest.unwrap_or(0));
    }
    fitted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_window_loses_what_is_worth_least() {
        let columns = [
            Column::text("NAME", 0, 4, 10, 9),
            Column::number("RATE", 1, 8, 5),
            Column::number("MTU", 2, 4, 1),
            Column::text("WHY", 3, 10, 200, 8),
        ];
        let rows = [Row {
            cells: ["a very long name", "1", "1400", "for a reason"].map(str::to_owned).to_vec(),
            tone: None,
        }];
        let fitted = |room| {
            let fitted = fit(&columns, &rows, room);
            fitted.iter().map(|(column, width)| (column.heading, *width)).collect::<Vec<_>>()
        };
        assert_eq!(fitted(60), [("NAME", 10), ("RATE", 8), ("MTU", 4), ("WHY", 33)]);
        assert_eq!(fitted(36), [("NAME", 10), ("RATE", 8), ("WHY", 14)]);
        assert_eq!(fitted(24), [("NAME", 10), ("WHY", 11)]);
        assert_eq!(fitted(20), [("NAME", 18)]);
        assert_eq!(fitted(0), [("NAME", 0)]);
    }
}
