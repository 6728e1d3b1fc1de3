//! One network of the radio: how it is joined, kept, and left.
//!
//! ```text
//!              an access point was seen        answered          answered           keys agreed on
//!   Searching --------------------> Authenticating --> Associating --> Linked, closed --> Linked, open
//!      ^                                 |                 |               |                  |
//!      +----- refused, silent, sent away, gone: the access point is avoided for a while ------+
//! ```
//! (IEEE 802.11-2020 sections 11.3 and 12.6)

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use units::{Frequency, MacAddress, NetworkId, Ssid, Timestamp};

use crate::beacons::BeaconClock;
use crate::group::{Group, GroupSettings};
use crate::joining::{Unjoinable, choose};
use crate::link::Link;
use crate::scan::{Seen, SeenNetworks};
use crate::security::{Passphrase, SharedKey};
use crate::succession::Succession;
use crate::waking::{Drain, Waking, WakingChoice};
use crate::{PermittedChannel, Rate, Transmission};

/// Packets that wait for a network's turn; what comes when it is full is refused.
pub const MOST_WAITING: usize = 256;
/// An answer to authentication or association comes within this, or the request is repeated.
pub(crate) const ANSWER_TIME: Duration = Duration::from_millis(30);
/// Requests without an answer, while we are there, before an access point is avoided.
pub(crate) const MOST_REQUESTS: u8 = 6;
/// Keys are agreed on within this time on the channel, or the association is given up.
pub(crate) const KEY_TIME: Duration = Duration::from_millis(2_500);
/// For how long an access point is avoided after its first failure; doubles with each further one ...
const AVOIDED_FIRST: Duration = Duration::from_millis(500);
/// ... up to this.
const AVOIDED_MOST: Duration = Duration::from_secs(60);
/// The same for one that sent us away though all was well.
const AVOIDED_SENT_AWAY: Duration = Duration::from_secs(1);
/// Access points that are avoided at once.
const MOST_AVOIDED: usize = 16;

/// What is configured of a network.
#[derive(Clone, Debug)]
pub struct NetworkSettings {
    /// Its name.
    pub ssid: Ssid,
    /// Its secret, if it has one.
    pub passphrase: Option<Passphrase>,
    /// Only this access point.
    pub bssid: Option<MacAddress>,
    /// Access points of this name that are never used.
    pub avoided: Vec<MacAddress>,
    /// It does not tell its name unasked.
    pub hidden: bool,
    /// Its share of the radio, relative to the others'.
    pub weight: u16,
    /// How we take what was kept for us.
    pub waking: Waking,
    /// It is an ad hoc group, without an access point; open ones only.
    pub group: Option<GroupSettings>,
}

impl NetworkSettings {
    /// Whether this is an access point of the network that may be joined.
    pub fn takes(&self, seen: &Seen) -> bool {
        seen.ssid.as_ref() == Some(&self.ssid)
            && !seen.ad_hoc
            && !self.avoided.contains(&seen.bssid)
            && self.bssid.is_none_or(|bssid| bssid == seen.bssid)
    }
}

/// Why a network that was up is not any more, or did not come up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Lost {
    /// It sent us away.
    #[error("the access point sent us away (reason {0})")]
    SentAway(u16),
    /// It refused us.
    #[error("the access point refused: {0}")]
    Refused(crate::frame::management::Refusal),
    /// It does not answer.
    #[error("the access point does not answer")]
    Silent,
    /// Its beacons are not heard any more.
    #[error("the access point is not heard any more")]
    Gone,
    /// It takes our passphrase for wrong.
    #[error("wrong passphrase: the access point asked again and again for proof of it")]
    WrongPassphrase,
    /// It says different things of its protection.
    #[error("the access point says different things of how it is protected; it may be forged")]
    Forged,
    /// We have no radio.
    #[error("the card is switched off or gone")]
    NoRadio,
    /// It is on, or moves to, a channel that the card or the country's rules do not have.
    #[error("the access point is on a channel that this card may not use here")]
    Forbidden,
    /// It is not one that this radio joins.
    #[error(transparent)]
    Unjoinable(#[from] Unjoinable),
}

/// An access point that was chosen.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Target {
    pub bssid: MacAddress,
    pub frequency: Frequency,
    pub rates: Vec<Rate>,
    pub basic: Vec<Rate>,
    pub interval: Duration,
    pub protection: crate::scan::Protection,
}

impl Target {
    /// The rate for what must arrive.
    pub fn safe_rate(&self) -> Rate {
        self.basic.first().or(self.rates.first()).copied().unwrap_or(lowest_rate(self.frequency))
    }
}

/// The lowest rate of a band.
pub(crate) fn lowest_rate(frequency: Frequency) -> Rate {
    if frequency.0 < 3_000 { Rate(2) } else { Rate(12) }
}

/// A request of ours to which an answer is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub times: u8,
    pub again: Timestamp,
}

impl Asked {
    pub fn not_yet() -> Self {
        Self { times: 0, again: Timestamp::ZERO }
    }
}

pub(crate) enum State {
    Searching,
    Authenticating(Target, Asked),
    Associating(Target, Asked),
    Linked(Box<Linked>),
    /// A member of an ad hoc group.
    Grouped(Box<Group>),
}

/// An association and how it goes.
pub(crate) struct Linked {
    pub target: Target,
    pub link: Link,
    pub beacons: BeaconClock,
    /// When it was made, then when its keys were agreed on.
    pub since: Timestamp,
    /// The access point takes us for awake.
    pub awake: bool,
    /// Partings in a row that it did not confirm.
    pub unconfirmed: u8,
    /// How often it was told the same in vain, in this visit.
    pub told_in_vain: u8,
    /// It was said to be open.
    pub announced: bool,
    /// Something unsigned said that the association is over; we ask.
    pub doubt: Option<Asked>,
    pub drain: Drain,
    /// Frames a second that come for us, whether we are there or not: rises at once, falls slowly.
    pub arrivals: f64,
    pub life: Life,
    /// The access point goes to this channel then, as it says.
    pub moving: Option<(Frequency, Timestamp)>,
    /// A frame that the card had no room for before it left the channel; the next one here.
    pub unsent: Option<(Transmission, Rate)>,
}

/// Signs of life of an access point.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    /// The last frame heard or acknowledged, or our arrival after it.
    pub sign: Timestamp,
    /// The last frame heard or acknowledged.
    pub seen: Timestamp,
    /// Frames in a row that were not acknowledged.
    pub unanswered: u32,
    /// When it was last asked for one.
    pub asked: Timestamp,
    /// How often it was asked since its beacons stayed away, without learning whether it acknowledged.
    pub questions: u8,
}

impl Life {
    pub fn begun(now: Timestamp) -> Self {
        Self { sign: now, seen: now, unanswered: 0, asked: now, questions: 0 }
    }

    pub fn seen(&mut self, now: Timestamp) {
        (self.sign, self.seen, self.unanswered, self.questions) = (now, now, 0, 0);
    }
}

/// Who is in which network, joined or being joined.
#[derive(Clone, Debug)]
pub(crate) struct Joined {
    pub id: NetworkId,
    pub ssid: Ssid,
    pub bssid: MacAddress,
    pub address: MacAddress,
}

/// Counts of a network since it was added.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct NetworkCounters {
    /// Packets handed to the interface.
    pub received_packets: u64,
    /// Bytes of them, Ethernet headers included.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes of them, Ethernet headers included.
    pub sent_bytes: u64,
    /// Frames that were never acknowledged, with all their attempts.
    pub failed_frames: u64,
    /// Packets refused, since too many waited or nothing could be sent.
    pub refused_packets: u64,
    /// Frames dropped that did not fit the keys.
    pub dropped_frames: u64,
    /// Visits after which the access point did not confirm that it knows that we sleep.
    pub unconfirmed_partings: u64,
    /// Visits that found as many frames kept as access points keep: more may have been lost.
    pub full_buffers: u64,
    /// Times that it went up.
    pub ups: u64,
    /// Beacons with group traffic to come that were heard and that were missed, since away.
    pub heard_dtims: u64,
    /// See `heard_dtims`.
    pub missed_dtims: u64,
}

/// The visits to a network's channel that are over.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Visits {
    /// How long they were.
    pub time: Duration,
    /// Packets that had come by the network when the last one ended. What came while the radio was away comes at the beginning of a visit, so only whole ones tell
    /// how much a network brings in how much time.
    pub received_packets: u64,
}

/// A network of the radio.
pub(crate) struct Network {
    pub id: NetworkId,
    pub settings: NetworkSettings,
    /// Ours in it.
    pub address: MacAddress,
    pub state: State,
    /// Since when it is there.
    pub since: Timestamp,
    /// Packets for its turn, as Ethernet frames.
    pub waiting: VecDeque<Vec<u8>>,
    pub counters: NetworkCounters,
    /// The slots that are over.
    pub visits: Visits,
    /// Bytes in the present slot, both ways.
    pub slot_bytes: u64,
    pub waking: WakingChoice,
    /// Signs of life are asked for when there are none.
    pub watched: bool,
    /// Until when group traffic that must not be missed may come.
    pub group_expected: Option<Timestamp>,
    /// Which of its access points came after which.
    pub succession: Succession,
    /// The key is slow to derive and does not change.
    shared: Option<SharedKey>,
    avoided: Vec<Avoided>,
    /// The last reason that was told, so that it is not told again and again.
    told: Option<Lost>,
}

#[derive(Clone, Copy, Debug)]
struct Avoided {
    bssid: MacAddress,
    until: Timestamp,
    next: Duration,
}

impl Network {
    pub fn new(now: Timestamp, id: NetworkId, address: MacAddress, settings: NetworkSettings) -> Self {
        let shared = settings.passphrase.as_ref().map(|secret| secret.shared_key(settings.ssid.as_bytes()));
        Self {
            id,
            waking: WakingChoice::new(settings.waking),
            settings,
            address,
            state: State::Searching,
            since: now,
            waiting: VecDeque::new(),
            counters: NetworkCounters::default(),
            visits: Visits::default(),
            slot_bytes: 0,
            watched: false,
            group_expected: None,
            succession: Succession::default(),
            shared,
            avoided: Vec::new(),
            told: None,
        }
    }

    pub fn shared_key(&self) -> Option<SharedKey> {
        self.shared.clone()
    }

    /// The channel on which it is, or would be joined.
    pub fn frequency(&self) -> Option<Frequency> {
        self.target().map(|target| target.frequency).or(self.group().map(|group| group.frequency))
    }

    /// Its access point, joined or being joined, or the number of its group.
    pub fn bssid(&self) -> Option<MacAddress> {
        self.target().map(|target| target.bssid).or(self.group().map(|group| group.bssid))
    }

    pub fn group(&self) -> Option<&Group> {
        if let State::Grouped(group) = &self.state { Some(group) } else { None }
    }

    pub fn target(&self) -> Option<&Target> {
        match &self.state {
            State::Searching | State::Grouped(_) => None,
            State::Authenticating(target, _) | State::Associating(target, _) => Some(target),
            State::Linked(linked) => Some(&linked.target),
        }
    }

    pub fn linked(&self) -> Option<&Linked> {
        if let State::Linked(linked) = &self.state { Some(linked) } else { None }
    }

    pub fn linked_mut(&mut self) -> Option<&mut Linked> {
        if let State::Linked(linked) = &mut self.state { Some(linked) } else { None }
    }

    /// Whether packets can pass.
    pub fn is_open(&self) -> bool {
        self.linked().is_some_and(|linked| linked.link.is_open()) || self.group().is_some()
    }

    /// Whether something waits for its turn.
    pub fn has_more(&self) -> bool {
        let unsent = self.linked().is_some_and(|linked| linked.unsent.is_some())
            || self.group().is_some_and(|group| group.unsent.is_some());
        unsent || !self.waiting.is_empty()
    }

    /// Whether the radio should hurry here for what waits. A group has its slots: who of it is there in between is not known.
    pub fn is_urgent(&self) -> bool {
        self.has_more() && self.group().is_none()
    }

    /// Whether an exchange is under way that should not be interrupted.
    pub fn is_joining(&self) -> bool {
        match &self.state {
            State::Searching | State::Grouped(_) => false,
            State::Authenticating(_, asked) | State::Associating(_, asked) => asked.times > 0,
            State::Linked(linked) => !linked.link.is_open(),
        }
    }

    /// Takes the best of what was seen, if it has no access point: the strongest that is not avoided. The error is that of the strongest one of
    /// this name, if none can be joined.
    pub fn choose(
        &mut self,
        now: Timestamp,
        seen: &SeenNetworks,
        channels: &[PermittedChannel],
        others: &[Joined],
    ) -> Result<bool, Unjoinable> {
        if !matches!(self.state, State::Searching) || self.settings.group.is_some() {
            return Ok(false);
        }
        let mut found: Vec<&Seen> =
            seen.iter().filter(|seen| self.is_candidate(now, seen, channels)).collect();
        // Of one that has changed its channel, where it was before is remembered for a while.
        found.sort_by_key(|seen| std::cmp::Reverse(seen.heard));
        let mut known = BTreeSet::new();
        found.retain(|seen| known.insert(seen.bssid));
        let same = || others.iter().filter(|other| other.id != self.id && other.ssid == self.settings.ssid);
        found.retain(|seen| same().all(|other| other.bssid != seen.bssid));
        if !found.is_empty() && same().any(|other| other.address == self.address) {
            return Err(Unjoinable::SameSet);
        }
        found.sort_by(|a, b| b.signal_dbm.unwrap_or(-100.0).total_cmp(&a.signal_dbm.unwrap_or(-100.0)));
        let mut first_error = None;
        let may_send = |seen: &Seen| channels.iter().any(|one| one.frequency == seen.frequency && one.active);
        for seen in found {
            match choose(&seen.protection, self.settings.passphrase.is_some()) {
                Ok(_) if !may_send(seen) => {
                    first_error = first_error.or(Some(Unjoinable::ListenOnly));
                }
                Ok(_) => {
                    let target = Target {
                        bssid: seen.bssid,
                        frequency: seen.frequency,
                        rates: seen.rates.clone(),
                        basic: seen.basic.clone(),
                        interval: seen.interval,
                        protection: seen.protection.clone(),
                    };
                    self.state = State::Authenticating(target, Asked::not_yet());
                    return Ok(true);
                }
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        first_error.map_or(Ok(false), Err)
    }

    fn is_candidate(&self, now: Timestamp, seen: &Seen, channels: &[PermittedChannel]) -> bool {
        let avoided = self.avoided.iter().any(|avoided| avoided.bssid == seen.bssid && now < avoided.until);
        self.settings.takes(seen)
            && !avoided
            && channels.iter().any(|channel| channel.frequency == seen.frequency)
    }

    /// Ends whatever there is with the access point, which is avoided for a while. `sent_away`: by a frame that said so. Gives whether packets could pass until now.
    pub fn fail(&mut self, now: Timestamp, sent_away: bool) -> bool {
        let was_open = self.is_open();
        if let State::Linked(linked) = &self.state {
            self.counters.heard_dtims += linked.beacons.heard_dtims;
            self.counters.missed_dtims += linked.beacons.missed_dtims;
        }
        if let Some(bssid) = self.target().map(|target| target.bssid) {
            let before = self.avoided.iter().position(|avoided| avoided.bssid == bssid);
            let next = before.map_or(AVOIDED_FIRST, |at| self.avoided.remove(at).next);
            if self.avoided.len() == MOST_AVOIDED {
                self.avoided.remove(0);
            }
            // Anyone can forge a parting where management frames are not protected: come back soon.
            let most = if sent_away && was_open { AVOIDED_SENT_AWAY } else { AVOIDED_MOST };
            let next = next.min(most);
            self.avoided.push(Avoided { bssid, until: now + next, next: (next * 2).min(most) });
        }
        self.state = State::Searching;
        self.waiting.clear();
        was_open
    }

    /// It is up, and has been for long enough to forget its failures.
    pub fn is_steady(&mut self) {
        self.avoided.clear();
        self.told = None;
    }

    /// When an access point is not avoided any more.
    pub fn next_attempt(&self, now: Timestamp) -> Option<Timestamp> {
        let later = self.avoided.iter().map(|avoided| avoided.until).filter(|until| now < *until);
        later.min().filter(|_| matches!(self.state, State::Searching))
    }

    /// Whether a reason is not yet known to the owner.
    pub fn is_news(&mut self, reason: Lost) -> bool {
        self.told.replace(reason) != Some(reason)
    }
}
