//! What `up` changes so that packets of applications go to any0 and those of the bond do not.
//!
//! The main table is left as it is, so the programs that look after the links keep working. Three rules of each
//! family are put before the look-up in the main table (priority 32766):
//!
//! 1. packets without our mark: the main table, but without its default routes, so that what lies on a local network
//!    is reached directly;
//! 2. packets with our mark, which are the bond's own: the main table, so that they leave by the networks;
//! 3. all others: the table whose only route leads to any0.
//!
//! The second comes before the third of every device on the machine, so that no bond is carried by another.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::direct::{MAXIMUM_EXITS, is_refusal};
use crate::journal::Change;
use crate::netlink::{Netlink, NetlinkError, Route, Rule};
use crate::nft;
use crate::prefix::IpPrefix;

/// What the rules need to know.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Routing {
    /// Name of the TUN interface.
    pub interface: String,
    /// Its number; 0 in a plan that is only printed.
    pub interface_index: u32,
    /// Mark of the bond's own packets.
    pub mark: u32,
    /// Number of the table that holds the route to any0.
    pub table: u32,
    /// Whether IPv4 goes to any0.
    pub ipv4: bool,
    /// Whether IPv6 goes to any0. Where the gateway has no IPv6, leaving it out would let packets bypass any0.
    pub ipv6: bool,
    /// Whether packets that would leave by another interface without the mark are refused.
    pub kill_switch: bool,
}

impl Routing {
    /// The mark unless configured; any number that no other program uses will do.
    pub const DEFAULT_MARK: u32 = 0xab51;
    /// The table's number unless configured.
    pub const DEFAULT_TABLE: u32 = 0xab51;

    /// Every change, in the order in which it is made.
    pub fn plan(&self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.kill_switch {
            changes.push(self.kill_switch_table());
        }
        for (wanted, ipv6, all) in [(self.ipv4, false, IpPrefix::ALL_V4), (self.ipv6, true, IpPrefix::ALL_V6)]
        {
            if !wanted {
                continue;
            }
            let route = Route { table: self.table, ..Route::over(all, self.interface_index) };
            changes.push(Change::Route { route, interface: self.interface.clone() });
            let mark = Some(self.mark);
            // With the mark in it, the rule is not the very same as another device's.
            let local = Rule {
                ipv6,
                priority: LOCAL_PRIORITY,
                mark,
                mask: None,
                source: None,
                invert: true,
                table: Route::MAIN_TABLE,
                suppress_prefix_length: Some(0),
            };
            let own = Rule {
                ipv6,
                priority: OWN_PRIORITY,
                mark,
                mask: None,
                source: None,
                invert: false,
                table: Route::MAIN_TABLE,
                suppress_prefix_length: None,
            };
            let capture = Rule {
                ipv6,
                priority: CAPTURE_PRIORITY,
                mark,
                mask: None,
                source: None,
                invert: true,
                table: self.table,
                suppress_prefix_length: None,
            };
            changes.extend([local, own, capture].map(Change::Rule));
        }
        changes
    }

    /// Whether the mark, the table or one of the tables of direct mode's networks is used already, by another device or another
    /// program. Rules that lead to an empty table are not: those are what a dead one left.
    ///
    /// # Errors
    /// If rules or routes cannot be read.
    pub fn is_taken(&self) -> Result<bool, NetlinkError> {
        let mut netlink = Netlink::open()?;
        let rules = netlink.rules()?;
        let mut tables = rules.clone();
        tables.retain(|rule| rule.table == self.table || rule.mark == Some(self.mark));
        let routes = netlink.routes()?;
        let in_use =
            |table: u32| table != Route::MAIN_TABLE && routes.iter().any(|route| route.table == table);
        // A network's table is emptied of what is not its own. So no living device may have one there, and nobody else:
        // what a dead one left is known by its refusal.
        let reach = u32::from(MAXIMUM_EXITS);
        let living = rules.iter().any(|rule| {
            rule.priority == CAPTURE_PRIORITY
                && rule.table.abs_diff(self.table) <= reach
                && in_use(rule.table)
        });
        let networks = self.table.saturating_add(1)..=self.table.saturating_add(reach);
        let ours = |table| routes.iter().any(|route| route.table == table && is_refusal(route));
        let foreign = routes.iter().any(|route| networks.contains(&route.table) && !ours(route.table));
        Ok(living || foreign || tables.iter().any(|rule| in_use(rule.table)))
    }

    fn kill_switch_table(&self) -> Change {
        let (name, interface, mark) = (self.kill_switch_name(), &self.interface, self.mark);
        let script = format!(
            r#"table inet {name} {{
  chain output {{
    type filter hook output priority filter; policy accept;
    oifname {{ "lo", "{interface}" }} accept
    meta mark {mark:#x} accept
    udp dport {{ 67, 547 }} accept
    icmpv6 type {{ nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert, mld2-listener-report }} accept
    counter reject with icmpx type admin-prohibited
  }}
}}
"#
        );
        Change::NftTable { name, script }
    }

    fn kill_switch_name(&self) -> String {
        format!("anabranch_kill_switch_{}", plain(&self.interface))
    }
}

/// The change that lets answers arrive on `interface` although another network has the better route, if the
/// kernel would drop them (`rp_filter` 1, strict; RFC 3704 section 2.2).
///
/// The higher of the two values counts (kernel: ip-sysctl), so raising the interface's own is enough.
pub fn loosen_reverse_path(interface: &str) -> io::Result<Option<Change>> {
    let path = |interface: &str| -> PathBuf {
        Path::new("/proc/sys/net/ipv4/conf").join(interface).join("rp_filter")
    };
    let read = |interface: &str| -> io::Result<u8> {
        let text = fs::read_to_string(path(interface))?;
        text.trim().parse().map_err(|_| io::ErrorKind::InvalidData.into())
    };
    if read("all")?.max(read(interface)?) != STRICT {
        return Ok(None);
    }
    Ok(Some(Change::Setting { path: path(interface), value: LOOSE.to_string() }))
}

/// `name` with what nftables does not allow in identifiers replaced.
pub(crate) fn plain(name: &str) -> String {
    let name: String =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '_' }).collect();
    debug_assert!(nft::is_plain_name(&name));
    name
}

const STRICT: u8 = 1;
const LOOSE: u8 = 2;
const LOCAL_PRIORITY: u32 = 32_500;
const OWN_PRIORITY: u32 = 32_505;
const CAPTURE_PRIORITY: u32 = 32_510;

#[cfg(test)]
mod tests;
