//! Who carries what.

use units::Timestamp;
use wire::upload::{Chunk, Member};

use super::{Arrival, Destination, Held, bit, members_of};
use crate::ranges::RangeSet;
use crate::settings::Assignment;

/// Of so many chunks that a neighbour has had longest, the one that others need least is chosen.
const LOOK_AHEAD: usize = 16;
/// So many candidates may be out of date.
const OUT_OF_DATE: usize = 1_024;
/// Second copies are sent only if they come sooner by this, seconds.
const WORTH: f64 = 0.05;
/// A way there and back of the wire, seconds: what a second copy takes beyond its place in the queue, until a grant has arrived.
const GRANT_TIME: f64 = 0.1;

impl Destination {
    /// Gives all neighbours with room something to carry.
    pub(super) fn assign_all(&mut self, now: Timestamp) {
        if !self.schedules() {
            return;
        }
        if self.free > 0 {
            for member in self.with_room(now) {
                while self.has_room(now, member) {
                    let Some(chunk) = self.choose(member) else { break };
                    self.grant(now, member, chunk);
                }
            }
        }
        if self.settings.second_copies
            && self.free == 0
            && self.granted > 0
            && self.stored.count() + self.granted >= self.chunks
        {
            self.copy_the_last(now);
        }
    }

    /// A chunk is stored: takes it back from all who were to carry it or could have. Whom it came from needs no telling.
    pub(super) fn release(&mut self, chunk: Chunk, held: Held, from: Arrival) {
        for carrier in members_of(held.carriers) {
            if let Some(record) = self.record_mut(carrier) {
                record.take_back(chunk);
                if from != Arrival::By(carrier) {
                    record.orders.withdrawn.insert(chunk);
                }
            }
        }
        if held.carriers != 0 {
            self.granted -= 1;
        } else if held.holders != 0 {
            self.free -= 1;
            self.change_free(held.holders, -1);
        }
    }

    /// A neighbour does not carry a chunk any more.
    pub(super) fn take_back(&mut self, member: Member, chunk: Chunk) {
        if let Some(record) = self.record_mut(member) {
            record.take_back(chunk);
        }
        let stored = self.stored.contains(chunk);
        let Some(held) = self.table.reach(chunk).filter(|held| held.carriers & bit(member) != 0) else {
            return;
        };
        held.carriers &= !bit(member);
        let (carriers, holders) = (held.carriers, held.holders);
        if carriers != 0 || stored {
            return;
        }
        self.granted -= 1;
        self.free += u32::from(holders != 0);
        for holder in members_of(holders) {
            if let Some(record) = self.record_mut(holder) {
                record.free += 1;
                record.candidates.push_front(chunk);
            }
        }
    }

    /// A neighbour does not have a chunk any more, or never had.
    pub(super) fn unhold(&mut self, member: Member, chunk: Chunk) {
        let stored = self.stored.contains(chunk);
        let Some(held) = self.table.reach(chunk).filter(|held| held.holders & bit(member) != 0) else {
            return;
        };
        held.holders &= !bit(member);
        let (holders, free) = (held.holders, held.carriers == 0);
        if let Some(record) = self.record_mut(member) {
            record.free = record.free.saturating_sub(u32::from(free));
            // Both know the same: what it still has it may hear and report anew.
            record.orders.forget.insert(chunk);
        }
        if holders == 0 && !stored {
            self.free -= u32::from(free);
            self.news.lost.insert(chunk);
            self.news.held.remove(chunk);
        }
    }

    /// Takes everything back that a neighbour had, when it is gone.
    pub(super) fn forget_holdings(&mut self, member: Member) {
        let concerned = |held: &Held| (held.holders | held.carriers) & bit(member) != 0;
        let mut chunks: Vec<Chunk> = Vec::new();
        for (chunk, held) in self.table.iter_mut() {
            held.garblers &= !bit(member);
            if concerned(held) {
                chunks.push(chunk);
            }
        }
        // What is put in front last comes first.
        for chunk in chunks.into_iter().rev() {
            self.take_back(member, chunk);
            self.unhold(member, chunk);
        }
        if let Some(record) = self.record_mut(member) {
            record.candidates.clear();
        }
    }

    /// Looks after a neighbour: one that is silent loses what it was to carry, then all that it claims to have.
    pub(super) fn check(&mut self, now: Timestamp, member: Member) {
        let Some(record) = self.record_mut(member).filter(|record| record.is_stalled(now)) else { return };
        record.strike(now);
        record.busy_since = None;
        let (again, granted) = (record.strikes > 1, Vec::from(record.outstanding.clone()));
        record.standing.break_word(now, 1);
        if let Some(report) = self.reports.get_mut(usize::from(member.number())) {
            report.stalls += 1;
        }
        if again {
            self.forget_holdings(member);
        } else {
            self.take_away(now, member, &granted);
        }
    }

    /// A neighbour does not have what it was to carry; who is not believed any more has nothing.
    pub(super) fn take_away(&mut self, now: Timestamp, member: Member, chunks: &[Chunk]) {
        for chunk in chunks.iter().rev() {
            self.take_back(member, *chunk);
            self.unhold(member, *chunk);
        }
        if !chunks.is_empty() && !self.record(member).is_some_and(|record| record.standing.is_believed(now)) {
            self.forget_holdings(member);
        }
    }

    /// What was granted to somebody, stored or forgotten stands among the candidates until it is come across: not more of it than of others.
    pub(super) fn shorten_candidates(&mut self, member: Member) {
        let Some(record) = self.record_mut(member) else { return };
        if record.candidates.len() <= 2 * record.free as usize + OUT_OF_DATE {
            return;
        }
        let mut candidates = std::mem::take(&mut record.candidates);
        let mut kept = RangeSet::default();
        let open = |chunk: Chunk| {
            self.table.get(chunk).is_some_and(|held| held.carriers == 0 && held.holders & bit(member) != 0)
        };
        candidates.retain(|chunk| open(*chunk) && kept.insert(*chunk));
        if let Some(record) = self.record_mut(member) {
            record.candidates = candidates;
        }
    }

    fn with_room(&self, now: Timestamp) -> Vec<Member> {
        let members = self.present();
        members.into_iter().filter(|member| self.has_room(now, *member)).collect()
    }

    fn has_room(&self, now: Timestamp, member: Member) -> bool {
        self.record(member)
            .is_some_and(|record| record.free > 0 && record.outstanding.len() < record.grantable(now))
    }

    /// The next chunk for a neighbour; takes it out of its candidates.
    fn choose(&mut self, member: Member) -> Option<Chunk> {
        let look_ahead = match self.settings.assignment {
            Assignment::FirstCome => 1,
            Assignment::LeastNeeded => LOOK_AHEAD,
        };
        let record = self.members.get_mut(usize::from(member.number()))?.as_mut()?;
        let mut candidates = std::mem::take(&mut record.candidates);
        let open = |chunk: Chunk| {
            let held = self.table.get(chunk).copied().unwrap_or_default();
            (held.carriers == 0 && held.holders & bit(member) != 0).then_some(held.holders)
        };
        let mut best: Option<(usize, f64)> = None;
        let mut at = 0;
        while at < candidates.len().min(look_ahead) {
            let Some(holders) = candidates.get(at).and_then(|chunk| open(*chunk)) else {
                // Out of date. At the front it costs nothing to remove; deeper down the few in front of it are moved.
                candidates.remove(at);
                continue;
            };
            let need = self.need(holders & !bit(member));
            if best.is_none_or(|(_, least)| need < least) {
                best = Some((at, need));
            }
            if need == 0.0 {
                break;
            }
            at += 1;
        }
        let chosen = best.and_then(|(at, _)| candidates.remove(at));
        if let Some(record) = self.record_mut(member) {
            record.candidates = candidates;
        }
        chosen
    }

    /// How much others need a chunk that they have: little if they have plenty beside it.
    fn need(&self, holders: u64) -> f64 {
        members_of(holders)
            .filter_map(|holder| self.record(holder))
            .filter(|record| record.strikes == 0)
            .map(|record| 1.0 / (1.0 + f64::from(record.free)))
            .sum()
    }

    fn change_free(&mut self, holders: u64, change: i32) {
        for holder in members_of(holders) {
            if let Some(record) = self.record_mut(holder) {
                record.free = record.free.saturating_add_signed(change);
            }
        }
    }

    fn grant(&mut self, now: Timestamp, member: Member, chunk: Chunk) {
        let Some(held) = self.table.reach(chunk) else { return };
        let (first, holders) = (held.carriers == 0, held.holders);
        held.carriers |= bit(member);
        if first {
            self.granted += 1;
            self.free -= 1;
            self.change_free(holders, -1);
        }
        if let Some(record) = self.record_mut(member) {
            record.outstanding.push_back(chunk);
            record.orders.carry.push(chunk);
            record.busy_since.get_or_insert(now);
        }
    }

    /// Nothing is left but what is under way: whoever has room carries a second copy of what would come later by its first.
    fn copy_the_last(&mut self, now: Timestamp) {
        let mut late: Vec<(f64, Chunk)> = Vec::new();
        for record in self.members.iter().flatten() {
            let places = record.outstanding.iter().enumerate();
            late.extend(places.map(|(place, chunk)| (record.arrival(now, place), *chunk)));
        }
        late.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let mut spare = self.news.spare.count();
        for (due, chunk) in late {
            let Some(held) = self.table.get(chunk).copied().filter(|held| held.carriers.count_ones() < 2)
            else {
                continue;
            };
            let sooner = members_of(held.holders & !held.carriers)
                .filter_map(|member| {
                    let record = self.record(member)?;
                    let place = record.outstanding.len();
                    let arrival = record.arrival(now, place) + GRANT_TIME;
                    (place < record.grantable(now) && arrival + WORTH < due).then_some((arrival, member))
                })
                .min_by(|one, other| one.0.total_cmp(&other.0));
            let own_rate = self.own.rate();
            let own = if own_rate > 0.0 {
                now.as_secs_f64() + GRANT_TIME + (spare + 1) as f64 / own_rate
            } else {
                f64::INFINITY
            };
            match sooner {
                Some((arrival, member)) if arrival <= own => self.grant(now, member, chunk),
                _ if own + WORTH < due && !self.copied.contains(chunk) => {
                    self.copied.insert(chunk);
                    self.news.spare.insert(chunk);
                    spare += 1;
                }
                _ => {}
            }
        }
    }
}
