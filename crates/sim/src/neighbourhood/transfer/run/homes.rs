//! Homes: what they hear, keep and carry, and what befalls them.

use std::time::Duration;

use units::Timestamp;
use upload::{Lender, Lending, Neighbour, PeerKey, Transmit};
use wire::upload::{AirRepeat, Chunk, Grant, Member, Message};

use super::super::super::spec::UplinkSpec;
use super::super::super::uplink::{Uplink, carried_bytes};
use super::super::{Conduct, Fault, Transfer};
use super::party::Party;
use super::{Happening, Life, Run, TICK};

/// Chunks that a neighbour keeps of each file at most: 5.7 MB.
const CAPACITY: usize = 4_096;
/// A connection that is set up again: a round trip, and what the machine takes.
const RECONNECTED_AFTER: Duration = Duration::from_millis(200);

pub(super) struct Home {
    pub(super) lender: Lender<u64>,
    pub(super) uplink: Uplink,
    conduct: Conduct,
    /// What it is in each transfer.
    members: Vec<Option<Member>>,
    alive: bool,
    /// Counts its starts: what belongs to an earlier life is void.
    pub(super) life: u32,
    pub(super) timer: Timestamp,
}

impl Home {
    pub(super) fn new(transfer: &Transfer, parties: &[Party], at: usize, uplink: UplinkSpec) -> Self {
        let uplink = Uplink::new(uplink);
        Self {
            lender: fresh_lender(transfer, parties, at, &uplink),
            uplink,
            conduct: transfer.conduct.get(at).copied().unwrap_or_default(),
            members: vec![None; parties.len()],
            alive: true,
            life: 0,
            timer: Timestamp::FAR_FUTURE,
        }
    }

    pub(super) fn member(&self, number: usize) -> Option<Member> {
        self.members.get(number).copied().flatten()
    }

    pub(super) const fn is_alive(&self) -> bool {
        self.alive
    }

    pub(super) const fn is_in(&self, life: u32) -> bool {
        self.alive && self.life == life
    }

    pub(super) fn handle_grant(&mut self, number: usize, grant: &Grant) {
        if self.member(number).is_some()
            && let Some(machine) = self.lender.get_mut(grant.transfer)
        {
            machine.handle_grant(grant);
        }
    }
}

fn fresh_lender(transfer: &Transfer, parties: &[Party], at: usize, uplink: &Uplink) -> Lender<u64> {
    let mut lender = Lender::default();
    let absence = transfer.absences.iter().find(|absence| absence.home == at && absence.tells);
    lender.set_away(absence.map(|absence| absence.away).unwrap_or_default());
    for party in parties {
        lender.insert(Neighbour::new(Lending {
            transfer: party.number,
            strategy: transfer.settings.strategy,
            chunks: party.chunks,
            chunk_bytes: carried_bytes().0 as u32,
            capacity: CAPACITY,
            window: uplink.window(),
            seed: transfer.seed ^ at as u64,
        }));
    }
    // Nothing is sent before there is a connection.
    lender.suspend();
    lender
}

impl Run<'_> {
    pub(super) fn connect(&mut self, at: usize) {
        let Some(home) = self.homes.get(at) else { return };
        let sender = Life { home: at, life: home.life };
        self.events.insert(self.now + home.uplink.delay() * 2, Happening::Connected(sender));
    }

    /// A home is connected to the destination.
    pub(super) fn join(&mut self, who: Life) {
        let waiting = |home: &&mut Home| home.is_in(who.life) && home.members.iter().all(Option::is_none);
        if let Some(home) = self.homes.get_mut(who.home).filter(waiting) {
            for (party, place) in self.parties.iter_mut().zip(&mut home.members) {
                *place = party.destination.join(self.now, PeerKey([who.home as u8; 32]));
                if let Some(member) = *place
                    && let Some(machine) = home.lender.get_mut(party.number)
                {
                    machine.set_member(member);
                    party.destination.set_repeats(member, self.transfer.repeats);
                    home.lender.resume(self.now, party.number);
                    party.hint(who.home, member);
                }
            }
            self.serve_neighbour(who.home);
            self.serve_destinations();
        }
    }

    /// The kernel of a home has closed its connection.
    pub(super) fn part(&mut self, who: Life) {
        if self.homes.get(who.home).is_some_and(|home| home.life == who.life) {
            self.leave(who.home);
            self.serve_destinations();
        }
    }

    pub(super) fn suffer(&mut self, at: usize, fault: Fault) {
        let Some(home) = self.homes.get_mut(at) else { return };
        match fault {
            Fault::Killed | Fault::Silenced => {
                home.alive = false;
                if fault == Fault::Killed {
                    let when = self.now + home.uplink.delay();
                    let who = Life { home: at, life: home.life };
                    self.events.insert(when, Happening::Disconnected(who));
                }
            }
            Fault::Started => {
                // The old connection, if it still seems to be there, is replaced by the new one.
                self.leave(at);
                let Some(home) = self.homes.get_mut(at) else { return };
                home.alive = true;
                home.life += 1;
                home.lender = fresh_lender(self.transfer, &self.parties, at, &home.uplink);
                let who = Life { home: at, life: home.life };
                self.events.insert(self.now + RECONNECTED_AFTER, Happening::Connected(who));
                self.serve_destinations();
            }
        }
    }

    fn leave(&mut self, at: usize) {
        let Some(home) = self.homes.get_mut(at) else { return };
        for (party, place) in self.parties.iter_mut().zip(&mut home.members) {
            if let Some(member) = place.take() {
                party.leave(self.now, member);
            }
        }
    }

    fn serve_destinations(&mut self) {
        for number in 0..self.parties.len() {
            self.serve_destination(number);
        }
    }

    /// A home has heard a frame.
    pub(super) fn hear(&mut self, at: usize, frame: &upload::Broadcast, content: u64) {
        let Some(home) = self.homes.get_mut(at).filter(|home| home.alive) else { return };
        if let Some(machine) = home.lender.get_mut(frame.transfer) {
            machine.handle_frame(self.now, frame, content);
        }
        let buffered = home.lender.buffered();
        for party in &mut self.parties {
            party.outcome.most_buffered = party.outcome.most_buffered.max(buffered);
        }
        self.serve_neighbour(at);
    }

    /// A home has heard another one's repeat.
    pub(super) fn hear_repeat(&mut self, at: usize, repeat: &AirRepeat, content: u64) {
        let Some(home) = self.homes.get_mut(at).filter(|home| home.alive) else { return };
        if let Some(machine) = home.lender.get_mut(repeat.transfer) {
            machine.handle_repeat(self.now, repeat, content);
        }
        self.serve_neighbour(at);
    }

    pub(super) fn serve_neighbour(&mut self, at: usize) {
        let connected = |home: &&mut Home| home.alive && home.members.iter().any(Option::is_some);
        let Some(home) = self.homes.get_mut(at).filter(connected) else { return };
        let from = Life { home: at, life: home.life };
        home.lender.set_window(self.now, u64::from(home.uplink.window()) * carried_bytes().0);
        while home.uplink.has_room(self.now)
            && let Some((transfer, transmit)) = home.lender.poll_transmit(self.now, true)
        {
            let Some(number) = self.parties.iter().position(|party| party.number == transfer) else {
                continue;
            };
            match transmit {
                Transmit::Report(mut report) => {
                    if home.conduct == Conduct::Boaster {
                        let all = wire::upload::Run::new(Chunk(0), Chunk(u32::MAX));
                        report.heard = wire::upload::Runs::rising(all).unwrap_or_default();
                    }
                    let length = Message::Report(report.clone()).encode().len();
                    let arrival = home.uplink.send(self.now, length);
                    self.events.insert(arrival, Happening::Reported(number, from, report));
                }
                Transmit::Carry(chunk, content) => {
                    let content = match home.conduct {
                        Conduct::Idler => continue,
                        Conduct::Garbler => !content,
                        Conduct::Honest | Conduct::Boaster => content,
                    };
                    let arrival = home.uplink.send_chunk(self.now);
                    self.events.insert(arrival, Happening::Carried(number, from, chunk, content));
                }
            }
        }
        let ready = home.uplink.ready_at();
        let next = if ready > self.now { Some(ready) } else { home.lender.poll_timeout() };
        if let Some(party) = self.parties.first_mut() {
            party.note_haste(self.now, next);
        }
        if let Some(next) = next.filter(|next| *next < home.timer) {
            home.timer = next.max(self.now + TICK);
            self.events.insert(home.timer, Happening::NeighbourTimer(at));
        }
    }
}
