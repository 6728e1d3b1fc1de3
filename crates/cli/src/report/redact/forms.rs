//! Links, domain names, mail addresses, keys and settings that hold secrets, by their form.

use super::{Given, Kind, each_run};

/// In place of the value of a setting, whose like elsewhere tells nothing.
pub const HIDDEN: &str = "[secret]";
/// Parts of names of settings whose values are nobody's business.
const SECRET: [&str; 15] = [
    "passphrase",
    "password",
    "passwd",
    "secret",
    "token",
    "psk",
    "wep_key",
    "private_key",
    "identity",
    "anonymous",
    "certificate",
    "authority",
    "cookie",
    "authorization",
    // A connection string of PostgreSQL has its password in it.
    "registry",
];
/// What stands behind the last dot of files and units. None of them is a top-level domain.
const NO_DOMAINS: [&str; 22] = [
    "toml", "service", "socket", "timer", "slice", "scope", "mount", "log", "sock", "conf", "sqlite", "lock",
    "json", "txt", "ko", "pid", "deb", "gz", "xz", "pcap", "journal", "netdev",
];
/// First parts of names that are settings of the kernel or of buses.
const NO_HOSTS: [&str; 5] = ["net", "kernel", "org", "vm", "fs"];
/// Words are shorter.
const LONG: usize = 20;
/// A run with signs in it (base64) is a path or a name unless it is longer than this and mixed.
const LONG_MIXED: usize = 32;

/// Blocks of keys and certificates (RFC 7468).
pub(super) fn blocks(text: &str, given: &mut Given) -> String {
    const BEGIN: &str = "-----BEGIN ";
    const END: &str = "-----END ";
    let mut made = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        made.push_str(before);
        // A block that does not end is taken out to the end of the text.
        let (block, after) = after.split_once(END).unwrap_or((after, ""));
        made.push_str(&given.placeholder(Kind::Secret, block));
        rest = after.split_once('\n').map_or("", |(_, after)| after);
        made.push('\n');
    }
    made + rest
}

/// Join links, and addresses of pages on other machines, whose paths may hold tokens.
pub(super) fn links(text: &str, given: &mut Given) -> String {
    let ends = |letter: char| letter.is_whitespace() || matches!(letter, '"' | '\'' | '<' | '>' | ')' | '`');
    each_run(
        text,
        |letter| !ends(letter),
        |run| {
            let (place, _) = run.match_indices("://").next()?;
            let begin =
                run[..place].rfind(|letter: char| !letter.is_ascii_alphanumeric()).map_or(0, |at| at + 1);
            let (before, link) = run.split_at(begin);
            let kind = if link.starts_with("anabranch") { Kind::Link } else { Kind::Url };
            let host = link.split_once("://").map(|(_, rest)| rest).unwrap_or_default();
            // `http://127.0.0.1:4680/` may stay, what follows `#` may not.
            let own =
                host.starts_with("127.0.0.1") || host.starts_with("localhost") || host.starts_with("[::1]");
            let bare = !link.contains(['#', '?', '@']);
            (!(kind == Kind::Url && own && bare))
                .then(|| format!("{before}{}", given.placeholder(kind, link)))
        },
    )
}

/// Whether the value of a setting of this name is a secret.
pub fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET.iter().any(|part| name.contains(part))
}

/// `password = "..."`, `psk: ...`, `--token=...`: the rest of the line.
pub(super) fn settings(text: &str, given: &mut Given) -> String {
    let line = |line: &str| {
        let sign = line.char_indices().find(|(at, letter)| {
            matches!(letter, '=' | ':') && {
                let name = line[..*at].trim_end_matches(['"', '\'', ' ']);
                let last = name.rsplit(|letter: char| !(letter.is_alphanumeric() || "_-".contains(letter)));
                last.take(1).any(is_secret)
            }
        });
        match sign {
            Some((at, sign)) if !line[at + 1..].trim().is_empty() => {
                let value = line[at + 1..].trim().trim_matches(['"', '\'', ',', ' ']);
                given.placeholder(Kind::Secret, value);
                format!("{}{sign} {HIDDEN}", &line[..at])
            }
            _ => line.to_owned(),
        }
    };
    text.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

/// Numbers of machines and discs: 8-4-4-4-12 hexadecimal digits (RFC 9562).
pub(super) fn numbers(text: &str, given: &mut Given) -> String {
    each_run(
        text,
        |letter| letter.is_ascii_hexdigit() || letter == '-',
        |run| {
            let lengths: Vec<usize> = run.split('-').map(str::len).collect();
            (lengths == [8, 4, 4, 4, 12]).then(|| given.placeholder(Kind::Key, &run.to_ascii_lowercase()))
        },
    )
}

/// Domain names, mail addresses, keys.
pub(super) fn names_and_keys(text: &str, given: &mut Given) -> String {
    let text = each_run(
        text,
        |letter| letter.is_alphanumeric() || matches!(letter, '.' | '-' | '_' | '@' | '+'),
        |run| domain(run, given),
    );
    let signs =
        |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '/' | '=' | '-' | '_');
    let text = each_run(&text, signs, |run| {
        let has = |test: fn(&char) -> bool| run.chars().any(|letter| test(&letter));
        let mixed =
            has(char::is_ascii_lowercase) && has(char::is_ascii_uppercase) && has(char::is_ascii_digit);
        (run.len() >= LONG_MIXED && mixed).then(|| given.placeholder(Kind::Key, run))
    });
    each_run(
        &text,
        |letter| letter.is_ascii_alphanumeric(),
        |run| {
            let number = run.chars().all(|letter| letter.is_ascii_digit());
            (run.len() >= LONG && !number).then(|| given.placeholder(Kind::Key, &run.to_ascii_lowercase()))
        },
    )
}

fn domain(run: &str, given: &mut Given) -> Option<String> {
    let name = run.trim_matches(['.', '-', '@', '+', '_']);
    let (before, after) = run.split_once(name)?;
    let labels: Vec<&str> = name.split('.').collect();
    let last = labels.last()?.to_ascii_lowercase();
    if NO_DOMAINS.contains(&last.as_str()) {
        return None;
    }
    if let Some((user, host)) = name.split_once('@') {
        let whole = !user.is_empty() && !host.is_empty();
        return whole.then(|| {
            format!("{before}{}{after}", given.placeholder(Kind::Email, &name.to_ascii_lowercase()))
        });
    }
    let is_label = |label: &&str| !label.is_empty() && !label.contains('+');
    let top = last.chars().count() >= 2 && last.chars().all(char::is_alphabetic) || last.starts_with("xn--");
    let ours = NO_HOSTS.contains(&labels[0]);
    if labels.len() < 2 || !top || ours || !labels.iter().all(is_label) {
        return None;
    }
    Some(format!("{before}{}{after}", given.placeholder(Kind::Domain, &name.to_ascii_lowercase())))
}
