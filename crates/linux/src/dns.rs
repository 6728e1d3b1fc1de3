//! Name servers while any0 is up.
//!
//! Where systemd-resolved runs it is told by `resolvectl` that all names are asked over any0. Elsewhere
//! `/etc/resolv.conf` is replaced, and the original, be it a file or a link, is kept in the journal.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::journal::{Change, ChangeError, write_durably};

/// What must change so that names are resolved by `servers` over `interface`.
///
/// `resolv_conf` is normally `/etc/resolv.conf`; `None` for that. An empty list of servers needs no change.
pub fn plan(interface: &str, servers: &[IpAddr], resolv_conf: Option<&Path>) -> Vec<Change> {
    if servers.is_empty() {
        return Vec::new();
    }
    if resolv_conf.is_none() && resolved_runs() {
        return vec![Change::Resolved { interface: interface.to_owned(), servers: servers.to_vec() }];
    }
    let mut content = format!("{MARKER}\n");
    for server in servers {
        content.push_str(&format!("nameserver {server}\n"));
    }
    let path = resolv_conf.unwrap_or(Path::new("/etc/resolv.conf")).to_owned();
    vec![Change::ResolvConf { path, content }]
}

/// What a resolv.conf was before it was replaced.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Original {
    /// A file with this content.
    File(String),
    /// A link to this path.
    Link(PathBuf),
    /// Nothing.
    Missing,
}

impl Original {
    pub(crate) fn read(path: &Path) -> Result<Self, ChangeError> {
        if let Ok(target) = fs::read_link(path) {
            return Ok(Self::Link(target));
        }
        match fs::read(path) {
            Ok(bytes) => Ok(Self::File(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(ChangeError::file("read", path)(error)),
        }
    }

    /// Puts it back, if the file there now is ours.
    pub(crate) fn put_back(&self, path: &Path) -> Result<(), ChangeError> {
        let ours = fs::read(path).is_ok_and(|bytes| bytes.starts_with(MARKER.as_bytes()));
        if !ours || fs::read_link(path).is_ok() {
            return Ok(());
        }
        match self {
            Self::File(content) => write_resolv_conf(path, content),
            Self::Missing => fs::remove_file(path).map_err(ChangeError::file("remove", path)),
            Self::Link(target) => {
                let temporary = path.with_extension("anabranch");
                drop(fs::remove_file(&temporary));
                symlink(target, &temporary)
                    .and_then(|()| fs::rename(&temporary, path))
                    .map_err(ChangeError::file("restore", path))
            }
        }
    }
}

/// Replaces the file at once, or writes into it where it is a mount point, as in containers.
pub(crate) fn write_resolv_conf(path: &Path, content: &str) -> Result<(), ChangeError> {
    match write_durably(path, content.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            drop(fs::remove_file(path.with_extension("new")));
            fs::write(path, content).map_err(ChangeError::file("write", path))
        }
        other => other.map_err(ChangeError::file("write", path)),
    }
}

fn resolved_runs() -> bool {
    Path::new("/run/systemd/resolve/io.systemd.Resolve").exists()
        && Command::new("resolvectl")
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
}

pub(crate) fn set_resolved(interface: &str, servers: &[IpAddr]) -> Result<(), ChangeError> {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let mut arguments = vec!["dns", interface];
    arguments.extend(servers.iter().map(String::as_str));
    resolvectl(&arguments)?;
    // "~." makes this link the one that is asked for every name.
    resolvectl(&["domain", interface, "~."])?;
    resolvectl(&["default-route", interface, "true"])
}

pub(crate) fn revert_resolved(interface: &str) -> Result<(), ChangeError> {
    // With the interface its settings went too.
    if !Path::new("/sys/class/net").join(interface).exists() {
        return Ok(());
    }
    resolvectl(&["revert", interface])
}

fn resolvectl(arguments: &[&str]) -> Result<(), ChangeError> {
    let output = Command::new("resolvectl")
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| ChangeError::Resolved(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(ChangeError::Resolved(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

const MARKER: &str = "# Written by anabranch; the original comes back with \"anabranch down\".";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ab-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn files_and_links_come_back_and_others_are_left_alone() {
        let directory = directory("dns");
        let path = directory.join("resolv.conf");
        let servers = ["10.0.0.53".parse().unwrap(), "fd00::53".parse().unwrap()];
        let swap = || {
            let mut journal = Journal::open(&directory).unwrap();
            journal.apply(&plan("any0", &servers, Some(&path))).unwrap();
            assert!(
                fs::read_to_string(&path).unwrap().ends_with("nameserver 10.0.0.53\nnameserver fd00::53\n")
            );
        };
        // The journal is opened anew each time, as after a crash.
        let restore = || Journal::open(&directory).unwrap().restore().unwrap();

        swap();
        restore();
        assert!(!path.exists());

        fs::write(&path, "nameserver 192.0.2.1\n").unwrap();
        swap();
        restore();
        assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.1\n");

        fs::rename(&path, directory.join("real")).unwrap();
        symlink("real", &path).unwrap();
        swap();
        restore();
        assert_eq!(fs::read_link(&path).unwrap(), Path::new("real"));

        swap();
        fs::write(&path, "nameserver 192.0.2.2\n").unwrap();
        restore();
        assert_eq!(fs::read_to_string(&path).unwrap(), "nameserver 192.0.2.2\n", "another program's file");
        fs::remove_dir_all(directory).unwrap();
    }
}
