//! How each change is taken back.

use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::ChangeError;
use crate::cgroup::{CgroupPath, Hierarchy};
use crate::desktop;
use crate::dns::{self, Original};
use crate::mptcp::paths;
use crate::netlink::conntrack::Conntrack;
use crate::netlink::{NetlinkError, Route, Rule, unless_missing};
use crate::nft;
use crate::radio::Radios;
use crate::wireless::{Wireless, WirelessError, WirelessMode};

/// One entry of the journal.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "undo", rename_all = "snake_case")]
pub enum Undo {
    /// Remove a policy rule.
    Rule(Rule),
    /// Remove a route.
    Route {
        /// The route.
        route: Route,
        /// Its interface's name, for people.
        interface: String,
    },
    /// Empty a routing table of our own.
    RoutingTable {
        /// Its number.
        number: u32,
    },
    /// Clear marks of tracked connections, once nothing sets them any more.
    FlowMarks {
        /// Their bits.
        bits: u32,
    },
    /// Remove our MPTCP endpoints and their rules, and set the old limit.
    Mptcp {
        /// Before the first table of a network.
        table: u32,
        /// Subflows that were allowed; `None` if the limit was not changed.
        subflows: Option<u32>,
    },
    /// Write the old value of a kernel setting, unless somebody else has changed it since.
    Setting {
        /// The file in `/proc/sys`.
        path: PathBuf,
        /// The value it had.
        before: String,
        /// The value we wrote.
        ours: String,
    },
    /// Remove a table of nftables.
    NftTable {
        /// Its name.
        name: String,
    },
    /// Let systemd-resolved forget the interface's name servers.
    Resolved {
        /// The interface.
        interface: String,
    },
    /// Put the old resolv.conf back, unless somebody else has replaced ours since.
    ResolvConf {
        /// The file.
        path: PathBuf,
        /// What it was.
        before: Original,
        /// It was replaced for networks, not for any0.
        #[serde(default)]
        for_networks: bool,
    },
    /// Put the processes of a control group into the one above it, and remove it.
    Cgroup {
        /// Its path.
        path: String,
    },
    /// Let NetworkManager look after an interface again.
    Unmanaged {
        /// The interface.
        interface: String,
    },
    /// Switch an interface on again.
    LinkOff {
        /// The interface.
        interface: String,
    },
    /// Remove a monitor interface of our own.
    Monitor {
        /// Its name.
        interface: String,
    },
    /// Remove a station interface of our own.
    Station {
        /// Its name.
        interface: String,
    },
}

impl Undo {
    /// Takes the change back. What is gone already is no failure.
    pub(super) fn carry_out(&self) -> Result<(), ChangeError> {
        match self {
            Self::Rule(rule) => Ok(unless_missing(super::open_netlink()?.delete_rule(rule))?),
            Self::Route { route, .. } => Ok(unless_missing(super::open_netlink()?.delete_route(route))?),
            Self::RoutingTable { number } => empty_table(*number),
            Self::FlowMarks { bits } => clear_marks(*bits),
            Self::Mptcp { table, subflows } => Ok(paths::end(*table, *subflows)?),
            Self::Setting { path, before, ours } => match fs::read_to_string(path) {
                // The setting went with its interface.
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(ChangeError::file("read", path)(error)),
                Ok(now) if now.trim() != ours => Ok(()),
                Ok(_) => fs::write(path, before).map_err(ChangeError::file("write", path)),
            },
            Self::NftTable { name } => Ok(nft::load(&nft::removal(name))?),
            Self::Resolved { interface } => dns::revert_resolved(interface),
            Self::ResolvConf { path, before, for_networks } => before.put_back(path, *for_networks),
            Self::Cgroup { path } => Ok(Hierarchy::find()?.dissolve(&CgroupPath::new(path)?)?),
            Self::Unmanaged { interface } => match super::open_netlink()?.link(interface)? {
                // The card was unplugged.
                None => Ok(()),
                Some(_) => Ok(desktop::set_managed(interface, true)?),
            },
            Self::LinkOff { interface } => super::set_link_up(interface, true),
            Self::Monitor { interface } => remove_wireless(interface, WirelessMode::Monitor),
            Self::Station { interface } => remove_wireless(interface, WirelessMode::Station),
        }
    }
}

fn empty_table(number: u32) -> Result<(), ChangeError> {
    let mut netlink = super::open_netlink()?;
    let routes = netlink.routes()?;
    routes
        .iter()
        .filter(|route| route.table == number)
        .try_for_each(|route| Ok(unless_missing(netlink.delete_route(route))?))
}

/// Flows that live on would else be led to whichever network has their number at the next start.
fn clear_marks(bits: u32) -> Result<(), ChangeError> {
    let mut conntrack = Conntrack::open().map_err(NetlinkError::from)?;
    // Its modules may have been unloaded.
    if conntrack.is_available() {
        conntrack.clear_marks(bits)?;
    }
    Ok(())
}

/// Removes a wireless interface if it is there and is used so.
fn remove_wireless(interface: &str, mode: WirelessMode) -> Result<(), ChangeError> {
    let known = match Wireless::open() {
        // The driver was unloaded, and the interface with it.
        Err(WirelessError::None) => return Ok(()),
        other => other?.interfaces()?,
    };
    let own = known.iter().find(|one| one.name == interface && one.mode == mode);
    own.map_or(Ok(()), |own| Ok(unless_missing(Radios::open()?.remove_interface(own.index))?))
}

impl fmt::Display for Undo {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(formatter, "remove rule {rule}"),
            Self::Route { route, interface } => {
                let route = Route { interface: None, ..route.clone() };
                write!(formatter, "remove route {route} dev {interface}")
            }
            Self::RoutingTable { number } => write!(formatter, "empty routing table {number}"),
            Self::FlowMarks { bits } => write!(formatter, "clear marks {bits:#x} of tracked connections"),
            Self::Mptcp { .. } => {
                formatter.write_str("remove MPTCP endpoints of the networks and their rules")
            }
            Self::Setting { path, before, .. } => write!(formatter, "restore {} = {before}", path.display()),
            Self::NftTable { name } => write!(formatter, "remove nftables table inet {name}"),
            Self::Resolved { interface } => write!(formatter, "forget the name servers of {interface}"),
            Self::ResolvConf { path, .. } => write!(formatter, "restore {}", path.display()),
            Self::Cgroup { path } => write!(formatter, "remove control group {path}"),
            Self::Unmanaged { interface } => write!(formatter, "give {interface} back to NetworkManager"),
            Self::LinkOff { interface } => write!(formatter, "switch {interface} on"),
            Self::Monitor { interface } => write!(formatter, "remove monitor interface {interface}"),
            Self::Station { interface } => write!(formatter, "remove interface {interface}"),
        }
    }
}
