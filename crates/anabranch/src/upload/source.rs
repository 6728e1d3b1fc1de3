//! The source: a file on the air and up its own uplink.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::{KeyPair, PublicKey};
use linux::clock;
use rand::TryRngCore;
use thiserror::Error;
use tokio::sync::mpsc;
use units::{BitRate, Timestamp};
use upload::{BitRates, RangeSet, Settings, Source};
use wire::upload::roles::{End, FileOffer, RoleMessage, SIGNED_FOR, Shares, signed};
use wire::upload::{AUTHENTICATOR_LEN, AirHeader, Chunk, Message, Offer, RateIndex, Run, Transfer};

use super::air::{AirError, AirRates, AirSender, AirSent, Useless};
use super::link::{Heard, Link};
use super::seal::{AirKey, ChunkKey, SEAL_LEN};
use super::silence::{Hearing, Silence};
use super::store::hash_of;
use super::window::window;
use super::{CHUNK_LENGTH, UPLOAD, timer};
use crate::sockets::{ConnectError, ConnectOptions, Endpoint, Peer};

/// Messages from the destination that wait.
const MOST_HEARD: usize = 64;
/// How often the uplink and the file are looked at, and progress is told.
const LOOK: Duration = Duration::from_millis(200);
const FOLLOW: Duration = Duration::from_secs(5);
/// How long a destination that went away is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(1);
/// Until a card that has enough is asked again.
pub(super) const CARD: Duration = Duration::from_millis(2);
/// Frames and chunks that are sent before news are heard.
const AT_ONCE: usize = 32;
/// Bytes of a frame's headers below UDP's: IPv6 and Ethernet.
const BELOW: usize = 62;

/// How a file is sent.
#[derive(Clone, Debug)]
pub struct UploadOptions {
    /// Whether it goes on the air at all.
    pub on_air: bool,
    /// The adapters that it is sent by, by name; all that lead to a neighbourhood if there is no such list.
    pub air: Option<Vec<String>>,
    /// What the air of a LAN carries.
    pub air_rate: BitRate,
    /// The bit rates of cards in monitor mode; the usual ones of their channels if none are chosen.
    pub air_rates: Option<AirRates>,
    /// Whether this machine's own uplink is used.
    pub own_uplink: bool,
}

/// What happens meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum UploadEvent {
    /// The destination takes the file, and has so many bytes already.
    Begun {
        /// Bytes.
        resumed: u64,
    },
    /// How far it is.
    Progress {
        /// Bytes that are stored.
        done: u64,
        /// Bytes in all.
        size: u64,
        /// Who has carried how many of them.
        shares: UploadShares,
    },
    /// The air brings nothing; the own uplink goes on.
    Silent(Silence),
    /// These adapters were named for the air and are of no use, beside others that are.
    Useless(Vec<String>),
    /// The destination is away, and waited for.
    Away(String),
}

/// Bytes by who has carried them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct UploadShares {
    /// By the own uplink.
    pub own: u64,
    /// By neighbours.
    pub neighbours: Vec<(PublicKey, u64)>,
}

/// A file that is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Uploaded {
    /// It was there before, and nothing was sent.
    pub same: bool,
    /// What it is called there.
    pub name: String,
    /// Its bytes.
    pub size: u64,
    /// Who has carried how many of them.
    pub shares: UploadShares,
}

/// Why a file did not get there.
#[derive(Debug, Error)]
pub enum UploadError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is no file, has no name that is text, or is too large.
    #[error("{} is no file that can be sent", .0.display())]
    NoFile(PathBuf),
    /// It was written to meanwhile.
    #[error("{} was changed while it was sent; send it again", .0.display())]
    Changed(PathBuf),
    /// The destination does not take it.
    #[error("the destination refuses {}: {reason}", path.display())]
    Refused {
        /// The file.
        path: PathBuf,
        /// Its word.
        reason: String,
    },
    /// A card in monitor mode is refused.
    #[error("the air cannot be used: {0}")]
    Air(#[from] AirError),
    /// The destination is not reached.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// It was away for too long.
    #[error("the destination was away for {} s: {why}", PATIENCE.as_secs())]
    Away {
        /// What the last try said.
        why: String,
    },
    /// The system gives no randomness, or the cryptography fails.
    #[error("nothing can be sealed")]
    Sealing,
}

/// Sends a file; returns once the destination has it, verified. `peer` says where the destination may be; `tell` hears what happens.
///
/// # Errors
/// Any [`UploadError`].
pub async fn upload(
    endpoint: &Endpoint,
    peer: &dyn Fn() -> Peer,
    connect: &ConnectOptions,
    key: &KeyPair,
    path: &Path,
    options: &UploadOptions,
    tell: &mut dyn FnMut(UploadEvent),
) -> Result<Uploaded, UploadError> {
    let file = Opened::open(path).await?;
    let offer = file.offer(key, peer().key)?;
    let sealing = ChunkKey::new(&offer.chunk_key, offer.offer.transfer);
    let air_key = AirKey::new(&offer.air_key);
    let only = options.air.as_deref().filter(|_| options.on_air);
    let (air, shares) = (AirSender::new(only, options.air_rates.as_ref())?, UploadShares::default());
    let useless = Useless::default();
    let sending = Sending { endpoint, options, tell, file, offer, sealing, air_key, air, useless, shares };
    sending.run(peer, connect).await
}

/// The file.
struct Opened {
    path: PathBuf,
    name: String,
    file: File,
    before: Metadata,
    hash: [u8; 32],
}

impl Opened {
    async fn open(path: &Path) -> Result<Self, UploadError> {
        let read_error = |source| UploadError::Read { path: path.to_owned(), source };
        let no_file = || UploadError::NoFile(path.to_owned());
        let file = File::open(path).map_err(read_error)?;
        let before = file.metadata().map_err(read_error)?;
        let name = path.file_name().and_then(|name| name.to_str()).filter(|_| before.is_file());
        let name = name.ok_or_else(no_file)?.to_owned();
        let (length, clone) = (before.len(), file.try_clone().map_err(read_error)?);
        let hashed = tokio::task::spawn_blocking(move || hash_of(&clone, length)).await;
        let hash = hashed.map_err(|error| read_error(error.into()))?.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => UploadError::Changed(path.to_owned()),
            _ => read_error(error),
        })?;
        Ok(Self { path: path.to_owned(), name, file, before, hash })
    }

    fn offer(&self, key: &KeyPair, destination: PublicKey) -> Result<FileOffer, UploadError> {
        let mut random = [0; 8 + 32 + 32];
        rand::rngs::OsRng.try_fill_bytes(&mut random).map_err(|_| UploadError::Sealing)?;
        let mut part = random.as_slice();
        let mut take = |count: usize| {
            let (taken, rest) = part.split_at_checked(count).unwrap_or_default();
            part = rest;
            taken
        };
        let transfer = Transfer(u64::from_be_bytes(take(8).try_into().map_err(|_| UploadError::Sealing)?));
        let chunk_key = take(32).try_into().map_err(|_| UploadError::Sealing)?;
        let air_key = take(32).try_into().map_err(|_| UploadError::Sealing)?;
        let offer = Offer { transfer, length: self.before.len(), chunk_length: CHUNK_LENGTH };
        let chunks = offer.chunks().ok_or_else(|| UploadError::NoFile(self.path.clone()))?;
        let said = signed(transfer, &destination.0, &air_key, chunks, CHUNK_LENGTH);
        let signature = key.sign(SIGNED_FOR, &said);
        Ok(FileOffer { offer, hash: self.hash, chunk_key, air_key, signature, name: self.name.clone() })
    }

    /// A chunk as it is in the file now.
    fn read(&self, chunk: Chunk) -> Result<Vec<u8>, UploadError> {
        let at = u64::from(chunk.0) * u64::from(CHUNK_LENGTH);
        let length = self.before.len().saturating_sub(at).min(CHUNK_LENGTH.into());
        let mut bytes = vec![0; length as usize];
        self.file.read_exact_at(&mut bytes, at).map_err(|source| match source.kind() {
            io::ErrorKind::UnexpectedEof => UploadError::Changed(self.path.clone()),
            _ => UploadError::Read { path: self.path.clone(), source },
        })?;
        Ok(bytes)
    }

    fn check(&self) -> Result<(), UploadError> {
        let same = |now: &Metadata| {
            now.len() == self.before.len() && now.modified().ok() == self.before.modified().ok()
        };
        let now = self.file.metadata();
        if now.is_ok_and(|now| same(&now)) { Ok(()) } else { Err(UploadError::Changed(self.path.clone())) }
    }
}

struct Sending<'a> {
    endpoint: &'a Endpoint,
    options: &'a UploadOptions,
    tell: &'a mut dyn FnMut(UploadEvent),
    file: Opened,
    offer: FileOffer,
    sealing: ChunkKey,
    air_key: AirKey,
    air: AirSender,
    useless: Useless,
    shares: UploadShares,
}

/// How a connection has ended.
enum Served {
    Over(End, String),
    Gone(String),
}

impl Sending<'_> {
    async fn run(
        mut self,
        peer: &dyn Fn() -> Peer,
        connect: &ConnectOptions,
    ) -> Result<Uploaded, UploadError> {
        let (into, mut heard) = mpsc::channel(MOST_HEARD);
        let mut machine: Option<Source> = None;
        let (mut number, mut away_since): (u64, Option<Timestamp>) = (0, None);
        loop {
            let why = match self.endpoint.connect(&peer(), connect).await {
                Ok(stream) => {
                    number += 1;
                    let link = Link::start(number, stream, format!("{UPLOAD}\n").into_bytes(), into.clone());
                    link.send(RoleMessage::File(Box::new(self.offer.clone())).encode());
                    let served = self.serve(&link, number, &mut heard, &mut machine, &mut away_since).await;
                    match served {
                        Ok(Served::Gone(why)) => why,
                        Ok(Served::Over(End::Failed, reason)) => {
                            return Err(UploadError::Refused { path: self.file.path, reason });
                        }
                        Ok(Served::Over(end, name)) => {
                            let (same, size) = (end == End::Same && number == 1, self.offer.offer.length);
                            return Ok(Uploaded { same, name, size, shares: self.shares });
                        }
                        Err(error) => {
                            let reason = match &error {
                                UploadError::Changed(_) => "it was changed while it was sent",
                                _ => "its source cannot read it any more",
                            };
                            let over =
                                RoleMessage::Over(self.offer.offer.transfer, End::Failed, reason.to_owned());
                            link.send(over.encode());
                            link.finish().await;
                            return Err(error);
                        }
                    }
                }
                Err(error) => {
                    let again = matches!(
                        error,
                        ConnectError::NoAnswer { .. }
                            | ConnectError::NotListening(_)
                            | ConnectError::Ended(_)
                            | ConnectError::Lost { .. }
                            | ConnectError::Restarted(_)
                    );
                    if away_since.is_none() || !again {
                        return Err(error.into());
                    }
                    error.to_string()
                }
            };
            // Somebody who has taken the file once may be started again.
            let now = clock::now();
            match away_since {
                Some(since) if now.since(since) < PATIENCE => {}
                _ => return Err(UploadError::Away { why }),
            }
            (self.tell)(UploadEvent::Away(why));
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn follow(&mut self) {
        let (adapters, only) = (self.endpoint.adapters(), self.options.air.as_deref());
        self.air.follow(&adapters, only);
        // Where none is of use it is told why the air is silent.
        if !self.air.is_silent() {
            let news = self.useless.news(self.air.useless(&adapters, only));
            if !news.is_empty() {
                (self.tell)(UploadEvent::Useless(news));
            }
        }
    }

    /// Until the link is gone or all is over. `seen` is when the destination was last there.
    async fn serve(
        &mut self,
        link: &Link,
        number: u64,
        heard: &mut mpsc::Receiver<(u64, Heard)>,
        machine: &mut Option<Source>,
        seen: &mut Option<Timestamp>,
    ) -> Result<Served, UploadError> {
        let mut ready: Vec<Run> = Vec::new();
        let mut pending: Option<(RateIndex, Vec<u8>)> = None;
        let mut hearing: Option<Hearing> = None;
        let (mut look, mut follow) = (clock::now(), clock::now());
        loop {
            let now = clock::now();
            if follow <= now {
                follow = now + FOLLOW;
                if self.options.on_air {
                    self.follow();
                }
            }
            let mut wake = now + LOOK;
            if let (Some(machine), Some(hearing)) = (machine.as_mut(), hearing.as_mut()) {
                if look <= now {
                    look = now + LOOK;
                    self.file.check()?;
                    if self.options.own_uplink {
                        let chunk = u64::from(CHUNK_LENGTH) + SEAL_LEN as u64;
                        let chunks = window(&link.standing(), None).div_ceil(chunk).max(2);
                        machine.set_uplink_window(u32::try_from(chunks).unwrap_or(u32::MAX));
                    }
                    self.tell_progress(machine);
                    let silence = hearing.silence(now, !self.air.is_silent());
                    if let Some(silence) = silence.filter(|_| self.options.on_air) {
                        (self.tell)(UploadEvent::Silent(silence));
                    }
                }
                wake = self.send(link, machine, hearing, &mut pending, now)?.min(look);
            }
            tokio::select! {
                said = heard.recv() => {
                    let Some((from, said)) = said else { continue };
                    if from != number {
                        continue;
                    }
                    let bytes = match said {
                        Heard::Message(bytes) => bytes,
                        Heard::Gone(error) => return Ok(Served::Gone(error.to_string())),
                    };
                    *seen = Some(clock::now());
                    if let Ok(message) = RoleMessage::parse(&bytes) {
                        match message {
                            RoleMessage::Over(_, end, text) => return Ok(Served::Over(end, text)),
                            RoleMessage::Ready(_, last, runs) if hearing.is_none() => {
                                ready.extend(runs.iter().copied());
                                if last {
                                    hearing = Some(Hearing::new(clock::now()));
                                    self.begin(machine, std::mem::take(&mut ready));
                                }
                            }
                            RoleMessage::Shares(shares) => self.take_shares(&shares),
                            _ => {}
                        }
                    } else if let (Ok(Message::Feedback(feedback)), Some(machine)) = (Message::parse(&bytes), machine.as_mut()) {
                        let now = clock::now();
                        if let Some(hearing) = &mut hearing {
                            hearing.handle_news(now, !feedback.members.is_empty(), !feedback.held.is_empty());
                        }
                        machine.handle_feedback(now, &feedback);
                    }
                }
                () = link.room(), if !link.has_room() => {}
                () = timer(now, wake) => {}
            }
        }
    }

    /// The destination has said what it has.
    fn begin(&mut self, machine: &mut Option<Source>, ready: Vec<Run>) {
        let (now, stored) = (clock::now(), RangeSet::from_runs(ready.iter().copied()));
        let resumed = u64::from(stored.count()) * u64::from(CHUNK_LENGTH);
        (self.tell)(UploadEvent::Begun { resumed: resumed.min(self.offer.offer.length) });
        // One that was started anew may have less than it had said.
        let has_all = |machine: &Source| {
            machine.stored().runs().all(|run| stored.first_missing(run.first()) > run.last())
        };
        if let Some(machine) = machine.as_mut().filter(|machine| has_all(machine)) {
            machine.handle_reconnected(now, &ready);
            return;
        }
        let frame = usize::from(CHUNK_LENGTH) + SEAL_LEN + wire::upload::AIR_HEADER_LEN + AUTHENTICATOR_LEN;
        let on_lan = (frame + BELOW) as f64 * 8.0 / self.options.air_rate.0.max(1) as f64;
        let on_lan = Duration::from_secs_f64(on_lan).max(Duration::from_micros(1));
        let Some(rates) = BitRates::new(self.air.air_times(frame, on_lan)) else { return };
        let chunks = self.offer.offer.chunks().unwrap_or(0);
        let own = u32::from(self.options.own_uplink) * 2;
        let transfer = self.offer.offer.transfer;
        *machine = Some(Source::new(now, Settings::default(), transfer, chunks, stored, rates, own));
    }

    /// Sends what may be sent now; when to come again.
    fn send(
        &mut self,
        link: &Link,
        machine: &mut Source,
        hearing: &mut Hearing,
        pending: &mut Option<(RateIndex, Vec<u8>)>,
        now: Timestamp,
    ) -> Result<Timestamp, UploadError> {
        let mut left = AT_ONCE;
        while left > 0 && self.options.own_uplink && link.has_room() {
            let Some(chunk) = machine.poll_uplink(now) else { break };
            let sealed = self.seal(chunk)?;
            link.send(Message::Carried(self.offer.offer.transfer, chunk, &sealed).encode());
            left -= 1;
        }
        let mut full = false;
        while left > 0 && self.options.on_air && !self.air.is_silent() {
            let (rate, frame) = match pending.take() {
                Some(frame) => frame,
                None => match machine.poll_broadcast(now) {
                    Some(header) => (header.rate, self.frame(header)?),
                    None => break,
                },
            };
            match self.air.send(rate, &frame) {
                AirSent::Yes => hearing.handle_sent(),
                AirSent::Nowhere => {}
                AirSent::Full => {
                    *pending = Some((rate, frame));
                    full = true;
                    break;
                }
            }
            left -= 1;
        }
        Ok(match machine.poll_timeout() {
            _ if left == 0 => now,
            _ if full => now + CARD,
            Some(due) if self.options.on_air && !self.air.is_silent() => due,
            _ => now + LOOK,
        })
    }

    fn seal(&self, chunk: Chunk) -> Result<Vec<u8>, UploadError> {
        self.sealing.seal(chunk, &self.file.read(chunk)?).ok_or(UploadError::Sealing)
    }

    fn frame(&self, header: wire::upload::AirChunk) -> Result<Vec<u8>, UploadError> {
        Ok(self.air_key.frame(&AirHeader::Chunk(header), &self.seal(header.chunk)?))
    }

    fn take_shares(&mut self, shares: &Shares) {
        let bytes = |chunks: u32| (u64::from(chunks) * u64::from(CHUNK_LENGTH)).min(self.offer.offer.length);
        let neighbours = shares.neighbours.iter().map(|(key, chunks)| (PublicKey(*key), bytes(*chunks)));
        self.shares = UploadShares { own: bytes(shares.own), neighbours: neighbours.collect() };
    }

    fn tell_progress(&mut self, machine: &Source) {
        let size = self.offer.offer.length;
        let done = (u64::from(machine.stored().count()) * u64::from(CHUNK_LENGTH)).min(size);
        (self.tell)(UploadEvent::Progress { done, size, shares: self.shares.clone() });
    }
}
