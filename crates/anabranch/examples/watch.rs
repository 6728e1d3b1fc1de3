//! Follows what a daemon does: `cargo run -p anabranch --example watch -- /var/lib/anabranch`.

use std::path::PathBuf;

use anabranch::control::{BlockingClient, ClientError, EventSequence};

fn main() -> Result<(), ClientError> {
    let directory =
        std::env::args_os().nth(1).map_or_else(|| PathBuf::from("/var/lib/anabranch"), PathBuf::from);
    let client = BlockingClient::of_state(&directory)?;
    for network in client.status()?.networks {
        println!("{}: {:?}, {}", network.name, network.status, network.why);
    }
    for event in client.follow_events(EventSequence::default())? {
        let event = event?;
        println!("{} {} {}", event.time, event.kind.as_str(), event.text);
    }
    Ok(())
}
