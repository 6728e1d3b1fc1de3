//! What would have been: a recorded day of networks and flows, decided again by another policy.
//!
//! The record is what was measured under the policy of that day: loads, delivered rates and round-trip times are taken as
//! recorded, since nobody knows what they would have been. So the answer is which treatment and network each flow
//! would have got, and what that would have cost, not how fast it would have been. Flows are placed by [`assign`], which knows what each
//! has turned out to be; the kernel, which deals them out when they begin, may have given single ones another network.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use units::{Bytes, NetworkId, Timestamp};

use crate::energy::PowerModel;
use crate::network::{NetworkInput, PowerSupply, Price};
use crate::rules::{Dscp, FlowFacts, Protocol, Rules, Strictness, UserId};
use crate::{CapSettings, ChoiceSettings, FlowClass, NetworkPolicy, NewFlow, Table, Treatment, Wish, assign};

mod arrange;
mod counted;
mod data_caps;
mod difference;

use data_caps::Usages;

pub use arrange::arrange;
pub use counted::CountedFlow;
pub use difference::{Change, Difference, difference};

/// One line of a recorded day.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TraceRecord {
    /// When, since the record began.
    pub at: Duration,
    /// What.
    #[serde(flatten)]
    pub event: TraceEvent,
}

/// What was recorded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TraceEvent {
    /// The networks as they were from then on.
    Networks {
        /// All of them.
        networks: Vec<NetworkInput>,
        /// Where the power came from.
        #[serde(default)]
        power: PowerSupply,
    },
    /// A flow that began then.
    Flow(TraceFlow),
}

/// A recorded flow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TraceFlow {
    /// Its number in the record.
    pub id: u64,
    /// Path of the program's executable.
    #[serde(default)]
    pub program: Option<String>,
    /// The program's control group.
    #[serde(default)]
    pub cgroup: Option<String>,
    /// Numeric id of the user.
    #[serde(default)]
    pub user: Option<u32>,
    /// Destination address.
    pub destination: IpAddr,
    /// Names that were resolved to it.
    #[serde(default)]
    pub domains: Vec<String>,
    /// IP protocol number.
    pub protocol: u8,
    /// Destination port.
    #[serde(default)]
    pub port: u16,
    /// DSCP, 0 to 63.
    #[serde(default)]
    pub dscp: u8,
    /// The class that it turned out to be of.
    pub class: FlowClass,
    /// What it moved, both ways.
    pub bytes: Bytes,
}

/// A policy to try on a record.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct PolicySet {
    /// How networks are chosen.
    pub choice: ChoiceSettings,
    /// The rules.
    pub rules: Rules,
    /// The treatment of flows for which no rule sets one.
    pub treatment: Treatment,
    /// Whether there is a gateway; without one, what needs it goes direct.
    pub gateway: bool,
    /// The user's preferences by name of network, in place of the recorded ones.
    pub preferences: BTreeMap<String, crate::NetworkPreference>,
    /// What networks cost, by name, in place of what was recorded.
    pub costs: BTreeMap<String, NetworkCosts>,
}

/// What it costs to use a network.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct NetworkCosts {
    /// What its card draws; `None` if nobody told.
    pub power: Option<PowerModel>,
    /// What its traffic costs; `None` if nothing.
    pub price: Option<Price>,
    /// The limit of what it may carry; `None` for none. What it had used when the record began is what that tells; then counts what
    /// the replay puts on it, but for what bonds carry.
    pub cap: Option<CapSettings>,
}

/// What a policy made of a record.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Decisions {
    /// One for each flow, in the order of the record.
    pub flows: Vec<FlowDecision>,
    /// What each network carried alone, by name; what bonds carried is in none of them.
    pub networks: BTreeMap<String, Carried>,
    /// How often the preferred network changed.
    pub preferred_changes: u32,
}

/// What a policy made of one flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowDecision {
    /// The flow's number in the record.
    pub flow: u64,
    /// What it moved.
    pub bytes: Bytes,
    /// How it is carried.
    pub treatment: Treatment,
    /// Over what.
    pub over: Over,
    /// The rule that decided, by its key.
    pub rule: Option<String>,
    /// Why this network.
    pub why: String,
}

/// What carries a flow.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Over {
    /// One network, by name.
    Network(String),
    /// The bond.
    Bond,
    /// Nothing: no network could be used.
    Nothing,
}

/// What one network carried.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Carried {
    /// Flows.
    pub flows: u32,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their price, in thousandths of the user's currency unit.
    pub price: u64,
}

/// Why a record cannot be replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplayError {
    /// Times must not go back.
    #[error("record {number} is older than the one before it; sort the trace by time")]
    OutOfOrder {
        /// Which, from 1.
        number: usize,
    },
}

/// Runs a record through a policy. `seed` decides what shares leave to chance, for each flow alike in every replay.
///
/// # Errors
/// [`ReplayError::OutOfOrder`] if a record is older than the one before it.
pub fn replay(trace: &[TraceRecord], policy: &PolicySet, seed: u64) -> Result<Decisions, ReplayError> {
    let mut replay = Replay {
        policy,
        choice: NetworkPolicy::new(policy.choice),
        networks: Vec::new(),
        power: PowerSupply::Mains,
        table: Table::default(),
        decisions: Decisions::default(),
        usages: Usages::default(),
        seed,
    };
    let mut last = Duration::ZERO;
    for (number, record) in (1..).zip(trace) {
        if record.at < last {
            return Err(ReplayError::OutOfOrder { number });
        }
        last = record.at;
        replay.let_pass(Timestamp::ZERO + record.at);
        match &record.event {
            TraceEvent::Networks { networks, power } => replay.on_networks(record.at, networks, *power),
            TraceEvent::Flow(flow) => replay.on_flow(flow),
        }
    }
    Ok(replay.decisions)
}

struct Replay<'a> {
    policy: &'a PolicySet,
    choice: NetworkPolicy,
    networks: Vec<NetworkInput>,
    power: PowerSupply,
    table: Table,
    decisions: Decisions,
    usages: Usages,
    seed: u64,
}

impl Replay<'_> {
    /// Evaluates as a daemon does while nothing changes; after a few times nothing more can come of it.
    fn let_pass(&mut self, until: Timestamp) {
        for _ in 0..=self.policy.choice.agreement {
            let due = self.choice.next_evaluation();
            if due >= until || self.networks.is_empty() {
                return;
            }
            self.evaluate(due);
        }
    }

    fn on_networks(&mut self, at: Duration, networks: &[NetworkInput], power: PowerSupply) {
        self.networks = networks.to_vec();
        for network in &mut self.networks {
            if let Some(preference) = self.policy.preferences.get(&network.name) {
                network.preference = *preference;
            }
            self.usages.take(&network.name, network.cap.map(|cap| cap.used));
            if let Some(costs) = self.policy.costs.get(&network.name) {
                (network.power, network.price) = (costs.power, costs.price);
            }
        }
        self.power = power;
        self.evaluate(Timestamp::ZERO + at);
    }

    fn evaluate(&mut self, now: Timestamp) {
        for network in &mut self.networks {
            if let Some(costs) = self.policy.costs.get(&network.name) {
                network.cap = costs.cap.map(|cap| cap.report(self.usages.of(&network.name)));
            }
        }
        let before = self.table.preferred();
        self.table = self.choice.evaluate(now, &self.networks, self.power);
        let changed = before.is_some() && before != self.table.preferred();
        self.decisions.preferred_changes += u32::from(changed);
    }

    fn on_flow(&mut self, flow: &TraceFlow) {
        let domains: Vec<&str> = flow.domains.iter().map(String::as_str).collect();
        let facts = facts(flow, &domains);
        let matched = self.policy.rules.decide(&facts).map(|(_, rule)| rule);
        let class = if facts.is_real_time() { FlowClass::RealTime } else { flow.class };
        let wanted = matched.and_then(|rule| rule.treatment()).unwrap_or(self.policy.treatment);
        let treatment =
            if wanted.needs_gateway() && !self.policy.gateway { Treatment::Direct } else { wanted };
        let listed = matched.and_then(|rule| rule.networks());
        let ids = listed.map(|choice| choice.resolve(|name| self.id_of(name))).unwrap_or_default();
        let wish = match listed.map(|choice| choice.strictness) {
            None => Wish::Any,
            Some(Strictness::Only) => Wish::Only(&ids),
            Some(Strictness::Prefer) => Wish::Prefer(&ids),
        };
        let draw = mix(self.seed ^ mix(flow.id));
        let (over, why) = match assign(NewFlow { class, wish }, &self.table, draw) {
            Err(error) => (Over::Nothing, error.to_string()),
            Ok(_) if treatment.needs_gateway() => (Over::Bond, "packet by packet".to_owned()),
            Ok(assignment) => {
                if flow.class == FlowClass::Bulk {
                    self.table.join(assignment.network);
                }
                (self.carry(assignment.network, flow.bytes), assignment.to_string())
            }
        };
        let rule = matched.map(|rule| rule.key().to_owned());
        self.decisions.flows.push(FlowDecision {
            flow: flow.id,
            bytes: flow.bytes,
            treatment,
            over,
            rule,
            why,
        });
    }

    fn carry(&mut self, id: NetworkId, bytes: Bytes) -> Over {
        let Some(network) = self.networks.iter().find(|network| network.id == id) else {
            return Over::Nothing;
        };
        let carried = self.decisions.networks.entry(network.name.clone()).or_default();
        self.usages.add(&network.name, bytes);
        carried.flows += 1;
        carried.bytes = Bytes(carried.bytes.0.saturating_add(bytes.0));
        carried.price = carried.price.saturating_add(price(bytes, network.price.unwrap_or_default()));
        Over::Network(network.name.clone())
    }

    fn id_of(&self, name: &str) -> Option<NetworkId> {
        self.networks.iter().find(|network| network.name == name).map(|network| network.id)
    }
}

fn facts<'a>(flow: &'a TraceFlow, domains: &'a [&'a str]) -> FlowFacts<'a> {
    FlowFacts {
        program: flow.program.as_deref(),
        cgroup: flow.cgroup.as_deref(),
        user: flow.user.map(UserId),
        destination: flow.destination,
        domains,
        protocol: Protocol(flow.protocol),
        port: flow.port,
        dscp: Dscp::try_from(flow.dscp).unwrap_or_default(),
        class: Some(flow.class),
    }
}

/// In thousandths of the currency unit, rounded down.
fn price(bytes: Bytes, price: Price) -> u64 {
    const GIGABYTE: u128 = 1_000_000_000;
    u64::try_from(u128::from(bytes.0) * u128::from(price.0) / GIGABYTE).unwrap_or(u64::MAX)
}

/// Spreads a number evenly over all 64 bits (the finaliser of a SplitMix generator; Steele, Lea, Flood, OOPSLA 2014).
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

impl fmt::Display for Over {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(name) => formatter.write_str(name),
            Self::Bond => formatter.write_str("the bond"),
            Self::Nothing => formatter.write_str("nothing"),
        }
    }
}

#[cfg(test)]
mod tests;
