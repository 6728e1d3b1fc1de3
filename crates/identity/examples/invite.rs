//! A gateway invites a device, which joins: `cargo run -p anabranch-identity --example invite`.

use std::error::Error;
use std::time::Duration;

use identity::{InvitationKind, KeyPair, Peers, Registry, StateDirectory, wall_time};
use wire::join_link::JoinLink;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = std::env::temp_dir().join(format!("anabranch-example-{}", std::process::id()));
    let gateway = StateDirectory::create(directory.join("gateway"))?;
    let gateway_key = KeyPair::load_or_create(&gateway)?;
    let mut registry = Registry::create(&gateway, "10.86.0.0/16".parse()?)?;
    let invited = registry.invite(InvitationKind::Gateway, "van", Duration::from_secs(3_600), wall_time())?;
    let link = JoinLink {
        kind: InvitationKind::Gateway,
        public_key: gateway_key.public().0,
        addresses: vec!["gw.example.org:4600".parse()?],
        tcp_port: None,
        secret: invited.secret,
        expires: invited.expires,
    };

    let device = StateDirectory::create(directory.join("device"))?;
    let device_key = KeyPair::load_or_create(&device)?;
    let joined = Peers::change(&device, |peers| peers.join(&link, None, device_key.public(), wall_time()))?;
    println!("the device knows the gateway as {}", joined.name);

    let redeemed = registry.redeem(&link.secret, device_key.public(), wall_time())?;
    println!("the gateway leases {} to {}", redeemed.client.lease.v6, redeemed.client.name);
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
