//! What goes into a medium and what comes out.

use std::sync::Arc;

use radio::Rate;
use units::{Bytes, Frequency, MacAddress, Timestamp};

use super::StationId;

/// The owner's number of a frame; comes back in its [`Outcome`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FrameId(pub u64);

/// A frame that a station hands over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// The owner's number of it.
    pub id: FrameId,
    /// The channel it is for.
    pub frequency: Frequency,
    /// From frame control to the end of the body, without the check sequence. Its receiver is read from it.
    pub bytes: Vec<u8>,
    /// At which rates it is sent, and how often.
    pub rates: Rates,
    /// Whether its receiver answers; never for a frame to a group.
    pub wants_acknowledgement: bool,
    /// In which of the sender's queues it waits.
    pub category: AccessCategory,
}

/// Queues of a card (IEEE Std 802.11-2020 section 10.2.3.2), as far as they matter here: all contend alike.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum AccessCategory {
    /// Data.
    #[default]
    BestEffort,
    /// What goes before data and does not wait for room among it, as management frames do.
    Voice,
}

/// At which rates a frame is sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Rates {
    /// At these, one after the other.
    Series(Series),
    /// At the rate that gets most through on the link as it is, as often as cards usually try.
    Best,
}

/// Rates and how often each is tried, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series(Vec<(Rate, u8)>);

/// A list of rates and attempts is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a series has 1 to {MOST_RATES} rates, each tried at least once")]
pub struct SeriesError;

impl Series {
    /// `attempts` of (rate, count).
    ///
    /// # Errors
    /// If it is empty, longer than eight, or a count or rate is zero.
    pub fn new(attempts: &[(Rate, u8)]) -> Result<Self, SeriesError> {
        let sound = (1..=MOST_RATES).contains(&attempts.len())
            && attempts.iter().all(|(rate, count)| rate.0 > 0 && *count > 0);
        if sound { Ok(Self(attempts.to_vec())) } else { Err(SeriesError) }
    }

    /// One rate, tried up to `count` times (at least once).
    pub fn steady(rate: Rate, count: u8) -> Self {
        Self(vec![(rate, count.max(1))])
    }

    /// The rate of the attempt after `failures` failed ones; `None` if there is none.
    pub fn rate_after(&self, failures: u32) -> Option<Rate> {
        let mut left = failures;
        for &(rate, count) in &self.0 {
            match left.checked_sub(u32::from(count)) {
                None => return Some(rate),
                Some(rest) => left = rest,
            }
        }
        None
    }

    /// The part of it that `attempts` attempts used.
    pub fn used(&self, attempts: u32) -> Vec<(Rate, u8)> {
        let mut left = attempts;
        let mut used = Vec::new();
        for &(rate, count) in &self.0 {
            let tried = left.min(u32::from(count));
            if tried > 0 {
                used.push((rate, tried as u8));
            }
            left -= tried;
        }
        used
    }
}

impl Frame {
    /// Who is to hear it; `None` if it is too short to say.
    pub fn receiver(&self) -> Option<MacAddress> {
        let octets = self.bytes.get(RECEIVER..RECEIVER + 6)?;
        Some(MacAddress(octets.try_into().ok()?))
    }

    /// Its length on the air, check sequence included.
    pub fn length(&self) -> Bytes {
        Bytes(self.bytes.len() as u64 + radio::airtime::CHECK_SEQUENCE.0)
    }
}

/// Where a station listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tuning {
    /// On one channel.
    To(Frequency),
    /// On none.
    Off,
    /// Only the owner knows: every frame is offered, and the owner says where it was not heard ([`Medium::handle_absent`](super::Medium::handle_absent)).
    Unknown,
}

/// What a medium tells its owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A station hears a frame, its own or another's.
    Reception(Reception),
    /// A frame was on the air, whoever heard it: for captures and counts.
    Attempt(Attempt),
    /// A frame is done with.
    Outcome(Outcome),
}

/// A frame as one station hears it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reception {
    /// Which station.
    pub station: StationId,
    /// Who sent it.
    pub sender: StationId,
    /// The sender's number of it.
    pub id: FrameId,
    /// The frame, with the Retry bit from the second attempt on.
    pub bytes: Arc<[u8]>,
    /// The channel.
    pub frequency: Frequency,
    /// At which rate it was sent.
    pub rate: Rate,
    /// Its signal at the station, in dBm.
    pub signal_dbm: i8,
    /// When it ended.
    pub at: Timestamp,
}

/// One time that a frame was on the air.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// Who sent it.
    pub sender: StationId,
    /// Its number.
    pub id: FrameId,
    /// The frame, with the Retry bit from the second attempt on.
    pub bytes: Arc<[u8]>,
    /// The channel.
    pub frequency: Frequency,
    /// At which rate.
    pub rate: Rate,
    /// Another frame was on the air at the same time.
    pub collided: bool,
    /// The station it was for could read it.
    pub heard: bool,
    /// When it ended.
    pub at: Timestamp,
}

/// What became of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// Who sent it.
    pub sender: StationId,
    /// Its number.
    pub id: FrameId,
    /// An acknowledgement arrived.
    pub acknowledged: bool,
    /// The rates and how often each was used; empty if it was never sent.
    pub attempts: Vec<(Rate, u8)>,
    /// Signal of the acknowledgement at the sender, in dBm.
    pub signal_dbm: Option<i8>,
    /// When.
    pub at: Timestamp,
}

/// `frame` as it goes over the air at a repeated attempt: with the Retry bit (IEEE Std 802.11-2020 section 9.2.4.1).
pub(super) fn with_retry(frame: &[u8]) -> Arc<[u8]> {
    let mut bytes: Arc<[u8]> = frame.into();
    if let Some(flags) = Arc::get_mut(&mut bytes).and_then(|bytes| bytes.get_mut(1)) {
        *flags |= RETRY;
    }
    bytes
}

/// Place of the first address in every frame.
const RECEIVER: usize = 4;
/// In the second byte of frame control.
const RETRY: u8 = 0x08;
/// Twice what the kernel's rate control uses.
const MOST_RATES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_used_up_in_order() {
        let series = Series::new(&[(Rate(108), 2), (Rate(48), 1), (Rate(12), 3)]).unwrap();
        let rates: Vec<_> = (0..7).map(|failures| series.rate_after(failures).map(|rate| rate.0)).collect();
        assert_eq!(rates, [Some(108), Some(108), Some(48), Some(12), Some(12), Some(12), None]);
        assert_eq!(series.used(0), []);
        assert_eq!(series.used(3), [(Rate(108), 2), (Rate(48), 1)]);
        assert_eq!(series.used(4), [(Rate(108), 2), (Rate(48), 1), (Rate(12), 1)]);
        assert_eq!(Series::new(&[]), Err(SeriesError));
        assert_eq!(Series::new(&[(Rate(108), 0)]), Err(SeriesError));
    }

    #[test]
    fn retry_is_one_bit() {
        assert_eq!(*with_retry(&[0x88, 0x41, 7]), [0x88, 0x49, 7]);
        assert_eq!(*with_retry(&[0x88]), [0x88]);
    }
}
