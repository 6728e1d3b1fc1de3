//! What is asked of direct mode while it runs, and the rules that live no longer than a program or the daemon.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use anabranch::control::{Hold, MachineReport, RuleOrigin, RuleReport};
use linux::cgroup::{CgroupPath, Hierarchy};
use linux::clock;
use linux::netlink::conntrack::Tuple;
use linux::prefix::IpPrefix;
use policy::rules::{Matcher, NetworkChoice, ProgramPattern, Rule, Rules, Strictness, UserId};
use policy::services::Services;
use policy::{Table, Treatment};
use tracing::{info, warn};
use units::{NetworkId, Timestamp};

use super::{DirectControl, plan, rules};
use crate::control::{BackendError, Requester};
use crate::device::networks::Network;
use crate::supervision::Request;

/// Something asked over the control socket.
#[derive(Debug)]
pub enum Question {
    /// How things are.
    Picture(SyncSender<Picture>),
    /// The networks as they are judged, and the power.
    Machine(SyncSender<MachineReport>),
    /// Add a rule in front of the configured ones; answered when the kernel has it.
    Add(Box<NewRule>, SyncSender<Result<RuleReport, BackendError>>),
    /// Remove a rule that was pinned.
    Unpin(String, Requester, SyncSender<Result<RuleReport, BackendError>>),
}

/// Direct mode at one time.
#[derive(Clone, Debug)]
pub struct Picture {
    /// Addresses of any0; empty while no traffic is led to it.
    pub addresses: Vec<IpAddr>,
    /// Destinations with routes past any0.
    pub near: Vec<IpPrefix>,
    /// The networks.
    pub networks: Vec<Network>,
    /// Their numbers in marks.
    pub numbers: plan::Numbers,
    /// What the policy decided about them.
    pub table: Table,
    /// All rules, in the order in which they are tried.
    pub rules: Rules,
    /// The same for people.
    pub reports: Vec<RuleReport>,
    /// The treatment of flows of which no rule says one.
    pub default: Treatment,
    /// Flows that got another treatment while they ran.
    pub treated: HashMap<Tuple, Treatment>,
    /// Whether there is a gateway.
    pub has_gateway: bool,
    /// Whether nothing may go past any0.
    pub kill_switch: bool,
    /// Mark of the daemon's own packets.
    pub own_mark: u32,
    /// Networks by which MPTCP does not get through, as far as known.
    pub stripping: Vec<NetworkId>,
    /// Networks that carry IPv4 through a NAT64.
    pub translations: plan::Translated,
    /// Classes of flows, by where they go.
    pub services: Services,
    /// Addresses that names were resolved to.
    pub names: BTreeMap<String, Vec<IpAddr>>,
}

impl Picture {
    /// The network with this name.
    pub fn network(&self, name: &str) -> Option<&Network> {
        self.networks.iter().find(|network| network.interface.name == name)
    }

    /// Looks for what cannot be held to.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] for an unknown network, [`BackendError::BadRequest`] for a treatment that cannot be had.
    pub fn check(&self, hold: &Hold) -> Result<(), BackendError> {
        if hold.networks.len() > MOST_NETWORKS {
            return Err(BackendError::BadRequest(format!("more than {MOST_NETWORKS} networks")));
        }
        if let Some(unknown) = hold.networks.iter().find(|name| self.network(name).is_none()) {
            let known: Vec<&str> =
                self.networks.iter().map(|network| network.interface.name.as_str()).collect();
            return Err(BackendError::NotFound(format!(
                "there is no network called \"{unknown}\"; there are: {}",
                known.join(", ")
            )));
        }
        let refuse = |text: String| Err(BackendError::BadRequest(text));
        match hold.treatment {
            None if hold.networks.is_empty() => refuse("say which network or which treatment".to_owned()),
            Some(Treatment::Mptcp) if !hold.networks.is_empty() => {
                refuse("mptcp flows use all networks: leave the network out".to_owned())
            }
            Some(Treatment::Mptcp) if self.kill_switch => refuse(
                "kill_switch keeps all traffic in the tunnel, and MPTCP goes past it: switch one of them off"
                    .to_owned(),
            ),
            Some(Treatment::Mptcp) => linux::mptcp::why_not().map_or(Ok(()), refuse),
            Some(treatment) if treatment.needs_gateway() && !self.has_gateway => refuse(format!(
                "{treatment} flows need a gateway, and this device uses none: get a join link from yours"
            )),
            Some(treatment) if treatment.needs_gateway() && !hold.networks.is_empty() => {
                refuse(format!("{treatment} flows use all networks: leave the network out"))
            }
            _ => Ok(()),
        }
    }
}

/// A rule to be added.
#[derive(Clone, Debug)]
pub struct NewRule {
    /// For which flows.
    pub flows: HeldFlows,
    /// What they are held to.
    pub hold: Hold,
    /// Who wants it.
    pub by: Requester,
}

/// The flows that a rule made at run time is for.
#[derive(Clone, Debug)]
pub enum HeldFlows {
    /// Those of programs in a control group.
    Group(CgroupPath),
    /// Those to some addresses.
    Destination(IpPrefix),
    /// Those to the addresses of a name.
    Domain {
        /// The pattern that matches it.
        matcher: Matcher,
        /// The name.
        name: String,
        /// The addresses that it has now.
        addresses: Vec<IpAddr>,
    },
}

/// The rules made at run time, and what ends them.
#[derive(Debug, Default)]
pub struct RunTime {
    /// The latest first; those of programs before those of destinations.
    rules: Vec<Made>,
    count: u32,
    sweep_at: Option<Timestamp>,
}

#[derive(Debug)]
struct Made {
    rule: Rule,
    flows: HeldFlows,
    user: u32,
}

impl RunTime {
    /// In the order in which they are tried.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter().map(|made| &made.rule)
    }

    /// When to look for programs that have ended.
    pub fn next_sweep(&self) -> Option<Timestamp> {
        self.sweep_at
    }

    /// `names` and those that were resolved for pins.
    pub fn with_names<'a>(
        &self,
        names: &'a BTreeMap<String, Vec<IpAddr>>,
    ) -> Cow<'a, BTreeMap<String, Vec<IpAddr>>> {
        let mut all = Cow::Borrowed(names);
        for made in &self.rules {
            if let HeldFlows::Domain { name, addresses, .. } = &made.flows {
                let known = all.to_mut().entry(name.clone()).or_default();
                known.extend(addresses);
                known.sort_unstable();
                known.dedup();
            }
        }
        all
    }

    /// The names of pins, each with its addresses.
    pub fn pinned_names(&self) -> BTreeMap<String, Vec<IpAddr>> {
        let of = |made: &Made| match &made.flows {
            HeldFlows::Domain { name, addresses, .. } => Some((name.clone(), addresses.clone())),
            HeldFlows::Group(_) | HeldFlows::Destination(_) => None,
        };
        self.rules.iter().filter_map(of).collect()
    }

    /// Whether a name is pinned.
    pub fn pins_names(&self) -> bool {
        self.rules.iter().any(|made| matches!(made.flows, HeldFlows::Domain { .. }))
    }

    /// A pinned name has these addresses.
    pub fn set_addresses(&mut self, pinned: &str, found: &[IpAddr]) {
        for made in &mut self.rules {
            if let HeldFlows::Domain { name, addresses, .. } = &mut made.flows
                && name == pinned
            {
                *addresses = found.to_vec();
            }
        }
    }

    /// Whether there is no room for one more of this user.
    fn is_full(&self, by: Requester) -> bool {
        let own = self.rules.iter().filter(|made| made.user == by.user).count();
        self.rules.len() >= MOST_RULES || (own >= MOST_OF_USER && !by.controls)
    }

    fn insert(&mut self, new: NewRule, now: Timestamp) -> Result<String, BackendError> {
        let user = new.by.user;
        if self.is_full(new.by) {
            let text =
                "there are too many programs and pins of yours already; \"anabranch unpin\" removes one";
            return Err(BackendError::Conflict(text.to_owned()));
        }
        self.count = self.count.wrapping_add(1);
        let is_run = matches!(new.flows, HeldFlows::Group(_));
        let name = format!("{}-{}", if is_run { "run" } else { "pin" }, self.count);
        let mut matchers = vec![match &new.flows {
            HeldFlows::Group(path) => Matcher::Program(ProgramPattern::Cgroup(path.as_str().to_owned())),
            HeldFlows::Destination(prefix) => Matcher::Destination(*prefix),
            HeldFlows::Domain { matcher, .. } => matcher.clone(),
        }];
        if !new.by.controls && !is_run {
            matchers.push(Matcher::User(UserId(user)));
        }
        let networks = Some(new.hold.networks).filter(|names| !names.is_empty());
        let treatment = new.hold.treatment.or(networks.as_ref().map(|_| Treatment::Direct));
        let networks = networks.map(|names| NetworkChoice { names, strictness: Strictness::Only });
        let rule = Rule::new(name.clone(), matchers, treatment, networks)
            .map_err(|error| BackendError::BadRequest(error.to_string()))?;
        let group = |made: &Made| matches!(made.flows, HeldFlows::Group(_));
        let at = if is_run { 0 } else { self.rules.iter().take_while(|made| group(made)).count() };
        self.rules.insert(at, Made { rule, flows: new.flows, user });
        self.sweep_at = self.sweep_at.or(is_run.then(|| now + SWEEP));
        Ok(name)
    }

    fn remove(&mut self, name: &str) {
        self.rules.retain(|made| made.rule.key() != name);
    }

    fn schedule(&mut self, now: Timestamp) {
        let runs = self.rules.iter().any(|made| matches!(made.flows, HeldFlows::Group(_)));
        self.sweep_at = runs.then(|| now + SWEEP);
    }

    fn reports(&self) -> impl Iterator<Item = RuleReport> {
        self.rules.iter().map(|made| {
            let (origin, remark) = match &made.flows {
                HeldFlows::Group(_) => (RuleOrigin::Run, None),
                HeldFlows::Destination(_) => (RuleOrigin::Pin, None),
                HeldFlows::Domain { addresses, .. } => {
                    let text: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                    (RuleOrigin::Pin, Some(format!("now {}", text.join(", "))))
                }
            };
            let mut report = report(&made.rule, origin);
            report.user = Some(made.user);
            report.remark = remark.or(report.remark);
            report
        })
    }
}

fn report(rule: &Rule, origin: RuleOrigin) -> RuleReport {
    let matchers: Vec<String> =
        rule.matchers().iter().map(|matcher| format!("{} {matcher}", matcher.kind())).collect();
    RuleReport {
        name: rule.key().to_owned(),
        origin,
        matches: if matchers.is_empty() { "every flow".to_owned() } else { matchers.join(", ") },
        decides: rule.to_string(),
        user: None,
        remark: rules::remark(rule),
    }
}

impl DirectControl {
    /// Answers a question. Whoever asked may have gone meanwhile.
    pub(super) fn answer(&mut self, question: Question) {
        match question {
            Question::Picture(reply) => drop(reply.send(self.picture())),
            Question::Machine(reply) => {
                let (networks, power) = (self.judged.clone(), self.observations.power());
                drop(reply.send(MachineReport { networks, power }));
            }
            Question::Add(new, reply) => drop(reply.send(self.add(*new))),
            Question::Unpin(name, by, reply) => drop(reply.send(self.unpin(&name, by))),
        }
    }

    fn picture(&self) -> Picture {
        let rules: Vec<Rule> = self.run_time.rules().chain(&self.rules).take(Rules::MOST).cloned().collect();
        let configured = self.rules.iter().map(|rule| report(rule, RuleOrigin::Configured));
        Picture {
            addresses: self.addresses.clone(),
            near: self.near.clone(),
            networks: self.networks.clone(),
            numbers: self.numbers.clone(),
            table: self.table.clone(),
            rules: Rules::new(rules).unwrap_or_default(),
            reports: self.run_time.reports().chain(configured).collect(),
            default: self.config.default_treatment,
            treated: self.treated.clone(),
            has_gateway: self.has_gateway,
            kill_switch: self.config.kill_switch,
            own_mark: self.config.mark,
            stripping: self.ways.stripping(clock::now()),
            translations: self.translations.active(),
            services: self.learning.services().clone(),
            names: self.run_time.with_names(self.names.addresses()).into_owned(),
        }
    }

    fn add(&mut self, new: NewRule) -> Result<RuleReport, BackendError> {
        self.picture().check(&new.hold)?;
        let now = clock::now();
        if self.run_time.is_full(new.by) && self.run_time.sweep_at.is_some() {
            self.run_time.sweep_at = Some(now);
            self.sweep(now);
        }
        let name = self.run_time.insert(new, now)?;
        self.judge(now);
        if self.applied.is_none() || self.retry_at.is_some() {
            self.run_time.remove(&name);
            let text = if self.addresses.is_empty() {
                "traffic is not led to the interface yet; try again when \"anabranch status\" says up"
            } else {
                "the kernel has not taken the rule; \"anabranch events\" tells why"
            };
            return Err(BackendError::Unavailable(text.to_owned()));
        }
        let report = self.run_time.reports().find(|report| report.name == name);
        report.ok_or_else(|| BackendError::Internal("the rule is gone already".to_owned()))
    }

    fn unpin(&mut self, name: &str, by: Requester) -> Result<RuleReport, BackendError> {
        let found = self.run_time.reports().find(|report| {
            report.name == name
                && report.origin == RuleOrigin::Pin
                && (by.controls || report.user == Some(by.user))
        });
        let found = found.ok_or_else(|| {
            BackendError::NotFound(format!(
                "you have no pin called \"{name}\"; \"anabranch rules\" lists them"
            ))
        })?;
        self.run_time.remove(name);
        self.judge(clock::now());
        Ok(found)
    }

    /// Ends the rules of programs that have ended, and has their control groups removed.
    pub(super) fn sweep(&mut self, now: Timestamp) {
        if self.run_time.sweep_at.is_none_or(|at| now < at) {
            return;
        }
        let Ok(hierarchy) = Hierarchy::find() else { return };
        let mut ended = Vec::new();
        for made in &self.run_time.rules {
            if let HeldFlows::Group(path) = &made.flows
                && !hierarchy.is_populated(path)
            {
                ended.push((made.rule.key().to_owned(), path.clone()));
            }
        }
        for (name, path) in ended {
            self.run_time.remove(&name);
            match self.root.ask(&Request::EndRun { cgroup: path.as_str().to_owned() }) {
                Ok(_) => info!("{name} has ended"),
                Err(error) => warn!("{name} has ended, but its control group stays: {error}"),
            }
        }
        self.run_time.schedule(now);
    }
}

const SWEEP: Duration = Duration::from_secs(2);
/// Most rules made at run time.
const MOST_RULES: usize = 128;
/// Most of them for one user who does not control the daemon.
const MOST_OF_USER: usize = 16;
/// Most networks that one rule names.
const MOST_NETWORKS: usize = 64;
