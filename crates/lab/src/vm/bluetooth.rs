//! Two Bluetooth controllers in the guest, emulated by BlueZ's `btvirt`, and a cable between the two ends.
//!
//! Bluetooth sockets exist in the first network namespace only, so both ends live there: each is told which adapters are its own, and addresses of
//! the cable are reached by way of it because the rules look at the interface before they look at this machine's own addresses.

use std::path::{Path, PathBuf};

use super::{Job, MachineError, message_bus, not_installed, program};

/// `btvirt`: the machine's, or the one that `scripts/setup.sh` has unpacked.
///
/// # Errors
/// [`MachineError::Missing`] with the command that mends it.
pub fn emulator() -> Result<PathBuf, MachineError> {
    let unpacked =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/packages/bluez-test-tools/usr/bin/btvirt");
    if unpacked.exists() {
        return unpacked.canonicalize().map_err(|error| MachineError::Other(error.into()));
    }
    program("btvirt", "bluez-test-tools").map_err(|_| not_installed("btvirt", "bluez-test-tools"))
}

/// Adds what the guest needs, and gives the functions of the script:
/// - `controllers`: starts two controllers, `hci0` of the near end and `hci1` of the far end, and switches them on; `$near_device` and `$far_device` are their addresses;
/// - `cable`: lays a cable `near0`-`far0`, not plugged in; `plug` gives it the addresses 10.9.0.1 and 10.9.0.2, `unplug` pulls it out;
/// - `wires`, then `wire NEAR FAR`: the same for two interfaces that are on one link already. `$emulator` is the process that emulates the controllers.
///
/// # Errors
/// [`MachineError::Missing`] if there is no emulator.
pub fn add_to(job: &mut Job) -> Result<&'static str, MachineError> {
    job.programs.push(emulator()?);
    job.modules.extend(
        ["aes_generic", "ecb", "cmac", "algif_hash", "algif_skcipher", "hci_vhci"].map(str::to_owned),
    );
    Ok(FUNCTIONS)
}

/// Adds BlueZ's daemon beside, and gives the function `bluez`, which starts it with a bus once the controllers are there. It keeps them from being called, as
/// they are paired with nobody: `callable` mends that.
///
/// # Errors
/// [`MachineError::Missing`] if there is none.
pub fn add_service_to(job: &mut Job) -> Result<String, MachineError> {
    let place = "libexec/bluetooth/bluetoothd";
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/packages/bluez/usr");
    let roots = [Path::new("/usr"), &unpacked].map(|root| root.join(place));
    let daemon = roots.into_iter().find(|daemon| daemon.exists());
    let daemon = daemon.ok_or_else(|| not_installed("bluetoothd", "bluez"))?;
    job.programs.push(daemon.canonicalize().map_err(|error| MachineError::Other(error.into()))?);
    let (bus, functions) = message_bus::parts()?;
    job.programs.push(bus);
    Ok(format!("{functions}{SERVICE}"))
}

const SERVICE: &str = r#"
bluez() {
    mkdir -p /var/lib/bluetooth
    message_bus
    bluetoothd -n -d >/results/bluetoothd.log 2>&1 &
    sleep 3
    sleep 3
}
callable() { anabranch-lab bluetooth on hci0 hci1 >/dev/null || fail 'no controllers any more'; }
"#;

const FUNCTIONS: &str = r#"
fail() { echo "failed: $*"; exit 1; }
controllers() {
    btvirt -l2 >/results/btvirt.log 2>&1 &
    emulator=$!
    anabranch-lab bluetooth on hci0 hci1 >/results/controllers || fail 'no controllers'
    near_device=$(sed -n 's/^hci0 //p' /results/controllers); far_device=$(sed -n 's/^hci1 //p' /results/controllers)
}
wires() {
    for name in all default; do echo 1 >/proc/sys/net/ipv4/conf/$name/accept_local; echo 0 >/proc/sys/net/ipv4/conf/$name/rp_filter; done
    ip rule add pref 100 lookup local; ip rule del pref 0
}
wire() {
    ip addr replace 10.9.0.1/24 dev $1; ip addr replace 10.9.0.2/24 dev $2
    ip rule add pref 10 oif $1 lookup 101; ip rule add pref 11 oif $2 lookup 102
    ip route replace 10.9.0.0/24 dev $1 src 10.9.0.1 table 101
    ip route replace 10.9.0.0/24 dev $2 src 10.9.0.2 table 102
}
cable() { wires; ip link add near0 type veth peer name far0; }
plug() { ip link set near0 up; ip link set far0 up; wire near0 far0; }
unplug() { ip link set far0 down; ip link set near0 down; }
"#;
