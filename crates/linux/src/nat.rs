//! The gateway's side of the machine: forwarding, address translation, who may reach whom.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use crate::ipv6;
use crate::journal::Change;
use crate::nft;
pub use crate::nft::NftError;
use crate::prefix::IpPrefix;
use crate::routing::plain;

/// What the translation table is made of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nat {
    /// Name of the TUN interface.
    pub interface: String,
    /// The ranges that clients' addresses come from; both families may appear.
    pub clients: Vec<IpPrefix>,
    /// Whether clients may reach each other.
    pub client_to_client: bool,
    /// Ports of the gateway that lead to clients.
    pub forwards: Vec<PortForward>,
}

/// A port of the gateway that leads to a port of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortForward {
    /// UDP instead of TCP.
    pub udp: bool,
    /// The gateway's port.
    pub port: u16,
    /// The client's address and port.
    pub to: SocketAddr,
}

impl Nat {
    /// Every change, in the order in which it is made.
    ///
    /// Fails only if `/proc/sys` cannot be read.
    pub fn plan(&self) -> io::Result<Vec<Change>> {
        let mut changes = Vec::new();
        if self.clients.iter().any(|range| range.is_ipv4()) {
            changes.push(setting("net/ipv4/ip_forward", "1"));
        }
        if self.clients.iter().any(|range| !range.is_ipv4()) && ipv6::is_there() {
            // A forwarding host ignores router advertisements, and would lose its own default route. One that forwards
            // already has none to lose, and in a container these files cannot be written.
            let forwards = fs::read_to_string("/proc/sys/net/ipv6/conf/all/forwarding")?.trim() == "1";
            for interface in fs::read_dir("/proc/sys/net/ipv6/conf")?.take_while(|_| !forwards) {
                let interface = interface?;
                let path = interface.path().join("accept_ra");
                let name = interface.file_name();
                if name == "lo" || name == self.interface.as_str() {
                    continue;
                }
                if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1") {
                    changes.push(Change::Setting { path, value: "2".to_owned() });
                }
            }
            changes.push(setting("net/ipv6/conf/all/forwarding", "1"));
        }
        changes.push(Change::NftTable { name: self.table_name(), script: self.script() });
        Ok(changes)
    }

    /// Replaces the running table at once, to change [`Nat::forwards`] while clients are connected.
    pub fn reload(&self) -> Result<(), NftError> {
        nft::load(&(nft::removal(&self.table_name()) + &self.script()))
    }

    fn table_name(&self) -> String {
        format!("anabranch_{}", plain(&self.interface))
    }

    fn script(&self) -> String {
        let (name, any0) = (self.table_name(), &self.interface);
        let mut sources = String::new();
        let mut masquerade = String::new();
        for family in ["ip", "ip6"] {
            let ranges = self.ranges(family);
            if ranges.is_empty() {
                let protocol = if family == "ip" { "ipv4" } else { "ipv6" };
                sources += &format!("    iifname \"{any0}\" meta nfproto {protocol} drop\n");
            } else {
                sources += &format!("    iifname \"{any0}\" {family} saddr != {{ {ranges} }} drop\n");
                masquerade +=
                    &format!("    oifname != \"{any0}\" {family} saddr {{ {ranges} }} masquerade\n");
            }
        }
        let between =
            if self.client_to_client { "accept" } else { "reject with icmpx type admin-prohibited" };
        let forwards: String = self.forwards.iter().map(forward_rule).collect();
        format!(
            r#"table inet {name} {{
  chain forward {{
    type filter hook forward priority filter; policy accept;
{sources}    iifname "{any0}" oifname "{any0}" {between}
    oifname "{any0}" tcp flags syn tcp option maxseg size set rt mtu
    iifname "{any0}" tcp flags syn tcp option maxseg size set rt mtu
    oifname "{any0}" ct state {{ established, related }} accept
    oifname "{any0}" ct status dnat accept
    oifname "{any0}" drop
  }}
  chain input {{
    type filter hook input priority filter; policy accept;
{sources}  }}
  chain prerouting {{
    type nat hook prerouting priority dstnat; policy accept;
{forwards}  }}
  chain postrouting {{
    type nat hook postrouting priority srcnat; policy accept;
{masquerade}  }}
}}
"#
        )
    }

    fn ranges(&self, family: &str) -> String {
        let ranges: Vec<String> = self
            .clients
            .iter()
            .filter(|range| range.is_ipv4() == (family == "ip"))
            .map(|range| range.network().to_string())
            .collect();
        ranges.join(", ")
    }
}

fn forward_rule(forward: &PortForward) -> String {
    let protocol = if forward.udp { "udp" } else { "tcp" };
    let family = if forward.to.is_ipv4() { "ip" } else { "ip6" };
    let target = match forward.to.ip() {
        IpAddr::V4(address) => format!("{address}:{}", forward.to.port()),
        IpAddr::V6(address) => format!("[{address}]:{}", forward.to.port()),
    };
    format!("    fib daddr type local {protocol} dport {} dnat {family} to {target}\n", forward.port)
}

fn setting(key: &str, value: &str) -> Change {
    Change::Setting { path: Path::new("/proc/sys").join(key), value: value.to_owned() }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::time::Duration;

    use super::*;
    use crate::journal::Journal;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;

    /// Client, gateway and server in a row; "any0" of the gateway is the veth to the client.
    struct Bed {
        client: Namespace,
        gateway: Namespace,
        server: Namespace,
    }

    fn bed() -> Bed {
        let bed = Bed {
            client: Namespace::anonymous().unwrap(),
            gateway: Namespace::anonymous().unwrap(),
            server: Namespace::anonymous().unwrap(),
        };
        bed.gateway.join(&bed.client, "any0", "up").unwrap();
        bed.gateway.join(&bed.server, "wan", "lan").unwrap();
        for (space, interface, address) in [
            (&bed.client, "up", "10.99.0.2/24"),
            (&bed.client, "up", "10.98.0.2/24"),
            (&bed.client, "up", "fd99::2/64"),
            (&bed.gateway, "any0", "10.99.0.1/24"),
            (&bed.gateway, "any0", "fd99::1/64"),
            (&bed.gateway, "wan", "192.0.2.1/24"),
            (&bed.gateway, "wan", "2001:db8::1/64"),
            (&bed.server, "lan", "192.0.2.9/24"),
            (&bed.server, "lan", "2001:db8::9/64"),
        ] {
            space.add_address(interface, address.parse().unwrap()).unwrap();
        }
        for (all, via) in [(IpPrefix::ALL_V4, "10.99.0.1"), (IpPrefix::ALL_V6, "fd99::1")] {
            bed.client.add_route("up", all, Some(via.parse().unwrap()), None).unwrap();
        }
        bed
    }

    /// The source address that a server at `remote` sees of a client that speaks from `local`.
    fn seen_from(bed: &Bed, local: &str, remote: &str) -> Option<IpAddr> {
        let server = bed.server.run(|| UdpSocket::bind(remote)).unwrap().unwrap();
        server.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let client = bed.client.run(|| UdpSocket::bind(local)).unwrap().unwrap();
        client.send_to(b"hello", remote).unwrap();
        Some(server.recv_from(&mut [0; 9]).ok()?.1.ip())
    }

    #[test]
    fn clients_are_translated_checked_and_reachable_by_forwards_only() {
        if !may_test() {
            return;
        }
        let bed = bed();
        let state = std::env::temp_dir().join(format!("ab-{}-nat", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        let mut nat = Nat {
            interface: "any0".to_owned(),
            clients: vec!["10.99.0.0/24".parse().unwrap(), "fd99::/64".parse().unwrap()],
            client_to_client: false,
            forwards: Vec::new(),
        };
        bed.gateway.run(|| Journal::open(&state).unwrap().apply(&nat.plan().unwrap()).unwrap()).unwrap();

        assert_eq!(seen_from(&bed, "10.99.0.2:0", "192.0.2.9:53"), Some("192.0.2.1".parse().unwrap()));
        assert_eq!(seen_from(&bed, "[fd99::2]:0", "[2001:db8::9]:53"), Some("2001:db8::1".parse().unwrap()));
        assert_eq!(seen_from(&bed, "10.98.0.2:0", "192.0.2.9:53"), None, "a foreign source address");

        let service = bed.client.run(|| TcpListener::bind("10.99.0.2:8080")).unwrap().unwrap();
        let knock = |remote: &str| {
            bed.server
                .run(|| TcpStream::connect_timeout(&remote.parse().unwrap(), Duration::from_millis(300)))
        };
        assert!(knock("192.0.2.1:80").unwrap().is_err());
        nat.forwards = vec![PortForward { udp: false, port: 80, to: "10.99.0.2:8080".parse().unwrap() }];
        bed.gateway.run(|| nat.reload().unwrap()).unwrap();
        let mut outside = knock("192.0.2.1:80").unwrap().unwrap();
        let (mut inside, from) = service.accept().unwrap();
        assert_eq!(from.ip(), "192.0.2.9".parse::<IpAddr>().unwrap(), "forwards keep the caller's address");
        inside.write_all(b"served").unwrap();
        drop(inside);
        let mut text = String::new();
        outside.read_to_string(&mut text).unwrap();
        assert_eq!(text, "served");

        // Nobody outside reaches a client that did not ask, even if routes would lead there.
        bed.server
            .add_route("lan", "10.99.0.0/24".parse().unwrap(), Some("192.0.2.1".parse().unwrap()), None)
            .unwrap();
        assert!(knock("10.99.0.2:8080").unwrap().is_err());

        bed.gateway.run(|| Journal::open(&state).unwrap().restore().unwrap()).unwrap();
        let rules = bed.gateway.command("nft").unwrap().args(["list", "ruleset"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&rules.stdout), "");
        let forwarding = bed.gateway.run(|| fs::read_to_string("/proc/sys/net/ipv4/ip_forward")).unwrap();
        assert_eq!(forwarding.unwrap(), "0\n");
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let error = NftError::Missing.to_string();
        assert!(error.contains("nftables"), "{error}");
    }
}
