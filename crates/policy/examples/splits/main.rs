//! How long flows take under each rule for splitting them, as [`model`] has it: `cargo run --release -p anabranch-policy --example
//! splits`. Prints the mean and the 95th percentile of the time that flows took.

mod model;

use model::{AT_ONCE, How, Link, PAIRS};
use policy::Split;

fn main() {
    for (what, links) in PAIRS {
        println!("{what}");
        for at_once in AT_ONCE {
            println!("  {at_once} at a time");
            for split in [Split::InverseRtt, Split::Bandwidth, Split::Capacity] {
                for how in [How::Map, How::Asked, How::Unaware] {
                    if split == Split::Capacity || how != How::Unaware {
                        report(&links, split, how, at_once);
                    }
                }
            }
        }
    }
}

fn report(links: &[Link; 2], split: Split, how: How, at_once: usize) {
    let mut times = model::run(links, split, how, at_once);
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let most = times.get(times.len() * 95 / 100).copied().unwrap_or_default();
    println!("    {split:?}, {how:?}: mean {mean:.2} s, 95 % {most:.2} s");
}
