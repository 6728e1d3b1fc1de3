//! The real NetworkManager looks after a device's link while it is used, with a message bus of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::bed::{Bed, SERVER_V4, within};
use crate::leases::{Running, changes_in_a_transfer, has, ip, is_there, serve};
use crate::resolved::BUS;

/// What NetworkManager is told of this program's interfaces, as it is installed.
const SNIPPET: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/networkmanager/anabranch.conf");

/// In mounts of its own. With `/sys` to be read only it finds no udev, and so waits for none.
const SCRIPT: &str = r#"
mount -o remount,bind,ro /sys
mount -t tmpfs -o mode=755 tmpfs /run
mount -t tmpfs -o mode=755 tmpfs /var/lib
mkdir -p /var/lib/NetworkManager
mount --bind "$1/resolv.conf" /etc/resolv.conf
exec NetworkManager --no-daemon --config="$1/main.conf" --config-dir="$1/conf.d" --system-config-dir="$1/none" \
    --intern-config="$1/intern.conf"
"#;

/// One link by DHCP; the other has been set up by hand. Made-up links are left alone.
const MAIN: &str = "[main]\nplugins=keyfile\ndhcp=internal\nno-auto-default=*\nauth-polkit=false\n\
    [device-wan1]\nmatch-device=interface-name:wan1\nmanaged=0\n[logging]\nlevel=WARN\n";
const CONNECTION: &str = "[connection]\nid=wan0\ntype=ethernet\ninterface-name=wan0\n\
    [ipv4]\nmethod=auto\nroute-metric=100\n[ipv6]\nmethod=ignore\n";

/// NetworkManager and nmcli: the machine's, or those that `scripts/setup.sh` has unpacked, since to install them is to hand the
/// machine's links over to them.
struct Programs {
    path: String,
    libraries: PathBuf,
}

impl Programs {
    fn find() -> Result<Self, String> {
        let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/packages/network-manager");
        let roots = [Path::new("/"), &unpacked];
        let root = roots.iter().find(|root| root.join("usr/sbin/NetworkManager").exists());
        let root = root.ok_or("there is no NetworkManager (scripts/setup.sh test fetches it)")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let own = root.join("usr");
        let libraries = own.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
        let found = Self { path: format!("{0}/sbin:{0}/bin:{path}", own.display()), libraries };
        for program in ["NetworkManager", "nmcli", "dbus-daemon", "dnsmasq"] {
            let mut command = Command::new("env");
            found.apply(&mut command);
            command.args([program, "--version"]).stderr(Stdio::null());
            if !command.output().is_ok_and(|output| output.status.success()) {
                return Err(format!("{program} does not run"));
            }
        }
        Ok(found)
    }

    fn apply(&self, command: &mut Command) {
        command.env("PATH", &self.path).env("LD_LIBRARY_PATH", &self.libraries);
    }
}

/// The files of a NetworkManager, and how it is reached.
struct Desktop<'a> {
    bed: &'a Bed,
    programs: Programs,
    work: PathBuf,
}

impl<'a> Desktop<'a> {
    fn new(bed: &'a Bed, programs: Programs) -> Self {
        let work = bed.directory("desktop");
        let connections = work.join("connections");
        fs::create_dir_all(work.join("conf.d")).unwrap();
        fs::create_dir_all(&connections).unwrap();
        let listen = format!("unix:path={}", work.join("bus").display());
        let bus = BUS.replace("unix:path=/run/dbus/system_bus_socket", &listen);
        fs::write(work.join("bus.conf"), bus).unwrap();
        fs::write(work.join("resolv.conf"), "nameserver 10.1.0.1\n").unwrap();
        let main = format!("{MAIN}[keyfile]\npath={}\n", connections.display());
        fs::write(work.join("main.conf"), main).unwrap();
        let connection = connections.join("wan0.nmconnection");
        fs::write(&connection, CONNECTION).unwrap();
        fs::set_permissions(&connection, fs::Permissions::from_mode(0o600)).unwrap();
        Self { bed, programs, work }
    }

    /// A program in the device's namespace that knows the bus.
    fn command(&self, program: &str) -> Command {
        let mut command = self.bed.device.command("env").unwrap();
        self.programs.apply(&mut command);
        let address = format!("unix:path={}", self.work.join("bus").display());
        command.env("DBUS_SYSTEM_BUS_ADDRESS", address).env("LC_ALL", "C").arg(program);
        command
    }

    fn bus(&self) -> Running {
        let mut command = self.command("dbus-daemon");
        let file = format!("--config-file={}", self.work.join("bus.conf").display());
        command.args([&file, "--nofork", "--nopidfile"]).stderr(Stdio::null());
        let running = Running::of(command.spawn().unwrap());
        within(Duration::from_secs(10), "there is a bus", || self.work.join("bus").exists());
        running
    }

    fn start(&self) -> Running {
        let mut command = self.command("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-e", "-c", SCRIPT, "sh"]).arg(&self.work);
        let running = Running::of(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        within(Duration::from_secs(20), "NetworkManager answers", || {
            self.ask(&["-g", "RUNNING", "general"]) == "running"
        });
        running
    }

    fn ask(&self, arguments: &[&str]) -> String {
        let output = self.command("nmcli").args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn state_of(&self, interface: &str) -> String {
        let devices = self.ask(&["-t", "-f", "DEVICE,STATE", "device"]);
        let state = devices.lines().find_map(|line| line.strip_prefix(interface)?.strip_prefix(':'));
        state.unwrap_or_default().to_owned()
    }
}

/// A connection is taken down and up in a transfer and has another address then; NetworkManager was restarted before.
pub fn network_manager_changes_a_connection_in_a_transfer() {
    let programs = match Programs::find() {
        Ok(programs) if is_there("dnsmasq", "--version") => programs,
        Ok(_) => return println!("skipped: dnsmasq is missing (package dnsmasq-base)"),
        Err(why) => return println!("skipped: {why}"),
    };
    let bed = Bed::new(false);
    ip(&bed.device, "address flush dev wan0");
    let server = serve(&bed, "10.1.0.50");
    let desktop = Desktop::new(&bed, programs);
    let _bus = desktop.bus();
    let manager = desktop.start();
    within(Duration::from_secs(20), "wan0 has a lease", || has(&bed, "10.1.0.50"));
    let (_gateway, device) = bed.connected();

    // Nobody has told it of any0 yet: it looks on.
    within(Duration::from_secs(10), "NetworkManager has seen any0", || !desktop.state_of("any0").is_empty());
    assert_eq!(desktop.state_of("any0"), "connected (externally)");
    let before = [ip(&bed.device, "address show any0"), ip(&bed.device, "rule")];
    bed.download(SERVER_V4, 1_000_000, || {});
    assert!(desktop.ask(&["-g", "NAME", "connection", "show", "--active"]).contains("wan0"));
    drop(manager);

    // As it is installed.
    fs::copy(SNIPPET, desktop.work.join("conf.d/anabranch.conf")).unwrap();
    let manager = desktop.start();
    within(Duration::from_secs(10), "any0 is left alone", || desktop.state_of("any0") == "unmanaged");
    within(Duration::from_secs(20), "wan0 has its lease", || has(&bed, "10.1.0.50"));
    let _server = changes_in_a_transfer(&bed, server, device, || {
        let now = [ip(&bed.device, "address show any0"), ip(&bed.device, "rule")];
        assert_eq!(now, before, "NetworkManager has changed what is ours");
        desktop.ask(&["connection", "down", "wan0"]);
        assert!(!has(&bed, "10.1.0.50"), "the connection is still there");
        std::thread::sleep(Duration::from_millis(300));
        desktop.ask(&["connection", "up", "wan0"]);
    });
    assert_eq!(desktop.state_of("wan0"), "connected");
    drop(manager);
}
