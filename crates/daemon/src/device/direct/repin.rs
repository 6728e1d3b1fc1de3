//! Destinations that refuse the gateway's address are led out directly, where the user wants that.
//!
//! What comes of connections through the gateway the packet loop sees; what comes of direct ones is read from the kernel's connection
//! tracking once a second while somebody is suspected. [`policy::refusal`] concludes.

use std::collections::{BTreeSet, HashSet};
use std::net::IpAddr;
use std::time::Duration;

use linux::direct::network_of;
use linux::netlink::conntrack::{Conntrack, Entry, TcpState, Tuple};
use linux::prefix::IpPrefix;
use policy::Treatment;
use policy::refusal::{Advice, Outcome, RefusalDetector, RefusalSettings, Route};
use policy::rules::{Matcher, Rule};
use tracing::{debug, info};
use units::Timestamp;

/// Watches connections and keeps the rule.
pub struct Repin {
    detector: RefusalDetector,
    conntrack: Option<Conntrack>,
    judged: HashSet<Tuple>,
    suspects: BTreeSet<IpAddr>,
    rule: Option<Rule>,
    due: Timestamp,
}

impl Repin {
    /// Suspects nobody yet.
    pub fn new() -> Self {
        Self {
            detector: RefusalDetector::new(RefusalSettings::default()),
            conntrack: None,
            judged: HashSet::new(),
            suspects: BTreeSet::new(),
            rule: None,
            due: Timestamp::ZERO,
        }
    }

    /// When to look again.
    pub fn due(&self) -> Timestamp {
        self.due
    }

    /// The rule for the destinations that refuse the gateway, if there are any.
    pub fn rule(&self) -> Option<&Rule> {
        self.rule.as_ref()
    }

    /// Looks at the connections of programs, which have any0's `addresses`, if it is time.
    pub fn advance(&mut self, now: Timestamp, addresses: &[IpAddr]) {
        if now < self.due {
            return;
        }
        self.due = now + INTERVAL;
        if !self.suspects.is_empty() {
            self.look_at_direct_ones(now, addresses);
        }
        self.suspects.retain(|suspect| self.detector.advice(now, *suspect) != Advice::Unknown);
        let destinations = self.suspects.iter().take(Rule::MOST_MATCHERS);
        let destinations: Vec<Matcher> =
            destinations.map(|address| Matcher::Destination(IpPrefix::host(*address))).collect();
        self.rule = (!destinations.is_empty())
            .then(|| Rule::new(NAME, destinations, Some(Treatment::Direct), None).ok())
            .flatten();
    }

    /// What came of a connection through the gateway.
    pub fn on_opened(&mut self, now: Timestamp, destination: IpAddr, outcome: Outcome) {
        self.conclude(now, destination, Route::Gateway, outcome);
        self.due = now;
    }

    fn look_at_direct_ones(&mut self, now: Timestamp, addresses: &[IpAddr]) {
        if self.judged.len() > MAXIMUM_CONNECTIONS {
            self.judged.clear();
        }
        for (entry, outcome) in self.outcomes(addresses) {
            let destination = entry.original.destination;
            if self.suspects.contains(&destination) && self.judged.insert(entry.original) {
                self.conclude(now, destination, Route::Direct, outcome);
            }
        }
    }

    fn conclude(&mut self, now: Timestamp, destination: IpAddr, route: Route, outcome: Outcome) {
        let before = self.detector.advice(now, destination);
        let advice = self.detector.on_outcome(now, destination, route, outcome);
        match advice {
            Advice::Unknown => self.suspects.remove(&destination),
            Advice::Try | Advice::Direct { .. } => self.suspects.insert(destination),
        };
        if before != advice {
            info!("{destination}: {outcome:?} by {route:?}, {advice:?}");
        }
    }

    fn outcomes(&mut self, addresses: &[IpAddr]) -> Vec<(Entry, Outcome)> {
        if self.conntrack.is_none() {
            self.conntrack =
                Conntrack::open().inspect_err(|error| debug!("no connection tracking: {error}")).ok();
        }
        let Some(conntrack) = &mut self.conntrack else { return Vec::new() };
        let mut found = Vec::new();
        let listed = conntrack.for_each(None, |entry| {
            let direct = network_of(entry.mark).is_some() && addresses.contains(&entry.original.source);
            if direct
                && found.len() < MAXIMUM_CONNECTIONS
                && let Some(outcome) = outcome(entry)
            {
                found.push((*entry, outcome));
            }
        });
        if let Err(error) = listed {
            debug!("connections cannot be listed: {error}");
        }
        found
    }
}

/// What came of a connection so far, if that shows: one that is reset at once is forgotten at once.
fn outcome(entry: &Entry) -> Option<Outcome> {
    match entry.tcp_state? {
        TcpState::Established => Some(Outcome::Connected),
        TcpState::SynSent if entry.timeout? < SYN_LIFETIME - PATIENCE => Some(Outcome::Silent),
        _ => None,
    }
}

/// What `anabranch rules` and `explain` call it.
const NAME: &str = "refuses the gateway";
const INTERVAL: Duration = Duration::from_secs(1);
const MAXIMUM_CONNECTIONS: usize = 16_384;
/// How long the kernel remembers a SYN without an answer (`nf_conntrack_tcp_timeout_syn_sent`, its default).
const SYN_LIFETIME: Duration = Duration::from_secs(120);
/// Silence for this long is an answer too.
const PATIENCE: Duration = Duration::from_secs(6);
