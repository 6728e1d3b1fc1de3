//! The commented example, from the same definitions that read the file.

use std::fmt::Write;

use wire::join_link::HostPort;

use super::keys::{self, Key};

/// A configuration with every key in it, each commented out beside its meaning: `config.example.toml`.
pub fn example() -> String {
    let mut text = String::from(
        "# Anabranch's configuration. Every key is optional; what stands here is the default unless said otherwise.\n\
         # Read from --config FILE, else config.toml in the state directory, else /etc/anabranch/config.toml.\n\n",
    );
    describe(&mut text, keys::DAEMON);
    text.push_str("# What a device does.\n[device]\n");
    describe(&mut text, keys::DEVICE);
    text.push_str(
        "# One table for each network that needs settings, by the name of its interface.\n[network.wwan0]\n",
    );
    describe(&mut text, keys::NETWORK);
    text.push_str(
        "# Rules for some flows, in order: the first one decides whose keys all match. Of a list, one must match.\n#[[rule]]\n",
    );
    describe(&mut text, keys::RULE);
    text.push_str("# What a gateway does.\n[gateway]\n");
    describe(&mut text, keys::GATEWAY);
    text.truncate(text.trim_end().len());
    text.push('\n');
    text
}

/// The example with the public addresses of a new gateway set.
pub fn example_with_addresses(addresses: &[HostPort]) -> String {
    let list: Vec<String> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    example().replace("#public_addresses = []", &format!("public_addresses = [{}]", list.join(", ")))
}

fn describe<T>(text: &mut String, keys: &[Key<T>]) {
    for key in keys {
        for line in key.meaning.lines() {
            let _ = writeln!(text, "# {line}");
        }
        let otherwise = key.otherwise.map_or_else(String::new, |what| format!(" Not set: {what}."));
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# Expected: {}.{otherwise}", key.accepts);
        let _ = writeln!(text, "#{} = {}\n", key.name, key.default);
    }
}
