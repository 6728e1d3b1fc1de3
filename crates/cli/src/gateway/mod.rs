//! `anabranch gateway ...`: through the running gateway if there is one, else on its registry.

pub mod clients;
mod init;
mod invite;
mod offline;
mod reload;
mod renew;

use daemon::config::Config;
use daemon::gateway::{self, GatewayOptions, Renewal};
use identity::KeyPair;

use crate::arguments::{GatewayCommand, GatewayRun};
use crate::session::Session;
use crate::{logging, output};

pub fn run(session: &Session, command: GatewayCommand) -> anyhow::Result<()> {
    match command {
        GatewayCommand::Init(arguments) => init::run(session, &arguments),
        GatewayCommand::Run(arguments) => run_gateway(session, &arguments),
        GatewayCommand::Invite(arguments) => invite::run(session, &arguments),
        GatewayCommand::Clients(arguments) => clients::list(session, &arguments),
        GatewayCommand::Revoke(arguments) => clients::revoke(session, &arguments),
        GatewayCommand::Forward(arguments) => clients::forward(session, &arguments),
        GatewayCommand::Limit(arguments) => clients::limit(session, &arguments),
        GatewayCommand::Renew(arguments) => renew::run(session, &arguments),
        GatewayCommand::Reload(arguments) => reload::run(session, &arguments),
    }
}

fn run_gateway(session: &Session, arguments: &GatewayRun) -> anyhow::Result<()> {
    let state = session.gateway()?;
    let (config, source) = Config::load(arguments.config.as_deref(), state.path())?;
    KeyPair::load(&state)?;
    if !arguments.dry_run {
        // What is wrong with it is told here, at the terminal.
        offline::open(&state, &config)?;
    }
    let renewal = Renewal::of_this_process(&["--dry-run"]);
    let named = arguments.config.clone();
    let options = GatewayOptions { state, config, named, renewal: renewal.ok() };
    if arguments.dry_run {
        return output::line(&gateway::plan(&options)?.join("\n"));
    }
    logging::start();
    tracing::info!("configuration: {source}");
    Ok(gateway::run(options)?)
}
