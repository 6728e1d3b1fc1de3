//! `anabranch run`, `pin`, `unpin` and `rules`: holding programs and destinations to networks.

use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anabranch::control::{Hold, PinRequest, RuleReport};
use anyhow::Context;
use units::IpPrefix;

use crate::arguments::{HoldTo, Pin, Rules, Run, Treat, Unpin};
use crate::exit::WrongUsage;
use crate::session::Session;
use crate::status::word;
use crate::table::Table;
use crate::{output, over_mptcp, peers};

/// Becomes the command, or looks after it. Nothing is run if it cannot be held to what was asked for.
pub fn run(session: &Session, arguments: &Run) -> anyhow::Result<()> {
    let [program, rest @ ..] = &arguments.command[..] else {
        return Err(WrongUsage("say which command to run".to_owned()).into());
    };
    if arguments.over_sockets {
        let ways = (&arguments.only, &arguments.spare);
        return peers::program::run(session, program, rest, arguments.group.clone(), ways);
    }
    if !arguments.only.adapters.is_empty() || !arguments.spare.switch_off.is_empty() {
        return Err(WrongUsage(
            "--adapter and --switch-off are for --virtual; --network holds a command to a network".to_owned(),
        )
        .into());
    }
    // The client has a thread of this process only, which is put into the group as a whole.
    let client = session.any_client(&arguments.daemon)?;
    client.run(&hold(&arguments.hold)?)?;
    let mut command = Command::new(program);
    command.args(rest);
    if matches!(arguments.hold.treat, Some(Treat::Mptcp)) {
        return over_mptcp::run(&client, command);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot run {}", program.display()))
}

pub fn pin(session: &Session, arguments: &Pin) -> anyhow::Result<()> {
    let destination = arguments.destination.as_deref().map(prefix).transpose()?;
    let request = PinRequest { destination, domain: arguments.domain.clone(), hold: hold(&arguments.hold)? };
    let rule = session.any_client(&arguments.daemon)?.pin(&request)?;
    if arguments.json {
        return output::json(&rule);
    }
    output::line(&table(std::slice::from_ref(&rule)))?;
    output::remark(&format!(
        "This holds for new flows until the daemon ends or \"anabranch unpin {}\"; [[rule]] in the configuration keeps it.",
        rule.name
    ));
    Ok(())
}

pub fn unpin(session: &Session, arguments: &Unpin) -> anyhow::Result<()> {
    let rule = session.any_client(&arguments.daemon)?.unpin(&arguments.name)?;
    if arguments.json { output::json(&rule) } else { output::line(&format!("{} is removed", rule.name)) }
}

pub fn list(session: &Session, arguments: &Rules) -> anyhow::Result<()> {
    let rules = session.any_client(&arguments.daemon)?.rules()?;
    if arguments.json {
        return output::json(&rules);
    }
    if rules.is_empty() {
        return output::line("no rules: all flows are treated as usual");
    }
    output::line(&table(&rules))
}

fn hold(to: &HoldTo) -> Result<Hold, WrongUsage> {
    if to.network.is_empty() && to.treat.is_none() {
        return Err(WrongUsage("say what to hold it to: --network NAME or --treat HOW".to_owned()));
    }
    Ok(Hold { networks: to.network.clone(), treatment: to.treat.map(Into::into) })
}

fn prefix(text: &str) -> Result<IpPrefix, WrongUsage> {
    let host = || text.parse::<IpAddr>().ok().map(IpPrefix::host);
    text.parse().ok().or_else(host).ok_or_else(|| {
        WrongUsage(format!(
            "\"{text}\" is no address or network (192.0.2.1, 10.0.0.0/8); give a name as --domain NAME"
        ))
    })
}

fn table(rules: &[RuleReport]) -> String {
    let mut table = Table::new(&HEADINGS);
    for (number, rule) in (1..).zip(rules) {
        table.row(cells(number, rule));
    }
    table.render()
}

/// What [`cells`] are.
pub const HEADINGS: [&str; 7] = ["NUMBER", "NAME", "FROM", "MATCHES", "DECIDES", "USER", "REMARK"];

/// One rule, with its place in the order in which they are tried.
pub fn cells(number: usize, rule: &RuleReport) -> Vec<String> {
    vec![
        number.to_string(),
        rule.name.clone(),
        word(&rule.origin),
        rule.matches.clone(),
        rule.decides.clone(),
        rule.user.map_or_else(|| "-".to_owned(), |user| user.to_string()),
        rule.remark.clone().unwrap_or_else(|| "-".to_owned()),
    ]
}
