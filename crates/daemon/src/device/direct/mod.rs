//! Direct mode: which network each flow takes that does not go through the gateway.
//!
//! A thread of its own keeps the kernel's table as the policy wants it. It hears of networks from the loop, judges them
//! again when something happens and, while there is a choice, every 250 ms, and asks root for a new table only if something in it is
//! different. Packets never wait for it.

mod adopting;
mod caps;
mod challenge;
mod closing;
mod explain;
mod flows;
mod following;
mod learning;
mod links;
mod metrics;
mod mptcp;
pub mod name_proxy;
mod names;
mod observations;
pub mod peer_names;
mod plan;
pub(crate) mod probe;
mod reach;
mod record;
mod repin;
mod reweigh;
mod rules;
mod running;
mod sampler;
mod silence;
mod translation;
mod ways;

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anabranch::control::EventKind;
use linux::cgroup::Hierarchy;
use linux::clock;
use linux::direct::{Direct, Exit, FlowRule, Outcome, Stay};
use linux::mptcp::Paths;
use linux::netlink::conntrack::Tuple;
use linux::poll::Waker;
use linux::prefix::IpPrefix;
use linux::tun::Reserved;
use policy::network::NetworkInput;
use policy::refusal;
use policy::rules::{DomainPattern, Dscp, FlowFacts, Matcher, ProgramPattern, Protocol, Rule, Rules};
use policy::{ChoiceSettings, NetworkPolicy, Table, Treatment};
use tracing::{debug, info, warn};
use units::{NetworkId, Timestamp};
use wire::translation::Prefix;

use super::event_loop::Wanted;
use super::messages::PointAdvice;
use super::networks::Network;
use crate::config::{Config, DeviceConfig};
use crate::control::EventLog;
use crate::mailbox::Mailbox;
use crate::supervision::{Answer as RootAnswer, Request, Root};
use following::Following;
use learning::{Found, Learning, Purpose};
use names::{Lesson, Names};
pub(crate) use reach::Outcome as ProbeOutcome;
use repin::Repin;
use translation::Translations;
use ways::{Place, Ways};

pub use explain::explain;
pub use flows::Sampler;
pub use observations::{Answer, Board, Observations};
pub use plan::plan;
pub use record::{Known, Recorder, Stage};
pub use running::{HeldFlows, NewRule, Picture, Question};
pub use translation::reserve;

/// To the thread.
#[derive(Debug)]
pub enum Message {
    /// The networks are these now, those that are gone included.
    Networks(Vec<Network>),
    /// A network has, or has no, NAT64.
    Nat64(NetworkId, Option<Prefix>),
    /// Destinations with routes of their own.
    Near(Vec<IpPrefix>),
    /// Whether this machine sends packets of others on.
    Forwarding(bool),
    /// What the radio advises about its networks.
    Advice(Vec<PointAdvice>),
    /// The gateway does not answer over this network any more.
    Silent(NetworkId),
    /// A name was looked up; answered once the kernel knows.
    Learned(Lesson, SyncSender<()>),
    /// A server or a program was asked about networks.
    Observed(Answer),
    /// A connection through the gateway was opened, or was not.
    Opened(IpAddr, refusal::Outcome),
    /// any0 has these addresses and traffic leads to it.
    Captured(Vec<IpAddr>),
    /// Somebody asks something over the control socket.
    Ask(Question),
}

/// The thread's state.
pub struct DirectControl {
    config: DeviceConfig,
    has_gateway: bool,
    treatments: Wanted,
    /// Flows that got another treatment while they ran.
    treated: HashMap<Tuple, Treatment>,
    root: Arc<Root>,
    events: Arc<EventLog>,
    policy: NetworkPolicy,
    observations: Observations,
    /// What the policy judged last, and how often in a row it was this.
    judged: Vec<NetworkInput>,
    alike: u8,
    networks: Vec<Network>,
    numbers: plan::Numbers,
    addresses: Vec<IpAddr>,
    near: Vec<IpPrefix>,
    forwarding: bool,
    /// Addresses of any0 that neighbours know.
    neighbourly: Vec<IpAddr>,
    rules: Vec<Rule>,
    run_time: running::RunTime,
    /// `None` where the user does not want it.
    repin: Option<Repin>,
    names: Names,
    translations: Translations,
    learning: Learning,
    following: Following,
    warned: BTreeSet<String>,
    table: Table,
    /// Where a recorder finds what is known; `None` without one.
    stage: Option<Stage>,
    applied: Option<Direct>,
    /// Networks that are there but dead, whose flows were ended.
    ended: BTreeSet<NetworkId>,
    /// What the radio says of its access points.
    advice: Vec<PointAdvice>,
    /// A program has asked for MPTCP since the start.
    over_mptcp: bool,
    /// What the kernel has for it, or has refused.
    paths: Option<Paths>,
    /// When to try again what it has refused.
    paths_again: Option<Timestamp>,
    /// What networks were seen to do to it, and when to look again.
    ways: Ways,
    /// What MPTCP's networks were set up without.
    lack: Option<String>,
    /// What marks that are safe follow from.
    empty: mptcp::EmptyRoundTrips,
    ways_due: Timestamp,
    challenges: challenge::Challenges,
    retry_at: Option<Timestamp>,
    /// Why flows cannot be led out, as it was told.
    failing: Option<String>,
}

impl DirectControl {
    /// Knows of no network yet.
    pub fn new(
        config: &Config,
        has_gateway: bool,
        treatments: Wanted,
        root: Arc<Root>,
        events: Arc<EventLog>,
        observations: Observations,
        neighbourly: Vec<IpAddr>,
    ) -> Self {
        let settings = ChoiceSettings {
            split: config.device.split,
            real_time_on_best: config.device.real_time_on_best,
            least_energy_below: config.device.power_saving_below,
            cheapest_adapter_below: config.device.cheapest_below,
            ..ChoiceSettings::default()
        };
        Self {
            config: config.device.clone(),
            has_gateway,
            treatments,
            treated: HashMap::new(),
            root,
            events,
            policy: NetworkPolicy::new(settings),
            observations,
            judged: Vec::new(),
            alike: 0,
            networks: Vec::new(),
            numbers: plan::Numbers::default(),
            addresses: Vec::new(),
            near: Vec::new(),
            forwarding: true,
            neighbourly,
            rules: config.rules.clone(),
            run_time: running::RunTime::default(),
            repin: (has_gateway && config.device.auto_direct).then(Repin::new),
            names: Names::default(),
            learning: Learning::default(),
            following: Following::default(),
            translations: Translations::new(&config.device.interface, config.device.table),
            warned: BTreeSet::new(),
            table: Table::default(),
            stage: None,
            applied: None,
            ended: BTreeSet::new(),
            advice: Vec::new(),
            over_mptcp: false,
            ways: Ways::default(),
            lack: None,
            empty: mptcp::EmptyRoundTrips::default(),
            ways_due: Timestamp::ZERO,
            challenges: challenge::Challenges::default(),
            paths: None,
            paths_again: None,
            retry_at: None,
            failing: None,
        }
    }

    /// With interfaces for translators of IPv4, opened before; without, networks with a NAT64 carry no IPv4.
    pub fn with_translators(mut self, reserved: Vec<Reserved>) -> Self {
        self.translations.reserve(reserved);
        self
    }

    /// Leaves what it knows on `stage` for a recorder.
    pub fn on_stage(self, stage: Option<Stage>) -> Self {
        Self { stage, ..self }
    }

    /// Works until the daemon ends.
    pub fn run(mut self, messages: &Receiver<Message>, waker: &Waker) {
        // The bell of the mailbox is for pollers; this thread waits in the channel itself.
        loop {
            let message = match self.wait_until() {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => messages.recv_timeout(at.since(clock::now())),
            };
            waker.reset();
            match message {
                Ok(message) => self.hear(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            while let Ok(message) = messages.try_recv() {
                self.hear(message);
            }
            self.sweep(clock::now());
            self.learn(clock::now());
            self.follow(clock::now());
            self.watch_ways(clock::now());
            self.challenges.advance(clock::now(), challenge::say);
            // First what has happened, which may be the loss of a network; looking closer takes time.
            self.judge(clock::now());
            if self.observe(clock::now()) {
                self.judge(clock::now());
            }
        }
    }

    /// Has pins follow their names.
    fn follow(&mut self, now: Timestamp) {
        for (name, addresses) in self.following.advance(now, &self.run_time.pinned_names()) {
            self.run_time.set_addresses(&name, &addresses);
        }
    }

    /// Learns what flows are, if that is of use; bonded ones may be treated otherwise from now on.
    fn learn(&mut self, now: Timestamp) {
        let Some(purpose) = self.learns().filter(|_| !self.addresses.is_empty()) else { return };
        for found in self.learning.advance(now, &self.addresses, purpose) {
            if found.stays
                && let Some(treatment) = self.treatment_of(&found)
            {
                self.treatments.change(&found.flow, treatment);
                if self.treated.len() >= MOST_TREATED {
                    self.treated.clear();
                }
                self.treated.insert(found.flow, treatment);
            }
        }
    }

    /// What for, if a rule asks for classes, or real-time flows that are led out have a choice and there may be some.
    fn learns(&self) -> Option<Purpose> {
        if learning::is_wanted(self.run_time.rules().chain(&self.rules)) {
            return Some(Purpose::Rules);
        }
        let leads_out = !self.has_gateway || self.config.default_treatment == Treatment::Direct;
        let has_choice = leads_out && self.table.for_calls.len() > 1;
        (has_choice && self.observations.moves()).then_some(Purpose::RealTime)
    }

    /// What a rule by class says of a flow that runs over the gateway. Whose it is is not known here.
    fn treatment_of(&self, found: &Found) -> Option<Treatment> {
        let far = found.flow.destination_socket();
        let names = self.names.addresses().iter();
        let names: Vec<&str> =
            names.filter(|(_, all)| all.contains(&far.ip())).map(|(name, _)| name.as_str()).collect();
        let facts = FlowFacts {
            program: None,
            cgroup: None,
            user: None,
            destination: far.ip(),
            domains: &names,
            protocol: Protocol(found.flow.protocol),
            port: far.port(),
            dscp: Dscp::default(),
            class: Some(found.class),
        };
        let rule = self.run_time.rules().chain(&self.rules).find(|rule| rule.matches(&facts))?;
        let by_class = rule.matchers().iter().any(|matcher| matches!(matcher, Matcher::Class(_)));
        let treatment = if by_class { rule.treatment()? } else { return None };
        (treatment.needs_gateway() && self.has_gateway).then_some(treatment)
    }

    /// Looks closer at the networks if it is time; says whether it did.
    fn observe(&mut self, now: Timestamp) -> bool {
        let is_due = !self.addresses.is_empty() && now >= self.observations.due();
        if is_due {
            let forwarding = self.forwarding.then_some(&self.addresses[..]);
            self.observations.advance(now, &self.networks, &self.numbers, forwarding);
        }
        is_due
    }

    fn hear(&mut self, message: Message) {
        match message {
            Message::Networks(networks) => {
                self.networks = networks;
                let place =
                    |network: &Network| Place::of(&network.interface).map(|place| (network.id, place));
                self.ways.follow(clock::now(), &self.networks.iter().filter_map(place).collect());
                self.observations.on_networks(clock::now(), &self.networks);
                self.warn_of_conflicts();
            }
            Message::Nat64(network, prefix) => self.translations.learn(network, prefix),
            Message::Near(near) => self.near = near,
            Message::Forwarding(forwarding) => self.forwarding = forwarding,
            Message::Advice(advice) => self.advice = advice,
            Message::Silent(network) => self.observations.doubt(clock::now(), network),
            Message::Learned(lesson, done) => {
                if self.names.learn(clock::now(), &lesson) {
                    self.judge(clock::now());
                }
                // The asker may have given up.
                let _ = done.try_send(());
            }
            Message::Observed(answer) => self.observations.hear(clock::now(), answer, &self.networks),
            Message::Opened(destination, outcome) => {
                if let Some(repin) = &mut self.repin {
                    repin.on_opened(clock::now(), destination, outcome);
                }
            }
            Message::Captured(addresses) => self.addresses = addresses,
            Message::Ask(question) => self.answer(question),
        }
    }

    /// Tells once for each set of networks what is wrong with the rules.
    fn warn_of_conflicts(&mut self) {
        let names: Vec<&str> = self.networks.iter().map(|network| network.interface.name.as_str()).collect();
        let Ok(rules) = Rules::new(self.rules.clone()) else { return };
        let conflicts =
            rules.conflicts(&names, self.has_gateway).into_iter().map(|conflict| conflict.to_string());
        let warnings: BTreeSet<String> = conflicts
            .chain(self.rules.iter().filter_map(rules::unkernelled))
            .chain(self.ungrouped())
            .collect();
        for text in warnings.difference(&self.warned) {
            self.events.push(EventKind::Warning, None, text.clone());
        }
        self.warned = warnings;
    }

    /// Rules by control group where there are none.
    fn ungrouped(&self) -> Option<String> {
        let by_group = |rule: &&Rule| {
            let group = |matcher: &Matcher| matches!(matcher, Matcher::Program(ProgramPattern::Cgroup(_)));
            rule.matchers().iter().any(group)
        };
        let keys: Vec<&str> = self.rules.iter().filter(by_group).map(Rule::key).collect();
        let error = Hierarchy::find().err().filter(|_| !keys.is_empty())?;
        Some(format!("rules by program ({}) match no flow, all others hold: {error}", keys.join(", ")))
    }

    /// When to judge again by itself; `None` to wait for news.
    fn wait_until(&self) -> Option<Timestamp> {
        let undecided = self.networks.iter().filter(|network| network.connected).count() > 1;
        let captured = !self.addresses.is_empty();
        let unsettled = undecided && captured && self.alike < SETTLED;
        let evaluation = unsettled.then(|| self.policy.next_evaluation());
        let observation = captured.then(|| self.observations.due());
        let repin = self.repin.as_ref().filter(|_| captured).map(Repin::due);
        let following = self.run_time.pins_names().then(|| self.following.due());
        let learning = self.learns().filter(|_| captured).map(|purpose| self.learning.due_for(purpose));
        let ways = self.paths.is_some().then_some(self.ways_due);
        let paths = self.paths_again.filter(|_| captured && self.retry_at.is_none());
        let challenge = self.challenges.due();
        [
            evaluation,
            observation,
            repin,
            learning,
            following,
            ways,
            challenge,
            self.retry_at,
            paths,
            self.run_time.next_sweep(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    fn judge(&mut self, now: Timestamp) {
        if self.addresses.is_empty() {
            return;
        }
        self.names.expire(now);
        if let Some(repin) = &mut self.repin {
            repin.advance(now, &self.addresses);
        }
        self.numbers.assign(&self.networks);
        self.translate();
        let mut inputs: Vec<NetworkInput> =
            self.networks.iter().map(|network| self.observations.input(network)).collect();
        for input in &mut inputs {
            input.spared = self.advice.iter().any(|point| point.interface == input.name && !point.used);
        }
        let counts = now >= self.policy.next_evaluation();
        let fresh = self.policy.evaluate(now, &inputs, self.observations.power());
        self.table = reweigh::steadied(fresh, &self.table);
        self.alike = if self.judged == inputs { self.alike.saturating_add(counts.into()) } else { 0 };
        self.judged = inputs;
        let names = self.run_time.with_names(self.names.addresses());
        let translations = self.translations.active();
        let scene = rules::Scene {
            has_gateway: self.has_gateway,
            default: self.config.default_treatment,
            networks: &self.networks,
            table: &self.table,
            numbers: &self.numbers,
            translations: &translations,
            services: self.learning.services(),
            names: &names,
        };
        let refusing = self.repin.as_ref().and_then(Repin::rule);
        let rules: Vec<&Rule> = self.run_time.rules().chain(&self.rules).chain(refusing).collect();
        let wanted = plan::direct(
            &self.config,
            &self.addresses,
            &self.near,
            &self.neighbourly,
            self.forwarding,
            &rules,
            &scene,
        );
        let waits = self.retry_at.is_some_and(|at| now < at);
        self.over_mptcp |= mptcp::is_wanted(rules.iter().copied());
        self.empty.observe(now, &self.judged);
        let marks = mptcp::marks(&self.advice, &self.judged, &self.empty);
        let paths = self
            .over_mptcp
            .then(|| mptcp::paths(self.config.table, &scene, &self.advice, &marks, &self.ways, now));
        let wanted = Direct { ecn: self.over_mptcp && self.advice.len() > 1, ..wanted };
        if self.applied.as_ref() == Some(&wanted) {
            // What could not be done is not wanted any more.
            self.retry_at = None;
        } else if !waits {
            self.apply(now, wanted);
        }
        self.close_dead();
        let again = self.paths_again.is_some_and(|at| now >= at);
        // Not while networks have no routes of their own.
        if let Some(paths) = paths.filter(|_| self.retry_at.is_none())
            && (again || self.paths.as_ref() != Some(&paths))
        {
            self.apply_paths(now, paths);
        }
        // Only now: what is told is what holds.
        self.observations.publish(&self.judged, &self.table);
        if let Some(stage) = &self.stage {
            *stage.lock().unwrap_or_else(PoisonError::into_inner) = self.known();
        }
    }

    /// What a recorder is to know.
    fn known(&self) -> Known {
        let own = self.networks.iter().flat_map(|network| &network.interface.addresses);
        let own = own.map(|subnet| subnet.address()).chain(self.addresses.iter().copied());
        Known {
            networks: self.judged.clone(),
            power: self.observations.power(),
            scene: record::Scene {
                any0: self.addresses.clone(),
                own: own.collect(),
                names: self.run_time.with_names(self.names.addresses()).into_owned(),
            },
        }
    }

    /// Has translators ready for the networks that need one.
    fn translate(&mut self) {
        for interface in self.translations.advance(&self.networks, &self.numbers) {
            // Answers come in where no route leads back to their sender.
            if let Err(error) = self.root.ask(&Request::LetIn { interface: interface.clone() }) {
                warn!("answers may be dropped on {interface}: {error}");
            }
        }
    }

    fn apply(&mut self, now: Timestamp, wanted: Direct) {
        self.retry_at = None;
        match self.root.ask_for(&Request::Direct(Box::new(wanted.clone()))) {
            Ok(answer) => {
                self.failing = None;
                if let RootAnswer::DoneWithout { what } = answer {
                    self.events.push(EventKind::Warning, None, what);
                }
                debug!("new flows have a new table after {} ms", clock::now().since(now).as_millis());
                let treated =
                    |rule: &FlowRule| matches!(rule.outcome, Outcome::Stay(stay) if stay != Stay::Default);
                self.treatments.set(wanted.rules.iter().any(treated));
                // The journal knows of marks by now.
                self.adopt(&wanted);
                let before = self.applied.replace(wanted);
                self.close_lost(before.as_ref());
            }
            Err(error) => {
                let text = format!("flows cannot be led out directly: {error}");
                if self.failing.as_ref() != Some(&text) {
                    self.events.push(EventKind::Warning, None, text.clone());
                    self.failing = Some(text);
                }
                self.retry_at = Some(now + RETRY_PAUSE);
            }
        }
    }

    /// Flows of networks that come go on by them.
    fn adopt(&self, wanted: &Direct) {
        let is_new = |exit: &Exit| {
            let mut before = self.applied.iter().flat_map(|applied| &applied.exits);
            !before.any(|known| known.number == exit.number && known.subnets == exit.subnets)
        };
        match adopting::adopt_flows(wanted, is_new) {
            Ok(0) => {}
            Ok(count) => info!("{count} flows of earlier go on by their networks"),
            Err(error) => debug!("flows of earlier are left to the routes: {error}"),
        }
    }

    /// Looks what becomes of MPTCP on the way, if it is time.
    fn watch_ways(&mut self, now: Timestamp) {
        if self.paths.is_none() || now < self.ways_due {
            return;
        }
        self.ways_due = now + WAYS_INTERVAL;
        let counts = match self.root.ask_for(&Request::MptcpCounts) {
            Ok(RootAnswer::MptcpCounts { counts }) => counts,
            Ok(_) => return,
            Err(error) => {
                debug!("what networks do to MPTCP: {error}");
                return;
            }
        };
        for network in &self.networks {
            let number = self.numbers.of(network.id);
            let Some((_, counts)) = counts.iter().find(|(counted, _)| Some(*counted) == number) else {
                continue;
            };
            let paths = self.paths.iter().flat_map(|paths| &paths.networks);
            let marked = paths.filter(|path| Some(path.number) == number).any(|path| path.marks > 0);
            let advice = self.advice.iter().find(|point| point.interface == network.interface.name);
            let renewals = advice.map(|point| point.renewals);
            if let Some(finding) = self.ways.take(now, network.id, *counts, marked, renewals) {
                self.events.push(
                    EventKind::Warning,
                    Some(&network.interface.name),
                    finding.text().to_owned(),
                );
            }
        }
    }

    /// What is lacking then is tried again after a while: others may have made room.
    fn apply_paths(&mut self, now: Timestamp, paths: Paths) {
        let lack = match self.root.ask_for(&Request::Mptcp(paths.clone())) {
            Ok(RootAnswer::DoneWithout { what }) => Some(what),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        // Marks change often; what they do not change is told once.
        if let Some(lack) = lack.as_ref().filter(|lack| self.lack.as_ref() != Some(lack)) {
            self.events.push(EventKind::Warning, None, lack.clone());
        }
        if !self.paths.as_ref().is_some_and(|before| before.is_watched_as(&paths)) {
            self.ways.count_anew();
        }
        self.paths_again = lack.is_some().then(|| now + PATHS_PAUSE);
        self.lack = lack;
        self.paths = Some(paths);
    }

    /// Ends the flows of networks that are there but lead nowhere any more, while another one leads somewhere. Once: what is held to
    /// them by a rule may try them again.
    fn close_dead(&mut self) {
        self.ended.retain(|id| self.observations.is_dead(*id));
        // New flows must have another network first.
        let Some(applied) = self.applied.as_ref().filter(|_| self.retry_at.is_none()) else { return };
        for network in self.networks.iter().filter(|network| network.connected) {
            let Some(number) = self.numbers.of(network.id) else { continue };
            let Some(exit) = applied.exits.iter().find(|exit| exit.number == number) else { continue };
            if !self.observations.is_dead(network.id) || !self.ended.insert(network.id) {
                continue;
            }
            let name = &network.interface.name;
            match closing::close_flows(exit, &own_addresses(applied)) {
                Ok(closed) => {
                    info!("nothing answers beyond {name}: {closed}");
                    self.challenges.add(clock::now(), closed.behind);
                }
                Err(error) => warn!("connections over {name} wait for their time-outs: {error}"),
            }
        }
    }

    /// Ends the flows of networks that were there in `before` and are gone.
    fn close_lost(&mut self, before: Option<&Direct>) {
        let (Some(before), Some(now)) = (before, &self.applied) else { return };
        for lost in before.exits.iter().filter(|exit| exit.index.is_some()) {
            if now.exits.iter().any(|exit| exit.number == lost.number && exit.index == lost.index) {
                continue;
            }
            match closing::close_flows(lost, &own_addresses(before)) {
                Ok(closed) => {
                    info!("{} is gone: {closed}", lost.interface);
                    self.challenges.add(clock::now(), closed.behind);
                }
                Err(error) => warn!("connections over {} wait for their time-outs: {error}", lost.interface),
            }
        }
    }
}

/// This machine's: any0's and those of its networks.
fn own_addresses(direct: &Direct) -> Vec<IpAddr> {
    let networks = direct.exits.iter().flat_map(|exit| &exit.subnets).map(|subnet| subnet.address());
    direct.addresses.iter().copied().chain(networks).collect()
}

/// The patterns of names that rules speak of.
pub fn patterns(rules: &[Rule]) -> Vec<DomainPattern> {
    let domain = |matcher: &Matcher| match matcher {
        Matcher::Domain(pattern) => Some(pattern.clone()),
        _ => None,
    };
    rules.iter().flat_map(Rule::matchers).filter_map(domain).collect()
}

/// Hands what concerns a rule to the thread, and waits until the kernel knows.
pub fn learner(patterns: Vec<DomainPattern>, choices: Mailbox<Message>) -> name_proxy::Learn {
    Arc::new(move |lesson| {
        let (done, wait) = sync_channel(1);
        let concerns = patterns.iter().any(|pattern| pattern.matches(&lesson.name));
        if concerns && choices.post(Message::Learned(lesson, done)) {
            // Late knowledge is better than no answer.
            let _ = wait.recv_timeout(LEARNING_TIME);
        }
    })
}

/// Judgements of the same after which hysteresis has nothing left to decide.
const SETTLED: u8 = 4;
/// Flows whose change of treatment is remembered; then it begins anew.
const MOST_TREATED: usize = 4_096;
/// nft may be busy, or be installed by then.
const LEARNING_TIME: Duration = Duration::from_millis(500);
/// How often it is looked what networks do to MPTCP.
const WAYS_INTERVAL: Duration = Duration::from_secs(10);
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Until networks of MPTCP connections are tried again for what was lacking.
const PATHS_PAUSE: Duration = Duration::from_secs(30);
