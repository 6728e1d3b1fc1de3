//! The real systemd-resolved, with a message bus, a `/run` and a resolv.conf of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bed::{Bed, Daemon, SERVER_V4, eventually};
use crate::names::Names;

/// systemd-resolved and resolvectl: the machine's, or those that `scripts/setup.sh` has unpacked, since to install them
/// is to hand the machine's names over to them.
struct Programs {
    resolved: PathBuf,
    resolvectl: PathBuf,
}

impl Programs {
    fn find() -> Result<Self, String> {
        let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/packages/systemd-resolved");
        let roots = [Path::new("/"), &unpacked];
        let found = roots.iter().find_map(|root| {
            let resolved =
                ["usr/lib/systemd", "lib/systemd"].map(|at| root.join(at).join("systemd-resolved"));
            let resolved = resolved.into_iter().find(|path| path.exists())?;
            Some(Self { resolved, resolvectl: root.join("usr/bin/resolvectl") })
        });
        let found = found.ok_or("there is no systemd-resolved (scripts/setup.sh test fetches it)")?;
        for program in [&found.resolved, &found.resolvectl, Path::new("dbus-daemon")] {
            let runs =
                Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
            if !runs {
                return Err(format!("{} does not run", program.display()));
            }
        }
        Ok(found)
    }
}

/// As process 1 of its own, so that all ends with it: mounts, starts the bus and resolved, tells it the server of wan0,
/// and becomes the daemon.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/dbus /run/systemd/resolve
cp /etc/passwd "$WORK/passwd"
cp /etc/group "$WORK/group"
echo "systemd-resolve:x:64999:64999::/:/bin/false" >>"$WORK/passwd"
echo "systemd-resolve:x:64999:" >>"$WORK/group"
mount --bind "$WORK/passwd" /etc/passwd
mount --bind "$WORK/group" /etc/group
echo "nameserver 127.0.0.53" >"$WORK/resolv.conf"
mount --bind "$WORK/resolv.conf" /etc/resolv.conf
chown systemd-resolve:systemd-resolve /run/systemd/resolve
dbus-daemon --config-file="$WORK/bus.conf" --nofork --nopidfile &
until [ -e /run/dbus/system_bus_socket ]; do sleep 0.02; done
SYSTEMD_LOG_LEVEL=warning "$RESOLVED" &
until [ -e /run/systemd/resolve/io.systemd.Resolve ]; do sleep 0.02; done
until resolvectl dns wan0 10.1.0.1; do sleep 0.05; done
exec "$@"
"#;

/// A system bus on which everybody may do everything.
pub const BUS: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path=/run/dbus/system_bus_socket</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow send_type="*"/>
    <allow receive_type="*"/>
  </policy>
</busconfig>
"#;

pub fn systemd_resolved_asks_over_any0() {
    let programs = match Programs::find() {
        Ok(programs) => programs,
        Err(why) => {
            println!("skipped: {why}");
            return;
        }
    };
    let bed = Bed::new(false);
    bed.write_config(
        "gateway",
        "[gateway]\ndns = [\"198.51.100.9\"]\npublic_addresses = [\"198.51.100.1\"]\n",
    );
    bed.write_config("device", "");
    let _of_network = Names::serve(&bed.gateway, "10.1.0.1", "192.0.2.1");
    let _of_gateway = Names::serve(&bed.server, SERVER_V4, "192.0.2.2");
    let _gateway = bed.start("gateway");
    bed.join();
    let device = start(&bed, &programs);
    bed.wait_until_up();
    eventually("names are asked over any0", || look_up(&device, "up.example.org") == "192.0.2.2");
    let settings = inside(&device, &programs.resolvectl, &["status", "any0"]);
    assert!(settings.contains("198.51.100.9") && settings.contains("~."), "{settings}");
    let report = bed.client("device").down().unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert!(report.undone.iter().any(|line| line == "forget the name servers of any0"), "{report:?}");
    assert!(!report.undone.iter().any(|line| line.contains("resolv.conf")), "{report:?}");
}

fn start(bed: &Bed, programs: &Programs) -> Daemon {
    let work = bed.directory("resolved");
    fs::create_dir(&work).unwrap();
    fs::write(work.join("bus.conf"), BUS).unwrap();
    let path = format!(
        "{}:{}",
        programs.resolvectl.parent().unwrap().display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let mut command = bed.device.command("unshare").unwrap();
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    command
        .args(["sh", "-c", SCRIPT, "sh"])
        .env("PATH", path)
        .env("WORK", &work)
        .env("RESOLVED", &programs.resolved);
    let child = bed.arguments("device", &mut command).spawn().unwrap();
    bed.answering("device", child)
}

/// The IPv4 address of a name as any program on the device gets it.
fn look_up(device: &Daemon, name: &str) -> String {
    let said = inside(device, Path::new("getent"), &["ahostsv4", name]);
    said.split_whitespace().next().unwrap_or_default().to_owned()
}

/// What a program says in the device's mounts and network.
fn inside(device: &Daemon, program: &Path, arguments: &[&str]) -> String {
    let of_device = device.id().to_string();
    // The process that was started is unshare, which stays outside of what it makes for its child.
    let children = fs::read_to_string(format!("/proc/{of_device}/task/{of_device}/children")).unwrap();
    let mut command = Command::new("nsenter");
    command.args(["--mount", "--net", "--target", children.trim()]).arg(program).args(arguments);
    String::from_utf8_lossy(&command.output().unwrap().stdout).into_owned()
}
