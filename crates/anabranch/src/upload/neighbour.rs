//! The neighbour: lends its uplink to those whom it trusts.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use identity::PublicKey;
use linux::clock;
use thiserror::Error;
use tokio::sync::{mpsc, watch};
use tracing::debug;
use units::{BitRate, Timestamp};
use upload::{Lender, Lending, Neighbour, Strategy, Transmit};
use wire::upload::roles::{End, RoleMessage, SIGNED_FOR, TransferOffer, signed};
use wire::upload::{AirFrame, AirHeader, Message, RateIndex, Transfer};

use super::air::{AirError, AirListener, AirRates, AirSender, AirSent, MAX_FRAME, Useless};
use super::budget::Budget;
use super::ledger::Ledger;
use super::link::{Heard, Link};
use super::seal::{AirKey, SEAL_LEN};
use super::source::CARD;
use super::window::{most_waiting, window};
use super::{UPLOAD, away, timer};
use crate::sockets::{ConnectError, ConnectOptions, Endpoint, Peer};

/// Transfers that are helped at a time.
const MOST_TRANSFERS: usize = 4;
/// Transfers that wait for one of those to end; of further ones nothing is known until the destination is called again. As many as it has at a time.
const MOST_WAITING: usize = 32;
/// One that is helped and brings nothing for so long gives its place to one that waits.
const IDLE: Duration = Duration::from_secs(30);
/// Chunks that are kept of each: 11 MB.
const CAPACITY: usize = 8_192;
/// Messages from the destination that wait.
const MOST_HEARD: usize = 64;
/// How often the uplink and the adapters are looked at.
const LOOK: Duration = Duration::from_millis(200);
/// Until a connection that has taken enough is asked again.
const CATCH_UP: Duration = Duration::from_millis(20);
const FOLLOW: Duration = Duration::from_secs(5);
const WRITE_LEDGER: Duration = Duration::from_secs(10);
/// Until a destination that has lost us is called again.
const PAUSES: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(1), Duration::from_secs(2)];
/// A destination that was started anew tells of its transfers within this time, or they are over.
const FORGET: Duration = Duration::from_secs(60);
/// Who is helped.
#[derive(Clone, Debug)]
pub enum Trust {
    /// Sources with these keys.
    Keys(Vec<PublicKey>),
    /// Everybody whom the destination lets in.
    Admitted,
}

/// What is lent, and to whom.
#[derive(Clone, Debug)]
pub struct ShareOptions {
    /// To whom.
    pub trust: Trust,
    /// How fast at most.
    pub rate: Option<BitRate>,
    /// How much in all, bytes.
    pub volume: Option<u64>,
    /// For how long.
    pub time: Option<Duration>,
    /// The adapters that listen, by name; all that lead to a neighbourhood if there is no such list.
    pub air: Option<Vec<String>>,
    /// The adapters by which is repeated, for those out of the source's reach, what was heard; none if it is not.
    pub repeat: Vec<String>,
    /// The bit rates of cards in monitor mode that repeat, in the source's order; the usual ones of their channels if none are chosen.
    pub air_rates: Option<AirRates>,
    /// The control socket of the radio, if this machine may share out a card: it says for how long it hears nothing, and the destination is told.
    pub radio: Option<PathBuf>,
}

/// What happens meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ShareEvent {
    /// The destination is reached.
    Connected,
    /// It is not any more; it is called again.
    Lost(String),
    /// No adapter hears a neighbourhood.
    Deaf,
    /// These adapters were named and are of no use, beside others that are.
    Useless(Vec<String>),
    /// A source is helped from now on.
    Begun {
        /// Who.
        source: PublicKey,
        /// Bytes of its file, about.
        size: u64,
    },
    /// A source is helped once another transfer has ended, or brings nothing any more: enough are helped at the moment.
    Waits(PublicKey),
    /// Somebody is not helped, as it is not trusted.
    Untrusted(PublicKey),
    /// A transfer has ended.
    Ended {
        /// Whose.
        source: PublicKey,
        /// Bytes that were carried.
        carried: u64,
    },
    /// The ledger cannot be written.
    Ledger(String),
}

/// Why nothing more is lent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShareSummary {
    /// The volume is used up.
    Volume,
    /// The time is over.
    Time,
}

/// Why nothing can be lent.
#[derive(Debug, Error)]
pub enum ShareError {
    /// The destination is not reached, and it would not help to try again.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A card in monitor mode is refused.
    #[error("the air cannot be used: {0}")]
    Air(#[from] AirError),
}

/// Lends the uplink until its limits are reached. `peer` says where the destination may be; `tell` hears what happens.
///
/// # Errors
/// If the destination does not let this end in.
pub async fn share(
    endpoint: &Endpoint,
    peer: &dyn Fn() -> Peer,
    connect: &ConnectOptions,
    options: &ShareOptions,
    ledger: &mut Ledger,
    tell: &mut dyn FnMut(ShareEvent),
) -> Result<ShareSummary, ShareError> {
    let air = AirListener::new(options.air.as_deref()).map_err(AirError::from)?;
    let repeater = AirSender::new(Some(&options.repeat), options.air_rates.as_ref())?;
    let (transfers, lender, untrusted) = (BTreeMap::new(), Lender::default(), BTreeSet::new());
    let useless = Useless::default();
    let waiting = VecDeque::new();
    let away = options.radio.clone().map(|socket| away::watch(socket, options.air.clone()));
    let budget = Budget::new(clock::now(), options.rate, options.volume);
    let mut sharing = Sharing {
        endpoint,
        options,
        ledger,
        tell,
        air,
        repeater,
        useless,
        repeat: None,
        transfers,
        waiting,
        lender,
        untrusted,
        budget,
        away,
        most_waiting: 0,
    };
    let time = options.time.unwrap_or(Duration::MAX);
    let outcome = tokio::time::timeout(time, sharing.run(peer, connect)).await;
    sharing.write_ledger();
    outcome.unwrap_or(Ok(ShareSummary::Time))
}

/// A transfer that is helped.
struct Shared {
    offer: TransferOffer,
    source: PublicKey,
    air: AirKey,
    carried: u64,
    /// When something of it was carried last. What is heard does not count: frames can be repeated by anybody.
    active: Timestamp,
    /// Since when the destination, which was lost, has not told of it.
    lost: Option<Timestamp>,
}

struct Sharing<'a> {
    endpoint: &'a Endpoint,
    options: &'a ShareOptions,
    ledger: &'a mut Ledger,
    tell: &'a mut dyn FnMut(ShareEvent),
    air: AirListener,
    repeater: AirSender,
    useless: Useless,
    /// A frame that the card had no room for.
    repeat: Option<(RateIndex, Vec<u8>)>,
    transfers: BTreeMap<Transfer, Shared>,
    /// Those that are to be helped next, oldest first.
    waiting: VecDeque<TransferOffer>,
    lender: Lender<Arc<[u8]>>,
    /// Of whom the owner was told.
    untrusted: BTreeSet<PublicKey>,
    budget: Budget,
    /// For how long at a time the radio hears nothing.
    away: Option<watch::Receiver<Duration>>,
    /// Bytes that may wait in the connection.
    most_waiting: u64,
}

impl Sharing<'_> {
    async fn run(
        &mut self,
        peer: &dyn Fn() -> Peer,
        connect: &ConnectOptions,
    ) -> Result<ShareSummary, ShareError> {
        let (into, mut heard) = mpsc::channel(MOST_HEARD);
        let (mut number, mut failures) = (0, 0);
        self.follow();
        if self.air.is_deaf() {
            (self.tell)(ShareEvent::Deaf);
        }
        loop {
            let (endpoint, peer) = (self.endpoint, peer());
            match self.listen_until(endpoint.connect(&peer, connect)).await {
                Ok(stream) => {
                    (self.tell)(ShareEvent::Connected);
                    number += 1;
                    failures = 0;
                    let link = Link::start(number, stream, format!("{UPLOAD}\n").into_bytes(), into.clone());
                    link.send(RoleMessage::Join.encode());
                    match self.serve(&link, number, &mut heard).await {
                        Served::UsedUp => {
                            for transfer in self.transfers.keys() {
                                let reason = "its owner lends no more".to_owned();
                                link.send(RoleMessage::Over(*transfer, End::Failed, reason).encode());
                            }
                            link.finish().await;
                            return Ok(ShareSummary::Volume);
                        }
                        Served::Gone(why) => (self.tell)(ShareEvent::Lost(why)),
                    }
                }
                Err(error) if is_final(&error) => return Err(error.into()),
                Err(error) => (self.tell)(ShareEvent::Lost(error.to_string())),
            }
            let now = clock::now();
            for shared in self.transfers.values_mut() {
                shared.lost.get_or_insert(now);
            }
            // It is told of them again.
            self.waiting.clear();
            self.lender.suspend();
            self.write_ledger();
            let pause = PAUSES.get(failures).copied().unwrap_or(PAUSES[2]);
            self.listen_until(tokio::time::sleep(pause)).await;
            failures += 1;
        }
    }

    /// Without a connection, what is heard of known transfers is kept all the same: the air does not repeat it.
    async fn listen_until<T>(&mut self, done: impl Future<Output = T>) -> T {
        let mut buffer = Box::new([0; MAX_FRAME]);
        let mut done = pin!(done);
        loop {
            tokio::select! {
                done = &mut done => return done,
                length = self.air.receive(&mut buffer) => {
                    self.handle_frame(buffer.get(..length).unwrap_or_default());
                }
            }
        }
    }

    /// Until the link is gone or nothing more is lent.
    async fn serve(&mut self, link: &Link, number: u64, heard: &mut mpsc::Receiver<(u64, Heard)>) -> Served {
        let mut buffer = Box::new([0; MAX_FRAME]);
        let (mut look, mut follow, mut write) = (clock::now(), clock::now(), clock::now() + WRITE_LEDGER);
        loop {
            let now = clock::now();
            if look <= now {
                look = now + LOOK;
                self.look(link, now);
            }
            if follow <= now {
                follow = now + FOLLOW;
                self.follow();
            }
            if write <= now {
                write = now + WRITE_LEDGER;
                self.write_ledger();
            }
            let waits = self.carry(link, now).into_iter().chain(self.repeat(now)).min();
            if self.budget.is_used_up() {
                return Served::UsedUp;
            }
            let reports = self.lender.poll_timeout();
            let reports = reports.map(|due| if self.is_behind(link) { due.max(now + CATCH_UP) } else { due });
            let wake = [Some(look), waits, reports].into_iter().flatten().min().unwrap_or(look);
            tokio::select! {
                (from, heard) = next(heard) => {
                    if from != number {
                        continue;
                    }
                    match heard {
                        Heard::Message(bytes) => self.handle(link, &bytes),
                        Heard::Gone(error) => return Served::Gone(error.to_string()),
                    }
                }
                length = self.air.receive(&mut buffer) => {
                    self.handle_frame(buffer.get(..length).unwrap_or_default());
                }
                () = link.room(), if !link.has_room() => {}
                () = timer(now, wake) => {}
            }
        }
    }

    /// A frame of the air: nothing of it is kept before its authenticator was checked.
    fn handle_frame(&mut self, bytes: &[u8]) {
        let Ok(frame) = AirFrame::parse(bytes) else { return };
        let Some(shared) = self.transfers.get_mut(&frame.header.transfer()) else { return };
        let longest = SEAL_LEN + usize::from(shared.offer.chunk_length);
        let fits = (SEAL_LEN..=longest).contains(&frame.sealed.len());
        if !fits || !shared.air.accepts(frame.authenticated, &frame.authenticator) {
            return;
        }
        let Some(machine) = self.lender.get_mut(frame.header.transfer()) else { return };
        match frame.header {
            AirHeader::Chunk(header) => machine.handle_frame(clock::now(), &header, frame.sealed.into()),
            AirHeader::Repeat(header) => machine.handle_repeat(clock::now(), &header, frame.sealed.into()),
            AirHeader::Combination(_) => {}
        }
    }

    /// Repeats on the air what the destination asked for; when there is more, if the card has enough for now.
    fn repeat(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.repeater.is_silent() {
            return None;
        }
        while let Some((rate, frame)) = self.repeat.take().or_else(|| self.next_repeat()) {
            if self.repeater.send(rate, &frame) == AirSent::Full {
                self.repeat = Some((rate, frame));
                return Some(now + CARD);
            }
        }
        None
    }

    fn next_repeat(&mut self) -> Option<(RateIndex, Vec<u8>)> {
        let (header, rate, sealed) = self.lender.poll_repeat()?;
        let shared = self.transfers.get(&header.transfer)?;
        Some((rate, shared.air.frame(&AirHeader::Repeat(header), &sealed)))
    }

    fn handle(&mut self, link: &Link, bytes: &[u8]) {
        if RoleMessage::is_one(bytes) {
            match RoleMessage::parse(bytes) {
                Ok(RoleMessage::Transfer(offer)) => self.begin(link, *offer),
                Ok(RoleMessage::Over(transfer, ..)) => {
                    self.waiting.retain(|offer| offer.transfer != transfer);
                    self.end(transfer);
                    self.begin_waiting(link);
                }
                _ => debug!("the destination said something else"),
            }
        } else if let Ok(Message::Grant(grant)) = Message::parse(bytes)
            && let Some(machine) = self.lender.get_mut(grant.transfer)
        {
            machine.handle_grant(&grant);
        }
    }

    fn begin(&mut self, link: &Link, offer: TransferOffer) {
        let source = PublicKey(offer.source);
        let said = signed(offer.transfer, &link.peer().0, &offer.air_key, offer.chunks, offer.chunk_length);
        if !source.has_signed(SIGNED_FOR, &said, &offer.signature) {
            debug!("the destination tells of a transfer that its source has not signed");
            return;
        }
        let trusted = match &self.options.trust {
            Trust::Keys(keys) => keys.contains(&source),
            Trust::Admitted => true,
        };
        if !trusted {
            if self.untrusted.len() < 100 && self.untrusted.insert(source) {
                (self.tell)(ShareEvent::Untrusted(source));
            }
            return;
        }
        let transfer = offer.transfer;
        let known = self.transfers.get_mut(&transfer);
        if let Some(shared) = known.filter(|shared| shared.offer == offer) {
            shared.lost = None;
            self.lender.resume(clock::now(), transfer);
            self.say_taking(link, transfer);
        } else if self.transfers.len() < MOST_TRANSFERS || self.transfers.contains_key(&transfer) {
            self.take_up(link, offer);
        } else if self.waiting.len() < MOST_WAITING && !self.waiting.contains(&offer) {
            self.waiting.push_back(offer);
            (self.tell)(ShareEvent::Waits(source));
        }
    }

    /// Helps a transfer from now on.
    fn take_up(&mut self, link: &Link, offer: TransferOffer) {
        let (now, transfer, source) = (clock::now(), offer.transfer, PublicKey(offer.source));
        let size = u64::from(offer.chunks) * u64::from(offer.chunk_length);
        self.lender.insert(Neighbour::new(Lending {
            transfer,
            strategy: Strategy::Scheduled,
            chunks: offer.chunks,
            chunk_bytes: u32::from(offer.chunk_length) + SEAL_LEN as u32,
            capacity: CAPACITY,
            window: 0,
            // Decides nothing under this strategy.
            seed: transfer.0,
        }));
        self.lender.set_window(now, self.window(link));
        let air = AirKey::new(&offer.air_key);
        let shared = Shared { offer, source, air, carried: 0, active: now, lost: None };
        self.transfers.insert(transfer, shared);
        // The first report says how the uplink is, whether or not anything is heard.
        self.lender.resume(now, transfer);
        (self.tell)(ShareEvent::Begun { source, size });
        self.say_taking(link, transfer);
    }

    fn say_taking(&self, link: &Link, transfer: Transfer) {
        link.send(RoleMessage::Taking(transfer, !self.options.repeat.is_empty()).encode());
    }

    /// Helps those that wait, as far as there is room.
    fn begin_waiting(&mut self, link: &Link) {
        while self.transfers.len() < MOST_TRANSFERS
            && let Some(offer) = self.waiting.pop_front()
        {
            self.take_up(link, offer);
        }
    }

    /// Where some wait, the transfer that has brought nothing for longest makes room for them, and waits itself.
    fn make_room(&mut self, link: &Link, now: Timestamp) {
        if self.waiting.is_empty() || self.transfers.len() < MOST_TRANSFERS {
            return;
        }
        let idle = self.transfers.iter().filter(|(_, shared)| now.since(shared.active) >= IDLE);
        let Some((transfer, offer)) = idle
            .min_by_key(|(_, shared)| shared.active)
            .map(|(transfer, shared)| (*transfer, shared.offer.clone()))
        else {
            return;
        };
        let reason = "nothing of it is carried here, and others wait".to_owned();
        link.send(RoleMessage::Over(transfer, End::Failed, reason).encode());
        self.end(transfer);
        self.waiting.push_back(offer);
    }

    fn end(&mut self, transfer: Transfer) {
        self.lender.remove(transfer);
        if let Some(shared) = self.transfers.remove(&transfer) {
            (self.tell)(ShareEvent::Ended { source: shared.source, carried: shared.carried });
            self.write_ledger();
        }
    }

    /// Sends what there is to send; when there may be more, if that is a matter of time.
    fn carry(&mut self, link: &Link, now: Timestamp) -> Option<Timestamp> {
        while link.has_room() && !self.budget.is_used_up() {
            if self.is_behind(link) {
                return Some(now + CATCH_UP);
            }
            let waits = self.budget.wait(now);
            let Some((transfer, transmit)) = self.lender.poll_transmit(now, waits.is_none()) else {
                return waits;
            };
            match transmit {
                Transmit::Report(report) => {
                    link.send(Message::Report(report).encode());
                }
                Transmit::Carry(chunk, sealed) => {
                    link.send(Message::Carried(transfer, chunk, &sealed).encode());
                    let bytes = sealed.len() as u64;
                    self.budget.spend(bytes);
                    if let Some(shared) = self.transfers.get_mut(&transfer) {
                        shared.carried += bytes;
                        shared.active = now;
                        self.ledger.carried(transfer, shared.source, link.peer(), bytes);
                    }
                }
            }
        }
        None
    }

    fn is_behind(&self, link: &Link) -> bool {
        link.waiting_bytes() > self.most_waiting
    }

    fn look(&mut self, link: &Link, now: Timestamp) {
        self.most_waiting = most_waiting(&link.standing());
        self.lender.set_window(now, self.window(link));
        self.lender.set_away(self.away.as_ref().map(|away| *away.borrow()).unwrap_or_default());
        let over = |shared: &Shared| shared.lost.is_some_and(|lost| now.since(lost) > FORGET);
        let over: Vec<Transfer> =
            self.transfers.iter().filter(|(_, shared)| over(shared)).map(|(transfer, _)| *transfer).collect();
        for transfer in over {
            self.end(transfer);
        }
        self.make_room(link, now);
        self.begin_waiting(link);
    }

    fn window(&self, link: &Link) -> u64 {
        window(&link.standing(), self.options.rate)
    }

    fn follow(&mut self) {
        let adapters = self.endpoint.adapters();
        self.air.follow(&adapters, self.options.air.as_deref());
        self.repeater.follow(&adapters, Some(&self.options.repeat));
        let mut useless = self.repeater.useless(&adapters, Some(&self.options.repeat));
        if !self.air.is_deaf() {
            useless.extend(self.air.useless(&adapters, self.options.air.as_deref()));
        }
        let news = self.useless.news(useless);
        if !news.is_empty() {
            (self.tell)(ShareEvent::Useless(news));
        }
    }

    fn write_ledger(&mut self) {
        if let Err(error) = self.ledger.write() {
            (self.tell)(ShareEvent::Ledger(error.to_string()));
        }
    }
}

/// How a connection has ended.
enum Served {
    UsedUp,
    Gone(String),
}

/// Whether calling again would be the same again.
fn is_final(error: &ConnectError) -> bool {
    use ConnectError::{Closed, Incomprehensible, InvitationRefused, NotInGroup, NotKnown};
    matches!(error, Closed | Incomprehensible(_) | InvitationRefused(_) | NotInGroup(_) | NotKnown(_))
}

/// What the link's tasks say next. The sender is kept, so the channel does not end.
async fn next(heard: &mut mpsc::Receiver<(u64, Heard)>) -> (u64, Heard) {
    match heard.recv().await {
        Some(heard) => heard,
        None => std::future::pending().await,
    }
}
