//! What is wrong between rules, or between rules and the device.

use std::fmt;

use super::{Rule, RuleNumber, Rules, Strictness};
use crate::Treatment;

/// Something that a user should mend. `Display` names the rule, what is wrong and how to mend it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Conflict {
    /// Every flow that the rule could match is taken by an earlier one.
    NeverReached {
        /// The rule, with its key.
        rule: (RuleNumber, String),
        /// The earlier one.
        by: (RuleNumber, String),
    },
    /// The rule names a network that is not known.
    UnknownNetwork {
        /// The rule.
        rule: (RuleNumber, String),
        /// The network's name.
        network: String,
        /// Names that are known.
        known: Vec<String>,
    },
    /// The rule's treatment needs a gateway, and none is set.
    NeedsGateway {
        /// The rule.
        rule: (RuleNumber, String),
        /// Its treatment.
        treatment: Treatment,
    },
    /// The rule wants more than one copy or path and allows one network only.
    OneNetworkOnly {
        /// The rule.
        rule: (RuleNumber, String),
        /// Its treatment.
        treatment: Treatment,
    },
}

impl Rules {
    /// All conflicts, in the order of the rules. `known` are the names of networks that exist or are configured, `gateway` tells
    /// whether one is set.
    ///
    /// None of them keeps the rules from working: a rule with an unknown network waits for it, one that is never reached
    /// does no harm, one that needs a gateway falls back to direct.
    pub fn conflicts(&self, known: &[&str], gateway: bool) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (number, rule) in self.iter() {
            let named = || (number, rule.key().to_owned());
            let earlier = self.iter().take(number.0).find(|(_, earlier)| earlier.covers(rule));
            if let Some((earlier_number, earlier)) = earlier {
                let by = (earlier_number, earlier.key().to_owned());
                conflicts.push(Conflict::NeverReached { rule: named(), by });
            }
            let names = rule.networks().map_or(&[][..], |networks| &networks.names);
            for network in names.iter().filter(|name| !known.contains(&name.as_str())) {
                let known = known.iter().map(|name| (*name).to_owned()).collect();
                conflicts.push(Conflict::UnknownNetwork { rule: named(), network: network.clone(), known });
            }
            let Some(treatment) = rule.treatment() else { continue };
            if treatment.needs_gateway() && !gateway {
                conflicts.push(Conflict::NeedsGateway { rule: named(), treatment });
            }
            let only = rule.networks().is_some_and(|networks| networks.strictness == Strictness::Only);
            let several = matches!(treatment, Treatment::Bonded | Treatment::Duplicated | Treatment::Mptcp);
            if several && only && names.len() == 1 {
                conflicts.push(Conflict::OneNetworkOnly { rule: named(), treatment });
            }
        }
        conflicts
    }
}

impl Rule {
    /// Whether every flow that `later` matches is matched by this rule too. May say no where that is so only because of
    /// several of its matchers together.
    fn covers(&self, later: &Self) -> bool {
        self.kinds().all(|kind| {
            let mut narrower = later.of_kind(kind).peekable();
            narrower.peek().is_some()
                && narrower.all(|narrow| self.of_kind(kind).any(|wide| wide.covers(narrow)))
        })
    }
}

impl fmt::Display for Conflict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverReached { rule: (number, key), by: (earlier, earlier_key) } => write!(
                formatter,
                "{number} ({key}) is never reached: {earlier} ({earlier_key}) takes all its flows; move it before that one"
            ),
            Self::UnknownNetwork { rule: (number, key), network, known } if known.is_empty() => {
                write!(formatter, "{number} ({key}) names network \"{network}\", but no network is known")
            }
            Self::UnknownNetwork { rule: (number, key), network, known } => write!(
                formatter,
                "{number} ({key}) names network \"{network}\", which is not known; known are {}",
                known.join(", ")
            ),
            Self::NeedsGateway { rule: (number, key), treatment } => write!(
                formatter,
                "{number} ({key}) wants its flows {treatment}, which needs a gateway, and none is set: they go direct; join a \
                 gateway with `anabranch join LINK`"
            ),
            Self::OneNetworkOnly { rule: (number, key), treatment } => write!(
                formatter,
                "{number} ({key}) wants its flows {treatment} but allows one network only; name a second one"
            ),
        }
    }
}
