//! One source with its own uplink, and its transfer's part of the destination.

use std::collections::BTreeMap;

use units::Timestamp;
use upload::{Arrival, BitRates, Destination, RangeSet, Source};
use wire::upload::{Chunk, Member, RateIndex};

use super::super::super::spec::{NeighbourhoodSpec, RATES, air_times};
use super::super::super::uplink::Uplink;
use super::super::{Outcome, Transfer};

pub(super) struct Party {
    pub(super) number: wire::upload::Transfer,
    pub(super) chunks: u32,
    pub(super) source: Source,
    pub(super) own: Uplink,
    pub(super) own_connected: bool,
    /// Counts the source's connections: what belongs to an earlier one is void.
    pub(super) own_life: u32,
    pub(super) destination: Destination,
    pub(super) source_timer: Timestamp,
    pub(super) destination_timer: Timestamp,
    pub(super) outcome: Outcome,
    /// How well each home hears this source, if a frame is not lost to all.
    pub(super) chances: Vec<[f64; 4]>,
    contents: BTreeMap<Chunk, u64>,
    known_receptions: Vec<[f64; 4]>,
}

impl Party {
    pub(super) fn new(transfer: &Transfer, number: usize, spec: &NeighbourhoodSpec, chunks: u32) -> Self {
        let (now, settings) = (Timestamp::ZERO, transfer.settings);
        let id = wire::upload::Transfer(number as u64 + 1);
        let own = Uplink::new(spec.own);
        let window = if transfer.own_uplink { own.window() + 2 } else { 0 };
        // The list of `air_times` is neither empty nor too long, so the other branch is never taken.
        let rates =
            BitRates::new(air_times().to_vec()).unwrap_or_else(|| unreachable!("four rates that take time"));
        let chance = |neighbour| {
            let chances = (0..RATES.len()).map(|rate| spec.own_chance(neighbour, rate)).collect::<Vec<_>>();
            [0, 1, 2, 3].map(|rate| chances.get(rate).copied().unwrap_or(0.0))
        };
        let known = spec.neighbours.iter().map(|neighbour| neighbour.reception);
        Self {
            number: id,
            chunks,
            source: Source::new(now, settings, id, chunks, RangeSet::default(), rates, window),
            own,
            own_connected: true,
            own_life: 0,
            destination: Destination::new(now, settings, id, chunks, RangeSet::default()),
            source_timer: Timestamp::FAR_FUTURE,
            destination_timer: Timestamp::FAR_FUTURE,
            outcome: Outcome::default(),
            chances: spec.neighbours.iter().map(chance).collect(),
            contents: BTreeMap::new(),
            known_receptions: if transfer.known_receptions { known.collect() } else { Vec::new() },
        }
    }

    /// What is known from before of how well a home hears this source.
    pub(super) fn hint(&mut self, home: usize, member: Member) {
        const FRAMES: f64 = 500.0;
        let known = self.known_receptions.get(home).into_iter().flatten();
        for (rate, chance) in known.enumerate() {
            let heard = (chance * FRAMES).round() as u32;
            self.source.set_reception(member, RateIndex(rate as u8), FRAMES as u32, heard);
        }
    }

    /// A home is no member any more.
    pub(super) fn leave(&mut self, now: Timestamp, member: Member) {
        self.outcome.credited += self.destination.member_report(member).brought;
        self.destination.leave(now, member);
    }

    pub(super) fn arrive(
        &mut self,
        now: Timestamp,
        from: Arrival,
        chunk: Chunk,
        content: u64,
        genuine: bool,
    ) {
        if !genuine {
            self.destination.handle_refused(now, from, chunk);
            return;
        }
        if self.destination.wants(chunk) {
            self.contents.insert(chunk, content);
            let tenth = (now.as_micros() / 100_000) as usize;
            if self.outcome.arrivals.len() <= tenth {
                self.outcome.arrivals.resize(tenth + 1, 0);
            }
            if let Some(count) = self.outcome.arrivals.get_mut(tenth) {
                *count += 1;
            }
        }
        self.destination.handle_stored(now, from, chunk);
    }

    pub(super) fn note_haste(&mut self, now: Timestamp, next: Option<Timestamp>) {
        self.outcome.hasty += u32::from(next.is_some_and(|next| next <= now));
    }

    /// How it went; `members` are the homes that are connected at the end.
    pub(super) fn into_outcome(mut self, members: impl Iterator<Item = Option<Member>>) -> Outcome {
        let reports = members.map(|member| member.map(|member| self.destination.member_report(member)));
        self.outcome.neighbours = reports.map(Option::unwrap_or_default).collect();
        self.outcome.credited += self.outcome.neighbours.iter().map(|report| report.brought).sum::<u32>();
        self.outcome.own_chunks = self.destination.own_chunks();
        if self.outcome.took.is_some() {
            self.outcome.contents = self.contents.into_values().collect();
        }
        self.outcome
    }
}
