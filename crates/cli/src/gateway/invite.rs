//! `anabranch gateway invite`.

use std::io::{self, IsTerminal};

use anabranch::control::{InviteRequest, Seconds};
use daemon::control::clients;
use identity::wall_time;

use super::offline;
use crate::arguments::{GatewayInvite, ShowQr};
use crate::session::{Session, is_not_running};
use crate::{output, qr};

pub fn run(session: &Session, arguments: &GatewayInvite) -> anyhow::Result<()> {
    let request = InviteRequest {
        name: arguments.name.clone(),
        lifetime_seconds: Seconds(arguments.expires.as_secs()),
    };
    let state = session.gateway()?;
    let answer = session.client()?.invite(&request);
    let invited = if is_not_running(&answer) {
        let (introduction, config) = offline::introduction(&state, arguments.config.as_deref())?;
        clients::invite(&mut offline::open(&state, &config)?, &introduction, &request, wall_time())?
    } else {
        answer?
    };
    if arguments.json {
        return output::json(&invited);
    }
    // Only the link goes to standard output, so that it can be piped into `anabranch join -`.
    output::line(&invited.link.0)?;
    let show = match arguments.qr {
        ShowQr::Always => true,
        ShowQr::Never => false,
        ShowQr::Auto => io::stderr().is_terminal(),
    };
    if show {
        output::remark(&qr::render(&invited.link.0)?);
    }
    if invited.replaced {
        output::remark(&format!("An older, unused invitation for {} no longer works.", invited.name));
    }
    output::remark(&format!(
        "This link lets one device in as {}, once, until {}. Whoever has it can use it: \
         give it to the device by `anabranch join -`.",
        invited.name, invited.expires
    ));
    Ok(())
}
