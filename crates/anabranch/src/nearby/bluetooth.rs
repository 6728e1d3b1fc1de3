//! Peers in reach of Bluetooth: Low Energy advertisements, each for one known peer or for one group, one after the other (`wire::short_announcement`).
//!
//! ```text
//! turn        0        1        2        3 ...      each 2 s
//! on the air  for ann  for bob  for eve  for ann    new nonces every quarter of an hour
//! ```
//!
//! Listening takes the controller's time from its links: it goes on for a quarter of a minute, then for 5 s of each half minute.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use identity::PlaceKey;
use linux::bluetooth::{Advertised, Advertiser, Scanner};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tracing::debug;
use units::MacAddress;
use wire::peer::PeerAddress;
use wire::short_announcement::{SHORT_NONCE_LEN, Served, ShortAnnouncement, encode_place, parse_place};

use super::NearbyError;
use crate::machine;
use crate::sockets::{AdapterMonitor, AdapterState, BindError};

/// How long one peer is told before the next.
const TURN: Duration = Duration::from_secs(2);
/// As random addresses of Low Energy, which change as often (Bluetooth Core volume 3 part C, appendix A).
const NONCES_LAST: Duration = Duration::from_secs(15 * 60);
/// Before BlueZ is asked again, where it did not do as asked or is not there.
const PAUSE: Duration = Duration::from_secs(10);
const LISTEN_FIRST: Duration = Duration::from_secs(15);
const LISTEN: Duration = Duration::from_secs(5);
const REST: Duration = Duration::from_secs(25);
/// How soon a search that is over is noticed.
const GLANCE: Duration = Duration::from_millis(500);
/// Advertisements that wait to be looked at.
const MOST_WAITING: usize = 64;

/// Controllers that are on, of those with these names, by name.
pub(super) fn controllers(monitor: &AdapterMonitor, only: Option<&[String]>) -> BTreeMap<String, MacAddress> {
    let adapters = monitor.look().0;
    let is_meant = |name: &String| only.is_none_or(|only| only.contains(name));
    let on =
        adapters.iter().filter(|adapter| adapter.state == AdapterState::Connected && is_meant(&adapter.name));
    on.filter_map(|adapter| Some((adapter.name.clone(), adapter.bluetooth?))).collect()
}

/// Tells peers until it is dropped.
pub(super) struct Announcing {
    /// Its end is what the thread waits for.
    _until: Sender<()>,
}

impl Announcing {
    /// Starts a thread that tells each of these in turn.
    pub(super) fn begin(
        told: Vec<PlaceKey>,
        served: Served,
        port: u16,
        only: Option<Vec<String>>,
    ) -> Result<Self, NearbyError> {
        let random = StdRng::from_seed(machine::seed().map_err(BindError::from)?);
        let (until, ended) = channel();
        let announcer = Announcer {
            monitor: AdapterMonitor::shared()?,
            told,
            served,
            port,
            only,
            random,
            nonces: BTreeMap::new(),
        };
        std::thread::Builder::new()
            .name("nearby".to_owned())
            .spawn(move || announcer.run(&ended))
            .map_err(BindError::from)?;
        Ok(Self { _until: until })
    }
}

struct Announcer {
    monitor: Arc<AdapterMonitor>,
    told: Vec<PlaceKey>,
    served: Served,
    port: u16,
    only: Option<Vec<String>>,
    random: StdRng,
    /// One for each who is told and each controller that tells, as each says another place.
    nonces: BTreeMap<(MacAddress, usize), [u8; SHORT_NONCE_LEN]>,
}

/// A controller that advertises, or does not before that time.
enum Controller {
    On(Advertiser),
    Refused(Instant),
}

impl Announcer {
    fn run(mut self, ended: &Receiver<()>) {
        let mut controllers: BTreeMap<String, Controller> = BTreeMap::new();
        let mut renew = Instant::now();
        for turn in 0usize.. {
            let now = Instant::now();
            if now >= renew {
                self.nonces.clear();
                renew = now + NONCES_LAST;
            }
            let there = bluetooth_controllers(&self);
            controllers.retain(|name, _| there.contains_key(name));
            for (name, device) in there {
                let Some(data) = self.data(turn, device) else { return };
                let controller = controllers.remove(&name);
                controllers.insert(name.clone(), self.tell(&name, controller, &data, now));
            }
            match ended.recv_timeout(TURN) {
                Err(RecvTimeoutError::Timeout) => {}
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn tell(&self, name: &str, before: Option<Controller>, data: &[u8], now: Instant) -> Controller {
        let told = match before {
            Some(Controller::Refused(until)) if now < until => return Controller::Refused(until),
            Some(Controller::On(mut advertiser)) => {
                advertiser.serve().and_then(|()| advertiser.change(data)).map(|()| advertiser)
            }
            _ => Advertiser::begin(name, &self.served.uuid(), data),
        };
        match told {
            Ok(advertiser) => Controller::On(advertiser),
            Err(error) => {
                debug!(controller = name, %error, "peers in reach of Bluetooth are not told");
                Controller::Refused(now + PAUSE)
            }
        }
    }

    /// What is on the air in a turn; `None` if there is nobody to tell.
    fn data(&mut self, turn: usize, device: MacAddress) -> Option<Vec<u8>> {
        let at = turn.checked_rem(self.told.len())?;
        let key = self.told.get(at)?;
        let nonce = *self.nonces.entry((device, at)).or_insert_with(|| nonce(&mut self.random));
        let sealed = key.seal(self.served, nonce, encode_place(device, self.port));
        Some(ShortAnnouncement { nonce, sealed }.data().to_vec())
    }
}

fn bluetooth_controllers(announcer: &Announcer) -> BTreeMap<String, MacAddress> {
    controllers(&announcer.monitor, announcer.only.as_deref())
}

fn nonce(random: &mut StdRng) -> [u8; SHORT_NONCE_LEN] {
    let mut nonce = [0; SHORT_NONCE_LEN];
    random.fill_bytes(&mut nonce);
    nonce
}

/// Hears announcements until it is dropped.
pub(super) struct Listening {
    heard: Receiver<Advertised>,
    /// Its end is what the thread looks at.
    _until: Arc<()>,
}

impl Listening {
    /// Starts a thread that listens by the controllers that are on, of these names.
    pub(super) fn begin(only: Option<Vec<String>>) -> Result<Self, NearbyError> {
        let monitor = AdapterMonitor::shared()?;
        let (told, heard) = sync_channel(MOST_WAITING);
        let until = Arc::new(());
        let alive = Arc::downgrade(&until);
        std::thread::Builder::new()
            .name("nearby".to_owned())
            .spawn(move || listen(&monitor, only.as_deref(), &told, &alive))
            .map_err(BindError::from)?;
        Ok(Self { heard, _until: until })
    }

    /// An announcement that was heard meanwhile: its own words, whatever they are worth.
    pub(super) fn next(&self) -> Option<(Served, ShortAnnouncement)> {
        self.heard
            .try_iter()
            .find_map(|heard| Some((Served::of_uuid(&heard.uuid)?, ShortAnnouncement::read(&heard.data)?)))
    }
}

fn listen(
    monitor: &AdapterMonitor,
    only: Option<&[String]>,
    told: &SyncSender<Advertised>,
    alive: &Weak<()>,
) {
    let mut turn = LISTEN_FIRST;
    while alive.strong_count() > 0 {
        let controllers = controllers(monitor, only);
        let rest = if controllers.is_empty() {
            GLANCE
        } else {
            let begun = Scanner::begin(controllers.keys().map(String::as_str));
            match begun
                .map_err(|error| error.to_string())
                .and_then(|scanner| hear(scanner, turn, told, alive))
            {
                Ok(()) => REST,
                Err(error) => {
                    debug!(error, "peers in reach of Bluetooth are not heard");
                    PAUSE
                }
            }
        };
        turn = if controllers.is_empty() { turn } else { LISTEN };
        let until = Instant::now() + rest;
        while alive.strong_count() > 0 && Instant::now() < until {
            std::thread::sleep(GLANCE.min(until.saturating_duration_since(Instant::now())));
        }
    }
}

/// Listens for so long.
fn hear(
    mut scanner: Scanner,
    turn: Duration,
    told: &SyncSender<Advertised>,
    alive: &Weak<()>,
) -> Result<(), String> {
    let until = Instant::now() + turn;
    while alive.strong_count() > 0 && Instant::now() < until {
        let heard = scanner.next(GLANCE).map_err(|error| error.to_string())?;
        let Some(heard) = heard.filter(|heard| Served::of_uuid(&heard.uuid).is_some()) else { continue };
        match told.try_send(heard) {
            // It comes again.
            Ok(()) | Err(TrySendError::Full(_)) => {}
            Err(TrySendError::Disconnected(_)) => break,
        }
    }
    Ok(())
}

/// Where an announcement leads, if its seal is of that key.
pub(super) fn place(key: &PlaceKey, served: Served, told: &ShortAnnouncement) -> Option<PeerAddress> {
    parse_place(key.open(served, told.nonce, told.sealed)?)
}

#[cfg(test)]
mod tests {
    use identity::{GroupKeys, GroupSecret, KeyPair, PairKeys};

    use super::*;

    fn announcer(told: Vec<PlaceKey>) -> Announcer {
        Announcer {
            monitor: AdapterMonitor::shared().unwrap(),
            told,
            served: Served::of_word("files").unwrap(),
            port: 4_610,
            only: None,
            random: StdRng::from_seed([0; 32]),
            nonces: BTreeMap::new(),
        }
    }

    #[test]
    fn members_know_each_other_by_their_keys_and_others_nobody() {
        let [hikers, chess] = [1, 2].map(|seed| GroupKeys::new(&GroupSecret([seed; 32])));
        let [ann, bob] = [1, 2].map(|seed| KeyPair::from_private([seed; 32]).unwrap().public());
        let device = MacAddress([0, 1, 2, 3, 4, 5]);
        let mut announcer = announcer(vec![hikers.place_of(ann)]);
        let served = announcer.served;
        let told = ShortAnnouncement::read(&announcer.data(0, device).unwrap()).unwrap();
        let expected = Some(PeerAddress::Bluetooth { device, port: 4_610 });
        assert_eq!(place(&hikers.place_of(ann), served, &told), expected);
        assert_eq!(place(&hikers.place_of(bob), served, &told), None);
        assert_eq!(place(&chess.place_of(ann), served, &told), None);
    }

    #[test]
    fn each_peer_is_told_in_its_turn_and_understands_its_own() {
        let [own, ann, bob] = [1, 2, 3].map(|seed| KeyPair::from_private([seed; 32]).unwrap());
        let keys = |from: &KeyPair, to: &KeyPair| PairKeys::new(from, to.public()).unwrap();
        let mut announcer = announcer(vec![keys(&own, &ann).own_place(), keys(&own, &bob).own_place()]);
        let (device, other) = (MacAddress([0, 1, 2, 3, 4, 5]), MacAddress([0, 1, 2, 3, 4, 6]));
        let served = announcer.served;
        let told: Vec<_> = (0..3)
            .map(|turn| ShortAnnouncement::read(&announcer.data(turn, device).unwrap()).unwrap())
            .collect();
        let understood = |by: &KeyPair, turn: usize| place(&keys(by, &own).place(), served, &told[turn]);
        let expected = Some(PeerAddress::Bluetooth { device, port: 4_610 });
        assert_eq!([0, 1, 2].map(|turn| understood(&ann, turn)), [expected, None, expected]);
        assert_eq!([0, 1, 2].map(|turn| understood(&bob, turn)), [None, expected, None]);
        let beside = ShortAnnouncement::read(&announcer.data(0, other).unwrap()).unwrap();
        assert_ne!(beside.nonce, told[0].nonce, "two places under one nonce would show how they differ");
        let mut nobody = Announcer { told: Vec::new(), ..announcer };
        assert_eq!(nobody.data(0, device), None);
    }
}
