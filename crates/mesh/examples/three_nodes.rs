//! Three nodes in a row: the first finds the third over the second: `cargo run -p anabranch-mesh --example three_nodes`.
//!
//! The messages go from one to the other by hand, so that what is said can be seen.

use std::error::Error;
use std::net::Ipv4Addr;

use identity::{KeyPair, PublicKey};
use mesh::{Forwarding, Hop, Recipient, Relaying, Router, Settings, Signer};
use units::{NetworkId, Timestamp};
use wire::mesh::{LinkAddress, Message, Node, PURPOSE, Sequence, Signature};

struct Key(KeyPair);

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(PURPOSE, message))
    }

    fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
        PublicKey(*key).has_signed(PURPOSE, message, &signature.0)
    }
}

fn hop(node: usize) -> Hop {
    let address = LinkAddress::V4(Ipv4Addr::new(10, 0, 0, node as u8), 4_612);
    Hop { network: NetworkId(0), address }
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut now = Timestamp::from_millis(1);
    let mut nodes = Vec::new();
    for number in 0..3 {
        let key = KeyPair::generate()?;
        let node = Node { key: key.public().0, port: 4_612 };
        // Only the one in the middle passes on what others send.
        let settings = Settings { relaying: (number == 1).then(Relaying::default), ..Settings::default() };
        nodes.push(Router::new(now, settings, node, Box::new(Key(key)), Sequence(1), number));
    }
    let far = nodes[2].id();
    nodes[0].find(now, far);
    while nodes[0].way(now, far).is_none() {
        for from in 0..3 {
            while let Some(transmit) = nodes[from].poll_transmit() {
                println!("{from} says to {:?}: {:?}", transmit.to, Message::parse(&transmit.bytes)?);
                let beside = (0..3).filter(|other| usize::abs_diff(*other, from) == 1);
                let is_meant = |other: &usize| match transmit.to {
                    Recipient::Everybody => true,
                    Recipient::One(to) => to == hop(*other),
                };
                for to in beside.filter(is_meant) {
                    nodes[to].handle_message(now, hop(from), &transmit.bytes);
                }
            }
        }
        let next = nodes.iter().filter_map(Router::poll_timeout).min().ok_or("nothing is due")?;
        now = next.max(now);
        nodes.iter_mut().for_each(|node| node.handle_timeout(now));
    }
    let (first, header) = nodes[0].next_hop(now, far).ok_or("no way")?;
    println!("0 sends data to {first:?}");
    let Forwarding::PassOn(next, header) = nodes[1].handle_data(now, hop(0), header, 1_000) else {
        return Err("the relay does not pass it on".into());
    };
    println!("1 passes it on to {next:?}");
    println!("2: {:?}", nodes[2].handle_data(now, hop(1), header, 1_000));
    Ok(())
}
