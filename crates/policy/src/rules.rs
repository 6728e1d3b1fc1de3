//! Rules: what a flow's user wants for it, by program, user, destination, domain, port, DSCP or learned class.
//!
//! The first rule that matches decides. A rule matches a flow if, for each *kind* of matcher that it has, at least one of
//! that kind matches: `ports = 80, 443` means either, `user = 1000` beside it means both. A rule without matchers matches
//! every flow. What is not known of a flow (its program, its domain) matches nothing.
//!
//! Reading rules from text is the configuration's task; here are the typed parts, each with an error that says what is
//! wrong, [`Rules::conflicts`] for what is wrong between rules, and [`Rules::explain`] for "why this network?".

use std::fmt;

use serde::{Deserialize, Serialize};
use units::NetworkId;

use crate::Treatment;

mod conflict;
mod domain;
mod explain;
mod matcher;
mod text;

#[cfg(test)]
mod tests;

pub use conflict::Conflict;
pub use domain::{DomainError, DomainPattern};
pub use explain::{Explanation, Mismatch, Verdict};
pub use matcher::{
    Dscp, DscpError, FlowFacts, Matcher, MatcherKind, PortError, PortPattern, ProgramError, ProgramPattern,
    Protocol, UserId,
};

/// A rule.
#[derive(Clone, PartialEq, Debug)]
pub struct Rule {
    key: String,
    matchers: Vec<Matcher>,
    treatment: Option<Treatment>,
    networks: Option<NetworkChoice>,
}

/// Networks that a rule names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkChoice {
    /// Their names, best first as far as the user cares.
    pub names: Vec<String>,
    /// What happens when none of them can be used.
    pub strictness: Strictness,
}

/// How firmly a rule holds flows to its networks.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strictness {
    /// These networks or none.
    #[default]
    Only,
    /// These while one of them can be used, else any.
    Prefer,
}

/// Why something is no rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RuleError {
    /// Neither treatment nor networks.
    #[error(
        "rule \"{0}\" says neither how to treat a flow nor which networks to use; give it `treat` or `networks`"
    )]
    NothingToDo(String),
    /// A list of networks without any.
    #[error("rule \"{0}\" has an empty list of networks; name at least one, or leave the list out")]
    NoNetworks(String),
    /// More than [`Rule::MOST_MATCHERS`].
    #[error("rule \"{0}\" has more than {most} matchers; split it", most = Rule::MOST_MATCHERS)]
    TooManyMatchers(String),
}

/// Why a list is no list of rules.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RulesError {
    /// More than [`Rules::MOST`].
    #[error("{0} rules are more than the {most} that are allowed", most = Rules::MOST)]
    TooMany(usize),
}

/// Rules in the order in which they are tried.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// The number of a rule in its list, from 0; people see it from 1.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleNumber(pub usize);

impl Rule {
    /// Matchers that a rule may have.
    pub const MOST_MATCHERS: usize = 256;

    /// A rule. `key` is its name in the configuration; messages show it.
    ///
    /// # Errors
    /// [`RuleError`] if it decides nothing, names an empty list of networks or has too many matchers.
    pub fn new(
        key: impl Into<String>,
        matchers: Vec<Matcher>,
        treatment: Option<Treatment>,
        networks: Option<NetworkChoice>,
    ) -> Result<Self, RuleError> {
        let key = key.into();
        if matchers.len() > Self::MOST_MATCHERS {
            return Err(RuleError::TooManyMatchers(key));
        }
        if networks.as_ref().is_some_and(|networks| networks.names.is_empty()) {
            return Err(RuleError::NoNetworks(key));
        }
        if treatment.is_none() && networks.is_none() {
            return Err(RuleError::NothingToDo(key));
        }
        Ok(Self { key, matchers, treatment, networks })
    }

    /// Its name in the configuration.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// What must match.
    pub fn matchers(&self) -> &[Matcher] {
        &self.matchers
    }

    /// The treatment of its flows, if it sets one.
    pub fn treatment(&self) -> Option<Treatment> {
        self.treatment
    }

    /// The networks of its flows, if it names any.
    pub fn networks(&self) -> Option<&NetworkChoice> {
        self.networks.as_ref()
    }

    /// Whether it matches the flow.
    pub fn matches(&self, flow: &FlowFacts<'_>) -> bool {
        self.mismatch(flow).is_none()
    }

    fn kinds(&self) -> impl Iterator<Item = MatcherKind> + '_ {
        MatcherKind::ALL.into_iter().filter(|kind| self.of_kind(*kind).next().is_some())
    }

    fn of_kind(&self, kind: MatcherKind) -> impl Iterator<Item = &Matcher> {
        self.matchers.iter().filter(move |matcher| matcher.kind() == kind)
    }
}

impl NetworkChoice {
    /// The numbers of those of its networks that `find` knows.
    pub fn resolve(&self, find: impl Fn(&str) -> Option<NetworkId>) -> Vec<NetworkId> {
        self.names.iter().filter_map(|name| find(name)).collect()
    }
}

impl Rules {
    /// Rules that a list may have.
    pub const MOST: usize = 1_000;

    /// Rules in the order in which they are tried.
    ///
    /// # Errors
    /// [`RulesError::TooMany`] if there are more than [`Self::MOST`].
    pub fn new(rules: Vec<Rule>) -> Result<Self, RulesError> {
        if rules.len() > Self::MOST { Err(RulesError::TooMany(rules.len())) } else { Ok(Self { rules }) }
    }

    /// The first rule that matches the flow.
    pub fn decide(&self, flow: &FlowFacts<'_>) -> Option<(RuleNumber, &Rule)> {
        let (number, rule) = self.rules.iter().enumerate().find(|(_, rule)| rule.matches(flow))?;
        Some((RuleNumber(number), rule))
    }

    /// All rules, in order.
    pub fn iter(&self) -> impl Iterator<Item = (RuleNumber, &Rule)> {
        self.rules.iter().enumerate().map(|(number, rule)| (RuleNumber(number), rule))
    }

    /// The rule of that number.
    pub fn get(&self, number: RuleNumber) -> Option<&Rule> {
        self.rules.get(number.0)
    }
}

impl fmt::Display for RuleNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rule {}", self.0 + 1)
    }
}

impl fmt::Display for Rule {
    /// What it decides: `direct over wlan0 or wwan0 only`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.treatment {
            Some(treatment) => write!(formatter, "{treatment}")?,
            None => formatter.write_str("treated as usual")?,
        }
        let Some(networks) = &self.networks else { return Ok(()) };
        let names = networks.names.join(" or ");
        match networks.strictness {
            Strictness::Only => write!(formatter, " over {names} only"),
            Strictness::Prefer => write!(formatter, ", preferably over {names}"),
        }
    }
}
