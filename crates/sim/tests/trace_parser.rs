//! The reader of delivery traces on random text and on the committed fuzz corpus.

use proptest::prelude::*;
use std::path::Path;

#[path = "../../../fuzz/properties/trace.rs"]
mod properties;

#[test]
fn the_corpus_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/trace");
    let mut count = 0;
    for file in std::fs::read_dir(corpus).unwrap() {
        properties::trace(&std::fs::read(file.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 0, "no corpus");
}

proptest! {
    #[test]
    fn random_text(text in "[0-9 \\n\\r+-]{0,200}") {
        properties::trace(text.as_bytes());
    }

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        properties::trace(&bytes);
    }
}
