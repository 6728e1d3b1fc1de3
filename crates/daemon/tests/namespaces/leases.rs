//! Real DHCP clients look after a device's link while it is used: dhcpcd and systemd-networkd, served by dnsmasq. NetworkManager has
//! a file of its own.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use linux::netns::Namespace;

use crate::bed::{Bed, Daemon, SERVER_V4, eventually, within};
use crate::scenarios::{snapshot, working_paths};

const NETWORKD: &str = "/lib/systemd/systemd-networkd";

/// dhcpcd as distributions start it, for every interface that there is; it may write a resolv.conf of its own. What waits for
/// udev or for other hosts that may have the address is left out.
const DHCPCD: &str = r#"
mount -t tmpfs tmpfs /run
mkdir -p /var/lib/dhcpcd
mount -t tmpfs tmpfs /var/lib/dhcpcd
mount --bind "$1/resolv.conf" /etc/resolv.conf
exec dhcpcd --nobackground --ipv4only --noipv4ll --nodev --noarp --denyinterfaces wan1
"#;

/// systemd-networkd with one network; it finds no udev, and so waits for none.
const NETWORKD_SCRIPT: &str = r#"
mount -o remount,bind,ro /sys
mount -t tmpfs tmpfs /run
mkdir -p /run/systemd/network /run/systemd/netif/links /run/systemd/netif/leases
chown -R systemd-network:systemd-network /run/systemd/netif
printf '[Match]\nName=wan0\n[Network]\nDHCP=ipv4\n' >/run/systemd/network/10-wan0.network
exec env SYSTEMD_LOG_LEVEL=err /lib/systemd/systemd-networkd
"#;

/// Ends with the test.
pub struct Running(Child);

impl Running {
    /// A child that ends on SIGTERM.
    pub fn of(child: Child) -> Self {
        Self(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // As systemd does it: networkd takes its addresses with it.
        drop(Command::new("kill").args(["-TERM", &self.0.id().to_string()]).status());
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.0.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

pub fn is_there(program: &str, argument: &str) -> bool {
    let output = Command::new(program).arg(argument).stdout(Stdio::null()).stderr(Stdio::null()).status();
    output.is_ok() || Path::new(program).exists()
}

/// Leases this one address on `lan0`, and takes away any other.
pub fn serve(bed: &Bed, address: &str) -> Running {
    let leases = bed.directory("leases");
    drop(fs::remove_file(&leases));
    let mut command = bed.gateway.command("dnsmasq").unwrap();
    command
        .args([
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--port=0",
            "--interface=lan0",
            "--user=root",
        ])
        .args(["--bind-interfaces", "--dhcp-authoritative", "--no-ping", "--pid-file=", "--leasefile-ro"])
        .args(["--dhcp-option=option:router,10.1.0.1", "--dhcp-option=option:dns-server,10.1.0.1"])
        .arg(format!("--dhcp-range={address},{address},120"))
        .stderr(Stdio::null());
    Running(command.spawn().unwrap())
}

/// Starts a client in mounts of its own.
fn client(bed: &Bed, script: &str) -> Running {
    let work = bed.directory("client");
    fs::create_dir_all(&work).unwrap();
    fs::write(work.join("resolv.conf"), "nameserver 10.1.0.1\n").unwrap();
    let mut command = bed.device.command("unshare").unwrap();
    command.args(["--mount", "--propagation", "private", "sh", "-e", "-c", script, "sh"]).arg(work);
    Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

/// A device whose first network has what its DHCP client gives it.
fn leased(script: &str) -> (Bed, Running, Running) {
    let bed = Bed::new(false);
    ip(&bed.device, "address flush dev wan0");
    let server = serve(&bed, "10.1.0.50");
    let client = client(&bed, script);
    within(Duration::from_secs(20), "wan0 has a lease", || has(&bed, "10.1.0.50"));
    (bed, server, client)
}

pub fn ip(space: &Namespace, arguments: &str) -> String {
    let output = space.command("ip").unwrap().args(arguments.split(' ')).output().unwrap();
    assert!(output.status.success(), "ip {arguments}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub fn has(bed: &Bed, address: &str) -> bool {
    ip(&bed.device, "-4 address show wan0").contains(address)
        && ip(&bed.device, "route show default").contains("dev wan0")
}

/// A transfer goes on while `change` has the client take another address; then the client is left in peace by `down`.
pub fn changes_in_a_transfer(bed: &Bed, server: Running, device: Daemon, change: impl FnOnce()) -> Running {
    eventually("both paths work", || working_paths(bed) == 2);
    drop(server);
    let server = serve(bed, "10.1.0.99");
    let mut changed = None;
    bed.download(SERVER_V4, 200_000_000, || {
        change();
        within(Duration::from_secs(20), "wan0 has the new lease", || has(bed, "10.1.0.99"));
        within(Duration::from_secs(20), "the gateway hears of the new address", || {
            let clients = bed.client("gateway").gateway_clients().unwrap().clients;
            clients[0].paths.iter().any(|path| path.ip().to_string() == "10.1.0.99")
        });
        changed = Some(Instant::now());
    });
    assert!(changed.unwrap().elapsed() > Duration::from_millis(200), "the transfer was over before");
    eventually("both paths work again", || working_paths(bed) == 2);
    assert!(!has(bed, "10.1.0.50"));
    let during = ip(&bed.device, "route show table main");
    bed.client("device").down().unwrap();
    assert!(device.wait());
    assert_eq!(ip(&bed.device, "route show table main"), during, "down touched the client's routes");
    let left = snapshot(&bed.device);
    assert!(!left.iter().any(|line| line.contains("43857") || line.contains("anabranch")), "{left:#?}");
    server
}

pub fn dhcpcd_changes_an_address_in_a_transfer() {
    if !(is_there("dhcpcd", "--version") && is_there("dnsmasq", "--version")) {
        println!("skipped: dhcpcd or dnsmasq is missing (packages dhcpcd-base and dnsmasq-base)");
        return;
    }
    let (bed, server, client) = leased(DHCPCD);
    let (_gateway, device) = bed.connected();
    let renew = || {
        let process = client.0.id().to_string();
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--target", &process, "dhcpcd", "--rebind", "wan0"]);
        assert!(command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    };
    // The same address again: nothing happens.
    renew();
    bed.download(SERVER_V4, 1_000_000, || {});
    let _server = changes_in_a_transfer(&bed, server, device, renew);
}

/// As when its package is upgraded.
pub fn systemd_networkd_is_restarted_and_changes_an_address() {
    let user = fs::read_to_string("/etc/passwd").unwrap().contains("systemd-network:");
    if !(user && Path::new(NETWORKD).exists() && is_there("dnsmasq", "--version")) {
        println!(
            "skipped: systemd-networkd, its user or dnsmasq is missing (packages systemd and dnsmasq-base)"
        );
        return;
    }
    let (bed, server, networkd) = leased(NETWORKD_SCRIPT);
    let (_gateway, device) = bed.connected();
    let mut networkd = Some(networkd);
    let restart = || {
        networkd = None;
        networkd = Some(client(&bed, NETWORKD_SCRIPT));
    };
    let _server = changes_in_a_transfer(&bed, server, device, restart);
    drop(networkd);
}
