//! Equal slots dealt out to networks: the elements of a map from a flow's hash to its network.

use units::NetworkId;

use crate::{Share, shares};

/// Deals `count` slots to networks, interleaved: smooth weighted round robin.
///
/// - Each network gets its share of the slots, rounded up or down, and at least one if its share is not nothing; ones that
///   are so small that they would get none are paid for by the others. With more such networks than slots, the
///   largest shares get one each.
/// - They are spread evenly: of the first `n` slots each network has its part of `n`, within one. So runs are as short as
///   the shares allow, and flows whose hashes follow each other do not all land on one network.
/// - The same shares give the same slots.
///
/// Empty if no share is above nothing.
pub fn interleave(networks: &[(NetworkId, Share)], count: u16) -> Vec<NetworkId> {
    let counts = slot_counts(networks, count);
    let slots: u32 = counts.iter().map(|(_, count)| count).sum();
    let mut dealt = vec![0u32; counts.len()];
    (0..slots)
        .filter_map(|slot| {
            let at = most_urgent(&counts, &dealt, slot, slots)?;
            *dealt.get_mut(at)? += 1;
            counts.get(at).map(|(network, _)| *network)
        })
        .collect()
}

/// The network whose next slot must come soonest, of those whose next slot may come already.
///
/// The `j`-th of a network's `c` slots belongs into `[j * slots / c, (j + 1) * slots / c)`. One slot at a time by the
/// earliest deadline meets all of these (it is the optimal order of unit jobs with release times and deadlines).
fn most_urgent(counts: &[(NetworkId, u32)], dealt: &[u32], slot: u32, slots: u32) -> Option<usize> {
    let window = |at: usize| {
        let (count, dealt) = (u64::from(counts.get(at)?.1), u64::from(*dealt.get(at)?));
        let release = dealt * u64::from(slots) / count;
        let deadline = ((dealt + 1) * u64::from(slots)).div_ceil(count);
        (dealt < count && release <= u64::from(slot)).then_some(deadline)
    };
    (0..counts.len()).filter_map(|at| Some((window(at)?, at))).min().map(|(_, at)| at)
}

/// How many slots each network gets; those without any are left out.
fn slot_counts(networks: &[(NetworkId, Share)], count: u16) -> Vec<(NetworkId, u32)> {
    let mut left: Vec<(NetworkId, Share)> =
        networks.iter().filter(|(_, share)| share.part() > 0.0).copied().collect();
    // Largest first, so that the small ones are at the end.
    left.sort_by(|one, other| other.1.part().total_cmp(&one.1.part()).then(one.0.cmp(&other.0)));
    left.truncate(usize::from(count));
    let mut slots = u32::from(count);
    let mut single = Vec::new();
    while let Some((network, share)) = left.last().copied() {
        let sum: f64 = left.iter().map(|(_, share)| share.part()).sum();
        if share.part() / sum * f64::from(slots) >= 1.0 || left.len() == 1 {
            break;
        }
        single.push((network, 1));
        slots -= 1;
        left.pop();
    }
    let whole = Share::whole(left.iter().map(|(_, share)| *share));
    let counts = shares::slots(&whole, slots);
    left.iter().map(|(network, _)| *network).zip(counts).chain(single).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(parts: &[f64]) -> Vec<(NetworkId, Share)> {
        let sum: f64 = parts.iter().sum();
        (0..).map(NetworkId).zip(parts.iter().map(|part| Share::of_part(part / sum))).collect()
    }

    fn numbers(parts: &[f64], count: u16) -> Vec<u32> {
        interleave(&networks(parts), count).into_iter().map(|network| network.0).collect()
    }

    #[test]
    fn slots_by_hand() {
        assert_eq!(numbers(&[1.0, 1.0], 6), [0, 1, 0, 1, 0, 1]);
        assert_eq!(numbers(&[3.0, 1.0], 8), [0, 0, 0, 1, 0, 0, 0, 1]);
        assert_eq!(numbers(&[1.0], 3), [0, 0, 0]);
        assert_eq!(numbers(&[1.0, 0.0], 2), [0, 0]);
        assert_eq!(numbers(&[1_000.0, 1.0], 4), [0, 0, 0, 1], "a small share has its slot");
        assert_eq!(numbers(&[3.0, 2.0, 1.0], 2), [0, 1], "more networks than slots");
        assert_eq!(numbers(&[], 4), [0u32; 0]);
        assert_eq!(interleave(&[(NetworkId(0), Share::NONE)], 4), []);
    }

    proptest! {
        #[test]
        fn slots_are_fair_and_even(
            parts in proptest::collection::vec(prop_oneof![Just(0.0), 0.001f64..1.0], 1..64),
            count in prop_oneof![Just(64u16), Just(256u16), 1u16..300],
        ) {
            prop_assume!(parts.iter().any(|part| *part > 0.0));
            let networks = networks(&parts);
            let slots = interleave(&networks, count);
            prop_assert_eq!(slots.len(), usize::from(count));
            let of = |network: NetworkId| slots.iter().filter(|slot| **slot == network).count();
            let used = networks.iter().filter(|(_, share)| share.part() > 0.0).count();
            let exact = |share: &Share| share.part() * f64::from(count);
            let no_small_ones = networks.iter().all(|(_, share)| share.part() == 0.0 || exact(share) >= 1.0);
            for (network, share) in &networks {
                let got = of(*network);
                prop_assert!(got == 0 || share.part() > 0.0);
                prop_assert!(got > 0 || share.part() == 0.0 || used > usize::from(count));
                if no_small_ones {
                    prop_assert!((got as f64 - exact(share)).abs() < 1.0, "{got} of {}", exact(share));
                }
                for prefix in 0..=slots.len() {
                    let here = slots[..prefix].iter().filter(|slot| **slot == *network).count() as f64;
                    let due = got as f64 * prefix as f64 / slots.len() as f64;
                    prop_assert!((here - due).abs() < 1.0, "{here} of {due} in the first {prefix}");
                }
            }
        }
    }
}
