//! Prints the test vectors of the wire format: `cargo run -p anabranch-bond --example wire_vectors > docs/wire-vectors.json`.
#![expect(clippy::unwrap_used, reason = "shared with a test: an impossible vector should stop at once")]
#![expect(dead_code, reason = "the test uses more of the module")]

#[path = "../tests/second/mod.rs"]
mod second;

fn main() {
    println!("{:#}", second::vectors::all());
}
