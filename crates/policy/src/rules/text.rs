//! How matchers are written and shown.

use std::fmt;
use std::str::FromStr;

use super::matcher::{
    Dscp, DscpError, Matcher, MatcherKind, PortError, PortPattern, ProgramError, ProgramPattern, Protocol,
    UserId, last_part,
};

impl FromStr for Dscp {
    type Err = DscpError;

    /// A number or a name of RFC 4594 or RFC 8622.
    fn from_str(text: &str) -> Result<Self, DscpError> {
        let fail = || DscpError(text.to_owned());
        let lower = text.to_ascii_lowercase();
        let digit = |byte: &u8, from: u8, to: u8| (from..=to).contains(byte).then(|| byte - b'0');
        match lower.as_bytes() {
            b"ef" => Self::try_from(46),
            b"le" => Self::try_from(1),
            [b'c', b's', class] => Self::try_from(digit(class, b'0', b'7').ok_or_else(fail)? * 8),
            [b'a', b'f', class, drop] => {
                let class = digit(class, b'1', b'4').ok_or_else(fail)?;
                Self::try_from(class * 8 + digit(drop, b'1', b'3').ok_or_else(fail)? * 2)
            }
            _ => Self::try_from(text.parse::<u8>().map_err(|_| fail())?),
        }
    }
}

impl FromStr for ProgramPattern {
    type Err = ProgramError;

    fn from_str(text: &str) -> Result<Self, ProgramError> {
        let fail = || ProgramError::Syntax(text.to_owned());
        if let Some(group) = text.strip_prefix("cgroup:") {
            let below = group.strip_suffix('/').unwrap_or(group);
            return if group.starts_with('/') { Ok(Self::Cgroup(below.to_owned())) } else { Err(fail()) };
        }
        if text.starts_with('/') && !last_part(text).is_empty() {
            return Ok(Self::Path(text.to_owned()));
        }
        if text.is_empty() || text.contains('/') { Err(fail()) } else { Ok(Self::Name(text.to_owned())) }
    }
}

impl FromStr for Protocol {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let named = PROTOCOLS.into_iter().find(|(_, name)| *name == text).map(|(protocol, _)| protocol);
        named.ok_or_else(|| PortError::Syntax(text.to_owned()))
    }
}

impl FromStr for PortPattern {
    type Err = PortError;

    fn from_str(text: &str) -> Result<Self, PortError> {
        let syntax = || PortError::Syntax(text.to_owned());
        let (protocol, ports) = match text.split_once('/') {
            Some((protocol, ports)) => (Some(protocol.parse().map_err(|_| syntax())?), ports),
            None => (None, text),
        };
        if let (None, Ok(protocol)) = (protocol, text.parse()) {
            return Ok(Self::all_of(protocol));
        }
        let (first, last) = ports.split_once('-').unwrap_or((ports, ports));
        let number = |text: &str| text.parse::<u16>().map_err(|_| syntax());
        Self::new(protocol, number(first)?, number(last)?)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(program) => program.fmt(formatter),
            Self::User(user) => user.fmt(formatter),
            Self::Destination(prefix) => prefix.fmt(formatter),
            Self::Domain(domain) => domain.fmt(formatter),
            Self::Port(ports) => ports.fmt(formatter),
            Self::Dscp(dscp) => dscp.fmt(formatter),
            Self::Class(class) => class.fmt(formatter),
        }
    }
}

impl fmt::Display for MatcherKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Program => "program",
            Self::User => "user",
            Self::Destination => "destination",
            Self::Domain => "domain",
            Self::Port => "port",
            Self::Dscp => "DSCP",
            Self::Class => "class",
        })
    }
}

impl fmt::Display for UserId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.0)
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.get())
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOLS.into_iter().find(|(protocol, _)| protocol == self) {
            Some((_, name)) => formatter.write_str(name),
            None => write!(formatter, "protocol {}", self.0),
        }
    }
}

impl fmt::Display for ProgramPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(text) | Self::Name(text) => formatter.write_str(text),
            Self::Cgroup(group) if group.is_empty() => formatter.write_str("cgroup:/"),
            Self::Cgroup(group) => write!(formatter, "cgroup:{group}"),
        }
    }
}

impl fmt::Display for PortPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = self.range();
        match self.protocol() {
            Some(protocol) if first == 0 => return protocol.fmt(formatter),
            Some(protocol) => write!(formatter, "{protocol}/")?,
            None => {}
        }
        if first == last { write!(formatter, "{first}") } else { write!(formatter, "{first}-{last}") }
    }
}

/// Protocols that have a name here.
const PROTOCOLS: [(Protocol, &str); 4] =
    [(Protocol::TCP, "tcp"), (Protocol::UDP, "udp"), (Protocol(1), "icmp"), (Protocol(58), "ipv6-icmp")];
