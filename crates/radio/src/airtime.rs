//! How long frames take on the air: the constants of 802.11b, a, g and n, once for the whole project.
//!
//! ```text
//! |<- DIFS ->|<- back-off: slots ->|<---- frame ---->|<- SIFS ->|<- ACK ->|
//! ```
//! Sections are those of IEEE Std 802.11-2020. Everything here is time on the air of one 20 MHz channel; the simulated medium spends it,
//! the link estimator reckons with it (`[MULTIAP] eq. 1`).

use std::time::Duration;

use units::{BitRate, Bytes, Frequency};

use crate::Rate;

mod high_throughput;

pub use high_throughput::HighThroughput;

/// A physical layer, with the timing by which its stations share a channel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Flavour {
    /// 802.11b: HR/DSSS at 2.4 GHz, long preambles (section 16).
    B,
    /// 802.11a: OFDM at 5 GHz (section 17).
    A,
    /// 802.11g where no 802.11b station is near: ERP at 2.4 GHz with short slots and no protection (section 18).
    G,
}

impl Flavour {
    /// What stations on `frequency` speak: g at 2.4 GHz, a elsewhere.
    pub fn of(frequency: Frequency) -> Self {
        if frequency.0 < 3_000 { Self::G } else { Self::A }
    }

    /// The gap between a frame and its acknowledgement: `aSIFSTime`, sections 16.3.3, 17.4.4 and 18.5.4.
    pub const fn sifs(self) -> Duration {
        match self {
            Self::B | Self::G => Duration::from_micros(10),
            Self::A => Duration::from_micros(16),
        }
    }

    /// The unit of back-off: `aSlotTime`, same sections; the short one for g.
    pub const fn slot(self) -> Duration {
        match self {
            Self::B => Duration::from_micros(20),
            Self::A | Self::G => Duration::from_micros(9),
        }
    }

    /// How long a channel must be silent before back-off counts: SIFS and two slots (section 10.3.2.3, DIFS).
    pub const fn difs(self) -> Duration {
        self.sifs().saturating_add(self.slot()).saturating_add(self.slot())
    }

    /// The largest back-off, in slots, after `failures` failed attempts of a frame: `aCWmin`, then 2 CW + 1 up to `aCWmax` (section 10.3.3).
    pub fn contention_window(self, failures: u32) -> u32 {
        let smallest: u32 = match self {
            Self::B => 31,
            Self::A | Self::G => 15,
        };
        let doubled = (smallest + 1).checked_shl(failures.min(16)).unwrap_or(u32::MAX);
        (doubled - 1).min(LARGEST_WINDOW)
    }

    /// The mean time of back-off after `failures` failed attempts: half the window.
    pub fn mean_back_off(self, failures: u32) -> Duration {
        self.slot() * self.contention_window(failures) / 2
    }

    /// How long a frame of `length`, check sequence included, takes at `rate`.
    ///
    /// Sections 16.3.4 (TXTIME of HR/DSSS), 17.4.3 (OFDM) and 18.5.3 (ERP, with its signal extension).
    pub fn frame_time(self, rate: Rate, length: Bytes) -> Duration {
        let units = u64::from(rate.0.max(1));
        if rate.is_cck() {
            // A unit of 500 kbit/s is half a bit in a microsecond.
            return CCK_PREAMBLE + Duration::from_micros((length.0 * 16).div_ceil(units));
        }
        // A symbol of 4 us holds two bits for each unit of 500 kbit/s.
        let symbols = (SERVICE_AND_TAIL_BITS + length.0 * 8).div_ceil(units * 2);
        let extension = if self == Self::A { Duration::ZERO } else { SIGNAL_EXTENSION };
        OFDM_PREAMBLE + Duration::from_micros(symbols * 4) + extension
    }

    /// The rate of the acknowledgement of a frame sent at `rate`: the highest mandatory one of its modulation that is not above it
    /// (section 10.6.6.5.2; the basic rates of the network may ask for less).
    pub fn response_rate(self, rate: Rate) -> Rate {
        if rate.is_cck() {
            return rate;
        }
        MANDATORY_OFDM.into_iter().rev().find(|mandatory| *mandatory <= rate).unwrap_or(MANDATORY_OFDM[0])
    }

    /// How long the acknowledgement of a frame sent at `rate` takes (14 bytes, section 9.3.1.4).
    pub fn acknowledgement_time(self, rate: Rate) -> Duration {
        self.frame_time(self.response_rate(rate), ACKNOWLEDGEMENT)
    }

    /// From the end of a frame sent at `rate` to the end of its acknowledgement.
    pub fn response_time(self, rate: Rate) -> Duration {
        self.sifs() + self.acknowledgement_time(rate)
    }

    /// From the end of a frame to the moment at which its sender gives up waiting for an acknowledgement: SIFS, a slot and
    /// `aRxPHYStartDelay` (section 10.3.2.11).
    pub fn response_timeout(self, rate: Rate) -> Duration {
        let start = if rate.is_cck() { CCK_PREAMBLE } else { OFDM_PREAMBLE };
        self.sifs() + self.slot() + start
    }

    /// Frame and acknowledgement with the gaps before both, without back-off: `MSS / MCS + K` of `[MULTIAP] eq. 1`.
    ///
    /// The paper sends acknowledgements at 1 Mbit/s; here they go at [`Flavour::response_rate`].
    pub fn exchange_time(self, rate: Rate, length: Bytes) -> Duration {
        self.difs() + self.frame_time(rate, length) + self.response_time(rate)
    }

    /// Like [`Flavour::exchange_time`] at any bit rate, where nothing else is told of how frames are sent: with the preamble of OFDM, whole
    /// bits, and the fastest acknowledgement.
    pub fn exchange_time_at(self, rate: BitRate, length: Bytes) -> Duration {
        let fastest = MANDATORY_OFDM[MANDATORY_OFDM.len() - 1];
        self.difs() + OFDM_PREAMBLE + rate.time_for(length) + self.response_time(fastest)
    }
}

impl Rate {
    /// Whether it is a rate of 802.11b, else one of 802.11a and g.
    pub fn is_cck(self) -> bool {
        Self::CCK.contains(&self)
    }
}

/// Length of an acknowledgement, check sequence included (section 9.3.1.4).
pub const ACKNOWLEDGEMENT: Bytes = Bytes(14);
/// Length of the check sequence at the end of each frame (section 9.2.4.8).
pub const CHECK_SEQUENCE: Bytes = Bytes(4);
/// How many attempts a card makes where nobody says how many: `dot11ShortRetryLimit` (annex C).
pub const USUAL_ATTEMPTS: u8 = 7;

/// `aCWmax`, sections 16.3.3, 17.4.4 and 18.5.4.
const LARGEST_WINDOW: u32 = 1_023;
/// Long preamble of 144 us and header of 48 us (section 16.2.2).
const CCK_PREAMBLE: Duration = Duration::from_micros(192);
/// Training of 16 us and the SIGNAL symbol of 4 us (section 17.3.3, 17.4.3).
const OFDM_PREAMBLE: Duration = Duration::from_micros(20);
/// 16 bits of SERVICE before and 6 tail bits after the frame (section 17.3.5.2 and 17.3.5.3).
const SERVICE_AND_TAIL_BITS: u64 = 22;
/// `aSignalExtension`: silence after an ERP-OFDM frame, in which 802.11a would still decode (section 18.3.2.4).
const SIGNAL_EXTENSION: Duration = Duration::from_micros(6);
/// 6, 12 and 24 Mbit/s (section 17.1.1).
const MANDATORY_OFDM: [Rate; 3] = [Rate(12), Rate(24), Rate(48)];

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: Bytes = Bytes(1_536);
    const MICROSECOND: Duration = Duration::from_micros(1);

    /// Worked by hand: 24 + 8 + 1500 + 4 bytes; (22 + 12288) / 216 = 56.99 symbols.
    #[test]
    fn times_of_a_full_frame() {
        let time = |flavour: Flavour, rate| flavour.frame_time(Rate(rate), FULL).as_micros();
        assert_eq!(time(Flavour::A, 108), 20 + 57 * 4);
        assert_eq!(time(Flavour::G, 108), 20 + 57 * 4 + 6);
        assert_eq!(time(Flavour::A, 12), 20 + 513 * 4);
        // 12288 bits at 11 Mbit/s are 1117.1 us.
        assert_eq!(time(Flavour::B, 22), 192 + 1_118);
        assert_eq!(time(Flavour::B, 2), 192 + 12_288);
        assert_eq!(time(Flavour::G, 11), 192 + 2_235);
    }

    #[test]
    fn acknowledgements_go_at_mandatory_rates() {
        let ack = |flavour: Flavour, rate| flavour.acknowledgement_time(Rate(rate)).as_micros();
        // (22 + 112) / 96 = 1.4 symbols.
        assert_eq!(ack(Flavour::A, 108), 28);
        assert_eq!(ack(Flavour::A, 36), 32);
        assert_eq!(ack(Flavour::G, 18), 50);
        assert_eq!(ack(Flavour::B, 22), 203);
        assert_eq!(Flavour::A.response_time(Rate(108)), 44 * MICROSECOND);
        assert_eq!(Flavour::A.response_timeout(Rate(108)), 45 * MICROSECOND);
    }

    #[test]
    fn gaps_and_windows() {
        assert_eq!(Flavour::A.difs(), 34 * MICROSECOND);
        assert_eq!(Flavour::G.difs(), 28 * MICROSECOND);
        assert_eq!(Flavour::B.difs(), 50 * MICROSECOND);
        let windows = |flavour: Flavour| [0, 1, 2, 5, 6, 7, u32::MAX].map(|n| flavour.contention_window(n));
        assert_eq!(windows(Flavour::A), [15, 31, 63, 511, 1_023, 1_023, 1_023]);
        assert_eq!(windows(Flavour::B), [31, 63, 127, 1_023, 1_023, 1_023, 1_023]);
        assert_eq!(Flavour::A.mean_back_off(0), Duration::from_nanos(67_500));
        assert_eq!(Flavour::of(Frequency(2_412)), Flavour::G);
        assert_eq!(Flavour::of(Frequency(5_180)), Flavour::A);
    }

    /// TCP at 54 Mbit/s in 802.11a: two data frames and one acknowledgement of TCP, one after the other, carry 2 x 1448 bytes. Two
    /// senders share their back-off, so the true figure is a little higher; 22-25 Mbit/s is usually told of cards, `[MULTIAP]` has 22.
    #[test]
    fn tcp_at_54_takes_what_the_literature_says() {
        let alone = |length| Flavour::A.exchange_time(Rate(108), Bytes(length)) + Flavour::A.mean_back_off(0);
        let cycle = alone(1_536) * 2 + alone(88);
        let rate = 2.0 * 1_448.0 * 8.0 / cycle.as_secs_f64() / 1e6;
        assert!((22.0..25.0).contains(&rate), "{rate} Mbit/s");
    }
}
