//! Generic netlink: kernel interfaces that are found by name, such as `nl80211` (`linux/genetlink.h`).
//!
//! ```text
//! netlink header; command 1, version 1, reserved 2; attributes
//! ```

use std::io;

use super::message::{self, Message, Request};
use super::socket::NetlinkSocket;
use super::{ACK, DUMP, NetlinkError};

/// A connection to the generic netlink of the current network namespace.
pub(crate) struct GenericNetlink {
    socket: NetlinkSocket,
}

/// A family's number, valid until its module is unloaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FamilyNumber(pub(crate) u16);

impl GenericNetlink {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { socket: NetlinkSocket::open(libc::NETLINK_GENERIC, 0)? })
    }

    /// The socket, for an interface that speaks by itself.
    pub(crate) fn into_socket(self) -> NetlinkSocket {
        self.socket
    }

    /// The family called `name`; `None` if this kernel has it not (or not loaded).
    pub(crate) fn family(&mut self, name: &str) -> Result<Option<FamilyNumber>, NetlinkError> {
        self.described(name, |attributes| {
            let (_, value) = message::attributes(attributes).find(|(kind, _)| *kind == FAMILY_NUMBER)?;
            message::short(value, 0).map(FamilyNumber)
        })
    }

    /// The number of the multicast group `group` of the family called `name`; `None` if this kernel has one of them not.
    pub(crate) fn group(&mut self, name: &str, group: &str) -> Result<Option<u32>, NetlinkError> {
        self.described(name, |attributes| {
            let (_, groups) = message::attributes(attributes).find(|(kind, _)| *kind == GROUPS)?;
            message::attributes(groups).find_map(|(_, one)| {
                let of = |wanted| message::attributes(one).find(|(kind, _)| *kind == wanted);
                of(GROUP_NAME).filter(|(_, value)| message::text(value) == group)?;
                message::number(of(GROUP_NUMBER)?.1, 0)
            })
        })
    }

    /// What `read` finds in the kernel's description of a family.
    fn described<T>(
        &mut self,
        name: &str,
        read: impl Fn(&[u8]) -> Option<T>,
    ) -> Result<Option<T>, NetlinkError> {
        let mut request = Request::new(CONTROL, ACK, &header(GET_FAMILY, CONTROL_VERSION));
        request.text(FAMILY_NAME, name);
        let mut found = None;
        let on_message = |message: Message<'_>| {
            found = found.take().or_else(|| read(message.body.get(HEADER..)?));
        };
        match self.socket.exchange(&format!("find the kernel interface {name}"), request, on_message) {
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
            Ok(()) => Ok(found),
        }
    }

    /// Sends `command` to `family` with what `fill` adds; gives the attributes of each answer to `on_answer`.
    pub(crate) fn ask(
        &mut self,
        operation: &str,
        family: FamilyNumber,
        question: Question,
        fill: impl FnOnce(&mut Request),
        mut on_answer: impl FnMut(&[u8]),
    ) -> Result<(), NetlinkError> {
        let flags = if question.dump { DUMP } else { ACK };
        let mut request = Request::new(family.0, flags, &header(question.command, 0));
        fill(&mut request);
        let each = |message: Message<'_>| {
            if message.kind == family.0
                && let Some(attributes) = message.body.get(HEADER..)
            {
                on_answer(attributes);
            }
        };
        match self.socket.exchange(operation, request, each) {
            // Changed while it was read.
            Err(error) if question.dump && error.errno() == libc::EINTR => Ok(()),
            other => other,
        }
    }
}

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Question {
    /// The family's number of it.
    pub(crate) command: u8,
    /// For all there are, not for one.
    pub(crate) dump: bool,
}

/// What follows the netlink header.
pub(crate) fn header(command: u8, version: u8) -> [u8; HEADER] {
    [command, version, 0, 0]
}

/// Size of the header, in bytes.
pub(crate) const HEADER: usize = 4;
const CONTROL: u16 = 16;
const CONTROL_VERSION: u8 = 1;
const GET_FAMILY: u8 = 3;
const FAMILY_NUMBER: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GROUPS: u16 = 7;
const GROUP_NAME: u16 = 1;
const GROUP_NUMBER: u16 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_namespace::in_namespace;

    #[test]
    fn families_are_found_by_name_and_answer() {
        in_namespace(|| {
            let mut netlink = GenericNetlink::open().unwrap();
            let control = netlink.family("nlctrl").unwrap().unwrap();
            assert_eq!(control, FamilyNumber(CONTROL));
            assert_eq!(netlink.family("no-such-thing").unwrap(), None);
            let notify = netlink.group("nlctrl", "notify").unwrap().unwrap();
            assert_eq!(netlink.group("nlctrl", "no-such-thing").unwrap(), None);
            assert_eq!(netlink.group("no-such-thing", "notify").unwrap(), None);
            NetlinkSocket::open(libc::NETLINK_GENERIC, 0).unwrap().hear(notify).unwrap();
            let mut names = Vec::new();
            let question = Question { command: GET_FAMILY, dump: true };
            netlink
                .ask(
                    "list families",
                    control,
                    question,
                    |_| {},
                    |attributes| {
                        names.extend(
                            message::attributes(attributes)
                                .filter(|(kind, _)| *kind == FAMILY_NAME)
                                .map(|(_, value)| message::text(value)),
                        );
                    },
                )
                .unwrap();
            assert!(names.iter().any(|name| name == "nlctrl"), "{names:?}");
        });
    }
}
