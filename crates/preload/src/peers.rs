//! Whom the program may reach over virtual sockets, as `anabranch run` told it.

use std::net::SocketAddr;
use std::sync::OnceLock;

use wire::preload::{NamedPeer, Preload, VARIABLE};

/// What this process was told; `None` where the library was loaded by something else.
pub fn told() -> Option<&'static Preload> {
    static TOLD: OnceLock<Option<Preload>> = OnceLock::new();
    let read = || std::env::var(VARIABLE).ok().as_deref().and_then(Preload::parse);
    TOLD.get_or_init(read).as_ref()
}

/// The peer that a connection to this address is meant for, and its place among all.
pub fn behind(address: SocketAddr) -> Option<(usize, &'static NamedPeer)> {
    let told = told()?;
    let found = told.by_address(address.ip())?;
    told.peers.iter().position(|peer| peer == found).map(|at| (at, found))
}
