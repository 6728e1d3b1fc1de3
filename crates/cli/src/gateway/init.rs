//! `anabranch gateway init`.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::OpenOptionsExt;

use anyhow::Context;
use daemon::config::{Config, DEFAULT_PORT, example_with_addresses};
use identity::{KeyPair, Registry, StateDirectory};
use serde_json::json;
use wire::join_link::{Host, HostPort, MAX_ADDRESSES};

use crate::arguments::GatewayInit;
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;

const CONFIG_NAME: &str = "config.toml";

pub fn run(session: &Session, arguments: &GatewayInit) -> anyhow::Result<()> {
    let named = arguments.address.iter().map(|text| {
        HostPort::parse_with_default(text, DEFAULT_PORT)
            .map_err(|error| WrongUsage(format!("--address {text}: {error}")))
    });
    let named: Vec<HostPort> = named.collect::<Result<_, _>>()?;
    if named.len() > MAX_ADDRESSES {
        return Err(WrongUsage(format!("at most {MAX_ADDRESSES} addresses fit a join link")).into());
    }
    let state = session.create()?;
    let key = KeyPair::load_or_create(&state)?;
    let addresses = write_config(&state, &named)?;
    let (config, _) = Config::load(None, state.path())?;
    let registry = Registry::create(config.gateway.registry_place(&state), config.gateway.pool_v4)?;
    let shown: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    if arguments.json {
        return output::json(&json!({
            "state": state.path(),
            "public_key": key.public().to_string(),
            "public_addresses": shown,
            "pool_v4": registry.pools().v4.to_string(),
            "pool_v6": registry.pools().v6.to_string(),
        }));
    }
    output::line(&format!("This machine is a gateway now (key {}).", key.public()))?;
    if !shown.is_empty() {
        output::line(&format!("Devices find it at {}.", shown.join(", ")))?;
    }
    output::line(&format!("Settings: {}", state.file(CONFIG_NAME).display()))?;
    output::line("Next: `anabranch gateway run`, and `anabranch gateway invite NAME` for each device.")
}

/// Writes the configuration if there is none; returns the public addresses that then hold.
fn write_config(state: &StateDirectory, named: &[HostPort]) -> anyhow::Result<Vec<HostPort>> {
    let path = state.file(CONFIG_NAME);
    if path.exists() {
        let config = Config::read(&path)?;
        if !named.is_empty() && named != config.gateway.public_addresses {
            let message = format!("{} exists: set public_addresses under [gateway] there", path.display());
            return Err(WrongUsage(message).into());
        }
        return Ok(config.gateway.public_addresses);
    }
    let addresses = if named.is_empty() { guess_addresses() } else { named.to_vec() };
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = created.and_then(|mut file| {
        file.write_all(example_with_addresses(&addresses).as_bytes()).and_then(|()| file.sync_all())
    });
    if written.is_err() {
        // Half a file would stand in the way of the next try, with addresses that nobody asked for.
        drop(fs::remove_file(&path));
    }
    written.with_context(|| format!("cannot write {}", path.display()))?;
    Ok(addresses)
}

/// This machine's own addresses towards the Internet, with a remark if others cannot reach them.
fn guess_addresses() -> Vec<HostPort> {
    // Documentation addresses (RFC 5737, RFC 3849): only looked up in the routing table, nothing is sent.
    let far =
        [IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into()];
    let own: Vec<IpAddr> = far.iter().filter_map(|far| own_address(*far).ok()).collect();
    let public: Vec<IpAddr> = own.iter().copied().filter(|address| is_public(*address)).collect();
    let own = if public.is_empty() { own } else { public };
    match own.first() {
        Some(private) if !is_public(*private) => output::remark(&format!(
            "anabranch: {private} is a private address; if devices are elsewhere, set public_addresses in the \
             configuration, or remove that and start again with --address HOST"
        )),
        Some(_) => {}
        None => output::remark(
            "anabranch: this machine has no address that devices could use; set public_addresses in the configuration",
        ),
    }
    own.into_iter().map(|address| HostPort { host: Host::Address(address), port: DEFAULT_PORT }).collect()
}

fn own_address(far: IpAddr) -> io::Result<IpAddr> {
    let any = if far.is_ipv4() { IpAddr::from(Ipv4Addr::UNSPECIFIED) } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(SocketAddr::new(far, DEFAULT_PORT.get()))?;
    Ok(socket.local_addr()?.ip())
}

/// Not private, link-local, loopback or shared (RFC 1918, 3927, 4193, 4291, 6598).
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let shared = v4.octets()[0] == 100 && (64..128).contains(&v4.octets()[1]);
            !(v4.is_private() || v4.is_link_local() || v4.is_loopback() || shared)
        }
        IpAddr::V6(v6) => !(v6.is_unique_local() || v6.is_unicast_link_local() || v6.is_loopback()),
    }
}
