//! The rate of frames whose sender leaves it to the medium.

use radio::Rate;
use radio::airtime::{Flavour, USUAL_ATTEMPTS};
use units::{Bytes, Frequency, Timestamp};

use super::StationId;
use super::engine::Medium;
use super::frame::{Rates, Series};
use super::propagation::{Passage, PassageKind, Propagation};
use super::station::Waiting;

impl<P: Propagation> Medium<P> {
    /// The rates of a frame before its first attempt.
    pub(super) fn series_for(&mut self, at: Timestamp, from: StationId, waiting: &Waiting) -> Series {
        match &waiting.frame.rates {
            Rates::Series(series) => series.clone(),
            Rates::Best => {
                let usable = usable_rates(waiting.frame.frequency);
                let Some(to) = self.owner_of(waiting.receiver) else {
                    let attempts = if waiting.wants_answer() { USUAL_ATTEMPTS } else { 1 };
                    return Series::steady(usable[0], attempts);
                };
                let length = waiting.frame.length();
                Series::steady(self.best_rate(at, from, to, length, usable), USUAL_ATTEMPTS)
            }
        }
    }

    /// The rate that gets most through; the first of `usable` where nothing arrives.
    fn best_rate(
        &mut self,
        at: Timestamp,
        from: StationId,
        to: StationId,
        length: Bytes,
        usable: &[Rate],
    ) -> Rate {
        let mut best = (usable[0], 0.0);
        if self.propagation.signal(at, from, to).is_none() {
            return best.0;
        }
        for &rate in usable {
            let passage = Passage { from, to, kind: PassageKind::Frame, rate, length };
            let delivered = rate.bit_rate().as_mbps() * (1.0 - self.propagation.loss(at, &passage));
            if delivered > best.1 {
                best = (rate, delivered);
            }
        }
        best.0
    }
}

/// The rates of a band, lowest first.
fn usable_rates(frequency: Frequency) -> &'static [Rate] {
    const BOTH: [Rate; 12] = {
        let [a, b, c, d] = Rate::CCK;
        let [e, f, g, h, i, j, k, l] = Rate::OFDM;
        [a, b, c, d, e, f, g, h, i, j, k, l]
    };
    if Flavour::of(frequency) == Flavour::A { &BOTH[4..] } else { &BOTH }
}
