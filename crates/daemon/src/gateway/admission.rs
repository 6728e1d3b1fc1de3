//! Who is let in, and with which addresses.

use std::fs;
use std::net::IpAddr;
use std::sync::Arc;

use arrayvec::ArrayVec;
use bond::PublicKey;
use identity::{Client, Registry, StateDirectory, Usage, wall_time};
use linux::nat::PortForward;
use policy::Treatment;
use policy::limit::Allowance;
use rustc_hash::FxHashMap;
use tracing::warn;
use units::Bytes;
use wire::hello::{
    DefaultTreatment, Features, Hello, MAX_DNS_SERVERS, Name, Prefixed, Refusal, Reply, Welcome,
};
use wire::request::{MOST_SIBLING_ADDRESSES, Sibling};

use super::backend::port_forwards;
use super::live::LiveConfig;
use crate::config::GatewayConfig;
use crate::control::clients::today;
use crate::dataplane::off_the_wire;
use crate::device::name_servers;

/// What a gateway knows of its clients: the seam between the loop and where they are kept.
pub trait ClientRegistry: Send {
    /// Lets the holder of `key` in, or tells why not.
    ///
    /// # Errors
    /// What the device is told.
    fn admit(&mut self, key: PublicKey, hello: &Hello) -> Result<Admitted, Refusal>;

    /// A client was heard of.
    fn seen(&mut self, key: PublicKey);

    /// Adds what clients have carried since the last time, and tells what each may carry now; who is not among them is no client
    /// any more. `None` if that cannot be told at the moment: then what was carried counts the next time.
    fn count(&mut self, carried: &[(PublicKey, Bytes)]) -> Option<Vec<Standing>>;

    /// A client was revoked: it must not be let in from memory.
    fn forget(&mut self, key: PublicKey);

    /// Says that this gateway uses the registry; the others that do. `None` if the registry is this gateway's own, or cannot tell at the moment.
    fn siblings(&mut self) -> Option<Vec<Sibling>>;

    /// The ports that lead to clients; `None` if that cannot be told at the moment.
    fn forwards(&mut self) -> Option<Vec<PortForward>>;
}

/// What a client may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The client.
    pub key: PublicKey,
    /// What it may carry.
    pub allowance: Allowance,
}

/// A client that was let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Admitted {
    /// Its name here.
    pub name: String,
    /// The only addresses that it may send from.
    pub addresses: Vec<IpAddr>,
    /// Whether it is here for the first time.
    pub first_time: bool,
    /// What it may carry.
    pub allowance: Allowance,
    /// How flows towards it are carried.
    pub treatment: Treatment,
    /// The answer to it.
    pub welcome: Welcome,
}

/// The registry, with what was last read of it for the time that it is out of reach.
pub struct StoredRegistry {
    registry: Registry,
    live: Arc<LiveConfig>,
    /// What the gateway is called if the configuration has no name.
    host: Name,
    /// The gateway's key.
    key: identity::PublicKey,
    known: FxHashMap<identity::PublicKey, Client>,
    /// Carried and not yet counted.
    waiting: FxHashMap<identity::PublicKey, Bytes>,
    /// Where that is kept for the time that this gateway does not run.
    state: StateDirectory,
    is_kept: bool,
}

impl ClientRegistry for StoredRegistry {
    fn admit(&mut self, key: PublicKey, hello: &Hello) -> Result<Admitted, Refusal> {
        let key = identity::PublicKey(key.0);
        let known = match self.registry.client(key) {
            Ok(found) => found,
            Err(error) => {
                let known = self.known.get(&key).cloned();
                match &known {
                    Some(client) => warn!("{} is let in as it was last known: {error}", client.name),
                    None => warn!("a device was turned away: {error}"),
                }
                Some(known.ok_or(Refusal::Unavailable)?)
            }
        };
        // A client that shows an invitation again has joined again; it stays who it is.
        let (client, first_time) = match (known, &hello.secret) {
            (Some(client), _) => (client, false),
            (None, None) => {
                self.known.remove(&key);
                return Err(Refusal::UnknownKey);
            }
            (None, Some(secret)) => {
                let redeemed = self.registry.redeem(secret, key, wall_time()).map_err(|error| {
                    warn!("a device with an invitation was turned away: {error}");
                    error.refusal()
                })?;
                (redeemed.client, redeemed.first_time)
            }
        };
        self.known.insert(key, client.clone());
        Ok(self.admitted(client, first_time, hello.treatment))
    }

    fn seen(&mut self, key: PublicKey) {
        if let Err(error) = self.registry.seen(identity::PublicKey(key.0), wall_time()) {
            warn!("{error}");
        }
    }

    fn count(&mut self, carried: &[(PublicKey, Bytes)]) -> Option<Vec<Standing>> {
        for (key, bytes) in carried {
            if *bytes > Bytes(0) {
                self.waiting.entry(identity::PublicKey(key.0)).or_default().0 += bytes.0;
            }
        }
        let limits = self.live.get().gateway.limits;
        let month = limits.month(today(wall_time()));
        let mut bytes: Vec<_> = self.waiting.iter().map(|(key, bytes)| (*key, *bytes)).collect();
        // Always in one order: two gateways that change the same rows wait for each other, and never in a circle.
        bytes.sort_by_key(|(key, _)| key.0);
        let usage = Usage { month, bytes };
        let clients = match self.registry.count(&usage) {
            Ok(clients) => clients,
            Err(error) => {
                warn!("what clients carry is counted later: {error}");
                self.keep(&usage);
                return None;
            }
        };
        self.waiting.clear();
        if self.is_kept {
            match Usage::forget(&self.state) {
                Ok(()) => self.is_kept = false,
                Err(error) => warn!("what was counted may be counted again after the next start: {error}"),
            }
        }
        self.known = clients.into_iter().map(|client| (client.public_key, client)).collect();
        let standing = |client: &Client| Standing {
            key: PublicKey(client.public_key.0),
            allowance: limits.allowance(client.limits, client.used.in_month(month)),
        };
        Some(self.known.values().map(standing).collect())
    }

    fn forget(&mut self, key: PublicKey) {
        self.known.remove(&identity::PublicKey(key.0));
    }

    fn siblings(&mut self) -> Option<Vec<Sibling>> {
        if !self.registry.is_shared() {
            return None;
        }
        let own = self.introduction();
        let others = self.registry.announce(self.key, own.as_ref(), wall_time());
        others.inspect_err(|error| warn!("{error}")).ok()
    }

    fn forwards(&mut self) -> Option<Vec<PortForward>> {
        port_forwards(&mut self.registry).inspect_err(|error| warn!("{error}")).ok()
    }
}

impl StoredRegistry {
    /// Nothing is known yet but what the registry says, and what was kept in `state` when it could not be counted.
    pub fn new(
        registry: Registry,
        live: Arc<LiveConfig>,
        host: Name,
        key: identity::PublicKey,
        state: StateDirectory,
    ) -> Self {
        let kept = Usage::kept(&state).unwrap_or_else(|error| {
            warn!("{error}");
            None
        });
        let is_kept = kept.is_some();
        let month = live.get().gateway.limits.month(today(wall_time()));
        // What was carried in a month that is over is of no account any more.
        let waiting =
            kept.filter(|usage| usage.month == month).map(|usage| usage.bytes.into_iter().collect());
        let (known, waiting) = (FxHashMap::default(), waiting.unwrap_or_default());
        Self { registry, live, host, key, known, waiting, state, is_kept }
    }

    fn keep(&mut self, usage: &Usage) {
        if usage.bytes.is_empty() {
            return;
        }
        match usage.keep(&self.state) {
            Ok(()) => self.is_kept = true,
            Err(error) => warn!("what clients carry is forgotten if the gateway stops now: {error}"),
        }
    }

    /// What other gateways tell their devices of this one: what its join links say. `None` if it does not know its address.
    fn introduction(&self) -> Option<Sibling> {
        let config = self.live.get();
        let addresses = config.gateway.public_addresses.iter().take(MOST_SIBLING_ADDRESSES).cloned();
        let sibling = Sibling {
            public_key: self.key.0,
            name: config.daemon.name.clone().unwrap_or_else(|| self.host.clone()),
            tcp_port: config.gateway.tcp,
            addresses: addresses.collect(),
        };
        (!sibling.addresses.is_empty()).then_some(sibling)
    }

    fn admitted(&self, client: Client, first_time: bool, wanted: DefaultTreatment) -> Admitted {
        let config = self.live.get();
        let gateway = &config.gateway;
        let v4 = client.lease.v4;
        let v6 = Some(client.lease.v6);
        let used = client.used.in_month(gateway.limits.month(today(wall_time())));
        Admitted {
            name: client.name,
            addresses: addresses(v4, v6),
            first_time,
            allowance: gateway.limits.allowance(client.limits, used),
            treatment: off_the_wire(wanted),
            welcome: Welcome {
                name: config.daemon.name.clone().unwrap_or_else(|| self.host.clone()),
                features: Features::default(),
                v4,
                v6,
                dns: dns_servers(gateway),
                mtu: gateway.mtu,
            },
        }
    }
}

/// The servers that clients are told: the configured ones, or those of this machine that clients can reach.
fn dns_servers(config: &GatewayConfig) -> ArrayVec<IpAddr, MAX_DNS_SERVERS> {
    let own = || -> Vec<IpAddr> {
        let files = ["/run/systemd/resolve/resolv.conf", "/etc/resolv.conf"];
        let text = files.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        name_servers(&text).into_iter().filter(|server| !server.is_loopback()).collect()
    };
    config.dns.clone().unwrap_or_else(own).into_iter().take(MAX_DNS_SERVERS).collect()
}

fn addresses(
    v4: Option<Prefixed<std::net::Ipv4Addr>>,
    v6: Option<Prefixed<std::net::Ipv6Addr>>,
) -> Vec<IpAddr> {
    let v4 = v4.map(|lease| IpAddr::V4(lease.address));
    v4.into_iter().chain(v6.map(|lease| IpAddr::V6(lease.address))).collect()
}

/// The answer to a device's first message, and who it is if it was let in.
pub fn answer(
    registry: &mut dyn ClientRegistry,
    key: PublicKey,
    payload: &[u8],
) -> (Vec<u8>, Option<Admitted>) {
    let admitted = match Hello::parse(payload) {
        Ok(hello) => registry.admit(key, &hello),
        Err(error) => {
            warn!("a device's first message makes no sense: {error}");
            Err(Refusal::Unavailable)
        }
    };
    match admitted {
        Ok(admitted) => (Reply::Welcome(admitted.welcome.clone()).encode(), Some(admitted)),
        Err(refusal) => (Reply::Refusal(refusal).encode(), None),
    }
}
