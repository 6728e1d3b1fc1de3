//! Control groups, version 2: which programs a rule, a firewall match or a BPF program applies to.
//!
//! A cgroup is a directory of the cgroup2 file system; a process is in exactly one, and a socket remembers the one
//! in which it was made. `anabranch run` puts a command into a cgroup of its own, and nftables matches on it.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use thiserror::Error;

/// Why something could not be done with cgroups.
#[derive(Debug, Error)]
pub enum CgroupError {
    /// The kernel has none, or nobody has mounted them.
    #[error(
        "this machine has no cgroup version 2 file system (mount -t cgroup2 none /sys/fs/cgroup, or start the kernel with systemd.unified_cgroup_hierarchy=1)"
    )]
    NoVersion2,
    /// The process is gone, or in a part of the tree that cannot be seen from here.
    #[error("process {0} is not in a cgroup that can be seen from here")]
    Unseen(u32),
    /// Not the path of a cgroup.
    #[error(
        "\"{0}\" is not the path of a cgroup: it must begin with / and have no empty, . or .. part, no quote and no control character"
    )]
    Path(String),
    /// A file or directory of the hierarchy could not be used.
    #[error("cannot {operation} {}: {error}{}", path.display(), hint(error))]
    File {
        /// What was tried.
        operation: &'static str,
        /// With what.
        path: PathBuf,
        /// The kernel's error.
        error: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "; it takes root or a cgroup delegated to this user",
        Some(libc::EBUSY) => "; there are still processes in it",
        Some(libc::EOPNOTSUPP) => "; this cgroup is threaded or cannot hold processes",
        _ => "",
    }
}

/// The place of a cgroup in the tree: `/` for the root, `/user.slice/app` for others.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CgroupPath(String);

impl CgroupPath {
    /// Reads a path that begins with `/`.
    pub fn new(path: &str) -> Result<Self, CgroupError> {
        let fails = || CgroupError::Path(path.chars().take(200).collect());
        let rest = path.strip_prefix('/').ok_or_else(fails)?;
        let is_bad = |part: &str| matches!(part, "" | "." | "..");
        let whole = rest.is_empty() || !rest.split('/').any(is_bad);
        let plain = !path.chars().any(|character| character.is_control() || character == '"');
        if whole && plain && path.len() <= LONGEST_PATH { Ok(Self(path.to_owned())) } else { Err(fails()) }
    }

    /// The root of the tree.
    pub fn root() -> Self {
        Self("/".to_owned())
    }

    /// The cgroup `name` below this one.
    pub fn child(&self, name: &str) -> Result<Self, CgroupError> {
        if name.contains('/') {
            return Err(CgroupError::Path(name.chars().take(200).collect()));
        }
        Self::new(&format!("{}/{name}", self.0.trim_end_matches('/')))
    }

    /// The cgroup above it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        let (above, name) = self.0.rsplit_once('/')?;
        (!name.is_empty()).then(|| if above.is_empty() { Self::root() } else { Self(above.to_owned()) })
    }

    /// How many steps below the root; what nftables calls the level.
    pub fn level(&self) -> usize {
        self.0.split('/').filter(|part| !part.is_empty()).count()
    }

    /// As text, beginning with `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for CgroupPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The mounted tree of cgroups, version 2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hierarchy {
    mount: PathBuf,
}

impl Hierarchy {
    /// Finds where it is mounted: `/sys/fs/cgroup`, or `/sys/fs/cgroup/unified` beside version 1.
    pub fn find() -> Result<Self, CgroupError> {
        let path = Path::new("/proc/self/mountinfo");
        let mounts = fs::read_to_string(path).map_err(file("read", path))?;
        let mount = find_mount(&mounts).ok_or(CgroupError::NoVersion2)?;
        Ok(Self { mount })
    }

    /// Where it is mounted.
    pub fn mount_point(&self) -> &Path {
        &self.mount
    }

    /// The directory of a cgroup, for [`crate::bpf::FastPath::load`] and the like.
    pub fn directory(&self, path: &CgroupPath) -> PathBuf {
        self.mount.join(path.0.trim_start_matches('/'))
    }

    /// In which cgroup a process is.
    pub fn path_of(&self, process: u32) -> Result<CgroupPath, CgroupError> {
        let file_path = PathBuf::from(format!("/proc/{process}/cgroup"));
        let text = match fs::read_to_string(&file_path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(CgroupError::Unseen(process));
            }
            other => other.map_err(file("read", &file_path))?,
        };
        let path = text.lines().find_map(|line| line.strip_prefix("0::")).ok_or(CgroupError::NoVersion2)?;
        // A process whose cgroup was removed has this behind its path.
        CgroupPath::new(path.trim_end_matches(" (deleted)")).map_err(|_| CgroupError::Unseen(process))
    }

    /// In which cgroup this process is.
    pub fn own_path(&self) -> Result<CgroupPath, CgroupError> {
        self.path_of(std::process::id())
    }

    /// The kernel's number of a cgroup, as sockets ([`crate::netlink::sock_diag::SocketInfo::cgroup`]) show it.
    pub fn id_of(&self, path: &CgroupPath) -> Result<u64, CgroupError> {
        let directory = self.directory(path);
        Ok(fs::metadata(&directory).map_err(file("look at", &directory))?.ino())
    }

    /// Makes the cgroup `name` below `base`; one that is there already is taken as it is.
    pub fn create(&self, base: &CgroupPath, name: &str) -> Result<CgroupPath, CgroupError> {
        let path = base.child(name)?;
        self.make(&path)?;
        Ok(path)
    }

    /// Makes a cgroup; one that is there already is taken as it is.
    pub fn make(&self, path: &CgroupPath) -> Result<(), CgroupError> {
        let directory = self.directory(path);
        match fs::create_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(file("make the cgroup", &directory)(error)),
            Ok(()) => Ok(()),
        }
    }

    /// Puts the processes of a cgroup into the one above it, where they are under the same limits, and removes it.
    pub fn dissolve(&self, path: &CgroupPath) -> Result<(), CgroupError> {
        if let (Some(above), Ok(processes)) = (path.parent(), self.processes(path)) {
            for process in processes {
                // It may have ended meanwhile; if not, the cgroup cannot be removed, which tells.
                drop(self.move_process(process, &above));
            }
        }
        self.remove(path)
    }

    /// Whether a process is in a cgroup or below it; false if it is gone.
    pub fn is_populated(&self, path: &CgroupPath) -> bool {
        let events = fs::read_to_string(self.directory(path).join(EVENTS)).unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    }

    /// Moves a process with all its threads into a cgroup. Its open sockets stay with the old one.
    pub fn move_process(&self, process: u32, path: &CgroupPath) -> Result<(), CgroupError> {
        let members = self.directory(path).join(MEMBERS);
        fs::write(&members, process.to_string()).map_err(file("move a process into", &members))
    }

    /// The processes directly in a cgroup, at most 100,000.
    pub fn processes(&self, path: &CgroupPath) -> Result<Vec<u32>, CgroupError> {
        let members = self.directory(path).join(MEMBERS);
        let text = fs::read_to_string(&members).map_err(file("read", &members))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).take(100_000).collect())
    }

    /// Removes an empty cgroup; one that is gone already is fine.
    ///
    /// The kernel needs a moment after the last process has ended, so this tries for up to 200 ms.
    pub fn remove(&self, path: &CgroupPath) -> Result<(), CgroupError> {
        const TRIES: u32 = 20;
        let directory = self.directory(path);
        let mut tries = 1;
        loop {
            match fs::remove_dir(&directory) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::EBUSY) && tries < TRIES => {
                    std::thread::sleep(Duration::from_millis(10));
                    tries += 1;
                }
                Err(error) => return Err(file("remove the cgroup", &directory)(error)),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// The nftables expression that matches packets of sockets made in a cgroup or below it, such as
    /// `socket cgroupv2 level 2 "user.slice/app"`.
    ///
    /// `None` for the root, which needs no match, and where the hierarchy is mounted outside `/sys/fs/cgroup`: the
    /// `nft` program looks there only. The cgroup must exist when the rules are loaded.
    pub fn nft_match(&self, path: &CgroupPath) -> Option<String> {
        let below = self.mount.strip_prefix(NFT_BASE).ok()?.to_str()?;
        let level = path.level();
        let place = format!("{below}{path}");
        (level > 0).then(|| format!("socket cgroupv2 level {level} \"{}\"", place.trim_start_matches('/')))
    }
}

/// The first whole cgroup2 mount in a `mountinfo` file.
fn find_mount(mounts: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut fields = place.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        (kind.starts_with("cgroup2 ") && root == "/").then(|| PathBuf::from(point))
    })
}

fn file<'a>(operation: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> CgroupError + 'a {
    move |error| CgroupError::File { operation, path: path.to_owned(), error }
}

const MEMBERS: &str = "cgroup.procs";
const EVENTS: &str = "cgroup.events";
const NFT_BASE: &str = "/sys/fs/cgroup";
const LONGEST_PATH: usize = 4096;

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::test_namespace::{TestCgroup, in_namespace};

    #[test]
    fn the_mount_is_found_beside_version_1_too() {
        let hybrid = "30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      38 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";
        assert_eq!(find_mount(hybrid), Some(PathBuf::from("/sys/fs/cgroup/unified")));
        assert_eq!(find_mount("30 24 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"), None);
        assert_eq!(find_mount("cgroup2"), None);
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        for bad in ["", "a", "/a/../b", "/a//b", "/a/", "/.", "/a\"b", "/a\nb"] {
            assert!(CgroupPath::new(bad).is_err(), "{bad:?}");
        }
        let path = CgroupPath::root().child("user.slice").unwrap().child("app").unwrap();
        assert_eq!((path.as_str(), path.level()), ("/user.slice/app", 2));
        assert!(path.child("..").is_err() && path.child("a/b").is_err());
        assert_eq!(CgroupPath::root().level(), 0);
        let hybrid = Hierarchy { mount: "/sys/fs/cgroup/unified".into() };
        let expected = "socket cgroupv2 level 2 \"unified/user.slice/app\"";
        assert_eq!(hybrid.nft_match(&path).as_deref(), Some(expected));
        let whole = Hierarchy { mount: "/sys/fs/cgroup".into() };
        let expected = "socket cgroupv2 level 2 \"user.slice/app\"";
        assert_eq!(whole.nft_match(&path).as_deref(), Some(expected));
        assert_eq!(whole.nft_match(&CgroupPath::root()), None);
    }

    #[test]
    fn a_process_is_moved_and_the_cgroup_removed_after_its_end() {
        let Some(cgroup) = TestCgroup::make("moved") else { return };
        let hierarchy = &cgroup.hierarchy;
        assert!(hierarchy.own_path().is_ok());
        let mut child = Command::new("sleep").arg("30").stdin(Stdio::null()).spawn().unwrap();
        hierarchy.move_process(child.id(), &cgroup.path).unwrap();
        assert_eq!(hierarchy.path_of(child.id()).unwrap(), cgroup.path);
        assert_eq!(hierarchy.processes(&cgroup.path).unwrap(), [child.id()]);
        assert!(hierarchy.id_of(&cgroup.path).unwrap() > 1);
        let busy = hierarchy.remove(&cgroup.path).unwrap_err();
        assert!(busy.to_string().contains("still processes"), "{busy}");
        child.kill().unwrap();
        child.wait().unwrap();
        hierarchy.remove(&cgroup.path).unwrap();
        hierarchy.remove(&cgroup.path).unwrap();
        assert!(hierarchy.id_of(&cgroup.path).is_err());
        assert!(matches!(hierarchy.path_of(u32::MAX), Err(CgroupError::Unseen(_))));
    }

    #[test]
    fn a_dissolved_cgroup_leaves_its_processes_above() {
        let Some(cgroup) = TestCgroup::make("dissolved") else { return };
        let hierarchy = &cgroup.hierarchy;
        let inner = hierarchy.create(&cgroup.path, "inner").unwrap();
        assert_eq!(inner.parent().as_ref(), Some(&cgroup.path));
        assert_eq!((cgroup.path.parent(), CgroupPath::root().parent()), (Some(CgroupPath::root()), None));
        let mut child = Command::new("sleep").arg("30").stdin(Stdio::null()).spawn().unwrap();
        hierarchy.move_process(child.id(), &inner).unwrap();
        assert!(hierarchy.is_populated(&inner) && hierarchy.is_populated(&cgroup.path));
        hierarchy.dissolve(&inner).unwrap();
        assert!(!hierarchy.directory(&inner).exists() && !hierarchy.is_populated(&inner));
        assert_eq!(hierarchy.path_of(child.id()).unwrap(), cgroup.path);
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn nftables_understands_the_match() {
        let Some(cgroup) = TestCgroup::make("matched") else { return };
        if !crate::nft::is_installed() {
            eprintln!("skipped: nft is not installed");
            return;
        }
        let expression = cgroup.hierarchy.nft_match(&cgroup.path).unwrap();
        in_namespace(|| {
            let script = format!(
                "table inet t {{\nchain c {{\ntype filter hook output priority 0;\n{expression} counter drop\n}}\n}}\n"
            );
            crate::nft::load(&script).unwrap();
            let send = |inside: bool| {
                let members = cgroup.hierarchy.directory(&cgroup.path).join(MEMBERS);
                let enter = if inside { format!("echo $$ > {}; ", members.display()) } else { String::new() };
                let command = format!("{enter}echo x > /dev/udp/127.0.0.1/9");
                let status = Command::new("bash").args(["-c", &command]).stderr(Stdio::null()).status();
                status.unwrap().success()
            };
            assert!(send(false), "another program's packet was dropped");
            assert!(!send(true), "the cgroup's packet was not dropped");
        });
    }
}
