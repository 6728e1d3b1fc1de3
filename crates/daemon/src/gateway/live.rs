//! The configuration that holds, and taking over another while clients are connected.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use anabranch::control::ReloadReport;
use identity::StateDirectory;

use crate::config::{Config, ConfigError};

/// What all threads read the configuration from.
pub struct LiveConfig {
    named: Option<PathBuf>,
    state: StateDirectory,
    current: RwLock<Arc<Config>>,
}

impl LiveConfig {
    /// Begins with `config`, which was read from the file `named`, or where it is looked for without a name.
    pub fn new(config: Config, named: Option<PathBuf>, state: StateDirectory) -> Self {
        Self { named, state, current: RwLock::new(Arc::new(config)) }
    }

    /// What holds now.
    pub fn get(&self) -> Arc<Config> {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads the file anew.
    ///
    /// # Errors
    /// If it is wrong or cannot be read; then all stays as it is.
    pub fn reload(&self) -> Result<ReloadReport, ConfigError> {
        let (wanted, _) = Config::load(self.named.as_deref(), self.state.path())?;
        let mut current = self.current.write().unwrap_or_else(PoisonError::into_inner);
        let (next, report) = merge(&current, &wanted);
        *current = Arc::new(next);
        Ok(report)
    }
}

/// What can be changed while it runs, changed; and what was, and what waits for a restart.
fn merge(current: &Config, wanted: &Config) -> (Config, ReloadReport) {
    let (mut next, mut report) = (current.clone(), ReloadReport::default());
    fn take<T: PartialEq + Clone>(names: &mut Vec<String>, name: &str, here: &mut T, wanted: &T) {
        if here != wanted {
            here.clone_from(wanted);
            names.push(name.to_owned());
        }
    }
    let (gateway, new) = (&mut next.gateway, &wanted.gateway);
    let applied = &mut report.applied;
    take(applied, "name", &mut next.daemon.name, &wanted.daemon.name);
    take(applied, "gateway.public_addresses", &mut gateway.public_addresses, &new.public_addresses);
    take(applied, "gateway.dns", &mut gateway.dns, &new.dns);
    take(applied, "gateway.client_to_client", &mut gateway.client_to_client, &new.client_to_client);
    take(applied, "gateway.client_rate", &mut gateway.limits.rate, &new.limits.rate);
    take(applied, "gateway.client_quota", &mut gateway.limits.quota, &new.limits.quota);
    take(applied, "gateway.beyond_quota", &mut gateway.limits.beyond_quota, &new.limits.beyond_quota);
    take(applied, "gateway.billing_day", &mut gateway.limits.billing_day, &new.limits.billing_day);
    let waits = [
        ("user", current.daemon.user != wanted.daemon.user),
        ("web", current.daemon.web != wanted.daemon.web),
        ("dbus", current.daemon.dbus != wanted.daemon.dbus),
        ("gateway.interface", gateway.interface != new.interface),
        ("gateway.mtu", gateway.mtu != new.mtu),
        ("gateway.listen", gateway.listen != new.listen),
        ("gateway.tcp", gateway.tcp != new.tcp),
        ("gateway.congestion", gateway.congestion != new.congestion),
        ("gateway.threads", gateway.threads != new.threads),
        ("gateway.pool_v4", gateway.pool_v4 != new.pool_v4),
        ("gateway.pool_v6", gateway.pool_v6 != new.pool_v6),
        ("gateway.registry", gateway.registry != new.registry),
        ("gateway.registry_ca", gateway.registry_ca != new.registry_ca),
    ];
    report.after_restart =
        waits.iter().filter(|(_, waits)| *waits).map(|(name, _)| (*name).to_owned()).collect();
    (next, report)
}

#[cfg(test)]
mod tests {
    use units::BitRate;

    use super::*;

    #[test]
    fn what_can_change_does_and_the_rest_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let state = StateDirectory::create(directory.path().join("state")).unwrap();
        let live = LiveConfig::new(Config::default(), None, state.clone());
        assert_eq!(live.reload().unwrap(), ReloadReport::default());
        let write = |text: &str| std::fs::write(state.file("config.toml"), text).unwrap();
        write("[gateway]\nclient_rate = \"5 Mbit/s\"\nlisten = \"0.0.0.0:5000\"\nmtu = 1300\n");
        let report = live.reload().unwrap();
        assert_eq!(report.applied, ["gateway.client_rate"]);
        assert_eq!(report.after_restart, ["gateway.mtu", "gateway.listen"]);
        let held = live.get();
        assert_eq!(held.gateway.limits.rate, Some(BitRate(5_000_000)));
        assert_eq!(held.gateway.mtu, Config::default().gateway.mtu, "the interface has the old one");
        write("[gateway]\nclient_rate = \"much\"\n");
        assert!(live.reload().unwrap_err().to_string().contains("line 2"));
        assert_eq!(live.get(), held, "a wrong file changes nothing");
    }

    /// A key that is added to the configuration has to be in one of the two lists above.
    #[test]
    fn no_key_is_forgotten() {
        let Config { daemon, device: _, networks: _, gateway, rules: _ } = Config::default();
        let crate::config::DaemonConfig { name: _, user: _, web: _, dbus: _ } = daemon;
        let crate::config::GatewayConfig {
            interface: _,
            mtu: _,
            listen: _,
            tcp: _,
            threads: _,
            public_addresses: _,
            pool_v4: _,
            pool_v6: _,
            dns: _,
            client_to_client: _,
            congestion: _,
            limits: _,
            registry: _,
            registry_ca: _,
        } = gateway;
    }
}
