//! Listening by the kernel's own station, for a card that this program does not use.

use std::time::{Duration, Instant};

use radio::Heard;
use radio::frame::management::Beacon;
use radio::scan::SeenNetworks;
use thiserror::Error;
use units::{Frequency, MacAddress, Timestamp};

use super::capabilities::Radio;
use crate::netlink::generic::{FamilyNumber, GenericNetlink, Question};
use crate::netlink::message::{self, Request};
use crate::netlink::{Netlink, NetlinkError};
use crate::wireless::{WirelessError, WirelessMode};

/// Why nothing was heard.
#[derive(Debug, Error)]
pub enum ScanError {
    /// The kernel knows no wireless card, or refused.
    #[error(transparent)]
    Wireless(#[from] WirelessError),
    /// The card has no interface that can listen.
    #[error("{0} has no interface for a station; `iw phy {0} interface add wlan0 type managed` makes one")]
    NoInterface(String),
    /// It may not be done.
    #[error("listening takes root: the card is asked to visit every channel")]
    NotAllowed,
    /// The card is switched off.
    #[error("the card is switched off (rfkill); `rfkill unblock wifi` or its key switches it on")]
    Off,
    /// The card did not end in time.
    #[error("the card has not finished listening for {} s", LIMIT.as_secs())]
    Slow,
}

impl From<NetlinkError> for ScanError {
    fn from(error: NetlinkError) -> Self {
        match error.errno() {
            libc::EPERM => Self::NotAllowed,
            libc::ERFKILL => Self::Off,
            _ => Self::Wireless(error.into()),
        }
    }
}

/// Has a card listen on all its channels, asking where that is permitted, and gives what the kernel knows then. A connection that
/// the card has goes on. An interface that is off is switched on meanwhile.
///
/// # Errors
/// Any [`ScanError`].
pub fn kernel_scan(radio: &Radio) -> Result<SeenNetworks, ScanError> {
    let station = radio.interfaces.iter().find(|one| one.mode == WirelessMode::Station);
    let station = station.ok_or_else(|| ScanError::NoInterface(radio.name.clone()))?;
    let mut links = Netlink::open().map_err(NetlinkError::from)?;
    let was_on = links.link(&station.name)?.is_some_and(|link| link.up);
    if !was_on {
        links.set_link_up(station.index, true)?;
    }
    let heard = Scanner::open().and_then(|mut scanner| scanner.scan(station.index));
    if !was_on {
        links.set_link_up(station.index, false)?;
    }
    heard
}

struct Scanner {
    netlink: GenericNetlink,
    family: FamilyNumber,
}

impl Scanner {
    fn open() -> Result<Self, ScanError> {
        let mut netlink = GenericNetlink::open().map_err(NetlinkError::from)?;
        let family = netlink.family("nl80211")?.ok_or(WirelessError::None)?;
        Ok(Self { netlink, family })
    }

    fn scan(&mut self, index: u32) -> Result<SeenNetworks, ScanError> {
        let started = Instant::now();
        // One may be under way already, of another program.
        self.begin(index, started)?;
        // Refused as long as the first one goes on; that it is not any more is told by the second one's beginning.
        self.begin(index, started)?;
        self.tell(index, ABORT_SCAN)?;
        self.results(index)
    }

    fn begin(&mut self, index: u32, started: Instant) -> Result<(), ScanError> {
        loop {
            match self.tell(index, TRIGGER_SCAN) {
                Err(error) if error.errno() == libc::EBUSY && started.elapsed() < LIMIT => {
                    std::thread::sleep(PAUSE);
                }
                Err(error) if error.errno() == libc::EBUSY => return Err(ScanError::Slow),
                other => return Ok(other?),
            }
        }
    }

    fn tell(&mut self, index: u32, command: u8) -> Result<(), NetlinkError> {
        let fill = |request: &mut Request| {
            request.number(ATTRIBUTE_INDEX, index);
            if command == TRIGGER_SCAN {
                // An empty name asks everyone, where asking is permitted.
                request.nested(ATTRIBUTE_SCAN_NAMES, |names| {
                    names.attribute(1, &[]);
                });
            }
        };
        let question = Question { command, dump: false };
        match self.netlink.ask("listen for networks", self.family, question, fill, |_| {}) {
            // It has ended by itself.
            Err(error) if command == ABORT_SCAN && error.is_missing() => Ok(()),
            other => other,
        }
    }

    fn results(&mut self, index: u32) -> Result<SeenNetworks, ScanError> {
        let mut seen = SeenNetworks::default();
        let fill = |request: &mut Request| {
            request.number(ATTRIBUTE_INDEX, index);
        };
        let question = Question { command: GET_SCAN, dump: true };
        self.netlink.ask("read what was heard", self.family, question, fill, |answer| {
            let network = message::attributes(answer).find(|(kind, _)| *kind == ATTRIBUTE_BSS);
            if let Some((_, network)) = network {
                take(&mut seen, network);
            }
        })?;
        Ok(seen)
    }
}

/// Takes one result as the beacon that it was made from; what is none is left out.
fn take(seen: &mut SeenNetworks, network: &[u8]) {
    let (mut bssid, mut frequency, mut signal_dbm) = (None, None, None);
    let (mut interval, mut capability, mut elements) = (0, 0, &[][..]);
    for (kind, value) in message::attributes(network) {
        match kind {
            BSS_ADDRESS => bssid = value.try_into().ok().map(MacAddress),
            BSS_FREQUENCY => frequency = message::number(value, 0).map(Frequency),
            BSS_INTERVAL => interval = message::short(value, 0).unwrap_or_default(),
            BSS_CAPABILITY => capability = message::short(value, 0).unwrap_or_default(),
            BSS_ELEMENTS => elements = value,
            // In hundredths of a dBm.
            BSS_SIGNAL => signal_dbm = message::number(value, 0).map(|value| (value as i32).div_euclid(100)),
            _ => {}
        }
    }
    let (Some(bssid), Some(frequency)) = (bssid, frequency) else { return };
    let mut body = vec![0; 8];
    body.extend_from_slice(&interval.to_le_bytes());
    body.extend_from_slice(&capability.to_le_bytes());
    body.extend_from_slice(elements);
    let signal_dbm = signal_dbm.and_then(|signal| i8::try_from(signal).ok());
    let heard =
        Heard { frame: &body, frequency, signal_dbm, rate: None, high_throughput: None, aggregate: None };
    if let Ok(beacon) = Beacon::parse(&body) {
        seen.take(Timestamp::ZERO, bssid, &beacon, &heard);
    }
}

/// A card with channels in three bands, most of them to listen only, takes some five seconds.
const LIMIT: Duration = Duration::from_secs(15);
const PAUSE: Duration = Duration::from_millis(100);

// `enum nl80211_commands`.
const GET_SCAN: u8 = 32;
const TRIGGER_SCAN: u8 = 33;
const ABORT_SCAN: u8 = 114;

// `enum nl80211_attrs`.
const ATTRIBUTE_INDEX: u16 = 3;
const ATTRIBUTE_SCAN_NAMES: u16 = 45;
const ATTRIBUTE_BSS: u16 = 47;

// `enum nl80211_bss`.
const BSS_ADDRESS: u16 = 1;
const BSS_FREQUENCY: u16 = 2;
const BSS_INTERVAL: u16 = 4;
const BSS_CAPABILITY: u16 = 5;
const BSS_ELEMENTS: u16 = 6;
const BSS_SIGNAL: u16 = 7;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use radio::scan::Protection;

    use super::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = ((value.len() + 4) as u16).to_ne_bytes().to_vec();
        bytes.extend_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn results_are_read_as_beacons() {
        let result = [
            attribute(BSS_ADDRESS, &[2, 0, 0, 0, 1, 0]),
            attribute(BSS_FREQUENCY, &2412u32.to_ne_bytes()),
            attribute(BSS_INTERVAL, &100u16.to_ne_bytes()),
            attribute(BSS_CAPABILITY, &1u16.to_ne_bytes()),
            attribute(BSS_ELEMENTS, &[0, 4, b'c', b'a', b'f', b'e', 3, 1, 1]),
            attribute(BSS_SIGNAL, &(-4_250i32).to_ne_bytes()),
        ]
        .concat();
        let mut seen = SeenNetworks::default();
        take(&mut seen, &result);
        let one = seen.iter().next().unwrap();
        assert_eq!((one.ssid.as_ref().unwrap().as_bytes(), one.signal_dbm), (&b"cafe"[..], Some(-43.0)));
        assert_eq!((&one.protection, one.ad_hoc), (&Protection::Open, false));
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            take(&mut SeenNetworks::default(), &bytes);
        }
    }
}
