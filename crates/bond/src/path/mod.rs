//! One path of a bond: one network to one remote address, with its own packet numbers, acknowledgements, delay and rate model.
//!
//! ```text
//!             challenge answered                 nothing acknowledged for a probe timeout
//! Validating ---------------------> Usable ---------------------------------------------> Suspect
//!                                     ^ <--------------- anything acknowledged ---------------|
//!                                     |                                                        |
//!                        network_up   +--- Down <------------- network_down --------------------+
//! ```

pub(crate) mod ecn;
mod lift;
pub(crate) mod mtu;
pub(crate) mod pacer;
pub(crate) mod received;
mod samples;
pub(crate) mod sent;
mod silence;
mod trickle;

use crate::address::Address;
use crate::congestion::{AckSample, Algorithm, AnyController, Controller, LossSample, Sibling};
use crate::unit::Item;
use ecn::{EcnTrouble, EcnTrust};
use lift::Lift;
pub(crate) use lift::lift_limits;
use mtu::MtuSearch;
use pacer::Pacer;
use policy::{BaseRtt, PathStatus, RttEstimator};
use received::Received;
use samples::{STALE_RTTS, one_way_delay};
use sent::{Delivered, Losses, Sent};
use std::time::Duration;
use trickle::Trickle;
use units::{BitRate, Bytes, PathId, Timestamp};
use wire::frame::{Ack, PathStatus as PathStatusFrame, Ranges};

/// A challenge is repeated after this time, then less often.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes that may go to an unvalidated address for each byte that came from it (RFC 9000 section 8).
const AMPLIFICATION_LIMIT: u64 = 3;
/// Bytes of a packet of control frames, about.
const CONTROL_PACKET: u64 = 150;
/// Held back for so long, a path's estimate has little left of what it could carry.
const LONG_HELD: Duration = Duration::from_secs(1);
/// Datagrams; fewer under way on a path that carries nothing new are in nobody's way.
const MUCH_UNDER_WAY: u64 = 4;
/// Pace over the estimate of a path that is hastened: what an inner BBR tries.
const HASTE: f64 = 1.25;

/// Whether a path can carry data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PathState {
    /// The peer has not yet shown that it is reached there.
    Validating,
    /// Works.
    Usable,
    /// Silent: its packets were moved to other paths, it is probed.
    Suspect,
    /// Its network is gone.
    Down,
}

/// Proof that the peer receives at an address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Challenge {
    pub(crate) nonce: [u8; 8],
    pub(crate) send_at: Timestamp,
    pub(crate) tries: u32,
}

/// What happened to a path in one call.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub(crate) losses: Losses,
    /// Contents that have arrived and of which somebody wants to know.
    pub(crate) arrived: Vec<Item>,
    /// Numbers of packets that have arrived although their contents were taken out when the path fell silent.
    pub(crate) arrived_taken: Vec<u64>,
    /// The path has answered after it was suspect.
    pub(crate) recovered: bool,
    /// One-way delay of the last packet, microseconds plus the clocks' difference.
    pub(crate) delay_micros: Option<i64>,
    pub(crate) ecn_trouble: Option<EcnTrouble>,
}

/// Sums since the path began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounters {
    /// Datagrams and bytes sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Datagrams received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets found lost.
    pub lost_packets: u64,
    /// CE marks that the peer reported.
    pub ce_marks: u64,
    /// Packets that this end counted as marked, since it likes other paths better.
    pub own_marks: u64,
    /// How often the path fell silent.
    pub timeouts: u64,
}

pub(crate) struct Path {
    pub(crate) id: PathId,
    pub(crate) address: Address,
    pub(crate) state: PathState,
    pub(crate) own_status: PathStatus,
    pub(crate) own_status_sequence: u64,
    pub(crate) peer_status: PathStatus,
    pub(crate) peer_status_sequence: Option<u64>,
    pub(crate) priority: u8,
    /// What this end allows, both ways.
    pub(crate) own_limit: Option<BitRate>,
    /// What this end allows to come.
    pub(crate) inward_limit: Option<BitRate>,
    /// What the peer allows.
    pub(crate) peer_limit: Option<BitRate>,
    pub(crate) sent: Sent,
    pub(crate) received: Received,
    pub(crate) rtt: RttEstimator,
    base_rtt: BaseRtt,
    /// Samples of the round-trip time since it was last unknown.
    rtt_samples: u32,
    /// Relative one-way delay to the peer, microseconds plus the unknown difference of the clocks.
    one_way_delay: Option<f64>,
    algorithm: Algorithm,
    pub(crate) controller: AnyController,
    pacer: Pacer,
    /// A burst of a sender that has little to send is passed on faster than the estimate.
    hastened: bool,
    /// Since when it has been seen to stand by or to have a limit.
    held_since: Option<Timestamp>,
    lift: Lift,
    trickle: Trickle,
    /// Samples of the round trip in a row that are far shorter than it has been.
    short_samples: u32,
    pub(crate) mtu: MtuSearch,
    size_doubted_at: Timestamp,
    pub(crate) challenge: Option<Challenge>,
    pub(crate) pending_response: Option<[u8; 8]>,
    /// Bytes received from and sent to the address while it is not validated.
    unvalidated: Option<(u64, u64)>,
    peer_reordering: Duration,
    delivered: Delivered,
    round_end: u64,
    application_limited_until: Option<u64>,
    last_ack_at: Timestamp,
    sampled_at: Timestamp,
    eliciting_since: Timestamp,
    pub(crate) last_sent_at: Timestamp,
    pub(crate) last_received_at: Timestamp,
    loss_at: Option<Timestamp>,
    timeouts: u32,
    /// Beyond its probe timeout (RFC 4015: the answer to a spurious timeout), and since when.
    patience: Duration,
    patience_since: Timestamp,
    probe_at: Option<Timestamp>,
    pub(crate) ping_wanted: bool,
    /// No path of the session works.
    pub(crate) is_needed: bool,
    peer_ce: u64,
    pub(crate) ecn: EcnTrust,
    acked_since_loss: u64,
    acked_between_losses: u64,
    pub(crate) counters: PathCounters,
    loss_rate: f64,
}

/// What the other paths mean for what is seen on one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Others {
    /// One [overshadows](Path::overshadows) it.
    overshadow: bool,
    /// The rate of one that carries nothing any more fell and came back within moments.
    fade: bool,
    /// One could carry what this one has.
    works: bool,
}

impl Others {
    /// Of all `paths` but that `at`.
    pub(crate) fn of(now: Timestamp, paths: &[Path], at: usize) -> Self {
        let others = || paths.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, path)| path);
        Self {
            overshadow: others().any(Path::overshadows),
            fade: others().any(|path| path.has_given_way() && path.controller.fades(now)),
            works: others().any(|path| {
                path.state == PathState::Usable && path.is_validated() && path.status() != PathStatus::Off
            }),
        }
    }
}

impl Path {
    pub(crate) fn new(
        now: Timestamp,
        id: PathId,
        address: Address,
        algorithm: Algorithm,
        mtu_limit: u16,
    ) -> Self {
        let properties = address.carrier.properties();
        let mtu = MtuSearch::new(mtu_limit.min(properties.max_datagram), properties.reliable);
        Self {
            id,
            address,
            state: PathState::Validating,
            own_status: PathStatus::Active,
            own_status_sequence: 0,
            peer_status: PathStatus::Active,
            peer_status_sequence: None,
            priority: 0,
            own_limit: None,
            inward_limit: None,
            peer_limit: None,
            sent: Sent::default(),
            received: Received::default(),
            rtt: RttEstimator::default(),
            base_rtt: BaseRtt::default(),
            rtt_samples: 0,
            one_way_delay: None,
            algorithm,
            controller: AnyController::new(algorithm, u64::from(mtu.current()), now),
            pacer: Pacer::default(),
            hastened: false,
            held_since: None,
            lift: Lift::default(),
            trickle: Trickle::default(),
            short_samples: 0,
            mtu,
            size_doubted_at: now,
            challenge: None,
            pending_response: None,
            unvalidated: Some((0, 0)),
            peer_reordering: Duration::from_millis(2),
            delivered: Delivered::default(),
            round_end: 0,
            application_limited_until: None,
            last_ack_at: now,
            sampled_at: now,
            eliciting_since: now,
            last_sent_at: now,
            last_received_at: now,
            loss_at: None,
            timeouts: 0,
            patience: Duration::ZERO,
            patience_since: now,
            probe_at: None,
            ping_wanted: false,
            is_needed: false,
            peer_ce: 0,
            ecn: EcnTrust::default(),
            acked_since_loss: 0,
            acked_between_losses: 0,
            counters: PathCounters::default(),
            loss_rate: 0.0,
        }
    }

    /// How both ends together want the path to be used.
    pub(crate) fn status(&self) -> PathStatus {
        match (self.own_status, self.peer_status) {
            (PathStatus::Off, _) | (_, PathStatus::Off) => PathStatus::Off,
            (PathStatus::Backup, _) | (_, PathStatus::Backup) => PathStatus::Backup,
            _ => PathStatus::Active,
        }
    }

    /// The next word to the peer of how the path is to be used.
    pub(crate) fn next_status(&mut self, status: u8) -> PathStatusFrame {
        self.own_status_sequence += 1;
        PathStatusFrame {
            path: self.id,
            sequence: self.own_status_sequence,
            status,
            priority: self.priority,
            // Less than a byte a second would say that there is no limit.
            limit: self
                .own_limit
                .into_iter()
                .chain(self.inward_limit)
                .min()
                .map_or(0, |limit| (limit.0 / 8).max(1)),
        }
    }

    /// What both ends together allow, but for moments in which nothing better works (`lift.rs`).
    pub(crate) fn limit(&self) -> Option<BitRate> {
        self.wished_limit().filter(|_| !self.lift.is_on())
    }

    /// The peer is known to receive at the address.
    pub(crate) fn set_validated(&mut self) {
        self.challenge = None;
        self.unvalidated = None;
        if self.state == PathState::Validating {
            self.state = PathState::Usable;
        }
    }

    pub(crate) fn is_validated(&self) -> bool {
        self.unvalidated.is_none()
    }

    /// Begins to validate the address.
    pub(crate) fn start_challenge(&mut self, now: Timestamp, nonce: [u8; 8]) {
        // What an earlier address sent gives this one no credit.
        self.unvalidated = Some((0, 0));
        self.challenge = Some(Challenge { nonce, send_at: now, tries: 0 });
    }

    /// The nonce to send if a challenge is due.
    pub(crate) fn take_challenge(&mut self, now: Timestamp) -> Option<[u8; 8]> {
        let challenge = self.challenge.as_mut().filter(|challenge| challenge.send_at <= now)?;
        challenge.send_at = now + CHALLENGE_INTERVAL * (1 << challenge.tries.min(3));
        challenge.tries += 1;
        Some(challenge.nonce)
    }

    /// The path has moved to another address or network: what was known of the way is void.
    pub(crate) fn moved(&mut self, now: Timestamp) {
        self.rtt.reset();
        self.base_rtt = BaseRtt::default();
        self.one_way_delay = None;
        self.controller = AnyController::new(self.algorithm, u64::from(self.mtu.current()), now);
        self.pacer = Pacer::default();
        self.trickle = Trickle::default();
        self.timeouts = 0;
        self.probe_at = None;
        self.ecn.moved();
    }

    /// Bytes that the address may still be sent before it is validated.
    pub(crate) fn amplification_budget(&self) -> u64 {
        match self.unvalidated {
            None => u64::MAX,
            Some((received, sent)) => received.saturating_mul(AMPLIFICATION_LIMIT).saturating_sub(sent),
        }
    }

    /// Whether a packet of control frames may go to the address.
    pub(crate) fn may_speak(&self) -> bool {
        self.state != PathState::Down && self.amplification_budget() >= CONTROL_PACKET
    }

    /// Initiators send first, so their budget does not depend on what came back.
    pub(crate) fn grant_budget(&mut self, bytes: u64) {
        if let Some((received, _)) = &mut self.unvalidated {
            *received = received.saturating_add(bytes);
        }
    }

    /// Notes an authentic datagram, `credit` bytes of which came from the path's present address.
    pub(crate) fn on_datagram_received(&mut self, now: Timestamp, size: usize, credit: usize) {
        self.last_received_at = now;
        self.counters.received_packets += 1;
        self.counters.received_bytes += size as u64;
        self.grant_budget(credit as u64);
        // If the peer is heard again, it may hear again.
        if self.state == PathState::Suspect {
            self.ask_again(now);
        }
    }

    /// Notes a sent datagram; `eliciting` ones count as in flight.
    pub(crate) fn on_datagram_sent(&mut self, now: Timestamp, size: usize, eliciting: bool, paced: bool) {
        self.counters.sent_packets += 1;
        self.counters.sent_bytes += size as u64;
        if let Some((_, sent)) = &mut self.unvalidated {
            *sent += size as u64;
        }
        if !eliciting {
            return;
        }
        self.last_sent_at = now;
        self.look_whether_held(now, paced);
        if self.sent.in_flight() <= size as u64 {
            self.eliciting_since = now;
        }
        if paced {
            self.pacer.on_sent(now, self.pace(), size as u64);
        }
        self.controller.on_sent(now, size as u64, self.sent.in_flight());
    }

    /// Whoever wished that a path carries little knows no more of what it could carry than this end, and no longer wishes it. One that stands by and
    /// is filled all the same, since no other is left, is not held back; what is under way of before does not fill it. `data`: the packet that is sent.
    fn look_whether_held(&mut self, now: Timestamp, data: bool) {
        let stands_by = self.status() != PathStatus::Active;
        let is_full = self.limit().is_none() && self.sent.in_flight() * 2 > self.controller.window();
        if stands_by && is_full && data {
            self.held_since = None;
        } else {
            self.take_wish(now);
        }
    }

    /// One of both ends has said what it wishes of the path: one that stands by may send nothing until then.
    pub(crate) fn take_wish(&mut self, now: Timestamp) {
        if self.status() != PathStatus::Active || self.limit().is_some() {
            self.held_since.get_or_insert(now);
        } else {
            self.free(now, true);
        }
        self.ask_sooner(now);
    }

    /// It is no longer held back: what is known of its rate says little after long. `takes_over`: by the wish of both ends, not only since nothing else
    /// answers.
    fn free(&mut self, now: Timestamp, takes_over: bool) {
        if self.held_since.take().is_some_and(|since| now.since(since) >= LONG_HELD) {
            self.controller.freed(now, takes_over);
        }
    }

    /// There was room but nothing to send: until what is in flight now is acknowledged, rate samples are lower bounds.
    pub(crate) fn note_application_limited(&mut self) {
        self.application_limited_until = Some(self.sent.next_number());
    }

    /// Whether a packet sent now gives only a lower bound of the rate.
    pub(crate) fn application_limited(&self) -> bool {
        if self.limit().is_some() {
            return true;
        }
        let acked = self.sent.largest_acked();
        self.application_limited_until.is_some_and(|until| acked.is_none_or(|acked| acked < until))
    }

    pub(crate) fn delivered(&self) -> Delivered {
        self.delivered
    }

    /// Whether others carry data in its place.
    fn has_given_way(&self) -> bool {
        let is_known = matches!(self.state, PathState::Usable | PathState::Suspect);
        is_known && self.status() != PathStatus::Active
    }

    /// Whether much of what was sent over it is still under way, though it carries nothing new while others do.
    fn overshadows(&self) -> bool {
        let much = MUCH_UNDER_WAY * u64::from(self.mtu.current());
        self.state == PathState::Usable && self.status() != PathStatus::Active && self.sent.in_flight() > much
    }

    /// Takes in an acknowledgement that came on this path.
    pub(crate) fn on_ack(
        &mut self,
        now: Timestamp,
        ack: &Ack,
        siblings: &[Sibling],
        others: Others,
    ) -> Progress {
        let prior_in_flight = self.sent.in_flight();
        let mut outcome = self.sent.on_ack(&ack.ranges);
        let mut progress = Progress {
            arrived: std::mem::take(&mut outcome.arrived),
            arrived_taken: std::mem::take(&mut outcome.arrived_taken),
            ..Progress::default()
        };
        if outcome.acked_bytes == 0 {
            return progress;
        }
        self.learn_patience(now, !progress.arrived_taken.is_empty());
        self.last_ack_at = now;
        if self.timeouts >= silence::PERSISTENT_TIMEOUTS {
            // Whatever comes back after so long is not the path that was known.
            self.controller = self.controller.renewed(self.algorithm, u64::from(self.mtu.current()), now);
            self.pacer = Pacer::default();
            self.delivered = Delivered::default();
        }
        self.timeouts = 0;
        self.probe_at = None;
        self.trickle.note(now, outcome.acked_bytes);
        self.peer_reordering = Duration::from_micros(ack.reordering_micros.min(500_000));
        let newly_marked = ack.ce_count.saturating_sub(self.peer_ce).min(outcome.acked_bytes);
        self.peer_ce = self.peer_ce.max(ack.ce_count);
        self.counters.ce_marks += newly_marked;
        let was_heeded = self.ecn.heeds_marks();
        if let Some(largest) = self.sent.largest_acked() {
            progress.ecn_trouble = self.ecn.on_ack(largest, self.peer_ce, self.counters.lost_packets);
        }
        if was_heeded && !self.ecn.heeds_marks() {
            // What was learned of the path rests on what is not true.
            self.controller = self.controller.renewed(self.algorithm, u64::from(self.mtu.current()), now);
        }
        let heeded = if self.ecn.heeds_marks() { newly_marked } else { 0 };
        if let Some(size) = outcome.acked_probe {
            self.mtu.on_probe_acked(size);
        }
        self.mtu.on_acked(outcome.acked_bytes);
        let (delivery_rate, application_limited) = self.take_samples(now, ack, &outcome);
        progress.delay_micros = outcome.largest.map(|(sent_at, ..)| one_way_delay(ack, sent_at));
        let largest_acked = self.sent.largest_acked().unwrap_or(0);
        let round_ended = largest_acked >= self.round_end;
        if round_ended {
            self.round_end = self.sent.next_number();
        }
        self.acked_since_loss += outcome.acked_bytes;
        self.loss_rate *= 1.0 - (outcome.acked_bytes as f64 / 1e6).min(0.5);
        let sample = AckSample {
            now,
            acked_bytes: outcome.acked_bytes,
            prior_in_flight,
            latest_rtt: self.rtt.latest(),
            smoothed_rtt: self.rtt.smoothed(),
            base_rtt: self.base_rtt.get().unwrap_or(self.rtt.smoothed()),
            delivery_rate,
            application_limited,
            round_ended,
            ce_marks: heeded,
            overshadowed: others.overshadow,
            others_fade: others.fade,
        };
        self.controller.on_ack(&sample, self.id, siblings);
        if self.state == PathState::Suspect && self.works_again(others.works) {
            self.state = PathState::Usable;
            progress.recovered = true;
        }
        self.find_losses(now, &mut progress.losses, siblings);
        self.look_whether_it_trickles(now, others.works, &mut progress);
        progress
    }

    fn find_losses(&mut self, now: Timestamp, losses: &mut Losses, siblings: &[Sibling]) {
        // RFC 8985: a packet is lost if one sent later has arrived and more than the reordering window has passed.
        let threshold = self.rtt.latest().max(self.rtt.smoothed()) + self.peer_reordering;
        self.loss_at = self.sent.detect_losses(now, threshold, losses);
        self.digest_losses(now, losses, false, siblings);
    }

    fn digest_losses(&mut self, now: Timestamp, losses: &mut Losses, persistent: bool, siblings: &[Sibling]) {
        if let Some(size) = losses.lost_probe {
            self.mtu.on_probe_lost(size, false);
        }
        if losses.packets == 0 {
            return;
        }
        self.counters.lost_packets += losses.packets;
        self.loss_rate += losses.bytes as f64 / 1e6 * (1.0 - self.loss_rate);
        if losses.latest_sent >= self.size_doubted_at {
            // Once a round trip: a burst that overflowed a queue says nothing about sizes.
            self.size_doubted_at = now;
            self.mtu.on_loss(losses.largest_size);
        }
        self.acked_between_losses = std::mem::take(&mut self.acked_since_loss);
        let sample =
            LossSample { now, lost_bytes: losses.bytes, latest_sent: losses.latest_sent, persistent };
        self.controller.on_loss(&sample, self.id, siblings);
    }

    /// Deals with timers that have run out.
    pub(crate) fn on_timeout(&mut self, now: Timestamp, siblings: &[Sibling]) -> Progress {
        let mut progress = Progress::default();
        if self.loss_at.is_some_and(|at| at <= now) {
            self.find_losses(now, &mut progress.losses, siblings);
        }
        if self.silent_at().is_some_and(|at| at <= now) {
            self.on_silence(now, &mut progress, siblings);
        }
        self.keep_asking(now);
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = None;
            self.ping_wanted = true;
        }
        progress
    }

    /// The peer says on another path what has arrived on this one: an acknowledgement that measures nothing and is no sign of life.
    pub(crate) fn on_arrived(&mut self, now: Timestamp, ranges: &Ranges) -> Progress {
        let outcome = self.sent.on_ack(ranges);
        if let Some(size) = outcome.acked_probe {
            self.mtu.on_probe_acked(size);
        }
        // The probe has arrived, its acknowledgement has not.
        self.keep_asking(now);
        Progress { arrived: outcome.arrived, arrived_taken: outcome.arrived_taken, ..Progress::default() }
    }

    /// The network is gone: everything in flight is lost.
    pub(crate) fn go_down(&mut self) -> Losses {
        let mut losses = Losses::default();
        self.sent.give_up_all(&mut losses);
        self.state = PathState::Down;
        self.trickle = Trickle::default();
        self.loss_at = None;
        self.probe_at = None;
        losses
    }

    /// The next time at which [`Path::on_timeout`], a challenge or an acknowledgement is due.
    pub(crate) fn next_timeout(&self) -> Option<Timestamp> {
        if self.state == PathState::Down {
            return None;
        }
        let challenge = self.challenge.as_ref().map(|challenge| challenge.send_at);
        let may_speak = self.may_speak();
        let said = [self.received.ack_due(), challenge].into_iter().flatten().filter(|_| may_speak);
        let own = [self.loss_at, self.silent_at(), self.probe_at, self.lift.due()];
        own.into_iter().flatten().chain(said).min()
    }

    /// When the next paced packet may leave, as far as pace and window know; `None` if the window is full.
    pub(crate) fn ready_at(&self) -> Option<Timestamp> {
        let size = u64::from(self.mtu.current());
        if self.sent.in_flight() + size > self.controller.window().max(size) {
            return None;
        }
        Some(self.pacer.ready_at(self.pace(), size))
    }

    /// The pace of sending now.
    fn pace(&self) -> Option<BitRate> {
        let haste = |rate: BitRate| BitRate((rate.0 as f64 * HASTE) as u64);
        let rate = self.controller.pacing_rate().map(|rate| if self.hastened { haste(rate) } else { rate });
        rate.into_iter().chain(self.limit()).min()
    }

    /// Whether what comes after a time of little to send may go faster than the estimate, which says nothing then: an inner sender
    /// that looks for more rate must find it.
    pub(crate) fn may_hasten(&self) -> bool {
        self.application_limited() && self.controller.has_room()
    }

    pub(crate) fn set_hastened(&mut self, hastened: bool) {
        self.hastened = hastened;
    }

    /// How long until the window opens, if it is full: the time its overhang takes at the path's rate.
    pub(crate) fn window_wait(&self, now: Timestamp) -> Duration {
        let over =
            (self.sent.in_flight() + u64::from(self.mtu.current())).saturating_sub(self.controller.window());
        let silence = now.since(self.last_ack_at.max(self.eliciting_since));
        self.rate().time_for(Bytes(over)) + silence.saturating_sub(self.rtt.smoothed())
    }

    /// The rate to plan with: the controller's estimate, or window over round-trip time.
    pub(crate) fn rate(&self) -> BitRate {
        let estimate = self.controller.rate_estimate().unwrap_or_default();
        let settled = self.controller.settled();
        let tried = if settled { self.controller.guaranteed_window() } else { self.controller.window() };
        let rate = estimate.max(BitRate::from_bytes_over(Bytes(tried), self.rtt.smoothed()));
        self.limit().map_or(rate, |limit| rate.min(limit))
    }

    /// One-way delay in microseconds with the clocks' unknown difference, which cancels between paths of a bond.
    pub(crate) fn one_way_delay(&self) -> Option<f64> {
        self.one_way_delay
    }

    /// By how much the round trip of a packet sent now is expected to differ from the smoothed one, microseconds: what is in flight has
    /// to leave first, and the acknowledgements that tell of it are a round trip old.
    pub(crate) fn queue_change(&self) -> f64 {
        let Some(rate) = self.controller.rate_estimate().filter(|_| self.controller.settled()) else {
            return 0.0;
        };
        let expected = rate.time_for(Bytes(self.sent.in_flight())).max(self.base_rtt());
        (expected.as_secs_f64() - self.rtt.smoothed().as_secs_f64()) * 1e6
    }

    /// Least smoothed round-trip time of the last seconds.
    pub(crate) fn base_rtt(&self) -> Duration {
        self.base_rtt.get().unwrap_or(self.rtt.smoothed())
    }

    /// For how long what arrives may wait for its acknowledgement. Who only receives measures seldom, and a queue of long ago must not count for ever.
    pub(crate) fn acknowledgement_delay(&self, now: Timestamp) -> Duration {
        let smoothed = self.rtt.smoothed();
        let is_old = now.since(self.sampled_at) > smoothed * STALE_RTTS;
        let round_trip = if is_old { smoothed.min(2 * self.base_rtt()) } else { smoothed };
        round_trip / 8
    }

    pub(crate) fn peer_reordering(&self) -> Duration {
        self.peer_reordering
    }

    /// Recent share of lost bytes, 0 to 1.
    pub(crate) fn loss_rate(&self) -> f64 {
        self.loss_rate
    }

    /// What coupled controllers may know of this path; `bottleneck` is the group that it was found in.
    pub(crate) fn sibling(&self, bottleneck: u32) -> Sibling {
        Sibling {
            path: self.id,
            window: self.controller.window(),
            smoothed_rtt: self.rtt.smoothed(),
            acked_since_loss: self.acked_since_loss,
            acked_between_losses: self.acked_between_losses,
            bottleneck,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Carrier;

    #[test]
    fn acknowledgements_do_not_wait_for_a_queue_of_long_ago() {
        let remote = std::net::SocketAddr::from(([192, 0, 2, 1], 4_600));
        let address = Address { network: units::NetworkId(1), carrier: Carrier::Udp, remote };
        let now = Timestamp::from_millis(1_000);
        let mut path = Path::new(now, PathId(0), address, Algorithm::Model, 1_472);
        path.base_rtt.on_sample(now, Duration::from_millis(32));
        (0..100).for_each(|_| path.rtt.on_sample(Duration::from_millis(400)));
        path.sampled_at = now;
        assert_eq!(path.acknowledgement_delay(now).as_millis(), 50);
        assert_eq!(path.acknowledgement_delay(now + Duration::from_secs(3)).as_millis(), 8);
    }
}
