//! A station on random bytes, on mutated real exchanges and on the committed fuzz corpus.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use proptest::prelude::*;
use std::path::Path;

#[path = "../../../fuzz/properties/wifi.rs"]
mod properties;

fn corpus() -> Vec<Vec<u8>> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wifi");
    let files = std::fs::read_dir(corpus).unwrap();
    files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect()
}

#[test]
fn the_corpus_holds() {
    let corpus = corpus();
    assert!(!corpus.is_empty(), "no corpus");
    corpus.iter().for_each(|bytes| properties::wifi(bytes));
}

proptest! {
    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        properties::wifi(&bytes);
    }

    #[test]
    fn mutated_exchanges(which in any::<prop::sample::Index>(), changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let corpus = corpus();
        let mut bytes = corpus[which.index(corpus.len())].clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        properties::wifi(&bytes);
    }
}
