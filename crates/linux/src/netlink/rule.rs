//! Policy rules: which table a packet is looked up in.

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::message::{self, Message, Request};
use super::{ACK, CREATE, DUMP, Netlink, NetlinkError};

/// One policy rule.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Rule {
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// Order of the rules, lowest first.
    pub priority: u32,
    /// Only packets with this firewall mark.
    pub mark: Option<u32>,
    /// The bits of the mark that matter; all if `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mask: Option<u32>,
    /// Only packets from this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// Only packets that do *not* match.
    pub invert: bool,
    /// The table to look in.
    pub table: u32,
    /// Ignore routes with prefixes of at most this many bits.
    pub suppress_prefix_length: Option<u32>,
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = if self.ipv6 { "IPv6" } else { "IPv4" };
        let not = if self.invert { " not" } else { "" };
        write!(formatter, "{family} {}:{not} from ", self.priority)?;
        match self.source {
            Some(source) => write!(formatter, "{source}")?,
            None => formatter.write_str("all")?,
        }
        if let Some(mark) = self.mark {
            write!(formatter, " fwmark {mark:#x}")?;
            if let Some(mask) = self.mask {
                write!(formatter, "/{mask:#x}")?;
            }
        }
        write!(formatter, " lookup {}", self.table)?;
        if let Some(length) = self.suppress_prefix_length {
            write!(formatter, " suppress_prefixlength {length}")?;
        }
        Ok(())
    }
}

impl Netlink {
    /// All rules of this namespace, both families.
    pub fn rules(&mut self) -> Result<Vec<Rule>, NetlinkError> {
        let mut rules = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            let mut body = [0; 12];
            body[0] = family as u8;
            rules.extend(self.dump("list rules", || Request::new(libc::RTM_GETRULE, DUMP, &body), parse)?);
        }
        Ok(rules)
    }

    /// Adds a rule. Fails with [`NetlinkError::is_exists`] if the very same is there.
    pub fn add_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        self.change(&format!("add rule {rule}"), request(libc::RTM_NEWRULE, CREATE, rule))
    }

    /// Removes a rule.
    pub fn delete_rule(&mut self, rule: &Rule) -> Result<(), NetlinkError> {
        self.change(&format!("remove rule {rule}"), request(libc::RTM_DELRULE, ACK, rule))
    }
}

fn request(kind: u16, flags: u16, rule: &Rule) -> Request {
    let mut body = [0; 12];
    body[0] = if rule.ipv6 { libc::AF_INET6 as u8 } else { libc::AF_INET as u8 };
    body[2] = match rule.source {
        Some(IpAddr::V4(_)) => 32,
        Some(IpAddr::V6(_)) => 128,
        None => 0,
    };
    body[4] = u8::try_from(rule.table).unwrap_or(libc::RT_TABLE_UNSPEC);
    body[7] = FR_ACT_TO_TBL;
    if rule.invert {
        body[8..12].copy_from_slice(&FIB_RULE_INVERT.to_ne_bytes());
    }
    let mut request = Request::new(kind, flags, &body);
    request.number(FRA_PRIORITY, rule.priority).number(FRA_TABLE, rule.table);
    if let Some(mark) = rule.mark {
        request.number(FRA_FWMARK, mark).number(FRA_FWMASK, rule.mask.unwrap_or(u32::MAX));
    }
    if let Some(source) = rule.source {
        request.address(FRA_SRC, source);
    }
    if let Some(length) = rule.suppress_prefix_length {
        request.number(FRA_SUPPRESS_PREFIXLEN, length);
    }
    request
}

fn parse(message: Message<'_>) -> Option<Rule> {
    if message.kind != libc::RTM_NEWRULE {
        return None;
    }
    let body = message.body;
    let mut rule = Rule {
        ipv6: i32::from(*body.first()?) == libc::AF_INET6,
        priority: 0,
        mark: None,
        mask: None,
        source: None,
        invert: message::number(body, 8)? & FIB_RULE_INVERT != 0,
        table: u32::from(*body.get(4)?),
        suppress_prefix_length: None,
    };
    for (kind, value) in message::attributes(body.get(12..)?) {
        match kind {
            FRA_PRIORITY => rule.priority = message::number(value, 0)?,
            FRA_SRC => rule.source = message::address(value),
            FRA_TABLE => rule.table = message::number(value, 0)?,
            FRA_FWMARK => rule.mark = message::number(value, 0).filter(|mark| *mark != 0),
            FRA_FWMASK => rule.mask = message::number(value, 0).filter(|mask| *mask != u32::MAX),
            // The kernel says "none" as -1.
            FRA_SUPPRESS_PREFIXLEN => {
                rule.suppress_prefix_length = message::number(value, 0).filter(|length| *length <= 128);
            }
            _ => {}
        }
    }
    Some(rule)
}

const FR_ACT_TO_TBL: u8 = 1;
const FIB_RULE_INVERT: u32 = 2;
const FRA_SRC: u16 = 2;
const FRA_PRIORITY: u16 = 6;
const FRA_FWMARK: u16 = 10;
const FRA_SUPPRESS_PREFIXLEN: u16 = 14;
const FRA_TABLE: u16 = 15;
const FRA_FWMASK: u16 = 16;
