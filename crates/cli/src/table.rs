//! Tables for people.

use anabranch::control::{Fraction, Micros};
use units::{BitRate, Bytes};

/// Columns as wide as their widest cell, two spaces apart.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(headings: &[&str]) -> Self {
        Self { rows: vec![headings.iter().map(|heading| (*heading).to_owned()).collect()] }
    }

    pub fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    pub fn render(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell: &String| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let lines = self.rows.iter().map(|row| {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// `12.3 Mbit/s`.
pub fn rate(rate: BitRate) -> String {
    match rate.0 {
        0 => "0".to_owned(),
        bits @ 1..1_000_000 => format!("{:.0} kbit/s", bits as f64 / 1e3),
        bits => format!("{:.1} Mbit/s", bits as f64 / 1e6),
    }
}

/// `1.5 MB`.
pub fn bytes(bytes: Bytes) -> String {
    const UNITS: [(f64, &str); 4] = [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")];
    let number = bytes.0 as f64;
    UNITS
        .iter()
        .find(|(size, _)| number >= *size)
        .map_or_else(|| format!("{} B", bytes.0), |(size, unit)| format!("{:.1} {unit}", number / size))
}

/// `20.4 ms`, or a dash.
pub fn millis(time: Option<Micros>) -> String {
    time.map_or_else(|| "-".to_owned(), |time| format!("{:.1} ms", time.as_millis_f64()))
}

/// `12 %`, with this many digits after the point.
pub fn percent(part: Fraction, digits: usize) -> String {
    format!("{:.digits$} %", part.0 * 100.0)
}

/// `yes` or a dash.
pub fn yes(value: bool) -> String {
    (if value { "yes" } else { "-" }).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(&["NAME", "RATE"]);
        table.row(vec!["größe".to_owned(), "1".to_owned()]);
        table.row(vec!["x".to_owned(), "22".to_owned()]);
        assert_eq!(table.render(), "NAME   RATE\ngröße  1\nx      22");
    }

    #[test]
    fn figures_have_units() {
        assert_eq!(rate(BitRate(12_340_000)), "12.3 Mbit/s");
        assert_eq!(rate(BitRate(512_000)), "512 kbit/s");
        assert_eq!((bytes(Bytes(999)), bytes(Bytes(1_500_000))), ("999 B".to_owned(), "1.5 MB".to_owned()));
        assert_eq!(millis(Some(Micros(20_440))), "20.4 ms");
    }
}
