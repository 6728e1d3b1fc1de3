//! The destination: takes files from sources and neighbours whom its endpoint lets in.
//!
//! One task owns everything. Each connection has a task that reads and one that writes (`link.rs`); what blocks on the disk (looking for the same file,
//! verifying, syncing) runs beside it and comes back as [`Work`].

mod transfer;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use identity::PublicKey;
use linux::clock;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tracing::debug;
use units::Timestamp;
use upload::{Arrival, RangeSet};
use wire::upload::roles::{End, FileOffer, RoleMessage};
use wire::upload::{Member, Message, Transfer};

use super::link::{Heard, Link};
use super::source::UploadShares;
use super::store::{self, Store, StoreError};
use super::{UPLOAD, timer};
use crate::sockets::{ConnectError, Endpoint, VirtualStream};
use transfer::Active;

/// Files that come at a time.
const MOST_TRANSFERS: usize = 32;
/// Connections at a time.
const MOST_LINKS: usize = 256;
/// Those of one peer: a neighbour has one, a source one for each file.
const MOST_LINKS_OF_ONE: usize = MOST_TRANSFERS + 1;
/// Messages that wait; all connections share them, so who sends faster than the disk writes has to wait.
const MOST_HEARD: usize = 256;
/// How long a caller may take to say what it speaks.
const GREETING: Duration = Duration::from_secs(10);
/// How long a source that went away is waited for; what is stored of its file stays.
const PATIENCE: Duration = Duration::from_secs(600);
/// How often progress is told, and connections are looked after.
const LOOK: Duration = Duration::from_millis(250);
/// What has come of a file that nobody goes on with is kept for so long.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// How often such files are looked for.
const FORGET: Duration = Duration::from_secs(86_400);
/// How often what has come is brought to the disk.
const SYNC: Duration = Duration::from_secs(3);

/// Where files go.
#[derive(Clone, Debug)]
pub struct AcceptOptions {
    /// The directory.
    pub directory: PathBuf,
    /// To end after so many.
    pub count: Option<u32>,
    /// Who may send files; all who are let in if there is no such list. Others may lend their uplinks.
    pub senders: Option<Vec<PublicKey>>,
    /// The largest file that is taken, bytes.
    pub largest: Option<u64>,
}

/// What happens meanwhile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AcceptEvent {
    /// A neighbour lends its uplink.
    NeighbourCame(PublicKey),
    /// A neighbour is gone.
    NeighbourWent(PublicKey),
    /// How far a file is.
    Progress {
        /// Whose.
        source: PublicKey,
        /// Its name.
        name: String,
        /// Bytes that are stored.
        done: u64,
        /// Bytes in all.
        size: u64,
    },
    /// A file is here.
    Stored {
        /// Whose.
        source: PublicKey,
        /// Where it is.
        path: PathBuf,
        /// Bytes.
        size: u64,
        /// How many of them had come before.
        resumed: u64,
        /// Who has carried how much of it.
        shares: UploadShares,
    },
    /// A file was here before.
    Same {
        /// Whose.
        source: PublicKey,
        /// Where it is.
        path: PathBuf,
    },
    /// What had come of a file was deleted: nobody had gone on with it for 30 days.
    Forgotten {
        /// Its name.
        name: String,
    },
    /// A file did not come.
    Failed {
        /// Whose.
        source: PublicKey,
        /// What the source calls it.
        name: String,
        /// Why.
        reason: String,
    },
}

/// Takes files until there were as many as the options say, or the endpoint is closed. `tell` hears what happens.
///
/// # Errors
/// [`ConnectError::Closed`] once the endpoint is closed.
pub async fn accept(
    endpoint: &Endpoint,
    options: &AcceptOptions,
    tell: &mut dyn FnMut(AcceptEvent),
) -> Result<(), ConnectError> {
    let listener = endpoint.listen();
    let (into, mut heard) = mpsc::channel(MOST_HEARD);
    let (greeted, mut greetings) = mpsc::channel(16);
    let (done, mut works) = mpsc::channel(MOST_TRANSFERS);
    let mut hub = Hub {
        options,
        tell,
        links: BTreeMap::new(),
        transfers: BTreeMap::new(),
        opening: BTreeMap::new(),
        next_link: 0,
        into,
        done,
        files: 0,
    };
    let (mut look, mut sync, mut forget) = (clock::now(), clock::now() + SYNC, clock::now());
    loop {
        let now = clock::now();
        if forget <= now {
            forget = now + FORGET;
            hub.forget_old();
        }
        if look <= now {
            look = now + LOOK;
            hub.look(now);
        }
        if sync <= now {
            sync = now + SYNC;
            hub.sync();
        }
        let wake = hub.drain(now).unwrap_or(look).min(look);
        if options.count.is_some_and(|count| hub.files >= count) {
            // The last source waits for the word that all is well.
            for known in hub.links.into_values().filter(|known| matches!(known.role, Role::Source(_))) {
                known.link.finish().await;
            }
            return Ok(());
        }
        tokio::select! {
            incoming = listener.accept() => {
                let greeted = greeted.clone();
                let stream = incoming?.stream;
                tokio::spawn(async move {
                    if let Ok(Some(stream)) = tokio::time::timeout(GREETING, greet(stream)).await {
                        drop(greeted.send(stream).await);
                    }
                });
            }
            Some(stream) = greetings.recv() => hub.begin_link(stream),
            Some((number, said)) = heard.recv() => {
                hub.handle(number, said);
                // What waits is taken together, so that the journal is written once for all.
                for _ in 0..MOST_HEARD {
                    let Ok((number, said)) = heard.try_recv() else { break };
                    hub.handle(number, said);
                }
            }
            Some(work) = works.recv() => hub.handle_work(work),
            () = timer(now, wake) => {}
        }
    }
}

/// Whether a caller speaks this protocol.
async fn greet(mut stream: VirtualStream) -> Option<VirtualStream> {
    let mut line = vec![0; UPLOAD.len() + 1];
    stream.read_exact(&mut line).await.ok()?;
    let speaks = line.strip_suffix(b"\n").is_some_and(|line| line == UPLOAD.as_bytes());
    if !speaks {
        stream.reset(1);
    }
    speaks.then_some(stream)
}

/// What was done beside the loop.
enum Work {
    /// The file of a source was looked for, and a place made for it.
    Opened(Transfer, Result<Place, StoreError>),
    /// A whole file was verified and named.
    Kept(Transfer, Result<PathBuf, StoreError>),
    /// So many records of a journal are on the disk.
    Synced(Transfer, u32),
    /// Files that were begun long ago were deleted.
    Forgotten(Vec<String>),
}

/// A transfer whose place is being made.
struct Opening {
    source: PublicKey,
    /// The newest connection of its source.
    link: u64,
    offer: Box<FileOffer>,
}

enum Place {
    Same(PathBuf),
    Open(Box<Store>, RangeSet),
}

/// What a connection is for.
enum Role {
    Unknown,
    Source(Transfer),
    Neighbour(BTreeMap<Transfer, Member>),
}

struct Known {
    link: Link,
    role: Role,
    since: Timestamp,
}

struct Hub<'a> {
    options: &'a AcceptOptions,
    tell: &'a mut dyn FnMut(AcceptEvent),
    links: BTreeMap<u64, Known>,
    transfers: BTreeMap<Transfer, Active>,
    /// Transfers whose place is being made.
    opening: BTreeMap<Transfer, Opening>,
    next_link: u64,
    into: mpsc::Sender<(u64, Heard)>,
    done: mpsc::Sender<Work>,
    /// Files that came, or were here.
    files: u32,
}

impl Hub<'_> {
    fn begin_link(&mut self, stream: VirtualStream) {
        let peer = stream.peer();
        let of_peer = self.links.values().filter(|known| known.link.peer() == peer).count();
        self.next_link += 1;
        let link = Link::start(self.next_link, stream, Vec::new(), self.into.clone());
        if self.links.len() >= MOST_LINKS || of_peer >= MOST_LINKS_OF_ONE {
            // Which transfer it is about is not known yet.
            let reason = "there are too many connections".to_owned();
            link.send(RoleMessage::Over(Transfer(0), End::Failed, reason).encode());
            tokio::spawn(link.finish());
            return;
        }
        let known = Known { link, role: Role::Unknown, since: clock::now() };
        self.links.insert(self.next_link, known);
    }

    fn handle(&mut self, number: u64, said: Heard) {
        let Some(known) = self.links.get(&number) else { return };
        let bytes = match said {
            Heard::Message(bytes) => bytes,
            Heard::Gone(_) => return self.end_link(number),
        };
        let understood = if RoleMessage::is_one(&bytes) {
            match RoleMessage::parse(&bytes) {
                Ok(message) => self.handle_role(number, message),
                Err(_) => false,
            }
        } else {
            match (Message::parse(&bytes), &known.role) {
                (Ok(Message::Carried(transfer, chunk, sealed)), role) => {
                    let from = match role {
                        Role::Source(own) if *own == transfer => Some(Arrival::Own),
                        Role::Neighbour(members) => members.get(&transfer).map(|member| Arrival::By(*member)),
                        _ => None,
                    };
                    if let (Some(from), Some(active)) = (from, self.transfers.get_mut(&transfer)) {
                        let kept = active.handle_chunk(clock::now(), from, chunk, sealed);
                        if let Err(error) = kept {
                            self.fail(transfer, &error.to_string());
                        }
                    }
                    true
                }
                (Ok(Message::Report(report)), Role::Neighbour(members)) => {
                    let transfer = report.transfer;
                    if let (Some(member), Some(active)) =
                        (members.get(&transfer), self.transfers.get_mut(&transfer))
                    {
                        active.machine.handle_report(clock::now(), *member, &report);
                    }
                    true
                }
                _ => false,
            }
        };
        if !understood {
            debug!("a peer broke the rules of the protocol");
            self.end_link(number);
        }
    }

    /// `false` if the message has no place here.
    fn handle_role(&mut self, number: u64, message: RoleMessage) -> bool {
        let Some(known) = self.links.get_mut(&number) else { return true };
        match (message, &mut known.role) {
            (RoleMessage::File(offer), role @ Role::Unknown) => {
                *role = Role::Source(offer.offer.transfer);
                self.take_offer(number, offer);
            }
            (RoleMessage::Join, role @ Role::Unknown) => {
                *role = Role::Neighbour(BTreeMap::new());
                let peer = known.link.peer();
                for active in self.transfers.values().filter(|active| active.is_running()) {
                    known.link.send(active.told());
                }
                (self.tell)(AcceptEvent::NeighbourCame(peer));
            }
            (RoleMessage::Taking(transfer, repeats), Role::Neighbour(_)) => {
                self.take_in(number, transfer, repeats);
            }
            (RoleMessage::Over(transfer, ..), Role::Neighbour(members)) => {
                if let (Some(member), Some(active)) =
                    (members.remove(&transfer), self.transfers.get_mut(&transfer))
                {
                    active.leave(clock::now(), member);
                }
            }
            (RoleMessage::Over(transfer, _, reason), Role::Source(own)) if *own == transfer => {
                if let Some(active) = self.transfers.get(&transfer).filter(|active| active.is_running()) {
                    // The file is another one now, or cannot be read: what has come of it is of no use.
                    active.discard();
                    self.fail(transfer, &reason);
                }
            }
            _ => return false,
        }
        true
    }

    /// A neighbour takes part; an older connection of it does not any more.
    fn take_in(&mut self, number: u64, transfer: Transfer, repeats: bool) {
        let Some(peer) = self.links.get(&number).map(|known| known.link.peer()) else { return };
        let Some(active) = self.transfers.get_mut(&transfer) else { return };
        for (at, known) in &mut self.links {
            if let Role::Neighbour(members) = &mut known.role
                && known.link.peer() == peer
                && members.contains_key(&transfer)
            {
                if *at == number {
                    return;
                }
                members.remove(&transfer);
            }
        }
        if let Some(member) = active.join(clock::now(), number, peer, repeats)
            && let Some(Known { role: Role::Neighbour(members), .. }) = self.links.get_mut(&number)
        {
            members.insert(transfer, member);
        }
    }

    fn take_offer(&mut self, number: u64, offer: Box<FileOffer>) {
        let Some(source) = self.links.get(&number).map(|known| known.link.peer()) else { return };
        let transfer = offer.offer.transfer;
        if self.options.senders.as_ref().is_some_and(|senders| !senders.contains(&source)) {
            return self.refuse(number, transfer, "this machine may not send files here");
        }
        if self.options.largest.is_some_and(|largest| offer.offer.length > largest) {
            return self.refuse(number, transfer, "the file is larger than is taken here");
        }
        if let Some(active) = self.transfers.get_mut(&transfer) {
            if active.source == source && active.offer == *offer {
                active.reattach(clock::now(), number);
                self.say_ready(transfer);
            } else {
                self.refuse(number, transfer, "this number is another transfer's");
            }
            return;
        }
        let theirs = |active: &Active| active.source == source && active.offer.hash == offer.hash;
        let older = self.transfers.iter().find(|(_, active)| theirs(active)).map(|(transfer, _)| *transfer);
        if let Some(older) = older {
            // Its program was started anew: the new one goes on where the old one was.
            self.finish(older, End::Failed, "its source was started anew");
        }
        if let Some(opening) = self.opening.get_mut(&transfer) {
            // Its source has called again meanwhile.
            if opening.source == source && opening.offer == offer {
                opening.link = number;
            } else {
                self.refuse(number, transfer, "this number is another transfer's");
            }
            return;
        }
        if self.transfers.len() + self.opening.len() >= MOST_TRANSFERS {
            self.refuse(number, transfer, "too many files come at once");
            return;
        }
        self.opening.insert(transfer, Opening { source, link: number, offer: offer.clone() });
        let (directory, done) = (self.options.directory.clone(), self.done.clone());
        tokio::task::spawn_blocking(move || {
            let place = match store::find_same(&directory, &offer) {
                Some(path) => Ok(Place::Same(path)),
                None => Store::open(&directory, source, &offer)
                    .map(|(store, stored)| Place::Open(Box::new(store), stored)),
            };
            drop(done.blocking_send(Work::Opened(transfer, place)));
        });
    }

    fn handle_work(&mut self, work: Work) {
        match work {
            Work::Opened(transfer, place) => {
                let Some(Opening { source, link: number, offer }) = self.opening.remove(&transfer) else {
                    return;
                };
                if !self.links.contains_key(&number) {
                    return;
                }
                match place {
                    Ok(Place::Same(path)) => {
                        self.say_over(number, transfer, End::Same, &file_name(&path));
                        self.files += 1;
                        (self.tell)(AcceptEvent::Same { source, path });
                    }
                    Ok(Place::Open(store, stored)) => {
                        let active = Active::new(clock::now(), source, number, *offer, *store, stored);
                        let told = active.told();
                        self.transfers.insert(transfer, active);
                        self.say_ready(transfer);
                        for known in self.links.values() {
                            if matches!(known.role, Role::Neighbour(_)) {
                                known.link.send(told.clone());
                            }
                        }
                    }
                    Err(error) => {
                        let (name, reason) = (offer.name, error.to_string());
                        self.refuse(number, transfer, &reason);
                        (self.tell)(AcceptEvent::Failed { source, name, reason });
                    }
                }
            }
            Work::Kept(transfer, Ok(path)) => {
                let Some(active) = self.transfers.get(&transfer) else { return };
                let (source, size) = (active.source, active.offer.offer.length);
                let (shares, resumed) = (active.shares_in_bytes(), active.resumed);
                // What came since they were told last is a part, too.
                if let Some(known) = active.source_link.and_then(|number| self.links.get(&number)) {
                    known.link.send(RoleMessage::Shares(active.shares()).encode());
                }
                self.finish(transfer, End::Stored, &file_name(&path));
                self.files += 1;
                (self.tell)(AcceptEvent::Stored { source, path, size, resumed, shares });
            }
            Work::Kept(transfer, Err(error)) => self.fail(transfer, &error.to_string()),
            Work::Forgotten(names) => {
                names.into_iter().for_each(|name| (self.tell)(AcceptEvent::Forgotten { name }));
            }
            Work::Synced(transfer, records) => {
                let synced = self.transfers.get_mut(&transfer).map(|active| active.synced(records));
                if let Some(Err(error)) = synced {
                    self.fail(transfer, &error.to_string());
                }
            }
        }
    }

    /// Sends what there is to send; when to come again.
    fn drain(&mut self, now: Timestamp) -> Option<Timestamp> {
        let (mut failed, mut gone, mut whole) = (Vec::new(), Vec::new(), Vec::new());
        let mut wake: Option<Timestamp> = None;
        for (transfer, active) in &mut self.transfers {
            if let Err(error) = active.commit(now) {
                failed.push((*transfer, error.to_string()));
                continue;
            }
            active.machine.handle_timeout(now);
            while let Some((member, grant)) = active.machine.poll_grant(now) {
                let Some(number) = active.link_of(member) else { continue };
                let sent = self
                    .links
                    .get(&number)
                    .is_some_and(|known| known.link.send(Message::Grant(grant).encode()));
                if !sent {
                    // It reads nothing of what it is told.
                    gone.push(number);
                }
            }
            let link = active.source_link.and_then(|number| self.links.get(&number)).map(|known| &known.link);
            if let Some(link) = link {
                while link.has_room()
                    && let Some(feedback) = active.machine.poll_feedback(now)
                {
                    link.send(Message::Feedback(feedback).encode());
                }
                let due = active.machine.poll_timeout().filter(|_| link.has_room());
                wake = [wake, due].into_iter().flatten().min();
            }
            if active.machine.is_done() && active.is_running() {
                whole.push(*transfer);
            }
        }
        for (transfer, reason) in failed {
            self.fail(transfer, &reason);
        }
        for number in gone {
            self.end_link(number);
        }
        for transfer in whole {
            self.verify(transfer);
        }
        wake
    }

    /// Everything is here: neighbours need not know more, the disk has the word.
    fn verify(&mut self, transfer: Transfer) {
        let Some(store) = self.transfers.get_mut(&transfer).and_then(Active::take_store) else { return };
        self.tell_neighbours(transfer, End::Stored);
        let done = self.done.clone();
        tokio::task::spawn_blocking(move || drop(done.blocking_send(Work::Kept(transfer, store.keep()))));
    }

    fn look(&mut self, now: Timestamp) {
        let mut over = Vec::new();
        for (transfer, active) in &self.transfers {
            if let Some(known) = active.source_link.and_then(|number| self.links.get(&number)) {
                known.link.send(RoleMessage::Shares(active.shares()).encode());
            }
            if active.is_running() {
                (self.tell)(active.progress());
            }
            if active.alone_since.is_some_and(|since| now.since(since) > PATIENCE) && active.is_running() {
                over.push(*transfer);
            }
        }
        for transfer in over {
            self.fail(transfer, "its source went away; what has come is kept");
        }
        let is_mute =
            |known: &Known| matches!(known.role, Role::Unknown) && now.since(known.since) > GREETING;
        let mute: Vec<u64> =
            self.links.iter().filter(|(_, known)| is_mute(known)).map(|(number, _)| *number).collect();
        for number in mute {
            debug!("a peer does not say what it is here for");
            self.end_link(number);
        }
    }

    fn forget_old(&self) {
        let (directory, done) = (self.options.directory.clone(), self.done.clone());
        tokio::task::spawn_blocking(move || {
            let names = store::forget_old(&directory, SystemTime::now(), KEPT);
            drop(done.blocking_send(Work::Forgotten(names)));
        });
    }

    fn sync(&self) {
        for (transfer, active) in &self.transfers {
            let (Some(sync), transfer, done) = (active.sync(), *transfer, self.done.clone()) else {
                continue;
            };
            tokio::task::spawn_blocking(move || {
                if let Some(records) = sync() {
                    drop(done.blocking_send(Work::Synced(transfer, records)));
                }
            });
        }
    }

    fn end_link(&mut self, number: u64) {
        let Some(known) = self.links.remove(&number) else { return };
        let now = clock::now();
        match known.role {
            Role::Unknown => {}
            Role::Source(transfer) => {
                let active = self.transfers.get_mut(&transfer);
                if let Some(active) = active.filter(|active| active.source_link == Some(number)) {
                    active.detach(now);
                }
            }
            Role::Neighbour(members) => {
                for (transfer, member) in members {
                    if let Some(active) = self.transfers.get_mut(&transfer) {
                        active.leave(now, member);
                    }
                }
                (self.tell)(AcceptEvent::NeighbourWent(known.link.peer()));
            }
        }
    }

    fn say_ready(&self, transfer: Transfer) {
        let Some(active) = self.transfers.get(&transfer) else { return };
        let Some(known) = active.source_link.and_then(|number| self.links.get(&number)) else { return };
        for message in active.ready() {
            known.link.send(message);
        }
    }

    fn say_over(&self, number: u64, transfer: Transfer, end: End, text: &str) {
        if let Some(known) = self.links.get(&number) {
            known.link.send(RoleMessage::Over(transfer, end, text.to_owned()).encode());
        }
    }

    fn refuse(&self, number: u64, transfer: Transfer, reason: &str) {
        self.say_over(number, transfer, End::Failed, reason);
    }

    fn fail(&mut self, transfer: Transfer, reason: &str) {
        let Some(active) = self.transfers.get(&transfer) else { return };
        let (source, name, reason) = (active.source, active.offer.name.clone(), reason.to_owned());
        self.finish(transfer, End::Failed, &reason);
        (self.tell)(AcceptEvent::Failed { source, name, reason });
    }

    /// A transfer has ended, and everybody is told.
    fn finish(&mut self, transfer: Transfer, end: End, text: &str) {
        self.tell_neighbours(transfer, end);
        if let Some(active) = self.transfers.remove(&transfer)
            && let Some(number) = active.source_link
        {
            self.say_over(number, transfer, end, text);
        }
    }

    fn tell_neighbours(&mut self, transfer: Transfer, end: End) {
        for known in self.links.values_mut() {
            if let Role::Neighbour(members) = &mut known.role
                && members.remove(&transfer).is_some()
            {
                known.link.send(RoleMessage::Over(transfer, end, String::new()).encode());
            }
        }
    }
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
