//! Which networks new flows use, and in which parts.
//!
//! ```text
//!  networks --> usable? --> rank: declared use, priority, price --> the best rank carries
//!                                                                      |
//!  battery --> one network with the least energy <---------------------+
//!                                                                      |
//!  RTT, rates, flows --> shares `[VIF] eq. 2, eq. 3` or by capacity <---+
//!                                                                      |
//!  two evaluations in a row --> the order in which real-time flows take them <
//! ```
//!
//! A policy keeps only what hysteresis needs: which networks have just come back, in which order real-time flows take
//! them and which one wants to go ahead. Loss of a network counts at once, gain only after two evaluations in a row at least 250 ms
//! apart, as `[VCONN] 3.3` has it, unless nothing else is left. So a link that flaps carries nothing while it flaps.

use std::collections::BTreeMap;
use std::time::Duration;

use units::{Bytes, NetworkId, Timestamp};

use crate::network::{CapEffect, NetworkInput, Percent, PowerSupply, Reach};
use crate::table::{Entry, Table};
use crate::{PathStatus, Reason, Share};

mod connection;
mod power;
mod split;
mod steady;

#[cfg(test)]
mod tests;

pub use connection::{ConnectionPolicy, ConnectionWish};
use power::Saving;
pub use split::Split;
use steady::Steady;

/// How a [`NetworkPolicy`] chooses.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ChoiceSettings {
    /// How new flows are split over networks of equal rank.
    pub split: Split,
    /// Whether real-time flows take the network with the least delay and jitter, instead of being split like all others.
    pub real_time_on_best: bool,
    /// Battery charge below which only the network with the least energy for [`Self::transfer`] is used, off the mains;
    /// `[VIF] 3.2.4`. `None` switches it off.
    pub least_energy_below: Option<Percent>,
    /// Battery charge below which only the card that draws least is used, whatever its rate; `[VCONN] 3.3`. Where
    /// [`Self::least_energy_below`] applies too, that one rules.
    pub cheapest_adapter_below: Option<Percent>,
    /// Bytes whose energy is compared: the send buffer of `[VIF] eq. 6`.
    pub transfer: Bytes,
    /// Least time between two evaluations that count for hysteresis.
    pub evaluation: Duration,
    /// Evaluations in a row that must agree before a better network replaces the preferred one, or one that comes back
    /// is used.
    pub agreement: u8,
}

impl Default for ChoiceSettings {
    fn default() -> Self {
        Self {
            split: Split::default(),
            real_time_on_best: true,
            least_energy_below: Some(VIF_BATTERY),
            cheapest_adapter_below: Some(VCONN_BATTERY),
            transfer: VIF_BUFFER,
            evaluation: VCONN_EVALUATION,
            agreement: VCONN_AGREEMENT,
        }
    }
}

/// Chooses networks; one for each device.
#[derive(Clone, Debug)]
pub struct NetworkPolicy {
    settings: ChoiceSettings,
    due: Timestamp,
    seen: BTreeMap<NetworkId, Presence>,
    /// The network that each place in the order for real-time flows has, best first.
    for_calls: Vec<Steady>,
    thriftiest: Steady,
}

/// What hysteresis remembers of a network.
#[derive(Clone, Copy, Debug, Default)]
struct Presence {
    /// It was gone and has not been back for long enough.
    recovering: bool,
    /// Evaluations in a row in which it was there.
    agreed: u8,
}

/// Where a network stands: the least rank that is usable carries everything.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    standing: Standing,
    usage: Usage,
    priority: u8,
    price: u64,
}

/// Whether a network can carry now, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Standing {
    Good,
    Recovering,
    Captive,
    NoReach,
}

/// What a network is meant for, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Usage {
    Regular,
    /// Regular, but its access point is not worth its air beside better ones.
    Spared,
    /// Paid for by volume, and nobody said whether it is a backup.
    Paid,
    Backup,
}

impl NetworkPolicy {
    /// A policy that has seen no network yet.
    pub fn new(settings: ChoiceSettings) -> Self {
        Self {
            settings,
            due: Timestamp::ZERO,
            seen: BTreeMap::new(),
            for_calls: Vec::new(),
            thriftiest: Steady::default(),
        }
    }

    /// Takes other settings; the hysteresis goes on.
    pub fn set(&mut self, settings: ChoiceSettings) {
        self.settings = settings;
    }

    /// The settings in use.
    pub fn settings(&self) -> &ChoiceSettings {
        &self.settings
    }

    /// When [`Self::evaluate`] should be called next, if nothing happens before.
    pub fn next_evaluation(&self) -> Timestamp {
        self.due
    }

    /// The shares of all networks, in the order of `inputs`.
    ///
    /// Call it at [`Self::next_evaluation`] and at once when a network comes or goes. Each network may occur once; at most 64
    /// networks are meant, more work but are not measured.
    pub fn evaluate(&mut self, now: Timestamp, inputs: &[NetworkInput], power: PowerSupply) -> Table {
        let counts = now >= self.due;
        if counts {
            self.due = now + self.settings.evaluation;
        }
        self.observe(inputs, counts);
        let ranks: Vec<Result<Rank, Reason>> = inputs.iter().map(|input| self.rank(input)).collect();
        let Some(best) = ranks.iter().filter_map(|rank| rank.as_ref().ok()).min().copied() else {
            let entries =
                inputs.iter().zip(ranks).map(|(input, rank)| idle_entry(input, rank, None)).collect();
            return self.finish(entries, counts);
        };
        let chosen: Vec<&NetworkInput> = inputs
            .iter()
            .zip(&ranks)
            .filter(|(_, rank)| **rank == Ok(best))
            .map(|(input, _)| input)
            .collect();
        let saving = Saving::find(&self.settings, power, &chosen, self.regular(inputs, &ranks));
        if saving.is_none() {
            self.thriftiest = Steady::default();
        }
        let saving =
            saving.map(|saving| saving.steadied(&mut self.thriftiest, counts, self.settings.agreement));
        let mut parts = match &saving {
            Some(saving) => BTreeMap::from([(saving.network, (Share::WHOLE, saving.reason()))]),
            None => split::shares(self.settings.split, &chosen, best.reason(chosen.len())),
        };
        let mut entries: Vec<Entry> = inputs
            .iter()
            .zip(ranks)
            .map(|(input, rank)| match (parts.remove(&input.id), &saving) {
                (Some((share, reason)), _) => entry(input, PathStatus::Active, share, reason),
                (None, Some(saving)) if rank.is_ok() => {
                    entry(input, PathStatus::Backup, Share::NONE, saving.reason_against(input.id))
                }
                (None, _) => idle_entry(input, rank, Some(best)),
            })
            .collect();
        for (input, rate) in chosen.iter().zip(split::known_rates(&chosen).unwrap_or_default()) {
            let own = entries.iter_mut().find(|entry| entry.network == input.id);
            own.into_iter().for_each(|entry| entry.capacity = Some(rate));
        }
        self.finish(entries, counts)
    }

    /// The networks among which `[VCONN]`'s rule picks: all that are not kept for want of others.
    fn regular<'a>(
        &self,
        inputs: &'a [NetworkInput],
        ranks: &[Result<Rank, Reason>],
    ) -> Vec<&'a NetworkInput> {
        let is_regular = |rank: &Result<Rank, Reason>| {
            matches!(rank, Ok(Rank { standing: Standing::Good, usage: Usage::Regular, .. }))
        };
        inputs.iter().zip(ranks).filter(|(_, rank)| is_regular(rank)).map(|(input, _)| input).collect()
    }

    fn observe(&mut self, inputs: &[NetworkInput], counts: bool) {
        for (id, presence) in &mut self.seen {
            if !inputs.iter().any(|input| input.id == *id) {
                *presence = Presence { recovering: true, agreed: 0 };
            }
        }
        for input in inputs {
            let known = self.seen.len() < MOST_REMEMBERED || self.seen.contains_key(&input.id);
            let Some(presence) = known.then(|| self.seen.entry(input.id).or_default()) else { continue };
            if !is_there(input) {
                *presence = Presence { recovering: true, agreed: 0 };
            } else if counts {
                presence.agreed = presence.agreed.saturating_add(1);
                presence.recovering &= presence.agreed < self.settings.agreement;
            }
        }
        if self.seen.len() >= MOST_REMEMBERED {
            self.seen.retain(|id, _| inputs.iter().any(|input| input.id == *id));
        }
    }

    fn rank(&self, input: &NetworkInput) -> Result<Rank, Reason> {
        if input.preference.off {
            return Err(Reason::TurnedOff);
        }
        if !input.up {
            return Err(Reason::Down);
        }
        let cap = input.cap.map_or(CapEffect::None, |cap| cap.effect);
        if let (CapEffect::Off, Some(cap)) = (cap, input.cap) {
            return Err(Reason::CapReached { used: cap.used, limit: cap.limit });
        }
        let recovering = self.seen.get(&input.id).is_some_and(|presence| presence.recovering);
        let standing = match input.reach {
            Reach::Nothing => Standing::NoReach,
            Reach::Captive => Standing::Captive,
            Reach::Internet | Reach::Unknown if recovering => Standing::Recovering,
            Reach::Internet | Reach::Unknown => Standing::Good,
        };
        let price = input.price.map_or(0, |price| price.0);
        let paid = input.preference.metered || price > 0;
        let usage = match input.preference.backup {
            _ if cap == CapEffect::Backup => Usage::Backup,
            Some(true) => Usage::Backup,
            None if paid => Usage::Paid,
            None | Some(false) if input.spared => Usage::Spared,
            None | Some(false) => Usage::Regular,
        };
        // What the user wants to be used is not ordered by price.
        let price = if matches!(usage, Usage::Regular | Usage::Spared) { 0 } else { price };
        Ok(Rank { standing, usage, priority: input.preference.priority.0, price })
    }

    fn finish(&mut self, entries: Vec<Entry>, counts: bool) -> Table {
        let for_calls = self.order_for_calls(&entries, counts);
        Table { entries, for_calls, split: self.settings.split }
    }

    /// Each place takes the best of what those before it have left, so what is used without the first one is as steady as it.
    fn order_for_calls(&mut self, entries: &[Entry], counts: bool) -> Vec<NetworkId> {
        let on_best = self.settings.real_time_on_best;
        let active = entries.iter().filter(|entry| on_best && entry.status == PathStatus::Active);
        let mut left: Vec<(f64, NetworkId)> =
            active.map(|entry| (entry.for_calls(), entry.network)).collect();
        self.for_calls.resize(left.len(), Steady::default());
        let mut order = Vec::with_capacity(left.len());
        for place in &mut self.for_calls {
            let best = left.iter().min_by(|one, other| one.0.total_cmp(&other.0)).copied();
            let held = left.iter().find(|(_, network)| Some(*network) == place.get()).copied();
            let best = match (best, held) {
                (Some(best), Some(held)) if !is_worth_a_change(best.0, held.0) => Some(held),
                _ => best,
            };
            let best = best.map(|(_, network)| network);
            let may_stay = |held| left.iter().any(|(_, network)| *network == held);
            let taken = place.next(best, may_stay, counts, self.settings.agreement);
            left.retain(|(_, network)| Some(*network) != taken);
            order.extend(taken);
        }
        order
    }
}

impl Rank {
    /// Why networks of this rank are used, if the split has nothing more to say.
    fn reason(self, networks: usize) -> Reason {
        match (self.standing, self.usage) {
            (Standing::Captive, _) => Reason::CaptiveAtLast,
            (Standing::NoReach, _) => Reason::NoReachAtLast,
            (Standing::Recovering, _) => Reason::RecoveringAtLast,
            (_, Usage::Backup) => Reason::BackupAtLast,
            (_, Usage::Paid) => Reason::PaidAtLast,
            (_, Usage::Spared) => Reason::SparedAtLast,
            _ if networks == 1 => Reason::OnlyOne { priority: self.priority },
            _ => Reason::Equal { priority: self.priority },
        }
    }
}

/// Whether a network works as far as anybody can tell: what hysteresis watches.
fn is_there(input: &NetworkInput) -> bool {
    input.up && matches!(input.reach, Reach::Internet | Reach::Unknown)
}

/// Whether a network is so much better for calls than the one that has its place, both in seconds, that it is heard. `[VCONN]` takes any
/// difference; two alike networks would change places with each measurement, and the kernel's table with them.
fn is_worth_a_change(seconds: f64, held: f64) -> bool {
    seconds < held * CALL_STEP - LEAST_CALL_STEP
}

fn idle_entry(input: &NetworkInput, rank: Result<Rank, Reason>, best: Option<Rank>) -> Entry {
    let (status, reason) = match rank {
        Err(reason) => (PathStatus::Off, reason),
        Ok(rank) => waiting(input, rank, best),
    };
    entry(input, status, Share::NONE, reason)
}

/// Why a usable network carries nothing.
fn waiting(input: &NetworkInput, rank: Rank, best: Option<Rank>) -> (PathStatus, Reason) {
    match (rank.standing, rank.usage) {
        (Standing::NoReach, _) => (PathStatus::Off, Reason::NoReach),
        (Standing::Captive, _) => (PathStatus::Off, Reason::Captive),
        (Standing::Recovering, _) => (PathStatus::Backup, Reason::Recovering),
        (Standing::Good, usage) if best.is_some_and(|best| best.usage == usage) => {
            let used = best.map_or(0, |best| best.priority);
            let reason = match input.price {
                Some(price) if used == rank.priority => Reason::Dearer { price },
                _ => Reason::LowerPriority { own: rank.priority, used },
            };
            (PathStatus::Backup, reason)
        }
        (Standing::Good, Usage::Backup) => match input.cap {
            Some(cap) if cap.effect == CapEffect::Backup => {
                (PathStatus::Backup, Reason::CapNear { used: cap.used, limit: cap.limit })
            }
            _ => (PathStatus::Backup, Reason::Backup),
        },
        (Standing::Good, Usage::Spared) => (PathStatus::Backup, Reason::Spared),
        (Standing::Good, Usage::Paid | Usage::Regular) => (PathStatus::Backup, Reason::Paid),
    }
}

fn entry(input: &NetworkInput, status: PathStatus, share: Share, reason: Reason) -> Entry {
    let metrics = &input.metrics;
    let (flows, others) = (f64::from(metrics.bulk_flows), metrics.others.number());
    let full = metrics
        .delivered
        .is_some_and(|capacity| metrics.load.0 as f64 * (flows + others) > FULL * capacity.0 as f64 * flows);
    Entry {
        network: input.id,
        priority: input.preference.priority,
        status,
        share,
        reason,
        rtt: metrics.rtt,
        capacity: metrics.delivered.or(metrics.nominal),
        bulk_flows: metrics.bulk_flows,
        others: metrics.others,
        loss: metrics.loss,
        full: full && metrics.bulk_flows > 0,
    }
}

/// `[VIF] 3.2.4`: power saving starts below 10 %.
const VIF_BATTERY: Percent = Percent::new(10);
/// `[VCONN] 3.3`: the cheapest adapter is used below 20 %.
const VCONN_BATTERY: Percent = Percent::new(20);
/// `[VIF] 3.2.4`: the typical TCP window of eq. 4.
const VIF_BUFFER: Bytes = Bytes(64 * 1_024);
/// `[VCONN] 3.3`: a "cheaper" adapter is looked for every 250 ms.
const VCONN_EVALUATION: Duration = Duration::from_millis(250);
/// `[VCONN] 3.3`: two evaluations in a row must agree.
const VCONN_AGREEMENT: u8 = 2;
/// Part of the delay that is left where a network is better for calls.
const CALL_STEP: f64 = 0.9;
/// Seconds that nobody hears; ITU-T G.114 counts in tens of milliseconds.
const LEAST_CALL_STEP: f64 = 0.001;
/// Part of what its bulk flows can have beside those of others, from which a network counts as full.
const FULL: f64 = 0.9;
/// Networks whose coming and going is remembered; beyond, those that are gone are forgotten.
const MOST_REMEMBERED: usize = 256;
