//! The card of the loop: frames to and from it, its channel, and what is done while there is none.

use std::fs::File;
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use anabranch::control::EventKind;
use linux::clock;
use linux::poll::Interest;
use linux::radio::{RadioCard, TransferError, TuneError};
use radio::pcap::{self, Record, Sent};
use radio::radiotap::Captured;
use radio::{Outcome, Transmission};
use tracing::warn;
use units::{Frequency, Timestamp};

use super::{BUDGET, CARD, CardLoss, LOOK_FOR_CARD, RadioLoop};
use crate::radio::MONITOR_INTERFACE;
use crate::radio::keeping::LoopError;
use crate::supervision::Request;

impl RadioLoop {
    /// A card that is switched off or pulled out is waited for; any other failure ends the radio.
    pub(super) fn survive(&mut self, outcome: Result<(), LoopError>) -> Result<(), LoopError> {
        let why = match &outcome {
            Err(
                LoopError::Card(TransferError::Gone | TransferError::Off) | LoopError::Tune(TuneError::Gone),
            ) => CardLoss::Gone,
            Err(LoopError::Tune(TuneError::Blocked)) => CardLoss::Blocked,
            _ => return outcome,
        };
        let now = clock::now();
        if let Err(error) = &outcome {
            self.events.push(EventKind::Warning, None, error.to_string());
            self.trouble = Some(error.to_string());
        }
        self.pending = None;
        self.lost = Some((why, now + LOOK_FOR_CARD));
        self.station.handle_card_lost(now);
        while let Some(event) = self.station.poll_event() {
            self.note(event);
        }
        Ok(())
    }

    /// Takes the card back once it is there and on again.
    pub(super) fn look_for_card(&mut self, now: Timestamp) -> Result<(), LoopError> {
        let Some((why, _)) = self.lost.filter(|(_, due)| *due <= now) else { return Ok(()) };
        self.lost = Some((why, now + LOOK_FOR_CARD));
        let mut why = why;
        if why == CardLoss::Blocked {
            match self.card.reclaim() {
                Err(TuneError::Gone) => why = CardLoss::Gone,
                Err(_) => return Ok(()),
                Ok(()) => {}
            }
        }
        if why == CardLoss::Gone {
            self.lost = Some((why, now + LOOK_FOR_CARD));
            if self.root.ask(&Request::Card).is_err() {
                return Ok(());
            }
            let Ok(card) = RadioCard::open(MONITOR_INTERFACE) else { return Ok(()) };
            self.card = card;
            self.waits_for_room = false;
            self.poller.add(&self.card, CARD, Interest::Readable)?;
        }
        (self.lost, self.trouble) = (None, None);
        self.events.push(EventKind::NetworkChanged, None, "the card is there again");
        self.station.handle_card_back(clock::now());
        Ok(())
    }

    /// Whether to be woken when the card has room for frames again.
    pub(super) fn wait_for_room(&mut self, wanted: bool) -> Result<(), LoopError> {
        if std::mem::replace(&mut self.waits_for_room, wanted) != wanted {
            let interest = if wanted { Interest::ReadableOrWritable } else { Interest::Readable };
            self.poller.change(&self.card, CARD, interest)?;
        }
        Ok(())
    }

    /// Gives whether the card took the frame, or will never.
    pub(super) fn send(&mut self, transmission: Transmission) -> Result<bool, LoopError> {
        match self.card.send(&transmission) {
            Ok(()) => Ok(true),
            Err(TransferError::Full) => {
                self.pending = Some(transmission);
                Ok(false)
            }
            Err(TransferError::Silent | TransferError::TooLong) => {
                let outcome = Outcome { frame: &transmission.frame, acknowledged: false, attempts: Some(0) };
                self.station.handle_outcome(clock::now(), &outcome);
                Ok(true)
            }
            Err(TransferError::Off) => {
                warn!("another program switched the radio off; taking it back");
                self.card.reclaim()?;
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn tune(&mut self, frequency: Frequency) -> Result<(), LoopError> {
        let before = clock::now();
        if let Some(pending) = self.pending.take() {
            self.station.handle_unsent(before, pending);
        }
        if !self.channel_cost.is_zero() {
            std::thread::sleep(self.channel_cost);
        }
        let mut outcome = self.card.tune(frequency);
        if matches!(outcome, Err(TuneError::Busy)) {
            warn!("another program uses the radio; taking it back");
            self.card.reclaim()?;
            outcome = self.card.tune(frequency);
        }
        let now = clock::now();
        match outcome {
            Ok(()) => {
                self.switches.tuned(before, now);
                self.station.handle_tuned(now, frequency);
            }
            Err(TuneError::Channel { .. }) => self.station.handle_tune_failed(now, frequency),
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Hands what the card has to the station.
    pub(super) fn hear(&mut self) -> Result<(), LoopError> {
        let Self { card, station, capture, .. } = self;
        for _ in 0..BUDGET / 16 {
            let received = card.receive(|captured| {
                let now = clock::now();
                match captured {
                    Captured::Heard(heard) => {
                        record(capture, heard.frame, heard.frequency, heard.rate, heard.signal_dbm, None);
                        station.handle_frame(now, &heard);
                    }
                    Captured::Outcome(outcome) => {
                        let sent =
                            Sent { succeeded: outcome.acknowledged, attempts: outcome.attempts.unwrap_or(1) };
                        record(capture, outcome.frame, Frequency(0), None, None, Some(sent));
                        station.handle_outcome(now, &outcome);
                    }
                }
            });
            match received {
                Ok(0) => break,
                Ok(_) => {}
                Err(TransferError::Off) => {
                    warn!("another program switched the radio off; taking it back");
                    card.reclaim()?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Adds a frame to the capture; a full disk ends the capture, not the radio.
fn record(
    capture: &mut Option<File>,
    frame: &[u8],
    frequency: Frequency,
    rate: Option<radio::Rate>,
    signal_dbm: Option<i8>,
    sent: Option<Sent>,
) {
    let Some(file) = capture else { return };
    let mut bytes = Vec::with_capacity(frame.len() + 64);
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    pcap::append(&mut bytes, &Record { at, frame, frequency, rate, signal_dbm, sent });
    if let Err(error) = file.write_all(&bytes) {
        warn!("the capture ends here: {error}");
        *capture = None;
    }
}
