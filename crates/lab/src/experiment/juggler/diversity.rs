//! What JUGGLER's section 7 proposes: error correction over two access points between which one radio is switched, against the same over
//! one. A model: only the losses of the air and the radio's turns are in it.
//!
//! ```text
//! packets -- code --> symbols -- dealt out --> access point A: kept while the radio is away, sent in its slot, lost in bad times
//!                                          \-> access point B: the same
//! ```

use super::id;
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};
use sim::SeededRandom;

/// Packets a second, of which each has to be there within the deadline, as a call or a live film sends them.
const PACKETS_A_SECOND: f64 = 200.0;
const SECONDS: f64 = 4_000.0;
/// Longer than a cycle of two slots and a block.
const DEADLINE: f64 = 0.4;
/// The radio's stay with each access point.
const SLOT: f64 = 0.1;
/// Mean length of bad times, in seconds: of interference, of somebody in the way, of a corner.
const BAD_TIMES: [f64; 3] = [0.02, 0.1, 0.5];
/// Part of the time that is bad, and part of the frames then lost, all repeats of the card included.
const BAD_PART: f64 = 0.05;
const LOST_IN_BAD: f64 = 0.7;
/// Packets that are coded together, and the symbols that come of them: as the bond's `protected` does it, and twice as much.
const CODES: [(&str, usize, usize); 2] = [("xor", 8, 9), ("half", 8, 16)];

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    spec.insert(
        "model".into(),
        "two access points with independent losses; one radio, with one of them all the time or in turns"
            .into(),
    );
    spec.insert("packets_a_second".into(), PACKETS_A_SECOND.into());
    spec.insert("seconds".into(), SECONDS.into());
    spec.insert("deadline_s".into(), DEADLINE.into());
    spec.insert("slot_s".into(), SLOT.into());
    spec.insert("bad_times_s".into(), BAD_TIMES.map(toml::Value::from).to_vec().into());
    spec.insert("bad_part".into(), BAD_PART.into());
    spec.insert("lost_in_bad".into(), LOST_IN_BAD.into());
    spec.insert(
        "xor".into(),
        "8 packets and their sum, as the bond's treatment `protected`: any one of the 9 may be lost".into(),
    );
    spec.insert("half".into(), "16 symbols of 8 packets, of which any 8 suffice".into());
    spec.insert("repeat".into(), "no code: what is lost is sent once more, over the other access point where there are two; air time in `repeat.air`".into());
    let names = CODES.map(|(name, _, _)| name);
    let mut goals = Vec::new();
    let mut bars = Vec::new();
    for bad in BAD_TIMES {
        let case = case(bad);
        goals.extend(names.map(|code| Goal::at_most(format!("{case}.{code}.two_over_one"), 1.0)));
        bars.push(BarGroup {
            label: format!("{:.0} ms bad", bad * 1e3),
            bars: ["none", "xor", "half", "repeat"]
                .into_iter()
                .flat_map(|code| {
                    ["one", "two"]
                        .map(|way| (format!("{code}, {way}"), format!("{case}.{code}.{way}_percent")))
                })
                .collect(),
        });
    }
    Experiment {
        id: id("fec-diversity"),
        title: "packets late or lost with error correction over one access point and over two by one radio, at equal air time".to_owned(),
        spec,
        paper: Some("section 7 proposes it as an extension; no figure".to_owned()),
        goals,
        beds: vec![Bed::Sim],
        bars,
        unit: "% lost or late",
        axes: Axes::default(),
        runner: Box::new(|_, seed| Ok(run(seed))),
    }
}

fn case(bad: f64) -> String {
    format!("bad_{:.0}ms", bad * 1e3)
}

fn run(seed: u64) -> Report {
    let mut metrics = Metrics::new();
    for bad in BAD_TIMES {
        let case = case(bad);
        let air =
            [0, 1].map(|point| Air::new(bad, &mut SeededRandom::derive(seed, &format!("{case} {point}"))));
        let mut put =
            |name: String, value: f64| metrics.insert(format!("{case}.{name}"), (value * 1e4).round() / 1e4);
        let coded = [("none", 1, 1)].into_iter().chain(CODES);
        for (code, packets, symbols) in coded {
            let lost = [1, 2].map(|points| {
                let mut chance = SeededRandom::derive(seed, &format!("{case} {code} {points}"));
                missed(&air[..points], packets, symbols, &mut chance)
            });
            put_pair(&mut put, code, lost);
        }
        let mut air_times = [0.0; 2];
        let lost = [1, 2].map(|points| {
            let mut chance = SeededRandom::derive(seed, &format!("{case} repeat {points}"));
            let (lost, sent) = repeated(&air[..points], &mut chance);
            air_times[points - 1] = sent;
            lost
        });
        put_pair(&mut put, "repeat", lost);
        put("repeat.air".to_owned(), air_times[1]);
    }
    Report { metrics, ..Report::default() }
}

fn put_pair(put: &mut impl FnMut(String, f64) -> Option<f64>, code: &str, [one, two]: [f64; 2]) {
    put(format!("{code}.one_percent"), one * 100.0);
    put(format!("{code}.two_percent"), two * 100.0);
    put(format!("{code}.two_over_one"), if one > 0.0 { two / one } else { 1.0 });
}

/// The losses between the radio and one access point: good and bad times, each of a length drawn from an exponential distribution.
struct Air {
    /// When each bad time begins and ends.
    bad: Vec<(f64, f64)>,
}

impl Air {
    fn new(mean_bad: f64, chance: &mut SeededRandom) -> Self {
        let mean_good = mean_bad * (1.0 - BAD_PART) / BAD_PART;
        let mut drawn = |mean: f64| -mean * (1.0 - chance.unit()).ln();
        let (mut bad, mut now) = (Vec::new(), 0.0);
        while now < SECONDS + 10.0 {
            let begin = now + drawn(mean_good);
            now = begin + drawn(mean_bad);
            bad.push((begin, now));
        }
        Self { bad }
    }

    /// Whether a frame at `at` is lost.
    fn loses(&self, at: f64, chance: &mut SeededRandom) -> bool {
        let next = self.bad.partition_point(|(_, end)| *end <= at);
        self.bad.get(next).is_some_and(|(begin, _)| *begin <= at) && chance.chance(LOST_IN_BAD)
    }
}

/// When a symbol that is ready at `ready` is on the air by access point `point` of so many: at once, or in its next slot.
fn sent(ready: f64, point: usize, points: usize) -> f64 {
    let cycle = SLOT * points as f64;
    let begin = (ready / cycle).floor() * cycle + SLOT * point as f64;
    if ready < begin {
        begin
    } else if ready < begin + SLOT {
        ready
    } else {
        begin + cycle
    }
}

/// Part of the packets that are not there within the deadline. Blocks of `packets` packets become `symbols`, the packets themselves and what is
/// computed from them when the last one is there, dealt out to the access points in turn.
fn missed(air: &[Air], packets: usize, symbols: usize, chance: &mut SeededRandom) -> f64 {
    let blocks = (SECONDS * PACKETS_A_SECOND) as usize / packets;
    let mut missed = 0_u64;
    for block in 0..blocks {
        let made = |packet: usize| (block * packets + packet) as f64 / PACKETS_A_SECOND;
        let mut arrivals: Vec<f64> = Vec::with_capacity(symbols);
        let mut own = vec![f64::INFINITY; packets];
        for symbol in 0..symbols {
            let point = (block + symbol) % air.len();
            let at = sent(made(symbol.min(packets - 1)), point, air.len());
            if !air[point].loses(at, chance) {
                arrivals.push(at);
                if let Some(own) = own.get_mut(symbol) {
                    *own = at;
                }
            }
        }
        arrivals.sort_by(f64::total_cmp);
        let whole = arrivals.get(packets - 1).copied().unwrap_or(f64::INFINITY);
        let late = |packet: usize| own[packet].min(whole) > made(packet) + DEADLINE;
        missed += (0..packets).filter(|packet| late(*packet)).count() as u64;
    }
    missed as f64 / (blocks * packets) as f64
}

/// The same without a code, where a lost packet is sent once more, in the next slot of the other access point or, with one, a slot later; and how
/// often packets were sent on average.
fn repeated(air: &[Air], chance: &mut SeededRandom) -> (f64, f64) {
    let packets = (SECONDS * PACKETS_A_SECOND) as usize;
    let (mut missed, mut times) = (0_u64, 0_u64);
    for packet in 0..packets {
        let made = packet as f64 / PACKETS_A_SECOND;
        let point = packet % air.len();
        let at = sent(made, point, air.len());
        times += 1;
        if !air[point].loses(at, chance) {
            missed += u64::from(at > made + DEADLINE);
            continue;
        }
        times += 1;
        let other = (point + 1) % air.len();
        let again = sent(at + SLOT, other, air.len());
        missed += u64::from(air[other].loses(again, chance) || again > made + DEADLINE);
    }
    (missed as f64 / packets as f64, times as f64 / packets as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_waits_for_its_slot() {
        assert_eq!(sent(0.03, 0, 1), 0.03);
        assert_eq!(sent(0.03, 0, 2), 0.03);
        assert_eq!(sent(0.03, 1, 2), 0.1);
        assert!((sent(0.13, 0, 2) - 0.2).abs() < 1e-9);
        assert!((sent(0.39, 0, 2) - 0.4).abs() < 1e-9);
    }

    #[test]
    fn a_code_over_two_outlives_the_loss_of_one() {
        let mut chance = SeededRandom::new(1);
        let (dead, well) = (Air { bad: vec![(0.0, f64::MAX)] }, Air { bad: Vec::new() });
        let air = [dead, well];
        // Of the 16 symbols 8 go by the one that loses nothing, and a few by the other.
        assert!(missed(&air, 8, 16, &mut chance) < 1e-9);
        let half = missed(&air, 1, 1, &mut chance);
        assert!((half - LOST_IN_BAD / 2.0).abs() < 0.01, "{half}");
        let (lost, times) = repeated(&air, &mut chance);
        assert!(
            lost < LOST_IN_BAD * LOST_IN_BAD && (times - 1.0 - LOST_IN_BAD / 2.0).abs() < 0.01,
            "{lost} {times}"
        );
    }
}
