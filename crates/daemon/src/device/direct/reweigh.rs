//! When new shares are worth telling the kernel. Pure.

use policy::Table;

/// `fresh`, with the shares of `held` unless they differ by a step that new flows would notice, or another network is used.
///
/// Reasons and metrics are those of `fresh` in any case: they are what people read.
pub fn steadied(mut fresh: Table, held: &Table) -> Table {
    let same_use = fresh.entries.len() == held.entries.len()
        && fresh.entries.iter().all(|entry| {
            held.get(entry.network).is_some_and(|was| {
                was.status == entry.status && (was.share.part() > 0.0) == (entry.share.part() > 0.0)
            })
        });
    if same_use && fresh.largest_change(held).part() < STEP {
        for entry in &mut fresh.entries {
            entry.share = held.get(entry.network).map_or(entry.share, |was| was.share);
        }
    }
    fresh
}

/// One new flow in sixteen.
const STEP: f64 = 1.0 / 16.0;

#[cfg(test)]
mod tests {
    use policy::network::{NetworkInput, PowerSupply};
    use policy::{ChoiceSettings, NetworkPolicy};
    use units::{BitRate, NetworkId, Timestamp};

    use super::*;

    fn table(mbps: [f64; 2], up: bool) -> Table {
        let mut inputs = [0, 1].map(|id| NetworkInput::new(NetworkId(id), format!("n{id}")));
        for (input, mbps) in inputs.iter_mut().zip(mbps) {
            input.metrics.delivered = Some(BitRate::from_mbps(mbps));
        }
        inputs[1].up = up;
        NetworkPolicy::new(ChoiceSettings::default()).evaluate(Timestamp::ZERO, &inputs, PowerSupply::Mains)
    }

    #[test]
    fn small_changes_stay_here_and_large_ones_and_losses_do_not() {
        let held = table([30.0, 10.0], true);
        let near = table([31.0, 10.0], true);
        let steady = steadied(near.clone(), &held);
        assert_eq!(steady.largest_change(&held).part(), 0.0);
        assert_eq!(steady.entries[0].reason, near.entries[0].reason);
        let far = table([50.0, 10.0], true);
        assert_eq!(steadied(far.clone(), &held), far);
        let alone = table([30.0, 10.0], false);
        assert_eq!(steadied(alone.clone(), &held), alone);
        assert_eq!(steadied(held.clone(), &Table::default()), held);
    }

    /// Many small changes in one direction add up against what the kernel has.
    #[test]
    fn drift_is_followed() {
        let mut held = table([30.0, 10.0], true);
        let before = held.clone();
        for step in 0..100 {
            held = steadied(table([30.0 + f64::from(step), 10.0], true), &held);
        }
        assert!(held.largest_change(&before).part() > 0.1);
    }
}
