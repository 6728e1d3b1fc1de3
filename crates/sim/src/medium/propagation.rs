//! What arrives where, and with which chance.

use std::collections::{BTreeMap, BTreeSet};

use radio::Rate;
use units::{Bytes, Timestamp};

use super::StationId;
use super::ground::Ground;

/// A frame or an acknowledgement on its way from one station to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Passage {
    /// Who sends.
    pub from: StationId,
    /// Who may hear it.
    pub to: StationId,
    /// What it is.
    pub kind: PassageKind,
    /// At which rate.
    pub rate: Rate,
    /// Its length with its check sequence.
    pub length: Bytes,
}

/// What is on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PassageKind {
    /// A frame that a station handed over.
    Frame,
    /// The answer to one.
    Acknowledgement,
}

/// How well stations hear each other. The medium's seam for fading, walks and other models of signal and loss.
pub trait Propagation {
    /// The signal of `from` at `to` in dBm; `None` if nothing arrives, not even as noise.
    fn signal(&mut self, at: Timestamp, from: StationId, to: StationId) -> Option<i8>;

    /// The chance that what arrives cannot be read, 0 to 1. Asked only where there is a signal.
    fn loss(&mut self, at: Timestamp, passage: &Passage) -> f64;

    /// Whether `listener` notices that `sender` sends, and holds back. Without a word of its own a model has nobody hidden from anybody.
    fn senses(&mut self, _at: Timestamp, _listener: StationId, _sender: StationId) -> bool {
        true
    }
}

/// Fixed links: each direction between two stations has a signal and a loss. Between two that have places on a [`Ground`] the signal follows
/// from those, unless their link is out of range.
#[derive(Clone, Debug, Default)]
pub struct Links {
    usual: Link,
    particular: BTreeMap<(StationId, StationId), Link>,
    hidden: BTreeSet<(StationId, StationId)>,
    ground: Option<Ground>,
}

/// One direction between two stations.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// Signal in dBm; `None`: out of range.
    pub signal_dbm: Option<i8>,
    /// Chance of losing a frame, per attempt.
    pub loss: SignalLoss,
    /// Chance of losing an acknowledgement that goes in this direction, beside what [`SignalLoss::BySignal`] says.
    pub acknowledgement_loss: f64,
}

/// How the chance of losing a frame follows from how it is sent.
#[derive(Clone, PartialEq, Debug)]
pub enum SignalLoss {
    /// The same at all rates.
    Steady(f64),
    /// By rate: that of the highest rate in the list that is not above the frame's, else 0.
    ByRate(BTreeMap<Rate, f64>),
    /// By signal, rate and length.
    BySignal,
}

impl Links {
    /// Every two stations hear each other as `usual` says.
    pub fn new(usual: Link) -> Self {
        Self { usual, ..Self::default() }
    }

    /// Sets one direction.
    pub fn set(&mut self, from: StationId, to: StationId, link: Link) {
        self.particular.insert((from, to), link);
    }

    /// These two do not notice each other's sending.
    pub fn hide(&mut self, one: StationId, other: StationId) {
        self.hidden.extend([(one, other), (other, one)]);
    }

    /// Signals of those who have places there follow from them; who would notice whom, too.
    pub fn set_ground(&mut self, ground: Ground) {
        self.ground = Some(ground);
    }

    fn link(&self, from: StationId, to: StationId) -> &Link {
        self.particular.get(&(from, to)).unwrap_or(&self.usual)
    }
}

impl Propagation for Links {
    fn signal(&mut self, at: Timestamp, from: StationId, to: StationId) -> Option<i8> {
        let steady = self.link(from, to).signal_dbm?;
        match self.ground.as_mut().and_then(|ground| ground.signal_dbm(at, from, to)) {
            Some(signal) if signal < FAINTEST_DBM => None,
            Some(signal) => Some(signal.round().min(0.0) as i8),
            None => Some(steady),
        }
    }

    fn loss(&mut self, at: Timestamp, passage: &Passage) -> f64 {
        let signal = self.signal(at, passage.from, passage.to);
        let link = self.link(passage.from, passage.to);
        let by_signal = || {
            let signal = signal.map_or(f64::NEG_INFINITY, f64::from);
            error_rate(passage.rate, passage.length, signal)
        };
        match (passage.kind, &link.loss) {
            (PassageKind::Frame, SignalLoss::Steady(loss)) => *loss,
            (PassageKind::Frame, SignalLoss::ByRate(losses)) => {
                losses.range(..=passage.rate).next_back().map_or(0.0, |(_, loss)| *loss)
            }
            (PassageKind::Frame, SignalLoss::BySignal) => by_signal(),
            (PassageKind::Acknowledgement, SignalLoss::BySignal) => {
                1.0 - (1.0 - by_signal()) * (1.0 - link.acknowledgement_loss)
            }
            (PassageKind::Acknowledgement, _) => link.acknowledgement_loss,
        }
    }

    fn senses(&mut self, at: Timestamp, listener: StationId, sender: StationId) -> bool {
        let near = self.ground.as_ref().and_then(|ground| ground.senses(at, listener, sender));
        near.unwrap_or(true) && !self.hidden.contains(&(listener, sender))
    }
}

impl Default for Link {
    /// A strong signal without loss.
    fn default() -> Self {
        Self { signal_dbm: Some(-50), loss: SignalLoss::Steady(0.0), acknowledgement_loss: 0.0 }
    }
}

/// The chance that a frame of `length` at `rate` cannot be read where its signal is `signal_dbm`.
///
/// Bit errors are independent. At the lowest signal that a receiver must cope with, a tenth of frames of 1000 bytes are lost
/// (IEEE Std 802.11-2020 section 17.3.10.2; for the rates of 802.11b the values of common cards). Each decibel more
/// divides bit errors by ten, which is our choice: of cards it is told that they go from 10 % to 90 % of frames within 2-4 dB.
pub fn error_rate(rate: Rate, length: Bytes, signal_dbm: f64) -> f64 {
    let sensitivity = SENSITIVITY
        .iter()
        .rev()
        .find(|(from, _)| *from <= rate)
        .map_or(SENSITIVITY[0].1, |(_, sensitivity)| *sensitivity);
    let errors_there = -f64::ln_1p(-0.1) / 8_000.0;
    let errors = (errors_there * 10f64.powf(sensitivity - signal_dbm)).min(0.5);
    -f64::exp_m1(length.0 as f64 * 8.0 * f64::ln_1p(-errors))
}

/// What else a receiver hears while something arrives, added up, in milliwatts.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Disturbance(f64);

impl Disturbance {
    pub(super) fn add(&mut self, signal_dbm: i8) {
        self.0 += 10f64.powf(f64::from(signal_dbm) / 10.0);
    }
}

/// The chance that what arrives with `signal_dbm` cannot be read for what else was on the air at any moment of it.
///
/// A stronger frame is read in spite of a weaker one, whichever began first, as cards do that begin anew with a stronger one; what disturbs counts as
/// noise does, so fast rates need more. Below [`CAPTURE_DB`] nothing is read at any rate.
pub(super) fn disturbed(passage: &Passage, signal_dbm: i8, by: Disturbance) -> f64 {
    if by.0 <= 0.0 {
        return 0.0;
    }
    let ahead = f64::from(signal_dbm) - 10.0 * by.0.log10();
    if ahead < CAPTURE_DB { 1.0 } else { error_rate(passage.rate, passage.length, NOISE_DBM + ahead) }
}

/// Simulators usually take ten for what a frame must be ahead by, all rates alike.
const CAPTURE_DB: f64 = 10.0;
/// Thermal noise of 20 MHz and the 10 dB of a receiver that [`SENSITIVITY`] rests on (IEEE Std 802.11-2020 section 17.3.10.2).
const NOISE_DBM: f64 = -91.0;
/// What is weaker does not even disturb: it adds less than a twentieth to the noise.
const FAINTEST_DBM: f64 = NOISE_DBM - 14.0;

/// Signal in dBm at which a receiver must cope, by rate: Table 17-18 for OFDM, in order of rates.
const SENSITIVITY: [(Rate, f64); 12] = [
    (Rate(2), -94.0),
    (Rate(4), -91.0),
    (Rate(11), -89.0),
    (Rate(12), -82.0),
    (Rate(18), -81.0),
    (Rate(22), -85.0),
    (Rate(24), -79.0),
    (Rate(36), -77.0),
    (Rate(48), -74.0),
    (Rate(72), -70.0),
    (Rate(96), -66.0),
    (Rate(108), -65.0),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_lost_at_the_sensitivity() {
        let loss = |rate, length, signal| error_rate(Rate(rate), Bytes(length), signal);
        assert!((loss(108, 1_000, -65.0) - 0.1).abs() < 1e-6);
        assert!((loss(12, 1_000, -82.0) - 0.1).abs() < 1e-6);
        assert!(loss(108, 1_536, -60.0) < 1e-4);
        assert!(loss(108, 1_536, -69.0) > 0.9);
        assert!(loss(108, 14, -65.0) < 0.01, "short frames get through");
        assert!(loss(2, 1_536, f64::NEG_INFINITY) > 0.999);
    }

    #[test]
    fn a_table_of_rates_holds_up_to_the_next_entry() {
        let [from, to] = [StationId(0), StationId(1)];
        let losses = BTreeMap::from([(Rate(48), 0.1), (Rate(96), 0.5)]);
        let mut links = Links::default();
        links.set(from, to, Link { loss: SignalLoss::ByRate(losses), ..Link::default() });
        let mut loss = |rate| {
            let passage =
                Passage { from, to, kind: PassageKind::Frame, rate: Rate(rate), length: Bytes(100) };
            links.loss(Timestamp::ZERO, &passage)
        };
        assert_eq!([12, 48, 72, 96, 108].map(&mut loss), [0.0, 0.1, 0.1, 0.5, 0.5]);
    }
}
