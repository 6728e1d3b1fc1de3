//! An exchange on a channel, step by step: back-off over, frame over, answer over.

use std::sync::Arc;

use radio::airtime::ACKNOWLEDGEMENT;
use units::{Frequency, Timestamp};

use super::StationId;
use super::channel::{Exchange, OnAir, Stage, Transmission};
use super::contention::draw;
use super::engine::Medium;
use super::frame::{Attempt, Event, Outcome, Reception, with_retry};
use super::propagation::{Disturbance, Passage, PassageKind, Propagation, disturbed};
use super::station::Waiting;

impl<P: Propagation> Medium<P> {
    /// Does the first thing that is due on a channel at `at`: something ends, or somebody begins.
    pub(super) fn step(&mut self, at: Timestamp, frequency: Frequency) {
        let Some(channel) = self.channels.get_mut(&frequency) else { return };
        if let Some(index) = channel.ending(at) {
            match channel.on_air[index].stage {
                Stage::Frame => self.end_frame(at, frequency, index),
                Stage::Answer => self.end_answer(at, frequency, index),
            }
        } else if let Some((_, senders)) = channel.next.take() {
            for sender in senders {
                self.begin(at, frequency, sender);
            }
        }
        let flavour = self.timing.flavour(frequency);
        if let Some(channel) = self.channels.get_mut(&frequency) {
            channel.listen(at, &mut self.stations, (frequency, flavour), &mut self.propagation);
        }
        // The senders' next frames may be for other channels, which must not count on them now.
        self.plan_all();
    }

    /// Takes the next frame of `sender`, which has waited long enough, and sends it.
    fn begin(&mut self, at: Timestamp, frequency: Frequency, sender: StationId) {
        let Some(mut waiting) = self.stations[sender.0].take_head() else { return };
        let series = match waiting.series.take() {
            Some(series) => series,
            None => self.series_for(at, sender, &waiting),
        };
        // A frame that has used its series up is not put back.
        let Some(rate) = series.rate_after(waiting.failures) else { return };
        waiting.series = Some(series);
        let bytes = match waiting.failures {
            0 => waiting.frame.bytes.as_slice().into(),
            _ => with_retry(&waiting.frame.bytes),
        };
        let station = &mut self.stations[sender.0];
        station.busy = true;
        station.last_channel = Some(frequency);
        station.statistics.attempts += 1;
        let ends = at + self.timing.flavour(frequency).frame_time(rate, waiting.frame.length());
        let channel = self.channels.entry(frequency).or_default();
        channel.count_frame(at, ends);
        let exchange = Exchange { sender, waiting, bytes, rate, heard_by: None };
        channel.on_air.push(OnAir { exchange, stage: Stage::Frame, began: at, frame_ends: ends, ends });
    }

    /// The frame is over: whoever could read it has it.
    fn end_frame(&mut self, at: Timestamp, frequency: Frequency, index: usize) {
        let flavour = self.timing.flavour(frequency);
        let Some(channel) = self.channels.get(&frequency) else { return };
        let on_air = &channel.on_air[index];
        let beside = channel.beside(on_air.frame(), flavour);
        let Exchange { sender, rate, .. } = on_air.exchange;
        let (id, receiver) = (on_air.exchange.waiting.frame.id, on_air.exchange.waiting.receiver);
        let length = on_air.exchange.waiting.frame.length();
        let wants_answer = on_air.exchange.waiting.wants_answer();
        let bytes = Arc::clone(&on_air.exchange.bytes);
        let mut heard_by = None;
        for index in 0..self.stations.len() {
            let station = StationId(index);
            if station == sender || !self.stations[index].listens_on(frequency) {
                continue;
            }
            let passage = Passage { from: sender, to: station, kind: PassageKind::Frame, rate, length };
            let Some(signal_dbm) = self.arrives(at, &passage, &beside) else { continue };
            if self.stations[index].addresses.contains(&receiver) {
                heard_by = Some(station);
            }
            let bytes = Arc::clone(&bytes);
            self.events.push_back(Event::Reception(Reception {
                station,
                sender,
                id,
                bytes,
                frequency,
                rate,
                signal_dbm,
                at,
            }));
        }
        let collided = beside.iter().any(|other| other.is_frame);
        let heard = heard_by.is_some();
        self.events.push_back(Event::Attempt(Attempt {
            sender,
            id,
            bytes,
            frequency,
            rate,
            collided,
            heard,
            at,
        }));
        let Some(channel) = self.channels.get_mut(&frequency) else { return };
        if !wants_answer {
            let ended = channel.take(index, flavour);
            return self.end_exchange(at, frequency, ended.exchange, None);
        }
        let time = if heard { flavour.response_time(rate) } else { flavour.response_timeout(rate) };
        let on_air = &mut channel.on_air[index];
        on_air.exchange.heard_by = heard_by;
        (on_air.stage, on_air.ends) = (Stage::Answer, at + time);
        channel.count_answer(at, at + time);
    }

    /// The acknowledgement has arrived by now, or it never will.
    fn end_answer(&mut self, at: Timestamp, frequency: Frequency, index: usize) {
        let flavour = self.timing.flavour(frequency);
        let Some(channel) = self.channels.get_mut(&frequency) else { return };
        let answer = channel.on_air[index].answer(flavour);
        let beside = answer.map_or(Vec::new(), |answer| channel.beside(answer, flavour));
        let OnAir { exchange, .. } = channel.take(index, flavour);
        let listens = self.stations[exchange.sender.0].listens_on(frequency);
        let answered = answer.filter(|_| listens).and_then(|answer| {
            let passage = Passage {
                from: answer.from,
                to: exchange.sender,
                kind: PassageKind::Acknowledgement,
                rate: flavour.response_rate(exchange.rate),
                length: ACKNOWLEDGEMENT,
            };
            self.arrives(at, &passage, &beside)
        });
        self.end_exchange(at, frequency, exchange, answered);
    }

    /// The sender is done with this attempt; `answered` is the signal of its acknowledgement.
    fn end_exchange(
        &mut self,
        at: Timestamp,
        frequency: Frequency,
        exchange: Exchange,
        answered: Option<i8>,
    ) {
        let Exchange { sender, mut waiting, .. } = exchange;
        let station = &mut self.stations[sender.0];
        let left = !station.listens_on(frequency);
        station.busy = false;
        station.free_since = at;
        waiting.failures += 1;
        let again = waiting.wants_answer() && answered.is_none() && !left;
        let again = again
            && waiting.series.as_ref().is_some_and(|series| series.rate_after(waiting.failures).is_some());
        let failures = if again { waiting.failures } else { 0 };
        station.back_off = Some(draw(self.timing.flavour(frequency), failures, &mut self.random));
        if again {
            station.put_back(waiting);
        } else {
            self.finish(at, sender, waiting, answered);
        }
    }

    /// Tells the owner what became of a frame.
    pub(super) fn finish(
        &mut self,
        at: Timestamp,
        sender: StationId,
        waiting: Waiting,
        answered: Option<i8>,
    ) {
        let attempts = waiting.series.as_ref().map_or(Vec::new(), |series| series.used(waiting.failures));
        let statistics = &mut self.stations[sender.0].statistics;
        match (answered, waiting.wants_answer() || attempts.is_empty()) {
            (Some(_), _) => statistics.acknowledged += 1,
            (None, true) => statistics.failed += 1,
            (None, false) => statistics.unanswered += 1,
        }
        self.events.push_back(Event::Outcome(Outcome {
            sender,
            id: waiting.frame.id,
            acknowledged: answered.is_some(),
            attempts,
            signal_dbm: answered,
            at,
        }));
    }

    /// The signal with which something arrives while `beside` was on the air too; `None` if it is lost. Who sends itself hears nothing.
    fn arrives(&mut self, at: Timestamp, passage: &Passage, beside: &[Transmission]) -> Option<i8> {
        let signal = self.propagation.signal(at, passage.from, passage.to)?;
        let mut disturbance = Disturbance::default();
        for other in beside {
            if other.from == passage.to {
                return None;
            }
            if let Some(signal) = self.propagation.signal(at, other.from, passage.to) {
                disturbance.add(signal);
            }
        }
        let kept =
            (1.0 - self.propagation.loss(at, passage)) * (1.0 - disturbed(passage, signal, disturbance));
        (!self.random.chance(1.0 - kept)).then_some(signal)
    }
}
