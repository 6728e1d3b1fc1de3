//! What must hold for any bytes of a monitor interface; shared by the fuzz target and the property tests.

use radio::radiotap::{self, Captured};
use units::Frequency;

/// The frame is the end of the bytes but for a check sequence, and never longer than they are.
pub fn radiotap(bytes: &[u8]) {
    let Ok(captured) = radiotap::read(bytes, Frequency(2412)) else { return };
    let frame = match captured {
        Captured::Heard(heard) => {
            assert!(heard.rate.is_none_or(|rate| rate.0 > 0));
            heard.frame
        }
        Captured::Outcome(outcome) => {
            assert!(outcome.attempts.is_none_or(|attempts| attempts > 0));
            outcome.frame
        }
    };
    let rest = bytes.len() - 8;
    assert!(frame.len() <= rest);
    assert!(bytes.ends_with(frame) || bytes[..bytes.len() - 4].ends_with(frame));
}
