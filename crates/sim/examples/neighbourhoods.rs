//! Prints the 200 neighbourhoods: `cargo run -p anabranch-sim --example neighbourhoods > experiments/LINKALIKE/neighbourhoods.txt`.

use sim::neighbourhood::{SEED, generate, write};

fn main() {
    println!(
        "# 200 neighbourhoods of seed {SEED}; how they were made: crates/sim/src/neighbourhood/generate.rs"
    );
    println!(
        "# own uplink | each neighbour's uplink (kbit/s / one-way ms) and its chance to hear a frame at 1, 2, 5.5, 11 Mbit/s"
    );
    print!("{}", write(&generate(SEED)));
}
