//! Whether one class of traffic arrives better than the rest, as it cannot in the same air.
//!
//! Each class has numbers of its own, so who forges frames of one that the access point does not use contradicts no number. What an access point sends
//! at one time to one receiver goes at the rates of one rate control and through the same fades, though. So the classes are compared within each 25 ms,
//! and the differences summed (the test of Cochran, 1954, and of Mantel and Haenszel, 1959): a fade between the frames of one and of the other tells nothing.

use units::Timestamp;

use super::window::{Counts, PARTS, Window};

/// So many standard deviations are no chance: once in two million windows, were losses independent.
const BEYOND_CHANCE: f64 = 5.0;

/// Whether a class differs from all others taken together, in the window that ends now.
pub(super) fn differ(now: Timestamp, classes: &[Option<Box<Window>>]) -> bool {
    let windows = || classes.iter().flatten();
    let mut all = [(0_u32, 0_u32); PARTS];
    for (place, counts) in windows().flat_map(|window| window.parts(now)) {
        let (first, frames) = &mut all[place];
        (*first, *frames) = (first.saturating_add(counts.first), frames.saturating_add(counts.frames()));
    }
    windows().any(|window| {
        let (mut difference, mut variance) = (0.0, 0.0);
        for (place, counts) in window.parts(now) {
            let (more, spread) = beyond_its_part(counts, all[place]);
            (difference, variance) = (difference + more, variance + spread);
        }
        difference.abs() > BEYOND_CHANCE * f64::sqrt(variance)
    })
}

/// How many first attempts more a class has than its part of the frames has on average, and the variance of that if chance deals them out.
fn beyond_its_part(class: &Counts, (first, frames): (u32, u32)) -> (f64, f64) {
    let [own, first, frames] = [class.frames(), first, frames].map(f64::from);
    if own == 0.0 || own == frames {
        return (0.0, 0.0);
    }
    let expected = own * first / frames;
    let variance = expected * (frames - own) * (frames - first) / (frames * (frames - 1.0));
    (f64::from(class.first) - expected, variance)
}
