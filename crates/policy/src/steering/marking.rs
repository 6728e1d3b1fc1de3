//! How many packets may be marked without hurting what a path can carry (`[MULTIAP] section 5.2`).
//!
//! A flow's rate is `sqrt(2 / p) * MSS / RTT` (eq. 3). Marks raise `p`; if they empty the queue of the access point, `RTT` falls by as much as
//! keeps the rate the same. So the access point's queue is what may be spent on marks: `X = T1 * BUF / 2`, half of a full one.

use std::time::Duration;

/// Packets that an access point's queue holds at least (`[MULTIAP] section 5.2`: 2.5 Mbit).
pub const QUEUE: u32 = 200;
/// What congestion control keeps in it on average.
const HALF_QUEUE: u32 = QUEUE / 2;
/// More marks bring a window down to about six packets, where time-outs begin (`[MULTIAP] section 5.2`).
pub const MOST_MARKS: MarkShare = MarkShare(0.05);

/// A part of a path's packets that is to be marked, 0 to 0.05.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug, Default)]
pub struct MarkShare(f64);

impl MarkShare {
    /// No marks.
    pub const NONE: Self = Self(0.0);

    /// This part; more than [`MOST_MARKS`] is that, less than nothing or no number nothing.
    pub fn new(part: f64) -> Self {
        if part.is_nan() { Self::NONE } else { Self(part.clamp(0.0, MOST_MARKS.0)) }
    }

    /// The lesser of the two.
    pub fn at_most(self, other: Self) -> Self {
        if other.0 < self.0 { other } else { self }
    }

    /// As a part of one.
    pub fn part(self) -> f64 {
        self.0
    }
}

/// Which solution of eq. 4 is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MarkingForm {
    /// The exact one for [`QUEUE`].
    #[default]
    Exact,
    /// As eq. 5 is printed: less, and for a queue of 100 packets though the text says 200.
    Printed,
}

/// The most that may be marked of a flow over an access point that needs `packet_time` for a packet, with the round-trip time that the flow sees: half a
/// full queue is in it ([`with_queue`]). At or below the pole, where nothing is left without that queue, it is the cap. A round trip that is measured
/// while marks have emptied the queue, or before one is there, is below the pole nearly always.
pub fn safe_marks(form: MarkingForm, packet_time: Duration, round_trip: Duration) -> MarkShare {
    let (time, round_trip) = (packet_time.as_secs_f64(), round_trip.as_secs_f64());
    let part = match form {
        MarkingForm::Exact => exact(time, round_trip),
        MarkingForm::Printed => printed(time, round_trip),
    };
    part.map_or(MOST_MARKS, MarkShare::new)
}

/// The round-trip time that a flow without marks sees, which keeps half of the queue full: `RTT_0 + X` (`[MULTIAP] section 5.2`), with `empty` for `RTT_0`.
pub fn with_queue(packet_time: Duration, empty: Duration) -> Duration {
    empty.saturating_add(packet_time.saturating_mul(HALF_QUEUE))
}

/// What is to be marked of flows over an access point with this round-trip time with an empty queue. `is_fitted`: `most` holds it to what it may have, or it
/// stands by; of another one it is what is safe, and nothing if that is unknown.
pub fn marks_of_flows(
    most: MarkShare,
    is_fitted: bool,
    packet_time: Option<Duration>,
    empty: Option<Duration>,
) -> MarkShare {
    if is_fitted {
        return most;
    }
    packet_time.zip(empty).map_or(MarkShare::NONE, |(time, empty)| {
        safe_marks(MarkingForm::default(), time, with_queue(time, empty)).at_most(most)
    })
}

/// Half a full queue, seconds: `X`.
fn queue(time: f64) -> f64 {
    time * f64::from(HALF_QUEUE)
}

/// `delta = 2 T1^2 (1 / (RTT - X)^2 - 1 / RTT^2)`, from eq. 3 and 4 with `p = 2 (T1 / RTT)^2`; `None` at or below the pole `RTT = X`.
fn exact(time: f64, round_trip: f64) -> Option<f64> {
    let empty = round_trip - queue(time);
    (empty > 0.0).then(|| 2.0 * time * time * (1.0 / (empty * empty) - 1.0 / (round_trip * round_trip)))
}

/// Eq. 5 as printed: `delta = (50 T1^2 / (RTT (RTT - 50 T1)))^2 / 2`; `None` at or below the pole `RTT = 50 T1`.
fn printed(time: f64, round_trip: f64) -> Option<f64> {
    const FACTOR: f64 = 50.0;
    let empty = round_trip - FACTOR * time;
    (empty > 0.0).then(|| (FACTOR * time * time / (round_trip * empty)).powi(2) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(form: MarkingForm, packet_us: u64, round_trip_ms: u64) -> f64 {
        safe_marks(form, Duration::from_micros(packet_us), Duration::from_millis(round_trip_ms)).part()
    }

    /// By hand: T1 = 1 ms and RTT = 200 ms make X = 100 ms, 2 * 1e-6 * (100 - 25) = 0.00015; printed: (5e-5 / (0.2 * 0.15))^2 / 2 = 1.389e-6.
    #[test]
    fn worked_by_hand() {
        assert!((marks(MarkingForm::Exact, 1_000, 200) - 0.000_15).abs() < 1e-9);
        assert!((marks(MarkingForm::Printed, 1_000, 200) - 1.389e-6).abs() < 1e-9);
        // The paper's setup of figure 6b, 3 ms and 25 ms: X = 300 ms, 2 * 9e-6 * (1600 - 9.467) = 0.02863.
        let (time, empty) = (Duration::from_millis(3), Duration::from_millis(25));
        assert_eq!(with_queue(time, empty), Duration::from_millis(325));
        assert!((marks(MarkingForm::Exact, 3_000, 325) - 0.028_63).abs() < 1e-5);
        assert_eq!(marks(MarkingForm::Exact, 3_000, 25), 0.05, "below the pole");
        assert_eq!(with_queue(Duration::MAX, Duration::MAX), Duration::MAX);
    }

    /// The flow's rate before and after, by eq. 3, is the same.
    #[test]
    fn the_exact_form_solves_equation_four() {
        for (packet_us, round_trip_ms) in [(500, 100), (1_000, 150), (3_000, 400), (6_000, 1_000)] {
            let (time, round_trip) = (f64::from(packet_us) / 1e6, f64::from(round_trip_ms) / 1e3);
            let delta = exact(time, round_trip).unwrap();
            let p = 2.0 * (time / round_trip).powi(2);
            let before = (2.0 / p).sqrt() / round_trip;
            let after = (2.0 / (p + delta)).sqrt() / (round_trip - 100.0 * time);
            assert!((before * time - 1.0).abs() < 1e-9, "it fills the link");
            assert!((after / before - 1.0).abs() < 1e-9, "{packet_us} {round_trip_ms}");
            assert!(printed(time, round_trip).unwrap() < delta, "the printed form is more careful");
        }
    }

    #[test]
    fn at_or_below_the_pole_and_beyond_the_cap_it_is_the_cap() {
        // X = 300 ms.
        assert_eq!(marks(MarkingForm::Exact, 3_000, 300), 0.05);
        assert_eq!(marks(MarkingForm::Exact, 3_000, 301), 0.05, "just above the pole");
        // 50 T1 = 150 ms.
        assert_eq!(marks(MarkingForm::Printed, 3_000, 150), 0.05);
        assert!(marks(MarkingForm::Printed, 3_000, 300) < 0.05);
        assert_eq!(marks(MarkingForm::Exact, 0, 100), 0.0);
        assert_eq!(marks(MarkingForm::Exact, 0, 0), 0.05);
        assert_eq!(safe_marks(MarkingForm::Exact, Duration::MAX, Duration::MAX).part(), 0.05);
    }

    #[test]
    fn shares_are_bounded() {
        for (part, share) in [(f64::NAN, 0.0), (-1.0, 0.0), (0.01, 0.01), (1.0, 0.05), (f64::INFINITY, 0.05)]
        {
            assert_eq!(MarkShare::new(part).part(), share);
        }
        assert_eq!(MOST_MARKS.at_most(MarkShare::new(0.01)), MarkShare::new(0.01).at_most(MOST_MARKS));
    }
}
