//! The air between sources and homes, and the sources' own uplinks.

use std::time::Duration;

use radio::airtime::{Flavour, USUAL_ATTEMPTS};
use upload::Broadcast;
use wire::upload::AirRepeat;

use super::super::super::spec::{AIR_FRAME, RATES};
use super::{Happening, Run, TICK};

impl Run<'_> {
    pub(super) fn serve_source(&mut self, number: usize) {
        self.serve_own_uplink(number);
        self.serve_air();
        let Some(party) = self.parties.get_mut(number) else { return };
        let air = party.source.poll_timeout().filter(|_| self.air_free);
        party.note_haste(self.now, air);
        let uplink = Some(party.own.ready_at()).filter(|ready| *ready > self.now);
        if let Some(next) = air.into_iter().chain(uplink).min().filter(|next| *next < party.source_timer) {
            party.source_timer = next.max(self.now + TICK);
            self.events.insert(party.source_timer, Happening::SourceTimer(number));
        }
    }

    fn serve_own_uplink(&mut self, number: usize) {
        while let Some(party) = self.parties.get_mut(number)
            && party.own_connected
            && party.own.has_room(self.now)
            && let Some(chunk) = party.source.poll_uplink(self.now)
        {
            let (arrival, life) = (party.own.send_chunk(self.now), party.own_life);
            let content = self.content(number, chunk);
            self.events.insert(arrival, Happening::OwnCarried(number, life, chunk, content));
        }
    }

    /// The next frame, if the medium is free and somebody has one: the sources first, then the homes that repeat.
    pub(super) fn serve_air(&mut self) {
        let (parties, stations) = (self.parties.len(), self.parties.len() + self.homes.len());
        for offset in 0..stations {
            let station = (self.next_on_air + offset) % stations;
            if !self.air_free {
                return;
            }
            let sent = match station.checked_sub(parties) {
                None => self.broadcast(station),
                Some(home) => self.repeat(home),
            };
            if sent {
                self.next_on_air = (station + 1) % stations;
            }
        }
    }

    fn broadcast(&mut self, number: usize) -> bool {
        let Some(party) = self.parties.get_mut(number) else { return false };
        let Some(frame) = party.source.poll_broadcast(self.now) else { return false };
        self.air_free = false;
        let (heard, attempts, time) = self.sent(number, &frame);
        self.with(number, |party| {
            party.outcome.frames += u64::from(attempts);
            party.outcome.air_time += time;
        });
        self.events.insert(self.now + time, Happening::AirFree(number, frame, heard, attempts));
        true
    }

    fn repeat(&mut self, from: usize) -> bool {
        let home = self.homes.get_mut(from).filter(|home| home.is_alive());
        let Some((repeat, rate, content)) = home.and_then(|home| home.lender.poll_repeat()) else {
            return false;
        };
        self.air_free = false;
        let rate = usize::from(rate.0);
        let time = self.air_times.get(rate).copied().unwrap_or_default();
        let mut heard = 0;
        for at in 0..self.homes.len() {
            let chance = self.transfer.neighbourhood.heard_between(from, at, rate);
            let alive = self.homes.get(at).is_some_and(super::homes::Home::is_alive) && !self.is_away(at);
            heard |= u64::from(alive && self.random.chance(chance)) << at;
        }
        if let Some(party) = self.parties.iter_mut().find(|party| party.number == repeat.transfer) {
            party.outcome.repeats += 1;
            party.outcome.air_time += time;
        }
        self.events.insert(self.now + time, Happening::Repeated(repeat, content, heard));
        true
    }

    pub(super) fn end_repeat(&mut self, repeat: &AirRepeat, content: u64, heard: u64) {
        self.air_free = true;
        for at in (0..self.homes.len()).filter(|at| heard >> at & 1 == 1) {
            self.hear_repeat(at, repeat, content);
        }
        for number in 0..self.parties.len() {
            self.serve_source(number);
        }
    }

    /// Who hears a frame, after how many attempts it ends, and how long it takes.
    fn sent(&mut self, number: usize, frame: &Broadcast) -> (u64, u32, Duration) {
        let rate = usize::from(frame.rate.0);
        let common_loss = self.transfer.neighbourhood.common_loss;
        let Some(member) = frame.addressee else {
            let time = self.air_times.get(rate).copied().unwrap_or_default();
            let mut heard = 0;
            if !self.random.chance(common_loss) {
                for at in 0..self.homes.len() {
                    heard |= u64::from(self.hears(number, at, rate)) << at;
                }
            }
            self.with(number, |party| *party.outcome.heard.entry(heard).or_default() += 1);
            return (heard, 1, time);
        };
        let (flavour, mut time) = (Flavour::B, Duration::ZERO);
        let Some(air_rate) = RATES.get(rate).copied() else { return (0, 1, time) };
        let at = self.homes.iter().position(|home| home.member(number) == Some(member));
        for attempt in 0..u32::from(USUAL_ATTEMPTS) {
            time += flavour.difs() + flavour.mean_back_off(attempt) + flavour.frame_time(air_rate, AIR_FRAME);
            let lost = self.random.chance(common_loss);
            if let Some(at) = at.filter(|at| !lost && self.hears(number, *at, rate)) {
                return (1 << at, attempt + 1, time + flavour.response_time(air_rate));
            }
            time += flavour.response_timeout(air_rate);
        }
        (0, u32::from(USUAL_ATTEMPTS), time)
    }

    fn hears(&mut self, number: usize, at: usize, rate: usize) -> bool {
        let chances = self.parties.get(number).and_then(|party| party.chances.get(at));
        let chance = chances.and_then(|chances| chances.get(rate)).copied().unwrap_or(0.0);
        let listens = self.homes.get(at).is_some_and(super::homes::Home::is_alive) && !self.is_away(at);
        listens && self.random.chance(chance)
    }

    fn is_away(&self, at: usize) -> bool {
        let absences = &self.transfer.absences;
        absences.iter().any(|absence| absence.home == at && absence.is_away(self.now))
    }

    pub(super) fn end_frame(&mut self, number: usize, frame: &Broadcast, heard: u64, attempts: u32) {
        self.air_free = true;
        let content = self.content(number, frame.chunk);
        for at in (0..self.homes.len()).filter(|at| heard >> at & 1 == 1) {
            self.hear(at, frame, content);
        }
        if frame.addressee.is_some() {
            let now = self.now;
            self.with(number, |party| {
                party.source.handle_unicast_outcome(now, frame, heard != 0, attempts);
            });
        }
        for number in 0..self.parties.len() {
            self.serve_source(number);
        }
    }
}
