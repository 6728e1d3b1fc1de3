//! The kinds of change.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;
use units::MacAddress;

use super::Undo;
use crate::cgroup::{CgroupError, CgroupPath, Hierarchy};
use crate::desktop::{self, DesktopError};
use crate::dns;
use crate::mptcp::paths::{self, PathsError};
use crate::netlink::{NetlinkError, Route, Rule};
use crate::nft::{self, NftError};
use crate::radio::{RadioNumber, Radios};
use crate::wireless::WirelessError;

/// One change to the machine, described completely.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// A policy rule.
    Rule(Rule),
    /// A route; the name is that of its interface, for people.
    Route {
        /// The route.
        route: Route,
        /// Its interface's name.
        interface: String,
    },
    /// A routing table of our own, whose routes come and go with a network.
    RoutingTable {
        /// Its number.
        number: u32,
        /// The network's interface, for people.
        interface: String,
    },
    /// Marks of tracked connections, which a table of nftables is about to set.
    FlowMarks {
        /// Their bits.
        bits: u32,
    },
    /// MPTCP over networks: the limit of subflows, and whatever [`crate::mptcp::Paths`] sets as networks come and go.
    Mptcp {
        /// Before the first table of a network.
        table: u32,
    },
    /// A kernel setting, by its file in `/proc/sys`.
    Setting {
        /// The file.
        path: PathBuf,
        /// The new value.
        value: String,
    },
    /// A table of nftables, with all that is in it.
    NftTable {
        /// Name of the table, of family inet.
        name: String,
        /// The script that makes it.
        script: String,
    },
    /// Name servers for one interface, by systemd-resolved.
    Resolved {
        /// The interface.
        interface: String,
        /// The servers.
        servers: Vec<std::net::IpAddr>,
        /// What they are asked for.
        asked_for: dns::Names,
    },
    /// Another `/etc/resolv.conf`.
    ResolvConf {
        /// The file.
        path: PathBuf,
        /// Its new content.
        content: String,
    },
    /// A control group of our own; the one above it must be there.
    Cgroup {
        /// Its path.
        path: CgroupPath,
    },
    /// NetworkManager lets an interface go, where it runs and has it.
    Unmanaged {
        /// The interface.
        interface: String,
    },
    /// An interface that is on is switched off.
    LinkOff {
        /// The interface.
        interface: String,
    },
    /// A monitor interface that acknowledges frames, switched on.
    Monitor {
        /// Its radio's name, such as `phy0`.
        radio: String,
        /// Its own name.
        interface: String,
        /// To which address.
        address: MacAddress,
    },
    /// A station interface of our own, off, which NetworkManager does not look after.
    Station {
        /// Its radio's name, such as `phy0`.
        radio: String,
        /// Its own name; no interface may have it yet.
        interface: String,
        /// Its hardware address.
        address: MacAddress,
    },
}

/// Why a change was not made or not taken back.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// The kernel's routing refused.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// The kernel's MPTCP refused.
    #[error(transparent)]
    Mptcp(#[from] PathsError),
    /// nftables refused.
    #[error(transparent)]
    Nft(#[from] NftError),
    /// A file could not be read or written.
    #[error("cannot {operation} {path}: {error}")]
    File {
        /// What was tried.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The file system's error.
        error: io::Error,
    },
    /// systemd-resolved refused.
    #[error("resolvectl: {0}")]
    Resolved(String),
    /// Control groups cannot be used so.
    #[error(transparent)]
    Cgroup(#[from] CgroupError),
    /// NetworkManager refused.
    #[error(transparent)]
    Desktop(#[from] DesktopError),
    /// The kernel's wireless part refused.
    #[error(transparent)]
    Wireless(#[from] WirelessError),
    /// There is no such radio.
    #[error("there is no radio \"{0}\": was it unplugged?")]
    NoRadio(String),
    /// Another interface has the name.
    #[error("there is an interface \"{0}\" already, which is not ours")]
    Taken(String),
}

impl ChangeError {
    pub(crate) fn file(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { operation, path, error }
    }
}

impl Change {
    /// How to take it back, as things are now; `None` if nothing would change.
    pub(super) fn undo(&self) -> Result<Option<Undo>, ChangeError> {
        Ok(Some(match self {
            Self::Rule(rule) => Undo::Rule(rule.clone()),
            Self::Route { route, interface } => {
                Undo::Route { route: route.clone(), interface: interface.clone() }
            }
            Self::RoutingTable { number, .. } => Undo::RoutingTable { number: *number },
            Self::FlowMarks { bits } => Undo::FlowMarks { bits: *bits },
            Self::Mptcp { table } => {
                let before = paths::widen()?.map(|limits| limits.subflows);
                Undo::Mptcp { table: *table, subflows: before }
            }
            Self::Setting { path, value } => {
                let before = fs::read_to_string(path).map_err(ChangeError::file("read", path))?;
                let before = before.trim().to_owned();
                if before == *value {
                    return Ok(None);
                }
                Undo::Setting { path: path.clone(), before, ours: value.clone() }
            }
            Self::NftTable { name, .. } => Undo::NftTable { name: name.clone() },
            Self::Resolved { interface, .. } => Undo::Resolved { interface: interface.clone() },
            Self::ResolvConf { path, content } => Undo::ResolvConf {
                path: path.clone(),
                before: dns::Original::read(path)?,
                for_networks: dns::is_for_networks(content),
            },
            Self::Cgroup { path } => Undo::Cgroup { path: path.as_str().to_owned() },
            Self::Unmanaged { interface } => {
                // Without NetworkManager there is nothing to change.
                if !desktop::is_managed(interface).unwrap_or(false) {
                    return Ok(None);
                }
                Undo::Unmanaged { interface: interface.clone() }
            }
            Self::LinkOff { interface } => {
                let link = super::open_netlink()?.link(interface)?;
                if !link.is_some_and(|link| link.up) {
                    return Ok(None);
                }
                Undo::LinkOff { interface: interface.clone() }
            }
            Self::Monitor { interface, .. } => Undo::Monitor { interface: interface.clone() },
            Self::Station { interface, .. } => {
                // Undoing would remove it.
                if super::open_netlink()?.link(interface)?.is_some() {
                    return Err(ChangeError::Taken(interface.clone()));
                }
                Undo::Station { interface: interface.clone() }
            }
        }))
    }

    /// Makes the change. What is there already is no failure.
    pub(super) fn make(&self) -> Result<(), ChangeError> {
        match self {
            Self::Rule(rule) => match super::open_netlink()?.add_rule(rule) {
                Err(error) if !error.is_exists() => Err(error.into()),
                _ => Ok(()),
            },
            Self::Route { route, .. } => Ok(super::open_netlink()?.add_route(route)?),
            // Routes are set as the network comes and goes, marks as flows do; undoing is prepared before the first.
            Self::RoutingTable { .. } | Self::FlowMarks { .. } => Ok(()),
            Self::Mptcp { .. } => {
                if paths::widen()?.is_some() {
                    paths::set_limits(None)?;
                }
                Ok(())
            }
            Self::Setting { path, value } => fs::write(path, value).map_err(ChangeError::file("write", path)),
            Self::NftTable { name, script } => Ok(nft::load(&(nft::removal(name) + script))?),
            Self::Resolved { interface, servers, asked_for } => {
                dns::set_resolved(interface, servers, *asked_for)
            }
            Self::ResolvConf { path, content } => dns::write_resolv_conf(path, content),
            Self::Cgroup { path } => Ok(Hierarchy::find()?.make(path)?),
            Self::Unmanaged { interface } => Ok(desktop::set_managed(interface, false)?),
            Self::LinkOff { interface } => super::set_link_up(interface, false),
            Self::Monitor { radio, interface, address } => {
                let (mut radios, number) = open_radio(radio)?;
                radios.add_monitor(number, interface, *address)?;
                Ok(())
            }
            Self::Station { radio, interface, address } => {
                let (mut radios, number) = open_radio(radio)?;
                radios.add_station(number, interface, *address)?;
                desktop::keep_off(interface);
                Ok(())
            }
        }
    }
}

fn open_radio(name: &str) -> Result<(Radios, RadioNumber), ChangeError> {
    let mut radios = Radios::open()?;
    let found = radios.list()?.into_iter().find(|known| known.name == name);
    let number = found.ok_or_else(|| ChangeError::NoRadio(name.to_owned()))?.number;
    Ok((radios, number))
}

impl fmt::Display for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(formatter, "rule {rule}"),
            Self::Route { route, interface } => {
                let route = Route { interface: None, ..route.clone() };
                write!(formatter, "route {route} dev {interface}")
            }
            Self::RoutingTable { number, interface } => {
                write!(formatter, "routing table {number} for {interface}")
            }
            Self::FlowMarks { bits } => write!(formatter, "marks {bits:#x} of tracked connections"),
            Self::Mptcp { .. } => formatter.write_str("MPTCP endpoints of the networks and their rules"),
            Self::Setting { path, value } => write!(formatter, "file {} = {value}", path.display()),
            Self::NftTable { name, .. } => write!(formatter, "nftables table inet {name}"),
            Self::Resolved { interface, servers, .. } => {
                let servers: Vec<_> = servers.iter().map(ToString::to_string).collect();
                write!(formatter, "systemd-resolved name servers of {interface}: {}", servers.join(" "))
            }
            Self::ResolvConf { path, .. } => write!(formatter, "file {}", path.display()),
            Self::Cgroup { path } => write!(formatter, "control group {path}"),
            Self::Unmanaged { interface } => write!(formatter, "{interface} without NetworkManager"),
            Self::LinkOff { interface } => write!(formatter, "interface {interface} off"),
            Self::Monitor { radio, interface, address } => {
                write!(formatter, "monitor interface {interface} of {radio} as {address}")
            }
            Self::Station { radio, interface, address } => {
                write!(formatter, "interface {interface} of {radio} as {address}")
            }
        }
    }
}
