//! `anabranch up`: runs the device, in the background unless told otherwise.

use anyhow::Context;
use daemon::config::{Config, NO_GATEWAY};
use daemon::device::{self, DeviceOptions};
use identity::{InvitationKind, KeyPair, Peers};
use serde_json::json;

use crate::arguments::Up;
use crate::exit::WrongUsage;
use crate::session::Session;
use crate::{background, logging, output};

pub fn run(session: &Session, arguments: &Up) -> anyhow::Result<()> {
    let state = session.device()?;
    let (config, source) = Config::load(arguments.config.as_deref(), state.path())?;
    // What is missing is told here, at the terminal, and not in the log of a daemon that fails to start. Without a gateway nothing can be.
    let wanted = config.device.gateway.as_deref();
    if wanted != Some(NO_GATEWAY) {
        KeyPair::load(&state)?;
        check_gateway(&Peers::load(&state)?, wanted)?;
    }
    let options = DeviceOptions { state, config };
    if arguments.dry_run {
        let plan = device::plan(&options)?;
        return if arguments.json {
            output::json(&json!({ "plan": plan }))
        } else {
            output::line(&plan.join("\n"))
        };
    }
    if arguments.foreground {
        if arguments.detached {
            background::detach().context("cannot leave the terminal's session")?;
        }
        logging::start();
        tracing::info!("configuration: {source}");
        return Ok(device::run(options)?);
    }
    background::start(session, arguments)
}

fn check_gateway(peers: &Peers, wanted: Option<&str>) -> anyhow::Result<()> {
    let known: Vec<&str> = peers.of_kind(InvitationKind::Gateway).map(|peer| peer.name.as_str()).collect();
    match (wanted, known.as_slice()) {
        (_, []) => Err(WrongUsage(
            "no gateway is known: get a join link from yours and run `anabranch join -`".into(),
        )),
        (Some(name), known) if !known.contains(&name) => Err(WrongUsage(format!(
            "device.gateway = \"{name}\" is not known here: expected one of {}",
            known.join(", ")
        ))),
        (None, [_, _, ..]) => Err(WrongUsage(format!(
            "several gateways are known: set gateway under [device] in the configuration to one of {}",
            known.join(", ")
        ))),
        _ => Ok(()),
    }
    .map_err(Into::into)
}
