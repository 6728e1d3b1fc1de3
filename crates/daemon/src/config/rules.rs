//! `[[rule]]`: what users want for some of their flows.

use std::net::IpAddr;
use std::str::FromStr;

use linux::prefix::IpPrefix;
use linux::privileges::User;
use policy::rules::{Dscp, Matcher, NetworkChoice, Rule, Rules, Strictness, UserId};
use policy::{FlowClass, Treatment};
use toml::de::DeValue;

use super::keys::RULE;
use super::read::{Fault, TomlKey, TomlValue, set_all};
use super::value::{self, Value};

/// Most values of one key.
const MAX_VALUES: usize = Rule::MOST_MATCHERS;

/// A rule while its keys are read.
#[derive(Default)]
pub(super) struct Draft {
    pub(super) name: Option<String>,
    pub(super) matchers: Vec<Matcher>,
    pub(super) treatment: Option<Treatment>,
    pub(super) networks: Option<Vec<String>>,
    pub(super) strictness: Strictness,
}

impl Draft {
    /// Adds a matcher for each text in `value`.
    pub(super) fn matching<T: FromStr>(
        &mut self,
        value: &Value<'_>,
        matcher: fn(T) -> Matcher,
    ) -> Option<()> {
        let parsed = value::list(value, MAX_VALUES, value::parsed::<T>)?;
        (!parsed.is_empty()).then(|| self.matchers.extend(parsed.into_iter().map(matcher)))
    }

    /// Networks, or single addresses.
    pub(super) fn destinations(&mut self, value: &Value<'_>) -> Option<()> {
        let all = value::list(value, MAX_VALUES, |one| {
            let host = || value::parsed::<IpAddr>(one).map(IpPrefix::host);
            value::parsed::<IpPrefix>(one).or_else(host)
        })?;
        (!all.is_empty()).then(|| self.matchers.extend(all.into_iter().map(Matcher::Destination)))
    }

    /// Users by number or name.
    pub(super) fn users(&mut self, value: &Value<'_>) -> Option<()> {
        let users =
            value::list(value, MAX_VALUES, |one| match value::number(one, 0..=i64::from(u32::MAX)) {
                Some(number) => Some(UserId(number as u32)),
                None => User::by_name(value::text(one)?).ok().map(|user| UserId(user.user)),
            })?;
        (!users.is_empty()).then(|| self.matchers.extend(users.into_iter().map(Matcher::User)))
    }

    /// Ports by number or text.
    pub(super) fn ports(&mut self, value: &Value<'_>) -> Option<()> {
        let ports = value::list(value, MAX_VALUES, |one| match value::number(one, 1..=65_535) {
            Some(number) => number.to_string().parse().ok(),
            None => value::parsed(one),
        })?;
        (!ports.is_empty()).then(|| self.matchers.extend(ports.into_iter().map(Matcher::Port)))
    }

    /// Code points by number or name.
    pub(super) fn code_points(&mut self, value: &Value<'_>) -> Option<()> {
        let all = value::list(value, MAX_VALUES, |one| match value::number(one, 0..=63) {
            Some(number) => Dscp::try_from(number as u8).ok(),
            None => value::parsed(one),
        })?;
        (!all.is_empty()).then(|| self.matchers.extend(all.into_iter().map(Matcher::Dscp)))
    }

    /// Classes by name.
    pub(super) fn classes(&mut self, value: &Value<'_>) -> Option<()> {
        let all = value::list(value, CLASSES.len(), |one| value::one_of(one, CLASSES))?;
        (!all.is_empty()).then(|| self.matchers.extend(all.into_iter().map(Matcher::Class)))
    }

    fn finish(self, number: usize) -> Result<Rule, String> {
        let key = self.name.unwrap_or_else(|| format!("rule {number}"));
        let strictness = self.strictness;
        let networks = self.networks.map(|names| NetworkChoice { names, strictness });
        Rule::new(key, self.matchers, self.treatment, networks).map_err(|error| error.to_string())
    }
}

/// All rules of the file.
pub(super) fn read(text: &str, key: &TomlKey<'_>, value: &TomlValue<'_>) -> Result<Vec<Rule>, Fault> {
    let at = key.span().start;
    let DeValue::Array(tables) = value.get_ref() else {
        return Err(Fault {
            at,
            message: "rule is no list of tables; write [[rule]] and the keys below it".to_owned(),
        });
    };
    if tables.len() > Rules::MOST {
        return Err(Fault { at, message: format!("more than {} rules", Rules::MOST) });
    }
    let mut rules = Vec::new();
    for (number, entry) in (1..).zip(tables) {
        let at = entry.span().start;
        let DeValue::Table(table) = entry.get_ref() else {
            return Err(Fault {
                at,
                message: format!("rule {number} is no table; write [[rule]] and the keys below it"),
            });
        };
        let mut draft = Draft::default();
        set_all(text, "rule", RULE, &mut draft, table)?;
        rules.push(draft.finish(number).map_err(|message| Fault { at, message })?);
    }
    Ok(rules)
}

const CLASSES: &[(&str, FlowClass)] =
    &[("bulk", FlowClass::Bulk), ("interactive", FlowClass::Interactive), ("real-time", FlowClass::RealTime)];
