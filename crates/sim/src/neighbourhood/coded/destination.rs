//! The destination of a coded transfer: who sends how many combinations of which generation.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use units::Timestamp;
use upload::Settings;
use upload::coding::{Combination, Span};

use super::super::uplink::{Uplink, carried_bytes};
use super::source::{News, Told};
use super::{CONTENT, Cut, FrameId, Mixing};

/// Generations or frames, oldest first, among which the one that others need least is chosen; as in `upload`.
const COMPARED: usize = 16;

/// What a neighbour is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Order {
    /// Send a combination of this generation, or this frame.
    Carry(FrameId),
    /// Nothing more of this generation.
    Whole(u32),
}

/// What is known of a generation that is not whole.
#[derive(Debug)]
struct Partial {
    span: Span,
    /// Frames that were heard: by whom, as bits, and whether somebody is to carry it.
    frames: BTreeMap<u32, (u64, bool)>,
    /// Granted and not come: to whom, and when it should come.
    outstanding: Vec<(usize, Timestamp)>,
}

#[derive(Debug)]
struct Member {
    window: usize,
    delay: Duration,
    each: Duration,
    through: u32,
    outstanding: VecDeque<FrameId>,
    /// By generation: what it has heard and not been granted.
    left: BTreeMap<u32, u32>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Destination {
    cut: Cut,
    mixing: Mixing,
    partial: BTreeMap<u32, Partial>,
    /// All from it on have not been heard of.
    next: u32,
    whole: u32,
    identical: bool,
    members: Vec<Member>,
    orders: VecDeque<(usize, Order)>,
    newly_whole: Vec<u32>,
}

impl Partial {
    /// Combinations that are missing and not granted; reckoned with what should have come by then.
    fn need(&self, size: usize, by: Timestamp) -> usize {
        let coming = self.outstanding.iter().filter(|(_, due)| *due <= by).count();
        size.saturating_sub(self.span.rank() + coming)
    }
}

impl Destination {
    pub(super) fn new<'a>(cut: Cut, mixing: Mixing, uplinks: impl Iterator<Item = &'a Uplink>) -> Self {
        let member = |uplink: &Uplink| Member {
            window: uplink.window() as usize + 2,
            delay: uplink.delay(),
            each: uplink.rate().time_for(carried_bytes()),
            through: 0,
            outstanding: VecDeque::new(),
            left: BTreeMap::new(),
        };
        Self {
            cut,
            mixing,
            partial: BTreeMap::new(),
            next: 0,
            whole: 0,
            identical: true,
            members: uplinks.map(member).collect(),
            orders: VecDeque::new(),
            newly_whole: Vec::new(),
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.whole >= self.cut.generations()
    }

    /// Whether all that was decoded is what was sent.
    pub(super) const fn is_identical(&self) -> bool {
        self.identical
    }

    pub(super) fn handle_report(&mut self, at: usize, heard: &[FrameId], through: u32) {
        for id in heard {
            self.touch(id.generation);
            let (Some(partial), Some(member)) =
                (self.partial.get_mut(&id.generation), self.members.get_mut(at))
            else {
                continue;
            };
            partial.frames.entry(id.index).or_default().0 |= 1 << at;
            *member.left.entry(id.generation).or_default() += 1;
        }
        if let Some(member) = self.members.get_mut(at) {
            member.through = member.through.max(through);
        }
    }

    /// Whether a combination told anything.
    pub(super) fn handle_carried(
        &mut self,
        by: Option<usize>,
        id: FrameId,
        combination: Combination,
    ) -> bool {
        self.touch(id.generation);
        if let Some(member) = by.and_then(|at| self.members.get_mut(at))
            && let Some(place) = member.outstanding.iter().position(|granted| *granted == id)
        {
            member.outstanding.remove(place);
        }
        let Some(partial) = self.partial.get_mut(&id.generation) else { return false };
        if let Some(place) = by.and_then(|at| partial.outstanding.iter().position(|(to, _)| *to == at)) {
            partial.outstanding.remove(place);
        }
        let new = partial.span.insert(combination);
        if !new
            && let Some(at) = by
            && let Some(member) = self.members.get_mut(at)
        {
            // Who knows no more dimensions than are here has most likely nothing new, until it hears more; who does was unlucky.
            let knows = partial.frames.values().filter(|(holders, _)| holders >> at & 1 == 1).count();
            member.left.insert(id.generation, knows.saturating_sub(partial.span.rank()) as u32);
        }
        if partial.span.is_whole() {
            self.end(id.generation);
        }
        new
    }

    /// The next order; all have been given when there is none.
    pub(super) fn poll_order(&mut self, now: Timestamp) -> Option<(usize, Order)> {
        if let Some(order) = self.orders.pop_front() {
            return Some(order);
        }
        for at in 0..self.members.len() {
            let member = self.members.get(at)?;
            if member.outstanding.len() < member.window
                && let Some(id) = self.choose(at, now)
            {
                self.grant(now, at, id);
                return Some((at, Order::Carry(id)));
            }
        }
        None
    }

    /// What the source is told.
    pub(super) fn news(&mut self) -> News {
        let far = Timestamp::FAR_FUTURE;
        let known = self.partial.iter().map(|(generation, partial)| {
            let need = partial.need(self.cut.size(*generation), far) as u32;
            (*generation, Told { heard: partial.frames.len() as u32, need })
        });
        let known = known.collect();
        let lacks = |at: usize, member: &Member| {
            (member.window * Settings::PAPER.buffer_products as usize) as i64
                - (member.outstanding.len() as i64 + i64::from(self.useful(at)))
        };
        let shortage = self.members.iter().enumerate().map(|(at, member)| lacks(at, member)).max();
        let through = self.members.iter().map(|member| member.through).min().unwrap_or(0);
        let whole = std::mem::take(&mut self.newly_whole);
        News { through, shortage: shortage.unwrap_or(0), known, whole }
    }

    /// How many combinations a neighbour could still be granted.
    fn useful(&self, at: usize) -> u32 {
        let Some(member) = self.members.get(at) else { return 0 };
        let useful = |(generation, left): (&u32, &u32)| {
            let partial = self.partial.get(generation)?;
            Some((*left).min(partial.need(self.cut.size(*generation), Timestamp::FAR_FUTURE) as u32))
        };
        member.left.iter().filter_map(useful).sum()
    }

    /// Of what a neighbour could send, the one that the others need least. At the end also what others were granted and bring later.
    fn choose(&self, at: usize, now: Timestamp) -> Option<FrameId> {
        let member = self.members.get(at)?;
        let ending = self.next >= self.cut.generations();
        let due = if ending { member.arrival(now) } else { Timestamp::FAR_FUTURE };
        let able = member.left.iter().filter(|(generation, left)| {
            let partial = self.partial.get(generation);
            **left > 0 && partial.is_some_and(|partial| partial.need(self.cut.size(**generation), due) > 0)
        });
        let useful: Vec<f64> = (0..self.members.len()).map(|at| f64::from(self.useful(at))).collect();
        let need_of = |holders: u64| -> f64 {
            let others =
                useful.iter().enumerate().filter(|(other, _)| *other != at && holders >> other & 1 == 1);
            others.map(|(_, useful)| 1.0 / useful.max(1.0)).sum()
        };
        let choices: Vec<(FrameId, f64)> = match self.mixing {
            Mixing::Neighbours => able
                .take(COMPARED)
                .map(|(generation, _)| {
                    let holds = |member: &Member| member.left.get(generation).is_some_and(|left| *left > 0);
                    let holders = self.members.iter().enumerate();
                    let holders = holders.fold(0, |set, (at, member)| set | u64::from(holds(member)) << at);
                    (FrameId { generation: *generation, index: 0 }, need_of(holders))
                })
                .collect(),
            Mixing::Source => able
                .flat_map(|(generation, _)| {
                    let frames = self.partial.get(generation).into_iter().flat_map(|partial| &partial.frames);
                    let mine = frames.filter(|(_, (holders, given))| holders >> at & 1 == 1 && !given);
                    mine.map(|(index, (holders, _))| {
                        (FrameId { generation: *generation, index: *index }, *holders)
                    })
                })
                .take(COMPARED)
                .map(|(id, holders)| (id, need_of(holders)))
                .collect(),
        };
        choices.into_iter().min_by(|one, other| one.1.total_cmp(&other.1)).map(|(id, _)| id)
    }

    fn grant(&mut self, now: Timestamp, at: usize, id: FrameId) {
        let Some(due) = self.members.get(at).map(|member| member.arrival(now)) else { return };
        let Some(partial) = self.partial.get_mut(&id.generation) else { return };
        partial.outstanding.push((at, due));
        let mut losers = 1 << at;
        if self.mixing == Mixing::Source
            && let Some((holders, given)) = partial.frames.get_mut(&id.index)
        {
            (*given, losers) = (true, *holders);
        }
        for (other, member) in self.members.iter_mut().enumerate() {
            if losers >> other & 1 == 1
                && let Some(left) = member.left.get_mut(&id.generation)
            {
                *left = left.saturating_sub(1);
            }
        }
        if let Some(member) = self.members.get_mut(at) {
            member.outstanding.push_back(id);
        }
    }

    fn touch(&mut self, generation: u32) {
        while self.next <= generation {
            let span = Span::new(self.cut.size(self.next), CONTENT);
            let partial = Partial { span, frames: BTreeMap::new(), outstanding: Vec::new() };
            self.partial.insert(self.next, partial);
            self.next += 1;
        }
    }

    fn end(&mut self, generation: u32) {
        let Some(partial) = self.partial.remove(&generation) else { return };
        let chunks = partial.span.chunks().unwrap_or_default();
        let sent = (0..self.cut.size(generation)).map(|at| self.cut.content(generation, at));
        self.identical &= chunks.len() == self.cut.size(generation)
            && chunks.iter().zip(sent).all(|(chunk, sent)| *chunk == sent.as_slice());
        self.whole += 1;
        self.newly_whole.push(generation);
        for (at, member) in self.members.iter_mut().enumerate() {
            member.left.remove(&generation);
            member.outstanding.retain(|id| id.generation != generation);
            self.orders.push_back((at, Order::Whole(generation)));
        }
    }
}

impl Member {
    /// When a combination that it is granted now should come.
    fn arrival(&self, now: Timestamp) -> Timestamp {
        now + self.delay * 2 + self.each * (self.outstanding.len() as u32 + 1)
    }
}
