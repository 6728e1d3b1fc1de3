//! How long frames of 802.11n take on the air (IEEE Std 802.11-2020 section 19, mixed format unless said otherwise).
//!
//! ```text
//! | legacy training 16 us, SIGNAL 4 | HT-SIG 8 | HT-STF 4 | HT-LTF 4 each | symbols of 4 us, or 3.6 us with the short guard interval
//! ```

use std::time::Duration;

use units::Bytes;

use super::{Flavour, SIGNAL_EXTENSION};
use crate::Rate;

/// A rate of 802.11n with equal modulation on all streams (section 19.5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct HighThroughput {
    index: u8,
    wide: bool,
    short_guard: bool,
    greenfield: bool,
}

/// Indices of rates with equal modulation: eight for each of up to four streams.
const INDICES: u8 = 32;

impl HighThroughput {
    /// The rate of a modulation and coding scheme; `None` from index 32 on, where streams differ. `wide`: 40 MHz. `greenfield`:
    /// without what older stations understand.
    pub fn new(index: u8, wide: bool, short_guard: bool, greenfield: bool) -> Option<Self> {
        (index < INDICES).then_some(Self { index, wide, short_guard, greenfield })
    }

    fn streams(self) -> u64 {
        u64::from(self.index / 8) + 1
    }

    /// Data bits in a symbol, `N_DBPS` of tables 19-27 to 19-34.
    fn bits_in_symbol(self) -> u64 {
        const NARROW: [u64; 8] = [26, 52, 78, 104, 156, 208, 234, 260];
        const WIDE: [u64; 8] = [54, 108, 162, 216, 324, 432, 486, 540];
        let table = if self.wide { WIDE } else { NARROW };
        table[usize::from(self.index % 8)] * self.streams()
    }

    /// Encoders, `N_ES`: two above 300 Mbit/s, counted with the long guard interval at 40 MHz (tables 19-33 and 19-34).
    fn encoders(self) -> u64 {
        if self.bits_in_symbol() > 1_080 { 2 } else { 1 }
    }

    /// Everything before the symbols of data (section 19.3.9, equation 19-90).
    fn preamble(self) -> Duration {
        // Three streams are trained by four symbols (table 19-13).
        let training = [4, 8, 16, 16][usize::from(self.index / 8)];
        Duration::from_micros(if self.greenfield { 20 + training } else { 32 + training })
    }

    /// The legacy rate by which that of a response is chosen (section 10.6.11, table 10-10).
    fn reference(self) -> Rate {
        [Rate(12), Rate(24), Rate(36), Rate(48), Rate(72), Rate(96), Rate(108), Rate(108)]
            [usize::from(self.index % 8)]
    }
}

/// Length of a compressed block acknowledgement, check sequence included (section 9.3.1.8.2).
const BLOCK_ACKNOWLEDGEMENT: Bytes = Bytes(32);
/// What precedes each frame in an aggregate (section 9.7.1).
const DELIMITER: Bytes = Bytes(4);

impl Flavour {
    /// How long a frame or aggregate of `length` takes, check sequences included (section 19.4.3, TXTIME). The flavour says only whether
    /// the band is that of 802.11g, where silence follows.
    pub fn high_throughput_time(self, rate: HighThroughput, length: Bytes) -> Duration {
        let bits = 16 + length.0 * 8 + 6 * rate.encoders();
        let symbols = bits.div_ceil(rate.bits_in_symbol());
        // Short symbols end where a long one would (equation 19-91).
        let time = if rate.short_guard { (symbols * 36).div_ceil(40) * 4 } else { symbols * 4 };
        let extension = if self == Self::A { Duration::ZERO } else { SIGNAL_EXTENSION };
        rate.preamble() + Duration::from_micros(time) + extension
    }

    /// Like [`Flavour::exchange_time`], for each of `frames` frames of `length` in one aggregate; one frame alone is acknowledged by itself.
    pub fn aggregate_exchange_time(self, rate: HighThroughput, length: Bytes, frames: u32) -> Duration {
        let frames = frames.max(1);
        let response = self.response_rate(rate.reference());
        let (length, answer) = if frames == 1 {
            (length, self.acknowledgement_time(response))
        } else {
            let padded = length.0.next_multiple_of(4) + DELIMITER.0;
            (Bytes(padded * u64::from(frames)), self.frame_time(response, BLOCK_ACKNOWLEDGEMENT))
        };
        (self.difs() + self.high_throughput_time(rate, length) + self.sifs() + answer) / frames
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Bytes = Bytes(1_538);

    /// Worked by hand: 26 + 8 + 1500 + 4 bytes are 12304 bits, 12326 with service and tail.
    #[test]
    fn times_of_a_full_frame() {
        let rate = |index, wide, short| HighThroughput::new(index, wide, short, false).unwrap();
        let time = |rate| Flavour::A.high_throughput_time(rate, FULL).as_micros();
        // 12326 / 260 = 47.4 symbols, one training symbol.
        assert_eq!(time(rate(7, false, false)), 36 + 48 * 4);
        // 48 x 3.6 us = 172.8, up to the next 4 us.
        assert_eq!(time(rate(7, false, true)), 36 + 176);
        // 12326 / 26 = 474.1.
        assert_eq!(time(rate(0, false, false)), 36 + 475 * 4);
        // Two streams at 40 MHz: 12326 / 1080 = 11.4.
        assert_eq!(time(rate(15, true, false)), 40 + 12 * 4);
        // Three, two encoders, four training symbols: 12332 / 1620 = 7.6.
        assert_eq!(time(rate(23, true, false)), 48 + 8 * 4);
        assert_eq!(Flavour::G.high_throughput_time(rate(7, false, false), FULL).as_micros(), 36 + 48 * 4 + 6);
        let greenfield = HighThroughput::new(7, false, false, true).unwrap();
        assert_eq!(time(greenfield), 24 + 48 * 4);
        assert_eq!(HighThroughput::new(32, false, false, false), None);
    }

    #[test]
    fn an_aggregate_shares_what_surrounds_it() {
        let rate = HighThroughput::new(7, false, false, false).unwrap();
        let alone = Flavour::A.aggregate_exchange_time(rate, FULL, 1);
        // 34 + 228 + 16 + 28 (14 bytes at 24 Mbit/s).
        assert_eq!(alone.as_micros(), 306);
        let shared = Flavour::A.aggregate_exchange_time(rate, FULL, 20);
        // 20 x 1544 bytes: (22 + 247040) / 260 = 950.2 symbols; 32 bytes at 24 Mbit/s: 20 + 3 x 4.
        assert_eq!(shared.as_nanos(), u128::from((34 + 36 + 951 * 4 + 16 + 32) * 1_000_u32 / 20));
        assert_eq!(Flavour::A.aggregate_exchange_time(rate, FULL, 0), alone);
    }
}
