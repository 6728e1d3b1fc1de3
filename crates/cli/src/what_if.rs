//! `anabranch what-if TRACE --policy FILE`.

use anyhow::Context;
use daemon::config::{Config, NO_GATEWAY};
use daemon::trace;
use identity::{InvitationKind, Peers};
use policy::energy::Card;
use policy::replay::{Difference, NetworkCosts, PolicySet, difference, replay};
use policy::rules::Rules;
use policy::{CapSettings, ChoiceSettings, NetworkPreference};
use serde_json::json;

use crate::arguments::WhatIf;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &WhatIf) -> anyhow::Result<()> {
    let trace = trace::read(&arguments.trace)?;
    let (before, source) = Config::load(arguments.against.as_deref(), session.path())?;
    let after = Config::read(&arguments.policy)?;
    let has_joined = has_joined(session).unwrap_or_else(|error| {
        output::remark(&format!("no gateway is assumed where the configuration names none: {error:#}"));
        false
    });
    let replayed = |config: &Config| {
        replay(&trace.records, &policy_set(config, has_joined)?, SEED).context("the trace cannot be replayed")
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

/// Whether this machine knows a gateway. The record does not tell it.
fn has_joined(session: &Session) -> anyhow::Result<bool> {
    if !session.path().exists() {
        return Ok(false);
    }
    Ok(Peers::load(&session.device()?)?.of_kind(InvitationKind::Gateway).next().is_some())
}

fn policy_set(config: &Config, has_joined: bool) -> anyhow::Result<PolicySet> {
    let costs = config.networks.iter().map(|(name, network)| {
        let costs = NetworkCosts {
            power: network.card.and_then(Card::by_name).map(|card| card.model),
            price: network.price,
            cap: network.cap.map(|limit| CapSettings::new(limit, network.billing_day)),
        };
        (name.clone(), costs)
    });
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
        choice: ChoiceSettings {
            split: config.device.split,
            real_time_on_best: config.device.real_time_on_best,
            least_energy_below: config.device.power_saving_below,
            cheapest_adapter_below: config.device.cheapest_below,
            ..ChoiceSettings::default()
        },
        rules: Rules::new(config.rules.clone())?,
        treatment: config.device.default_treatment,
        gateway: match config.device.gateway.as_deref() {
            None => has_joined,
            Some(wanted) => wanted != NO_GATEWAY,
        },
        preferences: preferences.collect(),
        costs: costs.collect(),
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
