//! Hears what the kernel's stations hear, where that decides anything: while several networks share a channel.

use std::time::{Duration, SystemTime};

use anabranch::control::AccessPointReport;
use linux::radio::{ListenError, Listener, Radios, TransferError};
use linux::wireless::WirelessError;
use radio::quality::Estimate;
use radio::radiotap::Captured;
use radio::scan::Seen;
use radio::{NetworkSettings, Overhearing, Stations};
use tracing::{debug, info};
use units::{Frequency, MacAddress, Timestamp};

use super::super::access_points::stranger;

/// How often what has come is taken: in a full second of it there is room for what a card hears, and an estimate covers half of one.
const INTERVAL: Duration = Duration::from_millis(100);
/// No frame has waited for longer, whatever clocks say.
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// How soon it is tried again where it failed.
const AGAIN: Duration = Duration::from_secs(60);
/// A beacon that is older says nothing of now.
const LATELY: Duration = Duration::from_secs(1);
/// Frames that are taken at a time; more wait, for a card cannot hear so many in the interval.
const MOST_FRAMES: usize = 10_000;

/// What a card hears, if it is listened to.
#[derive(Default)]
pub(crate) struct Listening {
    listener: Option<Listener>,
    heard: Overhearing,
    due: Timestamp,
}

impl Listening {
    /// Listens by the card of `interface` while `wanted`, to what is for its stations above all.
    pub(super) fn work(&mut self, now: Timestamp, wanted: bool, interface: &str, stations: Stations<'_>) {
        if !wanted {
            if self.listener.is_some() {
                *self = Self::default();
            }
            return;
        }
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        let Some(listener) = &mut self.listener else {
            return self.begin(now, interface);
        };
        match take(listener, &mut self.heard, now, stations) {
            Ok(()) => self.heard.forget_old(now),
            Err(error) => {
                debug!("{interface}: {error}");
                *self = Self { due: now + INTERVAL, ..Self::default() };
            }
        }
    }

    fn begin(&mut self, now: Timestamp, interface: &str) {
        match begin(interface) {
            Ok(listener) => {
                debug!("listens beside {interface}");
                self.heard.begin(now);
                self.listener = Some(listener);
            }
            Err(error) => {
                info!(
                    "{interface}: no frames can be heard beside it, so its access points are judged by the kernel's counts: {error}"
                );
                self.due = now + AGAIN;
            }
        }
    }

    /// When to work next, if it is wanted.
    pub(super) fn due(&self) -> Timestamp {
        self.due
    }

    /// Whether anything can be heard.
    pub fn is_on(&self) -> bool {
        self.listener.is_some()
    }

    /// How well an access point's frames to us arrive.
    pub fn estimate(&self, now: Timestamp, channel: Frequency, bssid: MacAddress) -> Option<Estimate> {
        self.heard.estimate(now, channel, bssid)
    }

    /// How well an access point is heard, dBm, over its last beacons; `None` if none came lately.
    pub fn signal(&self, now: Timestamp, bssid: MacAddress) -> Option<f32> {
        let lately = self.heard.seen().filter(|seen| now.since(seen.heard) < LATELY && seen.bssid == bssid);
        lately.max_by_key(|seen| seen.heard)?.signal_dbm
    }

    /// The access point heard best lately of those that `settings` take, on one of `frequencies` or, if there are none, on any.
    pub fn candidate(
        &self,
        now: Timestamp,
        settings: &NetworkSettings,
        frequencies: &[Frequency],
    ) -> Option<&Seen> {
        let is_allowed = |seen: &Seen| frequencies.is_empty() || frequencies.contains(&seen.frequency);
        let lately = self.heard.seen().filter(|seen| now.since(seen.heard) < LATELY && settings.takes(seen));
        let lately = lately.filter(|seen| is_allowed(seen));
        lately.max_by(|one, other| signal(one).total_cmp(&signal(other)))
    }

    /// The part of a channel's air that others take, 0 to 1; `None` if nobody listens.
    pub fn others(&self, now: Timestamp, channel: Frequency) -> Option<f64> {
        self.is_on().then(|| self.heard.others(now, channel))
    }

    /// Who else sends full packets on a channel: the transmitter to each receiver, and how many in a second.
    pub fn pairs(&self, now: Timestamp, channel: Frequency) -> impl Iterator<Item = (MacAddress, f64)> {
        let is_on = self.is_on();
        self.heard.pairs(now, channel).filter(move |_| is_on)
    }

    /// All that are heard, but for those that `joined` tells of already.
    pub fn strangers(&self, now: Timestamp, joined: &[AccessPointReport]) -> Vec<AccessPointReport> {
        let seen = self.heard.access_points(now);
        let reports = seen.map(|(seen, estimate)| {
            let ssid = seen.ssid.as_ref().map(ToString::to_string);
            let known = ssid.is_some() && joined.iter().any(|one| one.ssid == ssid);
            stranger(seen, known, estimate.as_ref())
        });
        let is_joined = |report: &AccessPointReport| {
            joined.iter().any(|one| one.bssid == report.bssid && one.megahertz == report.megahertz)
        };
        reports.filter(|report| !is_joined(report)).collect()
    }
}

fn signal(seen: &Seen) -> f32 {
    seen.signal_dbm.unwrap_or(f32::NEG_INFINITY)
}

fn begin(interface: &str) -> Result<Listener, ListenError> {
    let card = Radios::open()?.find(interface)?.ok_or(WirelessError::None)?;
    Listener::begin(card.number)
}

/// When a frame came by our own clock, which is `now` where the system's is `began`. That one may be set meanwhile.
fn when(now: Timestamp, began: SystemTime, came: Option<SystemTime>) -> Timestamp {
    match came.map(|came| began.duration_since(came)) {
        Some(Ok(waited)) => now - waited.min(LONGEST_WAIT),
        Some(Err(later)) => now + later.duration().min(INTERVAL),
        None => now,
    }
}

/// Takes what waits.
fn take(
    listener: &mut Listener,
    heard: &mut Overhearing,
    now: Timestamp,
    stations: Stations<'_>,
) -> Result<(), TransferError> {
    let mut taken = 0;
    let began = SystemTime::now();
    while taken < MOST_FRAMES {
        let each = |captured: Captured<'_>, came: Option<SystemTime>| {
            if let Captured::Heard(frame) = captured {
                heard.handle_frame(when(now, began, came), &frame, stations);
            }
        };
        match listener.receive(each)? {
            0 => break,
            some => taken += some,
        }
    }
    if listener.has_missed().map_err(TransferError::System)? {
        heard.begin(now);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_have_the_time_at_which_they_came() {
        let (now, began) =
            (Timestamp::from_millis(5_000), SystemTime::UNIX_EPOCH + Duration::from_secs(1_000));
        let at = |millis: u64| when(now, began, Some(SystemTime::UNIX_EPOCH + Duration::from_millis(millis)));
        assert_eq!(at(999_940), Timestamp::from_millis(4_940));
        assert_eq!(at(1_000_003), Timestamp::from_millis(5_003), "while others were taken");
        assert_eq!(at(900_000), Timestamp::from_millis(4_000), "a clock that was set on");
        assert_eq!(at(1_900_000), Timestamp::from_millis(5_100), "or back");
        assert_eq!(when(now, began, None), now);
    }
}
