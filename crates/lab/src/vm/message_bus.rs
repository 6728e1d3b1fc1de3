//! A system bus in the guest, open to everything there.

use std::path::PathBuf;

use super::{MachineError, program};

/// The program that the guest needs, and the function `message_bus` of the script, which starts it.
///
/// # Errors
/// [`MachineError::Missing`] if there is none.
pub fn parts() -> Result<(PathBuf, &'static str), MachineError> {
    Ok((program("dbus-daemon", "dbus-daemon")?, FUNCTIONS))
}

const FUNCTIONS: &str = r#"
message_bus() {
    mkdir -p /run/dbus
    echo 0123456789abcdef0123456789abcdef >/etc/machine-id
    cat >/tmp/bus.conf <<'END'
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>system</type><listen>unix:path=/run/dbus/system_bus_socket</listen><auth>EXTERNAL</auth>
<policy context="default"><allow user="*"/><allow own="*"/><allow send_destination="*"/><allow send_type="*"/><allow receive_type="*"/></policy>
</busconfig>
END
    dbus-daemon --config-file=/tmp/bus.conf --nofork --nopidfile >/results/bus.log 2>&1 &
    for _ in $(seq 50); do [ -S /run/dbus/system_bus_socket ] && break; sleep 0.1; done
}
"#;
