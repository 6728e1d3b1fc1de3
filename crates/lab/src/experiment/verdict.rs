//! The verdict on a run: one function of its metrics and its goals.

use super::Metrics;
use std::fmt;

/// What a metric must be.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// A bound on one metric.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Goal {
    /// The metric.
    pub metric: String,
    /// Its bound.
    #[serde(flatten)]
    pub bound: Bound,
}

/// How a run did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every goal.
    Met,
    /// Not every goal.
    Missed,
    /// The run says nothing about the goals.
    NotReproduced,
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::NotReproduced => "not reproduced",
        })
    }
}

impl Goal {
    /// `metric` must be `least` or more.
    pub fn at_least(metric: impl Into<String>, least: f64) -> Self {
        Self { metric: metric.into(), bound: Bound::AtLeast(least) }
    }

    /// `metric` must be `most` or less.
    pub fn at_most(metric: impl Into<String>, most: f64) -> Self {
        Self { metric: metric.into(), bound: Bound::AtMost(most) }
    }

    fn is_met_by(&self, value: f64) -> bool {
        match self.bound {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::AtLeast(least) => write!(formatter, "{} at least {least}", self.metric),
            Bound::AtMost(most) => write!(formatter, "{} at most {most}", self.metric),
        }
    }
}

/// The verdict on `metrics` under `goals`, with its reason. A run that is void, that has no goal or that
/// lacks a metric of a goal is not reproduced.
pub fn verdict(metrics: &Metrics, goals: &[Goal], void: Option<&str>) -> (Verdict, String) {
    if let Some(reason) = void {
        return (Verdict::NotReproduced, reason.to_owned());
    }
    if goals.is_empty() {
        return (Verdict::NotReproduced, "the experiment has no goal".to_owned());
    }
    let value = |goal: &Goal| metrics.get(&goal.metric).copied().filter(|value| value.is_finite());
    let missing: Vec<&str> =
        goals.iter().filter(|goal| value(goal).is_none()).map(|goal| goal.metric.as_str()).collect();
    if !missing.is_empty() {
        return (Verdict::NotReproduced, format!("not measured: {}", missing.join(", ")));
    }
    let missed: Vec<String> = goals
        .iter()
        .filter_map(|goal| value(goal).filter(|value| !goal.is_met_by(*value)).map(|value| (goal, value)))
        .map(|(goal, value)| format!("{} is {value}, not {}", goal.metric, bound_text(goal.bound)))
        .collect();
    if missed.is_empty() {
        (Verdict::Met, format!("all {} goals", goals.len()))
    } else {
        (Verdict::Missed, format!("{} of {} goals: {}", missed.len(), goals.len(), missed.join("; ")))
    }
}

fn bound_text(bound: Bound) -> String {
    match bound {
        Bound::AtLeast(least) => format!("at least {least}"),
        Bound::AtMost(most) => format!("at most {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(values: &[(&str, f64)]) -> Metrics {
        values.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
    }

    #[test]
    fn bounds_decide() {
        let goals = [Goal::at_least("gain", 0.95), Goal::at_most("gap_ms", 150.0)];
        assert_eq!(verdict(&metrics(&[("gain", 0.95), ("gap_ms", 150.0)]), &goals, None).0, Verdict::Met);
        let (missed, reason) = verdict(&metrics(&[("gain", 0.94), ("gap_ms", 10.0)]), &goals, None);
        assert_eq!(
            (missed, reason.as_str()),
            (Verdict::Missed, "1 of 2 goals: gain is 0.94, not at least 0.95")
        );
    }

    #[test]
    fn what_was_not_measured_is_not_reproduced() {
        let goals = [Goal::at_least("gain", 0.95)];
        assert_eq!(verdict(&metrics(&[]), &goals, None).0, Verdict::NotReproduced);
        assert_eq!(verdict(&metrics(&[("gain", f64::NAN)]), &goals, None).0, Verdict::NotReproduced);
        assert_eq!(verdict(&metrics(&[("gain", 2.0)]), &[], None).0, Verdict::NotReproduced);
        let void = verdict(&metrics(&[("gain", 2.0)]), &goals, Some("frames were dropped"));
        assert_eq!(void, (Verdict::NotReproduced, "frames were dropped".to_owned()));
    }
}
