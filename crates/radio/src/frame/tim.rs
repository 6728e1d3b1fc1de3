//! The traffic indication map: for whom the access point keeps frames (IEEE 802.11-2020 section 9.4.2.5).
//!
//! ```text
//!  1       1        1         1 to 251
//! +-------+--------+---------+-----------------+
//! | count | period | control | partial bitmap  |
//! +-------+--------+---------+-----------------+
//! ```

use super::FrameError;
use super::bytes::Reader;

/// A map as it stands in one beacon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficMap<'a> {
    /// Beacons until the next one after which group frames are sent (DTIM); 0: this one.
    pub count: u8,
    /// Every how many beacons that is, at least 1.
    pub period: u8,
    /// Whether group frames follow this beacon, if `count` is 0.
    pub group: bool,
    /// Number of the bitmap's first byte.
    first: usize,
    bitmap: &'a [u8],
}

impl<'a> TrafficMap<'a> {
    pub(super) fn parse(body: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(body);
        let [count, period, control] = reader.array()?;
        if period == 0 || count >= period {
            return Err(FrameError::Value("DTIM period"));
        }
        let first = usize::from(control >> 1) * 2;
        Ok(Self { count, period, group: control & 1 != 0, first, bitmap: reader.0 })
    }

    /// Whether frames are kept for the station with an association number.
    pub fn waits_for(&self, association: u16) -> bool {
        let byte = usize::from(association / 8).checked_sub(self.first);
        byte.and_then(|byte| self.bitmap.get(byte)).is_some_and(|bits| bits & 1 << (association % 8) != 0)
    }
}
