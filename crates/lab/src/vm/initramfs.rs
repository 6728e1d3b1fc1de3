//! The guest's whole file system, packed for one job.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::archive::Archive;
use super::kernel::find_program;
use super::modules::ModuleTree;
use super::{Job, Kernel, MachineError, not_installed};

/// Packs busybox, the kernel modules, the programs with their libraries, the job's files and an init script.
///
/// # Errors
/// [`MachineError::Missing`] if `ip` or `tc` is not installed; otherwise if a file cannot be read.
pub fn build(kernel: &Kernel, job: &Job) -> Result<Vec<u8>, MachineError> {
    let mut archive = Archive::default();
    for directory in ["proc", "sys", "dev", "tmp", "run", "etc", "root", "results", "var/lib", "report"] {
        archive.add_directory(directory);
    }
    archive.add_link("/var/run", "/run");
    add_file(&mut archive, "/bin/busybox", &kernel.busybox)?;
    // Not busybox's own shell, which would run its own `ip` and `tc` whatever the search path says.
    archive.add_link("/bin/sh", "/usr/local/bin/dash");
    archive.add_file("/etc/passwd", 0o644, PASSWD.as_bytes());
    archive.add_file("/etc/group", 0o644, GROUP.as_bytes());
    archive.add_file("/etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n");

    for (name, package, required) in TOOLS {
        match find_program(name) {
            Some(path) => add_program(&mut archive, &path)?,
            None if required => return Err(not_installed(name, package)),
            None => {}
        }
    }
    add_delay_distributions(&mut archive)?;
    for program in &job.programs {
        add_program(&mut archive, program)?;
    }

    let tree = ModuleTree::read(&kernel.modules)?;
    let asked = job.modules.iter().map(|module| module.split_once(' ').unwrap_or((module, "")));
    let wanted = MODULES.iter().map(|name| (*name, "")).chain(asked);
    add_modules(&mut archive, "/lib/modules/order", &tree, wanted)?;
    let for_report = REPORT_MODULES.iter().map(|name| (*name, ""));
    add_modules(&mut archive, "/lib/modules/report-order", &tree, for_report)?;

    for (path, contents) in &job.files {
        archive.add_file(path, 0o755, contents);
    }
    archive.add_file("/job/script", 0o755, job.script.as_bytes());
    archive.add_file("/init", 0o755, init_script(job).as_bytes());
    Ok(archive.finish())
}

/// What the kernel starts as process 1. It reports through the virtio port and never returns. The port's driver comes
/// last, since its interrupts follow this machine's clock and would make runs differ.
fn init_script(job: &Job) -> String {
    let seconds = job.timeout.as_secs().max(1);
    format!(
        r#"#!/bin/sh
export PATH=/usr/local/bin:/bin HOME=/root
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
load() {{ while read -r module parameters; do insmod "$module" $parameters || echo "module $module did not load"; done <"$1"; }}
load /lib/modules/order
date -s '2026-01-01 00:00:00' >/dev/null
ip link set lo up
cd /job
timeout -s KILL {seconds} /bin/sh /job/script >/report/output 2>&1 </dev/null
echo $? >/report/exit
cut -d' ' -f1 /proc/uptime >/report/uptime
cd / && mv /results /report/results
load /lib/modules/report-order
port=
for name in /sys/class/virtio-ports/*/name; do
    [ "$(cat "$name")" = results ] && port=/dev/$(basename "$(dirname "$name")")
done
find report -type f | cpio -o -H newc >"$port" 2>/dev/null
poweroff -f
"#
    )
}

/// Adds the files of modules, which have names and parameters, and all that those need; and at `list` their paths in the guest with
/// their parameters, one a line in the order of loading.
fn add_modules<'a>(
    archive: &mut Archive,
    list: &str,
    tree: &ModuleTree,
    wanted: impl Iterator<Item = (&'a str, &'a str)> + Clone,
) -> Result<()> {
    let mut lines = String::new();
    for file in tree.load_order(wanted.clone().map(|(name, _)| name))? {
        let name =
            file.file_name().and_then(|name| name.to_str()).context("a module has no readable name")?;
        add_file(archive, &format!("/lib/modules/{name}"), &file)?;
        let plain = name.trim_end_matches(".ko").replace('-', "_");
        let parameters = wanted.clone().filter(|(module, _)| module.replace('-', "_") == plain);
        let parameters: Vec<&str> = parameters.map(|(_, parameters)| parameters).collect();
        lines.push_str(&format!("/lib/modules/{name} {}\n", parameters.join(" ").trim()));
    }
    archive.add_file(list, 0o644, lines.as_bytes());
    Ok(())
}

/// Adds `path` below `/usr/local/bin` under its file name, without debug information, with the libraries it needs.
fn add_program(archive: &mut Archive, path: &Path) -> Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).context("a program has no readable name")?;
    archive.add_file(&format!("/usr/local/bin/{name}"), 0o755, &without_debug_information(path)?);
    for library in libraries(path)? {
        let place = library.to_str().context("a library has no readable name")?.to_owned();
        add_file(archive, &place, &library)?;
    }
    Ok(())
}

/// The program's bytes; large ones are stripped where `strip` is installed, for the guest unpacks all of it at each boot.
fn without_debug_information(path: &Path) -> Result<Vec<u8>> {
    let read = || fs::read(path).with_context(|| format!("reading {}", path.display()));
    let length = fs::metadata(path).with_context(|| format!("reading {}", path.display()))?.len();
    let (true, Some(strip)) = (length > STRIP_ABOVE, find_program("strip")) else { return read() };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stripped = std::env::temp_dir().join(format!("ab-strip-{}-{name}", unique_number()));
    let status = Command::new(strip).arg("--strip-all").arg("-o").arg(&stripped).arg(path).status();
    let bytes = if status.is_ok_and(|status| status.success()) {
        fs::read(&stripped).map_err(Into::into)
    } else {
        read()
    };
    // Absent if strip failed, which was dealt with above.
    let _ = fs::remove_file(&stripped);
    bytes
}

/// The shared libraries and the loader that a program names, by their paths on this machine.
fn libraries(path: &Path) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    if let Some(beside) = libraries_beside(path) {
        command.env("LD_LIBRARY_PATH", beside);
    }
    let output = command.arg(path).output().context("starting ldd (package libc-bin)")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut found = Vec::new();
    for line in text.lines() {
        if line.contains("not found") {
            bail!("{} needs a library that is not installed: {}", path.display(), line.trim());
        }
        let place = line.rsplit("=> ").next().unwrap_or(line).trim();
        if let Some(place) = place.split(" (").next().filter(|place| place.starts_with('/')) {
            found.push(PathBuf::from(place));
        }
    }
    Ok(found)
}

/// Where the libraries are that were unpacked together with `usr/bin/PROGRAM` or `usr/sbin/PROGRAM`. In the guest they have the same place, where
/// nothing looks for them without `LD_LIBRARY_PATH`.
pub fn libraries_beside(program: &Path) -> Option<PathBuf> {
    let place = program.parent()?.parent()?.join(format!("lib/{}-linux-gnu", std::env::consts::ARCH));
    place.is_dir().then_some(place)
}

/// The tables for `tc ... netem distribution`, which `tc` reads at run time.
fn add_delay_distributions(archive: &mut Archive) -> Result<()> {
    let Ok(entries) = fs::read_dir("/usr/lib/tc") else { return Ok(()) };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "dist") {
            add_file(archive, &path.display().to_string(), &path)?;
        }
    }
    Ok(())
}

fn add_file(archive: &mut Archive, place: &str, path: &Path) -> Result<()> {
    let contents = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    archive.add_file(place, 0o755, &contents);
    Ok(())
}

/// A number no other call of this process or another process gets.
pub fn unique_number() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Host programs that every guest has: name, Debian package, whether the bed cannot do without.
const TOOLS: [(&str, &str, bool); 7] = [
    ("chrt", "util-linux", true),
    ("dash", "dash", true),
    ("ip", "iproute2", true),
    ("tc", "iproute2", true),
    ("ss", "iproute2", false),
    ("nft", "nftables", false),
    ("ethtool", "ethtool", false),
];

/// Programs above this size are stripped.
const STRIP_ABOVE: u64 = 4 << 20;

/// Loaded at every boot; nothing loads by itself later.
const MODULES: &[&str] = &[
    "crc32c_generic",
    "ipv6",
    "tun",
    "veth",
    "dummy",
    "bridge",
    "macvlan",
    "ifb",
    "sch_netem",
    "sch_fq",
    "sch_fq_codel",
    "sch_tbf",
    "sch_htb",
    "sch_prio",
    "sch_ingress",
    "cls_u32",
    "cls_matchall",
    "cls_bpf",
    "act_mirred",
    "tcp_bbr",
    "tcp_diag",
    "udp_diag",
    "mptcp_diag",
    "nf_conntrack",
    "nf_conntrack_netlink",
    "nf_nat",
    "nf_tables",
    "nft_chain_nat",
    "nft_masq",
    "nft_nat",
    "nft_redir",
    "nft_ct",
    "nft_numgen",
    "nft_hash",
    "nft_limit",
    "nft_log",
    "nft_fib_inet",
    "nft_reject_inet",
    "nft_objref",
    "nft_quota",
    "nft_socket",
];

/// Loaded when the script has ended, to send the report.
const REPORT_MODULES: &[&str] = &["virtio_pci", "virtio_console"];

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\n\
     anabranch:x:990:990::/:/bin/false\nnobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nanabranch:x:990:\nnogroup:x:65534:\n";
