//! Switches that keep a radio from sending (rfkill): as the kernel shows them in `/sys/class/rfkill`, and switched through `/dev/rfkill`, which whoever
//! sits at the machine may write to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// What keeps a radio from sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// A program or the user: `rfkill unblock wifi` ends it.
    Soft,
    /// A switch or key of the machine.
    Hard,
}

/// The switch of one radio.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Switch {
    radio: String,
}

/// Why a radio was not switched.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// No such radio, or one without a switch.
    #[error("{0} has no switch for its radio")]
    None(String),
    /// Only who sits at the machine may, or root.
    #[error("{DEVICE} may not be written to by this user: run from a local login, or as root")]
    NotPermitted,
    /// The kernel's own words.
    #[error("{DEVICE}: {0}")]
    System(#[from] io::Error),
}

impl Switch {
    /// The one of an adapter: a Wi-Fi interface or a Bluetooth controller.
    pub fn of_adapter(name: &str) -> Option<Self> {
        let own = fs::read_to_string(Path::new(INTERFACES).join(name).join("phy80211/name"));
        let is_controller = name.strip_prefix("hci").is_some_and(|number| number.parse::<u16>().is_ok());
        let radio = match own {
            Ok(radio) => radio.trim().to_owned(),
            Err(_) if is_controller => name.to_owned(),
            Err(_) => return None,
        };
        directory_of(Path::new(SWITCHES), &radio).map(|_| Self { radio })
    }

    /// The one of a radio, by the radio's own name, such as `phy0`.
    pub fn of_radio(radio: &str) -> Self {
        Self { radio: radio.to_owned() }
    }

    /// The name of its radio.
    pub fn radio(&self) -> &str {
        &self.radio
    }

    /// Switches the radio on or off; a hard switch stays as it is.
    ///
    /// # Errors
    /// [`SwitchError`].
    pub fn set(&self, on: bool) -> Result<(), SwitchError> {
        let none = || SwitchError::None(self.radio.clone());
        let directory = directory_of(Path::new(SWITCHES), &self.radio).ok_or_else(none)?;
        // The number may be another radio's after this one was pulled out; it is read anew each time.
        let number =
            fs::read_to_string(directory.join("index")).ok().and_then(|text| text.trim().parse().ok());
        Ok(device()?.write_all(&event(number.ok_or_else(none)?, on))?)
    }

    /// Whether this process may switch at all.
    ///
    /// # Errors
    /// [`SwitchError`].
    pub fn permitted() -> Result<(), SwitchError> {
        device().map(drop)
    }
}

fn device() -> Result<File, SwitchError> {
    OpenOptions::new().write(true).open(DEVICE).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => SwitchError::NotPermitted,
        _ => error.into(),
    })
}

/// `struct rfkill_event` of linux/rfkill.h: number, kind (does not count here), operation, soft block, hard block.
fn event(number: u32, on: bool) -> [u8; 8] {
    const CHANGE: u8 = 2;
    let [a, b, c, d] = number.to_ne_bytes();
    [a, b, c, d, 0, CHANGE, u8::from(!on), 0]
}

/// The block of the radio called `name`; `None` if it may send or has no switch.
pub(crate) fn block_of(name: &str) -> Option<Block> {
    block_in(Path::new(SWITCHES), name)
}

/// A directory `rfkillN` for each switch, with its radio's name and two numbers.
fn directory_of(switches: &Path, radio: &str) -> Option<PathBuf> {
    fs::read_dir(switches)
        .ok()?
        .flatten()
        .take(MOST_SWITCHES)
        .map(|entry| entry.path())
        .find(|path| fs::read_to_string(path.join("name")).is_ok_and(|name| name.trim() == radio))
}

fn block_in(switches: &Path, radio: &str) -> Option<Block> {
    let own = directory_of(switches, radio)?;
    let read = |path: &Path, file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
    if read(&own, "hard").trim() == "1" {
        Some(Block::Hard)
    } else {
        (read(&own, "soft").trim() == "1").then_some(Block::Soft)
    }
}

const DEVICE: &str = "/dev/rfkill";
const INTERFACES: &str = "/sys/class/net";
const SWITCHES: &str = "/sys/class/rfkill";
const MOST_SWITCHES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_radio_has_its_own_switch() {
        let directory = std::env::temp_dir().join(format!("ab-rfkill-{}", std::process::id()));
        for (number, name, soft, hard) in
            [(0, "phy0", "0", "0"), (1, "hci0", "1", "1"), (2, "phy1", "1", "0"), (3, "phy2", "1", "1")]
        {
            let switch = directory.join(format!("rfkill{number}"));
            fs::create_dir_all(&switch).unwrap();
            for (file, text) in [("name", name), ("soft", soft), ("hard", hard)] {
                fs::write(switch.join(file), format!("{text}\n")).unwrap();
            }
        }
        let found = ["phy0", "phy1", "phy2", "phy3"].map(|name| block_in(&directory, name));
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(found, [None, Some(Block::Soft), Some(Block::Hard), None]);
        assert_eq!(block_in(&directory, "phy1"), None, "a machine without switches");
    }

    #[test]
    fn what_is_written_is_the_kernels_structure() {
        let mut expected = 7u32.to_ne_bytes().to_vec();
        expected.extend([0, 2, 1, 0]);
        assert_eq!(event(7, false).to_vec(), expected);
        assert_eq!(event(7, true)[6], 0);
    }

    #[test]
    fn a_radio_that_is_not_there_is_an_error_with_its_name() {
        assert_eq!(Switch::of_adapter("lo"), None);
        let error = Switch::of_radio("phy99").set(true).unwrap_err();
        assert!(error.to_string().contains("phy99"), "{error}");
    }
}
