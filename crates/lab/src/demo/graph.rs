//! Graphs over time in a terminal, drawn with eighths of a block.

use std::collections::VecDeque;
use std::fmt::Write as _;

const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The last values of something, newest at the right.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    title: &'static str,
    unit: &'static str,
    width: usize,
    height: usize,
    /// Smallest top of the scale.
    least_top: f64,
    values: VecDeque<Option<f64>>,
}

impl Graph {
    pub(super) fn new(title: &'static str, unit: &'static str, size: (usize, usize), least_top: f64) -> Self {
        Self { title, unit, width: size.0, height: size.1, least_top, values: VecDeque::new() }
    }

    /// The next value; `None` leaves a gap.
    pub(super) fn push(&mut self, value: Option<f64>) {
        if self.values.len() == self.width {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    /// The graph's lines: a title with the newest value, then the columns.
    pub(super) fn lines(&self) -> Vec<String> {
        let top = self.values.iter().flatten().fold(self.least_top, |top, value| top.max(*value));
        let newest = self.values.back().copied().flatten();
        let newest = newest.map_or("-".to_owned(), |value| format!("{value:.1}"));
        let mut lines = vec![format!("{}: {newest} {}", self.title, self.unit)];
        for row in (0..self.height).rev() {
            let mut line = match row {
                _ if row + 1 == self.height => format!("{top:>7.0} "),
                0 => format!("{:>7} ", 0),
                _ => " ".repeat(8),
            };
            for value in &self.values {
                let filled = value.map_or(0.0, |value| value / top * self.height as f64) - row as f64;
                let eighths = (filled.clamp(0.0, 1.0) * 8.0).round() as usize;
                // A gap is not a zero.
                let mark = if value.is_none() && row == 0 { '·' } else { EIGHTHS[eighths.min(8)] };
                let _ = write!(line, "{mark}");
            }
            lines.push(line);
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_rise_with_values_and_old_ones_leave() {
        let mut graph = Graph::new("rate", "Mbit/s", (4, 2), 10.0);
        for value in [Some(9.0), Some(0.0), Some(5.0), Some(10.0), None] {
            graph.push(value);
        }
        let lines = graph.lines();
        assert_eq!(lines, ["rate: - Mbit/s", "     10   █ ", "      0  ██·"]);
    }
}
