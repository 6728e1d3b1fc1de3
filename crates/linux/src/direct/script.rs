//! The table of nftables.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::{
    Choice, Direct, Exit, FlowMatch, NETWORK_MASK, Outcome, Stay, TREATMENT_MASK, TREATMENT_SHIFT,
    Translation, mark_of,
};
use crate::cgroup::{CgroupPath, Hierarchy};
use crate::prefix::IpPrefix;

impl Direct {
    /// The hooks of type `nat` see the first packet of each flow only, so what is to be noted once is noted there; in those that see all
    /// packets, what settles most of them comes first.
    pub(super) fn script(&self, turn: usize) -> String {
        let (name, any0, own_mark) = (self.table_name(), &self.interface, self.own_mark);
        let mut text = format!("table inet {name} {{\n");
        for exit in &self.exits {
            text += &verdicts_of(exit.number);
        }
        for family in [Family::V4, Family::V6] {
            text += &self.real_time_services(family);
        }
        for stay in [Stay::Bonded, Stay::Duplicated, Stay::Protected] {
            let (keep, code) = (!TREATMENT_MASK, stay.code() << TREATMENT_SHIFT);
            text += &format!(
                "  chain stay_{} {{\n    ct mark set ct mark & {keep:#x} | {code:#x}\n    accept\n  }}\n",
                stay.code()
            );
        }
        for (at, choice) in self.choices.iter().enumerate() {
            let Choice { v4, v6, best } = choice;
            for (family, slots, best) in [(Family::V4, v4, best.v4), (Family::V6, v6, best.v6)] {
                let (name, first) = (family.name(), self.best_first(family, slots, best));
                text +=
                    &format!("  chain choice_{at}_{name} {{\n{first}{}    accept\n  }}\n", deal(slots, turn));
            }
        }
        text += "  chain choose {\n";
        for rule in &self.rules {
            for line in conditions(&rule.matching) {
                text += &format!("    {line}{}\n", self.verdict(rule.outcome, line.family));
            }
        }
        for family in [Family::V4, Family::V6] {
            text += &format!("    meta nfproto {} {}\n", family.name(), self.verdict(self.otherwise, family));
        }
        text += "  }\n";
        let marked =
            |chain: &str| self.map(|number| format!("{:#x} : goto {chain}_{number}", mark_of(number)));
        let (via, keep) = (marked("via"), marked("keep"));
        let entered = self.map_names(|name, number| format!("\"{name}\" : goto keep_{number}"));
        let (older_v4, older_v6) = (self.older(true), self.older(false));
        let (spared_out, spared_in) = self.spared();
        let networks = self.map_names(|name, _| format!("\"{name}\""));
        let held = self.held(&via);
        let forwarded = if self.forwarding { self.forwarded(&via, &spared_in) } else { String::new() };
        text += &format!(
            r#"  chain output {{
    type route hook output priority mangle; policy accept;
    meta mark {own_mark:#x} accept
    meta mark & {NETWORK_MASK:#x} != 0 accept
    oifname "{any0}" ct mark & {NETWORK_MASK:#x} vmap {{ {via} }}
    oifname "lo" accept
    {LINK_LOCAL} accept
{spared_out}    ct direction reply ct mark & {NETWORK_MASK:#x} vmap {{ {via} }}
{held}    oifname != "{any0}" accept
    ct mark & {TREATMENT_MASK:#x} != 0 accept
{older_v4}{older_v6}    ct state new goto choose
  }}
  chain begin {{
    type nat hook output priority mangle; policy accept;
    meta mark & {NETWORK_MASK:#x} == 0 accept
    oifname "lo" accept
    {LINK_LOCAL} accept
{spared_out}    meta mark & {NETWORK_MASK:#x} vmap {{ {keep} }}
  }}
  chain came {{
    type nat hook prerouting priority mangle; policy accept;
    {LINK_LOCAL} accept
{spared_in}    ct state new ct mark & {NETWORK_MASK:#x} == 0 iifname vmap {{ {entered} }}
  }}
{forwarded}  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
    oifname {{ {networks} }} meta mark & {NETWORK_MASK:#x} != 0 masquerade
  }}
}}
"#
        );
        if self.exits.is_empty() {
            // Maps without elements are not allowed; then there is nothing that could be marked.
            let without: Vec<&str> =
                text.lines().filter(|line| !line.contains("vmap {  }") && !line.contains("{  }")).collect();
            return without.join("\n") + "\n";
        }
        text + &self.answers_to_translators(&name)
    }

    /// What leads real-time flows to the best network before others are dealt out.
    fn best_first(&self, family: Family, slots: &[u8], best: Option<u8>) -> String {
        let Some(best) = best.filter(|best| slots != [*best]) else { return String::new() };
        let header = family.header();
        let mut text = String::new();
        if !self.real_time.code_points.is_empty() {
            let code_points: Vec<String> =
                self.real_time.code_points.iter().map(ToString::to_string).collect();
            text += &format!("    {header} dscp {{ {} }} goto leave_{best}\n", code_points.join(", "));
        }
        if !services_of(&self.real_time.services, family).is_empty() {
            let name = family.name();
            text += &format!(
                "    {header} daddr . meta l4proto . th dport @real_time_{name} goto leave_{best}\n"
            );
        }
        text
    }

    /// The set of a family's real-time services, if there are some.
    fn real_time_services(&self, family: Family) -> String {
        let services = services_of(&self.real_time.services, family);
        if services.is_empty() {
            return String::new();
        }
        let name = family.name();
        format!(
            "  set real_time_{name} {{\n    type {name}_addr . inet_proto . inet_service\n    elements = {{ {services} }}\n  }}\n"
        )
    }

    /// For packets of others, which this machine forwards.
    fn forwarded(&self, via: &str, spared: &str) -> String {
        let (any0, known) = (&self.interface, self.interfaces_without_choice());
        let widths = self.widths();
        format!(
            r#"  chain prerouting {{
    type filter hook prerouting priority mangle; policy accept;
    iifname {{ {known} }} accept
    {LINK_LOCAL} accept
{spared}    fib daddr oifname != "{any0}" accept
    ct mark & {NETWORK_MASK:#x} vmap {{ {via} }}
    ct mark & {TREATMENT_MASK:#x} != 0 accept
    ct state new tcp flags & (fin | syn | rst | ack) != syn reject with tcp reset
    ct state new goto choose
  }}
  chain forward {{
    type filter hook forward priority mangle; policy accept;
    meta l4proto != tcp accept
    tcp flags & syn == 0 accept
    meta mark & {NETWORK_MASK:#x} != 0 tcp option maxseg size set rt mtu
{widths}  }}
"#
        )
    }

    /// Both ends of a connection are told what the network carries, whose LAN may carry more. `set` makes the option less, never
    /// more.
    fn widths(&self) -> String {
        let mut text = String::new();
        for exit in &self.exits {
            let mark = mark_of(exit.number);
            let mut told = |family: Family, network: &str, mtu: u32| {
                let most = mtu.saturating_sub(family.headers()).min(u16::MAX.into());
                let set = format!("meta nfproto {} tcp option maxseg size set {most}", family.name());
                text += &format!("    meta mark & {NETWORK_MASK:#x} == {mark:#x} {set}\n");
                text +=
                    &format!("    iifname \"{network}\" ct mark & {NETWORK_MASK:#x} == {mark:#x} {set}\n");
            };
            told(Family::V6, &exit.interface, exit.mtu);
            match &exit.translation {
                // IPv4 comes and goes by the translator, whose packets grow.
                Some(translation) if exit.v4.is_none() => {
                    told(Family::V4, &translation.interface, translation.mtu);
                }
                _ => told(Family::V4, &exit.interface, exit.mtu),
            }
        }
        text
    }

    /// Interfaces whose packets are led nowhere: their flows began elsewhere, or are ours.
    fn interfaces_without_choice(&self) -> String {
        let networks = self.exits.iter().map(|exit| &exit.interface);
        let translators = self.translations().map(|(_, translation)| &translation.interface);
        let names = networks.chain(translators).map(|name| format!(", \"{name}\""));
        format!("\"lo\", \"{}\"", self.interface) + &names.collect::<String>()
    }

    fn translations(&self) -> impl Iterator<Item = (&Exit, &Translation)> {
        self.exits.iter().filter_map(|exit| Some((exit, exit.translation.as_ref()?)))
    }

    /// Hands the answers to translated packets to their translator, once their address is again the one that it had
    /// written: a copy of each goes to its interface, to whatever next hop, and the packet itself ends here.
    ///
    /// A table of its own: only the IPv6 family has `dup`.
    fn answers_to_translators(&self, name: &str) -> String {
        if self.translations().next().is_none() {
            return String::new();
        }
        let mut text = format!(
            "table ip6 {name} {{\n  chain prerouting {{\n    type filter hook prerouting priority dstnat + 1; policy accept;\n"
        );
        for (exit, Translation { index, own, .. }) in self.translations() {
            let (network, mark) = (&exit.interface, mark_of(exit.number));
            text += &format!(
                "    iifname \"{network}\" ip6 daddr {own} ct direction reply ct mark & {NETWORK_MASK:#x} == {mark:#x} \
                 dup to {NEXT_HOP} device {index} drop\n    ip6 daddr {own} drop\n"
            );
        }
        text + "  }\n}\n"
    }

    /// Flows that are older than this table go on by the network whose address they have; of several with one address, the first.
    fn older(&self, ipv4: bool) -> String {
        let mut owners: Vec<(IpAddr, u8)> = Vec::new();
        for exit in &self.exits {
            let own = exit.subnets.iter().map(|subnet| subnet.address());
            for address in own.filter(|address| address.is_ipv4() == ipv4) {
                if owners.iter().all(|(known, _)| *known != address) {
                    owners.push((address, exit.number));
                }
            }
        }
        if owners.is_empty() {
            return String::new();
        }
        let header = if ipv4 { "ip" } else { "ip6" };
        let owners: Vec<_> =
            owners.iter().map(|(own, number)| format!("{own} : goto leave_{number}")).collect();
        format!("    ct state != new {header} saddr vmap {{ {} }}\n", owners.join(", "))
    }

    /// What leaves flows of neighbours alone, for the output and the prerouting hook. They keep no network when links change.
    fn spared(&self) -> (String, String) {
        let (mut out, mut into) = (String::new(), String::new());
        for own in &self.neighbourly {
            let header = if own.is_ipv4() { "ip" } else { "ip6" };
            // To neighbours by their links, to peers beyond them by the interface.
            out += &format!("    {header} saddr {own} accept\n");
            into += &format!("    {header} daddr {own} accept\n");
        }
        if !self.neighbourly.is_empty() {
            out += &format!("    oifname \"{}\" fib daddr type broadcast accept\n", self.interface);
            out += "    ip daddr 255.255.255.255 accept\n";
        }
        (out, into)
    }

    /// A program that is held to one network reaches what lies on that network's own link there, though another network with the same
    /// subnet has the route: the login page of its router, above all.
    fn held(&self, marked: &str) -> String {
        let mut text = String::new();
        for rule in self.rules.iter().filter(|rule| rule.matching.cgroup.is_some()) {
            let choice = rule.outcome.choice().and_then(|choice| self.choices.get(choice));
            let Some(Choice { v4, v6, .. }) = choice else { continue };
            if rule.matching.destinations.is_some() {
                continue;
            }
            for line in conditions(&rule.matching) {
                let (slots, header) = (if line.family == Family::V4 { v4 } else { v6 }, line.family.header());
                let [number] = slots[..] else { continue };
                let own =
                    self.exits.iter().filter(|exit| exit.number == number).flat_map(|exit| &exit.subnets);
                let own = own.filter(|subnet| subnet.is_ipv4() == (line.family == Family::V4));
                let own = without_overlaps(own.map(|subnet| subnet.network()).collect());
                if !own.is_empty() {
                    let own: Vec<String> = own.iter().map(ToString::to_string).collect();
                    text += &format!(
                        "    ct state new {line}{header} daddr {{ {} }} goto leave_{number}\n",
                        own.join(", ")
                    );
                }
            }
        }
        if !text.is_empty() {
            text += &format!("    ct mark & {NETWORK_MASK:#x} vmap {{ {marked} }}\n");
        }
        text
    }

    fn verdict(&self, outcome: Outcome, family: Family) -> String {
        let is_empty = |choice: usize| {
            self.choices.get(choice).is_none_or(|Choice { v4, v6, .. }| match family {
                Family::V4 => v4.is_empty(),
                Family::V6 => v6.is_empty(),
            })
        };
        match outcome {
            Outcome::LeaveOrRefuse(choice) if is_empty(choice) => REFUSE.to_owned(),
            Outcome::Leave(choice) | Outcome::LeaveOrRefuse(choice) => {
                format!("goto choice_{choice}_{}", family.name())
            }
            Outcome::Stay(Stay::Default) => "accept".to_owned(),
            Outcome::Stay(stay) => format!("goto stay_{}", stay.code()),
            Outcome::Refuse => REFUSE.to_owned(),
        }
    }

    fn map(&self, element: impl Fn(u8) -> String) -> String {
        self.exits.iter().map(|exit| element(exit.number)).collect::<Vec<_>>().join(", ")
    }

    fn map_names(&self, element: impl Fn(&str, u8) -> String) -> String {
        let elements = self.exits.iter().map(|exit| element(&exit.interface, exit.number));
        elements.collect::<Vec<_>>().join(", ")
    }
}

/// What becomes of a flow that has a network: `leave` gives it one, `keep` notes the one that its socket or its interface
/// has, `via` leads a packet of it there.
fn verdicts_of(number: u8) -> String {
    let (mark, keep) = (mark_of(number), !NETWORK_MASK);
    let note = format!("    ct mark set ct mark & {keep:#x} | {mark:#x}\n");
    let lead = format!("    meta mark set meta mark & {keep:#x} | {mark:#x}\n");
    format!(
        "  chain leave_{number} {{\n{note}{lead}    accept\n  }}\n  chain keep_{number} {{\n{note}    accept\n  }}\n  \
         chain via_{number} {{\n{lead}    accept\n  }}\n"
    )
}

/// Deals flows out by turns, from this one on. No slots leave them on any0.
pub(super) fn deal(slots: &[u8], turn: usize) -> String {
    match slots {
        [] => String::new(),
        [only] => format!("    goto leave_{only}\n"),
        _ => {
            let (later, first) = slots.split_at(turn % slots.len());
            let each = first
                .iter()
                .chain(later)
                .enumerate()
                .map(|(at, number)| format!("{at} : goto leave_{number}"));
            let each: Vec<_> = each.collect();
            format!("    numgen inc mod {} vmap {{ {} }}\n", slots.len(), each.join(", "))
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn name(self) -> &'static str {
        match self {
            Self::V4 => "ipv4",
            Self::V6 => "ipv6",
        }
    }

    /// Bytes of an IP and a TCP header without options.
    const fn headers(self) -> u32 {
        match self {
            Self::V4 => 40,
            Self::V6 => 60,
        }
    }

    /// What stands before the fields of its packets.
    const fn header(self) -> &'static str {
        match self {
            Self::V4 => "ip",
            Self::V6 => "ip6",
        }
    }
}

/// The conditions of a rule for one family, ready to be followed by a verdict.
struct Line {
    family: Family,
    text: String,
}

impl std::fmt::Display for Line {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.text)
    }
}

fn conditions(matching: &FlowMatch) -> Vec<Line> {
    let Some(cgroup) = cgroup(matching.cgroup.as_deref()) else { return Vec::new() };
    let mut lines = Vec::new();
    for family in [Family::V4, Family::V6] {
        let header = family.header();
        let mut text = format!("meta nfproto {} ", family.name());
        if let Some(destinations) = &matching.destinations {
            let own = destinations.iter().filter(|prefix| prefix.is_ipv4() == (family == Family::V4));
            let own = without_overlaps(own.map(|prefix| prefix.network()).collect());
            if own.is_empty() {
                continue;
            }
            let own: Vec<String> = own.iter().map(ToString::to_string).collect();
            text += &format!("{header} daddr {{ {} }} ", own.join(", "));
        }
        if let Some(services) = &matching.services {
            let own = services_of(services, family);
            if own.is_empty() {
                continue;
            }
            text += &format!("{header} daddr . meta l4proto . th dport {{ {own} }} ");
        }
        text += &cgroup;
        if let Some(user) = matching.user {
            text += &format!("meta skuid {user} ");
        }
        if let Some(dscp) = matching.dscp {
            text += &format!("{header} dscp {dscp} ");
        }
        match matching.protocol {
            Some(protocol) => text += &format!("meta l4proto {protocol} "),
            None if matching.ports.is_some() => text += "meta l4proto { tcp, udp } ",
            None => {}
        }
        if let Some((from, to)) = matching.ports {
            text += &format!("th dport {from}-{to} ");
        }
        lines.push(Line { family, text });
    }
    lines
}

/// Those of a family as elements of a set.
fn services_of(services: &[(IpAddr, u8, u16)], family: Family) -> String {
    let own = services.iter().filter(|(address, ..)| address.is_ipv4() == (family == Family::V4));
    let own: BTreeSet<String> =
        own.map(|(address, protocol, port)| format!("{address} . {protocol} . {port}")).collect();
    own.into_iter().collect::<Vec<_>>().join(", ")
}

/// The condition for a control group; `None` if there is no such group now.
fn cgroup(path: Option<&str>) -> Option<String> {
    let Some(path) = path else { return Some(String::new()) };
    let (path, hierarchy) = (CgroupPath::new(path).ok()?, Hierarchy::find().ok()?);
    hierarchy.id_of(&path).ok()?;
    hierarchy.nft_match(&path).map(|condition| condition + " ")
}

const REFUSE: &str = "reject with icmpx type admin-prohibited";
/// Never led out.
const LINK_LOCAL: &str = "ip6 daddr { fe80::/10, ff02::/16 }";
/// On a TUN interface every next hop leads to its program.
const NEXT_HOP: &str = "fe80::64";

/// A set must not have a prefix inside another.
fn without_overlaps(mut prefixes: Vec<IpPrefix>) -> Vec<IpPrefix> {
    prefixes.sort_by_key(|prefix: &IpPrefix| (prefix.length(), prefix.address()));
    let mut kept: Vec<IpPrefix> = Vec::new();
    for prefix in prefixes {
        let inside = |other: &IpPrefix| {
            let address: IpAddr = prefix.address();
            other.contains(address)
        };
        if !kept.iter().any(inside) {
            kept.push(prefix);
        }
    }
    kept
}
