//! Flows that were there before the daemon was: they go on by the network whose address the world knows them by.

use linux::direct::{Direct, Exit, NETWORK_MASK, mark_of};
use linux::netlink::NetlinkError;
use linux::netlink::conntrack::{Conntrack, Entry, MarkFilter};

use super::translation;

/// Marks flows that have no network yet and the address of one that `is_new`; returns how many. Of several networks with one address
/// the first has them.
///
/// Those of hosts behind this machine, and those that have the interface's own address since an earlier start, do not show by the
/// addresses of their packets where they belong, but the kernel knows what it translates them to. Flows that would not be led out if they
/// began now are left alone.
///
/// # Errors
/// The kernel's.
pub fn adopt_flows(wanted: &Direct, is_new: impl Fn(&Exit) -> bool) -> Result<usize, NetlinkError> {
    if !wanted.exits.iter().any(&is_new) {
        return Ok(0);
    }
    let mut conntrack = Conntrack::open()?;
    let mut found = Vec::new();
    conntrack.for_each(None, |entry| {
        if found.len() < MOST
            && let Some(exit) = owner(wanted, entry).filter(|exit| is_new(exit))
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

/// The network that a flow without one belongs to.
fn owner<'a>(wanted: &'a Direct, entry: &Entry) -> Option<&'a Exit> {
    let (source, destination) = (entry.original.source, entry.original.destination);
    let subnets = || wanted.exits.iter().flat_map(|exit| &exit.subnets);
    let is_near = wanted.near.iter().chain(subnets()).any(|prefix| prefix.contains(destination));
    if entry.mark & NETWORK_MASK != 0
        || !entry.status.has_translated_source()
        || is_near
        || translation::is_own(source)
    {
        return None;
    }
    let has = |exit: &&Exit| exit.subnets.iter().any(|subnet| subnet.address() == entry.reply.destination);
    wanted.exits.iter().find(has)
}

/// Flows that are adopted at once.
const MOST: usize = 65_536;
