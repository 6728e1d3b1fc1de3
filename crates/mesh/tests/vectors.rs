//! The committed test vectors are those that the code makes.

#[allow(dead_code, unused, reason = "the example's own main is not called here")]
#[path = "../examples/vectors.rs"]
mod example;

#[test]
fn the_committed_vectors_are_made_again() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/mesh-vectors.json");
    assert!(
        std::fs::read_to_string(path).unwrap() == example::vectors().unwrap(),
        "run: cargo run -p anabranch-mesh --example vectors > docs/mesh-vectors.json"
    );
}
