//! EAPOL-Key frames of the four-way and group handshakes (IEEE 802.11-2020 section 12.7.2).
//!
//! ```text
//!  1         1      2        1            2     2        8        32      16   8     8    16    2        n
//! +---------+------+--------+------------+-----+--------+--------+-------+----+-----+----+-----+--------+------+
//! | version | type | length | descriptor | info| key    | replay | nonce | IV | RSC | 0  | MIC | data   | data |
//! |         | = 3  |        | = 2        |     | length | counter|       |    |     |    |     | length |      |
//! +---------+------+--------+------------+-----+--------+--------+-------+----+-----+----+-----+--------+------+
//! ```

use super::FrameError;
use super::bytes::Reader;

const TYPE_KEY: u8 = 3;
const DESCRIPTOR_RSN: u8 = 2;
/// Where the MIC stands, from the start of the EAPOL frame.
const MIC_OFFSET: usize = 81;
const MIC_LENGTH: usize = 16;
/// A key frame without data.
const FIXED_LENGTH: usize = 99;

/// The information field.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeyInformation {
    /// 1: HMAC-MD5 and RC4, 2: HMAC-SHA-1 and AES, 3: AES-CMAC and AES, 0: as the key management says.
    pub version: u8,
    /// Of a pair of stations, not of the group.
    pub pairwise: bool,
    /// The pair's key is to be installed.
    pub install: bool,
    /// An answer is expected.
    pub acknowledge: bool,
    /// The frame is signed.
    pub signed: bool,
    /// The first keys are in use.
    pub secure: bool,
    /// It tells of an error, or asks for a handshake.
    pub error_or_request: bool,
    /// The key data is encrypted.
    pub encrypted: bool,
}

impl KeyInformation {
    fn from_bits(bits: u16) -> Self {
        let flag = |bit: u16| bits & 1 << bit != 0;
        Self {
            version: (bits & 7) as u8,
            pairwise: flag(3),
            install: flag(6),
            acknowledge: flag(7),
            signed: flag(8),
            secure: flag(9),
            error_or_request: flag(10) || flag(11),
            encrypted: flag(12),
        }
    }

    fn bits(self) -> u16 {
        let flags = [
            (3, self.pairwise),
            (6, self.install),
            (7, self.acknowledge),
            (8, self.signed),
            (9, self.secure),
            (12, self.encrypted),
        ];
        flags.iter().fold(u16::from(self.version & 7), |bits, (bit, set)| bits | u16::from(*set) << bit)
    }
}

/// A key frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFrame<'a> {
    /// What it is.
    pub information: KeyInformation,
    /// Counts the access point's requests; an answer carries that of its request.
    pub replay_counter: u64,
    /// Random number of its sender.
    pub nonce: [u8; 32],
    /// The number of the last group frame sent with the key, little endian.
    pub receive_counter: [u8; 8],
    /// Its signature.
    pub mic: [u8; MIC_LENGTH],
    /// Elements and keys, perhaps encrypted.
    pub data: &'a [u8],
}

impl<'a> KeyFrame<'a> {
    /// Reads an EAPOL frame, the payload of a packet of type `0x888e`. Also gives the part that is signed, without what a sender may have
    /// appended.
    ///
    /// # Errors
    /// Too few bytes; an EAPOL frame that is no RSN key frame.
    pub fn parse(payload: &'a [u8]) -> Result<(Self, &'a [u8]), FrameError> {
        let mut reader = Reader(payload);
        let [_, kind] = reader.array()?;
        if kind != TYPE_KEY {
            return Err(FrameError::Kind);
        }
        let length = usize::from(reader.big_16()?);
        let signed = payload.get(..4 + length).ok_or(FrameError::Truncated)?;
        let mut reader = Reader(&signed[4..]);
        if reader.byte()? != DESCRIPTOR_RSN {
            return Err(FrameError::Kind);
        }
        let information = KeyInformation::from_bits(reader.big_16()?);
        reader.take(2)?;
        let replay_counter = u64::from_be_bytes(reader.array()?);
        let nonce = reader.array()?;
        reader.take(16)?;
        let receive_counter = reader.array()?;
        reader.take(8)?;
        let mic = reader.array()?;
        let data_length = usize::from(reader.big_16()?);
        let data = reader.take(data_length)?;
        Ok((Self { information, replay_counter, nonce, receive_counter, mic, data }, signed))
    }

    /// The EAPOL frame with an empty signature.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(FIXED_LENGTH + self.data.len());
        frame.extend_from_slice(&[2, TYPE_KEY]);
        frame.extend_from_slice(&((FIXED_LENGTH - 4 + self.data.len()) as u16).to_be_bytes());
        frame.push(DESCRIPTOR_RSN);
        frame.extend_from_slice(&self.information.bits().to_be_bytes());
        frame.extend_from_slice(&[0; 2]);
        frame.extend_from_slice(&self.replay_counter.to_be_bytes());
        frame.extend_from_slice(&self.nonce);
        frame.extend_from_slice(&[0; 16]);
        frame.extend_from_slice(&self.receive_counter);
        frame.extend_from_slice(&[0; 8 + MIC_LENGTH]);
        frame.extend_from_slice(&(self.data.len() as u16).to_be_bytes());
        frame.extend_from_slice(self.data);
        frame
    }
}

/// A copy of a signed frame with its signature replaced.
pub(crate) fn with_mic(frame: &[u8], mic: [u8; MIC_LENGTH]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some(place) = frame.get_mut(MIC_OFFSET..MIC_OFFSET + MIC_LENGTH) {
        place.copy_from_slice(&mic);
    }
    frame
}
