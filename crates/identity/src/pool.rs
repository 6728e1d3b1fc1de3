//! Pools of inner addresses. Host number 1 is the gateway, clients follow from 2; a client has the same host number in
//! both pools, so that its addresses can be told from each other at a glance.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;
use wire::hello::Prefixed;

/// Host number of the gateway.
const GATEWAY_HOST: u32 = 1;
/// Host number of the first client.
const FIRST_CLIENT: u32 = 2;

/// A text that is no pool.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum PoolError {
    /// Not IPv4/PREFIX of a fitting size.
    #[error("expected an IPv4 network such as 10.86.0.0/16, with a prefix from 8 to 30")]
    V4,
    /// Bits are set behind the prefix.
    #[error("bits are set behind the prefix: the network would be {0}")]
    HostBits(String),
    /// Not IPv6/64.
    #[error("expected an IPv6 network such as fd12:3456:789a::/64, with prefix 64")]
    V6,
}

/// An IPv4 network whose addresses are leased to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv4Pool {
    network: Ipv4Addr,
    prefix: u8,
}

impl Default for Ipv4Pool {
    /// `10.86.0.0/16`.
    fn default() -> Self {
        Self { network: Ipv4Addr::new(10, 86, 0, 0), prefix: 16 }
    }
}

impl Ipv4Pool {
    /// The gateway's address.
    pub fn gateway(self) -> Prefixed<Ipv4Addr> {
        self.address(GATEWAY_HOST)
    }

    /// The network itself.
    pub fn network(self) -> Prefixed<Ipv4Addr> {
        Prefixed { address: self.network, prefix: self.prefix }
    }

    /// Address of a client; `None` if the pool has no such host.
    pub(crate) fn client(self, host: u32) -> Option<Prefixed<Ipv4Addr>> {
        (FIRST_CLIENT..=self.last_host()).contains(&host).then(|| self.address(host))
    }

    /// Host numbers that clients may have, in order.
    pub(crate) fn client_hosts(self) -> std::ops::RangeInclusive<u32> {
        FIRST_CLIENT..=self.last_host()
    }

    /// All but the broadcast address.
    fn last_host(self) -> u32 {
        (u32::MAX >> self.prefix) - 1
    }

    fn address(self, host: u32) -> Prefixed<Ipv4Addr> {
        Prefixed { address: Ipv4Addr::from(u32::from(self.network) | host), prefix: self.prefix }
    }
}

impl FromStr for Ipv4Pool {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (network, prefix) = text.split_once('/').ok_or(PoolError::V4)?;
        let network: Ipv4Addr = network.parse().map_err(|_| PoolError::V4)?;
        let prefix: u8 =
            prefix.parse().ok().filter(|prefix| (8..=30).contains(prefix)).ok_or(PoolError::V4)?;
        let masked = Ipv4Addr::from(u32::from(network) & !(u32::MAX >> prefix));
        if masked != network {
            return Err(PoolError::HostBits(format!("{masked}/{prefix}")));
        }
        Ok(Self { network, prefix })
    }
}

impl fmt::Display for Ipv4Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.network, self.prefix)
    }
}

/// An IPv6 network of prefix 64 whose addresses are leased to clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ipv6Pool {
    network: Ipv6Addr,
}

impl Ipv6Pool {
    /// A unique local network (RFC 4193 section 3.1): `fd`, 40 random bits, subnet 0.
    pub fn unique_local(random: [u8; 5]) -> Self {
        let mut octets = [0; 16];
        octets[0] = 0xfd;
        octets[1..6].copy_from_slice(&random);
        Self { network: octets.into() }
    }

    /// The gateway's address.
    pub fn gateway(self) -> Prefixed<Ipv6Addr> {
        self.client(GATEWAY_HOST)
    }

    /// The network itself.
    pub fn network(self) -> Prefixed<Ipv6Addr> {
        Prefixed { address: self.network, prefix: 64 }
    }

    /// Address of a client.
    pub(crate) fn client(self, host: u32) -> Prefixed<Ipv6Addr> {
        Prefixed { address: Ipv6Addr::from(u128::from(self.network) | u128::from(host)), prefix: 64 }
    }
}

impl FromStr for Ipv6Pool {
    type Err = PoolError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let network = text.strip_suffix("/64").ok_or(PoolError::V6)?;
        let network: Ipv6Addr = network.parse().map_err(|_| PoolError::V6)?;
        let masked = Ipv6Addr::from(u128::from(network) >> 64 << 64);
        if masked != network {
            return Err(PoolError::HostBits(format!("{masked}/64")));
        }
        Ok(Self { network })
    }
}

impl fmt::Display for Ipv6Pool {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/64", self.network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_stay_inside_the_network() {
        let pool: Ipv4Pool = "192.168.7.0/30".parse().unwrap();
        assert_eq!(pool.gateway().to_string(), "192.168.7.1/30");
        assert_eq!(pool.client_hosts().collect::<Vec<_>>(), [2]);
        assert_eq!(pool.client(2).unwrap().to_string(), "192.168.7.2/30");
        assert_eq!((pool.client(1), pool.client(3)), (None, None));
        assert_eq!(Ipv4Pool::default().client_hosts().count(), 65_533);
    }

    #[test]
    fn wrong_pools_are_named() {
        for wrong in ["10.0.0.0", "10.0.0.0/31", "10.0.0.0/7", "10.0.0/16", "x/16", "10.0.0.0/"] {
            assert_eq!(wrong.parse::<Ipv4Pool>(), Err(PoolError::V4), "{wrong}");
        }
        assert_eq!("10.86.0.1/16".parse::<Ipv4Pool>(), Err(PoolError::HostBits("10.86.0.0/16".to_owned())));
        assert_eq!("fd00::/48".parse::<Ipv6Pool>(), Err(PoolError::V6));
        assert_eq!("fd00::5/64".parse::<Ipv6Pool>(), Err(PoolError::HostBits("fd00::/64".to_owned())));
    }

    #[test]
    fn a_unique_local_network_starts_with_fd() {
        let pool = Ipv6Pool::unique_local([1, 2, 3, 4, 5]);
        assert_eq!(pool.to_string(), "fd01:203:405::/64");
        assert_eq!(pool.gateway().to_string(), "fd01:203:405::1/64");
        assert_eq!(pool.to_string().parse(), Ok(pool));
    }
}
