//! Serves the web page of a device that is made up: ten networks that change each second, a thousand flows, a shared radio.
//! Prints the page's address and its state directory, and runs until standard input ends. What the browser tests open, and a way to
//! look at the page and at `anabranch --state DIRECTORY top`.
//!
//! `cargo run -p anabranch-daemon --example web_page -- [device|gateway] [NETWORKS]`
#![forbid(unsafe_code)]

mod made_up;

use std::error::Error;
use std::io::Read;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anabranch::control::Role;
use daemon::control::{Callers, ControlServer, Doors, WebDoor};
use identity::{InvitationKind, Ipv4Pool, PublicKey, Registry, StateDirectory, WebToken, wall_time};
use made_up::MadeUp;

fn main() -> Result<(), Box<dyn Error>> {
    let role =
        if std::env::args().nth(1).as_deref() == Some("gateway") { Role::Gateway } else { Role::Device };
    let networks = std::env::args().nth(2).map_or(Ok(10), |number| number.parse::<u32>())?;
    let directory = tempfile::tempdir()?;
    let state = StateDirectory::create(directory.path().join("state"))?;
    let door = WebDoor::open(&state, SocketAddr::from(([127, 0, 0, 1], 0)))?;
    println!("http://{}/#token={}", door.address(), WebToken::load(&state)?.text());
    println!("{}", state.path().display());
    let backend = MadeUp::new(role, networks, &state)?;
    if role == Role::Gateway {
        let mut registry = Registry::open(&state, Ipv4Pool::default(), None)?;
        let invited =
            registry.invite(InvitationKind::Gateway, "van", Duration::from_secs(60), wall_time())?;
        registry.redeem(&invited.secret, PublicKey([2; 32]), wall_time())?;
    }
    let doors = Doors { web: Some(door), ..Doors::default() };
    let _server =
        ControlServer::start_with(doors, &state, Callers::of_state(&state, None)?, Arc::new(backend))?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
