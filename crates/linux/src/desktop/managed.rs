//! Which interfaces NetworkManager looks after, and asking it to let one go.

use std::time::{Duration, Instant};

use super::{DesktopError, output_of};

/// Whether NetworkManager looks after `interface`; `false` also where it does not know it.
///
/// # Errors
/// [`DesktopError`], mostly because NetworkManager is not there.
pub fn is_managed(interface: &str) -> Result<bool, DesktopError> {
    let output = output_of("nmcli", &["-t", "-e", "no", "-f", "DEVICE,STATE", "device", "status"])?;
    Ok(is_managed_in(&output, interface))
}

/// Makes NetworkManager look after `interface` or let it go, until one of them starts anew.
pub fn set_managed(interface: &str, managed: bool) -> Result<(), DesktopError> {
    let word = if managed { "yes" } else { "no" };
    output_of("nmcli", &["device", "set", interface, "managed", word]).map(drop)
}

/// Has NetworkManager, where it runs, leave an interface alone that has just been made: it hears of it a moment later.
///
/// What it does not hear of in time it is not told.
pub(crate) fn keep_off(interface: &str) {
    let deadline = Instant::now() + PATIENCE;
    // Any other failure says that it does not run here.
    while let Err(DesktopError::Failed { text, .. }) = set_managed(interface, false)
        && text.contains("not found")
        && Instant::now() < deadline
    {
        std::thread::sleep(PAUSE);
    }
}

const PATIENCE: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(50);

/// Lines `wlan0:connected`; of what is not looked after the state is `unmanaged`.
fn is_managed_in(output: &str, interface: &str) -> bool {
    let states = output.lines().filter_map(|line| line.strip_prefix(interface)?.strip_prefix(':'));
    states.take(1).any(|state| state.trim() != "unmanaged")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_one_interface_is_told() {
        let output = "wlan0:connected\nwlan1:unmanaged\nwlan10:disconnected\nlo:connected (externally)\n";
        let managed = ["wlan0", "wlan1", "wlan10", "wlan2"].map(|name| is_managed_in(output, name));
        assert_eq!(managed, [true, false, true, false]);
    }
}
