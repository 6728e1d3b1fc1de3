//! The run of a transfer: events in virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use radio::airtime::{Flavour, USUAL_ATTEMPTS};
use units::Timestamp;
use upload::{
    Arrival, BitRates, Broadcast, Destination, Lending, Neighbour, PeerKey, RangeSet, Source, Transmit,
};
use wire::upload::{Chunk, Feedback, Grant, Member, Message, RateIndex, Report};

use super::super::spec::{AIR_FRAME, RATES, air_times};
use super::super::uplink::Uplink;
use super::{Conduct, Fault, Outcome, Transfer};
use crate::{EventQueue, SeededRandom};

/// Chunks that a neighbour keeps at most: 5.7 MB of somebody else's file.
const CAPACITY: usize = 4_096;
/// A transfer that has not ended by then never will.
const LONGEST: Duration = Duration::from_secs(3_600);
/// A connection that is set up again: a round trip, and what the machine takes.
const RECONNECTED_AFTER: Duration = Duration::from_millis(200);

const TRANSFER: wire::upload::Transfer = wire::upload::Transfer(1);

enum Happening {
    /// A frame has left the air: who heard it, as bits, and for one neighbour after how many attempts.
    AirFree(Broadcast, u64, u32),
    Reported(usize, u32, Report),
    Carried(usize, u32, Chunk, u64),
    OwnCarried(u32, Chunk, u64),
    Granted(usize, u32, Grant),
    Told(u32, Feedback),
    /// The source's connection breaks, and is there again.
    Broken(Duration),
    Mended,
    NeighbourTimer(usize),
    SourceTimer,
    DestinationTimer,
    Fault(usize, Fault),
    Connected(usize, u32),
    Disconnected(usize, u32),
}

struct Home {
    neighbour: Neighbour<u64>,
    uplink: Uplink,
    conduct: Conduct,
    member: Option<Member>,
    alive: bool,
    /// Counts its starts: what belongs to an earlier life is void.
    life: u32,
    timer: Timestamp,
}

pub(super) struct Run<'a> {
    transfer: &'a Transfer,
    now: Timestamp,
    events: EventQueue<Happening>,
    source: Source,
    own: Uplink,
    own_connected: bool,
    /// Counts the source's connections: what belongs to an earlier one is void.
    own_life: u32,
    air_free: bool,
    homes: Vec<Home>,
    destination: Destination,
    source_timer: Timestamp,
    destination_timer: Timestamp,
    contents: BTreeMap<Chunk, u64>,
    random: SeededRandom,
    air_times: [Duration; 4],
    chances: Vec<[f64; 4]>,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    pub(super) fn new(transfer: &'a Transfer) -> Self {
        let now = Timestamp::ZERO;
        let air_times = air_times();
        let own = Uplink::new(transfer.neighbourhood.own);
        let window = if transfer.own_uplink { own.window() + 2 } else { 0 };
        // The list of `air_times` is neither empty nor too long, so the other branch is never taken.
        let rates =
            BitRates::new(air_times.to_vec()).unwrap_or_else(|| unreachable!("four rates that take time"));
        let settings = transfer.settings;
        let source =
            Source::new(now, settings, TRANSFER, transfer.chunks, RangeSet::default(), rates, window);
        let mut run = Self {
            transfer,
            now,
            events: EventQueue::new(),
            source,
            own,
            own_connected: true,
            own_life: 0,
            air_free: true,
            homes: Vec::new(),
            destination: Destination::new(now, settings, TRANSFER, transfer.chunks, RangeSet::default()),
            source_timer: Timestamp::FAR_FUTURE,
            destination_timer: Timestamp::FAR_FUTURE,
            contents: BTreeMap::new(),
            random: SeededRandom::derive(transfer.seed, "air"),
            air_times,
            chances: Vec::new(),
            outcome: Outcome::default(),
        };
        for (at, spec) in transfer.neighbourhood.neighbours.iter().enumerate() {
            let rates = 0..RATES.len();
            let chances: Vec<f64> = rates.map(|rate| transfer.neighbourhood.own_chance(spec, rate)).collect();
            run.chances.push([0, 1, 2, 3].map(|rate| chances.get(rate).copied().unwrap_or(0.0)));
            let uplink = Uplink::new(spec.uplink);
            let neighbour = run.fresh_neighbour(at, &uplink);
            let conduct = transfer.conduct.get(at).copied().unwrap_or_default();
            let (member, timer) = (None, Timestamp::FAR_FUTURE);
            run.homes.push(Home { neighbour, uplink, conduct, member, alive: true, life: 0, timer });
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

    fn fresh_neighbour(&self, at: usize, uplink: &Uplink) -> Neighbour<u64> {
        let strategy = self.transfer.settings.strategy;
        Neighbour::new(Lending {
            transfer: TRANSFER,
            strategy,
            chunks: self.transfer.chunks,
            capacity: CAPACITY,
            window: uplink.window(),
            seed: self.transfer.seed ^ at as u64,
        })
    }

    pub(super) fn run(mut self) -> Outcome {
        self.serve_destination();
        self.serve_source();
        let end = Timestamp::ZERO + LONGEST;
        while !self.destination.is_done() {
            let Some((at, happening)) = self.events.pop_due(end) else { break };
            self.now = at;
            self.handle(happening);
        }
        if self.destination.is_done() {
            self.outcome.took = Some(self.now.since(Timestamp::ZERO));
            self.outcome.contents = self.contents.values().copied().collect();
        }
        self.outcome.own_chunks = self.destination.own_chunks();
        for at in 0..self.homes.len() {
            let member = self.homes.get(at).and_then(|home| home.member);
            self.outcome.credited +=
                member.map_or(0, |member| self.destination.member_report(member).brought);
        }
        let members =
            self.homes.iter().map(|home| home.member.map(|member| self.destination.member_report(member)));
        self.outcome.neighbours = members.map(Option::unwrap_or_default).collect();
        self.outcome
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::AirFree(frame, heard, attempts) => self.end_frame(&frame, heard, attempts),
            Happening::Reported(at, life, report) => {
                if let Some(member) = self.connected(at, life) {
                    self.destination.handle_report(self.now, member, &report);
                    self.serve_destination();
                }
            }
            Happening::Carried(at, life, chunk, content) => {
                if let Some(member) = self.connected(at, life) {
                    self.arrive(Arrival::By(member), chunk, content);
                }
            }
            Happening::OwnCarried(life, ..) | Happening::Told(life, _) if life != self.own_life => {}
            Happening::OwnCarried(_, chunk, content) => self.arrive(Arrival::Own, chunk, content),
            Happening::Broken(length) => {
                self.own_connected = false;
                self.own_life += 1;
                self.events.insert(self.now + length, Happening::Mended);
            }
            Happening::Mended => {
                self.own_connected = true;
                self.source.handle_reconnected(self.now, &[]);
                self.destination.handle_source_reconnected(self.now);
                self.serve_destination();
                self.serve_source();
            }
            Happening::Granted(at, life, grant) => {
                if let Some(home) = self.homes.get_mut(at).filter(|home| home.alive && home.life == life) {
                    home.neighbour.handle_grant(&grant);
                    self.serve_neighbour(at);
                }
            }
            Happening::Told(_, feedback) => {
                self.source.handle_feedback(self.now, &feedback);
                self.serve_source();
                self.measure();
            }
            // A timer that was set anew since is void.
            Happening::NeighbourTimer(at) => {
                if let Some(home) = self.homes.get_mut(at).filter(|home| home.timer == self.now) {
                    home.timer = Timestamp::FAR_FUTURE;
                    self.serve_neighbour(at);
                }
            }
            Happening::SourceTimer if self.source_timer == self.now => {
                self.source_timer = Timestamp::FAR_FUTURE;
                self.serve_source();
            }
            Happening::SourceTimer => {}
            Happening::DestinationTimer if self.destination_timer != self.now => {}
            Happening::DestinationTimer => {
                self.destination_timer = Timestamp::FAR_FUTURE;
                self.serve_destination();
            }
            Happening::Fault(at, fault) => self.suffer(at, fault),
            Happening::Connected(at, life) => {
                let waiting = |home: &&mut Home| home.alive && home.life == life && home.member.is_none();
                if let Some(home) = self.homes.get_mut(at).filter(waiting) {
                    home.member = self.destination.join(self.now, PeerKey([at as u8; 32]));
                    if let Some(member) = home.member {
                        home.neighbour.set_member(member);
                        home.neighbour.handle_reconnected(self.now);
                        self.hint_receptions(at, member);
                    }
                    self.serve_neighbour(at);
                    self.serve_destination();
                }
            }
            Happening::Disconnected(at, life) => {
                if let Some(home) = self.homes.get_mut(at).filter(|home| home.life == life)
                    && let Some(member) = home.member.take()
                {
                    self.leave(member);
                    self.serve_destination();
                }
            }
        }
    }

    fn connected(&self, at: usize, life: u32) -> Option<Member> {
        self.homes.get(at).filter(|home| home.life == life)?.member
    }

    fn connect(&mut self, at: usize) {
        let Some(home) = self.homes.get(at) else { return };
        self.events.insert(self.now + home.uplink.delay() * 2, Happening::Connected(at, home.life));
    }

    fn hint_receptions(&mut self, at: usize, member: Member) {
        let Some(neighbour) =
            self.transfer.neighbourhood.neighbours.get(at).filter(|_| self.transfer.known_receptions)
        else {
            return;
        };
        for (rate, chance) in neighbour.reception.iter().enumerate() {
            const FRAMES: f64 = 500.0;
            let heard = (chance * FRAMES).round() as u32;
            self.source.set_reception(member, RateIndex(rate as u8), FRAMES as u32, heard);
        }
    }

    fn suffer(&mut self, at: usize, fault: Fault) {
        let Some(home) = self.homes.get_mut(at) else { return };
        match fault {
            Fault::Killed | Fault::Silenced => {
                home.alive = false;
                if fault == Fault::Killed {
                    let when = self.now + home.uplink.delay();
                    self.events.insert(when, Happening::Disconnected(at, home.life));
                }
            }
            Fault::Started => {
                // The old connection, if it still seems to be there, is replaced by the new one.
                if let Some(member) = home.member.take() {
                    self.leave(member);
                }
                let Some(home) = self.homes.get_mut(at) else { return };
                home.alive = true;
                home.life += 1;
                let uplink = home.uplink.clone();
                let fresh = self.fresh_neighbour(at, &uplink);
                if let Some(home) = self.homes.get_mut(at) {
                    home.neighbour = fresh;
                    let when = self.now + RECONNECTED_AFTER;
                    self.events.insert(when, Happening::Connected(at, home.life));
                }
                self.serve_destination();
            }
        }
    }

    fn leave(&mut self, member: Member) {
        self.outcome.credited += self.destination.member_report(member).brought;
        self.destination.leave(self.now, member);
    }

    fn arrive(&mut self, from: Arrival, chunk: Chunk, content: u64) {
        let genuine = content == self.transfer.content(chunk);
        if !genuine {
            self.destination.handle_refused(self.now, from, chunk);
        } else {
            if self.destination.wants(chunk) {
                self.contents.insert(chunk, content);
                let tenth = (self.now.as_micros() / 100_000) as usize;
                if self.outcome.arrivals.len() <= tenth {
                    self.outcome.arrivals.resize(tenth + 1, 0);
                }
                if let Some(count) = self.outcome.arrivals.get_mut(tenth) {
                    *count += 1;
                }
            }
            self.destination.handle_stored(self.now, from, chunk);
        }
        self.serve_destination();
        if from == Arrival::Own {
            self.serve_source();
        }
    }

    fn serve_destination(&mut self) {
        self.destination.handle_timeout(self.now);
        while let Some((member, grant)) = self.destination.poll_grant(self.now) {
            let at = self.homes.iter().position(|home| home.member == Some(member));
            let Some((at, home)) = at.and_then(|at| Some((at, self.homes.get(at)?))) else { continue };
            self.events.insert(self.now + home.uplink.delay(), Happening::Granted(at, home.life, grant));
        }
        while let Some(feedback) = self.destination.poll_feedback(self.now) {
            if self.own_connected {
                let when = self.now + self.own.delay();
                self.events.insert(when, Happening::Told(self.own_life, feedback));
            }
        }
        self.note_haste(self.destination.poll_timeout());
        if let Some(next) = self.destination.poll_timeout().filter(|next| *next < self.destination_timer) {
            self.destination_timer = next.max(self.now + TICK);
            self.events.insert(self.destination_timer, Happening::DestinationTimer);
        }
    }

    fn serve_source(&mut self) {
        while self.own_connected
            && self.own.has_room(self.now)
            && let Some(chunk) = self.source.poll_uplink(self.now)
        {
            let arrival = self.own.send_chunk(self.now);
            self.events
                .insert(arrival, Happening::OwnCarried(self.own_life, chunk, self.transfer.content(chunk)));
        }
        if self.air_free
            && let Some(frame) = self.source.poll_broadcast(self.now)
        {
            self.air_free = false;
            let (heard, attempts, time) = self.sent(&frame);
            self.outcome.frames += u64::from(attempts);
            self.outcome.air_time += time;
            self.events.insert(self.now + time, Happening::AirFree(frame, heard, attempts));
        }
        let air = self.source.poll_timeout().filter(|_| self.air_free);
        self.note_haste(air);
        let uplink = Some(self.own.ready_at()).filter(|ready| *ready > self.now);
        if let Some(next) = air.into_iter().chain(uplink).min().filter(|next| *next < self.source_timer) {
            self.source_timer = next.max(self.now + TICK);
            self.events.insert(self.source_timer, Happening::SourceTimer);
        }
    }

    /// Who hears a frame, after how many attempts it ends, and how long it takes.
    fn sent(&mut self, frame: &Broadcast) -> (u64, u32, Duration) {
        let rate = usize::from(frame.rate.0);
        let Some(member) = frame.addressee else {
            let time = self.air_times.get(rate).copied().unwrap_or_default();
            let mut heard = 0;
            if !self.random.chance(self.transfer.neighbourhood.common_loss) {
                for at in 0..self.homes.len() {
                    heard |= u64::from(self.hears(at, rate)) << at;
                }
            }
            *self.outcome.heard.entry(heard).or_default() += 1;
            return (heard, 1, time);
        };
        let (flavour, mut time) = (Flavour::B, Duration::ZERO);
        let Some(air_rate) = RATES.get(rate).copied() else { return (0, 1, time) };
        let at = self.homes.iter().position(|home| home.member == Some(member));
        for attempt in 0..u32::from(USUAL_ATTEMPTS) {
            time += flavour.difs() + flavour.mean_back_off(attempt) + flavour.frame_time(air_rate, AIR_FRAME);
            let lost = self.random.chance(self.transfer.neighbourhood.common_loss);
            if let Some(at) = at.filter(|at| !lost && self.hears(*at, rate)) {
                return (1 << at, attempt + 1, time + flavour.response_time(air_rate));
            }
            time += flavour.response_timeout(air_rate);
        }
        (0, u32::from(USUAL_ATTEMPTS), time)
    }

    fn hears(&mut self, at: usize, rate: usize) -> bool {
        let chance = self.chances.get(at).and_then(|chances| chances.get(rate)).copied().unwrap_or(0.0);
        self.homes.get(at).is_some_and(|home| home.alive) && self.random.chance(chance)
    }

    fn end_frame(&mut self, frame: &Broadcast, heard: u64, attempts: u32) {
        self.air_free = true;
        let content = self.transfer.content(frame.chunk);
        for at in 0..self.homes.len() {
            let Some(home) = self.homes.get_mut(at).filter(|home| home.alive && heard >> at & 1 == 1) else {
                continue;
            };
            home.neighbour.handle_frame(self.now, frame, content);
            self.outcome.most_buffered = self.outcome.most_buffered.max(home.neighbour.buffered());
            self.serve_neighbour(at);
        }
        if frame.addressee.is_some() {
            self.source.handle_unicast_outcome(self.now, frame, heard != 0, attempts);
        }
        self.serve_source();
    }

    fn serve_neighbour(&mut self, at: usize) {
        let Some(home) = self.homes.get_mut(at).filter(|home| home.alive && home.member.is_some()) else {
            return;
        };
        while home.uplink.has_room(self.now)
            && let Some(transmit) = home.neighbour.poll_transmit(self.now)
        {
            match transmit {
                Transmit::Report(mut report) => {
                    if home.conduct == Conduct::Boaster {
                        let all = wire::upload::Run::new(Chunk(0), Chunk(u32::MAX));
                        report.heard = wire::upload::Runs::rising(all).unwrap_or_default();
                    }
                    let arrival = home.uplink.send(self.now, Message::Report(report.clone()).encode().len());
                    self.events.insert(arrival, Happening::Reported(at, home.life, report));
                }
                Transmit::Carry(chunk, content) => {
                    let content = match home.conduct {
                        Conduct::Idler => continue,
                        Conduct::Garbler => !content,
                        Conduct::Honest | Conduct::Boaster => content,
                    };
                    let arrival = home.uplink.send_chunk(self.now);
                    self.events.insert(arrival, Happening::Carried(at, home.life, chunk, content));
                }
            }
        }
        let ready = home.uplink.ready_at();
        let next = if ready > self.now { Some(ready) } else { home.neighbour.poll_timeout() };
        self.note_haste(next);
        let Some(home) = self.homes.get_mut(at) else { return };
        if let Some(next) = next.filter(|next| *next < home.timer) {
            home.timer = next.max(self.now + TICK);
            self.events.insert(home.timer, Happening::NeighbourTimer(at));
        }
    }

    fn note_haste(&mut self, next: Option<Timestamp>) {
        self.outcome.hasty += u32::from(next.is_some_and(|next| next <= self.now));
    }

    fn measure(&mut self) {
        let neighbours = self.homes.iter().map(|home| home.neighbour.memory()).max().unwrap_or(0);
        let now = [self.source.memory(), self.destination.memory(), neighbours];
        for (most, now) in self.outcome.memory.iter_mut().zip(now) {
            *most = (*most).max(now);
        }
    }
}

/// Timers are no finer than this.
const TICK: Duration = Duration::from_micros(10);
