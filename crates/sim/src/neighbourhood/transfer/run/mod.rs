//! The run of transfers: events in virtual time.

mod air;
mod homes;
mod party;

use std::time::Duration;

use units::Timestamp;
use upload::{Arrival, Broadcast};
use wire::upload::{AirRepeat, Chunk, Feedback, Grant, Member, Report};

use super::super::spec::air_times;
use super::{Fault, Outcome, Transfer};
use crate::{EventQueue, SeededRandom};
use homes::Home;
use party::Party;

/// A transfer that has not ended by then never will.
const LONGEST: Duration = Duration::from_secs(3_600);
/// Timers are no finer than this.
const TICK: Duration = Duration::from_micros(10);

/// What happens; a number in front of others is that of the transfer, or of the home if it stands alone.
enum Happening {
    /// A frame has left the air: who heard it, as bits, and for one neighbour after how many attempts.
    AirFree(usize, Broadcast, u64, u32),
    /// A home's repeat has left the air, with its content: who heard it, as bits.
    Repeated(AirRepeat, u64, u64),
    Reported(usize, Life, Report),
    Carried(usize, Life, Chunk, u64),
    OwnCarried(usize, u32, Chunk, u64),
    Granted(usize, Life, Grant),
    Told(usize, u32, Feedback),
    /// The first source's connection breaks, and is there again.
    Broken(Duration),
    Mended,
    NeighbourTimer(usize),
    SourceTimer(usize),
    DestinationTimer(usize),
    Fault(usize, Fault),
    Connected(Life),
    Disconnected(Life),
}

/// A home in one of its lives: what belongs to an earlier one is void.
#[derive(Clone, Copy)]
struct Life {
    home: usize,
    life: u32,
}

pub(super) struct Run<'a> {
    transfer: &'a Transfer,
    now: Timestamp,
    events: EventQueue<Happening>,
    parties: Vec<Party>,
    homes: Vec<Home>,
    air_free: bool,
    /// Who is asked first for the next frame: stations that contend get the medium equally often.
    next_on_air: usize,
    random: SeededRandom,
    air_times: [Duration; 4],
}

impl<'a> Run<'a> {
    pub(super) fn new(transfer: &'a Transfer) -> Self {
        let mut run = Self {
            transfer,
            now: Timestamp::ZERO,
            events: EventQueue::new(),
            parties: transfer
                .parties()
                .iter()
                .enumerate()
                .map(|(number, (spec, chunks))| Party::new(transfer, number, spec, *chunks))
                .collect(),
            homes: Vec::new(),
            air_free: true,
            next_on_air: 0,
            random: SeededRandom::derive(transfer.seed, "air"),
            air_times: air_times(),
        };
        for (at, spec) in transfer.neighbourhood.neighbours.iter().enumerate() {
            let home = Home::new(transfer, &run.parties, at, spec.uplink);
            run.homes.push(home);
            run.connect(at);
        }
        for (at, home, fault) in &transfer.faults {
            run.events.insert(*at, Happening::Fault(*home, *fault));
        }
        for (at, length) in &transfer.breaks {
            run.events.insert(*at, Happening::Broken(*length));
        }
        run
    }

    pub(super) fn run(mut self) -> Vec<Outcome> {
        for number in 0..self.parties.len() {
            self.serve_destination(number);
            self.serve_source(number);
        }
        let end = Timestamp::ZERO + LONGEST;
        while !self.parties.iter().all(|party| party.outcome.took.is_some()) {
            let Some((at, happening)) = self.events.pop_due(end) else { break };
            self.now = at;
            self.handle(happening);
            for party in &mut self.parties {
                if party.outcome.took.is_none() && party.destination.is_done() {
                    party.outcome.took = Some(at.since(Timestamp::ZERO));
                }
            }
        }
        let homes = self.homes;
        let members = |number: usize| homes.iter().map(move |home| home.member(number));
        let parties = self.parties.into_iter().enumerate();
        parties.map(|(number, party)| party.into_outcome(members(number))).collect()
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::AirFree(number, frame, heard, attempts) => {
                self.end_frame(number, &frame, heard, attempts);
            }
            Happening::Repeated(repeat, content, heard) => self.end_repeat(&repeat, content, heard),
            Happening::Reported(number, from, report) => {
                if let Some(member) = self.connected(number, from) {
                    let now = self.now;
                    self.with(number, |party| party.destination.handle_report(now, member, &report));
                    self.serve_destination(number);
                }
            }
            Happening::Carried(number, from, chunk, content) => {
                if let Some(member) = self.connected(number, from) {
                    self.arrive(number, Arrival::By(member), chunk, content);
                }
            }
            Happening::OwnCarried(number, life, ..) | Happening::Told(number, life, _)
                if self.parties.get(number).is_none_or(|party| party.own_life != life) => {}
            Happening::OwnCarried(number, _, chunk, content) => {
                self.arrive(number, Arrival::Own, chunk, content);
            }
            Happening::Broken(length) => {
                self.with(0, |party| {
                    party.own_connected = false;
                    party.own_life += 1;
                });
                self.events.insert(self.now + length, Happening::Mended);
            }
            Happening::Mended => {
                let now = self.now;
                self.with(0, |party| {
                    party.own_connected = true;
                    party.source.handle_reconnected(now, &[]);
                    party.destination.handle_source_reconnected(now);
                });
                self.serve_destination(0);
                self.serve_source(0);
            }
            Happening::Granted(number, to, grant) => {
                if let Some(home) = self.homes.get_mut(to.home).filter(|home| home.is_in(to.life)) {
                    home.handle_grant(number, &grant);
                    self.serve_neighbour(to.home);
                    self.serve_air();
                }
            }
            Happening::Told(number, _, feedback) => {
                let now = self.now;
                self.with(number, |party| party.source.handle_feedback(now, &feedback));
                self.serve_source(number);
                self.measure(number);
            }
            // A timer that was set anew since is void.
            Happening::NeighbourTimer(at) => {
                if let Some(home) = self.homes.get_mut(at).filter(|home| home.timer == self.now) {
                    home.timer = Timestamp::FAR_FUTURE;
                    self.serve_neighbour(at);
                }
            }
            Happening::SourceTimer(number) => {
                let party = self.parties.get_mut(number).filter(|party| party.source_timer == self.now);
                if let Some(party) = party {
                    party.source_timer = Timestamp::FAR_FUTURE;
                    self.serve_source(number);
                }
            }
            Happening::DestinationTimer(number) => {
                let party = self.parties.get_mut(number).filter(|party| party.destination_timer == self.now);
                if let Some(party) = party {
                    party.destination_timer = Timestamp::FAR_FUTURE;
                    self.serve_destination(number);
                }
            }
            Happening::Fault(at, fault) => self.suffer(at, fault),
            Happening::Connected(home) => self.join(home),
            Happening::Disconnected(home) => self.part(home),
        }
    }

    fn with(&mut self, number: usize, act: impl FnOnce(&mut Party)) {
        if let Some(party) = self.parties.get_mut(number) {
            act(party);
        }
    }

    fn connected(&self, number: usize, from: Life) -> Option<Member> {
        self.homes.get(from.home).filter(|home| home.life == from.life)?.member(number)
    }

    /// What a chunk of one of the files is.
    fn content(&self, number: usize, chunk: Chunk) -> u64 {
        self.transfer.content(chunk).wrapping_add(number as u64)
    }

    fn arrive(&mut self, number: usize, from: Arrival, chunk: Chunk, content: u64) {
        let (now, genuine) = (self.now, content == self.content(number, chunk));
        self.with(number, |party| party.arrive(now, from, chunk, content, genuine));
        self.serve_destination(number);
        if from == Arrival::Own {
            self.serve_source(number);
        }
    }

    fn serve_destination(&mut self, number: usize) {
        let Some(party) = self.parties.get_mut(number) else { return };
        party.destination.handle_timeout(self.now);
        while let Some((member, grant)) = party.destination.poll_grant(self.now) {
            let at = self.homes.iter().position(|home| home.member(number) == Some(member));
            let Some((at, home)) = at.and_then(|at| Some((at, self.homes.get(at)?))) else { continue };
            let to = Life { home: at, life: home.life };
            self.events.insert(self.now + home.uplink.delay(), Happening::Granted(number, to, grant));
        }
        while let Some(feedback) = party.destination.poll_feedback(self.now) {
            if party.own_connected {
                let when = self.now + party.own.delay();
                self.events.insert(when, Happening::Told(number, party.own_life, feedback));
            }
        }
        let next = party.destination.poll_timeout();
        party.note_haste(self.now, next);
        if let Some(next) = next.filter(|next| *next < party.destination_timer) {
            party.destination_timer = next.max(self.now + TICK);
            self.events.insert(party.destination_timer, Happening::DestinationTimer(number));
        }
    }

    fn measure(&mut self, number: usize) {
        let neighbours = self.homes.iter().map(|home| home.lender.memory()).max().unwrap_or(0);
        self.with(number, |party| {
            let now = [party.source.memory(), party.destination.memory(), neighbours];
            for (most, now) in party.outcome.memory.iter_mut().zip(now) {
                *most = (*most).max(now);
            }
        });
    }
}
