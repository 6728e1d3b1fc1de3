//! The bounds of `[LINKALIKE] V`: what a neighbourhood can carry at the most, by broadcast and by unicast.
//!
//! The broadcast bound has a constraint for each set of neighbours. They are generated as they are violated: the program is solved, the most violated
//! set is added, until there is none.

use anyhow::Context;
use microlp::{ComparisonOp, OptimizationDirection, Problem, Solution, SolveOutcome};
use sim::neighbourhood::NeighbourhoodSpec;

/// A constraint counts as violated beyond this part of `B`.
const TOLERANCE: f64 = 1e-7;
/// Neighbours up to which all sets are tried for the most violated one.
const ENUMERATED: usize = 15;

/// What is heard, in general: the sets of neighbours that hear a frame together, as bits, with how often; what is missing to 1 is heard by nobody.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Heard(pub(super) Vec<(u64, f64)>);

impl Heard {
    /// `q_K` of `[LINKALIKE] V.A`: the part of frames that at least one of a set hears.
    #[cfg(test)]
    fn by_any(&self, set: u64) -> f64 {
        self.0.iter().filter(|(heard, _)| heard & set != 0).map(|(_, part)| part).sum()
    }

    /// The same for each set of the first `neighbours` at once: what is not heard within the others alone.
    fn by_any_of_all(&self, neighbours: usize) -> Vec<f64> {
        let mut within = vec![0.0; 1 << neighbours];
        for (heard, part) in &self.0 {
            if let Some(sum) = within.get_mut(*heard as usize) {
                *sum += part;
            }
        }
        // Each set's sum takes in those of its subsets, one neighbour after the other.
        for one in (0..neighbours).map(|at| 1 << at) {
            for set in (0..within.len()).filter(|set| set & one != 0) {
                within[set] += within[set ^ one];
            }
        }
        let (all, everybody) = (within.last().copied().unwrap_or(0.0), within.len() - 1);
        (0..within.len()).map(|set| all - within[everybody ^ set]).collect()
    }
}

/// `[LINKALIKE] V.D`: the bounds where all neighbours are alike; broadcast, then unicast.
pub(super) fn closed_form(broadcast: f64, neighbours: u32, uplink: f64, chance: f64) -> (f64, f64) {
    let wired = f64::from(neighbours) * uplink;
    let heard = 1.0 - (1.0 - chance).powi(neighbours as i32);
    (wired.min(broadcast * heard), wired.min(broadcast * chance))
}

/// `[LINKALIKE] eq. 1-3`: the most unique chunks a second by broadcast at `broadcast` frames a second, where `uplinks` are chunks a second and `heard` is `q_K`.
///
/// # Errors
/// If the solver finds no solution, which there always is.
pub(super) fn broadcast_bound(
    broadcast: f64,
    uplinks: &[f64],
    heard: &dyn Fn(u64) -> f64,
    most_violated: &dyn Fn(&[f64]) -> u64,
) -> anyhow::Result<f64> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let flows: Vec<_> = uplinks.iter().map(|uplink| problem.add_var(1.0, (0.0, *uplink))).collect();
    let members = |set: u64| {
        let inside = flows.iter().enumerate().filter(move |(at, _)| set >> at & 1 == 1);
        inside.map(|(_, flow)| (*flow, 1.0)).collect::<Vec<_>>()
    };
    loop {
        let solution = solved(&problem).context("solve the broadcast bound")?;
        let rates: Vec<f64> = flows.iter().map(|flow| solution.var_value(*flow)).collect();
        let set = most_violated(&rates);
        let flow: f64 =
            rates.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, rate)| rate).sum();
        if set == 0 || flow <= broadcast * heard(set) + TOLERANCE * broadcast {
            return Ok(solution.objective());
        }
        problem.add_constraint(members(set), ComparisonOp::Le, broadcast * heard(set));
    }
}

/// The set whose constraint is violated most, by trying all.
pub(super) fn by_trial(broadcast: f64, heard: &dyn Fn(u64) -> f64, rates: &[f64]) -> u64 {
    let excess = |set: u64| {
        let flow: f64 =
            rates.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1).map(|(_, rate)| rate).sum();
        flow - broadcast * heard(set)
    };
    let sets = 1..1_u64 << rates.len();
    sets.map(|set| (set, excess(set)))
        .max_by(|one, other| one.1.total_cmp(&other.1))
        .map_or(0, |(set, _)| set)
}

/// The same where losses are independent, beside those in common, in no more steps than there are neighbours.
///
/// With a = -ln(1 - p), the excess is the sum of x less B (1 - exp(-sum of a)): linear plus convex in the sum of a. So it is greatest at a vertex of what sets
/// reach in the plane of both sums, and those are the sets of the largest x / a.
pub(super) fn by_order(broadcast: f64, chances: &[f64], heard: &dyn Fn(u64) -> f64, rates: &[f64]) -> u64 {
    let value = |at: usize| {
        let (rate, chance) = (rates.get(at).copied().unwrap_or(0.0), chances.get(at).copied().unwrap_or(0.0));
        rate / -(1.0 - chance.min(1.0 - 1e-12)).ln().min(-1e-12)
    };
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|one, other| value(*other).total_cmp(&value(*one)));
    let (mut set, mut flow, mut best) = (0_u64, 0.0, (0_u64, 0.0));
    for at in order {
        set |= 1 << at;
        flow += rates.get(at).copied().unwrap_or(0.0);
        let excess = flow - broadcast * heard(set);
        if excess > best.1 {
            best = (set, excess);
        }
    }
    best.0
}

/// The broadcast bound of a neighbourhood at one of its bit rates, chunks a second; `uplinks` are chunks a second. Losses are those that were measured
/// together, where there are such; otherwise independent.
///
/// # Errors
/// As [`broadcast_bound`].
pub(super) fn neighbourhood_bound(
    spec: &NeighbourhoodSpec,
    rate: usize,
    broadcast: f64,
    uplinks: &[f64],
) -> anyhow::Result<f64> {
    let together = Heard(spec.sets(rate));
    if !together.0.is_empty() {
        return together_bound(broadcast, uplinks, &together);
    }
    let heard = |set: u64| spec.heard_by_any(set, rate);
    let chances: Vec<f64> = spec.neighbours.iter().map(|one| spec.own_chance(one, rate)).collect();
    let violated = |rates: &[f64]| match uplinks.len() <= ENUMERATED {
        true => by_trial(broadcast, &heard, rates),
        false => by_order(broadcast, &chances, &heard, rates),
    };
    broadcast_bound(broadcast, uplinks, &heard, &violated)
}

/// The bound for measured receptions, by constraints where all sets can be tried, which takes less time than [`measured_bound`] and gives the same.
fn together_bound(broadcast: f64, uplinks: &[f64], together: &Heard) -> anyhow::Result<f64> {
    if uplinks.len() > ENUMERATED {
        return measured_bound(broadcast, uplinks, together);
    }
    let by_any = together.by_any_of_all(uplinks.len());
    let heard = |set: u64| by_any.get(set as usize).copied().unwrap_or(0.0);
    broadcast_bound(broadcast, uplinks, &heard, &|rates| by_trial(broadcast, &heard, rates))
}

/// The bound for measured receptions, whatever their correlation.
///
/// Each set of neighbours that heard frames together is a node that its frames flow through to one of them; by the theorem of the greatest flow and the least
/// cut this is the program with a constraint for each set.
///
/// # Errors
/// If the solver finds no solution, which there always is.
pub(super) fn measured_bound(broadcast: f64, uplinks: &[f64], heard: &Heard) -> anyhow::Result<f64> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut through: Vec<Vec<_>> = vec![Vec::new(); uplinks.len()];
    for (set, part) in &heard.0 {
        let members = through.iter_mut().enumerate().filter(|(at, _)| set >> at & 1 == 1);
        let frames: Vec<_> = members
            .map(|(_, through)| {
                let flow = problem.add_var(1.0, (0.0, f64::INFINITY));
                through.push((flow, 1.0));
                (flow, 1.0)
            })
            .collect();
        problem.add_constraint(frames, ComparisonOp::Le, broadcast * part);
    }
    for (flows, uplink) in through.into_iter().zip(uplinks).filter(|(flows, _)| !flows.is_empty()) {
        problem.add_constraint(flows, ComparisonOp::Le, *uplink);
    }
    let solution = solved(&problem).context("solve the measured bound")?;
    Ok(solution.objective())
}

/// `[LINKALIKE] eq. 4-7`: the most unique chunks a second by unicast.
///
/// # Errors
/// If the solver finds no solution, which there always is.
pub(super) fn unicast_bound(broadcast: f64, uplinks: &[f64], chances: &[f64]) -> anyhow::Result<f64> {
    let mut problem = Problem::new(OptimizationDirection::Maximize);
    let mut sent = Vec::new();
    for (uplink, chance) in uplinks.iter().zip(chances) {
        let (x, z) = (problem.add_var(1.0, (0.0, *uplink)), problem.add_var(0.0, (0.0, f64::INFINITY)));
        problem.add_constraint([(x, 1.0), (z, -chance)], ComparisonOp::Le, 0.0);
        sent.push((z, 1.0));
    }
    problem.add_constraint(sent, ComparisonOp::Le, broadcast);
    let solution = solved(&problem).context("solve the unicast bound")?;
    Ok(solution.objective())
}

fn solved(problem: &Problem) -> anyhow::Result<Solution> {
    match problem.solve().map_err(|error| anyhow::anyhow!("the solver failed: {error:?}"))? {
        SolveOutcome::Solution(solution) => Ok(solution),
        SolveOutcome::Interrupted(_) => anyhow::bail!("the solver was interrupted"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::SeededRandom;
    use sim::neighbourhood::parse;

    fn random_spec(random: &mut SeededRandom, neighbours: usize) -> (NeighbourhoodSpec, Vec<f64>) {
        let one = |random: &mut SeededRandom| format!(" | 800/50 1 1 {:.3} 0", random.between(0.02, 1.0));
        let line: String = (0..neighbours).map(|_| one(random)).collect();
        let spec = parse(&format!("800/50{line}")).unwrap().remove(0);
        (spec, (0..neighbours).map(|_| random.between(5.0, 120.0)).collect())
    }

    /// All constraints at once, as the paper has it.
    fn full_bound(broadcast: f64, uplinks: &[f64], heard: &dyn Fn(u64) -> f64) -> f64 {
        let mut problem = Problem::new(OptimizationDirection::Maximize);
        let flows: Vec<_> = uplinks.iter().map(|uplink| problem.add_var(1.0, (0.0, *uplink))).collect();
        for set in 1..1_u64 << uplinks.len() {
            let inside = flows.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
            problem.add_constraint(
                inside.map(|(_, flow)| (*flow, 1.0)),
                ComparisonOp::Le,
                broadcast * heard(set),
            );
        }
        solved(&problem).unwrap().objective()
    }

    #[test]
    fn the_programs_agree_with_the_closed_form_where_all_are_alike() {
        for (broadcast, neighbours, chance) in [(2.0, 4, 0.3), (12.0, 10, 0.5), (40.0, 5, 0.7), (1.0, 1, 0.2)]
        {
            let (by_broadcast, by_unicast) = closed_form(broadcast, neighbours, 1.0, chance);
            let line = format!("1/1{}", format!(" | 1/1 0 0 {chance} 0").repeat(neighbours as usize));
            let spec = parse(&line).unwrap().remove(0);
            let uplinks = vec![1.0; neighbours as usize];
            let solved = neighbourhood_bound(&spec, 2, broadcast, &uplinks).unwrap();
            assert!((solved - by_broadcast).abs() < 1e-6, "{solved} {by_broadcast}");
            let solved = unicast_bound(broadcast, &uplinks, &vec![chance; neighbours as usize]).unwrap();
            assert!((solved - by_unicast).abs() < 1e-6, "{solved} {by_unicast}");
        }
    }

    #[test]
    fn generated_constraints_give_what_all_of_them_give() {
        let mut random = SeededRandom::new(5);
        for neighbours in [1, 2, 3, 5, 8, 10, 12] {
            let (mut spec, uplinks) = random_spec(&mut random, neighbours);
            for (common, broadcast) in [(0.0, 60.0), (0.0, 300.0), (0.2, 200.0)] {
                spec.common_loss = common;
                let heard = |set: u64| spec.heard_by_any(set, 2);
                let full = full_bound(broadcast, &uplinks, &heard);
                let tried = neighbourhood_bound(&spec, 2, broadcast, &uplinks).unwrap();
                let chances: Vec<f64> = spec.neighbours.iter().map(|one| spec.own_chance(one, 2)).collect();
                let violated = |rates: &[f64]| by_order(broadcast, &chances, &heard, rates);
                let ordered = broadcast_bound(broadcast, &uplinks, &heard, &violated).unwrap();
                assert!((full - tried).abs() < 1e-4 * full, "{neighbours}: {full} {tried}");
                assert!((full - ordered).abs() < 1e-4 * full, "{neighbours}: {full} {ordered}");
            }
        }
    }

    #[test]
    fn thirty_two_neighbours_are_solved() {
        let (spec, uplinks) = random_spec(&mut SeededRandom::new(6), 32);
        let bound = neighbourhood_bound(&spec, 2, 900.0, &uplinks).unwrap();
        assert!(bound > 500.0 && bound <= uplinks.iter().sum::<f64>().min(900.0) + 1e-3, "{bound}");
    }

    #[test]
    fn measured_sets_may_be_correlated() {
        // Two who hear the same half of the frames are worth one; two who share the frames out are worth both.
        let together = Heard(vec![(0b11, 0.5)]);
        let apart = Heard(vec![(0b01, 0.5), (0b10, 0.5)]);
        assert!((measured_bound(100.0, &[90.0, 90.0], &together).unwrap() - 50.0).abs() < 1e-6);
        assert!((measured_bound(100.0, &[90.0, 90.0], &apart).unwrap() - 100.0).abs() < 1e-6);
        let mut random = SeededRandom::new(7);
        for neighbours in [2, 4, 6] {
            let sets: Vec<(u64, f64)> = (0..9)
                .map(|_| (1 + random.next_u64() % ((1 << neighbours) - 1), random.between(0.02, 0.1)))
                .collect();
            let (heard, uplinks) = (Heard(sets), vec![20.0; neighbours]);
            let full = full_bound(100.0, &uplinks, &|set| heard.by_any(set));
            let measured = measured_bound(100.0, &uplinks, &heard).unwrap();
            assert!((full - measured).abs() < 1e-5, "{full} {measured}");
            let together = together_bound(100.0, &uplinks, &heard).unwrap();
            assert!((full - together).abs() < 1e-4, "{full} {together}");
        }
    }

    #[test]
    fn a_neighbourhood_with_measured_sets_has_the_bound_of_these() {
        let alike = "800/50 | 800/50 1 1 0.5 0 | 800/50 1 1 0.5 0\n";
        let bound = |sets: &str| {
            let spec = parse(&format!("{alike}{sets}")).unwrap().remove(0);
            neighbourhood_bound(&spec, 2, 100.0, &[90.0, 90.0]).unwrap()
        };
        for (sets, by_hand) in [
            ("", 75.0),
            ("set 5.5 0.5 0 1\n", 50.0),
            ("set 5.5 0.5 0\nset 5.5 0.5 1\n", 100.0),
            ("set 1 1 0 1\n", 75.0),
        ] {
            assert!((bound(sets) - by_hand).abs() < 1e-4, "{sets:?}: {}", bound(sets));
        }
    }

    #[test]
    fn many_sets_of_many_neighbours_are_solved() {
        let mut random = SeededRandom::new(8);
        for (neighbours, count) in [(10, 1_023), (15, 1_024), (24, 100)] {
            let sets =
                (0..count).map(|_| (1 + random.next_u64() % ((1 << neighbours) - 1), 1.0 / f64::from(count)));
            let heard = Heard(sets.collect());
            let uplinks: Vec<f64> = (0..neighbours).map(|_| random.between(5.0, 60.0)).collect();
            let bound = together_bound(300.0, &uplinks, &heard).unwrap();
            assert!(bound > 100.0 && bound <= uplinks.iter().sum::<f64>().min(300.0) + 1e-3, "{bound}");
        }
    }
}
