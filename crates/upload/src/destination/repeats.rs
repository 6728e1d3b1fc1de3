//! Two hops (`[LINKALIKE] VII`, "Multi-hop"): who repeats on the air what others cannot hear from the source.
//!
//! A neighbour that the source does not reach, or hardly, is *far*: its uplink is idle unless somebody repeats for it. **The rule**: repeats are asked for only
//! while a far neighbour has less than it carries until more can come, no neighbour that the source reaches has less than fills its window (else the source's
//! own frames are what is missing, and the air is the bottleneck), and the repeater has more chunks than its own uplink needs. Who is heard by the far ones is
//! not known: it is learned by trying and counting which repeated chunks they report.

use std::collections::VecDeque;
use std::time::Duration;

use units::Timestamp;
use wire::upload::{Chunk, MAX_MEMBERS, Member};

use super::member::MemberRecord;
use super::{Destination, bit};

/// Who tells of no frame of the source for so long does not hear it.
const DEAF: Duration = Duration::from_secs(1);
/// A repeated chunk that nobody reports within it was not heard: an order, the air, a report.
const AWAITED: Duration = Duration::from_millis(500);
/// Chunks that are repeated and awaited at a time, at most.
const MOST_AWAITED: usize = 128;
/// Chunks of one order.
const BATCH: usize = 16;
/// A far neighbour should have so many windows: order, air, report and grant take about two.
const FULL: u32 = 3;
/// Repeats remembered of each repeater; older ones are halved away.
const REMEMBERED: f64 = 128.0;
/// After so many repeats, of which a smaller part than this served anybody, a repeater is tried again only by a few now and then.
const TRIED: f64 = 16.0;
const LEAST_GAIN: f64 = 0.05;
const TRY: usize = 2;
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// How much a neighbour's repeats serve.
#[derive(Clone, Copy, Default, Debug)]
struct Repeater {
    asked: f64,
    gained: f64,
    last: Timestamp,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub(super) struct Repeats {
    repeaters: Vec<Repeater>,
    /// Repeated and not reported by anybody yet, oldest first.
    awaited: VecDeque<(Timestamp, Chunk, Member)>,
    /// Chunks that far neighbours lack and a repeater, once it has served, could bring them.
    lack: u32,
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self { repeaters: vec![Repeater::default(); MAX_MEMBERS], awaited: VecDeque::new(), lack: 0 }
    }

    /// A neighbour reports a chunk that was not there before; whether a repeat brought it.
    pub(super) fn handle_claim(&mut self, chunk: Chunk) -> bool {
        let Some(at) = self.awaited.iter().position(|(_, awaited, _)| *awaited == chunk) else {
            return false;
        };
        let by = self.awaited.remove(at).map(|(_, _, by)| usize::from(by.number()));
        if let Some(repeater) = by.and_then(|by| self.repeaters.get_mut(by)) {
            repeater.gained += 1.0;
        }
        true
    }

    /// What the source should send beyond what those need who hear it.
    pub(super) const fn lack(&self) -> u32 {
        self.lack
    }

    /// Another neighbour gets a number.
    pub(super) fn forget(&mut self, member: Member) {
        if let Some(repeater) = self.repeaters.get_mut(usize::from(member.number())) {
            *repeater = Repeater::default();
        }
        self.awaited.retain(|(_, _, by)| *by != member);
    }

    pub(super) fn memory(&self) -> usize {
        self.awaited.capacity() * size_of::<(Timestamp, Chunk, Member)>()
            + self.repeaters.capacity() * size_of::<Repeater>()
    }

    fn ask(&mut self, now: Timestamp, chunk: Chunk, by: Member) {
        self.awaited.push_back((now, chunk, by));
        if let Some(repeater) = self.repeaters.get_mut(usize::from(by.number())) {
            repeater.last = now;
            repeater.asked += 1.0;
            if repeater.asked > REMEMBERED {
                repeater.asked /= 2.0;
                repeater.gained /= 2.0;
            }
        }
    }

    /// How many of those that are awaited should still be reported: the older, the fewer.
    fn coming(&self, now: Timestamp) -> f64 {
        let left = |asked: Timestamp| 1.0 - now.since(asked).as_secs_f64() / AWAITED.as_secs_f64();
        self.awaited.iter().map(|(asked, _, by)| self.promise(now, *by).0 * left(*asked).max(0.0)).sum()
    }

    /// The part of its repeats that serve somebody, and how many it may be asked for now.
    fn promise(&self, now: Timestamp, member: Member) -> (f64, usize) {
        let repeater = self.repeaters.get(usize::from(member.number())).copied().unwrap_or_default();
        let gain = (repeater.gained + 1.0) / (repeater.asked + 2.0);
        if repeater.asked < TRIED || repeater.gained >= LEAST_GAIN * repeater.asked {
            return (gain, BATCH);
        }
        (gain, if now.since(repeater.last) >= TRY_AGAIN { TRY } else { 0 })
    }
}

impl Destination {
    /// Whether a neighbour repeats on the air what it is asked to.
    pub fn set_repeats(&mut self, member: Member, repeats: bool) {
        if let Some(record) = self.record_mut(member) {
            record.repeats = repeats;
        }
    }

    /// Asks for repeats where the rule allows it.
    pub(super) fn order_repeats(&mut self, now: Timestamp) {
        while self.repeats.awaited.front().is_some_and(|(asked, _, _)| now.since(*asked) > AWAITED) {
            self.repeats.awaited.pop_front();
        }
        self.repeats.lack = 0;
        if !self.schedules() || !self.members.iter().flatten().any(|record| record.repeats) {
            return;
        }
        let (far, near) = self.far_and_near(now);
        let dries = |record: &MemberRecord| record.useful() < record.target(1);
        if far.is_empty() || near.iter().filter_map(|one| self.record(*one)).any(dries) {
            return;
        }
        let lack: u32 = far
            .iter()
            .filter_map(|one| self.record(*one))
            .map(|record| record.target(FULL).saturating_sub(record.useful()))
            .sum();
        let reached = far.iter().fold(0, |set, one| set | bit(*one));
        let promised = near.iter().filter(|one| self.record(**one).is_some_and(|record| record.repeats));
        let mut promised: Vec<(f64, usize, Member)> = promised
            .map(|one| {
                let (gain, most) = self.repeats.promise(now, *one);
                (gain, most, *one)
            })
            .filter(|(_, most, _)| *most > 0)
            .collect();
        let serves = |one: &(f64, usize, Member)| {
            let repeater = self.repeats.repeaters.get(usize::from(one.2.number()));
            repeater.is_some_and(|repeater| repeater.gained > 0.0)
        };
        if promised.iter().any(serves) {
            self.repeats.lack = lack;
        }
        promised.sort_by(|one, other| other.0.total_cmp(&one.0));
        for (gain, most, repeater) in promised {
            let coming = self.repeats.coming(now);
            let wanted = ((f64::from(lack) - coming) / gain).ceil().max(0.0) as usize;
            let room = MOST_AWAITED.saturating_sub(self.repeats.awaited.len());
            for chunk in self.repeatable(repeater, reached, wanted.min(most).min(room)) {
                self.repeats.ask(now, chunk, repeater);
                if let Some(record) = self.record_mut(repeater) {
                    record.orders.repeat.insert(chunk);
                }
            }
        }
    }

    /// Who does not hear the source, and who does.
    fn far_and_near(&self, now: Timestamp) -> (Vec<Member>, Vec<Member>) {
        let (mut far, mut near) = (Vec::new(), Vec::new());
        for member in self.present() {
            let Some(record) = self.record(member) else { continue };
            if self.contributes(now, record) {
                near.push(member);
                continue;
            }
            let reached = record.hears_source(now, DEAF) && !self.brings_little(record);
            if record.has_reported() && !reached && record.strikes == 0 && record.standing.is_believed(now) {
                far.push(member);
            }
        }
        (far, near)
    }

    /// Chunks that a neighbour has beyond what its own uplink needs, and none of `reached`: the last ones, since it begins with the first.
    fn repeatable(&self, repeater: Member, reached: u64, most: usize) -> Vec<Chunk> {
        let Some(record) = self.record(repeater) else { return Vec::new() };
        let surplus = record.useful().saturating_sub(record.target(1)) as usize;
        let free = |chunk: &Chunk| {
            let held = self.table.get(*chunk).copied().unwrap_or_default();
            held.carriers == 0 && held.holders & bit(repeater) != 0 && held.holders & reached == 0
        };
        let awaited = |chunk: &Chunk| self.repeats.awaited.iter().any(|(_, one, _)| one == chunk);
        let candidates = record.candidates.iter().rev().take(LOOKED_AT).copied();
        candidates.filter(|chunk| free(chunk) && !awaited(chunk)).take(most.min(surplus)).collect()
    }

    /// A neighbour reports a chunk; if the source hardly reaches it, and the chunk was repeated, that is how it came.
    pub(super) fn note_repeated(&mut self, now: Timestamp, member: Member, chunk: Chunk) {
        let near = self.record(member).is_some_and(|record| self.contributes(now, record));
        if !near
            && self.repeats.handle_claim(chunk)
            && let Some(held) = self.table.reach(chunk)
        {
            held.repeated |= bit(member);
        }
    }
}

/// Candidates that are looked at for an order.
const LOOKED_AT: usize = 256;
