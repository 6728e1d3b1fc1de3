//! Patterns of domain names.

use std::fmt;
use std::str::FromStr;

/// A domain name, or all names below one.
///
/// `example.org` is that name alone, `*.example.org` every name below it at any depth, without itself. Case does not matter
/// (RFC 4343); internationalised names are written in their ASCII form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DomainPattern {
    /// In lower case, without a final dot.
    name: String,
    below: bool,
}

/// Why a text is no pattern of names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DomainError {
    /// No name can look like this (RFC 1035 section 2.3.4, with underscores as they are used).
    #[error("\"{0}\" is no domain name; write example.org, or *.example.org for all names below it")]
    Syntax(String),
    /// A star elsewhere than in front.
    #[error("\"{0}\" has a star elsewhere than in front; only *.example.org is understood")]
    Star(String),
}

impl DomainPattern {
    /// Whether `name` matches.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name);
        let Some(cut) = name.len().checked_sub(self.name.len()) else { return false };
        if !self.below {
            return name.eq_ignore_ascii_case(&self.name);
        }
        // Bytes, for a name from the network may have anything in it.
        let (front, tail) = name.as_bytes().split_at(cut);
        tail.eq_ignore_ascii_case(self.name.as_bytes()) && front.len() > 1 && front.ends_with(b".")
    }

    /// Whether it matches every name that `other` matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        if !self.below {
            return self == other;
        }
        self.matches(&other.name) || (other.below && other.name == self.name)
    }
}

impl FromStr for DomainPattern {
    type Err = DomainError;

    fn from_str(text: &str) -> Result<Self, DomainError> {
        let (name, below) = text.strip_prefix("*.").map_or((text, false), |name| (name, true));
        if name.contains('*') {
            return Err(DomainError::Star(text.to_owned()));
        }
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if name.len() > MOST_OCTETS || !name.split('.').all(is_label) {
            return Err(DomainError::Syntax(text.to_owned()));
        }
        Ok(Self { name, below })
    }
}

impl fmt::Display for DomainPattern {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", if self.below { "*." } else { "" }, self.name)
    }
}

/// RFC 1035 section 2.3.4 allows 255 octets on the wire, which are 253 characters.
const MOST_OCTETS: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> DomainPattern {
        text.parse().unwrap()
    }

    #[test]
    fn names_match() {
        for (text, name, expected) in [
            ("example.org", "example.org", true),
            ("Example.ORG.", "eXample.org.", true),
            ("example.org", "www.example.org", false),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "a.b.example.org.", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", ".example.org", false),
            ("*.example.org", "badexample.org", false),
            ("*.example.org", "", false),
            ("*.org", "ö.org", true),
            ("*.b", "ö", false),
        ] {
            assert_eq!(pattern(text).matches(name), expected, "{text} {name}");
        }
    }

    #[test]
    fn patterns_cover() {
        for (wide, narrow, expected) in [
            ("*.example.org", "*.www.example.org", true),
            ("*.example.org", "*.example.org", true),
            ("*.example.org", "www.example.org", true),
            ("*.example.org", "example.org", false),
            ("example.org", "*.example.org", false),
            ("*.www.example.org", "*.example.org", false),
        ] {
            assert_eq!(pattern(wide).covers(&pattern(narrow)), expected, "{wide} {narrow}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let long = format!("{}.org", "a".repeat(64));
        let longer = ["abcdefgh"; 30].join(".");
        for text in ["", "*", "*.", "a..b", ".org", "-a.org", "a-.org", "a b.org", "ö.org", &long, &longer] {
            assert!(text.parse::<DomainPattern>().is_err(), "{text}");
        }
        for text in ["www.*.org", "*.*.org", "a*.org"] {
            assert_eq!(text.parse::<DomainPattern>(), Err(DomainError::Star(text.to_owned())));
        }
    }
}
