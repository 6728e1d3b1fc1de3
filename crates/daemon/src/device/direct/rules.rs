//! From the user's rules to those of the kernel. Pure.
//!
//! The kernel's rules have one value of each kind, so a rule with several becomes several. What only time shows about a flow (its
//! class, its program's name) is not known when the kernel decides; [`unkernelled`] says so.

use std::collections::BTreeMap;
use std::net::IpAddr;

use linux::direct::{Choice, FlowMatch, FlowRule, MAXIMUM_DESTINATIONS, MAXIMUM_RULES, Outcome, Stay};
use linux::prefix::IpPrefix;
use policy::rules::{Matcher, ProgramPattern, Rule, Strictness};
use policy::services::Services;
use policy::{Table, Treatment};
use units::NetworkId;

use super::plan::{self, Numbers, Translated, carries, may_be_named};
use crate::device::networks::Network;

/// What rules are seen against.
pub struct Scene<'a> {
    /// Whether there is a gateway to bond to.
    pub has_gateway: bool,
    /// The treatment of flows of which no rule says one.
    pub default: Treatment,
    /// The networks.
    pub networks: &'a [Network],
    /// What the policy decided about them.
    pub table: &'a Table,
    /// Their numbers.
    pub numbers: &'a Numbers,
    /// Those that carry IPv4 through a NAT64.
    pub translations: &'a Translated,
    /// The classes of flows to where.
    pub services: &'a Services,
    /// Addresses that names were resolved to.
    pub names: &'a BTreeMap<String, Vec<IpAddr>>,
}

/// The kernel's rules, with the choices that they point to added to `choices`; the first of them is for flows of no rule.
pub fn compile(rules: &[&Rule], scene: &Scene<'_>, choices: &mut Vec<Choice>) -> Vec<FlowRule> {
    let mut compiled = Vec::new();
    for rule in rules {
        let matches = matches(rule, scene);
        if matches.is_empty() || compiled.len() + matches.len() > MAXIMUM_RULES {
            continue;
        }
        let outcome = outcome(rule, scene, choices);
        compiled.extend(matches.into_iter().map(|matching| FlowRule { matching, outcome }));
    }
    compiled
}

/// Why the kernel cannot apply a rule to new flows, if it cannot.
pub fn unkernelled(rule: &Rule) -> Option<String> {
    let key = rule.key();
    rule.matchers().iter().find_map(|matcher| match matcher {
        Matcher::Program(ProgramPattern::Path(name) | ProgramPattern::Name(name)) => Some(format!(
            "rule \"{key}\": a flow's program is only known by its control group when the flow begins: start it with \
             \"anabranch run\", or write program = \"cgroup:/PATH\" in place of \"{name}\""
        )),
        Matcher::Class(class) => Some(format!(
            "rule \"{key}\": that a flow is {class} shows only after it has begun: a direct flow is taken for what earlier flows to the \
             same address and port were, a bonded one changes while it runs"
        )),
        _ => None,
    })
}

/// What somebody who looks at a rule should know of it.
pub fn remark(rule: &Rule) -> Option<String> {
    let is_domain = |matcher: &Matcher| matches!(matcher, Matcher::Domain(_));
    let unseen = "what a program looks up by encrypted DNS of its own (a browser's \"secure DNS\") is not seen, and so not covered";
    let by_domain = rule.matchers().iter().any(is_domain).then(|| unseen.to_owned());
    unkernelled(rule).or(by_domain)
}

fn outcome(rule: &Rule, scene: &Scene<'_>, choices: &mut Vec<Choice>) -> Outcome {
    let treatment = rule.treatment().unwrap_or(match rule.networks() {
        Some(_) => Treatment::Direct,
        None => scene.default,
    });
    match treatment {
        Treatment::Bonded if scene.has_gateway => return Outcome::Stay(Stay::Bonded),
        Treatment::Duplicated if scene.has_gateway => return Outcome::Stay(Stay::Duplicated),
        Treatment::Protected if scene.has_gateway => return Outcome::Stay(Stay::Protected),
        _ => {}
    }
    let Some(wanted) = rule.networks() else { return Outcome::Leave(0) };
    let find = |name: &str| {
        scene.networks.iter().find(|network| network.interface.name == name).map(|network| network.id)
    };
    let listed: Vec<NetworkId> = wanted.resolve(find);
    let mut choice = among(&listed, wanted.strictness, scene);
    if choice.v4.is_empty() && choice.v6.is_empty() {
        return match wanted.strictness {
            Strictness::Only => Outcome::Refuse,
            Strictness::Prefer => Outcome::Leave(0),
        };
    }
    // A network may have one family only. What is preferred gives way to all others in the other one.
    if wanted.strictness == Strictness::Prefer
        && let Some(ordinary) = choices.first()
    {
        let Choice { v4, v6, best } = &mut choice;
        for (own, all, best, best_of_all) in [
            (v4, &ordinary.v4, &mut best.v4, ordinary.best.v4),
            (v6, &ordinary.v6, &mut best.v6, ordinary.best.v6),
        ] {
            if own.is_empty() {
                own.clone_from(all);
                *best = best_of_all;
            }
        }
    }
    let known = choices.iter().position(|known| *known == choice);
    let at = known.unwrap_or_else(|| {
        choices.push(choice);
        choices.len() - 1
    });
    match wanted.strictness {
        Strictness::Only => Outcome::LeaveOrRefuse(at),
        Strictness::Prefer => Outcome::Leave(at),
    }
}

/// Slots over the listed networks: by their shares, or in equal parts if the policy would use none of them by itself.
fn among(listed: &[NetworkId], strictness: Strictness, scene: &Scene<'_>) -> Choice {
    let mut choice = plan::choice(scene, |id| listed.contains(&id));
    for (ipv6, slots) in [(false, &mut choice.v4), (true, &mut choice.v6)] {
        if slots.is_empty() {
            *slots = equal(listed, strictness, scene, ipv6);
        }
    }
    choice
}

fn equal(listed: &[NetworkId], strictness: Strictness, scene: &Scene<'_>, ipv6: bool) -> Vec<u8> {
    let usable = scene.networks.iter().filter(|network| {
        listed.contains(&network.id)
            && network.connected
            && carries(network, scene.translations, ipv6)
            && may_be_named(scene.table, network.id, strictness)
    });
    usable.filter_map(|network| scene.numbers.of(network.id)).collect()
}

fn matches(rule: &Rule, scene: &Scene<'_>) -> Vec<FlowMatch> {
    let mut partial = vec![FlowMatch::default()];
    let mut destinations: Option<Vec<IpPrefix>> = None;
    let mut hosts: Option<Vec<IpPrefix>> = None;
    let mut services: Option<Vec<(IpAddr, u8, u16)>> = None;
    let of_kind =
        |wanted: fn(&Matcher) -> bool| rule.matchers().iter().filter(move |matcher| wanted(matcher));
    for matcher in rule.matchers() {
        match matcher {
            Matcher::Program(ProgramPattern::Path(_) | ProgramPattern::Name(_)) => {
                return Vec::new();
            }
            Matcher::Class(class) => {
                let learned = scene.services.of_class(*class);
                let learned = learned.map(|service| (service.destination, service.protocol.0, service.port));
                services.get_or_insert_default().extend(learned);
            }
            Matcher::Destination(prefix) => destinations.get_or_insert_default().push(*prefix),
            Matcher::Domain(domain) => {
                let found = scene.names.iter().filter(|(name, _)| domain.matches(name));
                let found = found.flat_map(|(_, addresses)| addresses.iter().copied().map(IpPrefix::host));
                hosts.get_or_insert_default().extend(found);
            }
            Matcher::Program(ProgramPattern::Cgroup(_))
            | Matcher::User(_)
            | Matcher::Port(_)
            | Matcher::Dscp(_) => {}
        }
    }
    let destinations = match (destinations, hosts) {
        (Some(prefixes), Some(hosts)) => Some(
            hosts.into_iter().filter(|host| prefixes.iter().any(|prefix| prefix.covers(*host))).collect(),
        ),
        (one, other) => one.or(other),
    };
    if let Some(mut destinations) = destinations {
        destinations.truncate(MAXIMUM_DESTINATIONS);
        partial[0].destinations = Some(destinations);
    }
    if let Some(mut services) = services {
        services.truncate(MAXIMUM_DESTINATIONS);
        partial[0].services = Some(services);
    }
    let kinds: [fn(&Matcher) -> bool; 4] = [
        |matcher| matches!(matcher, Matcher::Program(_)),
        |matcher| matches!(matcher, Matcher::User(_)),
        |matcher| matches!(matcher, Matcher::Port(_)),
        |matcher| matches!(matcher, Matcher::Dscp(_)),
    ];
    for kind in kinds {
        let values: Vec<&Matcher> = of_kind(kind).collect();
        if values.is_empty() {
            continue;
        }
        partial = partial.iter().flat_map(|base| values.iter().map(|value| with(base, value))).collect();
        if partial.len() > MAXIMUM_RULES {
            return Vec::new();
        }
    }
    partial
}

fn with(base: &FlowMatch, matcher: &Matcher) -> FlowMatch {
    let mut matching = base.clone();
    match matcher {
        Matcher::Program(ProgramPattern::Cgroup(path)) => matching.cgroup = Some(path.clone()),
        Matcher::User(user) => matching.user = Some(user.0),
        Matcher::Dscp(dscp) => matching.dscp = Some(dscp.get()),
        Matcher::Port(ports) => {
            matching.protocol = ports.protocol().map(|protocol| protocol.0);
            matching.ports = Some(ports.range()).filter(|(first, _)| *first > 0);
        }
        Matcher::Program(_) | Matcher::Destination(_) | Matcher::Domain(_) | Matcher::Class(_) => {}
    }
    matching
}

#[cfg(test)]
mod tests {
    use linux::monitor::DefaultRoute;
    use policy::network::{NetworkInput, Reach};
    use policy::rules::NetworkChoice;
    use policy::{ChoiceSettings, NetworkPolicy};
    use units::Timestamp;

    use super::*;

    /// `v4-only` and `dual`, which have what their names say.
    fn networks() -> Vec<Network> {
        let (v4_only, mut dual) = (plan::tests::network(0, 3, "v4-only"), plan::tests::network(1, 4, "dual"));
        dual.interface.addresses.push("2001:db8::5/64".parse().unwrap());
        dual.interface.default_route_v6 = Some(DefaultRoute { gateway: "fe80::1".parse().ok(), metric: 0 });
        vec![v4_only, dual]
    }

    /// What becomes of flows of a rule for `name`: for IPv4, for IPv6, and whether a family without slots is refused.
    fn outcome_of(name: &str, strictness: Strictness, has_gateway: bool) -> (Vec<u8>, Vec<u8>, bool) {
        outcome_where(name, strictness, has_gateway, Reach::Internet)
    }

    /// The same with something else beyond `v4-only`.
    fn outcome_where(
        name: &str,
        strictness: Strictness,
        has_gateway: bool,
        reach: Reach,
    ) -> (Vec<u8>, Vec<u8>, bool) {
        let networks = networks();
        let inputs: Vec<NetworkInput> = networks
            .iter()
            .map(|network| NetworkInput {
                up: true,
                reach: if network.id == NetworkId(0) { reach } else { Reach::Internet },
                ..NetworkInput::new(network.id, network.interface.name.clone())
            })
            .collect();
        let table = NetworkPolicy::new(ChoiceSettings::default()).evaluate(
            Timestamp::ZERO,
            &inputs,
            policy::network::PowerSupply::Mains,
        );
        let mut numbers = Numbers::default();
        numbers.assign(&networks);
        let scene = Scene {
            has_gateway,
            default: Treatment::Bonded,
            networks: &networks,
            table: &table,
            numbers: &numbers,
            translations: &Translated::new(),
            services: &Services::default(),
            names: &BTreeMap::new(),
        };
        let mut choices = vec![plan::choice(&scene, |_| true)];
        let wanted = NetworkChoice { names: vec![name.to_owned()], strictness };
        let rule = Rule::new("rule", Vec::new(), None, Some(wanted)).unwrap();
        let compiled = compile(&[&rule], &scene, &mut choices);
        let choice = choices[compiled[0].outcome.choice().unwrap()].clone();
        (choice.v4, choice.v6, matches!(compiled[0].outcome, Outcome::LeaveOrRefuse(_)))
    }

    #[test]
    fn a_family_that_the_networks_lack_is_refused_or_goes_as_others_do() {
        for has_gateway in [false, true] {
            assert_eq!(outcome_of("v4-only", Strictness::Only, has_gateway), (vec![3], vec![], true));
            assert_eq!(outcome_of("v4-only", Strictness::Prefer, has_gateway), (vec![3], vec![4], false));
            assert_eq!(outcome_of("dual", Strictness::Only, has_gateway), (vec![4], vec![4], true));
        }
    }

    #[test]
    fn what_prefers_a_network_that_leads_nowhere_takes_another() {
        for reach in [Reach::Nothing, Reach::Captive] {
            let outcome = |strictness| outcome_where("v4-only", strictness, false, reach);
            assert_eq!(outcome(Strictness::Only), (vec![3], vec![], true));
            assert_eq!(outcome(Strictness::Prefer), (vec![4], vec![4], false));
        }
    }
}
