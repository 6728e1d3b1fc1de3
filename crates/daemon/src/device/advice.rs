//! What the access points of this machine are worth: by the radio, if one runs, and of cards that other programs keep, by what the kernel counts.
//!
//! The radio is a daemon of its own, which shares the device's state directory but for a directory below it. Where several other cards are at access
//! points, the kernel's counts are read twice a second and the same rule decides (`radio::Points`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anabranch::control::{AccessPointReport, BlockingClient, Fraction, SOCKET_NAME, Unreached};
use identity::StateDirectory;
use linux::clock;
use linux::wireless::{Wireless, WirelessError, WirelessMode};
use policy::steering::MarkShare;
use tracing::{debug, warn};
use units::{NetworkId, Timestamp};

use super::messages::{Command, PointAdvice};
use crate::control::EventLog;
use crate::mailbox::Mailbox;
use crate::radio::{Points, Statistics, Up};
use crate::sleep::SleepWatch;

/// The radio's state, below the device's.
const RADIO_DIRECTORY: &str = "radio";
/// How often a radio is asked that is at several access points.
const OFTEN: Duration = Duration::from_millis(200);
/// How often one that is not, or one that does not run, unless the networks have changed within this time: of one that has just come nobody has said yet
/// that it only stands by. Then it is asked at once.
const SELDOM: Duration = Duration::from_secs(3);

/// How often it is looked which cards are wireless.
const LOOK: Duration = Duration::from_secs(10);

/// Where the radio of a device answers.
pub(super) fn radio_socket(state: &StateDirectory) -> PathBuf {
    state.file(RADIO_DIRECTORY).join(SOCKET_NAME)
}

/// A network that carries data by what the user prefers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Card {
    /// Its number.
    pub network: NetworkId,
    /// The name of its interface.
    pub interface: String,
    /// The kernel's number of that.
    pub index: u32,
}

/// The networks that advice is about, and what came of those whose cards other programs keep.
#[derive(Clone, Default, Debug)]
pub struct Cards(Arc<Shared>);

#[derive(Default, Debug)]
struct Shared {
    known: Mutex<Known>,
    /// The networks have.
    changed: Condvar,
}

#[derive(Default, Debug)]
struct Known {
    cards: Vec<Card>,
    reports: Vec<AccessPointReport>,
    /// Interfaces behind which nothing answers while something does behind others.
    unreached: BTreeSet<String>,
}

impl Cards {
    /// These are the networks now.
    pub(super) fn tell(&self, cards: Vec<Card>) {
        let mut known = self.known();
        if known.cards != cards {
            known.cards = cards;
            self.0.changed.notify_all();
        }
    }

    /// Waits so long, or until the networks are others than these. Gives whether they are.
    fn wait_for_others(&self, than: &[Card], longest: Duration) -> bool {
        let waited = self.0.changed.wait_timeout_while(self.known(), longest, |known| known.cards == than);
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        known.cards != than
    }

    /// Nothing answers behind these interfaces, while something does behind others.
    pub(super) fn tell_unreached(&self, interfaces: BTreeSet<String>) {
        self.known().unreached = interfaces;
    }

    /// Access points of cards that other programs keep; none unless there are several.
    pub(super) fn reports(&self) -> Vec<AccessPointReport> {
        self.known().reports.clone()
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins to ask, on a thread of its own that ends with the process.
pub(super) fn start(state: &StateDirectory, cards: Cards, events: Arc<EventLog>, commands: Mailbox<Command>) {
    let socket = radio_socket(state);
    let started = thread::Builder::new()
        .name("radio advice".to_owned())
        .spawn(move || ask(&socket, &cards, &events, &commands));
    if let Err(error) = started {
        warn!("nobody tells what access points are worth: {error}");
    }
}

fn ask(socket: &Path, cards: &Cards, events: &EventLog, commands: &Mailbox<Command>) {
    let mut told = Vec::new();
    let mut client = None;
    let mut others = OtherCards::default();
    let mut unreached = Unreached::default();
    let mut repeat = Timestamp::ZERO;
    let (mut networks, mut hurry_until) = (Vec::new(), Timestamp::ZERO);
    let mut sleep = SleepWatch::new(clock::asleep());
    loop {
        if sleep.look(clock::asleep()).is_some() {
            others = OtherCards::default();
        }
        if client.is_none() && socket.exists() {
            client = BlockingClient::new(socket).ok();
        }
        let now = clock::now();
        let known = cards.known().unreached.clone();
        // Said again and again, since the radio forgets it.
        let is_news = known != unreached.interfaces || !known.is_empty() && now >= repeat;
        if let Some(client) = client.as_ref().filter(|_| is_news) {
            unreached.interfaces = known.clone();
            repeat = now + SELDOM;
            if let Err(error) = client.tell_unreached(&unreached) {
                debug!("the radio was not told behind which networks nothing answers: {error}");
            }
        }
        let answer = client.as_ref().map(BlockingClient::radio_access_points);
        if !matches!(answer, Some(Ok(_))) {
            client = None;
        }
        let mut advice = answer.and_then(Result::ok).map(|points| advice(&points)).unwrap_or_default();
        let all = cards.known().cards.clone();
        if all != networks {
            (networks, hurry_until) = (all, now + SELDOM);
        }
        let is_others = |card: &Card| !advice.iter().any(|point| point.interface == card.interface);
        let kept: Vec<Card> = networks.iter().filter(|card| is_others(card)).cloned().collect();
        let reports = others.reports(clock::now(), kept, &known, events);
        advice.extend(self::advice(&reports));
        cards.known().reports = reports;
        let several = advice.len() > 1;
        if advice != told && commands.post(Command::Advice(advice.clone())) {
            told = advice;
        }
        let is_hurried = several || now < hurry_until;
        cards.wait_for_others(&networks, if is_hurried { OFTEN } else { SELDOM });
    }
}

/// What the reports say of the networks that the radio is in.
fn advice(points: &[AccessPointReport]) -> Vec<PointAdvice> {
    let joined = points.iter().filter_map(|point| Some((point, point.interface.clone()?)));
    joined
        .map(|(point, interface)| PointAdvice {
            interface,
            used: point.used,
            limit: point.limit,
            fair_limit: point.fair_limit,
            marks: MarkShare::new(point.marks.0),
            renewals: point.renewals,
            packet_time: point.held_packet_time.map(|time| Duration::from_micros(time.0)),
        })
        .collect()
}

/// Cards that other programs keep.
#[derive(Default)]
struct OtherCards {
    /// Those that are wireless, as last looked, and what of all cards that was.
    wireless: Vec<Card>,
    seen: Vec<Card>,
    due: Timestamp,
    statistics: Statistics,
    points: Points,
}

impl OtherCards {
    /// What the kernel's counts say of their access points; nothing with less than two.
    fn reports(
        &mut self,
        now: Timestamp,
        cards: Vec<Card>,
        unreached: &BTreeSet<String>,
        events: &EventLog,
    ) -> Vec<AccessPointReport> {
        if cards != self.seen || now >= self.due {
            self.wireless = wireless(&cards);
            self.seen = cards;
            self.due = now + LOOK;
        }
        if self.wireless.len() < 2 {
            (self.statistics, self.points) = Default::default();
            return Vec::new();
        }
        let up: Vec<Up<'_>> = self.wireless.iter().map(Card::up).collect();
        if self.statistics.is_due(now) {
            self.statistics.read(now, &up, false);
            let reaches = |interface: &str| !unreached.contains(interface);
            self.points.decide(now, &self.statistics.joined(now, &up, None, reaches), events);
        }
        let mut reports = self.statistics.reports(now, &up, &self.points, None);
        // Each is a radio of its own.
        reports.iter_mut().for_each(|report| report.share = Fraction(1.0));
        reports
    }
}

impl Card {
    fn up(&self) -> Up<'_> {
        Up { network: self.network, title: &self.interface, interface: &self.interface, index: self.index }
    }
}

/// Those of the cards that are clients of access points by the kernel's own means.
fn wireless(cards: &[Card]) -> Vec<Card> {
    if cards.len() < 2 {
        return Vec::new();
    }
    let stations = match Wireless::open().and_then(|mut wireless| wireless.interfaces()) {
        Ok(interfaces) => interfaces,
        Err(WirelessError::None) => return Vec::new(),
        Err(error) => {
            debug!("{error}");
            return Vec::new();
        }
    };
    let is_station = |card: &&Card| {
        stations.iter().any(|one| one.index == card.index && one.mode == WirelessMode::Station)
    };
    cards.iter().filter(is_station).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_that_comes_is_asked_about_at_once() {
        let card = |number: u32| Card {
            network: NetworkId(number),
            interface: format!("wl-{number}"),
            index: number,
        };
        let cards = Cards::default();
        cards.tell(vec![card(1)]);
        assert!(!cards.wait_for_others(&[card(1)], Duration::from_millis(1)));
        let waiting = cards.clone();
        let waiter = thread::spawn(move || waiting.wait_for_others(&[card(1)], Duration::from_secs(600)));
        cards.tell(vec![card(1)]);
        cards.tell(vec![card(1), card(2)]);
        assert!(waiter.join().unwrap());
    }
}
