//! Loss processes.

use super::spec::Loss;
use crate::SeededRandom;

/// A loss process under way.
#[derive(Clone, Debug)]
pub(super) struct LossProcess {
    model: Loss,
    in_bad_state: bool,
}

impl LossProcess {
    pub(super) fn new(model: Loss) -> Self {
        Self { model, in_bad_state: false }
    }

    /// Whether the next packet is lost.
    pub(super) fn next_is_lost(&mut self, random: &mut SeededRandom) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Random(probability) => random.chance(probability),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_in_good, loss_in_bad } => {
                let leave = if self.in_bad_state { bad_to_good } else { good_to_bad };
                if random.chance(leave) {
                    self.in_bad_state = !self.in_bad_state;
                }
                random.chance(if self.in_bad_state { loss_in_bad } else { loss_in_good })
            }
        }
    }
}
