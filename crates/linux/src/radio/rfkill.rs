//! Switches that keep a radio from sending (rfkill), as the kernel shows them in `/sys/class/rfkill`.

use std::fs;
use std::path::Path;

/// What keeps a radio from sending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Block {
    /// A program or the user: `rfkill unblock wifi` ends it.
    Soft,
    /// A switch or key of the machine.
    Hard,
}

/// The block of the radio called `name`; `None` if it may send or has no switch.
pub(super) fn block_of(name: &str) -> Option<Block> {
    block_in(Path::new(SWITCHES), name)
}

/// A directory `rfkillN` for each switch, with its radio's name and two numbers.
fn block_in(switches: &Path, name: &str) -> Option<Block> {
    let read = |path: &Path, file: &str| fs::read_to_string(path.join(file)).unwrap_or_default();
    let own = fs::read_dir(switches).ok()?.flatten().take(MOST_SWITCHES).find_map(|entry| {
        let path = entry.path();
        (read(&path, "name").trim() == name).then_some(path)
    })?;
    if read(&own, "hard").trim() == "1" {
        Some(Block::Hard)
    } else {
        (read(&own, "soft").trim() == "1").then_some(Block::Soft)
    }
}

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
}
