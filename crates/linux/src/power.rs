//! Battery and mains, as `/sys/class/power_supply` shows them.

use std::fs;
use std::path::Path;

/// Where the kernel shows it; the `root` of [`PowerState::read`].
pub const SYSTEM: &str = "/sys/class/power_supply";

/// What the machine runs on.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct PowerState {
    /// Whether mains (or USB power) is plugged in; `None` if the machine does not say.
    pub mains: Option<bool>,
    /// Its batteries taken together; `None` if there is none.
    pub battery: Option<Battery>,
}

/// All batteries that feed the machine, taken together.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Battery {
    /// Energy left, in percent of full, 0 to 100.
    pub percent: f64,
    /// Whether at least one is being emptied.
    pub discharging: bool,
}

impl PowerState {
    /// Reads the state from directory `root`, in which each supply has a directory of its own.
    ///
    /// Batteries of mice and the like are not counted. What cannot be read or understood is left out, so a
    /// machine without such a directory has neither mains nor battery.
    pub fn read(root: &Path) -> Self {
        let mut mains = None;
        let mut batteries = Vec::new();
        let entries = fs::read_dir(root).into_iter().flatten().flatten().take(MOST_SUPPLIES);
        for directory in entries.map(|entry| entry.path()) {
            match text(&directory, "type").as_deref() {
                Some("Mains" | "USB" | "Wireless") => {
                    if let Some(online) = number(&directory, "online") {
                        mains = Some(mains.unwrap_or(false) || online > 0.0);
                    }
                }
                Some("Battery") => batteries.extend(Cell::read(&directory)),
                _ => {}
            }
        }
        Self { mains, battery: combine(&batteries) }
    }

    /// Whether the machine lives on its battery: one is being emptied and mains is not plugged in.
    pub fn is_on_battery(&self) -> bool {
        self.battery.is_some_and(|battery| battery.discharging) && self.mains != Some(true)
    }
}

/// One battery.
struct Cell {
    /// Energy now and when full, in microwatt-hours.
    energy: Option<(f64, f64)>,
    percent: f64,
    discharging: bool,
}

impl Cell {
    fn read(directory: &Path) -> Option<Self> {
        // Scope "Device": it feeds a mouse, not this machine.
        if text(directory, "scope").as_deref() == Some("Device") || number(directory, "present") == Some(0.0)
        {
            return None;
        }
        let energy = Self::energy(directory).filter(|(_, full)| *full > 0.0);
        let percent = energy
            .map(|(now, full)| 100.0 * now / full)
            .or_else(|| number(directory, "capacity"))?
            .clamp(0.0, 100.0);
        let discharging = text(directory, "status").as_deref() == Some("Discharging");
        Some(Self { energy, percent, discharging })
    }

    /// Some batteries tell charge in microampere-hours instead; the design voltage turns it into energy.
    fn energy(directory: &Path) -> Option<(f64, f64)> {
        let pair = |now, full| Some((number(directory, now)?, number(directory, full)?));
        pair("energy_now", "energy_full").or_else(|| {
            let (now, full) = pair("charge_now", "charge_full")?;
            let volts = number(directory, "voltage_min_design")
                .or_else(|| number(directory, "voltage_now"))
                .map(|microvolts| microvolts / 1e6)?;
            Some((now * volts, full * volts))
        })
    }
}

/// By energy, if all batteries tell theirs; by the mean percentage otherwise.
fn combine(batteries: &[Cell]) -> Option<Battery> {
    if batteries.is_empty() {
        return None;
    }
    let energies: Option<Vec<(f64, f64)>> = batteries.iter().map(|battery| battery.energy).collect();
    let percent = match energies {
        Some(energies) => {
            let (now, full) =
                energies.iter().fold((0.0, 0.0), |sum, energy| (sum.0 + energy.0, sum.1 + energy.1));
            100.0 * now / full
        }
        None => batteries.iter().map(|battery| battery.percent).sum::<f64>() / batteries.len() as f64,
    };
    let discharging = batteries.iter().any(|battery| battery.discharging);
    Some(Battery { percent: percent.clamp(0.0, 100.0), discharging })
}

fn text(directory: &Path, file: &str) -> Option<String> {
    let text = fs::read_to_string(directory.join(file)).ok()?;
    Some(text.trim().to_owned())
}

fn number(directory: &Path, file: &str) -> Option<f64> {
    text(directory, file)?.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0)
}

const MOST_SUPPLIES: usize = 64;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A directory tree as the kernel's, removed when the test ends.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str, supplies: &[(&str, &[(&str, &str)])]) -> Self {
            let root = std::env::temp_dir().join(format!("ab-{}-power-{name}", std::process::id()));
            for (supply, files) in supplies {
                fs::create_dir_all(root.join(supply)).unwrap();
                for (file, content) in *files {
                    fs::write(root.join(supply).join(file), format!("{content}\n")).unwrap();
                }
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            drop(fs::remove_dir_all(&self.0));
        }
    }

    #[test]
    fn two_batteries_count_by_their_energy() {
        let small =
            [("type", "Battery"), ("energy_now", "0"), ("energy_full", "10000000"), ("status", "Unknown")];
        let large = [
            ("type", "Battery"),
            ("charge_now", "3000000"),
            ("charge_full", "3000000"),
            ("voltage_min_design", "10000000"),
            ("status", "Discharging"),
        ];
        let mains = [("type", "Mains"), ("online", "0")];
        let mouse = [("type", "Battery"), ("scope", "Device"), ("capacity", "1"), ("status", "Discharging")];
        let tree = Tree::new(
            "two",
            &[("BAT0", &small), ("BAT1", &large), ("AC", &mains), ("hidpp_battery_0", &mouse)],
        );
        let state = PowerState::read(&tree.0);
        // 0 of 10 Wh and 30 of 30 Wh.
        assert_eq!(state.battery, Some(Battery { percent: 75.0, discharging: true }));
        assert_eq!((state.mains, state.is_on_battery()), (Some(false), true));
    }

    #[test]
    fn usb_power_is_mains_and_a_bare_percentage_is_enough() {
        let battery = [("type", "Battery"), ("capacity", "17"), ("status", "Charging")];
        let empty_port = [("type", "USB"), ("online", "0")];
        let port = [("type", "USB"), ("online", "1")];
        let tree = Tree::new("usb", &[("b", &battery), ("ucsi1", &port), ("ucsi2", &empty_port)]);
        let state = PowerState::read(&tree.0);
        assert_eq!(state.battery, Some(Battery { percent: 17.0, discharging: false }));
        assert_eq!((state.mains, state.is_on_battery()), (Some(true), false));
    }

    #[test]
    fn nonsense_and_absence_are_nothing() {
        let nonsense = [("type", "Battery"), ("energy_now", "-5"), ("energy_full", "NaN"), ("capacity", "x")];
        let absent = [("type", "Battery"), ("present", "0"), ("capacity", "50")];
        let zero = [("type", "Battery"), ("energy_now", "0"), ("energy_full", "0")];
        let tree = Tree::new("bad", &[("a", &nonsense), ("b", &absent), ("c", &zero), ("d", &[])]);
        assert_eq!(PowerState::read(&tree.0), PowerState::default());
        assert_eq!(PowerState::read(Path::new("/does/not/exist")), PowerState::default());
    }
}
