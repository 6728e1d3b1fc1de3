//! Who is let in, and with which addresses.

use std::net::IpAddr;

use arrayvec::ArrayVec;
use bond::PublicKey;
use identity::{Client, Registry, wall_time};
use policy::Treatment;
use tracing::warn;
use wire::hello::{
    DefaultTreatment, Features, Hello, MAX_DNS_SERVERS, Name, Prefixed, Refusal, Reply, Welcome,
};

use crate::dataplane::off_the_wire;

/// What a gateway knows of its clients: the seam between the loop and where they are kept.
pub trait ClientRegistry: Send {
    /// Lets the holder of `key` in, or tells why not.
    ///
    /// # Errors
    /// What the device is told.
    fn admit(&mut self, key: PublicKey, hello: &Hello) -> Result<Admitted, Refusal>;

    /// A client was heard of.
    fn seen(&mut self, key: PublicKey);
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
    /// How flows towards it are carried.
    pub treatment: Treatment,
    /// The answer to it.
    pub welcome: Welcome,
}

/// The registry in the state directory.
pub struct StoredRegistry {
    /// The clients.
    pub registry: Registry,
    /// What the gateway calls itself.
    pub name: Name,
    /// MTU of the clients' interfaces.
    pub mtu: u16,
    /// DNS servers for the clients.
    pub dns: ArrayVec<IpAddr, MAX_DNS_SERVERS>,
}

impl ClientRegistry for StoredRegistry {
    fn admit(&mut self, key: PublicKey, hello: &Hello) -> Result<Admitted, Refusal> {
        let key = identity::PublicKey(key.0);
        let known = self.registry.client(key).map_err(|error| {
            warn!("a device was turned away: {error}");
            Refusal::Unavailable
        })?;
        // A client that shows an invitation again has joined again; it stays who it is.
        let (client, first_time) = match (known, &hello.secret) {
            (Some(client), _) => (client, false),
            (None, None) => return Err(Refusal::UnknownKey),
            (None, Some(secret)) => {
                let redeemed = self.registry.redeem(secret, key, wall_time()).map_err(|error| {
                    warn!("a device with an invitation was turned away: {error}");
                    error.refusal()
                })?;
                (redeemed.client, redeemed.first_time)
            }
        };
        Ok(self.admitted(client, first_time, hello.treatment))
    }

    fn seen(&mut self, key: PublicKey) {
        if let Err(error) = self.registry.seen(identity::PublicKey(key.0), wall_time()) {
            warn!("{error}");
        }
    }
}

impl StoredRegistry {
    fn admitted(&self, client: Client, first_time: bool, wanted: DefaultTreatment) -> Admitted {
        let v4 = client.lease.v4;
        let v6 = Some(client.lease.v6);
        Admitted {
            name: client.name,
            addresses: addresses(v4, v6),
            first_time,
            treatment: off_the_wire(wanted),
            welcome: Welcome {
                name: self.name.clone(),
                features: Features::default(),
                v4,
                v6,
                dns: self.dns.clone(),
                mtu: self.mtu,
            },
        }
    }
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
