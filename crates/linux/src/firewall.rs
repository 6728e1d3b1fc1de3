//! Other programs' firewalls: whether they let a gateway forward.
//!
//! A packet must pass the forward chains of all tables, so our own `accept` cannot help where another table's policy
//! is `drop`. Nothing is changed here: a firewall is its owner's.

mod legacy;
use serde::Deserialize;

use crate::nft::{self, NftError};

pub use legacy::{LegacyError, closed_legacy_chains};

/// A forward chain that drops what it does not know, in a table that does not name the interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClosedChain {
    /// Family, table and chain, as nft writes them.
    pub chain: String,
    /// The commands that let the interface's packets through, for a shell.
    pub remedy: String,
}

#[derive(Deserialize)]
struct Listing {
    nftables: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    chain: Option<Chain>,
}

#[derive(Deserialize)]
struct Chain {
    family: String,
    table: String,
    name: String,
    hook: Option<String>,
    policy: Option<String>,
}

/// The forward chains in whose way packets of `interface` get lost. What iptables-legacy has set up is
/// not among them, see [`closed_legacy_chains`].
///
/// # Errors
/// If nft cannot be run or does not answer as expected.
pub fn closed_chains(interface: &str) -> Result<Vec<ClosedChain>, NftError> {
    let text = nft::ask(&["-j", "list", "chains"])?;
    let listing: Listing =
        serde_json::from_str(&text).map_err(|error| NftError::Run(std::io::Error::other(error)))?;
    let chains: Vec<Chain> = listing.nftables.into_iter().filter_map(|entry| entry.chain).collect();
    let mut closed = Vec::new();
    for chain in chains.iter().filter(|chain| forwards_little(chain)) {
        let table = nft::ask(&["list", "table", &chain.family, &chain.table])?;
        if !table.contains(&format!("\"{interface}\"")) {
            let names =
                chains.iter().filter(|other| other.table == chain.table && other.family == chain.family);
            let names: Vec<&str> = names.map(|other| other.name.as_str()).collect();
            closed.push(ClosedChain {
                chain: format!("{} {} {}", chain.family, chain.table, chain.name),
                remedy: remedy(chain, &names, interface),
            });
        }
    }
    Ok(closed)
}

/// firewalld's policy is `accept`, but its last rule rejects.
fn forwards_little(chain: &Chain) -> bool {
    chain.hook.as_deref() == Some("forward")
        && (chain.policy.as_deref() == Some("drop") || chain.table == "firewalld")
}

/// `names` are all chains of the same table, by which the program shows that made it.
fn remedy(chain: &Chain, names: &[&str], interface: &str) -> String {
    let iptables = if chain.family == "ip6" { "ip6tables" } else { "iptables" };
    if chain.table == "firewalld" {
        return format!(
            "firewall-cmd --permanent --zone=trusted --add-interface={interface} && firewall-cmd --reload"
        );
    }
    if let Some(remedy) = iptables_remedy(iptables, names, interface) {
        return remedy;
    }
    let Chain { family, table, name, .. } = chain;
    format!(
        "nft insert rule {family} {table} {name} iifname {interface} accept && \
         nft insert rule {family} {table} {name} oifname {interface} ct state established,related accept && \
         nft insert rule {family} {table} {name} oifname {interface} ct status dnat accept"
    )
}

/// For the programs that keep a place for rules of others; `names` are all chains of the filter table.
fn iptables_remedy(iptables: &str, names: &[&str], interface: &str) -> Option<String> {
    if names.iter().any(|name| name.starts_with("ufw")) {
        // It lets answers through by itself.
        return Some(format!("ufw route allow in on {interface}"));
    }
    names.contains(&"DOCKER-USER").then(|| legacy::insert(iptables, "DOCKER-USER", interface))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;

    #[test]
    fn a_closed_chain_is_found_and_its_remedy_opens_it() {
        if !may_test() {
            return;
        }
        let space = Namespace::anonymous().unwrap();
        let closed = || space.run(|| closed_chains("any0").unwrap()).unwrap();
        assert_eq!(closed(), []);
        let script = "table ip filter {\n chain FORWARD {\n type filter hook forward priority 0; policy drop;\n }\n}\n\
                      table inet open {\n chain forward {\n type filter hook forward priority 0; policy accept;\n }\n}\n";
        space.run(|| nft::load(script).unwrap()).unwrap();
        let found = closed();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].chain, "ip filter FORWARD");
        let opened = space.command("sh").unwrap().args(["-c", &found[0].remedy]).status().unwrap();
        assert!(opened.success(), "{}", found[0].remedy);
        assert_eq!(closed(), []);
    }

    #[test]
    fn known_firewalls_get_their_own_commands() {
        let chain = |family: &str, table: &str| Chain {
            family: family.to_owned(),
            table: table.to_owned(),
            name: "FORWARD".to_owned(),
            hook: Some("forward".to_owned()),
            policy: Some("drop".to_owned()),
        };
        let of = |family, table, names: &[&str]| remedy(&chain(family, table), names, "any0");
        assert!(of("ip", "filter", &["ufw-user-forward", "DOCKER-USER"]).starts_with("ufw route"));
        assert!(of("ip6", "filter", &["FORWARD", "DOCKER-USER"]).starts_with("ip6tables -I DOCKER-USER"));
        assert!(of("inet", "firewalld", &[]).starts_with("firewall-cmd"));
    }
}
