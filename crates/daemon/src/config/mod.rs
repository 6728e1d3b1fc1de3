//! The configuration: one TOML file in which every key is optional.
//!
//! One table of definitions (`keys.rs`) feeds reading, the messages about wrong values and the commented example
//! (`config.example.toml`), so that they cannot drift apart.

mod example;
mod keys;
mod read;
mod rules;
#[cfg(test)]
mod tests;
mod value;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::{NonZeroU8, NonZeroU16};
use std::path::PathBuf;
use std::time::Duration;

use anabranch::control::DEFAULT_INTERFACE;
use bond::Algorithm;
use identity::{Ipv4Pool, Ipv6Pool, RegistryPlace, SharedRegistry, StateDirectory};
use linux::routing::Routing;
use policy::calendar::BillingDay;
use policy::limit::LimitSettings;
use policy::network::{Percent, Price};
use policy::rules::Rule;
use policy::{ChoiceSettings, Priority, Split, Treatment};
use units::Bytes;
use wire::hello::Name;
use wire::join_link::HostPort;

pub use example::{KeyMeaning, TableMeaning, example, example_with_addresses, tables};
pub(crate) use read::FILE_NAME;
pub use read::{ConfigError, SYSTEM_PATH, Source};
pub use value::ProbeTarget;

/// UDP and TCP port of a gateway unless another is set.
pub const DEFAULT_PORT: NonZeroU16 = match NonZeroU16::new(4600) {
    Some(port) => port,
    None => NonZeroU16::MIN,
};
/// MTU of any0 unless another is set: what fits one datagram over IPv6 on a 1500-byte network, headers included.
pub const DEFAULT_MTU: u16 = 1_440;
/// The same where no gateway is used: that of most networks.
pub const DIRECT_MTU: u16 = 1_500;
/// Value of `gateway` for direct mode only, although a gateway is known.
pub const NO_GATEWAY: &str = "none";
/// All addresses of the machine.
const DEFAULT_LISTEN: [SocketAddr; 2] = [
    SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), DEFAULT_PORT.get()),
    SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), DEFAULT_PORT.get()),
];

/// The whole configuration.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Config {
    /// Keys of both roles, before any table.
    pub daemon: DaemonConfig,
    /// `[device]`.
    pub device: DeviceConfig,
    /// `[network.NAME]`, by interface name.
    pub networks: BTreeMap<String, NetworkConfig>,
    /// `[gateway]`.
    pub gateway: GatewayConfig,
    /// `[[rule]]`, in order.
    pub rules: Vec<Rule>,
}

/// Keys of both roles.
#[derive(Clone, PartialEq, Debug)]
pub struct DaemonConfig {
    /// What this machine calls itself; its host name if `None`.
    pub name: Option<Name>,
    /// User that the daemon becomes once it is set up, if it was started as root.
    pub user: String,
    /// Where the web page and metrics are served; `None` for nowhere.
    pub web: Option<SocketAddr>,
    /// Whether the control API is a service on the machine's message bus too.
    pub dbus: bool,
}

/// `[device]`.
#[derive(Clone, PartialEq, Debug)]
pub struct DeviceConfig {
    /// Name of the interface that applications see.
    pub interface: String,
    /// Its MTU; what the gateway says if `None`.
    pub mtu: Option<u16>,
    /// Which gateway, by its name on this machine; the nearest of all that are known if `None`, none at all if [`NO_GATEWAY`].
    pub gateway: Option<String>,
    /// IPv4 address of any0 where no gateway leases one.
    pub address_v4: Ipv4Addr,
    /// The same for IPv6.
    pub address_v6: Ipv6Addr,
    /// Lead destinations that refuse the gateway's address out directly.
    pub auto_direct: bool,
    /// How new flows are split over networks that go directly.
    pub split: Split,
    /// Whether real-time ones among them take the best network.
    pub real_time_on_best: bool,
    /// Which path takes which packet.
    pub scheduler: SchedulerChoice,
    /// Which controller each path has.
    pub congestion: CongestionChoice,
    /// How senders learn which access points are slow.
    pub steering: SteeringChoice,
    /// How flows are carried unless a rule says otherwise.
    pub default_treatment: Treatment,
    /// Let nothing out beside any0, also while the session is down.
    pub kill_switch: bool,
    /// Use the gateway's DNS servers.
    pub dns: bool,
    /// Whether idle paths are kept open.
    pub keep_alive: KeepAlive,
    /// What is asked for over networks that carry no direct flows, to see what lies beyond; empty for nothing.
    pub probe: Vec<ProbeTarget>,
    /// Battery charge below which only the network with the least energy is used; `None` for never.
    pub power_saving_below: Option<Percent>,
    /// Battery charge below which only the card that draws least is used; `None` for never.
    pub cheapest_below: Option<Percent>,
    /// File in the state directory in which networks and flows are recorded; `None` for no record.
    pub record: Option<String>,
    /// Whether devices whose keys are known are looked for on shared links.
    pub neighbours: bool,
    /// Whether known peers are reached beyond the links too, and by name.
    pub peers: bool,
    /// IPv4 address of any0 for them; worked out from the key if `None`.
    pub neighbour_address: Option<Ipv4Addr>,
    /// How much staler the preferred link to a neighbour may be than another.
    pub maxdiff: Duration,
    /// Firewall mark of the bond's own packets.
    pub mark: u32,
    /// Number of the routing table that leads to any0.
    pub table: u32,
}

/// `[network.NAME]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NetworkConfig {
    /// Order of preference, 0 first.
    pub priority: Priority,
    /// Used only while no other network is left; if `None`, when it is metered.
    pub backup: Option<bool>,
    /// Costs by the byte.
    pub metered: bool,
    /// Not used at all.
    pub off: bool,
    /// Whether neighbours are looked for on it.
    pub neighbours: bool,
    /// What its paths ride on.
    pub carrier: CarrierChoice,
    /// What its traffic costs; `None` if nothing.
    pub price: Option<Price>,
    /// Bytes allowed in a billing period, both directions; `None` for no cap.
    pub cap: Option<Bytes>,
    /// On which day of a month its billing periods begin.
    pub billing_day: BillingDay,
    /// Whose published figures stand for its card's power: a name in [`policy::energy::CARDS`].
    pub card: Option<&'static str>,
}

/// `[gateway]`.
#[derive(Clone, PartialEq, Debug)]
pub struct GatewayConfig {
    /// Name of the interface towards the clients.
    pub interface: String,
    /// MTU of it and of the clients' any0.
    pub mtu: u16,
    /// Where UDP datagrams are taken.
    pub listen: Vec<SocketAddr>,
    /// Port of the framed-TCP carrier, `None` for none.
    pub tcp: Option<NonZeroU16>,
    /// What join links say about where this gateway is.
    pub public_addresses: Vec<HostPort>,
    /// IPv4 network of the clients.
    pub pool_v4: Ipv4Pool,
    /// IPv6 network of the clients; the one drawn by `gateway init` if `None`.
    pub pool_v6: Option<Ipv6Pool>,
    /// Threads that packets go through; one for each processor, up to eight, if `None`.
    pub threads: Option<NonZeroU8>,
    /// DNS servers for the clients; those of this machine if `None`.
    pub dns: Option<Vec<IpAddr>>,
    /// Clients may talk to each other.
    pub client_to_client: bool,
    /// Congestion control of what is sent to clients.
    pub congestion: CongestionChoice,
    /// What clients without limits of their own may carry.
    pub limits: LimitSettings,
    /// The database that the registry is in; a file of the state directory if `None`.
    pub registry: Option<String>,
    /// Certificate authority of its server.
    pub registry_ca: Option<PathBuf>,
}

impl GatewayConfig {
    /// Where the registry of the gateway with this state directory is.
    pub fn registry_place(&self, state: &StateDirectory) -> RegistryPlace {
        match &self.registry {
            None => state.into(),
            Some(connection) => RegistryPlace::Shared(SharedRegistry {
                connection: connection.clone(),
                certificates: self.registry_ca.clone(),
            }),
        }
    }
}

/// Which path takes which packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SchedulerChoice {
    /// The one on which it arrives first.
    #[default]
    EarliestArrival,
    /// The one with the smallest round-trip time that has room.
    MinimumRtt,
    /// Each in proportion to 1/RTT.
    InverseRtt,
    /// Two at once.
    Duplicated,
}

/// Which congestion controller each path has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CongestionChoice {
    /// A model of rate and delay.
    #[default]
    Model,
    /// CUBIC.
    Cubic,
    /// Coupled: LIA (RFC 6356).
    Lia,
    /// Coupled: OLIA.
    Olia,
    /// Coupled: BALIA.
    Balia,
    /// Gives way to all other traffic.
    Background,
}

impl CongestionChoice {
    /// The bond's name of it.
    pub fn algorithm(self) -> Algorithm {
        match self {
            Self::Model => Algorithm::Model,
            Self::Cubic => Algorithm::Cubic,
            Self::Lia => Algorithm::Lia,
            Self::Olia => Algorithm::Olia,
            Self::Balia => Algorithm::Balia,
            Self::Background => Algorithm::Background,
        }
    }
}

/// How senders learn which access points are slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SteeringChoice {
    /// The gateway is told what to use, and how much.
    #[default]
    Limits,
    /// Packets of slow ones count as marked (`[MULTIAP] section 5.2`).
    Marks,
}

/// What paths ride on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CarrierChoice {
    /// UDP, and framed TCP where UDP does not get through.
    #[default]
    Auto,
    /// UDP only.
    Udp,
    /// Framed TCP only.
    Tcp,
}

/// Whether idle paths are kept open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum KeepAlive {
    /// Only where something between the ends would forget them.
    #[default]
    Auto,
    /// Never.
    Off,
    /// At this interval.
    Every(Duration),
}

impl Default for DaemonConfig {
    fn default() -> Self {
        Self { name: None, user: "anabranch".to_owned(), web: None, dbus: true }
    }
}

impl Default for DeviceConfig {
    fn default() -> Self {
        let choice = ChoiceSettings::default();
        Self {
            interface: DEFAULT_INTERFACE.to_owned(),
            mtu: None,
            gateway: None,
            address_v4: Ipv4Addr::new(10, 255, 86, 1),
            address_v6: Ipv6Addr::new(0xfdab, 0x51ab, 0x51ab, 0, 0, 0, 0, 1),
            auto_direct: false,
            split: Split::default(),
            real_time_on_best: true,
            scheduler: SchedulerChoice::default(),
            congestion: CongestionChoice::default(),
            steering: SteeringChoice::default(),
            default_treatment: Treatment::default(),
            kill_switch: false,
            dns: true,
            keep_alive: KeepAlive::default(),
            probe: ProbeTarget::defaults(),
            power_saving_below: choice.least_energy_below,
            cheapest_below: choice.cheapest_adapter_below,
            record: None,
            neighbours: false,
            peers: false,
            neighbour_address: None,
            maxdiff: policy::neighbours::NeighbourSettings::default().maxdiff,
            mark: Routing::DEFAULT_MARK,
            table: Routing::DEFAULT_TABLE,
        }
    }
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            priority: Priority::default(),
            backup: None,
            metered: false,
            off: false,
            neighbours: true,
            carrier: CarrierChoice::default(),
            price: None,
            cap: None,
            billing_day: BillingDay::default(),
            card: None,
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            interface: DEFAULT_INTERFACE.to_owned(),
            mtu: DEFAULT_MTU,
            listen: DEFAULT_LISTEN.to_vec(),
            tcp: Some(DEFAULT_PORT),
            public_addresses: Vec::new(),
            pool_v4: Ipv4Pool::default(),
            pool_v6: None,
            threads: None,
            dns: None,
            client_to_client: false,
            congestion: CongestionChoice::default(),
            limits: LimitSettings::default(),
            registry: None,
            registry_ca: None,
        }
    }
}

impl Config {
    /// The settings of a network; the defaults if it has no table.
    pub fn network(&self, name: &str) -> NetworkConfig {
        self.networks.get(name).copied().unwrap_or_default()
    }
}
