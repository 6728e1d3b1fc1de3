//! Uploads through neighbours: `anabranch share`, `upload` and `accept`.

pub mod accept;
mod lines;
pub mod share;
mod source;

pub use source::run as upload;

use anabranch::upload::{Silence, UploadShares};
use anabranch::{Adapter, AdapterState, ConnectOptions, Endpoint, EndpointOptions};
use identity::{InvitationKind, KeyPair, Peers, PublicKey, StateDirectory};
use units::BitRate;

use super::nearby::Lookout;
use super::{Known, Typed};
use crate::arguments::Call;
use crate::exit::WrongUsage;

/// What a destination announces to peers nearby.
const UPLOADS: &str = "uploads";

/// A destination that is about to be called.
struct Reached {
    state: StateDirectory,
    key: KeyPair,
    known: Known,
    endpoint: Endpoint,
    lookout: Lookout,
}

impl Reached {
    /// What goes there gives way to other traffic if `background`.
    fn new(
        session: &crate::session::Session,
        destination: &str,
        call: &Call,
        background: bool,
    ) -> anyhow::Result<Self> {
        let (state, key) = super::identity(session)?;
        let typed = Typed {
            text: destination,
            name: call.name.as_deref(),
            addresses: &call.address,
            group: call.group.as_ref(),
            port: super::UPLOAD_PORT,
            only: &call.only,
        };
        let known = super::find(&state, &key, &typed)?;
        let groups = known.groups.clone();
        let options = super::calling(&state, key.clone(), groups, (&call.only, &call.spare))?;
        let endpoint = Endpoint::bind(EndpointOptions { background, ..options })?;
        let lookout = known.look_out(&key, UPLOADS, &call.only, &endpoint);
        lookout.wait_for(&known);
        Ok(Self { state, key, known, endpoint, lookout })
    }

    fn options(&self) -> ConnectOptions {
        self.known.options()
    }

    /// Why the air brings nothing; `asked` are the adapters that were named for it.
    fn silence(&self, why: Silence, asked: Option<&[String]>) -> String {
        match (why, asked) {
            (Silence::NoAdapter, Some(asked)) => no_air(asked, &self.endpoint.adapters()),
            _ => why.to_string(),
        }
    }

    /// What somebody is called here.
    fn name_of(&self, key: PublicKey) -> String {
        super::name_of(self.state.path(), key)
    }
}

/// The keys that were typed behind an option, or those of known peers.
fn keys_of(state: &StateDirectory, option: &str, typed: &[String]) -> anyhow::Result<Vec<PublicKey>> {
    let peers = Peers::load(state).unwrap_or_default();
    let key_of = |text: &String| {
        let named = peers.of_kind(InvitationKind::Peer).find(|peer| peer.name == *text);
        let key = named.map(|peer| peer.public_key).or_else(|| text.parse().ok());
        let unknown = format!("{option} {text}: neither a public key nor a peer that is known here");
        key.ok_or_else(|| WrongUsage(unknown).into())
    };
    typed.iter().map(key_of).collect()
}

fn bit_rate(mbit: f64) -> BitRate {
    BitRate((mbit * 1e6) as u64)
}

/// Why none of the adapters that were named leads to neighbours.
fn no_air(asked: &[String], adapters: &[Adapter]) -> String {
    let why = |name: &String| match adapters.iter().find(|adapter| adapter.name == *name) {
        None => format!("{name} is no adapter of this machine"),
        Some(adapter) if !adapter.linked || adapter.state == AdapterState::Off => {
            format!("{name} is not connected")
        }
        Some(_) => format!("{name} does not lead to neighbours"),
    };
    asked.iter().map(why).collect::<Vec<_>>().join(", ")
}

/// Who has carried how much: `own uplink 40 %, bob 35 %, carol 25 %`.
fn shares(shares: &UploadShares, name_of: impl Fn(PublicKey) -> String) -> String {
    let total = shares.own + shares.neighbours.iter().map(|(_, bytes)| bytes).sum::<u64>();
    let part = |bytes: u64| format!("{:.0} %", bytes as f64 * 100.0 / total.max(1) as f64);
    let mut words = vec![format!("own uplink {}", part(shares.own))];
    words.extend(shares.neighbours.iter().map(|(key, bytes)| format!("{} {}", name_of(*key), part(*bytes))));
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_told_in_per_cent() {
        let neighbours = vec![(PublicKey([1; 32]), 500), (PublicKey([2; 32]), 250)];
        let told = shares(&UploadShares { own: 250, neighbours }, |key| key.0[0].to_string());
        assert_eq!(told, "own uplink 25 %, 1 50 %, 2 25 %");
        assert_eq!(shares(&UploadShares::default(), |_| String::new()), "own uplink 0 %");
    }
}
