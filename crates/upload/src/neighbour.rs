//! A neighbour: hears, keeps, tells what it has, and carries what it is told to.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use units::Timestamp;
use wire::upload::{
    AirChunk, AirRepeat, Chunk, Grant, MAX_AWAY, Member, RateIndex, Report, Run, Runs, Transfer,
};

use crate::counting::Counting;
use crate::settings::Strategy;

/// Chunks that wait to be repeated on the air; more are not asked for at a time by who means well.
const MAX_REPEATS: usize = 256;

/// How long news of what was heard are gathered.
const REPORT_DELAY: Duration = Duration::from_millis(40);

/// What a neighbour sends to the destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Transmit<P> {
    /// What it has heard.
    Report(Report),
    /// A chunk.
    Carry(Chunk, P),
}

/// What a neighbour lends to one transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lending {
    /// Which.
    pub transfer: Transfer,
    /// As in the settings of the other sides.
    pub strategy: Strategy,
    /// Chunks of the file; what has a higher number is not kept.
    pub chunks: u32,
    /// Bytes of one sealed chunk.
    pub chunk_bytes: u32,
    /// Chunks that it keeps at most.
    pub capacity: usize,
    /// Chunks that fill the bandwidth-delay product of its uplink.
    pub window: u32,
    /// Decides what it carries under [`Strategy::Random`].
    pub seed: u64,
}

/// One neighbour in one transfer; `P` is a sealed chunk, which it keeps and never looks into. See the crate's page for the contract.
#[derive(Clone, Debug)]
pub struct Neighbour<P> {
    lending: Lending,
    member: Option<Member>,
    /// Chunks with whether they were carried; kept until they are stored, since connections can break.
    buffer: BTreeMap<Chunk, (P, bool)>,
    /// To be carried, in this order.
    granted: VecDeque<Chunk>,
    /// To be repeated on the air, in this order.
    repeats: VecDeque<Chunk>,
    /// For how long at a time its radio is elsewhere.
    away: Duration,
    /// That of the last frame of the source.
    rate: RateIndex,
    /// Heard and not reported.
    unreported: Vec<Chunk>,
    report_due: Option<Timestamp>,
    counting: Counting,
    random: StdRng,
    refused: u64,
}

impl<P: Clone> Neighbour<P> {
    /// A neighbour that has heard nothing yet.
    pub fn new(lending: Lending) -> Self {
        Self {
            lending,
            member: None,
            buffer: BTreeMap::new(),
            granted: VecDeque::new(),
            repeats: VecDeque::new(),
            away: Duration::ZERO,
            rate: RateIndex(0),
            unreported: Vec::new(),
            report_due: None,
            counting: Counting::default(),
            random: StdRng::seed_from_u64(lending.seed),
            refused: 0,
        }
    }

    /// The number that the destination gave it.
    pub const fn set_member(&mut self, member: Member) {
        self.member = Some(member);
    }

    /// The bandwidth-delay product of the uplink in chunks, as measured.
    pub const fn set_window(&mut self, chunks: u32) {
        self.lending.window = chunks;
    }

    /// For how long at a time the radio that listens is in other networks; zero if it always listens. The destination is told in whole milliseconds, [`MAX_AWAY`]
    /// of them at most.
    pub const fn set_away(&mut self, away: Duration) {
        self.away = away;
    }

    pub(crate) const fn transfer(&self) -> Transfer {
        self.lending.transfer
    }

    pub(crate) const fn chunk_bytes(&self) -> u32 {
        self.lending.chunk_bytes
    }

    /// The bandwidth-delay product that the destination is told of, in chunks.
    pub const fn window(&self) -> u32 {
        self.lending.window
    }

    /// Chunks that it keeps.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }

    /// Chunks that came when its buffer was full; a newcomer gives way.
    pub const fn refused(&self) -> u64 {
        self.refused
    }

    /// A frame from the air whose authenticator is right; `sealed` is its content.
    pub fn handle_frame(&mut self, now: Timestamp, header: &AirChunk, sealed: P) {
        if header.transfer != self.lending.transfer || header.chunk.0 >= self.lending.chunks {
            return;
        }
        self.counting.handle_frame(header.air, header.rate);
        self.rate = header.rate;
        self.report_due.get_or_insert(now + REPORT_DELAY);
        if header.addressee.is_none_or(|addressee| Some(addressee) == self.member) {
            self.keep(header.chunk, sealed);
        }
    }

    /// A frame by which another neighbour repeats a chunk, and whose authenticator is right. It says nothing of how the source is heard.
    pub fn handle_repeat(&mut self, now: Timestamp, header: &AirRepeat, sealed: P) {
        if header.transfer == self.lending.transfer && header.chunk.0 < self.lending.chunks {
            self.report_due.get_or_insert(now + REPORT_DELAY);
            self.keep(header.chunk, sealed);
        }
    }

    /// The next chunk to be repeated on the air, and the bit rate for it: that of the source's last frame.
    pub fn poll_repeat(&mut self) -> Option<(AirRepeat, RateIndex, P)> {
        while let Some(chunk) = self.repeats.pop_front() {
            if let Some((sealed, _)) = self.buffer.get(&chunk) {
                let header = AirRepeat { transfer: self.lending.transfer, chunk };
                return Some((header, self.rate, sealed.clone()));
            }
        }
        None
    }

    /// Orders of the destination.
    pub fn handle_grant(&mut self, grant: &Grant) {
        if grant.transfer != self.lending.transfer {
            return;
        }
        for run in grant.stored.iter().chain(&grant.forget) {
            self.drop_run(*run);
        }
        if !grant.withdrawn.is_empty() {
            let withdrawn =
                |chunk: &Chunk| grant.withdrawn.iter().any(|run| (run.first()..=run.last()).contains(chunk));
            self.granted.retain(|chunk| !withdrawn(chunk));
        }
        for run in &grant.carry {
            // Only what is here can be carried, so a run without end costs nothing.
            for (chunk, (_, carried)) in self.buffer.range_mut(within(*run)) {
                *carried = false;
                if self.granted.len() < self.lending.capacity {
                    self.granted.push_back(*chunk);
                }
            }
        }
        for run in &grant.repeat {
            let room = MAX_REPEATS.saturating_sub(self.repeats.len());
            self.repeats.extend(self.buffer.range(within(*run)).map(|(chunk, _)| *chunk).take(room));
        }
    }

    /// The connection to the destination was lost and is there again: the destination knows nothing of what is kept here.
    pub fn handle_reconnected(&mut self, now: Timestamp) {
        self.granted.clear();
        self.repeats.clear();
        for (_, carried) in self.buffer.values_mut() {
            *carried = false;
        }
        self.unreported = self.buffer.keys().copied().collect();
        if self.lending.strategy != Strategy::Scheduled {
            self.granted.extend(self.buffer.keys());
        }
        self.report_due = Some(now);
    }

    /// What to send next, while the socket has room.
    pub fn poll_transmit(&mut self, now: Timestamp) -> Option<Transmit<P>> {
        let report = self.poll_report(now).map(Transmit::Report);
        report.or_else(|| self.poll_chunk().map(|(chunk, sealed)| Transmit::Carry(chunk, sealed)))
    }

    /// The report, if one is due.
    pub(crate) fn poll_report(&mut self, now: Timestamp) -> Option<Report> {
        self.report_due.is_some_and(|due| due <= now).then(|| self.report(now))
    }

    /// The next chunk to carry.
    pub(crate) fn poll_chunk(&mut self) -> Option<(Chunk, P)> {
        if self.lending.strategy == Strategy::Random {
            return self.any();
        }
        while let Some(chunk) = self.granted.pop_front() {
            if let Some((sealed, carried)) = self.buffer.get_mut(&chunk)
                && !*carried
            {
                *carried = true;
                return Some((chunk, sealed.clone()));
            }
        }
        None
    }

    /// Whether there may be a chunk to carry.
    pub(crate) fn has_chunks(&self) -> bool {
        !self.granted.is_empty()
    }

    /// When a report is due.
    pub const fn poll_timeout(&self) -> Option<Timestamp> {
        self.report_due
    }

    /// Bytes that it takes up without the sealed chunks themselves, roughly.
    pub fn memory(&self) -> usize {
        let entry = size_of::<Chunk>() + size_of::<(P, bool)>();
        // Nodes of a B-tree are half full at worst.
        self.buffer.len() * entry * 2
            + (self.granted.capacity() + self.repeats.capacity() + self.unreported.capacity())
                * size_of::<Chunk>()
    }

    fn keep(&mut self, chunk: Chunk, sealed: P) {
        if self.buffer.contains_key(&chunk) {
            return;
        }
        if self.buffer.len() >= self.lending.capacity {
            self.refused += 1;
            return;
        }
        self.buffer.insert(chunk, (sealed, false));
        self.unreported.push(chunk);
        if self.lending.strategy != Strategy::Scheduled {
            self.granted.push_back(chunk);
        }
        self.shorten();
    }

    fn report(&mut self, now: Timestamp) -> Report {
        self.unreported.sort_unstable();
        // What was heard, stored and heard again stands there twice, and runs must not touch.
        self.unreported.dedup();
        self.unreported.retain(|chunk| self.buffer.contains_key(chunk));
        let (heard, taken) = Runs::of_chunks(&self.unreported);
        self.unreported.drain(..taken);
        self.report_due = if self.unreported.is_empty() { None } else { Some(now) };
        Report {
            transfer: self.lending.transfer,
            through: self.counting.through(),
            window: self.lending.window,
            buffered: self.buffer.len() as u32,
            receptions: self.counting.take_finished(),
            heard,
            away: u16::try_from(self.away.as_millis()).unwrap_or(MAX_AWAY).min(MAX_AWAY),
        }
    }

    /// What was dropped and heard again stands more than once in these lists.
    fn shorten(&mut self) {
        let most = self.lending.capacity.saturating_mul(2);
        if self.unreported.len() > most {
            self.unreported.sort_unstable();
            self.unreported.dedup();
            self.unreported.retain(|chunk| self.buffer.contains_key(chunk));
        }
        if self.granted.len() > most {
            let mut kept = BTreeSet::new();
            let open = |chunk: &Chunk| self.buffer.get(chunk).is_some_and(|(_, carried)| !carried);
            self.granted.retain(|chunk| open(chunk) && kept.insert(*chunk));
        }
    }

    fn drop_run(&mut self, run: Run) {
        let gone: Vec<Chunk> = self.buffer.range(within(run)).map(|(chunk, _)| *chunk).collect();
        for chunk in gone {
            self.buffer.remove(&chunk);
        }
    }

    /// Any chunk that was not carried yet.
    fn any(&mut self) -> Option<(Chunk, P)> {
        while !self.granted.is_empty() {
            let at = self.random.random_range(0..self.granted.len());
            let Some(chunk) = self.granted.swap_remove_back(at) else { break };
            if let Some((sealed, carried)) = self.buffer.get_mut(&chunk) {
                *carried = true;
                return Some((chunk, sealed.clone()));
            }
        }
        None
    }
}

fn within(run: Run) -> (Bound<Chunk>, Bound<Chunk>) {
    (Bound::Included(run.first()), Bound::Included(run.last()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::upload::{AirNumber, RateIndex};

    const TRANSFER: Transfer = Transfer(1);
    const LENDING: Lending = Lending {
        transfer: TRANSFER,
        strategy: Strategy::Scheduled,
        chunks: 10,
        chunk_bytes: 1_416,
        capacity: 4,
        window: 2,
        seed: 1,
    };

    fn frame(air: u32, chunk: u32) -> AirChunk {
        AirChunk {
            transfer: TRANSFER,
            air: AirNumber(air),
            rate: RateIndex(1),
            addressee: None,
            chunk: Chunk(chunk),
        }
    }

    fn run(first: u32, last: u32) -> Run {
        Run::new(Chunk(first), Chunk(last)).unwrap()
    }

    fn grant(carry: Vec<Run>, stored: Vec<Run>, withdrawn: Vec<Run>) -> Grant {
        let [carry, stored, withdrawn] = [carry, stored, withdrawn].map(|runs| Runs::rising(runs).unwrap());
        Grant { transfer: TRANSFER, carry, stored, withdrawn, forget: Runs::new(), repeat: Runs::new() }
    }

    fn neighbour() -> Neighbour<char> {
        Neighbour::new(LENDING)
    }

    #[test]
    fn it_reports_in_batches_and_carries_what_it_is_told_to() {
        let mut neighbour = neighbour();
        for chunk in 0..3 {
            neighbour.handle_frame(Timestamp::ZERO, &frame(chunk * 2, chunk), 'x');
        }
        assert_eq!(neighbour.poll_transmit(Timestamp::ZERO), None);
        let due = neighbour.poll_timeout().unwrap();
        let Some(Transmit::Report(report)) = neighbour.poll_transmit(due) else { panic!("no report") };
        assert_eq!((&report.heard[..], report.through, report.buffered), (&[run(0, 2)][..], AirNumber(5), 3));
        assert_eq!(neighbour.poll_transmit(due), None, "nothing without being told to");
        neighbour.handle_grant(&grant(vec![run(1, u32::MAX)], vec![], vec![]));
        neighbour.handle_grant(&grant(vec![], vec![run(0, 0)], vec![run(2, 2)]));
        assert_eq!(neighbour.poll_transmit(due), Some(Transmit::Carry(Chunk(1), 'x')));
        assert_eq!(neighbour.poll_transmit(due), None, "the other was withdrawn");
        assert_eq!(neighbour.buffered(), 2, "kept until it is stored");
    }

    #[test]
    fn repeats_are_kept_and_not_counted_and_it_repeats_what_it_has() {
        let mut neighbour = neighbour();
        let repeat = |chunk: u32| AirRepeat { transfer: TRANSFER, chunk: Chunk(chunk) };
        neighbour.handle_repeat(Timestamp::ZERO, &repeat(3), 'x');
        neighbour.handle_repeat(Timestamp::ZERO, &repeat(99), 'x');
        let due = neighbour.poll_timeout().unwrap();
        let Some(Transmit::Report(report)) = neighbour.poll_transmit(due) else { panic!("no report") };
        assert_eq!((&report.heard[..], report.through), (&[run(3, 3)][..], AirNumber(0)));
        let asked = Runs::rising([run(2, u32::MAX)]).unwrap();
        for _ in 0..1_000 {
            neighbour.handle_grant(&Grant { repeat: asked.clone(), ..grant(vec![], vec![], vec![]) });
        }
        let repeated = std::iter::from_fn(|| neighbour.poll_repeat());
        let repeated: Vec<_> = repeated.map(|(header, ..)| header).collect();
        assert_eq!((repeated.len(), repeated[0]), (MAX_REPEATS, repeat(3)), "a bound for what is asked");
    }

    #[test]
    fn it_tells_for_how_long_it_is_away_and_no_more_than_may_be_told() {
        let mut neighbour = neighbour();
        for (away, told) in [(Duration::from_millis(100), 100), (Duration::from_secs(100), MAX_AWAY)] {
            neighbour.set_away(away);
            assert_eq!(neighbour.report(Timestamp::ZERO).away, told);
        }
    }

    #[test]
    fn a_full_buffer_takes_no_more_and_says_nothing_of_it() {
        let mut neighbour = neighbour();
        for chunk in 0..6 {
            neighbour.handle_frame(Timestamp::ZERO, &frame(chunk, chunk), 'x');
        }
        assert_eq!((neighbour.buffered(), neighbour.refused()), (4, 2));
        let Some(Transmit::Report(report)) = neighbour.poll_transmit(neighbour.poll_timeout().unwrap())
        else {
            panic!("no report")
        };
        assert_eq!(report.heard[..], [run(0, 3)]);
    }

    #[test]
    fn what_the_file_does_not_have_is_not_kept() {
        let mut neighbour = neighbour();
        neighbour.handle_frame(Timestamp::ZERO, &frame(0, 10), 'x');
        assert_eq!((neighbour.buffered(), neighbour.poll_timeout()), (0, None));
    }

    #[test]
    fn what_it_is_to_forget_it_hears_anew() {
        let mut neighbour = neighbour();
        neighbour.handle_frame(Timestamp::ZERO, &frame(0, 3), 'f');
        let due = neighbour.poll_timeout().unwrap();
        assert!(neighbour.poll_transmit(due).is_some());
        neighbour.handle_grant(&grant(vec![run(3, 3)], vec![], vec![]));
        neighbour.handle_grant(&Grant {
            forget: Runs::rising([run(3, 3)]).unwrap(),
            repeat: Runs::new(),
            ..grant(vec![], vec![], vec![])
        });
        assert_eq!((neighbour.buffered(), neighbour.poll_transmit(due)), (0, None));
        neighbour.handle_frame(due, &frame(1, 3), 'g');
        let Some(Transmit::Report(report)) = neighbour.poll_transmit(neighbour.poll_timeout().unwrap())
        else {
            panic!("no report")
        };
        assert_eq!(report.heard[..], [run(3, 3)]);
        neighbour.handle_grant(&grant(vec![run(3, 3)], vec![], vec![]));
        assert_eq!(neighbour.poll_transmit(due), Some(Transmit::Carry(Chunk(3), 'g')));
    }

    #[test]
    fn lists_stay_short_while_the_socket_is_stuck() {
        let mut neighbour: Neighbour<char> =
            Neighbour::new(Lending { strategy: Strategy::Random, ..LENDING });
        for air in 0..1_000 {
            neighbour.handle_frame(Timestamp::ZERO, &frame(air, 3), 'x');
            neighbour.handle_grant(&grant(vec![], vec![run(3, 3)], vec![]));
        }
        assert!(neighbour.granted.len() <= 9 && neighbour.unreported.len() <= 9);
    }

    #[test]
    fn after_a_broken_connection_it_tells_all_again() {
        let mut neighbour = neighbour();
        neighbour.handle_frame(Timestamp::ZERO, &frame(0, 7), 'x');
        let later = Timestamp::from_millis(50);
        assert!(neighbour.poll_transmit(later).is_some());
        neighbour.handle_grant(&grant(vec![run(7, 7)], vec![], vec![]));
        assert!(neighbour.poll_transmit(later).is_some());
        neighbour.handle_reconnected(later);
        let Some(Transmit::Report(report)) = neighbour.poll_transmit(later) else { panic!("no report") };
        assert_eq!(report.heard[..], [run(7, 7)]);
        neighbour.handle_grant(&grant(vec![run(7, 7)], vec![], vec![]));
        assert_eq!(neighbour.poll_transmit(later), Some(Transmit::Carry(Chunk(7), 'x')));
    }

    #[test]
    fn what_is_heard_again_after_it_was_stored_is_reported_once() {
        let mut neighbour = neighbour();
        neighbour.handle_frame(Timestamp::ZERO, &frame(0, 3), 'x');
        neighbour.handle_grant(&grant(vec![], vec![run(3, 3)], vec![]));
        neighbour.handle_frame(Timestamp::ZERO, &frame(1, 3), 'x');
        let Some(Transmit::Report(report)) = neighbour.poll_transmit(neighbour.poll_timeout().unwrap())
        else {
            panic!("no report")
        };
        assert_eq!(report.heard[..], [run(3, 3)]);
    }

    #[test]
    fn what_is_for_another_is_counted_and_not_kept() {
        let mut neighbour: Neighbour<char> =
            Neighbour::new(Lending { strategy: Strategy::Unicast, ..LENDING });
        neighbour.set_member(Member::new(3).unwrap());
        let other = AirChunk { addressee: Member::new(2), ..frame(0, 0) };
        neighbour.handle_frame(Timestamp::ZERO, &other, 'x');
        assert_eq!(neighbour.poll_transmit(Timestamp::ZERO), None);
        let own = AirChunk { addressee: Member::new(3), ..frame(1, 1) };
        neighbour.handle_frame(Timestamp::ZERO, &own, 'y');
        assert_eq!(neighbour.poll_transmit(Timestamp::ZERO), Some(Transmit::Carry(Chunk(1), 'y')));
    }
}
