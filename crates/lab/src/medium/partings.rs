//! The null frames by which stations say that they sleep or wake, with their times, as comma-separated numbers.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use sim::medium::{FrameId, StationId};
use units::Timestamp;

/// What the file begins with. Times are in nanoseconds of `CLOCK_BOOTTIME`: the medium got the frame, its acknowledgement (or the last one's
/// absence) was over, the radio had been told.
const HEADER: &str = "radio,asleep,taken,ended,told,acknowledged\n";

/// The file, and the null frames that are on their way.
pub(super) struct Partings {
    file: BufWriter<File>,
    pending: BTreeMap<(StationId, FrameId), Parting>,
    ended: Vec<(Parting, Timestamp, bool)>,
}

#[derive(Clone, Copy)]
struct Parting {
    radio: usize,
    asleep: bool,
    taken: Timestamp,
}

impl Partings {
    pub(super) fn begin(path: &Path) -> io::Result<Self> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(HEADER.as_bytes())?;
        Ok(Self { file, pending: BTreeMap::new(), ended: Vec::new() })
    }

    /// A radio has handed a frame over; `control` are its first two bytes.
    pub(super) fn taken(
        &mut self,
        now: Timestamp,
        station: StationId,
        id: FrameId,
        radio: usize,
        control: [u8; 2],
    ) {
        if let [NULL, flags] = control {
            let parting = Parting { radio, asleep: flags & POWER_SAVE != 0, taken: now };
            self.pending.insert((station, id), parting);
        }
    }

    /// The medium is done with a frame.
    pub(super) fn ended(&mut self, at: Timestamp, station: StationId, id: FrameId, acknowledged: bool) {
        if let Some(parting) = self.pending.remove(&(station, id)) {
            self.ended.push((parting, at, acknowledged));
        }
    }

    /// The radios know.
    pub(super) fn told(&mut self, now: Timestamp) -> io::Result<()> {
        for (Parting { radio, asleep, taken }, ended, acknowledged) in self.ended.drain(..) {
            let [taken, ended, told] = [taken, ended, now].map(Timestamp::as_nanos);
            let [asleep, acknowledged] = [asleep, acknowledged].map(u8::from);
            writeln!(self.file, "{radio},{asleep},{taken},{ended},{told},{acknowledged}")?;
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// First byte of frame control of a null data frame, and in the second the bit of power management (IEEE Std 802.11-2020 section 9.2.4.1).
const NULL: u8 = 0x48;
const POWER_SAVE: u8 = 0x10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_frames_are_written_with_their_times() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("partings");
        let mut partings = Partings::begin(&path).unwrap();
        let (station, at) = (StationId(4), Timestamp::from_micros);
        partings.taken(at(1), station, FrameId(7), 2, [NULL, 0x11]);
        partings.taken(at(2), station, FrameId(8), 2, [0x08, 0x11]);
        partings.taken(at(3), station, FrameId(9), 2, [NULL, 0x01]);
        partings.ended(at(4), station, FrameId(7), true);
        partings.ended(at(5), station, FrameId(8), true);
        partings.told(at(6)).unwrap();
        partings.end().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        assert_eq!(text, format!("{HEADER}2,1,1000,4000,6000,1\n"));
    }
}
