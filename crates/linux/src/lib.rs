//! I/O. Every system call: TUN, UDP with offloads, netlink, routes, nftables, namespaces, privileges.
//!
//! With `preload` and the C interface the only crate with `unsafe` code. Nothing here knows of bonds: it moves bytes, reports what the kernel
//! says and changes the machine in ways that a [`journal`] can undo.

mod bind;
pub mod bluetooth;
pub mod bpf;
pub mod cgroup;
pub mod clock;
pub mod cycles;
pub mod dbus;
pub mod descriptors;
pub mod desktop;
pub mod direct;
pub mod dns;
pub mod firewall;
pub mod group;
pub mod handover;
pub mod hwsim;
pub mod ipv6;
pub mod journal;
pub mod lease_socket;
pub mod monitor;
pub mod mptcp;
pub mod nat;
pub mod neighbour_routes;
mod neighbours;
pub mod netlink;
pub mod netns;
mod nft;
pub mod packet_sender;
pub mod packet_socket;
pub mod passing;
pub mod poll;
pub mod power;
pub mod prefix;
pub mod privileges;
pub mod programs;
pub mod radio;
pub mod rfkill;
pub mod routing;
pub mod signals;
pub mod supplicant;
mod system_call;
pub mod systemd;
pub mod tap;
pub mod tcp_carrier;
pub mod traffic_tap;
pub mod tun;
pub mod udp;
pub mod wireless;

#[cfg(test)]
mod test_namespace;

pub use bind::{BindError, BindTo};
