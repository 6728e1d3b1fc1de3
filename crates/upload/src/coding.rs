//! Random linear network coding in generations (`[LINKALIKE] III.C.1`, after MORE): combinations of chunks over GF(256).
//!
//! Who has combinations of a generation can make new ones without knowing the chunks; who has as many independent ones as the generation has chunks
//! knows them all.

use rand::Rng;

/// x^8 + x^4 + x^3 + x^2 + 1, of which 2 generates all that is not 0.
const POLYNOMIAL: u16 = 0x11d;

const TABLES: ([u8; 512], [u8; 256]) = {
    let (mut powers, mut logarithms) = ([0_u8; 512], [0_u8; 256]);
    let (mut value, mut at) = (1_u16, 0);
    while at < 255 {
        powers[at] = value as u8;
        powers[at + 255] = value as u8;
        logarithms[value as usize] = at as u8;
        value <<= 1;
        if value & 0x100 != 0 {
            value ^= POLYNOMIAL;
        }
        at += 1;
    }
    (powers, logarithms)
};

/// The product in GF(256).
pub fn product(one: u8, other: u8) -> u8 {
    if one == 0 || other == 0 {
        return 0;
    }
    let (powers, logarithms) = &TABLES;
    powers[usize::from(logarithms[usize::from(one)]) + usize::from(logarithms[usize::from(other)])]
}

/// What makes 1 of a value that is not 0; 0 for 0.
pub fn inverse(value: u8) -> u8 {
    if value == 0 {
        return 0;
    }
    let (powers, logarithms) = &TABLES;
    powers[255 - usize::from(logarithms[usize::from(value)])]
}

/// Adds `factor` times `row` to `sum`.
fn add_multiple(sum: &mut [u8], row: &[u8], factor: u8) {
    for (sum, value) in sum.iter_mut().zip(row) {
        *sum ^= product(*value, factor);
    }
}

/// A combination of a generation's chunks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combination {
    /// By what each chunk was multiplied.
    pub coefficients: Vec<u8>,
    /// The sum.
    pub content: Vec<u8>,
}

/// Independent combinations of one generation, in reduced form: row `at`, if there is one, begins with a 1 at `at`, and no other row has anything there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    rows: Vec<Option<Combination>>,
    length: usize,
}

impl Span {
    /// Nothing of a generation of `size` chunks of `length` bytes.
    pub fn new(size: usize, length: usize) -> Self {
        Self { rows: vec![None; size], length }
    }

    /// All of a generation: what the source has. Shorter chunks are filled up with zeros.
    pub fn of_chunks(chunks: &[Vec<u8>], length: usize) -> Self {
        let row = |(at, chunk): (usize, &Vec<u8>)| {
            let mut coefficients = vec![0; chunks.len()];
            if let Some(own) = coefficients.get_mut(at) {
                *own = 1;
            }
            let mut content = chunk.clone();
            content.resize(length, 0);
            Some(Combination { coefficients, content })
        };
        Self { rows: chunks.iter().enumerate().map(row).collect(), length }
    }

    /// How many independent combinations there are.
    pub fn rank(&self) -> usize {
        self.rows.iter().flatten().count()
    }

    /// Whether the chunks are known.
    pub fn is_whole(&self) -> bool {
        self.rank() == self.rows.len()
    }

    /// Takes a combination in; whether it told anything new. One of another shape tells nothing.
    pub fn insert(&mut self, mut new: Combination) -> bool {
        if new.coefficients.len() != self.rows.len() || new.content.len() != self.length {
            return false;
        }
        for (at, row) in self.rows.iter().enumerate() {
            if let (Some(row), Some(factor)) =
                (row, new.coefficients.get(at).copied().filter(|factor| *factor != 0))
            {
                add_multiple(&mut new.coefficients, &row.coefficients, factor);
                add_multiple(&mut new.content, &row.content, factor);
            }
        }
        let Some(lead) = new.coefficients.iter().position(|factor| *factor != 0) else { return false };
        let scale = inverse(new.coefficients.get(lead).copied().unwrap_or(0));
        for value in new.coefficients.iter_mut().chain(&mut new.content) {
            *value = product(*value, scale);
        }
        for row in self.rows.iter_mut().flatten() {
            if let Some(factor) = row.coefficients.get(lead).copied().filter(|factor| *factor != 0) {
                add_multiple(&mut row.coefficients, &new.coefficients, factor);
                add_multiple(&mut row.content, &new.content, factor);
            }
        }
        if let Some(place) = self.rows.get_mut(lead) {
            *place = Some(new);
        }
        true
    }

    /// A random combination of all that is here; `None` if there is nothing.
    pub fn combine(&self, random: &mut impl Rng) -> Option<Combination> {
        if self.rank() == 0 {
            return None;
        }
        let mut sum = Combination { coefficients: vec![0; self.rows.len()], content: vec![0; self.length] };
        while sum.coefficients.iter().all(|factor| *factor == 0) {
            for row in self.rows.iter().flatten() {
                let factor = random.random();
                add_multiple(&mut sum.coefficients, &row.coefficients, factor);
                add_multiple(&mut sum.content, &row.content, factor);
            }
        }
        Some(sum)
    }

    /// The chunks, once they are known.
    pub fn chunks(&self) -> Option<Vec<&[u8]>> {
        self.rows.iter().map(|row| row.as_ref().map(|row| row.content.as_slice())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    #[test]
    fn the_field_is_one() {
        // 2 * 0x80 = 0x100 = 0x1d modulo the polynomial.
        assert_eq!((product(2, 0x80), product(0, 9), product(1, 77)), (0x1d, 0, 77));
        for value in 1..=255 {
            assert_eq!(product(value, inverse(value)), 1, "{value}");
        }
        for (one, other, third) in [(3, 7, 250), (91, 200, 17)] {
            assert_eq!(product(one, other ^ third), product(one, other) ^ product(one, third));
            assert_eq!(product(product(one, other), third), product(one, product(other, third)));
        }
    }

    proptest! {
        #[test]
        fn relayed_combinations_give_the_chunks_back(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..12), 1..16),
            seed in any::<u64>(),
        ) {
            let mut random = StdRng::seed_from_u64(seed);
            let source = Span::of_chunks(&chunks, 12);
            let (mut relays, mut end) = (vec![Span::new(chunks.len(), 12); 3], Span::new(chunks.len(), 12));
            for _ in 0..chunks.len() * 20 {
                for relay in &mut relays {
                    if rand::Rng::random::<f64>(&mut random) < 0.4 {
                        relay.insert(source.combine(&mut random).unwrap());
                    }
                    if let Some(mixed) = relay.combine(&mut random) {
                        end.insert(mixed);
                    }
                }
            }
            prop_assert!(end.is_whole());
            for (known, chunk) in end.chunks().unwrap().into_iter().zip(&chunks) {
                prop_assert_eq!(&known[..chunk.len()], &chunk[..]);
                prop_assert!(known[chunk.len()..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn what_has_another_shape_tells_nothing() {
        let mut span = Span::new(2, 3);
        assert!(!span.insert(Combination { coefficients: vec![1], content: vec![1, 2, 3] }));
        assert!(!span.insert(Combination { coefficients: vec![1, 0], content: vec![1] }));
        assert!(!span.insert(Combination { coefficients: vec![0, 0], content: vec![1, 2, 3] }));
        assert!(span.insert(Combination { coefficients: vec![2, 1], content: vec![1, 2, 3] }));
        assert!(
            !span.insert(Combination { coefficients: vec![4, 2], content: vec![2, 4, 6] }),
            "twice the same"
        );
        assert_eq!((span.rank(), span.chunks()), (1, None));
    }
}
