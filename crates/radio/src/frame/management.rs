//! Bodies of management frames (IEEE 802.11-2020 section 9.3.3).

use std::time::Duration;

use super::FrameError;
use super::bytes::Reader;
use super::element::{Elements, write_rates, write_ssid};
use super::rsn::{RSN_ELEMENT, RobustSecurity};
use super::write_element;
use crate::Rate;

/// A time unit, 1,024 microseconds.
pub const TIME_UNIT: Duration = Duration::from_micros(1_024);

/// A station of a network with access points.
const CAPABILITY_INFRASTRUCTURE: u16 = 1;
/// A member of an ad hoc group.
const CAPABILITY_AD_HOC: u16 = 1 << 1;
/// Frames are encrypted.
const CAPABILITY_PRIVACY: u16 = 1 << 4;
/// Short preambles are understood.
const CAPABILITY_SHORT_PREAMBLE: u16 = 1 << 5;
/// Short slots are understood.
const CAPABILITY_SHORT_SLOT: u16 = 1 << 10;

const OPEN_SYSTEM: u16 = 0;
/// Status code of a request that is granted.
const SUCCESS: u16 = 0;
const IBSS_PARAMETERS: u8 = 6;
const CHANNEL: u8 = 3;

/// A beacon or the answer to a probe.
#[derive(Clone, Copy, Debug)]
pub struct Beacon<'a> {
    /// The network's clock when the frame was sent, in microseconds.
    pub timestamp: u64,
    /// Time between beacons.
    pub interval: Duration,
    /// An ad hoc group rather than an access point.
    pub ad_hoc: bool,
    /// Frames are encrypted, by whatever means.
    pub privacy: bool,
    /// All else.
    pub elements: Elements<'a>,
}

impl<'a> Beacon<'a> {
    /// Reads the body.
    ///
    /// # Errors
    /// Too few bytes, an element that ends behind the frame, an interval of zero.
    pub fn parse(body: &'a [u8]) -> Result<Self, FrameError> {
        let mut reader = Reader(body);
        let timestamp = u64::from_le_bytes(reader.array()?);
        let interval = reader.little_16()?;
        let capability = reader.little_16()?;
        if interval == 0 {
            return Err(FrameError::Value("beacon interval"));
        }
        Ok(Self {
            timestamp,
            interval: TIME_UNIT * u32::from(interval),
            ad_hoc: capability & CAPABILITY_AD_HOC != 0,
            privacy: capability & CAPABILITY_PRIVACY != 0,
            elements: Elements::parse(reader.0)?,
        })
    }
}

/// What an ad hoc member says in its own beacons and answers to probes.
#[derive(Clone, Copy, Debug)]
pub struct GroupBeacon<'a> {
    /// The group's clock, in microseconds.
    pub timestamp: u64,
    /// Time between beacons, in time units.
    pub interval_units: u16,
    /// The group's name.
    pub ssid: &'a [u8],
    /// Rates that the group takes.
    pub rates: &'a [Rate],
    /// Those that all must take.
    pub basic: &'a [Rate],
    /// Number of the channel.
    pub channel: u8,
}

impl GroupBeacon<'_> {
    /// Appends the body.
    pub fn write(&self, frame: &mut Vec<u8>) {
        frame.extend_from_slice(&self.timestamp.to_le_bytes());
        frame.extend_from_slice(&self.interval_units.to_le_bytes());
        frame.extend_from_slice(&(CAPABILITY_AD_HOC | CAPABILITY_SHORT_SLOT).to_le_bytes());
        write_ssid(frame, self.ssid);
        write_rates(frame, self.rates, self.basic);
        write_element(frame, CHANNEL, &[self.channel]);
        write_element(frame, IBSS_PARAMETERS, &[0, 0]);
    }
}

/// Appends the body of a probe request; an empty name asks everyone.
pub fn write_probe_request(frame: &mut Vec<u8>, ssid: &[u8], rates: &[Rate]) {
    write_ssid(frame, ssid);
    write_rates(frame, rates, &[]);
}

/// Whether a probe request asks for a network of this name, or for all.
pub fn probe_asks_for(body: &[u8], ssid: &[u8]) -> bool {
    Elements::parse(body).ok().and_then(Elements::ssid).is_some_and(|name| name.is_empty() || name == ssid)
}

/// Appends the body of the first frame of an open authentication.
pub fn write_authentication(frame: &mut Vec<u8>) {
    for field in [OPEN_SYSTEM, 1, SUCCESS] {
        frame.extend_from_slice(&field.to_le_bytes());
    }
}

/// Why an access point refused (IEEE 802.11-2020 table 9-50).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Refusal(pub u16);

impl std::fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let meaning = match self.0 {
            1 => "no reason given",
            10 => "it cannot support what this station asks for",
            13 => "it wants another kind of authentication",
            17 => "it has too many stations",
            18 => "this station lacks a rate that it demands",
            30 => "it asks to come back later",
            31 => "management frames must be protected",
            40..=46 => "keys or ciphers do not fit",
            _ => "see table 9-50 of IEEE 802.11-2020",
        };
        write!(formatter, "status {}: {meaning}", self.0)
    }
}

/// The access point's answer to an open authentication: granted or not.
///
/// # Errors
/// Too few bytes, another algorithm, another step.
pub fn parse_authentication(body: &[u8]) -> Result<Result<(), Refusal>, FrameError> {
    let mut reader = Reader(body);
    let (algorithm, step, status) = (reader.little_16()?, reader.little_16()?, reader.little_16()?);
    if algorithm != OPEN_SYSTEM {
        return Err(FrameError::Value("authentication algorithm"));
    }
    if step != 2 {
        return Err(FrameError::Value("authentication step"));
    }
    Ok(if status == SUCCESS { Ok(()) } else { Err(Refusal(status)) })
}

/// Appends the body of an association request. `listen_interval` in beacons.
pub fn write_association_request(
    frame: &mut Vec<u8>,
    ssid: &[u8],
    rates: &[Rate],
    listen_interval: u16,
    security: Option<&RobustSecurity>,
) {
    let privacy = if security.is_some() { CAPABILITY_PRIVACY } else { 0 };
    let capability = CAPABILITY_INFRASTRUCTURE | CAPABILITY_SHORT_PREAMBLE | CAPABILITY_SHORT_SLOT | privacy;
    frame.extend_from_slice(&capability.to_le_bytes());
    frame.extend_from_slice(&listen_interval.to_le_bytes());
    write_ssid(frame, ssid);
    write_rates(frame, rates, &[]);
    if let Some(security) = security {
        write_element(frame, RSN_ELEMENT, &security.to_bytes());
    }
}

/// The access point's answer: the association number (1 to 2,007), or a refusal and, with status 30, when to come back.
///
/// # Errors
/// Too few bytes, or a number that the standard does not allow.
pub fn parse_association_response(
    body: &[u8],
) -> Result<Result<u16, (Refusal, Option<Duration>)>, FrameError> {
    let mut reader = Reader(body);
    reader.little_16()?;
    let status = reader.little_16()?;
    let number = reader.little_16()? & 0x3fff;
    if status == SUCCESS {
        let legal = (1..=2_007).contains(&number);
        return if legal { Ok(Ok(number)) } else { Err(FrameError::Value("association number")) };
    }
    // Timeout interval of type 3, association comeback time (section 9.4.2.48).
    let comeback = Elements::parse(reader.0).ok().and_then(|elements| elements.body(56)).and_then(|body| {
        let [3, a, b, c, d] = *body else { return None };
        Some(TIME_UNIT * u32::from_le_bytes([a, b, c, d]).min(60_000))
    });
    Ok(Err((Refusal(status), comeback)))
}

/// The reason in a deauthentication or disassociation (table 9-49).
///
/// # Errors
/// Too few bytes.
pub fn parse_reason(body: &[u8]) -> Result<u16, FrameError> {
    Reader(body).little_16()
}

/// Reason code of a station that leaves.
pub const REASON_LEAVING: u16 = 3;
