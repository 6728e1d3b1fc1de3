//! The reader of radiotap on random bytes, on mutated real headers and on the committed fuzz corpus.

use proptest::prelude::*;
use std::path::Path;

#[path = "../../../fuzz/properties/radiotap.rs"]
mod properties;

/// What mac80211 gives: a beacon's header and that of a frame of ours.
const REAL: [&[u8]; 2] = [
    b"\x00\x00\x28\x00\x2f\x40\x00\xa0\x20\x08\x00\x00\x00\x00\x00\x00\x4d\x00\x00\x00\x00\x00\x00\x00\x10\x02\x6c\x09\xa0\x00\xe2\x00\x00\x00\xe2\x00\x00\x00\x00\x00\x80\x00\x00\x00\xff\xff",
    b"\x00\x00\x0d\x00\x04\x80\x02\x00\x02\x00\x01\x00\x06\x48\x11\x3a\x01",
];

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/radiotap");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        properties::radiotap(&std::fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "no corpus");
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        properties::radiotap(&bytes);
    }

    #[test]
    fn mutated_headers(which in 0..REAL.len(), at in 0usize..16, value in any::<u8>(), length in 0usize..60) {
        let mut bytes = REAL[which].to_vec();
        bytes[at] = value;
        bytes.truncate(length);
        properties::radiotap(&bytes);
    }
}
