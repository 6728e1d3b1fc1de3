//! A gateway that does not run: its registry, opened by the command itself.

use std::path::Path;

use anabranch::control::ClientError;
use anyhow::bail;
use daemon::config::Config;
use daemon::control::BackendError;
use daemon::control::clients::Introduction;
use identity::{KeyPair, Registry, StateDirectory};
use policy::limit::LimitSettings;

use crate::session::{Session, is_not_running};

/// Opens the registry with the pools of the configuration.
pub fn open(state: &StateDirectory, config: &Config) -> anyhow::Result<Registry> {
    let gateway = &config.gateway;
    Ok(Registry::open(gateway.registry_place(state), gateway.pool_v4, gateway.pool_v6)?)
}

/// Asks the running gateway; if none runs, answers from the registry.
pub fn ask<T>(
    session: &Session,
    running: impl FnOnce(&anabranch::control::BlockingClient) -> Result<T, ClientError>,
    offline: impl FnOnce(&mut Registry, &LimitSettings) -> Result<T, BackendError>,
) -> anyhow::Result<T> {
    let state = session.gateway()?;
    let answer = running(&session.client()?);
    if !is_not_running(&answer) {
        return Ok(answer?);
    }
    let (config, _) = Config::load(None, state.path())?;
    Ok(offline(&mut open(&state, &config)?, &config.gateway.limits)?)
}

/// What join links say about this gateway.
pub fn introduction(
    state: &StateDirectory,
    named_config: Option<&Path>,
) -> anyhow::Result<(Introduction, Config)> {
    let (config, _) = Config::load(named_config, state.path())?;
    let gateway = &config.gateway;
    if gateway.public_addresses.is_empty() {
        bail!(
            "it is not known where devices find this gateway: set public_addresses under [gateway] in {}",
            state.file("config.toml").display()
        );
    }
    let introduction = Introduction {
        public_key: KeyPair::load(state)?.public(),
        addresses: gateway.public_addresses.clone(),
        tcp_port: gateway.tcp,
    };
    Ok((introduction, config))
}
