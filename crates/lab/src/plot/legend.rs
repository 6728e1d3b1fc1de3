//! Where the entries of a legend go: in rows, as many as they need.

use trace::canvas::Area;

/// Height of a row.
const ROW: f64 = 16.0;
/// Above and below the rows.
const MARGIN: f64 = 14.0;
/// From the left edge to the first entry.
const LEFT: f64 = 60.0;
/// What stands before a label, and between it and the next entry.
const AROUND: f64 = 34.0;
/// Width of a letter in the size of the labels.
const LETTER: f64 = 6.4;
/// From an entry to its label.
const TO_LABEL: f64 = 18.0;

/// The size of labels.
pub(super) const SIZE: f64 = 11.0;

/// A legend on top of an area.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Legend {
    /// Left end and middle of each entry.
    pub(super) places: Vec<(f64, f64)>,
    /// How much of the area it takes.
    height: f64,
}

impl Legend {
    /// For these labels.
    pub(super) fn new<'a>(area: Area, labels: impl Iterator<Item = &'a str>) -> Self {
        let left = area.left + LEFT;
        let (mut x, mut row) = (left, 0.0);
        let mut place = |label: &str| {
            let width = AROUND + LETTER * label.chars().count() as f64;
            if x > left && x + width > area.right() {
                (x, row) = (left, row + 1.0);
            }
            let place = (x, area.top + MARGIN - 4.0 + row * ROW);
            x += width;
            place
        };
        let places = labels.map(&mut place).collect();
        Self { places, height: MARGIN + (row + 1.0) * ROW }
    }

    /// What is left of the area for bars or lines, beside and above the numbers of its axes.
    pub(super) fn below(&self, area: Area) -> Area {
        Area {
            left: area.left + 36.0,
            top: area.top + self.height,
            width: area.width - 36.0,
            height: area.height - 30.0 - self.height,
        }
    }
}

/// Where the text of an entry at `place` begins.
pub(super) fn label_at(place: (f64, f64)) -> (f64, f64) {
    (place.0 + TO_LABEL, place.1 + 4.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_in_a_row_goes_into_the_next_one() {
        let area = Area { left: 20.0, top: 46.0, width: 500.0, height: 100.0 };
        let few = Legend::new(area, ["ours", "theirs"].into_iter());
        assert_eq!(few.height, 30.0);
        assert_eq!(few.places, [(80.0, 56.0), (80.0 + 34.0 + 25.6, 56.0)]);
        let labels = ["a label of some length"; 5];
        let many = Legend::new(area, labels.into_iter());
        assert_eq!(many.height, 30.0 + 2.0 * 16.0, "three rows");
        let rows: Vec<f64> = many.places.iter().map(|(_, y)| *y).collect();
        assert_eq!(rows, [56.0, 56.0, 72.0, 72.0, 88.0], "{many:?}");
        assert!(many.places.iter().all(|(x, _)| x + 34.0 + 22.0 * 6.4 <= area.right()));
        // One that is wider than the plot has a row of its own, and nothing is lost.
        let wide = "x".repeat(100);
        assert_eq!(Legend::new(area, [wide.as_str(), "b"].into_iter()).places.len(), 2);
    }
}
