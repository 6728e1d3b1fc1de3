//! Direct mode's part of the kernel: every flow leaves by one network, chosen when it begins.
//!
//! Packets of applications are routed to any0 first and have its address. A chain in the output hook gives a new flow
//! the mark of a network, by rules or by turns (real-time flows the best one's); conntrack keeps the mark for the flow's life; a policy rule looks marked packets
//! up in the network's own table, and they leave with the network's address. So two networks may have the same subnet, next hop
//! and address. What gets no mark stays on any0, for the bond.
//!
//! ```text
//! mark and conntrack mark   .... .TTT SNNN NNNN .... .... .... ....
//!                                 |   ||
//!                                 |   |network, 1 to 64; 0 none
//!                                 |   tied there by its program (a socket's mark only)
//!                                 treatment of what stays on any0 (conntrack mark only)
//! ```
//!
//! All of it is one table of nftables, which is replaced as a whole at each change (one transaction: a flow sees the old or
//! the new one), one policy rule and one routing table per network. Marks of other programs in other bits are kept.

mod exits;
mod script;
mod unruled;

#[cfg(test)]
mod tests;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cgroup::CgroupPath;
use crate::journal::Change;
use crate::netlink::Rule;
use crate::nft::{self, NftError};
use crate::prefix::IpPrefix;
use crate::routing::plain;

pub(crate) use exits::is_refusal;
pub use exits::sync_routes;
pub use unruled::Unruled;

/// Most networks at once.
pub const MAXIMUM_EXITS: u8 = 64;
/// Bits of a mark that name a network.
pub const NETWORK_MASK: u32 = 0x007f_0000;
/// Beside the network, in the mark of a socket that its program has tied to it; the fast path's marks have it not.
pub const TIED: u32 = 0x0080_0000;
/// Bits of a conntrack mark that name a treatment.
pub const TREATMENT_MASK: u32 = 0x0700_0000;
const NETWORK_SHIFT: u32 = 16;
const TREATMENT_SHIFT: u32 = 24;
/// Most slots that new flows are dealt out by.
pub const MAXIMUM_SLOTS: usize = 256;
/// Most rules.
pub const MAXIMUM_RULES: usize = 2_000;
/// Most destinations of one rule.
pub const MAXIMUM_DESTINATIONS: usize = 4_096;
/// No IPv4 link carries less.
const LEAST_MTU: u32 = 68;
/// Before the rules of `routing`.
pub const PRIORITY: u32 = 32_490;

/// The mark of a network with this number.
pub const fn mark_of(number: u8) -> u32 {
    (number as u32) << NETWORK_SHIFT & NETWORK_MASK
}

/// The number of the network in a mark; `None` if there is none.
pub const fn network_of(mark: u32) -> Option<u8> {
    match (mark & NETWORK_MASK) >> NETWORK_SHIFT {
        0 => None,
        number => Some(number as u8),
    }
}

/// How a flow that stays on any0 is to be carried, as it stands in the conntrack mark.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stay {
    /// As the configuration says for all.
    Default,
    /// Over all networks.
    Bonded,
    /// Every packet on two networks.
    Duplicated,
    /// With forward error correction.
    Protected,
}

impl Stay {
    const fn code(self) -> u32 {
        match self {
            Self::Default => 0,
            Self::Bonded => 1,
            Self::Duplicated => 2,
            Self::Protected => 3,
        }
    }

    /// Reads a conntrack mark.
    pub const fn of_mark(mark: u32) -> Self {
        match (mark & TREATMENT_MASK) >> TREATMENT_SHIFT {
            1 => Self::Bonded,
            2 => Self::Duplicated,
            3 => Self::Protected,
            _ => Self::Default,
        }
    }
}

/// A network as direct mode uses it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Exit {
    /// 1 to [`MAXIMUM_EXITS`]; stays with the network, so that living flows keep theirs.
    pub number: u8,
    /// Name of its interface.
    pub interface: String,
    /// Number of its interface; `None` while it is gone, when all its flows are refused.
    pub index: Option<u32>,
    /// Subnets that lie on the link itself.
    pub subnets: Vec<IpPrefix>,
    /// The way on for IPv4, if there is one.
    pub v4: Option<NextHop>,
    /// The way on for IPv6, if there is one.
    pub v6: Option<NextHop>,
    /// Bytes of the longest packet that its link carries.
    pub mtu: u32,
    /// What makes IPv6 packets of its IPv4 flows, where it has no IPv4 but a NAT64.
    pub translation: Option<Translation>,
}

/// The interface of a program that translates IPv4 packets into IPv6 ones and back (RFC 6877).
///
/// It reads a network's IPv4 packets there, and sends the IPv6 ones itself with the network's mark, from addresses in
/// `own`, which nobody else sees: they leave with the network's address. Their answers are handed to it on the same interface, and it
/// writes IPv4 packets there. That takes no forwarding of IPv6, which would change how the machine is a host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Translation {
    /// The interface's name.
    pub interface: String,
    /// Its number.
    pub index: u32,
    /// The prefix of IPv6 addresses that stand for this side's IPv4 ones.
    pub own: IpPrefix,
    /// The longest IPv4 packet, in bytes.
    pub mtu: u32,
}

/// The next hop of a default route.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NextHop {
    /// `None` on point-to-point links.
    pub gateway: Option<IpAddr>,
}

/// The slots by which new flows are dealt out, each a network's number; an empty list leaves the flow on any0.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Choice {
    /// For IPv4.
    pub v4: Vec<u8>,
    /// For IPv6.
    pub v6: Vec<u8>,
    /// The networks for those that are [`RealTime`].
    pub best: Best,
}

/// The network that each family's real-time flows take; `None` to deal them out like all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Best {
    /// For IPv4.
    pub v4: Option<u8>,
    /// For IPv6.
    pub v6: Option<u8>,
}

/// By what new flows are known as real-time: one of both is enough.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RealTime {
    /// Differentiated services code points, 0 to 63.
    pub code_points: Vec<u8>,
    /// Destinations, protocols above IP (with ports) and destination ports to which such flows went before.
    pub services: Vec<(IpAddr, u8, u16)>,
}

/// What becomes of a new flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It takes a network of this choice, an index of [`Direct::choices`].
    Leave(usize),
    /// The same, but where the choice has no network for the flow's family the flow is refused as below.
    LeaveOrRefuse(usize),
    /// It stays on any0.
    Stay(Stay),
    /// It is refused with an ICMP error: the networks that it may take are gone.
    Refuse,
}

impl Outcome {
    /// The choice that it points to.
    pub const fn choice(self) -> Option<usize> {
        match self {
            Self::Leave(choice) | Self::LeaveOrRefuse(choice) => Some(choice),
            Self::Stay(_) | Self::Refuse => None,
        }
    }
}

/// Which new flows a rule is for. What is `None` does not matter; all else must be so.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FlowMatch {
    /// Path of the program's control group, from the root of the version 2 hierarchy. While there is none, the rule does not count.
    pub cgroup: Option<String>,
    /// The user's number.
    pub user: Option<u32>,
    /// One of these destinations; an empty list matches nothing.
    pub destinations: Option<Vec<IpPrefix>>,
    /// One of these destinations, protocols above IP (with ports) and destination ports; an empty list matches nothing.
    #[serde(default)]
    pub services: Option<Vec<(IpAddr, u8, u16)>>,
    /// Number of the protocol above IP.
    pub protocol: Option<u8>,
    /// The destination port, from and to; TCP or UDP if `protocol` says nothing.
    pub ports: Option<(u16, u16)>,
    /// The differentiated services code point, 0 to 63.
    pub dscp: Option<u8>,
}

/// A rule: the first that matches decides.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowRule {
    /// For which flows.
    pub matching: FlowMatch,
    /// What becomes of them.
    pub outcome: Outcome,
}

/// All of direct mode, as it should be in the kernel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Direct {
    /// Name of the TUN interface.
    pub interface: String,
    /// Its addresses, which applications have.
    pub addresses: Vec<IpAddr>,
    /// Mark of the bond's own packets, which are not to lose it: they have their networks by their sockets.
    pub own_mark: u32,
    /// Table number of a network is this plus its own number.
    pub table: u32,
    /// Destinations that have routes of their own and are never led out.
    pub near: Vec<IpPrefix>,
    /// Further addresses of the TUN interface, which neighbours on links know: flows to and from them are left to the routes,
    /// and broadcasts stay on the interface.
    pub neighbourly: Vec<IpAddr>,
    /// Whether flows of others, which this machine forwards, are led out too; looking for them costs each packet that comes in a little.
    pub forwarding: bool,
    /// Connections over a network ask for ECN, so that its packets can be marked.
    pub ecn: bool,
    /// The networks.
    pub exits: Vec<Exit>,
    /// Which flows take the best network of their choice, and not turns.
    pub real_time: RealTime,
    /// Ways to deal out flows; rules and `otherwise` point here.
    pub choices: Vec<Choice>,
    /// In order.
    pub rules: Vec<FlowRule>,
    /// For flows that no rule matches.
    pub otherwise: Outcome,
}

/// Why direct mode cannot be set up as asked.
#[derive(Debug, Error)]
pub enum DirectError {
    /// A value that cannot be.
    #[error("direct mode: {0}")]
    Invalid(&'static str),
    /// nftables.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// The kernel lacks what tells flows apart.
    #[error(
        "this kernel cannot lead flows out directly, so nothing is changed and traffic keeps the machine's own routes; load its \
         connection tracking (modprobe -a nf_conntrack nft_ct nft_numgen nft_masq), or join a gateway: {0}"
    )]
    Unable(NftError),
    /// Routes.
    #[error(transparent)]
    Netlink(#[from] crate::netlink::NetlinkError),
    /// The kernel's routing cannot be asked at all.
    #[error("cannot open a routing socket: {0}")]
    Open(std::io::Error),
}

/// Has nftables check what every table of direct mode needs: connection tracking, turns, address translation. Nothing is changed.
///
/// # Errors
/// [`DirectError::Unable`].
pub fn is_possible() -> Result<(), DirectError> {
    let script = format!(
        "table inet anabranch_possible {{\n  chain output {{\n    type route hook output priority mangle;\n    \
         ct state new ct mark & {NETWORK_MASK:#x} == 0 numgen inc mod 2 vmap {{ 0 : accept, 1 : accept }}\n  }}\n  \
         chain postrouting {{\n    type nat hook postrouting priority srcnat;\n    masquerade\n  }}\n}}\n"
    );
    nft::check(&script).map_err(DirectError::Unable)
}

impl Direct {
    /// Looks for values that would be refused, or would become something else than a value in a script.
    ///
    /// # Errors
    /// [`DirectError::Invalid`] names the first.
    pub fn check(&self) -> Result<(), DirectError> {
        let ensure = |right: bool, what| if right { Ok(()) } else { Err(DirectError::Invalid(what)) };
        let interface = |name: &str| {
            !name.is_empty()
                && name.len() < 16
                && !name.contains(|letter: char| "\"\\/*".contains(letter) || letter.is_control())
        };
        ensure(interface(&self.interface), "a name that no interface can have")?;
        ensure(self.exits.len() <= MAXIMUM_EXITS.into(), "too many networks")?;
        ensure(
            self.rules.len() <= MAXIMUM_RULES && self.choices.len() <= MAXIMUM_RULES + 1,
            "too many rules",
        )?;
        for (at, exit) in self.exits.iter().enumerate() {
            ensure(interface(&exit.interface), "a name that no interface can have")?;
            ensure((1..=MAXIMUM_EXITS).contains(&exit.number), "a network without a number")?;
            let again = self.exits[..at]
                .iter()
                .any(|other| other.number == exit.number || other.interface == exit.interface);
            ensure(!again, "one network twice")?;
            ensure(exit.mtu >= LEAST_MTU, "a link of packets that are too short")?;
            if let Some(translation) = &exit.translation {
                ensure(interface(&translation.interface), "a name that no interface can have")?;
                let prefix = translation.own;
                ensure(!prefix.is_ipv4() && prefix.length() == 96, "a translator without its prefix")?;
                ensure(translation.mtu >= LEAST_MTU, "a translator of packets that are too short")?;
            }
        }
        let known = |number: &u8| self.exits.iter().any(|exit| exit.number == *number);
        for slots in self.choices.iter().flat_map(|choice| [&choice.v4, &choice.v6]) {
            ensure(
                slots.len() <= MAXIMUM_SLOTS && slots.iter().all(known),
                "slots for a network that there is not",
            )?;
        }
        let best = self.choices.iter().flat_map(|choice| [choice.best.v4, choice.best.v6]).flatten();
        ensure(best.into_iter().all(|number| known(&number)), "a best network that there is not")?;
        let RealTime { code_points, services } = &self.real_time;
        ensure(code_points.iter().all(|dscp| *dscp < 64), "a code point over 63")?;
        ensure(services.len() <= MAXIMUM_DESTINATIONS, "too many services")?;
        let outcomes = self.rules.iter().map(|rule| rule.outcome).chain([self.otherwise]);
        for outcome in outcomes {
            ensure(
                outcome.choice().is_none_or(|choice| choice < self.choices.len()),
                "a rule without its choice",
            )?;
        }
        for FlowRule { matching, .. } in &self.rules {
            let path = matching.cgroup.as_ref().is_none_or(|path| CgroupPath::new(path).is_ok());
            ensure(path, "a path that no control group has")?;
            ensure(matching.ports.is_none_or(|(from, to)| from <= to), "ports the wrong way round")?;
            ensure(matching.dscp.is_none_or(|dscp| dscp < 64), "a code point over 63")?;
            let few = matching.destinations.as_ref().is_none_or(|all| all.len() <= MAXIMUM_DESTINATIONS);
            ensure(few, "too many destinations")?;
            let services = matching.services.as_deref().unwrap_or_default();
            ensure(services.len() <= MAXIMUM_DESTINATIONS, "too many services")?;
        }
        Ok(())
    }

    /// What must be undone later, and the table itself. Routes of the networks are [`sync_routes`]'.
    ///
    /// A new table has counted no flows, so it would begin with the first slot each time; it begins with slot `turn` of each choice. Who
    /// counts it up with each table has turns go on.
    ///
    /// # Errors
    /// [`DirectError::Invalid`].
    pub fn plan(&self, turn: usize) -> Result<Vec<Change>, DirectError> {
        self.check()?;
        let mut changes = vec![Change::FlowMarks { bits: NETWORK_MASK | TREATMENT_MASK }];
        for exit in &self.exits {
            let table = self.table_of(exit);
            changes.push(Change::RoutingTable { number: table, interface: exit.interface.clone() });
            for ipv6 in [false, true] {
                changes.push(Change::Rule(Rule {
                    ipv6,
                    priority: PRIORITY,
                    mark: Some(mark_of(exit.number)),
                    mask: Some(NETWORK_MASK),
                    source: None,
                    invert: false,
                    table,
                    suppress_prefix_length: None,
                }));
            }
        }
        changes.push(Change::NftTable { name: self.table_name(), script: self.script(turn) });
        Ok(changes)
    }

    /// Replaces the running table at once; `turn` as in [`Self::plan`]. Living flows keep their networks.
    ///
    /// # Errors
    /// Any [`DirectError`] but those of routes.
    pub fn reload(&self, turn: usize) -> Result<(), DirectError> {
        self.check()?;
        Ok(nft::load(&(nft::removal(&self.table_name()) + &self.script(turn)))?)
    }

    fn table_of(&self, exit: &Exit) -> u32 {
        self.table + u32::from(exit.number)
    }

    fn table_name(&self) -> String {
        format!("anabranch_direct_{}", plain(&self.interface))
    }
}
