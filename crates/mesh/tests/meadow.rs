//! Routers on simulated radios: ways are found, healed, and not stolen.
#![expect(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::time::Duration;

use identity::{KeyPair, PublicKey};
use mesh::{Relaying, Settings, Signer};
use sim::meadow::{Conduct, Meadow, MeadowSpec, TWO_WAYS};
use wire::mesh::{Node, Signature};

/// Signs as the programs do.
struct Key(KeyPair);

impl Signer for Key {
    fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(wire::mesh::PURPOSE, message))
    }

    fn has_signed(&self, key: &[u8; 32], message: &[u8], signature: &Signature) -> bool {
        PublicKey(*key).has_signed(wire::mesh::PURPOSE, message, &signature.0)
    }
}

fn relaying() -> Settings {
    Settings { relaying: Some(Relaying::default()), ..Settings::default() }
}

fn meadow(positions: &[(f64, f64)], settings: &Settings, seed: u64) -> Meadow {
    let spec = MeadowSpec { positions: positions.to_vec(), range: 100.0, loss: 0.01, speed: 0.0, seed };
    Meadow::new(spec, settings, |index| {
        let mut private = [7; 32];
        private[..8].copy_from_slice(&(index as u64).to_be_bytes());
        let pair = KeyPair::from_private(private).unwrap();
        (Node { key: pair.public().0, port: 4_612 }, Box::new(Key(pair)))
    })
}

fn chain(count: usize) -> Vec<(f64, f64)> {
    (0..count).map(|at| (at as f64 * 80.0, 0.0)).collect()
}

#[test]
fn a_way_of_four_hops_is_found_in_less_than_four_round_trips() {
    let (mut took, mut round_trips) = (Vec::new(), Vec::new());
    for seed in 0..20 {
        let mut meadow = meadow(&chain(5), &relaying(), seed);
        meadow.run(Duration::from_secs(12));
        let conversation = meadow.talk(0, 4);
        meadow.run(Duration::from_secs(2));
        let (found, hops) = meadow.searches()[0].found.unwrap();
        assert_eq!(hops, 4);
        took.push(found);
        let mut times = meadow.told(conversation).round_trips;
        times.sort();
        round_trips.push(times[times.len() / 2]);
    }
    took.sort();
    round_trips.sort();
    println!(
        "found in {:?} to {:?}, median {:?}; round trip {:?}",
        took[0], took[19], took[10], round_trips[10]
    );
    assert!(took[10] < round_trips[10] * 4, "{took:?} {round_trips:?}");
}

#[test]
fn the_way_heals_when_a_relay_dies() {
    for seed in 0..10 {
        let mut meadow = meadow(&TWO_WAYS, &relaying(), seed);
        meadow.run(Duration::from_secs(10));
        let conversation = meadow.talk(0, 4);
        meadow.run(Duration::from_secs(3));
        let relays = meadow.relays_between(0, 4);
        assert_eq!(relays.len(), 3, "{relays:?}");
        meadow.set_conduct(relays[1], Conduct::Dead);
        meadow.run(Duration::from_secs(3));
        let told = meadow.told(conversation);
        println!("seed {seed}: gap {:?}, given up {}", told.longest_gap, told.given_up);
        assert!(told.longest_gap < Duration::from_secs(1), "seed {seed}: {:?}", told.longest_gap);
        assert!(told.answered * 10 > told.sent * 6, "{} of {}", told.answered, told.sent);
    }
}

#[test]
fn a_black_hole_is_avoided() {
    for seed in 0..30 {
        let mut meadow = meadow(&TWO_WAYS, &relaying(), seed);
        meadow.run(Duration::from_secs(10));
        let conversation = meadow.talk(0, 4);
        meadow.run(Duration::from_secs(1));
        let relay = meadow.relays_between(0, 4)[seed as usize % 3];
        meadow.set_conduct(relay, Conduct::BlackHole);
        meadow.run(Duration::from_secs(9));
        let told = meadow.told(conversation);
        println!(
            "seed {seed}, at {relay}: {} of {} answered, gap {:?}",
            told.answered, told.sent, told.longest_gap
        );
        assert!(told.longest_gap < Duration::from_secs(1), "seed {seed}: {:?}", told.longest_gap);
    }
}

#[test]
fn nobody_relays_who_was_not_told_to() {
    let mut meadow = meadow(&chain(4), &Settings::default(), 1);
    let near = meadow.talk(0, 1);
    let far = meadow.talk(0, 3);
    meadow.run(Duration::from_secs(5));
    assert!(meadow.told(near).answered > 100);
    assert_eq!(meadow.told(far).answered, 0);
    assert_eq!(meadow.counters(1).requests_passed_on, 0);
}
