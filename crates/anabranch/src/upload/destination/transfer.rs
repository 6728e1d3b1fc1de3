//! One file on its way here.

use std::collections::BTreeMap;

use identity::PublicKey;
use units::Timestamp;
use upload::{Arrival, Destination, PeerKey, RangeSet, Settings};
use wire::upload::roles::{FileOffer, RoleMessage, Shares, TransferOffer};
use wire::upload::{Chunk, MAX_RUNS, Member, Run, Runs};

use super::AcceptEvent;
use crate::upload::seal::ChunkKey;
use crate::upload::source::UploadShares;
use crate::upload::store::{Store, StoreError};

/// Messages in which a source is told of what is here.
const MOST_PARTS: usize = 32;

/// See the module.
pub(super) struct Active {
    pub(super) source: PublicKey,
    pub(super) offer: FileOffer,
    pub(super) machine: Destination,
    /// The connection of the source.
    pub(super) source_link: Option<u64>,
    /// Since when there is none.
    pub(super) alone_since: Option<Timestamp>,
    /// Bytes that had come before.
    pub(super) resumed: u64,
    sealing: ChunkKey,
    /// Gone once it is being verified.
    store: Option<Store>,
    /// Written, and not in the journal.
    arrived: Vec<(Arrival, Chunk)>,
    members: BTreeMap<Member, (u64, PublicKey)>,
    own: u32,
    brought: BTreeMap<PublicKey, u32>,
}

impl Active {
    pub(super) fn new(
        now: Timestamp,
        source: PublicKey,
        link: u64,
        offer: FileOffer,
        store: Store,
        stored: RangeSet,
    ) -> Self {
        let transfer = offer.offer.transfer;
        let resumed = bytes_of(&offer, stored.count());
        let chunks = offer.offer.chunks().unwrap_or(0);
        Self {
            source,
            sealing: ChunkKey::new(&offer.chunk_key, transfer),
            offer,
            machine: Destination::new(now, Settings::default(), transfer, chunks, stored),
            source_link: Some(link),
            alone_since: None,
            resumed,
            store: Some(store),
            arrived: Vec::new(),
            members: BTreeMap::new(),
            own: 0,
            brought: BTreeMap::new(),
        }
    }

    /// Whether chunks are still to come.
    pub(super) const fn is_running(&self) -> bool {
        self.store.is_some()
    }

    /// What a neighbour is told of it.
    pub(super) fn told(&self) -> Vec<u8> {
        let offer = TransferOffer {
            transfer: self.offer.offer.transfer,
            source: self.source.0,
            air_key: self.offer.air_key,
            chunks: self.offer.offer.chunks().unwrap_or(0),
            chunk_length: self.offer.offer.chunk_length,
            signature: self.offer.signature,
        };
        RoleMessage::Transfer(Box::new(offer)).encode()
    }

    /// What the source is told of what is here.
    pub(super) fn ready(&self) -> Vec<Vec<u8>> {
        let runs: Vec<Run> = self.machine.stored().runs().collect();
        let transfer = self.offer.offer.transfer;
        // What does not fit is sent again, and told then.
        let parts = runs.len().div_ceil(MAX_RUNS).clamp(1, MOST_PARTS);
        let part = |at: usize| {
            let part = runs.iter().skip(at * MAX_RUNS).take(MAX_RUNS).copied();
            Runs::rising(part).unwrap_or_default()
        };
        (0..parts).map(|at| RoleMessage::Ready(transfer, at + 1 == parts, part(at)).encode()).collect()
    }

    /// A neighbour takes part, and repeats on the air or does not.
    pub(super) fn join(
        &mut self,
        now: Timestamp,
        link: u64,
        peer: PublicKey,
        repeats: bool,
    ) -> Option<Member> {
        let member = self.machine.join(now, PeerKey(peer.0))?;
        self.machine.set_repeats(member, repeats);
        self.members.retain(|_, (_, other)| *other != peer);
        self.members.insert(member, (link, peer));
        Some(member)
    }

    /// A neighbour is gone.
    pub(super) fn leave(&mut self, now: Timestamp, member: Member) {
        self.machine.leave(now, member);
        self.members.remove(&member);
    }

    pub(super) fn link_of(&self, member: Member) -> Option<u64> {
        self.members.get(&member).map(|(link, _)| *link)
    }

    /// The source is there again.
    pub(super) fn reattach(&mut self, now: Timestamp, link: u64) {
        self.machine.handle_source_reconnected(now);
        (self.source_link, self.alone_since) = (Some(link), None);
    }

    /// The source is gone.
    pub(super) fn detach(&mut self, now: Timestamp) {
        (self.source_link, self.alone_since) = (None, Some(now));
    }

    /// A chunk has come.
    pub(super) fn handle_chunk(
        &mut self,
        now: Timestamp,
        from: Arrival,
        chunk: Chunk,
        sealed: &[u8],
    ) -> Result<(), StoreError> {
        let Some(store) = &mut self.store else { return Ok(()) };
        if self.machine.wants(chunk) {
            let plain = self.sealing.open(chunk, sealed);
            let Some(plain) = plain.filter(|plain| plain.len() == store.length_of(chunk)) else {
                self.machine.handle_refused(now, from, chunk);
                return Ok(());
            };
            store.write(chunk, &plain)?;
        }
        self.arrived.push((from, chunk));
        Ok(())
    }

    /// Notes what has come, then says so.
    pub(super) fn commit(&mut self, now: Timestamp) -> Result<(), StoreError> {
        if let Some(store) = &mut self.store {
            store.commit()?;
        }
        for (from, chunk) in self.arrived.drain(..) {
            if self.machine.wants(chunk) {
                match from {
                    Arrival::Own => self.own += 1,
                    Arrival::By(member) => {
                        if let Some((_, peer)) = self.members.get(&member) {
                            *self.brought.entry(*peer).or_default() += 1;
                        }
                    }
                }
            }
            self.machine.handle_stored(now, from, chunk);
        }
        Ok(())
    }

    /// The store, to be verified.
    pub(super) fn take_store(&mut self) -> Option<Store> {
        self.store.take()
    }

    pub(super) fn discard(&self) {
        if let Some(store) = &self.store {
            store.discard();
        }
    }

    pub(super) fn sync(&self) -> Option<impl FnOnce() -> Option<u32> + Send + use<>> {
        self.store.as_ref()?.sync()
    }

    pub(super) fn synced(&mut self, records: u32) -> Result<(), StoreError> {
        self.store.as_mut().map_or(Ok(()), |store| store.synced(records))
    }

    pub(super) fn shares(&self) -> Shares {
        let neighbours = self.brought.iter().map(|(key, chunks)| (key.0, *chunks)).collect();
        Shares { transfer: self.offer.offer.transfer, own: self.own, neighbours }
    }

    pub(super) fn shares_in_bytes(&self) -> UploadShares {
        let neighbours = self.brought.iter().map(|(key, chunks)| (*key, bytes_of(&self.offer, *chunks)));
        UploadShares { own: bytes_of(&self.offer, self.own), neighbours: neighbours.collect() }
    }

    pub(super) fn progress(&self) -> AcceptEvent {
        AcceptEvent::Progress {
            source: self.source,
            name: self.offer.name.clone(),
            done: bytes_of(&self.offer, self.machine.stored().count()),
            size: self.offer.offer.length,
        }
    }
}

/// Bytes of so many chunks, about: the last one may be shorter.
fn bytes_of(offer: &FileOffer, chunks: u32) -> u64 {
    (u64::from(chunks) * u64::from(offer.offer.chunk_length)).min(offer.offer.length)
}
