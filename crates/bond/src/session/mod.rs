//! One established session: keys, paths, flows. `receive` takes in packets, `transmit` makes them, this file holds what both share.

mod backlog;
mod control;
#[cfg(test)]
mod hostile_tests;
mod paths;
mod receive;
mod repeats;
mod report;
mod stream_output;
mod streaming;
pub(crate) mod transmit;

pub use report::{PathReport, SessionCounters};

use backlog::Stranded;
use control::ControlQueue;
use receive::Delivered;

use crate::address::Address;
use crate::congestion::{Algorithm, BottleneckDetector, Controller, Sibling};
use crate::flows::{Flows, Queueing};
use crate::handshake::Handshake;
use crate::keys::{Cipher, PrivateKey, PublicKey, RawKeys, SessionKeys};
use crate::path::ecn::EcnTrouble;
use crate::path::received::bounded_delay;
use crate::path::{Path, PathState, Progress, lift_limits};
use crate::resequencer::{Load, Resequencer, Tally};
use crate::scheduler::Scheduler;
use crate::streams::{StreamEvent, Streams};
use crate::unit::{Control, DataUnit, Item, Payload};
use policy::{PathStatus, Treatment};
use rand::RngCore;
use rand_chacha::ChaCha20Rng;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::Duration;
use units::{BitRate, Bytes, NetworkId, PathId, Timestamp};
use wire::frame::MAX_BLOB_LEN;
use wire::inner::Headers;

/// Paths of a session at one time.
pub const MAX_PATHS: usize = 16;
/// Flows whose packets are put in order at one time.
const MAX_RECEIVERS: usize = 4_096;
/// A receiving flow that was idle this long is forgotten.
const RECEIVER_IDLE: Duration = Duration::from_secs(900);
/// Hold time until the peer has said how long to wait.
const INITIAL_HOLD: Duration = Duration::from_millis(400);
/// Bounds of the hold time.
const MIN_HOLD: Duration = Duration::from_millis(30);
const MAX_HOLD: Duration = Duration::from_secs(3);
/// A working path that nothing is sent on is measured this often while the session is busy ...
const REFRESH_INTERVAL: Duration = Duration::from_millis(500);
/// ... and this often while packets wait that it might take.
const WAITING_REFRESH_INTERVAL: Duration = Duration::from_millis(90);
/// The session counts as busy this long after data.
const BUSY_TIME: Duration = Duration::from_secs(1);
/// Housekeeping interval while busy.
const TICK: Duration = Duration::from_millis(100);

/// Which end began the handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    Initiator,
    Responder,
}

/// Settings of a session.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SessionConfig {
    /// How packets are spread over paths.
    pub scheduler: Scheduler,
    /// Congestion control of each path.
    pub congestion: Algorithm,
    /// Treatment of flows that nothing else was said about.
    pub treatment: Treatment,
    /// A path on which nothing arrived for this time is asked for a sign of life, which also keeps its NAT binding. The initiator does.
    pub keep_alive: Duration,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            scheduler: Scheduler::default(),
            congestion: Algorithm::default(),
            treatment: Treatment::default(),
            keep_alive: Duration::from_secs(20),
        }
    }
}

/// What the owner of a session should know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// A path began to work, for the first time or again.
    PathUp(NetworkId),
    /// A path fell silent.
    PathSilent(NetworkId),
    /// The peer reached us from another address on this network.
    PathMoved(NetworkId),
    /// The peer gave up a path.
    PathAbandoned(NetworkId),
    /// What ECN says on a path is not true.
    Ecn(NetworkId, EcnTrouble),
    /// No path works.
    Stalled,
    /// A path works again after [`SessionEvent::Stalled`].
    Resumed,
    /// The queue has waited for a working path for too long and was dropped.
    QueueExpired,
    /// New keys are in use.
    Rekeyed,
    /// Bytes from the peer's owner.
    Message(Vec<u8>),
    /// Something happened to a stream.
    Stream(StreamEvent),
    /// The peer ended the session; one of `wire::frame::CLOSE_*`.
    ClosedByPeer(u8),
}

/// A message was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendMessageError {
    /// The session is not there, or not yet.
    #[error("there is no such session")]
    NoSession,
    /// It does not fit a frame.
    #[error("the message is longer than {MAX_BLOB_LEN} bytes")]
    TooLong,
    /// As many as may wait do wait; try again after a round trip.
    #[error("{} messages wait already", control::MAX_MESSAGES)]
    TooMany,
}

/// An established session.
pub(crate) struct Session {
    pub(crate) role: Role,
    pub(crate) peer: PublicKey,
    pub(crate) peer_index: u32,
    config: SessionConfig,
    keys: SessionKeys,
    rekey: Option<(u8, Handshake)>,
    rekey_tried_at: Timestamp,
    /// The peer's part of the rekey that was answered last.
    answered_rekey: Vec<u8>,
    random: ChaCha20Rng,
    paths: Vec<Path>,
    bottlenecks: BottleneckDetector,
    used_path_ids: [u64; 4],
    flows: Flows,
    receivers: FxHashMap<u16, Resequencer>,
    /// What they keep, all together.
    load: Load,
    /// Flows that hold packets back.
    holding: Vec<u16>,
    repeats: VecDeque<(DataUnit, Option<PathId>)>,
    control: ControlQueue,
    /// Boxed: a tunnel has none.
    streams: Option<Box<Streams>>,
    /// Bytes of streams less those of inner packets that were sent while both waited.
    balance: i64,
    usual_backlog: u64,
    stranded: Option<Stranded>,
    delivered: Delivered,
    events: VecDeque<SessionEvent>,
    hold: Duration,
    hold_sequence: u64,
    announced_hold: Duration,
    announced_hold_sequence: u64,
    last_data_at: Option<Timestamp>,
    tick_at: Timestamp,
    stalled_since: Option<Timestamp>,
    tally: Tally,
    counters: SessionCounters,
    /// Where the handshake's answer went: who uses the keys from there has received it there.
    pub(crate) answered: Vec<Address>,
    /// The peer has shown that it has the keys.
    pub(crate) confirmed: bool,
    closing: Option<u8>,
}

impl Session {
    pub(crate) fn new(
        now: Timestamp,
        role: Role,
        peer: PublicKey,
        peer_index: u32,
        cipher: Cipher,
        raw: &RawKeys,
        config: SessionConfig,
        random: ChaCha20Rng,
    ) -> Option<Self> {
        let mut random = random;
        let seed = random.next_u64();
        Some(Self {
            role,
            peer,
            peer_index,
            config,
            keys: SessionKeys::new(now, cipher, raw)?,
            rekey: None,
            rekey_tried_at: now,
            answered_rekey: Vec::new(),
            random,
            paths: Vec::new(),
            bottlenecks: BottleneckDetector::default(),
            used_path_ids: [0; 4],
            flows: Flows::new(seed, config.treatment),
            receivers: FxHashMap::default(),
            load: Load::default(),
            holding: Vec::new(),
            repeats: VecDeque::new(),
            control: ControlQueue::default(),
            streams: None,
            balance: 0,
            usual_backlog: 0,
            stranded: None,
            delivered: Delivered::default(),
            events: VecDeque::new(),
            hold: INITIAL_HOLD,
            hold_sequence: 0,
            announced_hold: INITIAL_HOLD,
            announced_hold_sequence: 0,
            last_data_at: None,
            tick_at: now,
            stalled_since: None,
            tally: Tally::default(),
            counters: SessionCounters::default(),
            answered: Vec::new(),
            confirmed: role == Role::Initiator,
            closing: None,
        })
    }

    // ---- inner packets ----

    /// Queues a packet from any0.
    pub(crate) fn handle_packet(&mut self, now: Timestamp, headers: &Headers, packet: Vec<u8>) -> Queueing {
        self.counters.packets_in += 1;
        self.counters.bytes_in += packet.len() as u64;
        self.last_data_at = Some(now);
        if self.tick_at > now + TICK {
            self.tick_at = now + TICK;
        }
        let mut packet = packet;
        if headers.tcp_flags & Headers::SYN != 0 {
            wire::inner::clamp_segment_size(&mut packet, headers, self.segment_limit(headers));
        }
        let limits = self.queue_limits(now);
        let outcome = self.flows.push(now, headers, packet, limits);
        self.counters.queue_drops += u64::from(outcome == Queueing::Dropped);
        outcome
    }

    /// Largest TCP segment that every path in use carries in one piece.
    fn segment_limit(&self, headers: &Headers) -> u16 {
        let usable = self.paths.iter().filter(|path| path.state == PathState::Usable);
        let mtu = usable.map(|path| path.mtu.current()).min().unwrap_or(u16::MAX);
        let ip_and_tcp = if headers.key.source.is_ipv4() { 40 } else { 60 };
        mtu.saturating_sub(transmit::DATA_OVERHEAD as u16 + ip_and_tcp)
    }

    pub(crate) fn treat(&mut self, key: wire::inner::FlowKey, treatment: Treatment) {
        self.flows.treat(key, treatment);
    }

    pub(crate) fn set_default_treatment(&mut self, treatment: Treatment) {
        self.flows.set_default_treatment(treatment);
    }

    pub(crate) fn poll_packet(&mut self) -> Option<Vec<u8>> {
        self.delivered.pop()
    }

    pub(crate) fn poll_event(&mut self) -> Option<SessionEvent> {
        self.events.pop_front()
    }

    /// What waits for a path, for a session that takes this one's place.
    pub(crate) fn drain_packets(&mut self) -> Vec<Vec<u8>> {
        self.flows.drain_packets()
    }

    /// What waits for a path, and what was sent and not acknowledged, for a session with somebody else. Parts of packets are left out:
    /// the other parts may have arrived.
    pub(crate) fn drain_unsent(&mut self) -> Vec<Vec<u8>> {
        let mut in_flight = Vec::new();
        self.paths.iter_mut().for_each(|path| path.sent.take_items(&mut in_flight));
        let in_flight = in_flight.into_iter().filter_map(|item| match item {
            Item::Data(unit) => Some(unit),
            Item::Control(_) | Item::Stream(_) | Item::Notice(_) => None,
        });
        let sent = self.repeats.drain(..).map(|(unit, _)| unit).chain(in_flight);
        let whole = sent.filter_map(|unit| match unit.payload {
            Payload::Packet(bytes) if unit.part.is_none() => Some(bytes),
            Payload::Packet(_) | Payload::Repair { .. } => None,
        });
        let mut packets: Vec<Vec<u8>> = whole.collect();
        packets.append(&mut self.flows.drain_packets());
        packets
    }

    /// Sends bytes to the peer's owner, reliably; in any order with other messages.
    pub(crate) fn send_message(&mut self, bytes: Vec<u8>) -> Result<(), SendMessageError> {
        if bytes.len() > MAX_BLOB_LEN {
            return Err(SendMessageError::TooLong);
        }
        if !self.control.has_room_for_message() {
            return Err(SendMessageError::TooMany);
        }
        self.control.push(Control::Message(bytes));
        Ok(())
    }

    /// Says goodbye on every path; the session is over once [`Session::poll_transmit`] has nothing left.
    pub(crate) fn close(&mut self, reason: u8) {
        self.closing = Some(reason);
    }

    // ---- paths in use ----

    /// The paths that carry data now: usable and active ones, or the best usable backups of the best priority if there are none.
    fn data_paths(&self) -> impl Iterator<Item = &Path> {
        let wanted = self.wanted();
        self.paths.iter().filter(move |path| wanted.admits(path))
    }

    /// For how long a full packet that arrives now may wait for its acknowledgement, on the path where that is shortest.
    pub(crate) fn acknowledgement_delay(&self, now: Timestamp) -> Option<Duration> {
        self.data_paths().map(|path| bounded_delay(path.acknowledgement_delay(now))).min()
    }

    fn wanted(&self) -> Wanted {
        let usable = |path: &&Path| path.state == PathState::Usable && path.is_validated();
        if self.paths.iter().filter(usable).any(|path| path.status() == PathStatus::Active) {
            return Wanted::Active;
        }
        let backups = || self.paths.iter().filter(usable).filter(|path| path.status() == PathStatus::Backup);
        let priority = backups().map(|path| path.priority).min().unwrap_or(u8::MAX);
        let first = backups().filter(|path| path.priority == priority);
        Wanted::Backup { priority, limit: first.map(Path::worth_standing_by).max().unwrap_or_default() }
    }

    /// What coupled controllers may know of each other; empty for those that are not coupled.
    fn siblings(&self) -> Vec<Sibling> {
        if !self.is_coupled() {
            return Vec::new();
        }
        self.data_paths().map(|path| path.sibling(self.bottlenecks.group(path.id))).collect()
    }

    fn is_coupled(&self) -> bool {
        matches!(self.config.congestion, Algorithm::Lia | Algorithm::Olia | Algorithm::Balia)
    }

    // ---- time ----

    /// The next time at which [`Session::handle_timeout`] or [`Session::poll_transmit`] has something to do.
    pub(crate) fn poll_timeout(&self, now: Timestamp) -> Option<Timestamp> {
        let mut next =
            self.paths.iter().filter_map(Path::next_timeout).min().unwrap_or(Timestamp::FAR_FUTURE);
        for id in &self.holding {
            let release = self.receivers.get(id).and_then(|receiver| receiver.release_at(self.hold));
            next = next.min(release.unwrap_or(Timestamp::FAR_FUTURE));
        }
        if self.flows.queued_packets() > 0 || !self.repeats.is_empty() || self.has_stream_data() {
            let ready = self.data_paths().filter_map(Path::ready_at).map(|ready| ready.max(now));
            // A path that is ready and was not chosen waits for the queue to grow, not for time.
            next = next.min(ready.filter(|&at| at > now).min().unwrap_or(Timestamp::FAR_FUTURE));
        }
        Some(next.min(self.tick_at))
    }

    pub(crate) fn handle_timeout(&mut self, now: Timestamp, own: &PrivateKey) {
        let siblings = self.siblings();
        lift_limits(now, &mut self.paths);
        for index in 0..self.paths.len() {
            let Some(path) = self.paths.get_mut(index) else { break };
            let before = path.state;
            let progress = path.on_timeout(now, &siblings);
            self.digest(now, index, before, progress);
        }
        self.release_held(now);
        if now >= self.tick_at {
            self.start_rekey(now, own);
            self.tick(now);
        }
    }

    /// Follows up on what a path has found.
    fn digest(&mut self, now: Timestamp, index: usize, before: PathState, progress: Progress) {
        let Some(path) = self.paths.get(index) else { return };
        let (id, network, state) = (path.id, path.address.network, path.state);
        if self.is_coupled() {
            if let Some(delay) = progress.delay_micros {
                self.bottlenecks.on_delay(now, id, delay);
            }
            self.bottlenecks.on_loss(now, id, progress.losses.packets);
        }
        self.settle(&progress.arrived);
        self.recall(index, &progress);
        self.requeue(now, progress.losses.items, Some(id).filter(|_| state == PathState::Suspect));
        if let Some(trouble) = progress.ecn_trouble {
            self.events.push_back(SessionEvent::Ecn(network, trouble));
        }
        if progress.recovered {
            self.events.push_back(SessionEvent::PathUp(network));
            self.end_stall();
        }
        if before == PathState::Usable && state == PathState::Suspect {
            self.events.push_back(SessionEvent::PathSilent(network));
            self.check_stall(now);
        }
        if before != state {
            lift_limits(now, &mut self.paths);
        }
    }

    fn check_stall(&mut self, now: Timestamp) {
        let alive = self.paths.iter().any(|path| path.state == PathState::Usable);
        if !alive && self.paths.iter_mut().any(|path| path.use_though_it_trickles(now)) {
            return;
        }
        if !alive && self.stalled_since.is_none() {
            self.stalled_since = Some(now);
            self.events.push_back(SessionEvent::Stalled);
            // One that stands by and was given up long ago may be back.
            self.paths.iter_mut().for_each(|path| path.need(now));
        }
    }

    fn end_stall(&mut self) {
        self.paths.iter_mut().for_each(|path| path.is_needed = false);
        if self.stalled_since.take().is_some() {
            self.events.push_back(SessionEvent::Resumed);
        }
    }

    /// Since when no path has worked.
    pub(crate) fn stalled_since(&self) -> Option<Timestamp> {
        self.stalled_since
    }

    /// Whether data has gone either way just now.
    fn is_busy(&self, now: Timestamp) -> bool {
        self.last_data_at.is_some_and(|at| now.since(at) < BUSY_TIME)
    }

    /// Housekeeping: rare while idle, every [`TICK`] while data flows.
    fn tick(&mut self, now: Timestamp) {
        let busy = self.is_busy(now);
        self.keys.forget_old(now);
        self.receivers.retain(|_, receiver| now.since(receiver.last_used) < RECEIVER_IDLE);
        self.load = Load::default();
        self.receivers.values().for_each(|receiver| self.load.replace(Load::default(), receiver.load()));
        self.expire_queue(now);
        let mut next = now + if busy || self.stalled_since.is_some() { TICK } else { self.config.keep_alive };
        if self.role == Role::Initiator {
            next = next.min(self.keys.rekey_at().max(now + TICK));
        }
        let keep_alive = self.config.keep_alive;
        let initiator = self.role == Role::Initiator;
        let backlog = self.flows.bulk_bytes() > 0;
        for path in self.paths.iter_mut().filter(|path| path.state != PathState::Down) {
            let refresh = busy && path.state == PathState::Usable && path.status() == PathStatus::Active;
            let due = match refresh {
                true if backlog => path.last_sent_at + WAITING_REFRESH_INTERVAL,
                true => path.last_sent_at + REFRESH_INTERVAL,
                false => path.keep_alive_at(keep_alive),
            };
            if !refresh && !initiator {
                continue;
            }
            if due <= now {
                path.ping_wanted = true;
            } else if !refresh {
                next = next.min(due);
            }
        }
        if busy {
            self.announce_hold();
        }
        self.tick_at = next.max(now + Duration::from_millis(1));
    }

    // ---- new keys ----

    /// Begins a new handshake inside the session, if one is due and none is under way.
    fn start_rekey(&mut self, now: Timestamp, own: &PrivateKey) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let waiting = self.rekey.is_some() && now.since(self.rekey_tried_at) < PATIENCE;
        let stalled = self.stalled_since.is_some();
        if self.role != Role::Initiator || waiting || stalled || !self.keys.rekey_due(now) {
            return;
        }
        self.rekey_tried_at = now;
        let epoch = self.keys.epoch().wrapping_add(1);
        let begun = Handshake::initiate(own, &self.peer, REKEY_PROLOGUE, &[epoch], &mut self.random);
        if let Ok((handshake, noise)) = begun {
            self.rekey = Some((epoch, handshake));
            self.control.push(Control::Rekey { step: 0, epoch, noise });
        }
    }

    // ---- reports ----

    pub(crate) fn counters(&self) -> SessionCounters {
        SessionCounters {
            packets_out: self.delivered.packets,
            bytes_out: self.delivered.bytes,
            duplicates: self.tally.duplicates,
            repaired: self.tally.repaired,
            skipped: self.tally.skipped,
            late: self.tally.late,
            ..self.counters
        }
    }

    pub(crate) fn count_rejected(&mut self) {
        self.counters.rejected += 1;
    }

    pub(crate) fn path_reports(&self) -> Vec<PathReport> {
        let least = self.paths.iter().filter_map(Path::one_way_delay).fold(f64::INFINITY, f64::min);
        self.paths
            .iter()
            .map(|path| PathReport {
                network: path.address.network,
                path: path.id,
                address: path.address,
                state: path.state,
                trickles: path.trickles(),
                status: path.status(),
                smoothed_rtt: path.rtt.is_measured().then(|| path.rtt.smoothed()),
                base_rtt: path.rtt.is_measured().then(|| path.base_rtt()),
                rtt_variation: path.rtt.variation(),
                rate: path.rtt.is_measured().then(|| path.rate()),
                window: Bytes(path.controller.window()),
                in_flight: Bytes(path.sent.in_flight()),
                mtu: path.mtu.current(),
                loss_rate: path.loss_rate(),
                extra_delay: path
                    .one_way_delay()
                    .map_or(Duration::ZERO, |delay| Duration::from_secs_f64((delay - least).max(0.0) / 1e6)),
                counters: path.counters,
            })
            .collect()
    }

    /// Whether all that was to be said has been said.
    pub(crate) fn is_closed(&self) -> bool {
        self.closing == Some(transmit::CLOSED)
    }
}

/// Prologue of handshakes inside a session: they cannot be mistaken for those that begin one.
pub(crate) const REKEY_PROLOGUE: &[u8] = b"anabranch rekey 1";

/// Which paths carry data.
#[derive(Clone, Copy)]
enum Wanted {
    Active,
    /// Those that stand by with this priority, and may carry hardly less than the best of them.
    Backup {
        priority: u8,
        limit: BitRate,
    },
}

impl Wanted {
    fn admits(self, path: &Path) -> bool {
        let fits = match self {
            Self::Active => path.status() == PathStatus::Active,
            Self::Backup { priority, limit } => {
                path.status() == PathStatus::Backup
                    && path.priority == priority
                    && !path.is_much_worse_than(limit)
            }
        };
        fits && path.state == PathState::Usable && path.is_validated()
    }
}
