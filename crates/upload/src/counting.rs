//! How many frames of the air are heard, counted in periods of the source's numbers, so that all neighbours count the same frames (`[LINKALIKE] III.B`).

use std::collections::VecDeque;

use wire::upload::{AirNumber, MAX_PERIODS, MAX_RATES, PERIOD_FRAMES, RateIndex, Reception};

/// Frames that may be missed in a row: at 1,000 a second those of eight seconds.
const REACH: u32 = 64 * PERIOD_FRAMES;
/// So many frames in a row with numbers from elsewhere, near each other, are the source's: there was a long silence, or what was
/// heard before was forged.
const MOVED: u8 = 8;

/// What a neighbour has heard.
#[derive(Clone, Default, Debug)]
pub(crate) struct Counting {
    /// Behind the last frame; none before the first.
    end: Option<AirNumber>,
    current: Option<Reception>,
    finished: VecDeque<Reception>,
    /// The last frame from elsewhere, and how many there were in a row.
    elsewhere: Option<(AirNumber, u8)>,
}

impl Counting {
    /// A frame was heard.
    pub(crate) fn handle_frame(&mut self, air: AirNumber, rate: RateIndex) {
        if self.end.is_some_and(|end| air.0.abs_diff(end.0) > REACH) {
            let before = self.elsewhere.filter(|(last, _)| air.0.abs_diff(last.0) <= REACH);
            let count = before.map_or(1, |(_, count)| count + 1);
            self.elsewhere = Some((air, count));
            if count < MOVED {
                return;
            }
            *self = Self::default();
        }
        if self.end.is_none_or(|end| air >= end) {
            self.end = Some(AirNumber(air.0.saturating_add(1)));
            self.elsewhere = None;
        }
        self.count(air.0 / PERIOD_FRAMES, rate);
    }

    /// All frames below this number were heard or missed.
    pub(crate) fn through(&self) -> AirNumber {
        self.end.unwrap_or(AirNumber(0))
    }

    /// The periods that have ended since the last call.
    pub(crate) fn take_finished(&mut self) -> Vec<Reception> {
        self.finished.drain(..).collect()
    }

    fn count(&mut self, period: u32, rate: RateIndex) {
        if self.current.as_ref().is_none_or(|current| current.period < period) {
            let begun = Reception { period, heard: Vec::new() };
            if let Some(finished) = self.current.replace(begun) {
                self.finished.push_back(finished);
                if self.finished.len() > MAX_PERIODS {
                    self.finished.pop_front();
                }
            }
        }
        let Some(current) = self.current.as_mut().filter(|current| current.period == period) else { return };
        if let Some((_, heard)) = current.heard.iter_mut().find(|(known, _)| *known == rate) {
            *heard = heard.saturating_add(1).min(PERIOD_FRAMES as u8);
        } else if current.heard.len() < MAX_RATES {
            current.heard.push((rate, 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: RateIndex = RateIndex(1);

    fn counting(numbers: impl IntoIterator<Item = u32>) -> Counting {
        let mut counting = Counting::default();
        numbers.into_iter().for_each(|number| counting.handle_frame(AirNumber(number), RATE));
        counting
    }

    #[test]
    fn all_count_the_same_frames() {
        let mut counting = counting([0, 5, 127, 128, 300]);
        let counted = |period, heard| Reception { period, heard: vec![(RATE, heard)] };
        assert_eq!(counting.take_finished(), [counted(0, 3), counted(1, 1)]);
        assert_eq!((counting.take_finished(), counting.through()), (vec![], AirNumber(301)));
    }

    #[test]
    fn a_forged_number_does_not_stop_the_counting() {
        let mut counting = counting([0, 1, u32::MAX, 2, u32::MAX, 3]);
        assert_eq!(counting.through(), AirNumber(4));
        (100..500).for_each(|number| counting.handle_frame(AirNumber(number), RATE));
        assert_eq!(counting.take_finished().len(), 3);
    }

    #[test]
    fn who_comes_late_or_heard_a_forged_frame_first_finds_the_source() {
        assert_eq!(counting([700_000]).through(), AirNumber(700_001));
        assert_eq!(counting([u32::MAX, 5, 6, 7, 8, 9, 10, 11]).through(), AirNumber(u32::MAX));
        assert_eq!(counting([u32::MAX, 5, 6, 7, 8, 9, 10, 11, 12]).through(), AirNumber(13));
        assert_eq!(counting((0..3).chain(90_000..90_008)).through(), AirNumber(90_008), "after a silence");
    }
}
