//! How long a signature takes: `cargo run --release -p anabranch-identity --example signatures`.

use std::error::Error;
use std::time::Instant;

use identity::KeyPair;

fn main() -> Result<(), Box<dyn Error>> {
    const ROUNDS: u32 = 2_000;
    let pair = KeyPair::generate()?;
    let message = [7; 90];
    let start = Instant::now();
    let mut signature = pair.sign("example", &message);
    for _ in 1..ROUNDS {
        signature = pair.sign("example", &message);
    }
    println!("signed in {:?}", start.elapsed() / ROUNDS);
    let start = Instant::now();
    let right = (0..ROUNDS).filter(|_| pair.public().has_signed("example", &message, &signature)).count();
    println!("checked in {:?}, {right} of {ROUNDS} right", start.elapsed() / ROUNDS);
    Ok(())
}
