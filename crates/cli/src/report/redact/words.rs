//! What is known beforehand: names of this machine, its users, its Wi-Fi networks, its secrets.

use std::collections::BTreeMap;

use super::{Given, Kind};

/// Shorter words would be found everywhere.
const SHORTEST: usize = 2;
/// Texts of at least this length are looked for within other words too.
const SHORTEST_INSIDE: usize = 8;
/// Words of every report: taken out they would tell nothing, and leave nothing to read.
const PLAIN: [&str; 16] = [
    "anabranch",
    "root",
    "nobody",
    "localhost",
    "daemon",
    "debian",
    "ubuntu",
    "fedora",
    "linux",
    "network",
    "gateway",
    "device",
    "default",
    "none",
    "true",
    "false",
];

/// The words, by their first letter in lower case, the longest first.
#[derive(Debug, Default)]
pub struct Words(BTreeMap<char, Vec<Word>>);

#[derive(Debug)]
struct Word {
    /// As it is looked for: letters in lower case.
    spelling: Vec<char>,
    kind: Kind,
    /// What it is a spelling of.
    canonical: String,
}

impl Words {
    pub fn learn(&mut self, kind: Kind, word: &str) {
        let word = word.trim();
        if word.chars().count() < SHORTEST || PLAIN.contains(&word.to_ascii_lowercase().as_str()) {
            return;
        }
        // As Rust's Debug, JSON and wpa_supplicant write it.
        let json = serde_json::to_string(word).unwrap_or_default();
        let bytes: String = word
            .bytes()
            .map(|byte| match byte {
                b' '..=b'~' if byte != b'\\' && byte != b'"' => char::from(byte).to_string(),
                _ => format!("\\x{byte:02x}"),
            })
            .collect();
        let escaped = word.escape_debug().to_string();
        for spelling in [word, json.trim_matches('"'), &bytes, &escaped] {
            self.add(kind, spelling, word);
        }
    }

    fn add(&mut self, kind: Kind, spelling: &str, canonical: &str) {
        let spelling: Vec<char> = spelling.chars().map(|letter| letter.to_ascii_lowercase()).collect();
        let Some(first) = spelling.first() else { return };
        let words = self.0.entry(*first).or_default();
        if words.iter().all(|word| word.spelling != spelling) {
            words.push(Word { spelling, kind, canonical: canonical.to_ascii_lowercase() });
            words.sort_by_key(|word| std::cmp::Reverse(word.spelling.len()));
        }
    }

    pub(super) fn replace(&self, text: &str, given: &mut Given) -> String {
        let letters: Vec<char> = text.chars().collect();
        let mut made = String::with_capacity(text.len());
        let mut at = 0;
        while let Some(letter) = letters.get(at) {
            let words = self.0.get(&letter.to_ascii_lowercase()).map_or(&[][..], Vec::as_slice);
            match words.iter().find(|word| word.stands_at(&letters, at)) {
                Some(word) => {
                    made.push_str(&given.placeholder(word.kind, &word.canonical));
                    at += word.spelling.len();
                }
                None => {
                    made.push(*letter);
                    at += 1;
                }
            }
        }
        made
    }
}

impl Word {
    fn stands_at(&self, letters: &[char], at: usize) -> bool {
        let end = at + self.spelling.len();
        let Some(there) = letters.get(at..end) else { return false };
        let same = there.iter().zip(&self.spelling).all(|(letter, own)| letter.to_ascii_lowercase() == *own);
        let inside = self.kind == Kind::Secret && self.spelling.len() >= SHORTEST_INSIDE;
        let joins = |one: Option<&char>, other: Option<&char>| {
            one.zip(other).is_some_and(|(one, other)| one.is_alphanumeric() && other.is_alphanumeric())
        };
        let before = at.checked_sub(1).and_then(|before| letters.get(before));
        same && (inside || !(joins(before, there.first()) || joins(there.last(), letters.get(end))))
    }
}
