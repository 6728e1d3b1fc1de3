//! Rates as the simulated radios count them: by place in their band's list.

use linux::hwsim::{NO_TRIES, RadioFrame, Tries};
use radio::Rate;
use radio::airtime::Flavour;
use sim::medium::Series;
use units::Frequency;

/// All rates of a band, in the kernel's order.
fn list(frequency: Frequency) -> impl Iterator<Item = Rate> {
    let cck = if Flavour::of(frequency) == Flavour::A { &[] } else { Rate::CCK.as_slice() };
    cck.iter().chain(&Rate::OFDM).copied()
}

/// The place of `rate`, 0 for one that the band does not have.
pub(super) fn index_of(frequency: Frequency, rate: Rate) -> u8 {
    list(frequency).position(|known| known == rate).and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}

/// The rates at which a radio wants its frame sent. Where it names none, the lowest, once.
///
/// Rates of 802.11n and later are not simulated: the highest of g stand in for theirs.
pub(super) fn series_of(frame: &RadioFrame<'_>) -> Series {
    let rates: Vec<Rate> = list(frame.frequency).collect();
    let lowest = if frame.is_modern { rates.len() - 1 } else { 0 };
    let wanted: Vec<(Rate, u8)> = frame
        .tries
        .iter()
        .map_while(|&(index, count)| {
            let index = if frame.is_modern { usize::MAX } else { usize::try_from(index).ok()? };
            (count > 0).then(|| (rates[index.min(rates.len() - 1)], count))
        })
        .collect();
    Series::new(&wanted).unwrap_or_else(|_| Series::steady(rates[lowest], 1))
}

/// What was tried, as the radio that wanted it sent counts.
pub(super) fn tries_of(frequency: Frequency, attempts: &[(Rate, u8)]) -> Tries {
    let mut tries = NO_TRIES;
    for (one, &(rate, count)) in tries.iter_mut().zip(attempts) {
        *one = (index_of(frequency, rate).cast_signed(), count);
    }
    tries
}

#[cfg(test)]
mod tests {
    use super::*;
    use units::MacAddress;

    fn frame(frequency: u32, tries: Tries, is_modern: bool) -> RadioFrame<'static> {
        RadioFrame {
            radio: MacAddress([2; 6]),
            bytes: &[],
            frequency: Frequency(frequency),
            tries,
            is_modern,
            without_acknowledgement: false,
            cookie: 1,
        }
    }

    #[test]
    fn places_depend_on_the_band() {
        let wanted = [(7, 2), (0, 3), (-1, 9), (1, 1)];
        let attempts = |frequency| series_of(&frame(frequency, wanted, false)).used(99);
        assert_eq!(attempts(5_180), [(Rate(108), 2), (Rate(12), 3)]);
        assert_eq!(attempts(2_412), [(Rate(36), 2), (Rate(2), 3)]);
        let tries = tries_of(Frequency(2_412), &[(Rate(108), 2), (Rate(2), 1)]);
        assert_eq!(tries, [(11, 2), (0, 1), (-1, 0), (-1, 0)]);
        assert_eq!(tries_of(Frequency(5_180), &[(Rate(108), 2)])[0], (7, 2));
    }

    #[test]
    fn without_a_sound_wish_the_lowest_rate_serves() {
        let used = |tries, is_modern| series_of(&frame(2_412, tries, is_modern)).used(99);
        assert_eq!(used(NO_TRIES, false), [(Rate(2), 1)]);
        assert_eq!(used([(3, 0); 4], false), [(Rate(2), 1)]);
        assert_eq!(used([(100, 1), (-1, 0), (-1, 0), (-1, 0)], false), [(Rate(108), 1)]);
        assert_eq!(used([(4, 2), (-1, 0), (-1, 0), (-1, 0)], true), [(Rate(108), 2)]);
    }
}
