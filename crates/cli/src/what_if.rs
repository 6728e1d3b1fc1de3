//! `anabranch what-if TRACE --policy FILE`.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};
use daemon::config::{Config, NO_GATEWAY};
use policy::replay::{Difference, PolicySet, TraceRecord, difference, replay};
use policy::rules::Rules;
use policy::{ChoiceSettings, NetworkPreference};
use serde_json::json;

use crate::arguments::WhatIf;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &WhatIf) -> anyhow::Result<()> {
    let trace = read(&arguments.trace)?;
    let (before, source) = Config::load(arguments.against.as_deref(), session.path())?;
    let after = Config::read(&arguments.policy)?;
    let replayed =
        |config: &Config| replay(&trace, &policy_set(config)?, SEED).context("the trace cannot be replayed");
    let difference = difference(&replayed(&before)?, &replayed(&after)?);
    if arguments.json {
        return output::json(&as_json(&difference));
    }
    output::remark(&format!("against {source}"));
    output::line(difference.to_string().trim_end())
}

fn read(path: &Path) -> anyhow::Result<Vec<TraceRecord>> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = BufReader::new(file);
    let mut records = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let length = lines.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if length == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if records.len() >= MOST_RECORDS {
            bail!("{} has more than {MOST_RECORDS} records; split it", path.display());
        }
        let record = serde_json::from_slice(&line)
            .with_context(|| format!("{} line {number} is no record of a trace", path.display()))?;
        records.push(record);
    }
    Ok(records)
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
const MOST_RECORDS: usize = 2_000_000;
/// A record of 64 networks has some 30 kB.
const LONGEST_LINE: u64 = 1 << 20;
