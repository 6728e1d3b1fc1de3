//! The few SVG elements that plots need.

use std::fmt::Write as _;

/// Colours that stay apart for most eyes (after Okabe and Ito).
pub const COLOURS: [&str; 8] =
    ["#a6cee3", "#c9b8e8", "#56b4e9", "#8e6fc1", "#d55e00", "#009e73", "#cc79a7", "#666666"];

/// A rectangle of the picture.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Area {
    /// Its left edge.
    pub left: f64,
    /// Its upper edge; downwards is more.
    pub top: f64,
    /// From left to right.
    pub width: f64,
    /// From top to bottom.
    pub height: f64,
}

impl Area {
    /// Its lower edge.
    pub fn bottom(&self) -> f64 {
        self.top + self.height
    }

    /// Its right edge.
    pub fn right(&self) -> f64 {
        self.left + self.width
    }
}

/// An SVG picture under way.
#[derive(Debug)]
pub struct Canvas {
    body: String,
}

impl Canvas {
    /// An empty white picture.
    pub fn new(width: f64, height: f64) -> Self {
        let body = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-family=\"sans-serif\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"#ffffff\"/>\n"
        );
        Self { body }
    }

    /// The SVG file.
    pub fn finish(mut self) -> String {
        self.body.push_str("</svg>\n");
        self.body
    }

    /// Text that begins at `x`.
    pub fn text(&mut self, x: f64, y: f64, size: f64, text: &str) {
        self.any_text(x, y, size, "start", "#222222", text);
    }

    /// The same in grey.
    pub fn faint_text(&mut self, x: f64, y: f64, size: f64, text: &str) {
        self.any_text(x, y, size, "start", "#666666", text);
    }

    /// Text with its middle at `x`.
    pub fn centred_text(&mut self, x: f64, y: f64, size: f64, text: &str) {
        self.any_text(x, y, size, "middle", "#222222", text);
    }

    /// Grey text that ends at `x`.
    pub fn right_text(&mut self, x: f64, y: f64, size: f64, text: &str) {
        self.any_text(x, y, size, "end", "#666666", text);
    }

    /// A filled rectangle.
    pub fn rectangle(&mut self, area: Area, colour: &str) {
        let Area { left, top, width, height } = area;
        let _ = writeln!(
            self.body,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{colour}\"/>"
        );
    }

    /// A thin line.
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), colour: &str) {
        let _ = writeln!(
            self.body,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// A line through points.
    pub fn polyline(&mut self, points: &[(f64, f64)], colour: &str, width: f64) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(
            self.body,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            list.trim_end()
        );
    }

    /// A filled shape with these corners.
    pub fn polygon(&mut self, points: &[(f64, f64)], colour: &str) {
        let mut list = String::new();
        for (x, y) in points {
            let _ = write!(list, "{x:.1},{y:.1} ");
        }
        let _ = writeln!(self.body, "<polygon points=\"{}\" fill=\"{colour}\"/>", list.trim_end());
    }

    fn any_text(&mut self, x: f64, y: f64, size: f64, anchor: &str, colour: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}</text>",
            escaped(text)
        );
    }
}

/// A value axis from zero: its top and the distance of its marks (1, 2 or 5 times a power of ten).
pub fn axis(largest: f64) -> (f64, f64) {
    let largest = if largest.is_finite() && largest > 0.0 { largest } else { 1.0 };
    let rough = largest / 5.0;
    let power = 10_f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power).find(|step| *step >= rough);
    let step = step.unwrap_or(10.0 * power);
    ((largest / step).ceil() * step, step)
}

/// Draws marks and lines of a value axis over `area`; `x` is where its labels end.
pub fn draw_axis(canvas: &mut Canvas, area: Area, largest: f64) -> f64 {
    let (top, step) = axis(largest);
    let marks = (top / step).round() as u32;
    for mark in 0..=marks {
        let value = f64::from(mark) * step;
        let y = area.bottom() - value / top * area.height;
        canvas.line((area.left, y), (area.right(), y), "#dddddd");
        canvas.right_text(area.left - 4.0, y + 4.0, 10.0, &short_number(value));
    }
    top
}

/// A number with no more digits than it needs.
pub fn short_number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(text: &str) -> String {
    // XML knows no control characters.
    let text: String = text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_above_the_largest_value() {
        for (largest, expected) in
            [(37.0, (40.0, 10.0)), (0.93, (1.0, 0.2)), (100.0, (100.0, 20.0)), (0.0, (1.0, 0.2))]
        {
            let (top, step) = axis(largest);
            assert!(
                (top - expected.0).abs() < 1e-9 && (step - expected.1).abs() < 1e-9,
                "{largest}: {top}, {step}"
            );
        }
    }
}
