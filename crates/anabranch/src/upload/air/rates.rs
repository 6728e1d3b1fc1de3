//! The bit rates of a card in monitor mode.

use std::str::FromStr;
use std::time::Duration;

use linux::radio::OpenError;
use radio::airtime::Flavour;
use radio::{NotARate, Rate};
use thiserror::Error;
use units::{Bytes, Frequency};

/// At 2.4 GHz, beside the rates of OFDM: they reach further than any of these, and a slow uplink needs no more. 5.5 and 11 Mbit/s are left out: 6 and
/// 12 Mbit/s reach as far and, with a preamble of a tenth, take no longer.
const FAR: [Rate; 2] = [Rate::CCK[0], Rate::CCK[1]];

/// At which bit rates a card in monitor mode sends, slowest first; at least one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AirRates(Vec<Rate>);

/// Why a card in monitor mode cannot be used.
#[derive(Debug, Error)]
pub enum AirError {
    /// It is refused.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Bit rates were chosen, and none of the interfaces has any to choose.
    #[error("bit rates can be chosen for an interface in monitor mode only, and none of those named is one")]
    NoCard,
    /// The channel does not have a rate that was chosen.
    #[error("\"{interface}\" is on {} MHz, where there is no {rate}", frequency.0)]
    NoSuchRate {
        /// The interface.
        interface: String,
        /// Where it is.
        frequency: Frequency,
        /// What is not there.
        rate: Rate,
    },
}

impl FromStr for AirRates {
    type Err = NotARate;

    /// As in `1,2,5.5,11`: Mbit/s, in any order.
    fn from_str(text: &str) -> Result<Self, NotARate> {
        let mut rates = text.split(',').map(str::parse).collect::<Result<Vec<Rate>, _>>()?;
        rates.sort();
        rates.dedup();
        Ok(Self(rates))
    }
}

impl AirRates {
    /// The usual ones where cards are on these channels, as far as that is known: what all of them have.
    pub(super) fn usual(channels: &[Option<Frequency>]) -> Self {
        let far = !channels.is_empty() && channels.iter().all(|channel| channel.is_some_and(has_cck));
        Self(FAR.into_iter().filter(|_| far).chain(Rate::OFDM).collect())
    }

    /// The first that a channel does not have.
    pub(super) fn missing_on(&self, channel: Frequency) -> Option<Rate> {
        self.0.iter().copied().find(|rate| rate.is_cck() && !has_cck(channel))
    }

    /// The rate at a place; the slowest for a place that is not there.
    pub(super) fn at(&self, place: usize) -> Rate {
        self.0.get(place).or(self.0.first()).copied().unwrap_or(Rate::OFDM[0])
    }

    /// How long a frame of so many bytes, check sequence included, takes at each, gaps included.
    pub(super) fn air_times(&self, length: Bytes) -> Vec<Duration> {
        // What counts is how the rates compare, so the gaps are those of 2.4 GHz: of 802.11b where nothing else is sent.
        let flavour = if self.0.iter().all(|rate| rate.is_cck()) { Flavour::B } else { Flavour::G };
        let gaps = flavour.difs() + flavour.mean_back_off(0);
        self.0.iter().map(|rate| gaps + flavour.frame_time(*rate, length)).collect()
    }
}

/// Whether 802.11b's rates are there.
fn has_cck(channel: Frequency) -> bool {
    Flavour::of(channel) == Flavour::G
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: Frequency = Frequency(2_437);
    const HIGH: Frequency = Frequency(5_180);

    #[test]
    fn rates_are_typed_in_any_order() {
        let typed: AirRates = "11,1, 5.5,2,1".parse().unwrap();
        assert_eq!(typed.0, Rate::CCK);
        assert_eq!((typed.at(2), typed.at(9)), (Rate(11), Rate(2)));
        for wrong in ["", "1,", "3", "1;2", "-1", "54,55", "NaN"] {
            assert!(wrong.parse::<AirRates>().is_err(), "{wrong}");
        }
        assert!("1,7".parse::<AirRates>().unwrap_err().to_string().contains('7'));
    }

    #[test]
    fn the_far_rates_are_used_where_every_card_has_them() {
        let usual = |channels: &[Option<Frequency>]| AirRates::usual(channels).at(0);
        assert_eq!(usual(&[Some(LOW)]), Rate(2));
        for channels in [&[][..], &[None], &[Some(HIGH)], &[Some(LOW), Some(HIGH)], &[Some(LOW), None]] {
            assert_eq!(usual(channels), Rate(12), "{channels:?}");
        }
    }

    #[test]
    fn a_channel_of_5_ghz_has_no_rates_of_802_11b() {
        let typed: AirRates = "6,11".parse().unwrap();
        assert_eq!((typed.missing_on(LOW), typed.missing_on(HIGH)), (None, Some(Rate(22))));
        assert_eq!(AirRates::usual(&[Some(HIGH)]).missing_on(HIGH), None);
    }

    #[test]
    fn a_faster_rate_takes_less_time() {
        let usual = AirRates::usual(&[Some(LOW)]).air_times(Bytes(1_436));
        assert!(usual.is_sorted_by(|slower, faster| slower > faster), "{usual:?}");
        // 28 + 67.5 us of gaps; 1,436 bytes at 6 Mbit/s are 480 symbols of 4 us, with 20 us in front and 6 behind.
        assert_eq!(usual[2], Duration::from_nanos(95_500) + Duration::from_micros(480 * 4 + 26));
        // 50 + 310 us of gaps, 192 us of preamble, 8 us a byte.
        let alone = "1".parse::<AirRates>().unwrap().air_times(Bytes(1_436));
        assert_eq!(alone, [Duration::from_micros(50 + 310 + 192 + 8 * 1_436)]);
    }
}
