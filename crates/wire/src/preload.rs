//! What `anabranch run --virtual` tells the library that it preloads into programs: one environment variable.
//!
//! ```text
//! ANABRANCH_PRELOAD = proxy *( " " name "=" [IPv4] "," IPv6 )
//! 127.0.0.1:40123 far=10.254.3.4,fdab:51ab:51ab:6:1:2:3:4 near=,fdab:51ab:51ab:6:5:6:7:8
//! ```
//!
//! The addresses are those that belong to the peers' keys; nobody else has them, so a connection to one is meant for that peer.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4};

/// The variable's name.
pub const VARIABLE: &str = "ANABRANCH_PRELOAD";
/// What tells programs that a name is a peer's: `far.peer`.
pub const SUFFIX: &str = ".peer";
/// Peers that are told of; an environment has little room.
pub const MAX_PEERS: usize = 500;
/// Longest name: a request of SOCKS5 has room for 255 bytes, the suffix included.
const MAX_NAME: usize = 240;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Preload {
    /// Where the proxy listens.
    pub proxy: SocketAddrV4,
    /// Who can be reached by it.
    pub peers: Vec<NamedPeer>,
}

/// A peer by the name and the addresses that programs may use for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NamedPeer {
    /// Its name on this machine.
    pub name: String,
    /// Its IPv4 address, unless another peer's key has the same.
    pub v4: Option<Ipv4Addr>,
    /// Its IPv6 address.
    pub v6: Ipv6Addr,
}

impl Preload {
    /// Of these peers; those whose names are no host names are left out, as no program could use them, and an address is the first's
    /// that has it.
    pub fn new(proxy: SocketAddrV4, peers: impl IntoIterator<Item = (String, Ipv4Addr, Ipv6Addr)>) -> Self {
        let mut told = Self { proxy, peers: Vec::new() };
        for (name, v4, v6) in peers.into_iter().filter(|(name, ..)| is_host_name(name)).take(MAX_PEERS) {
            let v4 = Some(v4).filter(|v4| told.by_address(IpAddr::V4(*v4)).is_none());
            told.peers.push(NamedPeer { name, v4, v6 });
        }
        told
    }

    /// Reads the variable's value; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let proxy = words.next()?.parse().ok()?;
        let mut peers = Vec::new();
        for word in words.take(MAX_PEERS) {
            let (name, addresses) = word.split_once('=')?;
            let (v4, v6) = addresses.split_once(',')?;
            let v4 = if v4.is_empty() { None } else { Some(v4.parse().ok()?) };
            let name = Some(name).filter(|name| is_host_name(name))?.to_owned();
            peers.push(NamedPeer { name, v4, v6: v6.parse().ok()? });
        }
        Some(Self { proxy, peers })
    }

    /// The peer of a host name, with or without [`SUFFIX`]; capitals do not matter.
    pub fn by_name(&self, host: &str) -> Option<&NamedPeer> {
        let name = bare(host);
        self.peers.iter().find(|peer| peer.name.eq_ignore_ascii_case(name))
    }

    /// The peer that an address belongs to.
    pub fn by_address(&self, address: IpAddr) -> Option<&NamedPeer> {
        self.peers.iter().find(|peer| match address {
            IpAddr::V4(v4) => peer.v4 == Some(v4),
            IpAddr::V6(v6) => peer.v6 == v6,
        })
    }
}

impl fmt::Display for Preload {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.proxy)?;
        for NamedPeer { name, v4, v6 } in &self.peers {
            write!(formatter, " {name}=")?;
            if let Some(v4) = v4 {
                write!(formatter, "{v4}")?;
            }
            write!(formatter, ",{v6}")?;
        }
        Ok(())
    }
}

/// A peer's name without what tells programs that it is one.
pub fn bare(host: &str) -> &str {
    host.strip_suffix(SUFFIX).unwrap_or(host)
}

fn is_host_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, last: u8) -> (String, Ipv4Addr, Ipv6Addr) {
        (name.to_owned(), Ipv4Addr::new(10, 254, 0, last), Ipv6Addr::from(u128::from(last)))
    }

    #[test]
    fn what_is_told_is_read_again() {
        let proxy = "127.0.0.1:4000".parse().unwrap();
        let told = Preload::new(proxy, [peer("far", 1), peer("my phone", 2), peer("same", 1)]);
        assert_eq!(told.to_string(), "127.0.0.1:4000 far=10.254.0.1,::1 same=,::1");
        assert_eq!(Preload::parse(&told.to_string()), Some(told.clone()));
        for host in ["far", "far.peer", "FAR.peer"] {
            assert_eq!(told.by_name(host).unwrap().name, "far");
        }
        assert_eq!(told.by_name("far.example.org"), None);
        assert_eq!(told.by_address("10.254.0.1".parse().unwrap()).unwrap().name, "far");
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "far",
            "127.0.0.1:1 far",
            "127.0.0.1:1 far=1.2.3.4",
            "127.0.0.1:1 far=x,::1",
            "[::1]:1",
            "127.0.0.1:1  a=,::1",
        ] {
            assert_eq!(Preload::parse(text), None, "{text}");
        }
    }
}
