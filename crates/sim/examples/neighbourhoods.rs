//! Prints the committed neighbourhoods: `cargo run -p anabranch-sim --example neighbourhoods > experiments/LINKALIKE/neighbourhoods.txt`, and with the argument
//! `two-hops` those of `experiments/LINKALIKE/two_hops.txt`.

use sim::neighbourhood::{SEED, generate, two_hops, write};

fn main() {
    let far = std::env::args().nth(1).is_some_and(|argument| argument == "two-hops");
    let all = if far { two_hops(SEED) } else { generate(SEED) };
    println!(
        "# {} neighbourhoods of seed {SEED}; how they were made: crates/sim/src/neighbourhood/generate.rs",
        all.len()
    );
    println!(
        "# own uplink | each neighbour's uplink (kbit/s / one-way ms) and its chance to hear a frame at 1, 2, 5.5, 11 Mbit/s"
    );
    if far {
        println!("# + two neighbours, from 0, and the chance that they hear each other");
    }
    print!("{}", write(&all));
}
