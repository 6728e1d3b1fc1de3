//! What a rule can ask of a flow.

use std::net::IpAddr;

use units::IpPrefix;

use super::DomainPattern;
use crate::FlowClass;

/// What is known of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowFacts<'a> {
    /// Path of the program's executable.
    pub program: Option<&'a str>,
    /// The program's control group, from the root of the v2 hierarchy, such as `/user.slice/app.scope`.
    pub cgroup: Option<&'a str>,
    /// Who runs the program.
    pub user: Option<UserId>,
    /// Where the flow goes.
    pub destination: IpAddr,
    /// Names that were resolved to the destination.
    pub domains: &'a [&'a str],
    /// Transport protocol.
    pub protocol: Protocol,
    /// Destination port; 0 where the protocol has none.
    pub port: u16,
    /// DSCP of its packets.
    pub dscp: Dscp,
    /// What it needs, if that is known yet.
    pub class: Option<FlowClass>,
}

/// One thing that a rule asks of a flow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Matcher {
    /// Who sends.
    Program(ProgramPattern),
    /// Who runs the program.
    User(UserId),
    /// Where to, by address.
    Destination(IpPrefix),
    /// Where to, by name.
    Domain(DomainPattern),
    /// Protocol and destination port.
    Port(PortPattern),
    /// DSCP.
    Dscp(Dscp),
    /// Learned class.
    Class(FlowClass),
}

/// The kinds of [`Matcher`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum MatcherKind {
    /// [`Matcher::Program`].
    Program,
    /// [`Matcher::User`].
    User,
    /// [`Matcher::Destination`].
    Destination,
    /// [`Matcher::Domain`].
    Domain,
    /// [`Matcher::Port`].
    Port,
    /// [`Matcher::Dscp`].
    Dscp,
    /// [`Matcher::Class`].
    Class,
}

/// A numeric user id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct UserId(pub u32);

/// An IP protocol number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Protocol(pub u8);

/// A program, by its executable or its control group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramPattern {
    /// The executable's whole path: `/usr/bin/rsync`.
    Path(String),
    /// The last part of the executable's path: `rsync`.
    Name(String),
    /// A control group of the v2 hierarchy, with all below it: its path without a final slash, so nothing for the root.
    Cgroup(String),
}

/// Why a text names no program.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ProgramError {
    /// Nothing, or a relative path.
    #[error("\"{0}\" names no program: give a name (rsync), a whole path (/usr/bin/rsync) or cgroup:/path")]
    Syntax(String),
}

/// Destination ports and their protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortPattern {
    protocol: Option<Protocol>,
    first: u16,
    last: u16,
}

/// Why a text or numbers are no ports.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PortError {
    /// Not readable.
    #[error("\"{0}\" is no port: write 443, tcp/443, udp/5000-6000 or udp")]
    Syntax(String),
    /// The first is greater than the last.
    #[error("port range {first}-{last} is empty: the first must not be greater than the last")]
    Empty {
        /// The first port.
        first: u16,
        /// The last port.
        last: u16,
    },
    /// Port 0.
    #[error("port 0 does not exist; ports go from 1 to 65535")]
    Zero,
}

/// Differentiated services code point, 0 to 63.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Dscp(u8);

/// Why something is no code point.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("\"{0}\" is no DSCP: give 0 to 63, cs0 to cs7, af11 to af43, ef or le")]
pub struct DscpError(pub(super) String);

impl Matcher {
    /// Which kind it is of.
    pub fn kind(&self) -> MatcherKind {
        match self {
            Self::Program(_) => MatcherKind::Program,
            Self::User(_) => MatcherKind::User,
            Self::Destination(_) => MatcherKind::Destination,
            Self::Domain(_) => MatcherKind::Domain,
            Self::Port(_) => MatcherKind::Port,
            Self::Dscp(_) => MatcherKind::Dscp,
            Self::Class(_) => MatcherKind::Class,
        }
    }

    /// Whether it matches the flow.
    pub fn matches(&self, flow: &FlowFacts<'_>) -> bool {
        match self {
            Self::Program(program) => program.matches(flow),
            Self::User(user) => flow.user == Some(*user),
            Self::Destination(prefix) => prefix.contains(flow.destination),
            Self::Domain(domain) => flow.domains.iter().any(|name| domain.matches(name)),
            Self::Port(ports) => ports.matches(flow.protocol, flow.port),
            Self::Dscp(dscp) => flow.dscp == *dscp,
            Self::Class(class) => flow.class == Some(*class),
        }
    }

    /// Whether it matches every flow that `other`, of the same kind, matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Program(own), Self::Program(other)) => own.covers(other),
            (Self::Destination(own), Self::Destination(other)) => own.covers(*other),
            (Self::Domain(own), Self::Domain(other)) => own.covers(other),
            (Self::Port(own), Self::Port(other)) => own.covers(other),
            _ => self == other,
        }
    }
}

impl MatcherKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Program, Self::User, Self::Destination, Self::Domain, Self::Port, Self::Dscp, Self::Class];
}

impl Protocol {
    /// TCP.
    pub const TCP: Self = Self(wire::inner::TCP);
    /// UDP.
    pub const UDP: Self = Self(wire::inner::UDP);
}

impl ProgramPattern {
    fn matches(&self, flow: &FlowFacts<'_>) -> bool {
        match self {
            Self::Path(path) => flow.program == Some(path),
            Self::Name(name) => flow.program.is_some_and(|program| last_part(program) == name),
            Self::Cgroup(group) => flow.cgroup.is_some_and(|own| is_within(own, group)),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Name(name), Self::Path(path)) => last_part(path) == name,
            (Self::Cgroup(own), Self::Cgroup(other)) => is_within(other, own),
            _ => self == other,
        }
    }
}

impl PortPattern {
    /// Ports `first` to `last`, of one protocol or of every one that has ports.
    ///
    /// # Errors
    /// [`PortError`] if the range is empty or begins at 0.
    pub fn new(protocol: Option<Protocol>, first: u16, last: u16) -> Result<Self, PortError> {
        if first > last {
            return Err(PortError::Empty { first, last });
        }
        if first == 0 {
            return Err(PortError::Zero);
        }
        Ok(Self { protocol, first, last })
    }

    /// Everything of a protocol, whether it has ports or not.
    pub const fn all_of(protocol: Protocol) -> Self {
        Self { protocol: Some(protocol), first: 0, last: u16::MAX }
    }

    /// The protocol, if only one is meant.
    pub const fn protocol(self) -> Option<Protocol> {
        self.protocol
    }

    /// First and last port; from 0 if ports do not matter.
    pub const fn range(self) -> (u16, u16) {
        (self.first, self.last)
    }

    fn matches(&self, protocol: Protocol, port: u16) -> bool {
        self.protocol.is_none_or(|own| own == protocol) && (self.first..=self.last).contains(&port)
    }

    fn covers(&self, other: &Self) -> bool {
        let protocol = self.protocol.is_none() || self.protocol == other.protocol;
        protocol && self.first <= other.first && other.last <= self.last
    }
}

impl FlowFacts<'_> {
    /// Whether it is a real-time flow, as far as known: by what its sender asks for, or by what flows like it were.
    ///
    /// Not only datagrams: a call that falls back to TCP, or a terminal, says so by its code point and is better off on the best network.
    pub fn is_real_time(&self) -> bool {
        self.class == Some(FlowClass::RealTime) || Dscp::REAL_TIME.contains(&self.dscp)
    }
}

impl Dscp {
    /// Those by which senders ask for little delay and jitter: EF (telephony), VOICE-ADMIT (RFC 5865), CS5 (signalling), CS4 (real-time
    /// interactive), AF41 to AF43 (conferences) and CS3 (broadcast video); RFC 4594 section 2.3, and RFC 8837 for browsers.
    pub const REAL_TIME: [Self; 8] =
        [Self(46), Self(44), Self(40), Self(32), Self(34), Self(36), Self(38), Self(24)];

    /// The code point.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// From the six upper bits of a traffic class octet.
    pub const fn of_traffic_class(octet: u8) -> Self {
        Self(octet >> 2)
    }
}

impl TryFrom<u8> for Dscp {
    type Error = DscpError;

    fn try_from(value: u8) -> Result<Self, DscpError> {
        if value < 64 { Ok(Self(value)) } else { Err(DscpError(value.to_string())) }
    }
}

pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether a control group is `ancestor` or lies below it. The root is "".
fn is_within(group: &str, ancestor: &str) -> bool {
    group.strip_prefix(ancestor).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
