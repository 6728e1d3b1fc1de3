//! The destination: knows who has what, and says who carries what.
//!
//! ```text
//!             a report names it           granted to a neighbour
//!  missing --------------------> held ------------------------> granted ----+
//!     ^                           |  ^                             |        | opened and stored
//!     |  its last holder is gone  |  +-----------------------------+        v
//!     +---------------------------+     the neighbour is stalled or gone   stored
//! ```

mod assign;
mod member;
mod repeats;
mod standing;

use std::collections::VecDeque;
use std::time::Duration;

use units::Timestamp;
use wire::upload::{
    AirNumber, Chunk, Feedback, Grant, MAX_MEMBERS, MAX_PERIODS, Member, MemberState, Report, Transfer,
};

use crate::ranges::RangeSet;
use crate::settings::{Settings, Strategy};
use crate::window::Window;
use member::{MemberRecord, Pulse};
use repeats::Repeats;
use standing::Absent;
pub use standing::PeerKey;

/// How long news for the source and acknowledgements are gathered.
const NEWS_DELAY: Duration = Duration::from_millis(40);
/// The source hears of the neighbours this often at least.
const FEEDBACK_INTERVAL: Duration = Duration::from_millis(200);
/// Who has not reported for so long is not waited for.
const REPORTING: Duration = Duration::from_millis(400);
/// Chunks among which shares are counted (`[LINKALIKE] III.C.3`).
const SHARES_OF: usize = 200;
/// Neighbours are looked after this often while they have something to carry.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// What one chunk of garbage weighs among broken promises: only who is attacked, or attacks, sends any.
const GARBAGE: u32 = 8;
/// The same when several neighbours brought garbage for one chunk: then it was more likely sent to them. Not nothing, since liars may agree.
const SHARED_GARBAGE: u32 = 1;
/// A neighbour that was given up twice in a row can claim so many chunks, until it brings one.
const PROBES: u32 = 4;

/// Where a chunk came from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// The source's own uplink.
    Own,
    /// A neighbour.
    By(Member),
}

/// What a neighbour has done.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct MemberReport {
    /// Chunks that it brought first.
    pub brought: u32,
    /// Chunks that somebody else had brought.
    pub late: u32,
    /// Chunks a second, lately.
    pub rate: f64,
    /// Times at which it was given up for a while.
    pub stalls: u32,
}

/// What is known of a chunk that is not stored.
#[derive(Clone, Copy, Default, Debug)]
struct Held {
    /// Neighbours that have it, a bit each.
    holders: u64,
    /// Neighbours that it is granted to, a bit each.
    carriers: u64,
    /// Neighbours that brought garbage for it, a bit each.
    garblers: u64,
    /// Neighbours that have it by a repeat of another, a bit each.
    repeated: u64,
}

/// One file on its way here. See the crate's page for the contract.
#[derive(Clone, Debug)]
pub struct Destination {
    settings: Settings,
    transfer: Transfer,
    chunks: u32,
    stored: RangeSet,
    table: Window<Held>,
    members: Vec<Option<MemberRecord>>,
    /// Chunks that are granted.
    granted: u32,
    /// Chunks that somebody holds and that are not granted.
    free: u32,
    /// Who brought the last chunks; none for the own uplink and those who have gone since.
    brought: VecDeque<Option<Member>>,
    absent: Absent,
    repeats: Repeats,
    own: Pulse,
    /// Chunks that the source was asked to carry too.
    copied: RangeSet,
    news: News,
    /// What the source was told last; nothing that it covers is still in `news`.
    told_through: AirNumber,
    feedback_due: Timestamp,
    next_check: Timestamp,
    reports: Vec<MemberReport>,
    own_chunks: u32,
}

/// What the source has not been told of.
#[derive(Clone, Default, Debug)]
struct News {
    stored: RangeSet,
    held: RangeSet,
    lost: RangeSet,
    spare: RangeSet,
}

impl Destination {
    /// A destination of `chunks` chunks that has `stored` already.
    pub fn new(
        now: Timestamp,
        settings: Settings,
        transfer: Transfer,
        chunks: u32,
        stored: RangeSet,
    ) -> Self {
        let base = stored.first_missing(Chunk(0));
        Self {
            settings,
            transfer,
            chunks,
            stored,
            table: Window::new(base, settings.ahead),
            members: vec![None; MAX_MEMBERS],
            granted: 0,
            free: 0,
            brought: VecDeque::new(),
            absent: Absent::default(),
            repeats: Repeats::new(),
            own: Pulse::new(now),
            copied: RangeSet::default(),
            news: News::default(),
            told_through: AirNumber(0),
            feedback_due: now,
            next_check: now + CHECK_INTERVAL,
            reports: vec![MemberReport::default(); MAX_MEMBERS],
            own_chunks: 0,
        }
    }

    /// Everything is stored.
    pub fn is_done(&self) -> bool {
        self.stored.count() >= self.chunks
    }

    /// What is stored; the owner keeps it for a restart.
    pub const fn stored(&self) -> &RangeSet {
        &self.stored
    }

    /// Chunks that came by the source's own uplink first.
    pub const fn own_chunks(&self) -> u32 {
        self.own_chunks
    }

    /// What a neighbour has done so far.
    pub fn member_report(&self, member: Member) -> MemberReport {
        let report = self.reports.get(usize::from(member.number())).copied().unwrap_or_default();
        let record = self.members.get(usize::from(member.number())).and_then(Option::as_ref);
        MemberReport { rate: record.map_or(0.0, |record| record.pulse.rate()), ..report }
    }

    /// A neighbour's connection is there; `None` if there are too many. `key` is what it is known by again: what it has broken is remembered. If it is here
    /// already, its older connection is gone, and what still comes from that is to be dropped.
    pub fn join(&mut self, now: Timestamp, key: PeerKey) -> Option<Member> {
        let free = self.members.iter().position(Option::is_none);
        let same = |record: &Option<MemberRecord>| record.as_ref().is_some_and(|record| record.key == key);
        let older = self.members.iter().position(same);
        if let Some(older) = older.and_then(|number| Member::new(number as u8)) {
            self.leave(now, older);
        }
        let number = free.or(older)?;
        let member = Member::new(number as u8)?;
        let standing = self.absent.recall(now, key);
        *self.members.get_mut(number)? = Some(MemberRecord::new(now, key, standing));
        *self.reports.get_mut(number)? = MemberReport::default();
        Some(member)
    }

    /// A neighbour's connection is gone: what it had to carry is given to others, and what it alone had has to be sent again.
    pub fn leave(&mut self, now: Timestamp, member: Member) {
        let Some(record) = self.members.get_mut(usize::from(member.number())).and_then(Option::take) else {
            return;
        };
        let mut standing = record.standing;
        if !record.outstanding.is_empty() {
            standing.break_word(now, 1);
        }
        self.absent.remember(now, record.key, standing);
        self.repeats.forget(member);
        // The next neighbour with this number has brought none of them.
        for brought in self.brought.iter_mut().filter(|brought| **brought == Some(member)) {
            *brought = None;
        }
        self.forget_holdings(member);
        self.assign_all(now);
    }

    /// The source's connection was lost and is there again: it is told everything anew.
    pub fn handle_source_reconnected(&mut self, now: Timestamp) {
        self.news = News { stored: self.stored.clone(), ..News::default() };
        for (chunk, _) in self.table.iter_mut().filter(|(_, held)| held.holders != 0) {
            self.news.held.insert(chunk);
        }
        self.copied = RangeSet::default();
        self.told_through = AirNumber(0);
        self.feedback_due = now;
        self.own.interrupt(now);
    }

    /// A neighbour's report.
    pub fn handle_report(&mut self, now: Timestamp, member: Member, report: &Report) {
        if report.transfer != self.transfer {
            return;
        }
        let Some(record) = self.record_mut(member) else { return };
        record.handle_report(now, report);
        let claims = record.claims(now);
        let mut claimed = 0;
        for chunk in report.heard.iter().flat_map(|run| run.chunks()).take(claims) {
            claimed += 1;
            self.handle_claim(now, member, chunk);
        }
        if let Some(record) = self.record_mut(member) {
            record.spend_claims(claimed);
        }
        self.assign_all(now);
        self.order_repeats(now);
    }

    /// Whether a chunk is still missing: no need to open it otherwise.
    pub fn wants(&self, chunk: Chunk) -> bool {
        chunk.0 < self.chunks && !self.stored.contains(chunk)
    }

    /// A chunk was opened and stored, or was stored before.
    pub fn handle_stored(&mut self, now: Timestamp, from: Arrival, chunk: Chunk) {
        if chunk.0 >= self.chunks {
            return;
        }
        match from {
            Arrival::Own => self.own.beat(now),
            Arrival::By(member) => {
                let wanted = self.wants(chunk);
                let skipped = self.record_mut(member).map(|record| record.bring(now, chunk, wanted));
                self.take_away(now, member, &skipped.unwrap_or_default());
            }
        }
        if self.stored.insert(chunk) {
            self.settle(from, chunk);
        } else if let Arrival::By(member) = from
            && let Some(report) = self.reports.get_mut(usize::from(member.number()))
        {
            report.late += 1;
        }
        self.tell_stored(from, chunk);
        self.assign_all(now);
    }

    /// A chunk could not be opened: who brought it does not have it, whether it made it up or heard a forged frame. It is told to forget it, so that it can hear
    /// the chunk anew, and is blamed less if others were refused the same chunk.
    pub fn handle_refused(&mut self, now: Timestamp, from: Arrival, chunk: Chunk) {
        let Arrival::By(member) = from else { return };
        if !self.wants(chunk) || self.record(member).is_none() {
            return;
        }
        self.blame(now, member, chunk);
        self.take_away(now, member, &[chunk]);
        if let Some(record) = self.record_mut(member) {
            record.orders.forget.insert(chunk);
        }
        self.assign_all(now);
    }

    /// Time has come to [`Destination::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Timestamp) {
        if now < self.next_check {
            return;
        }
        self.next_check = now + CHECK_INTERVAL;
        for member in self.present() {
            self.check(now, member);
            self.shorten_candidates(member);
        }
        self.assign_all(now);
        self.order_repeats(now);
    }

    /// The next orders for a neighbour.
    pub fn poll_grant(&mut self, now: Timestamp) -> Option<(Member, Grant)> {
        let transfer = self.transfer;
        let (number, record) = self.members.iter_mut().enumerate().find_map(|(number, record)| {
            let record = record.as_mut()?;
            record.orders.is_due(now, NEWS_DELAY).then_some((number, record))
        })?;
        Some((Member::new(number as u8)?, record.orders.take(transfer)))
    }

    /// What the source should know.
    pub fn poll_feedback(&mut self, now: Timestamp) -> Option<Feedback> {
        if now < self.feedback_due {
            return None;
        }
        // A message has room for some runs of each kind; what does not fit goes at once in a second one.
        let (stored, held) = (self.news.stored.take_runs(), self.news.held.take_runs());
        let (lost, spare) = (self.news.lost.take_runs(), self.news.spare.take_runs());
        let whole = self.news.is_empty();
        self.feedback_due = if whole { now + NEWS_DELAY } else { now };
        if whole {
            self.told_through = self.through(now);
        }
        let (through, shortage) = (self.told_through, self.shortage(now));
        let members =
            self.present().into_iter().filter_map(|member| self.member_state(now, member)).collect();
        Some(Feedback { transfer: self.transfer, through, shortage, stored, held, lost, spare, members })
    }

    /// When to call `handle_timeout` and to poll, if nothing else happens.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_done()
            && self.news.is_empty()
            && self.members.iter().flatten().all(|record| record.orders.is_empty())
        {
            return None;
        }
        let pending =
            if self.news.is_empty() { self.feedback_due + FEEDBACK_INTERVAL } else { self.feedback_due };
        let orders = self.members.iter().flatten().filter_map(|record| record.orders.due(NEWS_DELAY));
        orders.chain([pending, self.next_check]).min()
    }

    /// Bytes that it takes up, roughly.
    pub fn memory(&self) -> usize {
        let sets = [&self.news.stored, &self.news.held, &self.news.lost, &self.news.spare];
        self.table.memory()
            + [&self.stored, &self.copied].into_iter().chain(sets).map(RangeSet::memory).sum::<usize>()
            + self.absent.memory()
            + self.repeats.memory()
            + self.members.iter().flatten().map(MemberRecord::memory).sum::<usize>()
    }

    fn handle_claim(&mut self, now: Timestamp, member: Member, chunk: Chunk) {
        if chunk.0 >= self.chunks {
            return;
        }
        if self.stored.contains(chunk) {
            self.tell_stored(Arrival::By(member), chunk);
            return;
        }
        let Some(record) = self.record_mut(member) else { return };
        if !record.may_claim(now) {
            // What is not reckoned with need not be kept.
            record.orders.forget.insert(chunk);
            return;
        }
        let Some(held) = self.table.reach(chunk) else { return };
        if held.holders & bit(member) != 0 {
            return;
        }
        let (first, free) = (held.holders == 0, held.carriers == 0);
        held.holders |= bit(member);
        self.note_repeated(now, member, chunk);
        if first {
            self.news.held.insert(chunk);
            self.news.lost.remove(chunk);
            self.free += u32::from(free);
        }
        if let Some(record) = self.record_mut(member) {
            record.add_candidate(chunk, free);
        }
    }

    /// What was brought for a chunk could not be opened.
    fn blame(&mut self, now: Timestamp, member: Member, chunk: Chunk) {
        let Some(held) = self.table.reach(chunk) else { return };
        let before = held.garblers & !bit(member);
        held.garblers |= bit(member);
        let Some(record) = self.record_mut(member) else { return };
        if before == 0 {
            record.strike(now);
            record.standing.break_word(now, GARBAGE);
            return;
        }
        record.standing.break_word(now, SHARED_GARBAGE);
        if before.count_ones() == 1 {
            for first in members_of(before) {
                if let Some(record) = self.record_mut(first) {
                    record.standing.make_up(now, GARBAGE - SHARED_GARBAGE);
                    record.pardon(now);
                }
            }
        }
    }

    fn tell_stored(&mut self, whom: Arrival, chunk: Chunk) {
        match whom {
            Arrival::Own => {
                self.news.stored.insert(chunk);
            }
            Arrival::By(member) => {
                if let Some(record) = self.record_mut(member) {
                    record.orders.stored.insert(chunk);
                }
            }
        }
    }

    /// A chunk is here for the first time: nobody needs to carry or keep it.
    fn settle(&mut self, from: Arrival, chunk: Chunk) {
        self.news.held.remove(chunk);
        self.news.lost.remove(chunk);
        let held = self.table.reach(chunk).map(std::mem::take).unwrap_or_default();
        self.credit(from, held);
        self.release(chunk, held, from);
        if from != Arrival::Own {
            self.news.stored.insert(chunk);
        }
        for holder in members_of(held.holders).filter(|holder| from != Arrival::By(*holder)) {
            self.tell_stored(Arrival::By(holder), chunk);
        }
        self.table.advance(self.stored.first_missing(self.table.base()));
    }

    fn credit(&mut self, from: Arrival, held: Held) {
        match from {
            Arrival::Own => self.own_chunks += 1,
            Arrival::By(member) => {
                if let Some(report) = self.reports.get_mut(usize::from(member.number())) {
                    report.brought += 1;
                }
            }
        }
        let by = match from {
            // What another repeated is not the source's reach: it does not go faster for that.
            Arrival::By(member) if self.record(member).is_some() && held.repeated & bit(member) == 0 => {
                Some(member)
            }
            _ => None,
        };
        self.count_share(by, 1);
        self.brought.push_back(by);
        if self.brought.len() > SHARES_OF
            && let Some(oldest) = self.brought.pop_front()
        {
            self.count_share(oldest, -1);
        }
    }

    fn count_share(&mut self, by: Option<Member>, change: i32) {
        if let Some(record) = by.and_then(|member| self.record_mut(member)) {
            record.share = record.share.saturating_add_signed(change);
        }
    }

    /// `F` of `[LINKALIKE] III.C.3` over those who contribute.
    fn shortage(&self, now: Timestamp) -> i32 {
        let lacking =
            self.members.iter().flatten().filter(|record| self.contributes(now, record)).map(|record| {
                let target = record.target(self.settings.buffer_products);
                i32::try_from(target).unwrap_or(i32::MAX).saturating_sub_unsigned(record.useful())
            });
        // With nobody to send to, the source goes slowly.
        let most = lacking.max().unwrap_or(i32::MIN / 4);
        most.saturating_add_unsigned(self.repeats.lack())
    }

    fn contributes(&self, now: Timestamp, record: &MemberRecord) -> bool {
        record.hears_source_at_times(now, REPORTING)
            && !self.brings_little(record)
            && record.strikes == 0
            && record.standing.is_believed(now)
    }

    /// Of what came lately it brought next to nothing that it heard from the source.
    fn brings_little(&self, record: &MemberRecord) -> bool {
        let counted = self.brought.len() >= SHARES_OF;
        counted && f64::from(record.share) < self.settings.least_share * SHARES_OF as f64
    }

    fn through(&self, now: Timestamp) -> AirNumber {
        let reporting = self
            .members
            .iter()
            .flatten()
            // Who is away is not waited for: what it missed would go to the others later.
            .filter(|record| record.hears_source(now, REPORTING) && record.may_claim(now));
        // Frames are not in vain only because nobody is here: what is unheard is sent again.
        reporting.map(|record| record.through).min().unwrap_or(AirNumber(u32::MAX))
    }

    fn member_state(&mut self, now: Timestamp, member: Member) -> Option<MemberState> {
        let products = self.settings.buffer_products;
        let contributes = self.record(member).is_some_and(|record| self.contributes(now, record));
        let record = self.record_mut(member)?;
        let target = record.target(products);
        let room = if contributes { target.saturating_sub(record.useful()) } else { 0 };
        let receptions = record.receptions.drain(..).collect();
        Some(MemberState { member, target, room, receptions })
    }

    fn record(&self, member: Member) -> Option<&MemberRecord> {
        self.members.get(usize::from(member.number())).and_then(Option::as_ref)
    }

    fn record_mut(&mut self, member: Member) -> Option<&mut MemberRecord> {
        self.members.get_mut(usize::from(member.number())).and_then(Option::as_mut)
    }

    fn present(&self) -> Vec<Member> {
        let present = self.members.iter().enumerate().filter(|(_, record)| record.is_some());
        present.filter_map(|(number, _)| Member::new(number as u8)).collect()
    }

    const fn schedules(&self) -> bool {
        matches!(self.settings.strategy, Strategy::Scheduled)
    }
}

impl News {
    fn is_empty(&self) -> bool {
        [&self.stored, &self.held, &self.lost, &self.spare].iter().all(|chunks| chunks.is_empty())
    }
}

const fn bit(member: Member) -> u64 {
    1 << member.number()
}

fn members_of(mut bits: u64) -> impl Iterator<Item = Member> {
    std::iter::from_fn(move || {
        let number = bits.trailing_zeros() as u8;
        bits &= bits.wrapping_sub(1);
        Member::new(number)
    })
}

/// Periods that wait for the source; older ones give way.
const PERIODS_KEPT: usize = MAX_PERIODS;

#[cfg(test)]
mod tests;
