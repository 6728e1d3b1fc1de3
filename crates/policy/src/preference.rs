//! From what the user prefers to what each path may do.

use crate::{PathStatus, Priority};

/// What is known about the use of one network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct NetworkPreference {
    /// Order: 0 is used first.
    #[serde(default)]
    pub priority: Priority,
    /// Whether it is used only when no other is left; `None` if nobody said.
    #[serde(default)]
    pub backup: Option<bool>,
    /// Its traffic is paid for by volume.
    #[serde(default)]
    pub metered: bool,
    /// Not to be used at all.
    #[serde(default)]
    pub off: bool,
}

/// The status of each network's paths, in the same order.
///
/// - A network that is off is off.
/// - A network that was declared a backup, or is metered and was not declared to be none, is a backup.
/// - Of the others those with the lowest priority number are active, the rest backups.
/// - If that leaves none active, the metered ones that nobody declared anything about take the place.
pub fn statuses(networks: &[NetworkPreference]) -> Vec<PathStatus> {
    let first = |wanted: fn(&NetworkPreference) -> bool| {
        networks.iter().filter(|network| wanted(network)).map(|network| network.priority).min()
    };
    let (eligible, first): (fn(&NetworkPreference) -> bool, _) = match first(is_regular) {
        Some(priority) => (is_regular, Some(priority)),
        None => (is_undeclared, first(is_undeclared)),
    };
    networks
        .iter()
        .map(|network| match network {
            NetworkPreference { off: true, .. } => PathStatus::Off,
            _ if eligible(network) && Some(network.priority) == first => PathStatus::Active,
            _ => PathStatus::Backup,
        })
        .collect()
}

fn is_regular(network: &NetworkPreference) -> bool {
    !network.off && !network.backup.unwrap_or(network.metered)
}

fn is_undeclared(network: &NetworkPreference) -> bool {
    !network.off && network.backup.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use PathStatus::{Active, Backup, Off};

    const PLAIN: NetworkPreference =
        NetworkPreference { priority: Priority(1), backup: None, metered: false, off: false };
    const METERED: NetworkPreference = NetworkPreference { metered: true, ..PLAIN };

    #[test]
    fn lowest_priority_group_is_active() {
        let second = NetworkPreference { priority: Priority(2), ..PLAIN };
        assert_eq!(statuses(&[PLAIN, second, PLAIN]), [Active, Backup, Active]);
        assert_eq!(statuses(&[second, second]), [Active, Active]);
        assert_eq!(statuses(&[]), []);
    }

    #[test]
    fn metered_is_backup_unless_told_otherwise() {
        let wanted = NetworkPreference { backup: Some(false), ..METERED };
        assert_eq!(statuses(&[PLAIN, METERED, wanted]), [Active, Backup, Active]);
        assert_eq!(statuses(&[METERED, METERED]), [Active, Active], "someone must carry");
        let declared = NetworkPreference { backup: Some(true), ..PLAIN };
        assert_eq!(statuses(&[METERED, declared]), [Active, Backup]);
        assert_eq!(
            statuses(&[declared]),
            [Backup],
            "a declared backup stays one; the bond uses it for want of others"
        );
    }

    #[test]
    fn off_is_off_and_does_not_count() {
        let off = NetworkPreference { off: true, priority: Priority(0), ..PLAIN };
        assert_eq!(statuses(&[off, PLAIN]), [Off, Active]);
        assert_eq!(statuses(&[off]), [Off]);
    }
}
