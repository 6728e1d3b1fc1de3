//! Soft hand-off: feeds the policy with how networks are, asks what lies beyond them, and gives the primary its part of the radio.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use radio::handoff::{Beyond, Change, Handoff, HandoffSettings, Observation};
use radio::slots::{Cycle, SlotSettings};
use radio::{NetworkStatus, Station};
use tracing::debug;
use units::{NetworkId, Timestamp};

use super::control::Command;
use crate::config::ProbeTarget;
use crate::device::ProbeOutcome;
use crate::device::probe::{self, Way};
use crate::mailbox::Mailbox;

/// How often networks are looked at.
const PERIOD: Duration = Duration::from_millis(20);
/// How often it is asked what lies beyond a network ...
const ASK_EVERY: Duration = Duration::from_secs(15);
/// ... and beyond one where nothing answered.
const ASK_AGAIN: Duration = Duration::from_secs(5);
/// Weight of the scan slot.
const SCAN_WEIGHT: u16 = 1;

/// A network whose interface has an address, as the loop knows it.
pub(super) struct Leased {
    pub network: NetworkId,
    pub interface: String,
}

/// The policy and what it needs to know.
pub(super) struct SoftHandoff {
    policy: Handoff,
    due: Timestamp,
    slots: SlotSettings,
    targets: Arc<[ProbeTarget]>,
    mark: u32,
    replies: Mailbox<Command>,
    beyond: BTreeMap<NetworkId, Asked>,
}

#[derive(Clone, Copy)]
struct Asked {
    found: Beyond,
    asking: bool,
    due: Timestamp,
}

impl SoftHandoff {
    /// Nothing is known yet. Answers of probes come to `replies` as [`Command::Beyond`].
    pub fn new(slots: SlotSettings, targets: Vec<ProbeTarget>, mark: u32, replies: Mailbox<Command>) -> Self {
        // Weights say who has how much, not what was delivered: the primary is to have nine tenths however little is to do.
        let slots = SlotSettings { alpha: 0.0, ..slots };
        let policy = Handoff::new(HandoffSettings::default());
        let (targets, beyond) = (targets.into(), BTreeMap::new());
        Self { policy, due: Timestamp::ZERO, slots, targets, mark, replies, beyond }
    }

    /// The network that carries the traffic.
    pub fn primary(&self) -> Option<NetworkId> {
        self.policy.primary()
    }

    /// When to look at the networks again.
    pub fn timeout(&self) -> Timestamp {
        self.due
    }

    /// Something has happened: look at once.
    pub fn hurry(&mut self) {
        self.due = Timestamp::ZERO;
    }

    /// What an earlier question found.
    pub fn found(&mut self, now: Timestamp, network: NetworkId, found: Beyond) {
        if let Some(asked) = self.beyond.get_mut(&network) {
            let pause = if found == Beyond::Nothing { ASK_AGAIN } else { ASK_EVERY };
            *asked = Asked { found, asking: false, due: now + pause };
        }
    }

    /// Looks at the networks if it is time; gives a change of the primary, whose slots and weights are set already.
    pub fn drive(&mut self, now: Timestamp, station: &mut Station, leased: &[Leased]) -> Option<Change> {
        if now < self.due {
            return None;
        }
        self.due = now + PERIOD;
        self.ask(now, leased);
        let statuses: Vec<NetworkStatus> = station.networks().collect();
        let observations: Vec<Observation> =
            statuses.iter().map(|status| self.observe(now, station, status, leased)).collect();
        let change = self.policy.observe(now, &observations)?;
        self.share_out(station);
        station.visit(now, change.to);
        Some(change)
    }

    fn observe(
        &self,
        now: Timestamp,
        station: &Station,
        status: &NetworkStatus,
        leased: &[Leased],
    ) -> Observation {
        let health = station.health(now, status.network).unwrap_or_default();
        Observation {
            network: status.network,
            usable: status.up && leased.iter().any(|one| one.network == status.network),
            signal_dbm: status.signal_dbm,
            missed_beacons: health.missed_beacons,
            unanswered: health.unanswered,
            silence: health.silence,
            beyond: self.beyond.get(&status.network).map_or(Beyond::Unknown, |asked| asked.found),
        }
    }

    /// Nine tenths to the primary; it is watched closely. To be called too when networks come and go.
    pub fn share_out(&self, station: &mut Station) {
        let Some(primary) = self.primary() else { return };
        let networks: Vec<NetworkId> = station.networks().map(|status| status.network).collect();
        // The scan slot is one of the others.
        let others = u16::try_from(networks.len()).unwrap_or(u16::MAX).max(1);
        for id in networks {
            station.set_weight(id, Handoff::weight(id == primary, others));
            station.set_watched(id, id == primary);
        }
        // The shortest slots must fit a tenth.
        let cycle = match self.slots.cycle {
            Cycle::Bounded(cycle) => Cycle::Bounded(cycle.max(self.slots.least * u32::from(others) * 10)),
            multiples => multiples,
        };
        station.set_slots(SlotSettings { cycle, ..self.slots }, SCAN_WEIGHT);
    }

    /// Asks over each network what an application would ask, each in a thread that ends by itself.
    fn ask(&mut self, now: Timestamp, leased: &[Leased]) {
        self.beyond.retain(|id, _| leased.iter().any(|one| one.network == *id));
        if self.targets.is_empty() {
            return;
        }
        for one in leased {
            let asked = self.beyond.entry(one.network);
            let asked = asked.or_insert(Asked { found: Beyond::Unknown, asking: false, due: now });
            if asked.asking || now < asked.due {
                continue;
            }
            asked.asking = true;
            let way = Way { interface: one.interface.clone(), mark: self.mark, v4: true, v6: false };
            let (targets, replies, network) = (Arc::clone(&self.targets), self.replies.clone(), one.network);
            let started = std::thread::Builder::new().name("beyond".to_owned()).spawn(move || {
                let found = match probe::ask(&way, &targets) {
                    ProbeOutcome::Internet(time) => Beyond::Answered(time),
                    ProbeOutcome::Captive(_) | ProbeOutcome::Nothing => Beyond::Nothing,
                };
                replies.post(Command::Beyond(network, found));
            });
            if let Err(error) = started {
                debug!("cannot ask what lies beyond {}: {error}", one.interface);
                asked.asking = false;
                asked.due = now + ASK_AGAIN;
            }
        }
    }
}
