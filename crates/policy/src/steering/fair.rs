//! How much of a channel that others fill may go over the good access points of it, so that each of the others has as much as we have.
//!
//! Each access point has its turns at the air and divides them among its stations. Who uses two of them stands in two queues and has a part of each, so the
//! device is held to one station's part of what all have together, and to that part of each queue with which the others in it have theirs. But it need not
//! leave what a single flow over the better access point alone would have: somebody alone behind one may use all its turns (`[MULTIAP] section 6.5`: fair
//! is who takes no more than one TCP connection over the best).

use units::{Frequency, MacAddress};

use super::FULL_PACKET;

/// Somebody else who has a part of a channel's air.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sharer {
    /// The channel.
    pub channel: Frequency,
    /// In whose queue the packets are: an access point's for what it sends to this station, else the station's own.
    pub transmitter: MacAddress,
    /// Full packets in a second.
    pub packets: f64,
}

/// An access point that we use.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Ours {
    pub access_point: MacAddress,
    /// Full packets in a second.
    pub carried: f64,
}

/// Who has less than this part of what is fair wants no more, and takes part with what it has.
const WANTS_MORE: f64 = 0.25;
/// What is free before parts are given up ...
const GIVEN_UP: f64 = 0.1;
/// ... and below which they hold.
const HOLD: f64 = 0.02;
/// They follow what is found by this part in a step, and grow by this much in one while air is free ...
const NEWS: f64 = 0.3;
const GROWTH: f64 = 0.1;
/// ... until they are so many times what is carried.
const NO_PART: f64 = 2.0;
/// Parts are told in steps of an eighth of an octave, as each change is told to the other end.
const STEPS_IN_OCTAVE: f64 = 8.0;

/// What is fair for one access point, packets a second; `None`: as much as it takes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct FairPart(Option<f64>);

impl FairPart {
    /// Takes what was found, if anything; `spare`: the part of the air that is free now.
    pub fn update(&mut self, steps: f64, spare: f64, carried: f64, found: Option<f64>) {
        self.0 = match (self.0, found) {
            (before, Some(found)) if spare <= HOLD => {
                let before = before.unwrap_or(carried);
                Some(before + (found - before) * (NEWS * steps).min(1.0))
            }
            (Some(before), found) if found.is_none() || spare >= GIVEN_UP => {
                let more = before * (1.0 + GROWTH).powf(steps);
                (more < NO_PART * carried.max(1.0)).then_some(more)
            }
            (before, _) => before,
        };
    }

    /// In steps.
    pub fn packets(self) -> Option<f64> {
        let least = 1.0 / FULL_PACKET.0 as f64;
        Some(((self.0?.max(least).log2() * STEPS_IN_OCTAVE).round() / STEPS_IN_OCTAVE).exp2())
    }
}

/// The fair part of each of `ours`, packets a second, on a full channel; `None` if nobody else is there.
pub(super) fn parts(ours: &[Ours], others: &[(MacAddress, f64)]) -> Option<Vec<f64>> {
    let fair = one_part(ours, others)?;
    let rooms: Vec<(f64, f64)> = ours.iter().map(|one| room(one, fair, others)).collect();
    let room: f64 = rooms.iter().map(|(room, _)| room).sum();
    let in_all = room.min(fair);
    let alone =
        rooms.iter().map(|(_, alone)| *alone).enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
    let (best, alone) = alone?;
    if alone >= in_all {
        return Some((0..ours.len()).map(|at| if at == best { alone } else { 0.0 }).collect());
    }
    Some(rooms.iter().map(|(one, _)| one / room * in_all).collect())
}

/// Packets a second of each who wants more, if all those have the same.
fn one_part(ours: &[Ours], others: &[(MacAddress, f64)]) -> Option<f64> {
    let mut all: Vec<f64> = others.iter().map(|(_, packets)| *packets).collect();
    all.sort_by(f64::total_cmp);
    let mut rest = all.iter().sum::<f64>() + ours.iter().map(|one| one.carried).sum::<f64>();
    let mut many = all.len() as f64 + 1.0;
    for one in &all {
        if *one >= WANTS_MORE * rest / many {
            return Some(rest / many);
        }
        (rest, many) = (rest - one, many - 1.0);
    }
    None
}

/// What is left in this access point's queue if all others there who want more have what is `fair`, and what one flow of ours would have there if it used no
/// other.
fn room(one: &Ours, fair: f64, others: &[(MacAddress, f64)]) -> (f64, f64) {
    let here = others.iter().filter(|(transmitter, _)| *transmitter == one.access_point);
    let wanting: Vec<f64> =
        here.map(|(_, packets)| *packets).filter(|packets| *packets >= WANTS_MORE * fair).collect();
    let many = wanting.len() as f64;
    let turns = one.carried + wanting.iter().sum::<f64>();
    ((turns - many * fair).max(0.0), turns / (many + 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ap(number: u8) -> MacAddress {
        MacAddress([2, 0, 0, 0, 1, number])
    }

    fn found(ours: &[(u8, f64)], others: &[(u8, f64)]) -> Option<Vec<f64>> {
        let ours: Vec<Ours> =
            ours.iter().map(|&(number, carried)| Ours { access_point: ap(number), carried }).collect();
        let others: Vec<_> = others.iter().map(|&(number, packets)| (ap(number), packets)).collect();
        let parts = parts(&ours, &others)?;
        Some(parts.iter().map(|part| (part * 10.0).round() / 10.0).collect())
    }

    /// `[MULTIAP] table 1`: 7, 7, 7 of 21, half of ours by each access point.
    #[test]
    fn two_queues_with_one_client_each_give_a_third_to_everybody() {
        assert_eq!(found(&[(1, 5.0), (2, 5.0)], &[(1, 5.5), (2, 5.5)]), Some(vec![3.5, 3.5]));
        // However it is shared now.
        assert_eq!(found(&[(1, 8.0), (2, 0.5)], &[(1, 2.5), (2, 10.0)]), Some(vec![3.5, 3.5]));
    }

    #[test]
    fn who_stands_in_one_queue_has_what_one_flow_has_there() {
        // Table 2, near the second: the first one is left alone, and who uses it has more than anybody in the other queue.
        assert_eq!(found(&[(2, 5.8)], &[(1, 10.7), (2, 4.4)]), Some(vec![5.1]));
        // Nobody else is behind the second: one flow there would have all its turns.
        assert_eq!(found(&[(1, 1.0), (2, 10.0)], &[(1, 9.0)]), Some(vec![0.0, 10.0]));
    }

    #[test]
    fn who_wants_little_is_not_counted() {
        assert_eq!(
            found(&[(1, 5.0), (2, 5.0)], &[(1, 5.0), (2, 5.0), (2, 0.2), (1, 0.1)]),
            Some(vec![3.3, 3.3])
        );
        assert_eq!(found(&[(1, 5.0)], &[(1, 0.1), (2, 0.1)]), None, "nobody wants more");
        assert_eq!(found(&[(1, 5.0)], &[]), None);
    }

    #[test]
    fn somebody_who_sends_by_itself_has_a_queue_of_its_own() {
        // Station 9 sends; of 21 everybody has 7, and there is nobody else in our access point's queue.
        assert_eq!(found(&[(1, 10.5)], &[(9, 10.5)]), Some(vec![10.5]), "one flow would have these turns");
        assert_eq!(found(&[(1, 5.0), (2, 5.0)], &[(9, 10.0)]), Some(vec![5.0, 5.0]), "as good as one");
    }

    #[test]
    fn a_part_holds_while_the_air_is_full_and_goes_when_it_is_free() {
        let mut part = FairPart::default();
        part.update(1.0, 0.5, 100.0, Some(50.0));
        assert_eq!(part.packets(), None, "air is free");
        (0..20).for_each(|_| part.update(1.0, -0.05, 100.0, Some(50.0)));
        let held = part.packets().unwrap();
        assert!((48.0..53.0).contains(&held), "{held}");
        part.update(1.0, 0.05, 50.0, Some(80.0));
        assert_eq!(part.packets(), Some(held), "in between nothing changes");
        let steps = (0..50).take_while(|_| {
            part.update(1.0, 0.3, 50.0, Some(50.0));
            part.packets().is_some()
        });
        // By hand: 1.1^8 = 2.14.
        assert_eq!(steps.count(), 7);
        // Others are gone, whatever the air is.
        (0..20).for_each(|_| part.update(1.0, -0.05, 100.0, Some(50.0)));
        (0..10).for_each(|_| part.update(1.0, -0.08, 50.0, None));
        assert_eq!(part.packets(), None);
    }

    #[test]
    fn absurd_numbers_give_no_absurd_part() {
        for value in [0.0, f64::NAN, f64::INFINITY, -1.0] {
            let _ = parts(&[Ours { access_point: ap(1), carried: value }], &[(ap(1), value), (ap(2), 1.0)]);
            let mut part = FairPart::default();
            part.update(1.0, -1.0, value, Some(value));
            let _ = part.packets();
        }
    }
}
