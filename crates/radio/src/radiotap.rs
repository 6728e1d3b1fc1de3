//! Radiotap: what the kernel's monitor interfaces write before each frame, and read before each frame that is sent.
//!
//! ```text
//! +---------+---------+-------------------+---------------------------------------+
//! | version |   pad   | length, all of it |     present: one bit for each field   | ... if its bit 31 is set, more such words
//! +---------+---------+-------------------+---------------------------------------+
//! |  the fields whose bits are set, in order of the bits, each aligned to its natural size from the start of the header
//! ```
//! Numbers are little-endian. Source: radiotap.org, and `Documentation/networking/mac80211-injection.rst` of Linux for what is read
//! on sending. Only the fields of the first word are read here: later words repeat them for each antenna.

use thiserror::Error;
use units::Frequency;

use crate::air::{Heard, Outcome, Rate, Transmission};
use crate::airtime::HighThroughput;

/// What a monitor interface gives: a frame of others, or one of ours with what became of it.
#[derive(Clone, Copy, Debug)]
pub enum Captured<'a> {
    /// A frame that the card heard.
    Heard(Heard<'a>),
    /// A frame that was sent from here.
    Outcome(Outcome<'a>),
}

/// Why bytes of a monitor interface are no frame that can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum RadiotapError {
    /// They end before the header says, or the header is no radiotap header.
    #[error("no radiotap header")]
    Header,
    /// The frame's check sequence does not fit: it was heard with errors.
    #[error("the frame was heard with errors")]
    Damaged,
    /// Bytes were put between the frame's header and its body, as no driver of Linux does.
    #[error("the frame is padded inside")]
    Padded,
}

/// Size of what [`write_header`] writes, in bytes.
pub const SENT_HEADER: usize = 13;

/// The header with which `transmission` is handed to a monitor interface. Its frame follows without a check sequence.
///
/// The frame keeps its sequence number; fragments and rates are as given.
pub fn write_header(transmission: &Transmission) -> [u8; SENT_HEADER] {
    let present: u32 = 1 << RATE | 1 << TRANSMIT_FLAGS | 1 << DATA_RETRIES;
    let [p0, p1, p2, p3] = present.to_le_bytes();
    let [length, _] = (SENT_HEADER as u16).to_le_bytes();
    let [flags_low, flags_high] = TRANSMIT_KEEP_NUMBER.to_le_bytes();
    let retries = transmission.attempts.saturating_sub(1);
    // After the rate a byte is left out, since the flags are two bytes and begin at an even place.
    [0, 0, length, 0, p0, p1, p2, p3, transmission.rate.0, 0, flags_low, flags_high, retries]
}

/// Reads what a monitor interface gave. `tuned` is the channel that counts if the header names none.
///
/// # Errors
/// [`RadiotapError`] for what is no whole frame; the next may be one.
pub fn read(bytes: &[u8], tuned: Frequency) -> Result<Captured<'_>, RadiotapError> {
    let (header, frame) = split(bytes)?;
    let fields = Fields::read(header);
    let frame = match fields.flags {
        flags if flags & FLAG_BAD_CHECK != 0 => return Err(RadiotapError::Damaged),
        flags if flags & FLAG_PADDED != 0 => return Err(RadiotapError::Padded),
        flags if flags & FLAG_CHECK_SEQUENCE != 0 => {
            frame.get(..frame.len().wrapping_sub(CHECK_SEQUENCE)).ok_or(RadiotapError::Header)?
        }
        _ => frame,
    };
    Ok(match fields.transmit_flags {
        Some(flags) => Captured::Outcome(Outcome {
            frame,
            acknowledged: flags & TRANSMIT_FAILED == 0,
            attempts: fields.data_retries.map(|retries| retries.saturating_add(1)),
        }),
        None => Captured::Heard(Heard {
            frame,
            frequency: fields.frequency.unwrap_or(tuned),
            signal_dbm: fields.signal_dbm,
            rate: fields.rate,
            high_throughput: fields.high_throughput,
            aggregate: fields.aggregate,
        }),
    })
}

/// The header and what follows it.
fn split(bytes: &[u8]) -> Result<(&[u8], &[u8]), RadiotapError> {
    let [0, _, low, high, ..] = *bytes else { return Err(RadiotapError::Header) };
    let length = usize::from(u16::from_le_bytes([low, high]));
    if length < FIXED {
        return Err(RadiotapError::Header);
    }
    bytes.split_at_checked(length).ok_or(RadiotapError::Header)
}

/// The fields of interest.
#[derive(Clone, Copy, Default, Debug)]
struct Fields {
    flags: u8,
    rate: Option<Rate>,
    high_throughput: Option<HighThroughput>,
    aggregate: Option<u32>,
    frequency: Option<Frequency>,
    signal_dbm: Option<i8>,
    transmit_flags: Option<u16>,
    data_retries: Option<u8>,
}

impl Fields {
    /// Reads as many as there are; a header that ends too early has fewer.
    fn read(header: &[u8]) -> Self {
        let mut fields = Self::default();
        // Nothing is missing if reading ends early: the fields so far are right.
        let _ended_early = fields.fill(header);
        fields
    }

    fn fill(&mut self, header: &[u8]) -> Option<()> {
        let word = |at: usize| Some(u32::from_le_bytes(*header.get(at..)?.first_chunk()?));
        let present = word(4)?;
        let mut at = FIXED;
        let mut last = present;
        while last & MORE_WORDS != 0 {
            last = word(at)?;
            at += 4;
        }
        for bit in (0..FIELDS.len()).filter(|bit| present & 1 << bit != 0) {
            let (size, alignment) = FIELDS[bit];
            at = at.next_multiple_of(alignment);
            let value = header.get(at..at + size)?;
            at += size;
            match (bit, value) {
                (BIT_FLAGS, [flags]) => self.flags = *flags,
                (RATE, [rate]) => self.rate = (*rate != 0).then_some(Rate(*rate)),
                (CHANNEL, [low, high, ..]) => {
                    self.frequency = Some(Frequency(u16::from_le_bytes([*low, *high]).into()));
                }
                (SIGNAL, [signal]) => self.signal_dbm = Some(signal.cast_signed()),
                (TRANSMIT_FLAGS, [low, high]) => {
                    self.transmit_flags = Some(u16::from_le_bytes([*low, *high]))
                }
                (DATA_RETRIES, [retries]) => self.data_retries = Some(*retries),
                (SCHEME, [known, flags, index]) => {
                    self.high_throughput = high_throughput(*known, *flags, *index);
                }
                (AGGREGATE, [a, b, c, d, ..]) => self.aggregate = Some(u32::from_le_bytes([*a, *b, *c, *d])),
                _ => {}
            }
        }
        Some(())
    }
}

/// The field "MCS": which of its parts are known, flags, index.
fn high_throughput(known: u8, flags: u8, index: u8) -> Option<HighThroughput> {
    const KNOWN_WIDTH: u8 = 0x01;
    const KNOWN_INDEX: u8 = 0x02;
    const WIDTH: u8 = 0x03;
    const WIDE: u8 = 1;
    const SHORT_GUARD: u8 = 0x04;
    const GREENFIELD: u8 = 0x08;
    let needed = KNOWN_WIDTH | KNOWN_INDEX;
    let flag = |bit: u8| flags & bit != 0;
    let rate = HighThroughput::new(index, flags & WIDTH == WIDE, flag(SHORT_GUARD), flag(GREENFIELD));
    rate.filter(|_| known & needed == needed)
}

/// Version, pad, length and the first word of presence.
const FIXED: usize = 8;
const CHECK_SEQUENCE: usize = 4;

// Bits of the first word of presence.
const BIT_FLAGS: usize = 1;
const RATE: usize = 2;
const CHANNEL: usize = 3;
const SIGNAL: usize = 5;
const TRANSMIT_FLAGS: usize = 15;
const DATA_RETRIES: usize = 17;
const SCHEME: usize = 19;
const AGGREGATE: usize = 20;
const MORE_WORDS: u32 = 1 << 31;

/// Size and alignment of each field up to the last that is read, by bit.
const FIELDS: [(usize, usize); 21] = [
    (8, 8), // time of arrival
    (1, 1), // flags
    (1, 1), // rate
    (4, 2), // channel
    (2, 2), // hopping
    (1, 1), // signal
    (1, 1), // noise
    (2, 2), // lock quality
    (2, 2), // attenuation
    (2, 2), // attenuation in dB
    (1, 1), // transmit power
    (1, 1), // antenna
    (1, 1), // signal in dB
    (1, 1), // noise in dB
    (2, 2), // receive flags
    (2, 2), // transmit flags
    (1, 1), // attempts to reserve the medium
    (1, 1), // repeats
    (8, 4), // extended channel
    (3, 1), // modulation and coding scheme of 802.11n
    (8, 4), // aggregate
];

// The field of flags.
const FLAG_CHECK_SEQUENCE: u8 = 0x10;
const FLAG_PADDED: u8 = 0x20;
const FLAG_BAD_CHECK: u8 = 0x40;

// The field of transmit flags.
const TRANSMIT_FAILED: u16 = 0x0001;
const TRANSMIT_KEEP_NUMBER: u16 = 0x0010;

#[cfg(test)]
mod tests {
    use super::*;

    const FREQUENCY: Frequency = Frequency(2412);

    fn heard(bytes: &[u8]) -> Heard<'_> {
        match read(bytes, FREQUENCY) {
            Ok(Captured::Heard(heard)) => heard,
            other => panic!("{other:?}"),
        }
    }

    /// As mac80211 writes it: arrival time, flags, rate, channel, signal, receive flags, and a second word for one antenna.
    fn received(flags: u8, frame: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0, 0, 40, 0];
        bytes.extend((1u32 << 31 | 1 << 29 | 1 << 14 | 1 << 5 | 0b1111).to_le_bytes());
        bytes.extend((1u32 << 11 | 1 << 5).to_le_bytes());
        bytes.extend([0; 4]); // to the next multiple of eight
        bytes.extend(77u64.to_le_bytes());
        bytes.extend([flags, 22]);
        bytes.extend(2437u16.to_le_bytes());
        bytes.extend(0x00a0u16.to_le_bytes());
        bytes.extend([-61i8 as u8, 0]);
        bytes.extend([0; 2]);
        bytes.extend([-70i8 as u8, 0]);
        bytes.resize(40, 0);
        bytes.extend(frame);
        bytes
    }

    #[test]
    fn a_frame_that_was_heard_is_read_with_its_signal_rate_and_channel() {
        let bytes = received(FLAG_CHECK_SEQUENCE, b"frame\x01\x02\x03\x04");
        let heard = heard(&bytes);
        assert_eq!(heard.frame, b"frame");
        assert_eq!((heard.frequency, heard.signal_dbm), (Frequency(2437), Some(-61)));
        assert_eq!(heard.rate, Some(Rate(22)));
    }

    #[test]
    fn rates_and_aggregates_of_802_11n_are_read() {
        let present = (1u32 << 19 | 1 << 20).to_le_bytes();
        let with = |known: u8, flags: u8, index: u8| {
            let mut bytes = vec![0, 0, 20, 0];
            bytes.extend(present);
            bytes.extend([known, flags, index, 0]);
            bytes.extend([0x34, 0x12, 0, 0, 0, 0, 0, 0]);
            bytes.extend(b"frame");
            bytes
        };
        let bytes = with(0x07, 0x05, 7);
        let heard = heard(&bytes);
        assert_eq!(heard.high_throughput, HighThroughput::new(7, true, true, false));
        assert_eq!((heard.rate, heard.aggregate, heard.frame), (None, Some(0x1234), b"frame".as_slice()));
        for unknown in [with(0x05, 0, 7), with(0x07, 0, 77)] {
            assert_eq!(self::heard(&unknown).high_throughput, None);
        }
    }

    #[test]
    fn damaged_and_padded_frames_are_refused() {
        let error = |flags| read(&received(flags, b"frame"), FREQUENCY).unwrap_err();
        assert_eq!(error(FLAG_BAD_CHECK), RadiotapError::Damaged);
        assert_eq!(error(FLAG_CHECK_SEQUENCE | FLAG_BAD_CHECK), RadiotapError::Damaged);
        assert_eq!(error(FLAG_PADDED), RadiotapError::Padded);
        let short = received(FLAG_CHECK_SEQUENCE, b"abc");
        assert_eq!(
            read(&short, FREQUENCY).unwrap_err(),
            RadiotapError::Header,
            "shorter than a check sequence"
        );
    }

    #[test]
    fn a_bare_header_leaves_the_channel_to_the_owner() {
        let heard = heard(b"\x00\x00\x08\x00\x00\x00\x00\x00frame");
        assert_eq!((heard.frame, heard.frequency), (b"frame".as_slice(), FREQUENCY));
        assert_eq!((heard.signal_dbm, heard.rate), (None, None));
    }

    #[test]
    fn what_became_of_our_own_frame_is_read() {
        // As mac80211 writes it: rate, transmit flags, repeats.
        let present = (1u32 << 2 | 1 << 15 | 1 << 17).to_le_bytes();
        for (flags, repeats, acknowledged, attempts) in
            [(0, 0, true, 1), (1, 6, false, 7), (2, 255, true, 255)]
        {
            let mut bytes = vec![0, 0, 13, 0];
            bytes.extend(present);
            bytes.extend([2, 0, flags, 0, repeats]);
            bytes.extend(b"null");
            match read(&bytes, FREQUENCY) {
                Ok(Captured::Outcome(outcome)) => {
                    assert_eq!(outcome.frame, b"null");
                    assert_eq!((outcome.acknowledged, outcome.attempts), (acknowledged, Some(attempts)));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn the_header_of_a_sent_frame_is_as_long_as_it_says() {
        let transmission = Transmission { frame: b"null".to_vec(), rate: Rate(12), attempts: 4 };
        let header = write_header(&transmission);
        assert_eq!(header, [0, 0, 13, 0, 0x04, 0x80, 0x02, 0, 12, 0, 0x10, 0, 3]);
        let mut bytes = header.to_vec();
        bytes.extend(&transmission.frame);
        match read(&bytes, FREQUENCY) {
            Ok(Captured::Outcome(outcome)) => {
                assert_eq!((outcome.frame, outcome.attempts), (b"null".as_slice(), Some(4)))
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_header_without_end_is_refused_or_read_as_far_as_it_goes() {
        assert_eq!(read(&[], FREQUENCY).unwrap_err(), RadiotapError::Header);
        assert_eq!(read(&[1, 0, 8, 0, 0, 0, 0, 0], FREQUENCY).unwrap_err(), RadiotapError::Header, "version");
        assert_eq!(read(&[0, 0, 7, 0, 0, 0, 0, 0], FREQUENCY).unwrap_err(), RadiotapError::Header);
        assert_eq!(read(&[0, 0, 9, 0, 0, 0, 0, 0], FREQUENCY).unwrap_err(), RadiotapError::Header);
        // Words of presence without end, and a field that lies outside the header.
        heard(b"\x00\x00\x0c\x00\xff\xff\xff\xff\xff\xff\xff\xffframe");
        assert_eq!(heard(b"\x00\x00\x09\x00\x0c\x00\x00\x00\x0bframe").rate, Some(Rate(11)));
    }
}
