//! The seam between what is the same on every card (the list of networks, signals, waiting) and who keeps the networks: slots on a
//! monitor interface ([`event_loop`](super::event_loop)), or the kernel's own stations ([`kernel`](super::kernel)).
//!
//! ```text
//! run: wait --> Keeper::handle (what is ready) --> list changed? join, leave, set_weight --> Keeper::work --> wait
//! ```

use std::io;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anabranch::control::{AccessPointReport, EventKind, HeardNetwork, RadioStatus, Unreached};
use identity::StateError;
use linux::clock;
use linux::netlink::NetlinkError;
use linux::poll::{Interest, Poller, Ready, Token};
use linux::radio::{TransferError, TuneError};
use linux::signals::EndSignals;
use linux::tun::TunError;
use radio::handoff::Beyond;
use thiserror::Error;
use tracing::{info, warn};
use units::{NetworkId, Timestamp};

use super::control::{Command, Desk};
use super::watch::ListWatch;
use super::{KnownError, KnownNetwork, KnownNetworks};
use crate::control::EventLog;
use crate::sleep::SleepWatch;
use crate::supervision::Request;

/// Of the signals that end a program; keepers use other tokens.
pub(super) const SIGNALS: Token = Token(1);
/// Of requests by the control socket.
pub(super) const COMMANDS: Token = Token(2);
/// How often the file of known networks is looked at.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Why a keeper cannot start, or ended.
#[derive(Debug, Error)]
pub(super) enum LoopError {
    /// A network's settings.
    #[error(transparent)]
    Known(#[from] KnownError),
    /// The state directory.
    #[error(transparent)]
    State(#[from] StateError),
    /// An interface.
    #[error(transparent)]
    Interface(#[from] TunError),
    /// An interface, once it is there.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// Randomness, descriptors.
    #[error("the radio cannot go on: {0}")]
    System(#[from] io::Error),
    /// Randomness.
    #[error("no randomness: {0}")]
    Randomness(rand::rand_core::OsError),
    /// The card is gone or off.
    #[error(transparent)]
    Card(#[from] TransferError),
    /// The card cannot be tuned.
    #[error(transparent)]
    Tune(#[from] TuneError),
}

/// Who keeps the networks of a card.
pub(super) trait Keeper {
    /// The networks that it has, as they are known.
    fn networks(&self) -> Vec<(NetworkId, KnownNetwork)>;

    /// Takes a network on: an interface, and an association as soon as there is an access point.
    ///
    /// # Errors
    /// [`LoopError`] if it cannot have its interface.
    fn join(&mut self, now: Timestamp, network: KnownNetwork) -> Result<(), LoopError>;

    /// Gives a network up, its interface included.
    fn leave(&mut self, now: Timestamp, id: NetworkId);

    /// Another share of the radio for a network.
    fn set_weight(&mut self, id: NetworkId, weight: u16);

    /// What waits for its descriptors.
    fn poller(&mut self) -> &mut Poller;

    /// One of its descriptors is ready.
    ///
    /// # Errors
    /// [`LoopError`] if it cannot go on.
    fn handle(&mut self, token: Token) -> Result<(), LoopError>;

    /// Does all that is due and can be done without waiting; gives when it is to be called again at the latest.
    ///
    /// # Errors
    /// [`LoopError`] if it cannot go on.
    fn work(&mut self) -> Result<Option<Timestamp>, LoopError>;

    /// Says good-bye to the access points.
    fn end(&mut self);

    /// How the radio and its networks are.
    fn status(&self, now: Timestamp) -> RadioStatus;

    /// Access points in range, and how much each is worth.
    fn access_points(&mut self, now: Timestamp) -> Vec<AccessPointReport>;

    /// Takes note behind which networks nothing answers.
    fn tell_unreached(&mut self, now: Timestamp, unreached: Unreached);

    /// Listens on all channels and then gives what was heard.
    fn scan(&mut self, now: Timestamp, reply: SyncSender<Vec<HeardNetwork>>);

    /// The machine has slept: what is believed of access points was true elsewhere, perhaps.
    fn slept(&mut self);

    /// What was found beyond a network, by asking as an application would.
    fn found(&mut self, _now: Timestamp, _network: NetworkId, _found: Beyond) {}
}

/// Has `keeper` keep what is known, and what becomes known, until a signal says to stop.
///
/// # Errors
/// Any [`LoopError`]: a network of `known` cannot have its interface, or the keeper cannot go on.
pub(super) fn run(
    keeper: &mut dyn Keeper,
    signals: &EndSignals,
    list: &mut ListWatch,
    known: KnownNetworks,
    desk: &mut Desk,
) -> Result<(), LoopError> {
    keeper.poller().add(signals, SIGNALS, Interest::Readable)?;
    keeper.poller().add(&desk.waker, COMMANDS, Interest::Readable)?;
    adopt(keeper, clock::now(), known)?;
    let mut ready: Vec<Ready> = Vec::new();
    let mut sleep = SleepWatch::new(clock::asleep());
    loop {
        let due = keeper.work()?;
        let now = clock::now();
        let patience = due.map_or(LOOK_EVERY, |due| due.since(now).min(LOOK_EVERY));
        keeper.poller().wait(Some(patience), &mut ready)?;
        if let Some(slept) = sleep.look(clock::asleep()) {
            wake(keeper, slept, &desk.events);
        }
        for one in &ready {
            if one.token == COMMANDS {
                if answer(keeper, desk) {
                    return Ok(());
                }
            } else if one.token != SIGNALS {
                keeper.handle(one.token)?;
            } else if let Some(signal) = signals.take() {
                info!("ending on signal {signal}");
                desk.events.push(EventKind::Stopping, None, format!("the radio ends on signal {signal}"));
                keeper.end();
                return Ok(());
            }
        }
        let now = clock::now();
        match list.look(now).map(|known| adopt(keeper, now, known?)) {
            None | Some(Ok(())) => {}
            // Being replaced just now, or wrong: told once, and looked at again when it changes.
            Some(Err(error)) => warn!("the networks stay as they are: {error}"),
        }
    }
}

/// After a sleep.
fn wake(keeper: &mut dyn Keeper, slept: Duration, events: &EventLog) {
    keeper.slept();
    let text = format!("the machine has slept for {} s: access points are judged anew", slept.as_secs());
    events.push(EventKind::NetworkChanged, None, text);
}

/// Answers requests; gives whether one of them was to end.
fn answer(keeper: &mut dyn Keeper, desk: &mut Desk) -> bool {
    desk.waker.reset();
    while let Ok(command) = desk.commands.try_recv() {
        let now = clock::now();
        match command {
            // Who asked may not wait any more.
            Command::Status(reply) => drop(reply.try_send(keeper.status(now))),
            Command::AccessPoints(reply) => drop(reply.try_send(keeper.access_points(now))),
            Command::Unreached(unreached, reply) => {
                keeper.tell_unreached(now, unreached.clone());
                drop(reply.try_send(unreached));
            }
            Command::Scan(reply) => keeper.scan(now, reply),
            Command::Beyond(network, found) => keeper.found(now, network, found),
            Command::Stop(reply) => {
                desk.events.push(EventKind::Stopping, None, "the radio ends: it was told to");
                keeper.end();
                let report = desk.root.ask(&Request::Restore).map_err(|error| error.to_string());
                drop(reply.try_send(report));
                return true;
            }
        }
    }
    false
}

/// Makes the keeper's networks those that are known: leaves the others, joins the new ones, takes over weights.
fn adopt(keeper: &mut dyn Keeper, now: Timestamp, known: KnownNetworks) -> Result<(), LoopError> {
    let same = |one: &KnownNetwork, other: &KnownNetwork| {
        *one == KnownNetwork { weight: one.weight, ..other.clone() }
    };
    let before = keeper.networks();
    for (id, stale) in before.iter().filter(|(_, kept)| !known.network.iter().any(|one| same(kept, one))) {
        keeper.leave(now, *id);
        info!("{}: left", stale.ssid);
    }
    for network in known.network {
        match before.iter().find(|(_, kept)| same(kept, &network)) {
            Some((id, _)) => keeper.set_weight(*id, network.weight),
            None => keeper.join(now, network)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keeps nothing, notes what it is asked to.
    struct Noting {
        kept: Vec<(NetworkId, KnownNetwork)>,
        asked: Vec<String>,
        poller: Poller,
    }

    impl Keeper for Noting {
        fn networks(&self) -> Vec<(NetworkId, KnownNetwork)> {
            self.kept.clone()
        }

        fn join(&mut self, _: Timestamp, network: KnownNetwork) -> Result<(), LoopError> {
            self.asked.push(format!("join {}", network.ssid));
            self.kept.push((NetworkId(self.asked.len() as u32), network));
            Ok(())
        }

        fn leave(&mut self, _: Timestamp, id: NetworkId) {
            self.asked.push(format!("leave {}", id.0));
            self.kept.retain(|(kept, _)| *kept != id);
        }

        fn set_weight(&mut self, id: NetworkId, weight: u16) {
            self.asked.push(format!("weigh {} {weight}", id.0));
        }

        fn poller(&mut self) -> &mut Poller {
            &mut self.poller
        }

        fn handle(&mut self, _: Token) -> Result<(), LoopError> {
            Ok(())
        }

        fn work(&mut self) -> Result<Option<Timestamp>, LoopError> {
            Ok(None)
        }

        fn end(&mut self) {}

        fn status(&self, _: Timestamp) -> RadioStatus {
            RadioStatus::default()
        }

        fn tell_unreached(&mut self, _: Timestamp, unreached: Unreached) {
            self.asked.push(format!("{unreached:?}"));
        }

        fn scan(&mut self, _: Timestamp, _: SyncSender<Vec<HeardNetwork>>) {}

        fn slept(&mut self) {
            self.asked.push("slept".to_owned());
        }

        fn access_points(&mut self, _: Timestamp) -> Vec<AccessPointReport> {
            Vec::new()
        }
    }

    fn noting() -> Noting {
        Noting { kept: Vec::new(), asked: Vec::new(), poller: Poller::new().unwrap() }
    }

    #[test]
    fn a_sleep_is_told_and_the_keeper_knows() {
        let (mut keeper, events) = (noting(), EventLog::default());
        wake(&mut keeper, Duration::from_millis(3_700_400), &events);
        assert_eq!(keeper.asked, ["slept"]);
        let told: Vec<String> =
            events.since(anabranch::control::EventSequence(0)).into_iter().map(|event| event.text).collect();
        assert_eq!(told, ["the machine has slept for 3700 s: access points are judged anew"]);
    }

    fn list(text: &str) -> KnownNetworks {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn only_what_has_changed_is_touched() {
        let mut keeper = noting();
        let both =
            "[[network]]\nssid = \"cafe\"\n[[network]]\nssid = \"home\"\npassphrase = \"correct horse\"\n";
        adopt(&mut keeper, Timestamp::ZERO, list(both)).unwrap();
        assert_eq!(std::mem::take(&mut keeper.asked), ["join cafe", "join home"]);
        let heavier = both.replace("\"cafe\"\n", "\"cafe\"\nweight = 3\n");
        adopt(&mut keeper, Timestamp::ZERO, list(&heavier)).unwrap();
        assert_eq!(std::mem::take(&mut keeper.asked), ["weigh 1 3", "weigh 2 1"]);
        let other = both.replace("correct", "another");
        adopt(&mut keeper, Timestamp::ZERO, list(&other)).unwrap();
        assert_eq!(std::mem::take(&mut keeper.asked), ["leave 2", "weigh 1 1", "join home"]);
    }
}
