//! How much of a channel that others fill may go over the good access points of it, so that each of the others has as much as we have.
//!
//! Each access point has its turns at the air and divides them among its stations. Who uses two of them stands in two queues and has a part of each, so the
//! device is held to one station's part of what all have together, and to that part of each queue with which the others in it have theirs. But it need not
//! leave what a single flow over the better access point alone would have: somebody alone behind one may use all its turns (`[MULTIAP] section 6.5`: fair
//! is who takes no more than one TCP connection over the best).

use std::collections::BTreeSet;

use units::{Frequency, MacAddress};

use super::point::TRIAL_PACKETS;

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
/// No more others are counted, in all and in one queue: of those whom somebody invents, too.
const MOST_OTHERS: f64 = 8.0;
/// Who is not to use an access point beside a better one has this part of what is fair there all the same, or as many packets as a trial: else nothing would
/// be known of it.
const LEAST_PART: f64 = 0.05;
/// As much more as in all one has to give alone before it is the only one: chance may not change it to and fro.
const ONLY_ONE: f64 = 1.1;
/// The part of the air that is free above which parts grow fast, and below which they are held to what is found.
const FREE: f64 = 0.1;
const FULL: f64 = 0.02;
/// They follow what is found by this part in a step, or grow by this much: fast while air is free or nobody else is there ...
const NEWS: f64 = 0.3;
const FAST: f64 = 0.1;
/// ... slowly as long as less is carried than is fair ...
const SLOW: f64 = 0.02;
/// ... until they are so many times what is carried.
const NO_PART: f64 = 2.0;
/// Parts are told in steps of an eighth of an octave, as each change is told to the other end.
const STEPS_IN_OCTAVE: f64 = 8.0;

/// What is fair for one access point, packets a second; `None`: as much as it takes.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(super) struct FairPart(Option<f64>);

impl FairPart {
    /// Takes what was found, if anything; `spare`: the part of the air that is free now. Only who carries more than is fair is held to it.
    pub fn update(&mut self, steps: f64, spare: f64, carried: f64, found: Option<f64>) {
        let is_full = spare <= FULL;
        self.0 = match (self.0, found) {
            (before, Some(found)) if is_full && carried > found => {
                let before = before.unwrap_or(carried);
                Some(before + (found - before) * (NEWS * steps).min(1.0))
            }
            (Some(before), found) => {
                let growth = if found.is_none() || spare >= FREE { FAST } else { SLOW };
                let more = before * (1.0 + growth).powf(steps);
                (more < NO_PART * carried.max(1.0)).then_some(more)
            }
            (None, _) => None,
        };
    }

    /// In steps.
    pub fn packets(self) -> Option<f64> {
        Some(((self.0?.log2() * STEPS_IN_OCTAVE).round() / STEPS_IN_OCTAVE).exp2())
    }
}

/// The fair part of each of `ours`, packets a second, on a full channel; `None` if nobody else who wants more is there.
pub(super) fn parts(ours: &[Ours], others: &[(MacAddress, f64)]) -> Option<Vec<f64>> {
    let all =
        others.iter().map(|(_, packets)| *packets).chain(ours.iter().map(|one| one.carried)).sum::<f64>();
    let fair = one_part(all, others)?;
    let wanting: Vec<(MacAddress, f64)> =
        others.iter().filter(|(_, packets)| *packets >= WANTS_MORE * fair).copied().collect();
    let queues: Vec<Queue> = ours.iter().map(|one| Queue::new(one, &wanting, all)).collect();
    let transmitters =
        distinct(wanting.iter().map(|(one, _)| *one).chain(ours.iter().map(|one| one.access_point)));
    let rooms: Vec<f64> = queues.iter().map(|queue| queue.room(fair, transmitters)).collect();
    let room: f64 = rooms.iter().sum();
    let in_all = room.min(fair);
    let alone = queues.iter().map(Queue::one_flow).enumerate().max_by(|one, other| one.1.total_cmp(&other.1));
    let least = (LEAST_PART * fair).max(TRIAL_PACKETS);
    let (best, alone) = alone?;
    let is_only_one = alone > in_all * ONLY_ONE;
    let part = |(at, here): (usize, &f64)| match is_only_one {
        true => {
            if at == best {
                alone
            } else {
                0.0
            }
        }
        // What one flow would have, at least.
        false => here / room * in_all.max(alone),
    };
    Some(rooms.iter().enumerate().map(|one| part(one).max(least)).collect())
}

/// Packets a second of each who wants more, if all those have the same of `all`.
fn one_part(all: f64, others: &[(MacAddress, f64)]) -> Option<f64> {
    let mut packets: Vec<f64> = others.iter().map(|(_, packets)| *packets).collect();
    packets.sort_by(f64::total_cmp);
    let (mut rest, mut many) = (all, packets.len() as f64);
    for one in &packets {
        let fair = rest / (many.min(MOST_OTHERS) + 1.0);
        if *one >= WANTS_MORE * fair {
            return Some(fair);
        }
        (rest, many) = (rest - one, many - 1.0);
    }
    None
}

/// An access point of ours beside those of others.
struct Queue {
    /// Packets a second that it sends to those who want more, and to us.
    sent: f64,
    /// How many others wait in it.
    waiting: f64,
    /// Of all on the channel, and how many other transmitters there are.
    all: f64,
    rivals: usize,
}

impl Queue {
    fn new(one: &Ours, wanting: &[(MacAddress, f64)], all: f64) -> Self {
        let here = wanting.iter().filter(|(transmitter, _)| *transmitter == one.access_point);
        let packets: Vec<f64> = here.map(|(_, packets)| *packets).collect();
        let rivals = wanting.iter().map(|(transmitter, _)| *transmitter);
        Self {
            sent: one.carried + packets.iter().sum::<f64>(),
            waiting: (packets.len() as f64).min(MOST_OTHERS),
            all,
            rivals: distinct(rivals.filter(|transmitter| *transmitter != one.access_point)),
        }
    }

    /// Turns that it has if all have as many: who has nothing to send now would have them.
    fn turns(&self, transmitters: usize) -> f64 {
        self.sent.max(self.all / transmitters.max(1) as f64)
    }

    /// What is left in it if all others there have what is fair.
    fn room(&self, fair: f64, transmitters: usize) -> f64 {
        (self.turns(transmitters) - self.waiting * fair).max(0.0)
    }

    /// What one flow would have here that used no other.
    fn one_flow(&self) -> f64 {
        self.turns(self.rivals + 1) / (self.waiting + 1.0)
    }
}

fn distinct(addresses: impl Iterator<Item = MacAddress>) -> usize {
    addresses.collect::<BTreeSet<_>>().len()
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
        Some(parts.iter().map(|part| part.round()).collect())
    }

    /// `[MULTIAP] table 1`: 7, 7, 7 of 21, half of ours by each access point.
    #[test]
    fn two_queues_with_one_client_each_give_a_third_to_everybody() {
        assert_eq!(found(&[(1, 500.0), (2, 500.0)], &[(1, 550.0), (2, 550.0)]), Some(vec![350.0, 350.0]));
        // However it is shared now.
        assert_eq!(found(&[(1, 800.0), (2, 50.0)], &[(1, 250.0), (2, 1_000.0)]), Some(vec![350.0, 350.0]));
    }

    #[test]
    fn who_stands_in_one_queue_has_what_one_flow_has_there() {
        // Table 2, near the second: the first one is left alone, and who uses it has more than anybody in the other queue. Half of half of 2,090.
        assert_eq!(found(&[(2, 580.0)], &[(1, 1_070.0), (2, 440.0)]), Some(vec![523.0]));
        // Nobody else is behind the second, and there we have our half; in the first we would take from the other.
        assert_eq!(found(&[(1, 100.0), (2, 1_000.0)], &[(1, 900.0)]), Some(vec![50.0, 1_000.0]));
    }

    #[test]
    fn who_wants_little_is_not_counted() {
        let little = [(1, 500.0), (2, 500.0), (2, 20.0), (1, 10.0)];
        assert_eq!(found(&[(1, 500.0), (2, 500.0)], &little), Some(vec![333.0, 333.0]));
        assert_eq!(found(&[(1, 500.0)], &[(1, 10.0), (2, 10.0)]), None, "nobody wants more");
        assert_eq!(found(&[(1, 500.0)], &[]), None);
    }

    #[test]
    fn who_sends_by_itself_has_a_queue_of_its_own() {
        // Station 9 sends.
        assert_eq!(found(&[(1, 1_050.0)], &[(9, 1_050.0)]), Some(vec![1_050.0]));
        assert_eq!(found(&[(1, 500.0), (2, 500.0)], &[(9, 1_000.0)]), Some(vec![500.0, 500.0]));
    }

    /// Else who has been idle would stay so.
    #[test]
    fn what_is_fair_does_not_depend_on_what_is_carried() {
        assert_eq!(found(&[(1, 0.0), (2, 0.0)], &[(9, 1_000.0)]), Some(vec![250.0, 250.0]));
        assert_eq!(found(&[(1, 0.0)], &[(1, 1_000.0)]), Some(vec![500.0]));
        assert_eq!(found(&[(1, 0.0), (2, 0.0)], &[(1, 1_000.0)]), Some(vec![250.0, 250.0]));
    }

    #[test]
    fn a_crowd_leaves_a_ninth() {
        let crowd: Vec<(u8, f64)> = (0..20).map(|_| (1, 300.0)).collect();
        assert_eq!(found(&[(1, 3_000.0)], &crowd), Some(vec![1_000.0]));
    }

    /// Two access points of ours that always have something to send beside somebody else's, packet by packet; what is carried, of 1,000.
    fn beside_another(parts: &mut [FairPart; 2], wants: bool) -> [f64; 2] {
        let limits = parts.map(|part| part.packets().unwrap_or(f64::INFINITY));
        let carried = limits.map(|limit| if wants { limit.min(1_000.0 / 3.0) } else { 0.0 });
        let theirs = 1_000.0 - carried.iter().sum::<f64>();
        let ours: Vec<Ours> = [1, 2]
            .iter()
            .zip(carried)
            .map(|(number, carried)| Ours { access_point: ap(*number), carried })
            .collect();
        let found = super::parts(&ours, &[(ap(9), theirs)]).unwrap();
        for ((part, carried), found) in parts.iter_mut().zip(carried).zip(found) {
            part.update(1.0, -0.08, carried, Some(found));
        }
        carried
    }

    #[test]
    fn the_air_is_halved_with_somebody_else_also_after_a_pause() {
        let mut parts = [FairPart::default(); 2];
        let in_all = |parts: &mut _, wants| beside_another(parts, wants).iter().sum::<f64>();
        for _ in 0..3 {
            for _ in 0..20 {
                in_all(&mut parts, true);
            }
            let mean = (0..100).map(|_| in_all(&mut parts, true)).sum::<f64>() / 100.0;
            assert!((480.0..540.0).contains(&mean), "{mean}");
            for _ in 0..50 {
                in_all(&mut parts, false);
            }
            assert_eq!(parts, [FairPart(None); 2], "who wants nothing is held to nothing");
        }
    }

    #[test]
    fn a_part_holds_while_more_is_wanted_and_goes_when_the_air_is_free() {
        let mut part = FairPart::default();
        part.update(1.0, 0.5, 100.0, Some(50.0));
        assert_eq!(part.packets(), None, "air is free");
        part.update(1.0, -0.05, 40.0, Some(50.0));
        assert_eq!(part.packets(), None, "no more is wanted");
        (0..20).for_each(|_| part.update(1.0, -0.05, 100.0, Some(50.0)));
        (0..2).for_each(|_| part.update(1.0, -0.05, 49.0, Some(50.0)));
        let held = part.packets().unwrap();
        assert!((48.0..55.0).contains(&held), "{held}");
        let steps = (0..50).take_while(|_| {
            part.update(1.0, 0.3, 50.0, Some(50.0));
            part.packets().is_some()
        });
        // By hand: 52.1 * 1.1^6 = 92.2.
        assert_eq!(steps.count(), 6);
        // Others are gone, whatever the air is.
        (0..20).for_each(|_| part.update(1.0, -0.05, 100.0, Some(50.0)));
        (0..10).for_each(|_| part.update(1.0, -0.08, 50.0, None));
        assert_eq!(part.packets(), None);
    }

    #[test]
    fn absurd_numbers_give_no_absurd_part() {
        for value in [0.0, 1e-300, 1e7, f64::MAX] {
            let found = parts(&[Ours { access_point: ap(1), carried: 1e7 }], &[(ap(1), value), (ap(2), 1.0)]);
            let part = found.and_then(|parts| parts.first().copied());
            assert!(part.is_none_or(|part| part >= TRIAL_PACKETS), "{value}: {part:?}");
            let mut held = FairPart::default();
            (0..1_000).for_each(|_| held.update(10.0, -1.0, 1e7, part));
            assert!(held.packets().is_none_or(|packets| packets >= 9.0), "{value}: {held:?}");
        }
    }
}
