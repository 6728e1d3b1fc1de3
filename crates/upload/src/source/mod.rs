//! The source: what goes on the air, what goes up its own uplink, how fast and at which bit rate.
//!
//! ```text
//!            next in order            heard by somebody
//!  unsent -------------------> air -----------------> held ----+
//!     |                         ^  <-----------------          | stored
//!     | own uplink              |   nobody has it any more     v
//!     +----------> own ---------+---------------------------> stored
//!                       connection lost
//! ```

mod resend;

use std::collections::VecDeque;
use std::time::Duration;

use units::Timestamp;
use wire::upload::{
    AirChunk, AirNumber, Chunk, Feedback, MAX_MEMBERS, MAX_RUNS, Member, MemberState, RateIndex, Run,
    Transfer,
};

use crate::pace::Pace;
use crate::ranges::RangeSet;
use crate::rates::{BitRates, Receptions};
use crate::settings::{RateChoice, Settings, Strategy};
use crate::window::Window;
use resend::{Resend, Sent, Stamp};

/// How long a frame's fate may stay unknown before it is sent again all the same.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long the one neighbour that was sent a chunk may take to bring it, before it is sent again.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// Whose turn it is among what neighbours have: see `Source::next_behind`.
const OWN: usize = 0;
const AIR: usize = 1;

/// Where a chunk is, as far as the source knows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Place {
    #[default]
    Unsent,
    /// It was on the air, or is to be.
    Air(Stamp),
    /// On the own uplink.
    Own,
    /// With a neighbour.
    Held,
    /// At the destination.
    Stored,
    /// Sent to this neighbour alone, which has it.
    With(Member, Stamp),
}

/// A frame to be sent now.
pub type Broadcast = AirChunk;

/// What the source knows of a neighbour.
#[derive(Clone, Copy, Default, Debug)]
struct Listener {
    target: u32,
    room: u32,
    /// Chunks that it alone was sent and that are not stored yet.
    under_way: u32,
    known: bool,
}

/// One file on its way to one destination. See the crate's page for the contract.
#[derive(Clone, Debug)]
pub struct Source {
    settings: Settings,
    transfer: Transfer,
    chunks: u32,
    stored: RangeSet,
    places: Window<Place>,
    /// All chunks in front of it were sent at least once.
    next: Chunk,
    sent: Resend,
    air: AirNumber,
    through: AirNumber,
    pace: Pace,
    receptions: Receptions,
    listeners: Vec<Listener>,
    own: VecDeque<Chunk>,
    own_window: u32,
    spare: VecDeque<Chunk>,
    /// Where the own uplink and the air are among what neighbours have already, from the end backwards.
    behind: [Chunk; 2],
    nothing_behind: bool,
    /// When to look for a frame again, if there are no news before; none if only news can help.
    wake: Option<Timestamp>,
    /// After a reconnection nothing is sent again before the destination has told everything anew, or this time has come.
    resumes: Option<Timestamp>,
}

impl Source {
    /// A source of `chunks` chunks, of which the destination has `stored`. `own_window` is the bandwidth-delay product of its own uplink in chunks; 0 if it has
    /// none.
    pub fn new(
        now: Timestamp,
        settings: Settings,
        transfer: Transfer,
        chunks: u32,
        stored: RangeSet,
        rates: BitRates,
        own_window: u32,
    ) -> Self {
        let receptions = Receptions::new(rates);
        let base = stored.first_missing(Chunk(0));
        let mut source = Self {
            settings,
            transfer,
            chunks,
            stored,
            places: Window::new(base, settings.ahead),
            next: base,
            sent: Resend::new(),
            air: AirNumber(0),
            through: AirNumber(0),
            pace: Pace::new(now, settings.pace, 1.0),
            receptions,
            listeners: vec![Listener::default(); MAX_MEMBERS],
            own: VecDeque::new(),
            own_window,
            spare: VecDeque::new(),
            behind: [Chunk(u32::MAX); 2],
            nothing_behind: false,
            wake: Some(now),
            resumes: None,
        };
        source.pace = Pace::new(now, settings.pace, source.greatest_pace());
        source
    }

    /// Everything is stored.
    pub fn is_done(&self) -> bool {
        self.stored.count() >= self.chunks
    }

    /// What the destination has.
    pub const fn stored(&self) -> &RangeSet {
        &self.stored
    }

    /// Frames a second that may be sent at present.
    pub const fn pace(&self) -> f64 {
        self.pace.rate()
    }

    /// Frames sent so far.
    pub const fn frames(&self) -> u32 {
        self.air.0
    }

    /// The bit rate in use for everybody.
    pub const fn rate(&self) -> RateIndex {
        self.receptions.best()
    }

    /// The bandwidth-delay product of the own uplink in chunks, as measured.
    pub const fn set_uplink_window(&mut self, chunks: u32) {
        self.own_window = chunks;
    }

    /// How well a neighbour heard frames at a rate before this transfer.
    pub fn set_reception(&mut self, member: Member, rate: RateIndex, sent: u32, heard: u32) {
        self.receptions.add(member, rate, f64::from(sent), f64::from(heard.min(sent)));
    }

    /// News from the destination.
    pub fn handle_feedback(&mut self, now: Timestamp, feedback: &Feedback) {
        if feedback.transfer != self.transfer {
            return;
        }
        // Nobody can tell of frames that were not sent.
        self.through = feedback.through.min(self.air);
        if is_last(feedback) {
            self.resumes = None;
        }
        self.nothing_behind = false;
        self.wake = Some(now);
        for run in &feedback.stored {
            self.handle_stored(*run);
        }
        if self.settings.heeds_reports && self.settings.strategy == Strategy::Scheduled {
            for chunk in self.inside(&feedback.held) {
                // What was never sent nobody can have.
                if let Some(place @ Place::Air(_)) = self.places.reach(chunk) {
                    *place = Place::Held;
                }
            }
        }
        let lost = self.inside(&feedback.lost);
        for chunk in lost.into_iter().rev() {
            self.handle_lost(now, chunk);
        }
        self.spare.extend(feedback.spare.iter().flat_map(|run| run.chunks().take(self.own_window as usize)));
        self.spare.truncate(self.settings.ahead as usize);
        self.handle_members(&feedback.members);
        self.pace.set_shortage(feedback.shortage);
        let with_room: Vec<Member> =
            self.known().filter(|(_, one)| one.room > 0).map(|(member, _)| member).collect();
        self.receptions.choose(self.settings.rate, &with_room);
        self.pace.step(now, self.greatest_pace());
    }

    /// The connection to the destination was lost and is there again: what was on it is sent again unless `stored`, and what neighbours hold unless the
    /// destination, which calls [`crate::Destination::handle_source_reconnected`], says that they still do.
    pub fn handle_reconnected(&mut self, now: Timestamp, stored: &[Run]) {
        for run in stored {
            self.handle_stored(*run);
        }
        self.own.clear();
        self.spare.clear();
        for listener in &mut self.listeners {
            (listener.room, listener.under_way) = (0, 0);
        }
        (self.resumes, self.wake) = (Some(now + PATIENCE), Some(now));
        self.sent.renew(now);
        let elsewhere = |place: &Place| matches!(place, Place::Own | Place::Held | Place::With(..));
        let mut unsure: Vec<Chunk> =
            self.places.iter_mut().filter(|(_, place)| elsewhere(place)).map(|(chunk, _)| chunk).collect();
        while let Some(chunk) = unsure.pop() {
            self.send_again(now, chunk);
        }
    }

    /// What became of a frame for one neighbour: acknowledged or not, after so many attempts.
    pub fn handle_unicast_outcome(
        &mut self,
        now: Timestamp,
        frame: &Broadcast,
        delivered: bool,
        attempts: u32,
    ) {
        let Some(member) = frame.addressee else { return };
        self.receptions.add(member, frame.rate, f64::from(attempts), f64::from(u8::from(delivered)));
        self.wake = Some(now);
        let Some(place) = self.places.reach(frame.chunk) else { return };
        let Place::Air(stamp) = *place else { return };
        if !delivered {
            self.send_again(now, frame.chunk);
        } else {
            *place = Place::With(member, stamp);
            if let Some(listener) = self.listeners.get_mut(usize::from(member.number())) {
                listener.under_way += 1;
            }
        }
    }

    /// The next frame for the air, while the card has room.
    pub fn poll_broadcast(&mut self, now: Timestamp) -> Option<Broadcast> {
        self.pace.step(now, self.greatest_pace());
        self.give_up_on_neighbours(now);
        if self.is_done() {
            return None;
        }
        let (addressee, rate) = match self.settings.strategy {
            Strategy::Unicast => {
                let Some((member, rate)) = self.best_listener() else {
                    self.wait_for_patience(now);
                    return None;
                };
                (Some(member), rate)
            }
            // Nobody is known yet, or they have enough: the pace tells.
            Strategy::Scheduled | Strategy::Random => {
                if !self.pace.allows(now) {
                    self.wake = Some(self.pace.next_frame());
                    return None;
                }
                (None, self.receptions.next_rate(self.air, self.settings.rate))
            }
        };
        let Some(chunk) = self.next_for_air(now) else {
            self.wait_for_patience(now);
            return None;
        };
        let air = self.air;
        self.air = AirNumber(air.0.wrapping_add(1));
        self.pace.spend(now);
        if addressee.is_none() {
            self.receptions.handle_sent(air, rate);
        }
        if let Some(place) = self.places.reach(chunk).filter(|place| **place != Place::Held) {
            *place = Place::Air(self.sent.push_last(chunk, air, now));
            self.sent.shorten(&self.places);
        }
        Some(AirChunk { transfer: self.transfer, air, rate, addressee, chunk })
    }

    /// The next chunk for the own uplink, while its socket has room.
    pub fn poll_uplink(&mut self, now: Timestamp) -> Option<Chunk> {
        if self.own.len() >= self.own_window as usize || self.is_done() {
            return None;
        }
        let fresh = self.next_spare().or_else(|| self.next_in_order()).or_else(|| self.next_again(now));
        let chunk = fresh.or_else(|| self.next_behind(OWN))?;
        if let Some(place) = self.places.reach(chunk) {
            *place = Place::Own;
        }
        self.own.push_back(chunk);
        Some(chunk)
    }

    /// When to poll again, if nothing else happens; `None` if only news help. While the card has no room it means nothing: poll when it has.
    pub fn poll_timeout(&self) -> Option<Timestamp> {
        if self.is_done() { None } else { self.wake }
    }

    /// Bytes that it takes up, roughly.
    pub fn memory(&self) -> usize {
        self.places.memory()
            + self.sent.memory()
            + (self.own.capacity() + self.spare.capacity()) * size_of::<Chunk>()
            + self.stored.memory()
    }

    fn handle_stored(&mut self, run: Run) {
        let last = Chunk(run.last().0.min(self.chunks.saturating_sub(1)));
        let Some(run) = Run::new(run.first(), last) else { return };
        self.stored.insert_run(run);
        let inside = Run::new(run.first().max(self.places.base()), run.last().min(self.places.end()));
        for chunk in inside.into_iter().flat_map(Run::chunks) {
            self.take_from_neighbour(chunk);
            if let Some(place) = self.places.reach(chunk) {
                *place = Place::Stored;
            }
        }
        let stored = &self.stored;
        self.own.retain(|chunk| !stored.contains(*chunk));
        self.places.advance(self.stored.first_missing(self.places.base()));
        self.next = self.next.max(self.places.base());
    }

    fn handle_members(&mut self, states: &[MemberState]) {
        for (number, listener) in self.listeners.iter_mut().enumerate() {
            let here = states.iter().any(|state| usize::from(state.member.number()) == number);
            if listener.known
                && !here
                && let Some(member) = Member::new(number as u8)
            {
                self.receptions.forget(member);
            }
            listener.known = here;
        }
        for state in states {
            for reception in &state.receptions {
                self.receptions.handle_reception(state.member, reception);
            }
            if let Some(listener) = self.listeners.get_mut(usize::from(state.member.number())) {
                (listener.target, listener.room) = (state.target, state.room);
            }
        }
    }

    /// Nobody has it any more. What is on the air may still be heard.
    fn handle_lost(&mut self, now: Timestamp, chunk: Chunk) {
        if matches!(self.places.get(chunk), Some(Place::Held | Place::With(..))) {
            self.send_again(now, chunk);
        }
    }

    /// Before all others: it is known that nobody has it.
    fn send_again(&mut self, now: Timestamp, chunk: Chunk) {
        self.take_from_neighbour(chunk);
        if let Some(place) = self.places.reach(chunk) {
            *place = Place::Air(self.sent.push_first(chunk, now));
        }
        self.sent.shorten(&self.places);
    }

    /// A chunk is under way to one neighbour no longer.
    fn take_from_neighbour(&mut self, chunk: Chunk) {
        if let Some(Place::With(member, _)) = self.places.get(chunk)
            && let Some(listener) = self.listeners.get_mut(usize::from(member.number()))
        {
            listener.under_way = listener.under_way.saturating_sub(1);
        }
    }

    /// What a neighbour was sent alone and did not bring goes to another.
    fn give_up_on_neighbours(&mut self, now: Timestamp) {
        while let Some(sent) = self.sent.first(&self.places)
            && self.patience_with(&sent) == GIVEN_UP
            && now.since(sent.at) >= GIVEN_UP
        {
            self.sent.remove_first();
            self.send_again(now, sent.chunk);
        }
    }

    fn patience_with(&self, sent: &Sent) -> Duration {
        if matches!(self.places.get(sent.chunk), Some(Place::With(..))) { GIVEN_UP } else { PATIENCE }
    }

    /// Nothing can be sent before the patience with the oldest frame ends, or before there are news.
    fn wait_for_patience(&mut self, now: Timestamp) {
        let oldest = self.sent.first(&self.places);
        let due = oldest.map(|sent| sent.at + self.patience_with(&sent));
        let due = self.resumes.into_iter().chain(due).find(|due| *due > now);
        self.wake = due;
    }

    fn is_resuming(&self, now: Timestamp) -> bool {
        self.resumes.is_some_and(|resumes| now < resumes)
    }

    /// In order, then the oldest that is not acknowledged (`[LINKALIKE] III.C.4`).
    fn next_for_air(&mut self, now: Timestamp) -> Option<Chunk> {
        self.next_in_order().or_else(|| self.next_again(now)).or_else(|| self.next_behind(AIR))
    }

    /// All were sent and are with somebody, who may have more of them than it can carry for long: then they are worth carrying, or hearing, elsewhere too. The last
    /// ones first, since neighbours begin with the first.
    fn next_behind(&mut self, who: usize) -> Option<Chunk> {
        if !self.settings.heeds_reports || self.settings.strategy != Strategy::Scheduled {
            return None;
        }
        let (base, end) = (self.places.base(), self.end());
        let from = self.behind.get(who).copied().filter(|from| *from > base).unwrap_or(end).min(end);
        if self.nothing_behind {
            return None;
        }
        let open = |chunk: &Chunk| self.places.get(*chunk) == Some(&Place::Held);
        let found = (base.0..from.0).rev().map(Chunk).find(open);
        // The whole was looked through: there is nothing before the next news.
        self.nothing_behind = found.is_none() && from == end;
        if let Some(behind) = self.behind.get_mut(who) {
            *behind = found.unwrap_or(end);
        }
        found
    }

    fn next_in_order(&mut self) -> Option<Chunk> {
        while self.next < self.end() {
            let chunk = self.stored.first_missing(self.next);
            self.next = Chunk(chunk.0.saturating_add(1));
            if chunk >= self.end() {
                self.next = self.end();
                return None;
            }
            if self.places.get(chunk).is_none_or(|place| *place == Place::Unsent) {
                return Some(chunk);
            }
        }
        None
    }

    fn next_again(&mut self, now: Timestamp) -> Option<Chunk> {
        if self.is_resuming(now) {
            return None;
        }
        let sent = self.sent.first(&self.places)?;
        let with = matches!(self.places.get(sent.chunk), Some(Place::With(..)));
        let told = sent.air.is_none_or(|air| air < self.through);
        let patient = now.since(sent.at) < self.patience_with(&sent);
        if patient && (with || self.settings.heeds_reports && !told) {
            return None;
        }
        self.sent.remove_first();
        self.take_from_neighbour(sent.chunk);
        Some(sent.chunk)
    }

    fn next_spare(&mut self) -> Option<Chunk> {
        while let Some(chunk) = self.spare.pop_front() {
            let own = self.places.get(chunk) == Some(&Place::Own);
            if chunk < self.end() && !own && !self.stored.contains(chunk) {
                return Some(chunk);
            }
        }
        None
    }

    /// Behind the last chunk that may be under way.
    fn end(&self) -> Chunk {
        self.places.end().min(Chunk(self.chunks))
    }

    /// Chunks of `runs` that are under way, and no others: what is beyond costs nothing.
    fn inside(&self, runs: &[Run]) -> Vec<Chunk> {
        let (first, end) = (self.places.base(), self.end());
        let Some(last) = end.0.checked_sub(1).map(Chunk) else { return Vec::new() };
        let inside = runs.iter().filter_map(|run| Run::new(run.first().max(first), run.last().min(last)));
        inside.flat_map(Run::chunks).collect()
    }

    /// The neighbour with room that is reached in the least time.
    fn best_listener(&self) -> Option<(Member, RateIndex)> {
        let with_room = self.known().filter(|(_, one)| one.under_way < one.target);
        let timed = with_room.map(|(member, _)| (member, self.receptions.best_for(member)));
        let best = timed.min_by(|(_, one), (_, other)| one.1.total_cmp(&other.1))?;
        let rate = match self.settings.rate {
            RateChoice::Fixed(rate) => rate,
            RateChoice::BestMember | RateChoice::AnyMember => best.1.0,
        };
        Some((best.0, rate))
    }

    fn known(&self) -> impl Iterator<Item = (Member, &Listener)> {
        let all = self.listeners.iter().enumerate().filter(|(_, listener)| listener.known);
        all.filter_map(|(number, listener)| Some((Member::new(number as u8)?, listener)))
    }

    /// What the medium carries at the rate in use, frames a second.
    fn greatest_pace(&self) -> f64 {
        let rate = match self.settings.rate {
            RateChoice::Fixed(rate) => rate,
            RateChoice::BestMember | RateChoice::AnyMember => self.receptions.best(),
        };
        1.0 / self.receptions.rates().air_time(rate).as_secs_f64()
    }
}

/// Whether all news were told with this message: what it has no room for goes in the next one.
fn is_last(feedback: &Feedback) -> bool {
    [&feedback.stored, &feedback.held, &feedback.lost].iter().all(|runs| runs.len() < MAX_RUNS)
}

#[cfg(test)]
mod tests;
