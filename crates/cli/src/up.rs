//! `anabranch up`: runs the device, in the background unless told otherwise.

use anyhow::Context;
use daemon::config::{Config, NO_GATEWAY};
use daemon::device::{self, DeviceOptions};
use identity::{InvitationKind, KeyPair, Peers, Registry, StateDirectory};
use serde_json::json;

use crate::arguments::Up;
use crate::exit::WrongUsage;
use crate::session::Session;
use crate::{background, logging, output};

pub fn run(session: &Session, arguments: &Up) -> anyhow::Result<()> {
    let state = session.create()?;
    let (config, source) = Config::load(arguments.config.as_deref(), state.path())?;
    // What is missing is told here, at the terminal, and not in the log of a daemon that fails to start.
    check(&state, config.device.gateway.as_deref())?;
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

/// Whether there is what it takes: a gateway's key if one is to be used, and nothing if none is.
fn check(state: &StateDirectory, wanted: Option<&str>) -> anyhow::Result<()> {
    if wanted == Some(NO_GATEWAY) {
        return Ok(());
    }
    let peers = Peers::load(state)?;
    let known: Vec<&str> = peers.of_kind(InvitationKind::Gateway).map(|peer| peer.name.as_str()).collect();
    let wrong = match (wanted, known.as_slice()) {
        (None, []) if Registry::exists(state) => {
            "this is the state of a gateway, which \"anabranch gateway run\" runs; if the machine is to be a device too, \
             name another directory with --state DIR"
                .to_owned()
        }
        (None, []) => {
            output::remark(
                "No gateway is known: each flow takes one network (direct mode). \"anabranch join -\" takes a gateway's link.",
            );
            return Ok(());
        }
        (Some(name), known) if !known.contains(&name) => {
            let expected = if known.is_empty() {
                "run `anabranch join -` first".to_owned()
            } else {
                format!("expected one of {}", known.join(", "))
            };
            format!("device.gateway = \"{name}\" is not known here: {expected}")
        }
        _ => {
            KeyPair::load(state)?;
            return Ok(());
        }
    };
    Err(WrongUsage(wrong).into())
}
