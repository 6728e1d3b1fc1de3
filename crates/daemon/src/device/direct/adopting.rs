//! Flows that were there before the daemon was: they go on by the network whose address the world knows them by.

use linux::direct::{Exit, NETWORK_MASK, mark_of};
use linux::netlink::NetlinkError;
use linux::netlink::conntrack::{Conntrack, MarkFilter};

/// Marks the flows of these networks' addresses that have no network yet; returns how many. Of several networks with one address the first
/// gets them.
///
/// Those of hosts behind this machine, and those that have the interface's own address since an earlier start, do not show by the
/// addresses of their packets where they belong, but the kernel knows what it translates them to. Flows that are not translated need
/// no mark.
///
/// # Errors
/// The kernel's.
pub fn adopt_flows<'a>(exits: impl Iterator<Item = &'a Exit> + Clone) -> Result<usize, NetlinkError> {
    if exits.clone().next().is_none() {
        return Ok(0);
    }
    let owner = |address| {
        let mut exits = exits.clone();
        exits.find(|exit| exit.subnets.iter().any(|subnet| subnet.address() == address))
    };
    let mut conntrack = Conntrack::open()?;
    let mut found = Vec::new();
    conntrack.for_each(None, |entry| {
        if entry.mark & NETWORK_MASK == 0
            && entry.status.has_translated_source()
            && let Some(exit) = owner(entry.reply.destination)
        {
            found.push((*entry, exit.number));
        }
    })?;
    let mut adopted = 0;
    for (entry, number) in found {
        let to = MarkFilter { mark: mark_of(number), mask: NETWORK_MASK };
        adopted += usize::from(conntrack.set_mark(&entry, to)?);
    }
    Ok(adopted)
}
