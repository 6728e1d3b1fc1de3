//! Which rule decides about a flow, and why the others do not.

use std::fmt;

use super::{FlowFacts, MatcherKind, Rule, RuleNumber, Rules};

/// What every rule says about one flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// One line for each rule, in order.
    pub lines: Vec<ExplanationLine>,
    /// The rule that decides; `None` if none matches and the default holds.
    pub decided: Option<RuleNumber>,
}

/// What one rule says about the flow. `Display` makes the line that a person reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExplanationLine {
    /// The rule.
    pub number: RuleNumber,
    /// Its name.
    pub key: String,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of comparing a rule with a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It matches and decides so.
    Decides(String),
    /// It does not match.
    Misses(Mismatch),
    /// It would match, but an earlier one decided.
    TooLate,
    /// It does not match, and an earlier one decided.
    NotNeeded,
}

/// The first kind of matcher in which a rule and a flow do not agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The kind.
    pub kind: MatcherKind,
    /// What the rule wants, as text.
    pub wanted: String,
    /// What the flow has; `None` if that is not known.
    pub found: Option<String>,
}

impl Rules {
    /// Goes through all rules for a flow.
    pub fn explain(&self, flow: &FlowFacts<'_>) -> Explanation {
        let mut decided = None;
        let mut lines = Vec::new();
        for (number, rule) in self.iter() {
            let verdict = match (rule.mismatch(flow), decided) {
                (None, None) => {
                    decided = Some(number);
                    Verdict::Decides(rule.to_string())
                }
                (None, Some(_)) => Verdict::TooLate,
                (Some(_), Some(_)) => Verdict::NotNeeded,
                (Some(mismatch), None) => Verdict::Misses(mismatch),
            };
            lines.push(ExplanationLine { number, key: rule.key().to_owned(), verdict });
        }
        Explanation { lines, decided }
    }
}

impl Rule {
    /// The first kind in which none of the rule's matchers fits.
    pub(super) fn mismatch(&self, flow: &FlowFacts<'_>) -> Option<Mismatch> {
        let kind = self.kinds().find(|kind| !self.of_kind(*kind).any(|matcher| matcher.matches(flow)))?;
        let wanted: Vec<String> = self.of_kind(kind).map(ToString::to_string).collect();
        Some(Mismatch { kind, wanted: wanted.join(" or "), found: found(kind, flow) })
    }
}

fn found(kind: MatcherKind, flow: &FlowFacts<'_>) -> Option<String> {
    match kind {
        MatcherKind::Program => {
            let group = flow.cgroup.map(|group| format!("cgroup:{group}"));
            let both: Vec<String> = flow.program.map(str::to_owned).into_iter().chain(group).collect();
            (!both.is_empty()).then(|| both.join(" in "))
        }
        MatcherKind::User => flow.user.map(|user| user.to_string()),
        MatcherKind::Destination => Some(flow.destination.to_string()),
        MatcherKind::Domain => (!flow.domains.is_empty()).then(|| flow.domains.join(" or ")),
        MatcherKind::Port if flow.port == 0 => Some(flow.protocol.to_string()),
        MatcherKind::Port => Some(format!("{}/{}", flow.protocol, flow.port)),
        MatcherKind::Dscp => Some(flow.dscp.to_string()),
        MatcherKind::Class => flow.class.map(|class| class.to_string()),
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(formatter, "{}: wants {}, is {found}", self.kind, self.wanted),
            None => {
                write!(formatter, "{}: wants {}, which is not known of this flow", self.kind, self.wanted)
            }
        }
    }
}

impl fmt::Display for ExplanationLine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} ({}): ", self.number, self.key)?;
        match &self.verdict {
            Verdict::Decides(what) => write!(formatter, "matches: {what}"),
            Verdict::Misses(mismatch) => mismatch.fmt(formatter),
            Verdict::TooLate => formatter.write_str("would match, but an earlier rule decided"),
            Verdict::NotNeeded => formatter.write_str("does not match, and an earlier rule decided"),
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(formatter, "{line}")?;
        }
        if self.decided.is_none() {
            formatter.write_str("no rule matches: treated as usual\n")
        } else {
            Ok(())
        }
    }
}
