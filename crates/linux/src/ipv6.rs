//! Whether this machine has IPv6, and that any0 has it.
//!
//! Many servers are started with `ipv6.disable=1`, and then have none of it, or switch it off for each interface with
//! `net.ipv6.conf.all.disable_ipv6 = 1`, new ones included.

use std::fs;
use std::path::Path;

use tracing::info;

/// Whether the kernel has IPv6 at all.
pub fn is_there() -> bool {
    Path::new(SETTINGS).exists()
}

/// Switches IPv6 on for our own `interface`, where it is off for new ones: what an application sends by IPv6 must go to any0 as all
/// else does, and be answered there. The setting goes with the interface.
pub(crate) fn switch_on(interface: &str) {
    let path = Path::new(SETTINGS).join(interface).join("disable_ipv6");
    if fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1")
        && let Err(error) = fs::write(&path, "0")
    {
        info!("{} stays as it is: {error}", path.display());
    }
}

const SETTINGS: &str = "/proc/sys/net/ipv6/conf";
