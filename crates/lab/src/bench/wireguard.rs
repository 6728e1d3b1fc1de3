//! wireguard-go, the rival: built from its source, run on both sides of a bed.

use crate::netbed::{ChildProcess, GATEWAY_ADDRESS, NetBed};
use crate::vm;
use anyhow::{Context, ensure};
use linux::netns::Namespace;
use std::io::Write;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// What is built (MIT): wireguard-go's main branch of May 2026.
const SOURCE: &str = "golang.zx2c4.com/wireguard@v0.0.0-20260522210424-ecfc5a8d5446";
const PORT: u16 = 51_820;
/// Its usual MTU: 1500 less 80 bytes of headers.
const MTU: u32 = 1_420;
/// Inside the tunnel.
pub const GATEWAY_INNER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
const DEVICE_INNER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// Keys and sockets lie here, in the bed's own /run.
const SOCKETS: &str = "/run/wireguard";
const PATIENCE: Duration = Duration::from_secs(20);

/// Both ends of a tunnel by wireguard-go.
pub struct WireGuard {
    ends: [ChildProcess; 2],
}

/// One end, before it runs.
struct End<'a> {
    namespace: &'a Namespace,
    interface: &'static str,
    address: Ipv4Addr,
    private: String,
    public: String,
}

/// The built program, from the cache or by `go install`.
///
/// # Errors
/// Says what is missing and how to get it.
pub fn install() -> anyhow::Result<PathBuf> {
    for (tool, package) in [("wg", "wireguard-tools"), ("go", "golang-go")] {
        vm::program(tool, package).context("the rival in this benchmark is wireguard-go")?;
    }
    let program = place()?;
    if program.is_file() {
        return Ok(program);
    }
    eprintln!("building wireguard-go");
    let directory = program.parent().context("find the cache")?;
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let output = Command::new("go")
        .args(["install", SOURCE])
        .env("GOBIN", directory)
        .stdin(Stdio::null())
        .output()
        .context("start go")?;
    ensure!(
        output.status.success() && program.is_file(),
        "go install {SOURCE} failed (is the Go module proxy reached?): {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(program)
}

/// Beside the virtual machine's kernel in the cache.
fn place() -> anyhow::Result<PathBuf> {
    let cache = vm::cache_directory()?;
    Ok(cache.with_file_name("bench").join("wireguard"))
}

impl WireGuard {
    /// Brings the tunnel up between device and gateway of `bed`.
    ///
    /// # Errors
    /// If a program fails.
    pub fn start(bed: &NetBed) -> anyhow::Result<Self> {
        let program = place()?;
        let end = |namespace, interface, address| -> anyhow::Result<End<'_>> {
            let private = wg(namespace, &["genkey"], "")?;
            let public = wg(namespace, &["pubkey"], &private)?;
            Ok(End { namespace, interface, address, private, public })
        };
        let device = end(&bed.device, "wg-device", DEVICE_INNER)?;
        let gateway = end(&bed.gateway, "wg-gateway", GATEWAY_INNER)?;
        let ends = [device.start(&program, &gateway, true)?, gateway.start(&program, &device, false)?];
        Ok(Self { ends })
    }

    /// Its processes.
    pub fn processes(&self) -> Vec<u32> {
        self.ends.iter().map(ChildProcess::id).collect()
    }
}

impl End<'_> {
    fn start(&self, program: &Path, far: &End<'_>, calls: bool) -> anyhow::Result<ChildProcess> {
        let mut process = ChildProcess::start(self.namespace, program.as_os_str(), &["-f", self.interface])?;
        let socket = Path::new(SOCKETS).join(format!("{}.sock", self.interface));
        process.wait_until("its control socket must be there", PATIENCE, || socket.exists())?;
        let key = Path::new(SOCKETS).join(format!("{}.key", self.interface));
        std::fs::write(&key, &self.private).context("write a key")?;
        let (key, port) = (key.display().to_string(), PORT.to_string());
        let (allowed, endpoint) = (format!("{}/32", far.address), format!("{GATEWAY_ADDRESS}:{PORT}"));
        let mut arguments = vec!["set", self.interface, "listen-port", &port, "private-key", &key];
        arguments.extend(["peer", far.public.trim(), "allowed-ips", &allowed]);
        if calls {
            arguments.extend(["endpoint", &endpoint]);
        }
        wg(self.namespace, &arguments, "")?;
        let prefix = format!("{}/24", self.address).parse().context("write an address")?;
        self.namespace.add_address(self.interface, prefix)?;
        self.namespace.set_mtu(self.interface, MTU)?;
        self.namespace.set_up(self.interface, true)?;
        Ok(process)
    }
}

/// Runs `wg` to its end and returns what it prints.
fn wg(namespace: &Namespace, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let mut child = namespace
        .command("wg")?
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("start wg (package wireguard-tools)")?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes()).context("write to wg")?;
    }
    let output = child.wait_with_output().context("wait for wg")?;
    let verb = arguments.first().copied().unwrap_or_default();
    ensure!(
        output.status.success(),
        "wg {verb} failed ({}): {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    String::from_utf8(output.stdout).context("read what wg printed")
}
