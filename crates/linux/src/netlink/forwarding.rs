//! Whether this machine sends packets of others on.

use super::message::{self, Message, Request};
use super::{DUMP, Netlink, NetlinkError};
use crate::ipv6;

impl Netlink {
    /// Whether any interface of this namespace forwards, in either family.
    pub fn forwards(&mut self) -> Result<bool, NetlinkError> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            // `struct netconfmsg` is the family alone.
            let request = || Request::new(libc::RTM_GETNETCONF, DUMP, &[family as u8, 0, 0, 0]);
            match self.dump("ask what is forwarded", request, parse) {
                Ok(found) if found.contains(&true) => return Ok(true),
                Ok(_) => {}
                Err(_) if family == libc::AF_INET6 && !ipv6::is_there() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

/// Whether one interface forwards; `None` for what only new interfaces will begin with.
fn parse(message: Message<'_>) -> Option<bool> {
    if message.kind != libc::RTM_NEWNETCONF {
        return None;
    }
    let mut forwards = false;
    for (kind, value) in message::attributes(message.body.get(4..)?) {
        let number = message::number(value, 0)?;
        match kind {
            INTERFACE if number == OF_NEW_ONES => return None,
            FORWARDING | FORCED_FORWARDING => forwards |= number != 0,
            _ => {}
        }
    }
    Some(forwards)
}

// Attributes of netconf messages (`linux/netconf.h`).
const INTERFACE: u16 = 1;
const FORWARDING: u16 = 2;
const FORCED_FORWARDING: u16 = 9;
/// `NETCONFA_IFINDEX_DEFAULT`, -2.
const OF_NEW_ONES: u32 = u32::MAX - 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;

    #[test]
    fn it_is_seen_for_all_and_for_one_interface_of_either_family() {
        if !may_test() {
            return;
        }
        let (near, far) = (Namespace::anonymous().unwrap(), Namespace::anonymous().unwrap());
        near.join(&far, "cable", "cable").unwrap();
        let forwards = || near.run(|| Netlink::open().unwrap().forwards().unwrap()).unwrap();
        assert!(!forwards());
        for setting in
            ["net.ipv4.ip_forward", "net.ipv4.conf.cable.forwarding", "net.ipv6.conf.all.forwarding"]
        {
            near.set_sysctl(setting, "1").unwrap();
            assert!(forwards(), "{setting}");
            near.set_sysctl(setting, "0").unwrap();
            assert!(!forwards(), "{setting}");
        }
        near.set_sysctl("net.ipv4.conf.default.forwarding", "1").unwrap();
        assert!(!forwards(), "of interfaces that are not there yet");
    }
}
