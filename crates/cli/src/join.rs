//! `anabranch join`: meets the gateway of a join link.

use std::io::{self, BufRead, IsTerminal, Read};

use identity::{InvitationKind, KeyPair, Peers, wall_time};
use serde_json::json;
use wire::join_link::{JoinLink, MAX_LINK_TEXT};
use zeroize::Zeroizing;

use crate::arguments::Join;
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Join) -> anyhow::Result<()> {
    let text = match arguments.link.as_str() {
        "-" => read_link()?,
        link => {
            output::remark(
                "anabranch: a link on the command line can be seen by other users of this machine; \
                 `anabranch join -` reads it from standard input",
            );
            Zeroizing::new(link.to_owned())
        }
    };
    let link = JoinLink::parse(&text).map_err(|error| WrongUsage(error.to_string()))?;
    if link.kind == InvitationKind::Group {
        let how = "this is a link to a group; take it with `anabranch group join`";
        return Err(WrongUsage(how.to_owned()).into());
    }
    let state = session.create()?;
    let key = KeyPair::load_or_create(&state)?;
    let joined = Peers::change(&state, |peers| {
        peers.join(&link, arguments.name.as_deref(), key.public(), wall_time())
    })?;
    let far_end = identity::PublicKey(link.public_key);
    let addresses: Vec<String> = link.addresses.iter().map(ToString::to_string).collect();
    if arguments.json {
        return output::json(&json!({
            "name": joined.name,
            "kind": link.kind.as_str(),
            "renewed": joined.renewed,
            "public_key": far_end.to_string(),
            "addresses": addresses,
            "own_public_key": key.public().to_string(),
        }));
    }
    let verb = if joined.renewed { "Renewed what is known of" } else { "Met" };
    output::line(&format!("{verb} the {} at {} (key {far_end}).", link.kind, addresses.join(", ")))?;
    output::line(&format!("Its name on this machine is {}.", joined.name))?;
    if link.kind == InvitationKind::Gateway {
        output::line("Bring the interface up with `anabranch up`.")?;
    }
    if session.client()?.status().is_ok() {
        output::line("A daemon is running; it takes this up after `anabranch down` and `anabranch up`.")?;
    }
    Ok(())
}

/// A line from a terminal, everything from a pipe: a link may be wrapped there.
fn read_link() -> anyhow::Result<Zeroizing<String>> {
    let mut text = Zeroizing::new(String::new());
    let mut input = io::stdin().lock().take(MAX_LINK_TEXT as u64 + 1);
    if io::stdin().is_terminal() {
        output::remark("Paste the join link and press Enter:");
        input.read_line(&mut text)?;
    } else {
        input.read_to_string(&mut text).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => WrongUsage(
                "this is no join link: it should be one line that starts with anabranch://join/".to_owned(),
            )
            .into(),
            _ => anyhow::Error::from(error),
        })?;
    }
    if text.trim().is_empty() {
        return Err(WrongUsage("no join link on standard input: pipe it in, or name it".to_owned()).into());
    }
    Ok(text)
}
