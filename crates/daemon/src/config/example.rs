//! The commented example, from the same definitions that read the file.

use std::fmt::Write;

use wire::join_link::HostPort;

use super::keys::{self, Key};

/// One key, for whoever describes the configuration.
pub struct KeyMeaning {
    /// Its name.
    pub name: &'static str,
    /// What it means, in lines.
    pub meaning: &'static str,
    /// What a value must be, to follow "expected".
    pub accepts: &'static str,
    /// The default in TOML, or an example if `otherwise` says what holds.
    pub default: &'static str,
    /// What holds when the key is not set.
    pub otherwise: Option<&'static str>,
}

/// One table of the configuration.
pub struct TableMeaning {
    /// As it stands in the file; `None` for the keys at the top.
    pub header: Option<&'static str>,
    /// What it is for, in one line.
    pub meaning: &'static str,
    /// Its keys, in the order of the example.
    pub keys: Vec<KeyMeaning>,
}

/// All tables in the order of the example.
pub fn tables() -> [TableMeaning; 5] {
    fn table<T>(header: Option<&'static str>, meaning: &'static str, keys: &[Key<T>]) -> TableMeaning {
        let meanings = keys.iter().map(|key| KeyMeaning {
            name: key.name,
            meaning: key.meaning,
            accepts: key.accepts,
            default: key.default,
            otherwise: key.otherwise,
        });
        TableMeaning { header, meaning, keys: meanings.collect() }
    }
    [
        table(None, "At the top.", keys::DAEMON),
        table(Some("[device]"), "What a device does.", keys::DEVICE),
        table(
            Some("[network.wwan0]"),
            "One table for each network that needs settings, by the name of its interface.",
            keys::NETWORK,
        ),
        table(
            Some("[[rule]]"),
            "Rules for some flows, in order: the first one decides whose keys all match. Of a list, one must match.",
            keys::RULE,
        ),
        table(Some("[gateway]"), "What a gateway does.", keys::GATEWAY),
    ]
}

/// A configuration with every key in it, each commented out beside its meaning: `config.example.toml`.
pub fn example() -> String {
    let mut text = String::from(
        "# Anabranch's configuration. Every key is optional; what stands here is the default unless said otherwise.\n\
         # Read from --config FILE, else config.toml in the state directory, else /etc/anabranch/config.toml.\n\n",
    );
    for table in tables() {
        if let Some(header) = table.header {
            // An empty rule would be a mistake.
            let off = if header == "[[rule]]" { "#" } else { "" };
            text.push_str(&format!("# {}\n{off}{header}\n", table.meaning));
        }
        for key in table.keys {
            describe(&mut text, &key);
        }
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The example with the public addresses of a new gateway set.
pub fn example_with_addresses(addresses: &[HostPort]) -> String {
    let list: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    example().replace("#public_addresses = []", &format!("public_addresses = [{}]", list.join(", ")))
}

fn describe(text: &mut String, key: &KeyMeaning) {
    for line in key.meaning.lines() {
        let _ = writeln!(text, "# {line}");
    }
    let otherwise = key.otherwise.map_or_else(String::new, |what| format!(" Not set: {what}."));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# Expected: {}.{otherwise}", key.accepts);
    let _ = writeln!(text, "#{} = {}\n", key.name, key.default);
}
