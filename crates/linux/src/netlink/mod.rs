//! Links, addresses, routes and policy rules through the kernel's routing netlink.
//!
//! Synchronous on purpose: each request is answered by the kernel at once, so it can run on any thread and in
//! any network namespace. A [`Netlink`] stays in the namespace in which it was opened.

mod address;
pub mod conntrack;
mod counters;
mod forwarding;
pub(crate) mod generic;
mod link;
pub(crate) mod message;
mod route;
mod rule;
pub mod sock_diag;
pub(crate) mod socket;

use std::io;

pub use address::InterfaceAddress;
pub use counters::LinkCounters;
pub use link::Link;
pub use route::{Route, RouteKind};
pub use rule::Rule;
pub use socket::NetlinkError;
pub(crate) use socket::unless_missing;

use crate::ipv6;
use message::{Message, Request};
use socket::NetlinkSocket;

/// A connection to the routing part of the kernel.
pub struct Netlink {
    socket: NetlinkSocket,
}

impl Netlink {
    /// Opens a connection to the current network namespace.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: NetlinkSocket::open(libc::NETLINK_ROUTE, 0)? })
    }

    pub(crate) fn change(&mut self, operation: &str, request: Request) -> Result<(), NetlinkError> {
        let of_ipv6 = request.family() == Some(libc::AF_INET6 as u8);
        match self.socket.request(operation, request) {
            // What speaks of IPv6 is not needed where there is none.
            Err(error)
                if of_ipv6
                    && matches!(error.errno(), libc::EAFNOSUPPORT | libc::EOPNOTSUPP)
                    && !ipv6::is_there() =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Dumps, and dumps again if a change interrupted the kernel.
    pub(crate) fn dump<T>(
        &mut self,
        operation: &str,
        request: impl Fn() -> Request,
        parse: impl Fn(Message<'_>) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        const ATTEMPTS: usize = 5;
        let mut attempt = 1;
        loop {
            let mut found = Vec::new();
            match self.socket.exchange(operation, request(), |message| found.extend(parse(message))) {
                Err(error) if error.errno() == libc::EINTR && attempt < ATTEMPTS => attempt += 1,
                Err(error) if error.errno() == libc::EINTR => return Ok(found),
                Err(error) => return Err(error),
                Ok(()) => return Ok(found),
            }
        }
    }
}

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
pub(crate) const ACK: u16 = REQUEST | libc::NLM_F_ACK as u16;
const CREATE: u16 = ACK | (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
pub(crate) const CREATE_OR_REPLACE: u16 = ACK | (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
pub(crate) const DUMP: u16 = REQUEST | libc::NLM_F_DUMP as u16;
