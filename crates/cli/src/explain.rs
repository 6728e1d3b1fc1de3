//! `anabranch explain DEST`.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use anabranch::control::{ExplainRequest, Explained};
use policy::rules::Dscp;

use crate::arguments::Explain;
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;
use crate::table::Table;

pub fn run(session: &Session, arguments: &Explain) -> anyhow::Result<()> {
    let requests = requests(&arguments.destination, arguments.udp, arguments.dscp)?;
    let client = session.any_client(&arguments.daemon)?;
    let mut answers = Vec::new();
    for request in &requests {
        answers.push(client.explain(request)?);
    }
    if arguments.json {
        return output::json(&answers);
    }
    let texts: Vec<String> =
        requests.iter().zip(&answers).map(|(request, answer)| text(request, answer)).collect();
    output::line(&texts.join("\n\n"))
}

/// One for each family of which the destination has an address.
fn requests(text: &str, udp: bool, dscp: Option<Dscp>) -> anyhow::Result<Vec<ExplainRequest>> {
    let request = |destination, domain: Option<&str>, port| ExplainRequest {
        destination,
        domain: domain.map(str::to_owned),
        port,
        udp,
        dscp: dscp.unwrap_or_default().get(),
    };
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok(vec![request(address, None, DEFAULT_PORT)]);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(vec![request(address.ip(), None, address.port())]);
    }
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) => {
            let port = port.parse().map_err(|_| WrongUsage(format!("\"{port}\" is no port")))?;
            (name, port)
        }
        None => (text, DEFAULT_PORT),
    };
    let found: Vec<SocketAddr> = (name, port)
        .to_socket_addrs()
        .map_err(|error| WrongUsage(format!("{name} has no address: {error}")))?
        .collect();
    let first = |ipv6: bool| found.iter().find(|address| address.is_ipv6() == ipv6);
    Ok([false, true]
        .into_iter()
        .filter_map(first)
        .map(|address| request(address.ip(), Some(name), port))
        .collect())
}

fn text(request: &ExplainRequest, answer: &Explained) -> String {
    let protocol = if request.udp { "udp" } else { "tcp" };
    let target = SocketAddr::new(request.destination, request.port);
    let mut lines = vec![format!("{protocol} {target}: {}", answer.outcome)];
    lines.extend(answer.rules.iter().map(|rule| format!("  {rule}")));
    if answer.rule.is_none() && !answer.rules.is_empty() {
        lines.push("  no rule matches".to_owned());
    }
    if !answer.networks.is_empty() {
        let mut table = Table::new(&["  NETWORK", "SHARE", "WHY"]);
        for part in &answer.networks {
            let share = format!("{:.0} %", part.share.0 * 100.0);
            table.row(vec![format!("  {}", part.name), share, part.why.clone()]);
        }
        lines.push(table.render());
    }
    lines.join("\n")
}

/// What most flows go to.
const DEFAULT_PORT: u16 = 443;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_are_addresses_or_names_with_or_without_a_port() {
        let one = |text: &str| {
            let all = requests(text, false, None).unwrap();
            (all[0].destination.to_string(), all[0].port, all[0].domain.clone())
        };
        assert_eq!(one("192.0.2.1"), ("192.0.2.1".to_owned(), 443, None));
        assert_eq!(one("192.0.2.1:53"), ("192.0.2.1".to_owned(), 53, None));
        assert_eq!(one("2001:db8::1"), ("2001:db8::1".to_owned(), 443, None));
        assert_eq!(one("[2001:db8::1]:80"), ("2001:db8::1".to_owned(), 80, None));
        let (address, port, domain) = one("localhost:8080");
        assert!(address == "127.0.0.1" || address == "::1", "{address}");
        assert_eq!((port, domain.as_deref()), (8_080, Some("localhost")));
        assert!(requests("localhost:no", false, None).is_err());
    }
}
