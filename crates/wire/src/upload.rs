//! What a source, its neighbours and a destination say to each other when a file goes up through the neighbours' uplinks
//! (`[LINKALIKE] III`).
//!
//! ```text
//! on the air
//! chunk        50 | transfer (8) | air number (4) | rate (1) | addressee (1) | chunk (4) | sealed chunk | authenticator (16)
//! repeat       5f | transfer (8) | chunk (4) | sealed chunk | authenticator (16)
//! combination  51 | transfer (8) | air number (4) | rate (1) | generation (4) | count (1) | coefficients (count) | sealed combination | authenticator (16)
//!
//! on the wire
//! offer        52 | transfer (8) | length of the file (8) | bytes of a chunk (2)                        source to destination
//! carried      53 | transfer (8) | chunk (4) | sealed chunk                                            neighbour or source to destination
//! mixed        54 | transfer (8) | generation (4) | count (1) | coefficients (count) | sealed combination          neighbour to destination
//! report       55 | transfer (8) | through (4) | window | buffered | periods | heard: runs [ away ]    neighbour to destination
//! grant        56 | transfer (8) | carry: runs | stored: runs | withdrawn: runs | forget: runs | repeat: runs         destination to neighbour
//! feedback     57 | transfer (8) | through (4) | shortage (4) | stored: runs | held: runs | lost: runs | spare: runs | members     destination to source
//!
//! runs         count | count times (gap | length less one)
//! periods      count (1) | count times (period (4) | rates (1) | rates times (rate (1) | heard (1)))
//! members      count (1) | count times (member (1) | target | room | periods)
//! ```
//!
//! Numbers without a width in brackets are variable-length integers (RFC 9000 section 16). The gap of a run is counted from the end of the
//! one before; runs rise and do not touch. In brackets: only if it is not 0. An addressee of 255 is everybody. The authenticator, by a key of the group, is over all in front of it: strangers fill no buffer. The first byte
//! differs from those of bond datagrams and of the mesh.

pub mod roles;
mod runs;

use crate::cursor::{Malformed, Reader, put_varint};
pub use runs::{Run, Runs};
use runs::{put_runs, runs};

/// Bytes of a frame's authenticator.
pub const AUTHENTICATOR_LEN: usize = 16;
/// Bytes in front of the sealed chunk on the air.
pub const AIR_HEADER_LEN: usize = 19;
/// Bytes in front of the sealed chunk on the wire.
pub const CARRIED_HEADER_LEN: usize = 13;
/// Most runs of one field.
pub const MAX_RUNS: usize = 512;
/// Most neighbours of one transfer.
pub const MAX_MEMBERS: usize = 64;
/// Frames of the air in one measurement period.
pub const PERIOD_FRAMES: u32 = 128;
/// Most periods of one report.
pub const MAX_PERIODS: usize = 16;
/// Most bit rates of one period.
pub const MAX_RATES: usize = 16;
/// The longest absence that a neighbour may tell of: two seconds, in milliseconds.
pub const MAX_AWAY: u16 = 2_000;
/// Most chunks of a generation.
pub const MAX_GENERATION: usize = 64;

const CHUNK: u8 = 0x50;
const COMBINATION: u8 = 0x51;
const OFFER: u8 = 0x52;
const CARRIED: u8 = 0x53;
const MIXED: u8 = 0x54;
const REPORT: u8 = 0x55;
const GRANT: u8 = 0x56;
const FEEDBACK: u8 = 0x57;
const REPEAT: u8 = 0x5f;
const EVERYBODY: u8 = 0xff;

/// Number of a transfer: one file from one source to one destination.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Transfer(pub u64);

/// Number of a chunk within a file, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Chunk(pub u32);

/// Number of a frame on the air, from 0, one for each frame that the source sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AirNumber(pub u32);

/// A bit rate by its place in the transfer's list, slowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RateIndex(pub u8);

/// A neighbour of a transfer, numbered by the destination; below [`MAX_MEMBERS`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Member(u8);

impl Member {
    /// The member of a number, if that is below [`MAX_MEMBERS`].
    pub const fn new(number: u8) -> Option<Self> {
        if (number as usize) < MAX_MEMBERS { Some(Self(number)) } else { None }
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }
}

/// Number of a generation: chunks that are combined with each other only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Generation(pub u32);

/// How many frames of a period were heard, by rate.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reception {
    /// The period: frames with air numbers from [`PERIOD_FRAMES`] times it.
    pub period: u32,
    /// How many were heard at each rate; [`PERIOD_FRAMES`] at most.
    pub heard: Vec<(RateIndex, u8)>,
}

/// The header of a frame with a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AirChunk {
    /// Whose.
    pub transfer: Transfer,
    /// The frame's number.
    pub air: AirNumber,
    /// At what rate it was sent.
    pub rate: RateIndex,
    /// For whom, if not for everybody.
    pub addressee: Option<Member>,
    /// Which chunk.
    pub chunk: Chunk,
}

/// The header of a frame by which a neighbour repeats a chunk for those that do not hear the source. It has no number of the source's frames, so it is not
/// counted as one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AirRepeat {
    /// Whose.
    pub transfer: Transfer,
    /// Which chunk.
    pub chunk: Chunk,
}

/// The header of a frame with a combination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AirCombination {
    /// Whose.
    pub transfer: Transfer,
    /// The frame's number.
    pub air: AirNumber,
    /// At what rate it was sent.
    pub rate: RateIndex,
    /// Of which chunks.
    pub generation: Generation,
    /// By what each chunk of the generation was multiplied.
    pub coefficients: Vec<u8>,
}

/// What is sent on the air; the sealed bytes are beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AirHeader {
    /// A chunk.
    Chunk(AirChunk),
    /// A chunk that a neighbour repeats.
    Repeat(AirRepeat),
    /// A combination of chunks.
    Combination(AirCombination),
}

/// A frame from the air. Nothing is true of it before its authenticator was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AirFrame<'a> {
    /// Its header.
    pub header: AirHeader,
    /// The sealed bytes.
    pub sealed: &'a [u8],
    /// What the authenticator is over.
    pub authenticated: &'a [u8],
    /// The authenticator.
    pub authenticator: [u8; AUTHENTICATOR_LEN],
}

/// A file is offered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The transfer.
    pub transfer: Transfer,
    /// Bytes of the file.
    pub length: u64,
    /// Bytes of each chunk but the last; not 0.
    pub chunk_length: u16,
}

impl Offer {
    /// How many chunks there are; `None` if they are too many to be numbered.
    pub fn chunks(&self) -> Option<u32> {
        u32::try_from(self.length.div_ceil(u64::from(self.chunk_length.max(1)))).ok()
    }
}

/// What a neighbour has heard and how its uplink is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The transfer.
    pub transfer: Transfer,
    /// All frames below this number are told of, by this report or an earlier one.
    pub through: AirNumber,
    /// Chunks that fill the uplink's bandwidth-delay product.
    pub window: u32,
    /// Chunks in the buffer.
    pub buffered: u32,
    /// Finished measurement periods.
    pub receptions: Vec<Reception>,
    /// Chunks that have come and are kept.
    pub heard: Runs,
    /// For how long at a time its radio is in other networks, so that it hears nothing here, in milliseconds; 0 if it always listens, [`MAX_AWAY`] at most.
    pub away: u16,
}

/// What the destination wants of a neighbour.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The transfer.
    pub transfer: Transfer,
    /// To be carried now, in this order.
    pub carry: Runs,
    /// Stored: of no use any more.
    pub stored: Runs,
    /// Not to be carried any more, though granted before.
    pub withdrawn: Runs,
    /// To be neither carried nor kept, and reported if heard anew: what was brought could not be opened, or did not come in time.
    pub forget: Runs,
    /// To be repeated on the air, for those that do not hear the source.
    pub repeat: Runs,
}

/// How a neighbour is, for the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberState {
    /// Which.
    pub member: Member,
    /// How many chunks it should have at a time.
    pub target: u32,
    /// How many chunks more it should have; 0 if it has enough.
    pub room: u32,
    /// Its measurement periods that the source has not been told of.
    pub receptions: Vec<Reception>,
}

/// What the destination tells the source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feedback {
    /// The transfer.
    pub transfer: Transfer,
    /// All neighbours that matter have told of all frames below this number.
    pub through: AirNumber,
    /// `F` of `[LINKALIKE] III.C.3`: the most chunks that a contributing neighbour lacks, negative if all have more than they should.
    pub shortage: i32,
    /// Stored.
    pub stored: Runs,
    /// With some neighbour.
    pub held: Runs,
    /// Was with some neighbour and is with none any more.
    pub lost: Runs,
    /// Worth a second copy by the source's own uplink.
    pub spare: Runs,
    /// Each neighbour.
    pub members: Vec<MemberState>,
}

/// Any message on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message<'a> {
    /// A file is offered.
    Offer(Offer),
    /// A chunk.
    Carried(Transfer, Chunk, &'a [u8]),
    /// A combination with its coefficients.
    Mixed(Transfer, Generation, Vec<u8>, &'a [u8]),
    /// A neighbour's report.
    Report(Report),
    /// Orders to a neighbour.
    Grant(Grant),
    /// News for the source.
    Feedback(Feedback),
}

impl AirHeader {
    /// Appends the header; sealed bytes and authenticator follow it.
    pub fn put(&self, buffer: &mut Vec<u8>) {
        let start = |buffer: &mut Vec<u8>, kind: u8, transfer: Transfer, air: AirNumber, rate: RateIndex| {
            put_head(buffer, kind, transfer);
            buffer.extend(air.0.to_be_bytes());
            buffer.push(rate.0);
        };
        match self {
            Self::Chunk(header) => {
                start(buffer, CHUNK, header.transfer, header.air, header.rate);
                buffer.push(header.addressee.map_or(EVERYBODY, Member::number));
                buffer.extend(header.chunk.0.to_be_bytes());
            }
            Self::Repeat(header) => {
                put_head(buffer, REPEAT, header.transfer);
                buffer.extend(header.chunk.0.to_be_bytes());
            }
            Self::Combination(header) => {
                start(buffer, COMBINATION, header.transfer, header.air, header.rate);
                buffer.extend(header.generation.0.to_be_bytes());
                put_coefficients(buffer, &header.coefficients);
            }
        }
    }

    /// Whose.
    pub const fn transfer(&self) -> Transfer {
        match self {
            Self::Chunk(header) => header.transfer,
            Self::Repeat(header) => header.transfer,
            Self::Combination(header) => header.transfer,
        }
    }
}

impl<'a> AirFrame<'a> {
    /// Reads a frame. The authenticator is not checked here.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let end = bytes.len().checked_sub(AUTHENTICATOR_LEN).ok_or(Malformed::Truncated)?;
        let (authenticated, authenticator) = bytes.split_at_checked(end).ok_or(Malformed::Truncated)?;
        let authenticator = authenticator.try_into().map_err(|_| Malformed::Truncated)?;
        let mut reader = Reader::new(authenticated);
        let kind = reader.u8()?;
        let transfer = Transfer(u64::from_be_bytes(reader.array()?));
        let numbers = |reader: &mut Reader<'_>| -> Result<_, Malformed> {
            Ok((AirNumber(reader.u32()?), RateIndex(reader.u8()?)))
        };
        let header = match kind {
            REPEAT => AirHeader::Repeat(AirRepeat { transfer, chunk: Chunk(reader.u32()?) }),
            CHUNK => {
                let (air, rate) = numbers(&mut reader)?;
                let addressee = match reader.u8()? {
                    EVERYBODY => None,
                    number => Some(Member::new(number).ok_or(Malformed::Field("addressee"))?),
                };
                let chunk = Chunk(reader.u32()?);
                AirHeader::Chunk(AirChunk { transfer, air, rate, addressee, chunk })
            }
            COMBINATION => {
                let (air, rate) = numbers(&mut reader)?;
                let generation = Generation(reader.u32()?);
                let coefficients = coefficients(&mut reader)?;
                AirHeader::Combination(AirCombination { transfer, air, rate, generation, coefficients })
            }
            _ => return Err(Malformed::UnknownType(kind)),
        };
        Ok(Self { header, sealed: reader.rest(), authenticated, authenticator })
    }
}

impl Message<'_> {
    /// The message's bytes. What is beyond a bound is left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self {
            Self::Offer(offer) => {
                put_head(&mut bytes, OFFER, offer.transfer);
                bytes.extend(offer.length.to_be_bytes());
                bytes.extend(offer.chunk_length.to_be_bytes());
            }
            Self::Carried(transfer, chunk, sealed) => {
                put_head(&mut bytes, CARRIED, *transfer);
                bytes.extend(chunk.0.to_be_bytes());
                bytes.extend(*sealed);
            }
            Self::Mixed(transfer, generation, coefficients, sealed) => {
                put_head(&mut bytes, MIXED, *transfer);
                bytes.extend(generation.0.to_be_bytes());
                put_coefficients(&mut bytes, coefficients);
                bytes.extend(*sealed);
            }
            Self::Report(report) => {
                put_head(&mut bytes, REPORT, report.transfer);
                bytes.extend(report.through.0.to_be_bytes());
                put_varint(&mut bytes, u64::from(report.window));
                put_varint(&mut bytes, u64::from(report.buffered));
                put_receptions(&mut bytes, &report.receptions);
                put_runs(&mut bytes, &report.heard);
                if report.away != 0 {
                    put_varint(&mut bytes, u64::from(report.away.min(MAX_AWAY)));
                }
            }
            Self::Grant(grant) => {
                put_head(&mut bytes, GRANT, grant.transfer);
                for runs in [&grant.carry, &grant.stored, &grant.withdrawn, &grant.forget, &grant.repeat] {
                    put_runs(&mut bytes, runs);
                }
            }
            Self::Feedback(feedback) => {
                put_head(&mut bytes, FEEDBACK, feedback.transfer);
                bytes.extend(feedback.through.0.to_be_bytes());
                bytes.extend(feedback.shortage.to_be_bytes());
                for runs in [&feedback.stored, &feedback.held, &feedback.lost, &feedback.spare] {
                    put_runs(&mut bytes, runs);
                }
                let members =
                    feedback.members.get(..feedback.members.len().min(MAX_MEMBERS)).unwrap_or_default();
                bytes.push(members.len() as u8);
                for state in members {
                    bytes.push(state.member.number());
                    put_varint(&mut bytes, u64::from(state.target));
                    put_varint(&mut bytes, u64::from(state.room));
                    put_receptions(&mut bytes, &state.receptions);
                }
            }
        }
        bytes
    }
}

impl<'a> Message<'a> {
    /// Reads a message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        if !(OFFER..=FEEDBACK).contains(&kind) {
            return Err(Malformed::UnknownType(kind));
        }
        let transfer = Transfer(u64::from_be_bytes(reader.array()?));
        let message = match kind {
            CARRIED => return Ok(Self::Carried(transfer, Chunk(reader.u32()?), reader.rest())),
            MIXED => {
                let generation = Generation(reader.u32()?);
                let coefficients = coefficients(&mut reader)?;
                return Ok(Self::Mixed(transfer, generation, coefficients, reader.rest()));
            }
            OFFER => {
                let (length, chunk_length) = (u64::from_be_bytes(reader.array()?), reader.u16()?);
                let offer = Offer { transfer, length, chunk_length };
                check_offer(&offer)?;
                Self::Offer(offer)
            }
            REPORT => Self::Report(Report {
                transfer,
                through: AirNumber(reader.u32()?),
                window: small(&mut reader, "window")?,
                buffered: small(&mut reader, "buffered")?,
                receptions: receptions(&mut reader)?,
                heard: runs(&mut reader)?,
                away: away(&mut reader)?,
            }),
            GRANT => Self::Grant(Grant {
                transfer,
                carry: runs(&mut reader)?,
                stored: runs(&mut reader)?,
                withdrawn: runs(&mut reader)?,
                forget: runs(&mut reader)?,
                repeat: runs(&mut reader)?,
            }),
            _ => Self::Feedback(Feedback {
                transfer,
                through: AirNumber(reader.u32()?),
                shortage: i32::from_be_bytes(reader.array()?),
                stored: runs(&mut reader)?,
                held: runs(&mut reader)?,
                lost: runs(&mut reader)?,
                spare: runs(&mut reader)?,
                members: members(&mut reader)?,
            }),
        };
        if reader.is_empty() { Ok(message) } else { Err(Malformed::Field("length")) }
    }
}

fn check_offer(offer: &Offer) -> Result<(), Malformed> {
    if offer.chunk_length == 0 || offer.chunks().is_none() {
        return Err(Malformed::Field("chunk length"));
    }
    Ok(())
}

fn put_head(buffer: &mut Vec<u8>, kind: u8, transfer: Transfer) {
    buffer.push(kind);
    buffer.extend(transfer.0.to_be_bytes());
}

fn put_coefficients(buffer: &mut Vec<u8>, coefficients: &[u8]) {
    let coefficients = coefficients.get(..coefficients.len().min(MAX_GENERATION)).unwrap_or_default();
    buffer.push(coefficients.len() as u8);
    buffer.extend(coefficients);
}

fn coefficients(reader: &mut Reader<'_>) -> Result<Vec<u8>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count == 0 || count > MAX_GENERATION {
        return Err(Malformed::Field("coefficients"));
    }
    Ok(reader.bytes(count)?.to_vec())
}

fn put_receptions(buffer: &mut Vec<u8>, receptions: &[Reception]) {
    let receptions = receptions.get(..receptions.len().min(MAX_PERIODS)).unwrap_or_default();
    buffer.push(receptions.len() as u8);
    for reception in receptions {
        buffer.extend(reception.period.to_be_bytes());
        let heard = reception.heard.get(..reception.heard.len().min(MAX_RATES)).unwrap_or_default();
        buffer.push(heard.len() as u8);
        for (rate, count) in heard {
            buffer.extend([rate.0, *count]);
        }
    }
}

fn receptions(reader: &mut Reader<'_>) -> Result<Vec<Reception>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > MAX_PERIODS {
        return Err(Malformed::Field("periods"));
    }
    let mut receptions = Vec::with_capacity(count);
    for _ in 0..count {
        let period = reader.u32()?;
        let rates = usize::from(reader.u8()?);
        if rates > MAX_RATES {
            return Err(Malformed::Field("rates"));
        }
        let mut heard = Vec::with_capacity(rates);
        for _ in 0..rates {
            let (rate, count) = (RateIndex(reader.u8()?), reader.u8()?);
            if u32::from(count) > PERIOD_FRAMES {
                return Err(Malformed::Field("heard"));
            }
            heard.push((rate, count));
        }
        receptions.push(Reception { period, heard });
    }
    Ok(receptions)
}

fn members(reader: &mut Reader<'_>) -> Result<Vec<MemberState>, Malformed> {
    let count = usize::from(reader.u8()?);
    if count > MAX_MEMBERS {
        return Err(Malformed::Field("members"));
    }
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        let member = Member::new(reader.u8()?).ok_or(Malformed::Field("member"))?;
        let (target, room) = (small(reader, "target")?, small(reader, "room")?);
        members.push(MemberState { member, target, room, receptions: receptions(reader)? });
    }
    Ok(members)
}

/// What ends a report, if anything does.
fn away(reader: &mut Reader<'_>) -> Result<u16, Malformed> {
    if reader.is_empty() {
        return Ok(0);
    }
    let away = u16::try_from(reader.varint()?).ok().filter(|away| (1..=MAX_AWAY).contains(away));
    away.ok_or(Malformed::Field("away"))
}

fn small(reader: &mut Reader<'_>, field: &'static str) -> Result<u32, Malformed> {
    u32::try_from(reader.varint()?).map_err(|_| Malformed::Field(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(first: u32, last: u32) -> Run {
        Run::new(Chunk(first), Chunk(last)).unwrap()
    }

    fn report() -> Report {
        Report {
            transfer: Transfer(7),
            through: AirNumber(900),
            window: 12,
            buffered: 40,
            receptions: vec![Reception { period: 6, heard: vec![(RateIndex(2), 120)] }],
            heard: Runs::rising([run(0, 5), run(7, 7), run(u32::MAX, u32::MAX)]).unwrap(),
            away: 0,
        }
    }

    #[test]
    fn who_is_away_at_times_says_for_how_long_and_a_report_of_one_that_is_not_is_as_before() {
        let always = Message::Report(report()).encode();
        for away in [1, 104, MAX_AWAY] {
            let told = Report { away, ..report() };
            let bytes = Message::Report(told.clone()).encode();
            assert!(bytes.starts_with(&always) && bytes.len() <= always.len() + 2);
            assert_eq!(Message::parse(&bytes), Ok(Message::Report(told)));
        }
        for wrong in [0, u64::from(MAX_AWAY) + 1, 1 << 40] {
            let mut bytes = always.clone();
            put_varint(&mut bytes, wrong);
            assert_eq!(Message::parse(&bytes), Err(Malformed::Field("away")));
        }
    }

    #[test]
    fn no_cut_is_accepted_and_nothing_may_follow() {
        let bytes = Message::Report(report()).encode();
        assert_eq!(Message::parse(&bytes), Ok(Message::Report(report())));
        assert!((0..bytes.len()).all(|cut| Message::parse(&bytes[..cut]).is_err()));
        assert!(Message::parse(&[&bytes[..], &[0]].concat()).is_err());
        let away = Message::Report(Report { away: 5, ..report() }).encode();
        assert!(Message::parse(&[&away[..], &[1]].concat()).is_err());
    }

    #[test]
    fn runs_beyond_the_last_number_are_refused() {
        let mut bytes = vec![GRANT, 0, 0, 0, 0, 0, 0, 0, 7];
        for number in [2, u64::from(u32::MAX), 0, 0, 0] {
            put_varint(&mut bytes, number);
        }
        assert_eq!(Message::parse(&bytes), Err(Malformed::Field("run")));
    }

    #[test]
    fn a_file_of_too_many_chunks_is_refused() {
        let offer = Offer { transfer: Transfer(1), length: u64::MAX, chunk_length: 1_400 };
        assert_eq!(Message::parse(&Message::Offer(offer).encode()), Err(Malformed::Field("chunk length")));
        let none = Offer { length: 1, chunk_length: 0, ..offer };
        assert_eq!(Message::parse(&Message::Offer(none).encode()), Err(Malformed::Field("chunk length")));
        assert_eq!(Offer { length: 2_801, ..offer }.chunks(), Some(3));
    }

    #[test]
    fn a_frame_is_read_as_it_was_written() {
        let header = AirHeader::Chunk(AirChunk {
            transfer: Transfer(3),
            air: AirNumber(4),
            rate: RateIndex(2),
            addressee: Member::new(5),
            chunk: Chunk(6),
        });
        let mut bytes = Vec::new();
        header.put(&mut bytes);
        assert_eq!(bytes.len(), AIR_HEADER_LEN);
        bytes.extend([9; 20]);
        bytes.extend([1; AUTHENTICATOR_LEN]);
        let frame = AirFrame::parse(&bytes).unwrap();
        assert_eq!((frame.header, frame.sealed.len()), (header, 20));
        assert_eq!((frame.authenticated.len(), frame.authenticator), (AIR_HEADER_LEN + 20, [1; 16]));
        bytes[14] = 64;
        assert_eq!(AirFrame::parse(&bytes), Err(Malformed::Field("addressee")));
    }
}
