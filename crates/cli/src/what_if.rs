//! `anabranch what-if TRACE --policy FILE`.

use anyhow::Context;
use daemon::config::{Config, NO_GATEWAY};
use daemon::trace;
use policy::replay::{Difference, PolicySet, difference, replay};
use policy::rules::Rules;
use policy::{ChoiceSettings, NetworkPreference};
use serde_json::json;

use crate::arguments::WhatIf;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &WhatIf) -> anyhow::Result<()> {
    let trace = trace::read(&arguments.trace)?;
    let (before, source) = Config::load(arguments.against.as_deref(), session.path())?;
    let after = Config::read(&arguments.policy)?;
    let replayed = |config: &Config| {
        replay(&trace.records, &policy_set(config)?, SEED).context("the trace cannot be replayed")
    };
    let difference = difference(&replayed(&before)?, &replayed(&after)?);
    if arguments.json {
        return output::json(&as_json(&difference));
    }
    output::remark(&format!("against {source}"));
    if trace.is_cut_off {
        output::remark("the record's last line was cut off and is left out");
    }
    output::line(difference.to_string().trim_end())
}

fn policy_set(config: &Config) -> anyhow::Result<PolicySet> {
    let preferences = config.networks.iter().map(|(name, network)| {
        let preference = NetworkPreference {
            priority: network.priority,
            backup: network.backup,
            metered: network.metered,
            off: network.off,
        };
        (name.clone(), preference)
    });
    Ok(PolicySet {
        choice: ChoiceSettings { split: config.device.split, ..ChoiceSettings::default() },
        rules: Rules::new(config.rules.clone())?,
        treatment: config.device.default_treatment,
        gateway: config.device.gateway.as_deref() != Some(NO_GATEWAY),
        preferences: preferences.collect(),
    })
}

fn as_json(difference: &Difference) -> serde_json::Value {
    let changes = difference.changes.iter().map(|change| {
        json!({
            "flow": change.flow,
            "bytes": change.bytes,
            "before": { "treatment": change.before.0, "over": change.before.1.to_string() },
            "after": { "treatment": change.after.0, "over": change.after.1.to_string() },
            "why": change.why,
        })
    });
    let networks = difference.networks.iter().map(|(name, (before, after))| {
        let carried = |carried: &policy::replay::Carried| {
            json!({ "flows": carried.flows, "bytes": carried.bytes, "price": carried.price })
        };
        (name.clone(), json!({ "before": carried(before), "after": carried(after) }))
    });
    json!({
        "flows": difference.flows,
        "changes": changes.collect::<Vec<_>>(),
        "networks": networks.collect::<serde_json::Map<_, _>>(),
    })
}

/// What shares leave to chance is the same in each replay.
const SEED: u64 = 1;
