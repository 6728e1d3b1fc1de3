//! An exchange on a channel, step by step: back-off over, frame over, answer over.

use std::sync::Arc;

use radio::airtime::ACKNOWLEDGEMENT;
use units::{Frequency, Timestamp};

use super::StationId;
use super::contention::{count_down, draw};
use super::engine::{Exchange, Medium, Phase};
use super::frame::{Attempt, Event, Outcome, Reception, with_retry};
use super::propagation::{Passage, PassageKind, Propagation};
use super::station::Waiting;

impl<P: Propagation> Medium<P> {
    /// Does what is due on a channel at `at`.
    pub(super) fn step(&mut self, at: Timestamp, frequency: Frequency) {
        let Some(channel) = self.channels.get_mut(&frequency) else { return };
        match std::mem::take(&mut channel.phase) {
            Phase::Silent { since, next: Some((_, senders)) } => self.begin(at, frequency, since, &senders),
            Phase::Silent { since, next: None } => channel.phase = Phase::Silent { since, next: None },
            Phase::Frames { exchanges, .. } => self.end_frames(at, frequency, exchanges),
            Phase::Answer { exchanges, .. } => self.end_answer(at, frequency, exchanges),
        }
    }

    /// `senders` have waited long enough, all to the same slot.
    fn begin(&mut self, at: Timestamp, frequency: Frequency, since: Timestamp, senders: &[StationId]) {
        let flavour = self.timing.flavour(frequency);
        count_down(&mut self.stations, (frequency, flavour), since, at);
        let exchanges: Vec<Exchange> =
            senders.iter().filter_map(|&sender| self.attempt(at, frequency, sender)).collect();
        let longest = exchanges
            .iter()
            .map(|exchange| flavour.frame_time(exchange.rate, exchange.waiting.frame.length()))
            .max()
            .unwrap_or_default();
        let channel = self.channels.entry(frequency).or_default();
        channel.statistics.attempts += exchanges.len() as u64;
        channel.statistics.collisions += u64::from(exchanges.len() > 1);
        channel.statistics.frames += longest;
        channel.phase = Phase::Frames { exchanges, ends: at + longest };
        // The senders' next frames may be for other channels, which must not count on them now.
        self.plan_all();
    }

    /// Takes the next frame of `sender` and sends it.
    fn attempt(&mut self, at: Timestamp, frequency: Frequency, sender: StationId) -> Option<Exchange> {
        let mut waiting = self.stations[sender.0].take_head()?;
        let series = match waiting.series.take() {
            Some(series) => series,
            None => self.series_for(at, sender, &waiting),
        };
        // A frame that has used its series up is not put back.
        let rate = series.rate_after(waiting.failures)?;
        waiting.series = Some(series);
        let bytes = match waiting.failures {
            0 => waiting.frame.bytes.as_slice().into(),
            _ => with_retry(&waiting.frame.bytes),
        };
        let station = &mut self.stations[sender.0];
        station.busy = true;
        station.last_channel = Some(frequency);
        station.statistics.attempts += 1;
        Some(Exchange { sender, waiting, bytes, rate, heard_by: None })
    }

    /// The frames are over: whoever could read one has it. Of frames that collide none can be read; a receiver that captures the stronger
    /// one would do so here.
    fn end_frames(&mut self, at: Timestamp, frequency: Frequency, mut exchanges: Vec<Exchange>) {
        if let [exchange] = exchanges.as_mut_slice() {
            self.deliver(at, frequency, exchange);
        }
        let collided = exchanges.len() > 1;
        self.events.extend(exchanges.iter().map(|exchange| {
            Event::Attempt(Attempt {
                sender: exchange.sender,
                id: exchange.waiting.frame.id,
                bytes: Arc::clone(&exchange.bytes),
                frequency,
                rate: exchange.rate,
                collided,
                heard: exchange.heard_by.is_some(),
                at,
            })
        }));
        let flavour = self.timing.flavour(frequency);
        let times =
            exchanges.iter().filter(|exchange| exchange.waiting.wants_answer()).map(
                |exchange| match exchange.heard_by {
                    Some(_) => flavour.response_time(exchange.rate),
                    None => flavour.response_timeout(exchange.rate),
                },
            );
        let Some(longest) = times.max() else { return self.end_exchanges(at, frequency, exchanges, None) };
        if let Some(channel) = self.channels.get_mut(&frequency) {
            channel.statistics.answers += longest;
            channel.phase = Phase::Answer { exchanges, ends: at + longest };
        }
    }

    /// Gives a frame to everybody on the channel who can read it.
    fn deliver(&mut self, at: Timestamp, frequency: Frequency, exchange: &mut Exchange) {
        for index in 0..self.stations.len() {
            let station = StationId(index);
            if station == exchange.sender || !self.stations[index].listens_on(frequency) {
                continue;
            }
            let passage = Passage {
                from: exchange.sender,
                to: station,
                kind: PassageKind::Frame,
                rate: exchange.rate,
                length: exchange.waiting.frame.length(),
            };
            let Some(signal_dbm) = self.arrives(at, &passage) else { continue };
            if self.stations[index].addresses.contains(&exchange.waiting.receiver) {
                exchange.heard_by = Some(station);
            }
            self.events.push_back(Event::Reception(Reception {
                station,
                sender: exchange.sender,
                id: exchange.waiting.frame.id,
                bytes: Arc::clone(&exchange.bytes),
                frequency,
                rate: exchange.rate,
                signal_dbm,
                at,
            }));
        }
    }

    /// The acknowledgement has arrived by now, or it never will.
    fn end_answer(&mut self, at: Timestamp, frequency: Frequency, exchanges: Vec<Exchange>) {
        let answered = exchanges.iter().find_map(|exchange| {
            let passage = Passage {
                from: exchange.heard_by?,
                to: exchange.sender,
                kind: PassageKind::Acknowledgement,
                rate: self.timing.flavour(frequency).response_rate(exchange.rate),
                length: ACKNOWLEDGEMENT,
            };
            self.stations[exchange.sender.0].listens_on(frequency).then_some(passage)
        });
        let signal = answered.and_then(|passage| self.arrives(at, &passage));
        self.end_exchanges(at, frequency, exchanges, signal);
    }

    /// The channel is silent again. `answered` is the signal of the acknowledgement of the one frame there was.
    fn end_exchanges(
        &mut self,
        at: Timestamp,
        frequency: Frequency,
        exchanges: Vec<Exchange>,
        answered: Option<i8>,
    ) {
        for exchange in exchanges {
            self.end_exchange(at, frequency, exchange, answered);
        }
        if let Some(channel) = self.channels.get_mut(&frequency) {
            channel.phase = Phase::Silent { since: at, next: None };
        }
        self.plan_all();
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

    /// The signal with which something arrives; `None` if it is lost.
    fn arrives(&mut self, at: Timestamp, passage: &Passage) -> Option<i8> {
        let signal = self.propagation.signal(at, passage.from, passage.to)?;
        let loss = self.propagation.loss(at, passage);
        (!self.random.chance(loss)).then_some(signal)
    }
}
