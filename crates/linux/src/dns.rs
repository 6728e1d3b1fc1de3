//! Name servers while any0 is up.
//!
//! Where systemd-resolved runs it is told by `resolvectl` that all names are asked over any0. Where it does not, or where
//! programs do not ask it, the servers in `/etc/resolv.conf` are replaced; the original, be it a file or a link, is kept
//! in the journal.

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
    let path = resolv_conf.unwrap_or(Path::new("/etc/resolv.conf"));
    let now = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let mut changes = Vec::new();
    if resolv_conf.is_none() && resolved_runs() {
        let (interface, servers) = (interface.to_owned(), servers.to_vec());
        changes.push(Change::Resolved { interface, servers, asked_for: Names::All });
        if asks_resolved(path, &now) {
            return changes;
        }
    }
    let content = content(MARKER, servers, &now);
    changes.push(Change::ResolvConf { path: path.to_owned(), content });
    changes
}

/// The servers that a network names, and its interface.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct NetworkServers {
    /// The interface.
    pub interface: String,
    /// The servers, best first.
    pub servers: Vec<IpAddr>,
}

/// What must change so that names are resolved by the servers of networks that we look after ourselves, best network first.
///
/// They are asked where any0 does not have all names asked over itself: a resolv.conf for any0 is left as it is. `resolv_conf` as
/// for [`plan`].
///
/// # Errors
/// If the file cannot be read.
pub fn plan_networks(
    networks: &[NetworkServers],
    resolv_conf: Option<&Path>,
) -> Result<Vec<Change>, ChangeError> {
    let path = resolv_conf.unwrap_or(Path::new("/etc/resolv.conf"));
    let now = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let mut changes = Vec::new();
    let named = || networks.iter().filter(|network| !network.servers.is_empty());
    if resolv_conf.is_none() && resolved_runs() {
        changes.extend(named().map(|network| Change::Resolved {
            interface: network.interface.clone(),
            servers: network.servers.clone(),
            asked_for: Names::OfRoute,
        }));
        if asks_resolved(path, &now) {
            return Ok(changes);
        }
    }
    let mut servers: Vec<IpAddr> = Vec::new();
    for server in named().flat_map(|network| &network.servers) {
        if servers.len() < MOST_ASKED && !servers.contains(server) {
            servers.push(*server);
        }
    }
    if servers.is_empty() || now.starts_with(MARKER) {
        return Ok(changes);
    }
    let original = Original::read(path)?;
    let note = serde_json::to_string(&original).map_err(|error| ChangeError::Resolved(error.to_string()))?;
    let before = match &original {
        Original::File(text) => text.clone(),
        Original::Link(_) => now,
        Original::Missing => String::new(),
    };
    let content = content(&format!("{NETWORKS_MARKER}\n{ORIGINAL}{note}"), &servers, &before);
    changes.push(Change::ResolvConf { path: path.to_owned(), content });
    Ok(changes)
}

/// Whether `changes` are what is there already: files have the content that they would get.
pub fn is_in_place(changes: &[Change]) -> bool {
    changes.iter().all(|change| match change {
        Change::ResolvConf { path, content } => fs::read(path).is_ok_and(|bytes| bytes == content.as_bytes()),
        _ => true,
    })
}

/// Which names an interface's servers are asked for, by systemd-resolved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Names {
    /// All.
    All,
    /// Those for which no other interface wants to be asked.
    OfRoute,
}

/// Whether this is the text of a resolv.conf that [`plan`] has written.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARKER)
}

/// Our servers, with what else the file said about how names are looked up.
fn content(marker: &str, servers: &[IpAddr], before: &str) -> String {
    let mut content = format!("{marker}\n");
    content.extend(servers.iter().map(|server| format!("nameserver {server}\n")));
    for line in before.lines() {
        let words: Vec<&str> = line.split_whitespace().filter(|word| *word != TRUST_OF_OTHERS).collect();
        if let [keyword, _, ..] = words[..]
            && KEPT.contains(&keyword)
        {
            content.push_str(&words.join(" "));
            content.push('\n');
        }
    }
    content
}

/// Whether programs that read the file end up at systemd-resolved, which then does as it was told for the interface.
fn asks_resolved(path: &Path, text: &str) -> bool {
    let is_its_own = fs::canonicalize(path).is_ok_and(|path| path.starts_with("/run/systemd/resolve"));
    is_its_own
        || text.lines().any(|line| STUBS.iter().any(|stub| line.split_whitespace().eq(["nameserver", *stub])))
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
            Ok(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                Ok(noted_original(&text).unwrap_or(Self::File(text)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::Missing),
            Err(error) => Err(ChangeError::file("read", path)(error)),
        }
    }

    /// Puts it back, if the file there now is by the same writer: for any0, or for networks.
    pub(crate) fn put_back(&self, path: &Path, for_networks: bool) -> Result<(), ChangeError> {
        let marker = if for_networks { NETWORKS_MARKER } else { MARKER };
        let ours = fs::read(path).is_ok_and(|bytes| bytes.starts_with(marker.as_bytes()));
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

/// Whether a text is one of [`plan_networks`].
pub(crate) fn is_for_networks(text: &str) -> bool {
    text.starts_with(NETWORKS_MARKER)
}

/// What was there before a file of [`plan_networks`]: that may be taken back while another one's stands in its place.
fn noted_original(text: &str) -> Option<Original> {
    let note = text.strip_prefix(NETWORKS_MARKER)?.trim_start().lines().next()?.strip_prefix(ORIGINAL)?;
    serde_json::from_str(note).ok()
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

pub(crate) fn set_resolved(interface: &str, servers: &[IpAddr], names: Names) -> Result<(), ChangeError> {
    let servers: Vec<String> = servers.iter().map(ToString::to_string).collect();
    let mut arguments = vec!["dns", interface];
    arguments.extend(servers.iter().map(String::as_str));
    resolvectl(&arguments)?;
    if names == Names::All {
        // "~." makes this link the one that is asked for every name.
        resolvectl(&["domain", interface, "~."])?;
    }
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

/// How many servers programs ask (resolv.conf(5)).
const MOST_ASKED: usize = 3;
/// What stays of a resolv.conf beside the servers (resolv.conf(5)).
const KEPT: [&str; 4] = ["search", "domain", "options", "sortlist"];
/// The option by which programs believe that the servers have checked signatures: that was said of others.
const TRUST_OF_OTHERS: &str = "trust-ad";
/// Where systemd-resolved listens.
const STUBS: [&str; 2] = ["127.0.0.53", "127.0.0.54"];
const MARKER: &str = "# Written by anabranch; the original comes back with \"anabranch down\".";
/// Another first line than [`MARKER`]: each writer puts back its own only.
const NETWORKS_MARKER: &str =
    "# Written by anabranch for its networks; the original comes back with \"anabranch radio down\".";
const ORIGINAL: &str = "# before: ";

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
    fn how_names_are_looked_up_stays() {
        let before = "# made by dhcp\nsearch lan  example.org\nnameserver 192.0.2.1\n options edns0 trust-ad ndots:2\n\
                      options trust-ad\nsortlist 10.0.0.0\nlookup file bind\n";
        let text = content(MARKER, &["10.0.0.53".parse().unwrap()], before);
        assert!(is_ours(&text) && !is_ours(before));
        let lines: Vec<&str> = text.lines().skip(1).collect();
        let kept = ["search lan example.org", "options edns0 ndots:2", "sortlist 10.0.0.0"];
        assert_eq!(lines, [&["nameserver 10.0.0.53"][..], &kept].concat());
        assert_eq!(content(MARKER, &["10.0.0.53".parse().unwrap()], &text), text, "captured twice");
    }

    #[test]
    fn a_file_that_leads_past_resolved_is_told_from_one_that_does_not() {
        let elsewhere = Path::new("/nonexistent/resolv.conf");
        assert!(asks_resolved(elsewhere, "search lan\nnameserver  127.0.0.53\noptions edns0\n"));
        assert!(!asks_resolved(elsewhere, "nameserver 192.0.2.1\n#nameserver 127.0.0.53\n"));
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

    #[test]
    fn servers_of_networks_come_and_go_in_any_order_with_any0() {
        let directory = directory("network-dns");
        let path = directory.join("resolv.conf");
        let network = |last: u8| NetworkServers {
            interface: format!("wl-{last}"),
            servers: vec![[10, 0, 0, last].into(), [10, 0, 0, 9].into()],
        };
        let text = || fs::read_to_string(&path).unwrap();
        let (one, other) = (directory.join("one"), directory.join("other"));
        [&one, &other].into_iter().for_each(|directory| fs::create_dir_all(directory).unwrap());
        fs::write(&path, "search lan\nnameserver 192.0.2.1\n").unwrap();

        let mut radio = Journal::open(&one).unwrap();
        let first = plan_networks(&[network(1), network(2)], Some(&path)).unwrap();
        radio.apply(&first).unwrap();
        assert!(is_in_place(&first));
        let lines = "nameserver 10.0.0.1\nnameserver 10.0.0.9\nnameserver 10.0.0.2\nsearch lan\n";
        assert!(text().ends_with(lines), "{}", text());
        let second = plan_networks(&[network(3)], Some(&path)).unwrap();
        assert!(!is_in_place(&second), "another network");
        radio.restore().unwrap();
        radio.apply(&second).unwrap();
        assert!(text().contains("10.0.0.3") && !text().contains("10.0.0.1\n"), "{}", text());

        // any0 takes the file over; the radio leaves it alone, and ends first.
        let mut device = Journal::open(&other).unwrap();
        device.apply(&plan("any0", &["10.9.9.9".parse().unwrap()], Some(&path))).unwrap();
        assert!(is_ours(&text()));
        assert_eq!(plan_networks(&[network(3)], Some(&path)).unwrap(), []);
        radio.restore().unwrap();
        assert!(is_ours(&text()), "{}", text());
        device.restore().unwrap();
        assert_eq!(text(), "search lan\nnameserver 192.0.2.1\n");
        fs::remove_dir_all(directory).unwrap();
    }
}
