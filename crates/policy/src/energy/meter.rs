//! What a card draws over time, from what it moved.

use std::time::Duration;

use super::{Joules, PowerModel, Transfer};

/// Adds up the energy of one card, interval by interval; see the drawing of [`super`].
///
/// In an interval in which anything moved the card is active all the time, so intervals should be short beside the tail. A
/// card without a tail rests as soon as nothing moves.
#[derive(Clone, Copy, Debug)]
pub struct CardMeter {
    model: PowerModel,
    used: Joules,
    /// What is left of the tail, if the card is awake.
    awake: Option<Duration>,
}

impl CardMeter {
    /// Of a card that rests.
    pub const fn new(model: PowerModel) -> Self {
        Self { model, used: Joules(0.0), awake: None }
    }

    /// The next `time` has passed, and `moved` with it.
    pub fn on_interval(&mut self, time: Duration, moved: Transfer) {
        let model = &self.model;
        let used = if moved != Transfer::default() {
            let start = if self.awake.is_none() { model.start } else { Joules(0.0) };
            self.awake = Some(model.tail_time);
            start + model.further_transfer(moved, time)
        } else {
            let tail = self.awake.unwrap_or_default().min(time);
            self.awake = self.awake.map(|left| left - tail).filter(|left| !left.is_zero());
            model.tail * tail + model.idle * (time - tail)
        };
        self.used = self.used + used;
    }

    /// Energy so far.
    pub const fn used(&self) -> Joules {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use units::Bytes;

    use super::*;
    use crate::energy::{NanojoulesPerBit, Watts};

    const CARD: PowerModel = PowerModel {
        idle: Watts(0.1),
        active: Watts(2.0),
        transmit: NanojoulesPerBit(100.0),
        receive: NanojoulesPerBit(10.0),
        start: Joules(0.5),
        tail: Watts(1.0),
        tail_time: Duration::from_secs(4),
    };

    fn seconds(meter: &mut CardMeter, count: u32, sent: u64) {
        for _ in 0..count {
            meter.on_interval(Duration::from_secs(1), Transfer { sent: Bytes(sent), received: Bytes(0) });
        }
    }

    fn used(meter: &CardMeter) -> f64 {
        (meter.used().0 * 1e6).round() / 1e6
    }

    /// By hand: 2 s idle 0.2 J; start 0.5 J, 3 s active 6 J, 3 Mbit 0.3 J; tail of 4 s 4 J; 1 s idle 0.1 J.
    #[test]
    fn one_transfer_by_hand() {
        let mut meter = CardMeter::new(CARD);
        seconds(&mut meter, 2, 0);
        assert_eq!(used(&meter), 0.2);
        seconds(&mut meter, 3, 125_000);
        assert_eq!(used(&meter), 7.0);
        seconds(&mut meter, 5, 0);
        assert_eq!(used(&meter), 11.1);
        let whole =
            CARD.transfer(Transfer { sent: Bytes(375_000), received: Bytes(0) }, Duration::from_secs(3));
        assert!((whole.0 - 10.8).abs() < 1e-9, "the same but for being idle");
    }

    /// By hand: 0.5 + 2.1 J, 2 s of tail 2 J, 2.1 J without a start: 6.7 J. Then the whole tail 4 J and 6 s idle 0.6 J.
    #[test]
    fn a_card_that_is_awake_does_not_start_again() {
        let mut meter = CardMeter::new(CARD);
        seconds(&mut meter, 1, 125_000);
        seconds(&mut meter, 2, 0);
        seconds(&mut meter, 1, 125_000);
        assert_eq!(used(&meter), 6.7);
        seconds(&mut meter, 10, 0);
        assert_eq!(used(&meter), 11.3);
    }

    /// By hand: twice 0.5 J to start, 2.1 J active and 0.1 J idle.
    #[test]
    fn a_card_without_a_tail_rests_at_once() {
        let mut meter = CardMeter::new(PowerModel { tail_time: Duration::ZERO, ..CARD });
        for _ in 0..2 {
            seconds(&mut meter, 1, 125_000);
            seconds(&mut meter, 1, 0);
        }
        assert_eq!(used(&meter), 5.4);
    }
}
