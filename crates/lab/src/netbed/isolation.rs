//! Namespaces of the bed's own: mounts, network and processes, and a user namespace where it runs
//! without root. All of them, and every process and file in them, end with the first process inside.

use anyhow::Context;
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use tokio::signal::unix::{SignalKind, signal};

/// Becomes `unshare`, which starts this program again inside with `arguments`; returns only if that fails.
pub fn enter(arguments: &[OsString]) -> anyhow::Error {
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return anyhow::Error::new(error).context("find this program's file"),
    };
    let mut command = Command::new("unshare");
    // The death of unshare kills the first process inside, and that kills all others.
    command.args(["--mount", "--net", "--pid", "--fork", "--kill-child"]);
    if !rustix::process::geteuid().is_root() {
        if let Err(error) = check_user_namespaces() {
            return error;
        }
        command.args(["--user", "--map-root-user"]);
    }
    let error = command.arg("--").arg(own).args(arguments).exec();
    if error.kind() == std::io::ErrorKind::NotFound {
        return anyhow::anyhow!("the program unshare is missing: install util-linux");
    }
    anyhow::Error::new(error).context("start unshare")
}

/// Inside: makes ready what the bed needs, and ends everything on signals.
///
/// # Errors
/// If mounts are refused or any0's device cannot be had.
pub fn settle() -> anyhow::Result<()> {
    end_on_signals()?;
    furnish()
}

/// Says in the user's words what forbids namespaces without root.
fn check_user_namespaces() -> anyhow::Result<()> {
    let allowed = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--net", "true"])
        .output()
        .context("start unshare (package util-linux)")?;
    if allowed.status.success() {
        return Ok(());
    }
    anyhow::bail!(
        "this system does not let users make namespaces ({}). Run it as root, or allow it with one of: \
         sysctl -w user.max_user_namespaces=10000; sysctl -w kernel.unprivileged_userns_clone=1; \
         sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        String::from_utf8_lossy(&allowed.stderr).trim()
    )
}

/// An empty /run, and a copy of resolv.conf that may be changed.
fn furnish() -> anyhow::Result<()> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .context("keep the bed's mounts to itself")?;
    mount("tmpfs", "/run", "tmpfs", MountFlags::empty(), None).context("mount an empty /run")?;
    let resolver = Path::new("/etc/resolv.conf");
    // A link into the old /run leads nowhere now, so there is nothing that could be changed.
    if let Ok(text) = std::fs::read(resolver) {
        let copy = Path::new("/run/resolv.conf");
        std::fs::write(copy, text).context("copy resolv.conf")?;
        mount_bind(copy, resolver).context("cover resolv.conf")?;
    }
    check_tun_device()
}

/// Says how to mend it if any0's device cannot be had.
fn check_tun_device() -> anyhow::Result<()> {
    let access = rustix::fs::Access::READ_OK | rustix::fs::Access::WRITE_OK;
    match rustix::fs::access(TUN_DEVICE, access) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::ACCESS) => anyhow::bail!(
            "{TUN_DEVICE} is for root only here, and any0 needs it. \
             Run it as root, or let users open it as most systems do: chmod 666 {TUN_DEVICE}"
        ),
        Err(error) => Err(anyhow::Error::new(error).context(format!(
            "{TUN_DEVICE} cannot be opened, and any0 needs it. \
             Load the kernel module (modprobe tun); in a container, pass the device in (--device {TUN_DEVICE})"
        ))),
    }
}

/// The first process of a process namespace gets only the signals that it handles: handle those that mean
/// the end. Its end takes everything else along.
fn end_on_signals() -> anyhow::Result<()> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("wait for signals")?;
    std::thread::spawn(move || {
        if runtime.block_on(signalled()).is_ok() {
            if std::io::stderr().is_terminal() {
                // Back to the viewer's own screen, with a cursor: bars and graphs may have hidden both.
                eprint!("\x1b[?1049l\x1b[?25h");
            }
            eprintln!("\nstopped; nothing is left behind");
            std::process::exit(130);
        }
    });
    Ok(())
}

/// Waits for a signal that means the end.
async fn signalled() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    Ok(())
}

const TUN_DEVICE: &str = "/dev/net/tun";
