//! What becomes of a flow, and why. Pure.

use anabranch::control::{Explained, Fraction, NetworkPart};
use policy::rules::{Dscp, FlowFacts, Protocol, Rule, Strictness};
use policy::{Entry, PathStatus, Treatment};
use units::NetworkId;

use super::Picture;
use super::plan::{carries, may_be_named};
use crate::device::networks::Network;

/// What would become of a flow that begins now.
pub fn explain(picture: &Picture, flow: &FlowFacts<'_>) -> Explained {
    if picture.near.iter().any(|prefix| prefix.contains(flow.destination)) {
        return Explained {
            rules: Vec::new(),
            rule: None,
            treatment: Treatment::Direct,
            networks: Vec::new(),
            outcome: format!(
                "{} has a route of its own past the interface; no rule is asked",
                flow.destination
            ),
        };
    }
    let explanation = picture.rules.explain(flow);
    let rule = explanation.decided.and_then(|number| picture.rules.get(number));
    let (treatment, mut networks, outcome) = decide(picture, rule, flow);
    for part in networks.iter_mut().filter(|_| flow.protocol == Protocol::TCP) {
        let network = picture.network(&part.name);
        part.no_mptcp = network.is_some_and(|network| picture.stripping.contains(&network.id));
        if part.no_mptcp {
            part.why += "; MPTCP does not get through";
        }
    }
    Explained {
        rules: explanation.lines.iter().map(ToString::to_string).collect(),
        rule: rule.map(|rule| rule.key().to_owned()),
        treatment,
        networks,
        outcome,
    }
}

/// As [`super::rules::compile`] has the kernel do it.
fn decide(
    picture: &Picture,
    rule: Option<&Rule>,
    flow: &FlowFacts<'_>,
) -> (Treatment, Vec<NetworkPart>, String) {
    let ipv6 = flow.destination.is_ipv6();
    let wanted = match rule {
        None => picture.default,
        Some(rule) => {
            let otherwise = if rule.networks().is_some() { Treatment::Direct } else { picture.default };
            rule.treatment().unwrap_or(otherwise)
        }
    };
    if wanted.needs_gateway() && picture.has_gateway {
        return (wanted, Vec::new(), format!("{wanted}, through the gateway over all its paths"));
    }
    let without = if wanted.needs_gateway() { "; there is no gateway" } else { "" };
    let listed = rule.and_then(Rule::networks);
    let ids = listed.map(|choice| choice.resolve(|name| picture.network(name).map(|network| network.id)));
    let among = |may: &dyn Fn(NetworkId) -> bool| parts(picture, ipv6, may);
    let everything = |_| true;
    let mut parts = match &ids {
        None => among(&everything),
        Some(ids) => among(&|id| ids.contains(&id)),
    };
    let (mut remark, mut by_policy) = (String::new(), true);
    if let (Some(ids), Some(choice)) = (&ids, listed)
        && parts.iter().all(|part| part.share.0 == 0.0)
    {
        let equal = usable(picture, ids, choice.strictness, ipv6);
        if !equal.is_empty() {
            (parts, by_policy) = (equal, false);
        } else if choice.strictness == Strictness::Only {
            let names = choice.names.join(" or ");
            return (Treatment::Direct, parts, format!("refused: {names} cannot be used now"));
        } else {
            remark = format!("; {} cannot be used now", choice.names.join(" or "));
            parts = among(&everything);
        }
    }
    let on_best = by_policy && flow.is_real_time() && take_best(picture, &mut parts, ipv6);
    let used: Vec<String> = parts
        .iter()
        .filter(|part| part.share.0 > 0.0)
        .map(|part| format!("{} ({:.0} %)", part.name, part.share.0 * 100.0))
        .collect();
    let family = if ipv6 { "IPv6" } else { "IPv4" };
    let outcome = match &used[..] {
        [] => format!("nothing: no network can be used for {family} now{without}"),
        [_] if on_best => {
            let known = if Dscp::REAL_TIME.contains(&flow.dscp) {
                format!("code point {}", flow.dscp)
            } else {
                "as earlier flows there".to_owned()
            };
            format!("direct over {}: real-time ({known}), best network{remark}{without}", used[0])
        }
        [_] => format!("direct over {}{remark}{without}", used[0]),
        _ => format!("direct, dealt out over {}{remark}{without}", used.join(", ")),
    };
    (Treatment::Direct, parts, outcome)
}

/// Each network that may carry the flow, with its share.
fn parts(picture: &Picture, ipv6: bool, may: &dyn Fn(NetworkId) -> bool) -> Vec<NetworkPart> {
    let carries = |network: &&Network| network.connected && carries(network, &picture.translations, ipv6);
    let able: Vec<&Network> =
        picture.networks.iter().filter(|network| may(network.id)).filter(carries).collect();
    let table = picture.table.restricted(|id| able.iter().any(|network| network.id == id));
    let part = |network: &&Network| {
        let entry = table.get(network.id);
        NetworkPart {
            name: network.interface.name.clone(),
            share: Fraction(entry.map_or(0.0, |entry| entry.share.part())),
            why: entry.map_or_else(|| "not judged yet".to_owned(), reason),
            no_mptcp: false,
        }
    };
    let mut parts: Vec<NetworkPart> = able.iter().map(part).collect();
    for network in picture.networks.iter().filter(|network| may(network.id) && !carries(network)) {
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let why = if network.connected { format!("has no {family}") } else { "not connected".to_owned() };
        let name = network.interface.name.clone();
        parts.push(NetworkPart { name, share: Fraction(0.0), why, no_mptcp: false });
    }
    parts
}

/// Gives all of a real-time flow to the best network, as [`super::plan::choice`] does. False if there is no other.
fn take_best(picture: &Picture, parts: &mut [NetworkPart], ipv6: bool) -> bool {
    let find = |id: NetworkId| picture.networks.iter().find(|network| network.id == id);
    let able = picture.table.for_calls.iter().filter_map(|id| find(*id));
    let able = able.filter(|network| network.connected && carries(network, &picture.translations, ipv6));
    let names: Vec<&str> = able.map(|network| network.interface.name.as_str()).collect();
    let named = |name: &&&str| parts.iter().any(|part| part.name == **name);
    let ordered: Vec<&str> = names.iter().filter(named).copied().collect();
    let [best, _, ..] = ordered[..] else { return false };
    for part in parts {
        let (share, place) =
            if part.name == best { (1.0, "best network") } else { (0.0, "not the best network") };
        part.share = Fraction(share);
        if ordered.contains(&&*part.name) {
            part.why = format!("real-time: {place}; {}", part.why);
        }
    }
    true
}

fn reason(entry: &Entry) -> String {
    match entry.status {
        PathStatus::Active => entry.reason.to_string(),
        PathStatus::Backup => format!("waits: {}", entry.reason),
        PathStatus::Off => format!("not used: {}", entry.reason),
    }
}

/// Equal parts of networks that a rule names and the policy would not use by itself.
fn usable(picture: &Picture, ids: &[NetworkId], strictness: Strictness, ipv6: bool) -> Vec<NetworkPart> {
    let usable = picture.networks.iter().filter(|network| {
        ids.contains(&network.id)
            && network.connected
            && carries(network, &picture.translations, ipv6)
            && may_be_named(&picture.table, network.id, strictness)
    });
    let names: Vec<String> = usable.map(|network| network.interface.name.clone()).collect();
    let share = Fraction(1.0 / names.len().max(1) as f64);
    let why = "only because the rule names it";
    names.into_iter().map(|name| NetworkPart { name, share, why: why.to_owned(), no_mptcp: false }).collect()
}
