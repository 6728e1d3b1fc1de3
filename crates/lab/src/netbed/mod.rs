//! The namespace bed: a device with several networks, a gateway and a server in the Internet, each in a
//! network namespace of its own, joined by emulated links.
//!
//! ```text
//!            +- net1 --(emulator)-- isp1 -+
//!   device --+                            +-- provider ---- gateway 198.51.100.2
//!            +- net2 --(emulator)-- isp2 -+      |
//!                                                +--------- server 203.0.113.10
//! ```
//!
//! The namespaces have no names: they end with the processes that are in them.

mod bonded;
mod direct;
mod echo;
pub mod isolation;
mod process;
mod transfer;
pub mod trial;

pub use bonded::Bonded;
pub use direct::DirectDevice;
pub use echo::Pinger;
pub use process::{ChildProcess, program_beside};
pub use transfer::{FetchReport, FetchRequest, fetch, listen, serve};

use crate::emulator::EmulatedNetwork;
use anyhow::Context;
use linux::netns::Namespace;
use linux::packet_socket::disable_offloads;
use linux::prefix::IpPrefix;
use sim::NetworkSpec;
use std::net::{IpAddr, Ipv4Addr};

/// The gateway's address.
pub const GATEWAY_ADDRESS: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// The server's address.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// The provider's addresses towards gateway and server.
const PROVIDER_TO_GATEWAY: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const PROVIDER_TO_SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Namespaces, links and addresses, all set up.
pub struct NetBed {
    /// Where applications and the device's daemon run.
    pub device: Namespace,
    /// Where the gateway runs.
    pub gateway: Namespace,
    /// Where the server in the Internet runs.
    pub server: Namespace,
    /// The device's networks, in the order of their specs; interface names are [`NetBed::interface`].
    pub networks: Vec<EmulatedNetwork>,
    /// What lies between them: who routes between the networks, and who holds the emulators' interfaces.
    /// Lives as long as the bed.
    _between: Vec<Namespace>,
}

impl NetBed {
    /// Builds the bed. `seed` decides the chance of all links.
    ///
    /// # Errors
    /// If namespaces or interfaces cannot be made (CAP_NET_ADMIN and CAP_SYS_ADMIN).
    pub fn build(specs: &[NetworkSpec], seed: u64) -> anyhow::Result<Self> {
        let [device, gateway, server, provider, wire] = make_namespaces()?;
        for namespace in [&device, &gateway, &server, &provider] {
            furnish(namespace)?;
        }
        cable(&provider, "gw", PROVIDER_TO_GATEWAY, &gateway, "eth0", GATEWAY_ADDRESS)?;
        cable(&provider, "srv", PROVIDER_TO_SERVER, &server, "eth0", SERVER_ADDRESS)?;
        provider.set_sysctl("net.ipv4.ip_forward", "1").context("let the provider forward packets")?;
        let mut networks = Vec::new();
        for (index, spec) in specs.iter().enumerate() {
            let [near, far, inside, outside] = [
                Self::interface(index),
                format!("isp{}", index + 1),
                format!("d{index}"),
                format!("i{index}"),
            ];
            device.join(&wire, &near, &inside)?;
            provider.join(&wire, &far, &outside)?;
            address(&device, &near, device_address(index))?;
            address(&provider, &far, provider_address(index))?;
            default_route(&device, &near, provider_address(index), Some(100 + index as u32))?;
            for (namespace, interface) in [(&device, &near), (&provider, &far)] {
                namespace.run(|| disable_offloads(interface))?.context("switch offloads off")?;
            }
            networks.push(EmulatedNetwork::start(&wire, &inside, &outside, spec, seed + index as u64)?);
        }
        Ok(Self { device, gateway, server, networks, _between: vec![provider, wire] })
    }

    /// A bed without emulators: `count` cables without a limit lead from the device straight to the
    /// gateway, and one from there to the server.
    ///
    /// # Errors
    /// As [`NetBed::build`].
    pub fn unshaped(count: usize) -> anyhow::Result<Self> {
        let make = || Namespace::anonymous().context("make a network namespace");
        let (device, gateway, server) = (make()?, make()?, make()?);
        for namespace in [&device, &gateway, &server] {
            furnish(namespace)?;
        }
        gateway.join(&server, "eth0", "eth0")?;
        address(&gateway, "eth0", GATEWAY_ADDRESS)?;
        address(&gateway, "eth0", PROVIDER_TO_SERVER)?;
        address(&server, "eth0", SERVER_ADDRESS)?;
        default_route(&gateway, "eth0", SERVER_ADDRESS, None)?;
        default_route(&server, "eth0", PROVIDER_TO_SERVER, None)?;
        for index in 0..count {
            let (near, far) = (Self::interface(index), format!("isp{}", index + 1));
            device.join(&gateway, &near, &far)?;
            address(&device, &near, device_address(index))?;
            address(&gateway, &far, provider_address(index))?;
            default_route(&device, &near, provider_address(index), Some(100 + index as u32))?;
        }
        Ok(Self { device, gateway, server, networks: Vec::new(), _between: Vec::new() })
    }

    /// The device's interface of the network with this index.
    pub fn interface(index: usize) -> String {
        format!("net{}", index + 1)
    }
}

fn make_namespaces() -> anyhow::Result<[Namespace; 5]> {
    let make = || Namespace::anonymous().context("make a network namespace");
    Ok([make()?, make()?, make()?, make()?, make()?])
}

/// Settings that every host of the bed has, whatever the machine's own are.
fn furnish(namespace: &Namespace) -> anyhow::Result<()> {
    for (key, value) in [
        ("net.ipv4.conf.all.rp_filter", "0"),
        ("net.ipv4.conf.default.rp_filter", "0"),
        // What one transfer learned must not help the next.
        ("net.ipv4.tcp_no_metrics_save", "1"),
        ("net.ipv4.tcp_rmem", "4096 131072 16777216"),
        ("net.ipv4.tcp_wmem", "4096 65536 16777216"),
    ] {
        namespace.set_sysctl(key, value).with_context(|| format!("set {key} to {value}"))?;
    }
    Ok(())
}

/// A plain cable between the provider and a host, which gets its default route over it.
fn cable(
    provider: &Namespace,
    provider_interface: &str,
    provider_end: Ipv4Addr,
    host: &Namespace,
    host_interface: &str,
    host_end: Ipv4Addr,
) -> anyhow::Result<()> {
    provider.join(host, provider_interface, host_interface)?;
    address(provider, provider_interface, provider_end)?;
    address(host, host_interface, host_end)?;
    default_route(host, host_interface, provider_end, None)
}

fn default_route(
    host: &Namespace,
    interface: &str,
    via: Ipv4Addr,
    metric: Option<u32>,
) -> anyhow::Result<()> {
    host.add_route(interface, IpPrefix::ALL_V4, Some(IpAddr::V4(via)), metric)
        .with_context(|| format!("give a host its default route over {interface}"))
}

fn address(namespace: &Namespace, interface: &str, address: Ipv4Addr) -> anyhow::Result<()> {
    let prefix: IpPrefix = format!("{address}/24").parse().context("write an address")?;
    namespace
        .add_address(interface, prefix)
        .with_context(|| format!("give {interface} the address {address}"))
}

/// The device's address in the network with this index.
fn device_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 11 + index as u8, 0, 2)
}

pub(crate) fn provider_address(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 11 + index as u8, 0, 1)
}
