//! Links between the device and access points that fade, each by itself, or stay as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use sim::SeededRandom;
use sim::medium::{Fade, Link, Links, Passage, PassageKind, Propagation, SignalLoss, StationId};
use units::Timestamp;

/// Links between the device and each access point.
pub(super) struct Fading {
    pub device: StationId,
    pub links: BTreeMap<StationId, Signal>,
    /// Access points do not notice each other's sending.
    pub hidden: bool,
}

/// The signal of one access point.
pub(super) struct Signal {
    mean_dbm: f64,
    /// The part of frames that is lost at all rates; `None`: as the signal has it.
    pub loss: Option<f64>,
    /// `None`: it does not fade.
    fade: Option<Fade>,
}

impl Signal {
    /// A signal around `mean_dbm`, whose fades are those of this number; `None`: it has none.
    pub fn new(mean_dbm: f64, fades: Option<u32>, seed: u64) -> Self {
        let random = fades.map(|fades| SeededRandom::derive(seed, &format!("fades {fades}")));
        let fade = random.map(|random| Fade::new(COHERENCE, Timestamp::ZERO, random));
        Self { mean_dbm, loss: None, fade }
    }

    /// Loses this part of the frames that go to the device, whatever their signal.
    pub fn with_loss(self, loss: Option<f64>) -> Self {
        Self { loss, ..self }
    }

    fn signal_dbm(&mut self, at: Timestamp) -> i8 {
        let gain_db = self.fade.as_mut().map_or(0.0, |fade| fade.gain_db(at));
        (self.mean_dbm + gain_db).round().clamp(-127.0, 0.0) as i8
    }
}

impl Propagation for Fading {
    fn signal(&mut self, at: Timestamp, from: StationId, to: StationId) -> Option<i8> {
        let point = match (from, to) {
            (point, device) | (device, point) if device == self.device => point,
            _ => return None,
        };
        Some(self.links.get_mut(&point)?.signal_dbm(at))
    }

    fn loss(&mut self, at: Timestamp, passage: &Passage) -> f64 {
        let steady = self.links.get(&passage.from).and_then(|signal| signal.loss);
        if let (Some(loss), PassageKind::Frame) = (steady, passage.kind) {
            return loss;
        }
        let signal_dbm = self.signal(at, passage.from, passage.to);
        loss(signal_dbm, at, passage)
    }

    fn senses(&mut self, _at: Timestamp, listener: StationId, sender: StationId) -> bool {
        !self.hidden || listener == self.device || sender == self.device
    }
}

/// The chance that what arrives with so much signal cannot be read.
pub(in super::super) fn loss(signal_dbm: Option<i8>, at: Timestamp, passage: &Passage) -> f64 {
    Links::new(Link { signal_dbm, loss: SignalLoss::BySignal, ..Link::default() }).loss(at, passage)
}

/// How long a fade lasts: 0.423 of the inverse of a Doppler spread of 6 Hz, which is that of the surroundings of somebody who sits still, at 5 GHz
/// (IEEE 802.11-03/940r4 section 4.7).
const COHERENCE: Duration = Duration::from_millis(70);
