//! Rules of the kernel's older interface (`iptables-legacy`), which nft does not show; Docker and others still use it.

use std::fs;
use std::process::{Command, Stdio};

use thiserror::Error;

use super::{ClosedChain, iptables_remedy};

/// Why it is not known what these rules do.
#[derive(Debug, Error)]
pub enum LegacyError {
    /// There are some, and nothing to look at them with.
    #[error(
        "there are rules of iptables-legacy, and the program that shows them is missing; install the package iptables"
    )]
    Missing,
    /// The program failed.
    #[error("{program} -S failed: {reason}")]
    Failed {
        /// The program.
        program: String,
        /// What it said.
        reason: String,
    },
}

/// The forward chains of the older interface in whose way packets of `interface` get lost; none if it is not in use.
///
/// # Errors
/// Any [`LegacyError`].
pub fn closed_legacy_chains(interface: &str) -> Result<Vec<ClosedChain>, LegacyError> {
    let mut closed = Vec::new();
    for (names, program) in [("ip_tables_names", "iptables"), ("ip6_tables_names", "ip6tables")] {
        // To ask iptables would bring the tables into being, and packets would pass them from then on.
        let tables = fs::read_to_string(format!("/proc/thread-self/net/{names}")).unwrap_or_default();
        if tables.lines().any(|table| table == "filter") {
            let program = reader(program).ok_or(LegacyError::Missing)?;
            closed.extend(closed_chain(&program, &rules(&program)?, interface));
        }
    }
    Ok(closed)
}

/// The program for the older interface: by its own name, or by the plain one where there is no newer.
fn reader(program: &str) -> Option<String> {
    [format!("{program}-legacy"), program.to_owned()].into_iter().find(|program| {
        let output = Command::new(program).arg("--version").stderr(Stdio::null()).output();
        output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("legacy"))
    })
}

fn rules(program: &str) -> Result<String, LegacyError> {
    let failed = |reason| LegacyError::Failed { program: program.to_owned(), reason };
    let output = Command::new(program).arg("-S").output().map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The forward chain in the output of `iptables -S`, if it lets little through and no rule names the interface.
fn closed_chain(program: &str, rules: &str, interface: &str) -> Option<ClosedChain> {
    let closes = |line: &str| {
        line == "-P FORWARD DROP"
            || ["-A FORWARD -j DROP", "-A FORWARD -j REJECT"].iter().any(|last| line.starts_with(last))
    };
    let named = rules.split_whitespace().any(|word| word == interface);
    if named || !rules.lines().any(closes) {
        return None;
    }
    let names: Vec<&str> = rules.lines().filter_map(|line| line.strip_prefix("-N ")).collect();
    Some(ClosedChain {
        chain: format!("FORWARD of {program}"),
        remedy: iptables_remedy(program, &names, interface)
            .unwrap_or_else(|| insert(program, "FORWARD", interface)),
    })
}

/// The commands that put rules for the interface before all others of a chain.
pub(super) fn insert(program: &str, chain: &str, interface: &str) -> String {
    format!(
        "{program} -I {chain} -i {interface} -j ACCEPT && \
         {program} -I {chain} -o {interface} -m conntrack --ctstate RELATED,ESTABLISHED,DNAT -j ACCEPT"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netns::Namespace;
    use crate::test_namespace::may_test;

    #[test]
    fn rules_are_read() {
        let chain = |rules: &str| closed_chain("iptables-legacy", rules, "any0");
        let open = "-P INPUT DROP\n-P FORWARD ACCEPT\n-A FORWARD -i wan -j DROP\n";
        assert_eq!(chain(open), None);
        let docker =
            chain("-P FORWARD DROP\n-N DOCKER\n-N DOCKER-USER\n-A FORWARD -j DOCKER-USER\n").unwrap();
        assert!(docker.remedy.starts_with("iptables-legacy -I DOCKER-USER -i any0"), "{docker:?}");
        let rejecting =
            chain("-P FORWARD ACCEPT\n-A FORWARD -j REJECT --reject-with icmp-host-prohibited\n").unwrap();
        assert!(rejecting.remedy.starts_with("iptables-legacy -I FORWARD -i any0"), "{rejecting:?}");
        assert_eq!(
            chain("-P FORWARD DROP\n-A FORWARD -i any0 -j ACCEPT\n"),
            None,
            "somebody has thought of it"
        );
        assert!(chain("-P FORWARD DROP\n-N ufw-user-forward\n").unwrap().remedy.starts_with("ufw route"));
    }

    #[test]
    fn a_closed_legacy_chain_is_found_and_its_remedy_opens_it() {
        if !may_test() {
            return;
        }
        let space = Namespace::anonymous().unwrap();
        let closed = || space.run(|| closed_legacy_chains("any0").unwrap()).unwrap();
        assert_eq!(closed(), []);
        let close = ["-P", "FORWARD", "DROP"];
        match space.command("iptables-legacy").unwrap().args(close).status() {
            Ok(status) if status.success() => {}
            other => {
                eprintln!("skipped: iptables-legacy does not work here: {other:?}");
                return;
            }
        }
        let found = closed();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].chain, "FORWARD of iptables-legacy");
        let opened = space.command("sh").unwrap().args(["-c", &found[0].remedy]).status().unwrap();
        assert!(opened.success(), "{}", found[0].remedy);
        assert_eq!(closed(), []);
    }
}
