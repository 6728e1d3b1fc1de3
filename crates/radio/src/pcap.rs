//! Captures of what went over the air, for Wireshark, tshark and tcpdump.
//!
//! ```text
//! file:   magic 0xa1b23c4d (nanoseconds) | version 2.4 | zone 0 | accuracy 0 | longest record | link type 127 (radiotap)
//! record: seconds | nanoseconds | bytes kept | bytes there were | radiotap header | frame
//! ```
//! All numbers are little-endian. Sources: draft-ietf-opsawg-pcap, radiotap.org. The owner writes the bytes wherever it likes.

use std::time::Duration;

use units::Frequency;

use crate::Rate;

/// A frame that was heard or sent.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When it ended, since 1970 or since any other beginning.
    pub at: Duration,
    /// From frame control to the end of the body, without the check sequence. Bytes beyond [`LONGEST_FRAME`] are left out.
    pub frame: &'a [u8],
    /// The channel that it was on.
    pub frequency: Frequency,
    /// At which rate.
    pub rate: Option<Rate>,
    /// How strong it arrived, in dBm.
    pub signal_dbm: Option<i8>,
    /// What became of it, if it is one of ours.
    pub sent: Option<Sent>,
}

/// What became of a frame that was sent from here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Whether an acknowledgement came, or none was awaited.
    pub succeeded: bool,
    /// How many times it was sent.
    pub attempts: u8,
}

/// The longest frame that is kept whole, in bytes: more than any 802.11a, b or g frame has.
pub const LONGEST_FRAME: usize = 4_096;

/// What a capture file begins with.
pub fn file_header() -> [u8; 24] {
    let mut header = [0; 24];
    header[..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..6].copy_from_slice(&2u16.to_le_bytes());
    header[6..8].copy_from_slice(&4u16.to_le_bytes());
    header[16..20].copy_from_slice(&((LONGEST_FRAME + LONGEST_RADIOTAP) as u32).to_le_bytes());
    header[20..].copy_from_slice(&LINK_TYPE.to_le_bytes());
    header
}

/// Adds a frame to the end of a capture.
pub fn append(capture: &mut Vec<u8>, record: &Record<'_>) {
    let radiotap = radiotap(record);
    let kept = &record.frame[..record.frame.len().min(LONGEST_FRAME)];
    let size = |frame: &[u8]| u32::try_from(radiotap.len() + frame.len()).unwrap_or(u32::MAX);
    let seconds = u32::try_from(record.at.as_secs()).unwrap_or(u32::MAX);
    for number in [seconds, record.at.subsec_nanos(), size(kept), size(record.frame)] {
        capture.extend_from_slice(&number.to_le_bytes());
    }
    capture.extend_from_slice(&radiotap);
    capture.extend_from_slice(kept);
}

/// The header that says how a frame was sent or heard. Fields stand in order of their bits, each aligned to its size.
fn radiotap(record: &Record<'_>) -> Vec<u8> {
    let mut present = 1 << CHANNEL;
    let mut fields = Vec::with_capacity(LONGEST_RADIOTAP - FIXED);
    if let Some(rate) = record.rate {
        present |= 1 << RATE;
        fields.extend([rate.0, 0]);
    }
    fields.extend(u16::try_from(record.frequency.0).unwrap_or(0).to_le_bytes());
    fields.extend(channel_flags(record).to_le_bytes());
    if let Some(signal) = record.signal_dbm {
        present |= 1 << SIGNAL;
        fields.extend(signal.to_le_bytes());
    }
    if let Some(sent) = record.sent {
        present |= 1 << TRANSMIT_FLAGS | 1 << DATA_RETRIES;
        if !fields.len().is_multiple_of(2) {
            fields.push(0);
        }
        fields.extend(u16::from(!sent.succeeded).to_le_bytes());
        fields.push(sent.attempts.saturating_sub(1));
    }
    let length = u16::try_from(FIXED + fields.len()).unwrap_or(u16::MAX);
    let mut header = vec![0, 0];
    header.extend(length.to_le_bytes());
    header.extend(u32::to_le_bytes(present));
    header.extend(fields);
    header
}

fn channel_flags(record: &Record<'_>) -> u16 {
    let band = if record.frequency.0 < 3_000 { BAND_2_GHZ } else { BAND_5_GHZ };
    band | match record.rate {
        Some(rate) if rate.is_cck() => MODULATION_CCK,
        Some(_) => MODULATION_OFDM,
        None => 0,
    }
}

/// Nanoseconds, in the byte order of the file.
const MAGIC: u32 = 0xa1b2_3c4d;
/// A radiotap header, then an 802.11 frame (`LINKTYPE_IEEE802_11_RADIOTAP`).
const LINK_TYPE: u32 = 127;
/// Version, pad, length and bits of presence.
const FIXED: usize = 8;
const LONGEST_RADIOTAP: usize = FIXED + 2 + 4 + 2 + 3;

// Bits of presence.
const RATE: u32 = 2;
const CHANNEL: u32 = 3;
const SIGNAL: u32 = 5;
const TRANSMIT_FLAGS: u32 = 15;
const DATA_RETRIES: u32 = 17;

// Flags of the channel field.
const MODULATION_CCK: u16 = 0x0020;
const MODULATION_OFDM: u16 = 0x0040;
const BAND_2_GHZ: u16 = 0x0080;
const BAND_5_GHZ: u16 = 0x0100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::radiotap::{Captured, read};

    const FREQUENCY: Frequency = Frequency(5_180);

    fn record(frame: &[u8], signal_dbm: Option<i8>, sent: Option<Sent>) -> Record<'_> {
        let at = Duration::new(1_700_000_000, 123_456_789);
        Record { at, frame, frequency: FREQUENCY, rate: Some(Rate(108)), signal_dbm, sent }
    }

    /// Cuts a capture into the radiotap headers and frames of its records.
    fn records(mut capture: &[u8]) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while let Some((header, rest)) = capture.split_at_checked(16) {
            assert_eq!(header[..8], [1_700_000_000u32.to_le_bytes(), 123_456_789u32.to_le_bytes()].concat());
            let length = u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
            found.push(rest[..length].to_vec());
            capture = &rest[length..];
        }
        found
    }

    #[test]
    fn what_is_written_is_read_by_our_own_radiotap_reader() {
        let mut capture = Vec::new();
        let sent = Sent { succeeded: false, attempts: 7 };
        append(&mut capture, &record(b"heard", Some(-61), None));
        append(&mut capture, &record(b"sent", None, Some(sent)));
        append(&mut capture, &record(b"odd", Some(-1), Some(sent)));
        let records = records(&capture);
        match read(&records[0], Frequency(1)).unwrap() {
            Captured::Heard(heard) => {
                assert_eq!((heard.frame, heard.frequency), (b"heard".as_slice(), FREQUENCY));
                assert_eq!((heard.signal_dbm, heard.rate), (Some(-61), Some(Rate(108))));
            }
            other => panic!("{other:?}"),
        }
        for (record, frame) in records[1..].iter().zip([b"sent".as_slice(), b"odd"]) {
            match read(record, Frequency(1)).unwrap() {
                Captured::Outcome(outcome) => {
                    assert_eq!(outcome.frame, frame);
                    assert_eq!((outcome.acknowledged, outcome.attempts), (false, Some(7)));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn long_frames_are_cut_and_say_so() {
        let mut capture = Vec::new();
        append(&mut capture, &record(&vec![7; 70_000], None, None));
        let number = |at: usize| u32::from_le_bytes(capture[at..at + 4].try_into().unwrap());
        assert_eq!(number(12) - number(8), 70_000 - LONGEST_FRAME as u32);
        assert_eq!(capture.len() as u32, 16 + number(8));
    }
}
