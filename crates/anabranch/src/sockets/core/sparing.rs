//! Adapters that nobody uses, where they may be switched off.

use std::time::Duration;

use linux::rfkill::Switch;
use policy::unused::{AdapterUse, Need, Switching};
use units::Timestamp;

use super::super::adapter::AdapterState;
use super::super::conversation::State;
use super::Core;

const INTERVAL: Duration = Duration::from_secs(1);

impl Core {
    /// Switches adapters off and on, if it is time; returns when to look again.
    pub(super) fn spare_adapters(&mut self, now: Timestamp) -> Timestamp {
        let Some(permission) = self.options.switch_off.clone() else { return Timestamp::FAR_FUTURE };
        if now < self.spare_at {
            return self.spare_at;
        }
        self.spare_at = now + INTERVAL;
        // A switch is a radio's, which may be that of several adapters.
        let carrying = self.conversations.values().filter_map(|known| known.active);
        let radios_in_use: Vec<Switch> =
            carrying.filter_map(|active| Switch::of_adapter(self.carriers.adapter_of(active)?)).collect();
        let adapters: Vec<AdapterUse<'_>> = permission
            .adapters()
            .iter()
            .map(|(name, switch)| {
                // Also one that these sockets are not to use: other programs' traffic is why it is on.
                let adapter = self.all_adapters.iter().find(|adapter| adapter.name == *name);
                AdapterUse {
                    name,
                    is_on: adapter.is_some_and(|adapter| adapter.state != AdapterState::Off),
                    in_use: self.options.spread || radios_in_use.contains(switch),
                }
            })
            .collect();
        for switching in self.unused.evaluate(now, &adapters, self.need()) {
            match switching {
                Switching::Off(name) => permission.switch(&name, false),
                Switching::On(name) => permission.switch(&name, true),
            }
        }
        self.spare_at
    }

    fn need(&self) -> Need {
        let mut need = Need::Open;
        for known in self.conversations.values().filter(|known| !known.is_over()) {
            // By a relay means that no adapter leads to the peer itself; another one may.
            let carried = known.active.is_some_and(|active| !self.carriers.is_relayed(active));
            match known.state {
                State::Up if carried && known.usable_paths() > 0 => need = Need::Settled,
                State::Connecting { .. } => return Need::Open,
                _ => return Need::Stranded,
            }
        }
        need
    }
}
