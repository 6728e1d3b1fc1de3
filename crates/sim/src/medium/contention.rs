//! Whose turn it is: the distributed coordination function.
//!
//! After DIFS in which it hears nobody each sender counts its slots of back-off down; the first to end sends, those that hear it keep the rest (IEEE
//! Std 802.11-2020 section 10.3.4.3). A sender whose back-off had ended before its frame came sends at once if it hears nobody, and
//! draws a new one if it does (section 10.3.4.2). Whom it hears, [`Propagation::senses`](super::Propagation::senses) says: who is hidden from it does not hold
//! it back. Back-offs that end together collide, as on a real channel.

use radio::airtime::Flavour;
use units::{Frequency, Timestamp};

use super::StationId;
use super::station::Station;
use crate::SeededRandom;

/// Who sends next on a channel of those that hear nobody, `quiet` since then, and when; draws back-offs that are due. Several senders
/// are those of a collision.
pub(super) fn next_senders(
    stations: &mut [Station],
    (frequency, flavour): (Frequency, Flavour),
    quiet: &[Option<Timestamp>],
    random: &mut SeededRandom,
) -> Option<(Timestamp, Vec<StationId>)> {
    let mut first: Option<(Timestamp, Vec<StationId>)> = None;
    for (index, station) in stations.iter_mut().enumerate() {
        if !station.counts_on(frequency) {
            continue;
        }
        let Some(arrived) = station.head().map(|head| head.arrived) else { continue };
        let Some(since) = quiet.get(index).copied().unwrap_or(Some(Timestamp::ZERO)) else { continue };
        let counting_from = since + flavour.difs();
        if station.back_off.is_none() && arrived < counting_from {
            station.back_off = Some(draw(flavour, 0, random));
        }
        let slots = station.back_off.unwrap_or(0);
        let start = (counting_from + flavour.slot() * slots).max(arrived).max(station.free_since);
        match &mut first {
            Some((earliest, _)) if *earliest < start => {}
            Some((earliest, senders)) if *earliest == start => senders.push(StationId(index)),
            _ => first = Some((start, vec![StationId(index)])),
        }
    }
    first
}

/// Takes the slots off a back-off that passed between the beginning of silence and `start`.
pub(super) fn count_down(station: &mut Station, flavour: Flavour, silent_since: Timestamp, start: Timestamp) {
    let silence = start.since(silent_since + flavour.difs());
    let passed = u32::try_from(silence.as_nanos() / flavour.slot().as_nanos()).unwrap_or(u32::MAX);
    let left = station.back_off.map(|slots| slots.saturating_sub(passed));
    // Without anything to send, a back-off that has ended is over for good.
    station.back_off = left.filter(|slots| *slots > 0 || station.head().is_some());
}

/// A back-off after `failures` failed attempts: any number of slots in the window.
pub(super) fn draw(flavour: Flavour, failures: u32, random: &mut SeededRandom) -> u32 {
    let window = flavour.contention_window(failures);
    (random.between(0.0, f64::from(window) + 1.0) as u32).min(window)
}
