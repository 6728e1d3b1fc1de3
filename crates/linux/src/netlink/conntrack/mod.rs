//! The kernel's connection tracking: which flows there are, what they carry, and how to make it forget them.
//!
//! In direct mode the network of a flow is written in its connection mark. When a network dies, its entries are
//! removed ([`Conntrack::delete_marked`]) so that the next packet of a flow is assigned anew.
//!
//! Takes `CAP_NET_ADMIN`. A [`Conntrack`] stays in the network namespace in which it was opened. Byte counts are
//! there only if the setting `net.netfilter.nf_conntrack_acct` was 1 when the flow began.

mod entry;

use std::io;

pub use entry::{Count, Entry, Family, Status, TcpState, Transport, Tuple};

use super::message::{self, Message, Request};
use super::socket::NetlinkSocket;
use super::{ACK, DUMP, NetlinkError};

/// Bits of connection marks. Selects entries: those with `entry.mark & mask == mark & mask`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MarkFilter {
    /// The wanted value.
    pub mark: u32,
    /// The bits that matter; with 0 everything matches.
    pub mask: u32,
}

/// A connection to the connection tracking of one network namespace.
pub struct Conntrack {
    socket: NetlinkSocket,
}

impl Conntrack {
    /// Opens a connection to the current network namespace. Fails where the kernel has no nfnetlink.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: NetlinkSocket::open(libc::NETLINK_NETFILTER, 0)? })
    }

    /// Whether this kernel tracks connections and this process may see them.
    pub fn is_available(&mut self) -> bool {
        self.count().is_ok()
    }

    /// How many entries there are now, of all families.
    ///
    /// The error tells why there is no connection tracking: `EPERM` without `CAP_NET_ADMIN`, `EINVAL` where
    /// the kernel lacks it.
    pub fn count(&mut self) -> Result<u32, NetlinkError> {
        let mut count = 0;
        let request = Request::new(kind(GET_STATISTICS), ACK, &body(libc::AF_UNSPEC));
        self.socket.exchange("count tracked connections", request, |message| {
            count = message
                .body
                .get(GENERIC_HEADER..)
                .and_then(|rest| message::attributes(rest).find(|(kind, _)| *kind == STATISTICS_ENTRIES))
                .and_then(|(_, value)| message::network_number(value))
                .unwrap_or(count);
        })?;
        Ok(count)
    }

    /// Gives each entry of both families to `on_entry`, one at a time: memory does not grow with their number.
    ///
    /// The kernel's table goes on changing meanwhile, so an entry may be seen twice or not at all.
    pub fn for_each(
        &mut self,
        filter: Option<MarkFilter>,
        mut on_entry: impl FnMut(&Entry),
    ) -> Result<(), NetlinkError> {
        let mut request = Request::new(kind(GET), DUMP, &body(libc::AF_UNSPEC));
        add_filter(&mut request, filter);
        let each = |message: Message<'_>| {
            let entry = Entry::from_message(&message);
            // Kernels before 3.19 ignore the filter.
            if let Some(entry) = entry.filter(|entry| filter.is_none_or(|filter| filter.matches(entry.mark)))
            {
                on_entry(&entry);
            }
        };
        match self.socket.exchange("list tracked connections", request, each) {
            // Changed while it was read: as inexact as any such list.
            Err(error) if error.errno() == libc::EINTR => Ok(()),
            other => other,
        }
    }

    /// The entry of the flow whose first packet was `original`, in the default zone.
    pub fn find(&mut self, original: &Tuple) -> Result<Option<Entry>, NetlinkError> {
        let mut request = Request::new(kind(GET), ACK, &body(original.family().number()));
        original.add_to(&mut request);
        let mut found = None;
        let on_message = |message: Message<'_>| found = Entry::from_message(&message);
        match self.socket.exchange("look a tracked connection up", request, on_message) {
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// Makes the kernel forget the flow. False if it was gone already, or another
    /// one has its addresses now.
    pub fn delete(&mut self, entry: &Entry) -> Result<bool, NetlinkError> {
        let mut request = Request::new(kind(DELETE), ACK, &body(entry.family.number()));
        entry.original.add_to(&mut request);
        if entry.zone != 0 {
            request.attribute(ZONE, &entry.zone.to_be_bytes());
        }
        if let Some(id) = entry.id {
            request.attribute(ID, &id.to_be_bytes());
        }
        match self.socket.request("forget a tracked connection", request) {
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }

    /// Makes the kernel forget all flows, of both families, whose connection mark matches; in one step.
    ///
    /// Needs Linux 4.0 with connection marks. With a mask of 0 all flows are forgotten.
    pub fn delete_marked(&mut self, filter: MarkFilter) -> Result<(), NetlinkError> {
        let mut request = Request::new(kind(DELETE), ACK, &body(libc::AF_UNSPEC));
        add_filter(&mut request, Some(filter));
        self.socket.request(
            &format!("forget tracked connections marked {:#x}/{:#x}", filter.mark, filter.mask),
            request,
        )
    }

    /// Changes the bits `to.mask` of the flow's mark to those of `to.mark`; false if it has ended meanwhile.
    ///
    /// Kernels before 3.19 clear the other bits.
    pub fn set_mark(&mut self, entry: &Entry, to: MarkFilter) -> Result<bool, NetlinkError> {
        let mut request = Request::new(kind(NEW), ACK, &body(entry.family.number()));
        entry.original.add_to(&mut request);
        if entry.zone != 0 {
            request.attribute(ZONE, &entry.zone.to_be_bytes());
        }
        add_filter(&mut request, Some(to));
        match self.socket.request("mark a tracked connection", request) {
            Err(error) if error.is_missing() => Ok(false),
            Err(error) => Err(error),
            Ok(()) => Ok(true),
        }
    }

    /// Clears these bits of the marks of all flows; other bits, and the flows themselves, stay. Returns how many had some of them.
    pub fn clear_marks(&mut self, bits: u32) -> Result<usize, NetlinkError> {
        let mut cleared = 0;
        loop {
            let mut marked = Vec::new();
            self.for_each(None, |entry| {
                if entry.mark & bits != 0 && marked.len() < BATCH {
                    marked.push(*entry);
                }
            })?;
            let mut done = 0;
            for entry in &marked {
                done += usize::from(self.set_mark(entry, MarkFilter { mark: 0, mask: bits })?);
            }
            cleared += done;
            // Of a part that could not be changed nothing more would come.
            if marked.len() < BATCH || done == 0 {
                break;
            }
        }
        Ok(cleared)
    }
}

impl MarkFilter {
    fn matches(self, mark: u32) -> bool {
        mark & self.mask == self.mark & self.mask
    }
}

fn add_filter(request: &mut Request, filter: Option<MarkFilter>) {
    if let Some(filter) = filter {
        let wanted = filter.mark & filter.mask;
        request.attribute(MARK, &wanted.to_be_bytes()).attribute(MARK_MASK, &filter.mask.to_be_bytes());
    }
}

/// The message's number: the subsystem in the upper byte.
const fn kind(operation: u16) -> u16 {
    (CONNECTION_TRACKING << 8) | operation
}

/// `struct nfgenmsg`: family, version 0, resource 0.
fn body(family: libc::c_int) -> [u8; GENERIC_HEADER] {
    [family as u8, 0, 0, 0]
}

/// Flows that are kept in memory to be changed.
const BATCH: usize = 16_384;
const GENERIC_HEADER: usize = 4;
const CONNECTION_TRACKING: u16 = 1;

const NEW: u16 = 0;
const GET: u16 = 1;
const DELETE: u16 = 2;
const GET_STATISTICS: u16 = 5;

const MARK: u16 = 8;
const ID: u16 = 12;
const ZONE: u16 = 18;
const MARK_MASK: u16 = 21;
const STATISTICS_ENTRIES: u16 = 1;

#[cfg(test)]
mod tests;
