//! Takes out of a text what others should not learn. Pure.
//!
//! The same thing gets the same placeholder, `[mac-1]`, wherever it stands, so that who reads the text still sees what belongs together.
//! What is known beforehand (names, passphrases) is looked for as it is; addresses, keys, links and domain names are found by their
//! form. In doubt something is taken out.

mod addresses;
mod forms;
mod words;

use std::collections::BTreeMap;
use std::fmt;

use words::Words;

/// What a placeholder stands for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    Secret,
    /// A public key, a token, a number of a machine: too long and too random for a word.
    Key,
    Link,
    Url,
    Ipv4,
    Ipv6,
    Mac,
    Ssid,
    Host,
    User,
    Domain,
    Email,
    Program,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Secret => "secret",
            Self::Key => "key",
            Self::Link => "invitation",
            Self::Url => "url",
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
            Self::Mac => "mac",
            Self::Ssid => "ssid",
            Self::Host => "host",
            Self::User => "user",
            Self::Domain => "domain",
            Self::Email => "email",
            Self::Program => "program",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Secret => "passphrases, tokens and other secrets",
            Self::Key => "keys and long random texts",
            Self::Link => "join links",
            Self::Url => "addresses of pages",
            Self::Ipv4 => "public IPv4 addresses",
            Self::Ipv6 => "IPv6 addresses",
            Self::Mac => "hardware addresses",
            Self::Ssid => "names of Wi-Fi networks",
            Self::Host => "names of machines, peers and clients",
            Self::User => "names of users",
            Self::Domain => "domain names",
            Self::Email => "mail addresses",
            Self::Program => "names of programs",
        })
    }
}

/// Remembers what it has taken out.
#[derive(Debug, Default)]
pub struct Redactor {
    words: Words,
    given: Given,
}

impl Redactor {
    /// Looks for this from now on, in every form in which programs write it.
    pub fn learn(&mut self, kind: Kind, word: &str) {
        self.words.learn(kind, word);
    }

    /// The text without what is to be kept back.
    pub fn text(&mut self, text: &str) -> String {
        let given = &mut self.given;
        let text = self.words.replace(text, given);
        let text = forms::blocks(&text, given);
        let text = forms::links(&text, given);
        let text = forms::settings(&text, given);
        let text = forms::numbers(&text, given);
        let text = addresses::replace(&text, given);
        forms::names_and_keys(&text, given)
    }

    /// The same for every text in a JSON document, the names of fields included.
    pub fn json(&mut self, value: &serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            Value::String(text) => Value::String(self.text(text)),
            Value::Array(items) => Value::Array(items.iter().map(|item| self.json(item)).collect()),
            Value::Object(fields) => {
                let field = |(name, value): (&String, &Value)| {
                    let secret = forms::is_secret(name) && value.is_string();
                    let value =
                        if secret { Value::String(forms::HIDDEN.to_owned()) } else { self.json(value) };
                    (self.text(name), value)
                };
                Value::Object(fields.iter().map(field).collect())
            }
            other => other.clone(),
        }
    }

    /// How many different things of each kind were taken out.
    pub fn taken_out(&self) -> &BTreeMap<Kind, usize> {
        &self.given.counts
    }
}

/// Placeholders by what they stand for.
#[derive(Debug, Default)]
struct Given {
    placeholders: BTreeMap<(Kind, String), String>,
    counts: BTreeMap<Kind, usize>,
}

impl Given {
    /// The placeholder of a thing, by its name in one spelling.
    fn placeholder(&mut self, kind: Kind, canonical: &str) -> String {
        let counts = &mut self.counts;
        let new = || {
            let count = counts.entry(kind).or_default();
            *count += 1;
            format!("[{}-{count}]", kind.word())
        };
        self.placeholders.entry((kind, canonical.to_owned())).or_insert_with(new).clone()
    }
}

/// Gives each longest run of letters that `belongs` to `replace`, and keeps the runs for which that has nothing.
fn each_run(
    text: &str,
    belongs: impl Fn(char) -> bool,
    mut replace: impl FnMut(&str) -> Option<String>,
) -> String {
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let begin = rest.find(&belongs).unwrap_or(rest.len());
        made.push_str(&rest[..begin]);
        let run = &rest[begin..];
        let end = run.find(|letter| !belongs(letter)).unwrap_or(run.len());
        let (run, after) = run.split_at(end);
        match replace(run) {
            Some(text) => made.push_str(&text),
            None => made.push_str(run),
        }
        rest = after;
    }
    made
}

#[cfg(test)]
mod tests;
