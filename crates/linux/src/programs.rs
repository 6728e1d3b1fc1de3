//! Which program owns a socket: from the socket's inode to the process that has it open.
//!
//! The kernel names the user and cgroup of a socket but not its process; `/proc/PID/fd` does. Looking through
//! all of it costs tens of milliseconds on a large machine, so what was found is kept, and a new look is taken at
//! most once a second.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A running program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// The process number.
    pub process: u32,
    /// Its short name, as `ps` shows it; at most 15 bytes on most kernels.
    pub name: String,
    /// The file that it runs; `None` if this user may not see it.
    pub executable: Option<PathBuf>,
    /// Number of the user as whom it runs.
    pub user: u32,
}

impl Program {
    /// The program that runs as process number `process`, if there is one.
    pub fn of_process(process: u32) -> Option<Self> {
        Self::read(Path::new("/proc"), process)
    }

    fn read(root: &Path, process: u32) -> Option<Self> {
        let directory = root.join(process.to_string());
        let user = fs::metadata(&directory).ok()?.uid();
        let name = fs::read(directory.join("comm")).ok()?;
        let name = String::from_utf8_lossy(&name[..name.len().min(64)]).trim_end().to_owned();
        Some(Self { process, name, executable: fs::read_link(directory.join("exe")).ok(), user })
    }
}

/// Sockets and their programs, as last seen.
pub struct ProgramIndex {
    root: PathBuf,
    owners: HashMap<u32, u32>,
    programs: HashMap<u32, Program>,
    scanned: Option<Instant>,
}

impl ProgramIndex {
    /// An index that has seen nothing yet.
    pub fn new() -> Self {
        Self { root: PathBuf::from("/proc"), owners: HashMap::new(), programs: HashMap::new(), scanned: None }
    }

    /// The program that has the socket with this inode open (the one with the lowest process number, if
    /// several do).
    ///
    /// A socket that is not known is looked for if the last look is over a second ago. `None` also for processes
    /// that this user may not see into: without root those of others.
    pub fn owner_of(&mut self, inode: u32) -> Option<&Program> {
        if inode == 0 {
            return None;
        }
        let stale = self.scanned.is_none_or(|scanned| scanned.elapsed() >= Self::SHORTEST_INTERVAL);
        if stale && !self.owners.contains_key(&inode) {
            self.scan();
        }
        self.programs.get(self.owners.get(&inode)?)
    }

    /// Looks through all processes now; what was known before is forgotten.
    pub fn scan(&mut self) {
        self.owners.clear();
        self.programs.clear();
        let mut left = Self::MOST_DESCRIPTORS;
        let mut processes: Vec<u32> = numbers(&self.root).take(Self::MOST_PROCESSES).collect();
        processes.sort_unstable();
        for process in processes {
            let descriptors = self.root.join(process.to_string()).join("fd");
            let mut any = false;
            for descriptor in numbers(&descriptors) {
                if left == 0 {
                    break;
                }
                left -= 1;
                if let Some(inode) = socket_inode(&descriptors, descriptor) {
                    self.owners.entry(inode).or_insert(process);
                    any = true;
                }
            }
            if any && let Some(program) = Program::read(&self.root, process) {
                self.programs.insert(process, program);
            }
        }
        self.scanned = Some(Instant::now());
    }

    /// At least this much time lies between two looks.
    pub const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);
    /// Processes looked at; further ones are not seen.
    pub const MOST_PROCESSES: usize = 32_768;
    /// Descriptors looked at; further ones are not seen.
    pub const MOST_DESCRIPTORS: usize = 1_000_000;
}

impl Default for ProgramIndex {
    fn default() -> Self {
        Self::new()
    }
}

/// The entries of `directory` that are numbers; none if it cannot be read.
fn numbers(directory: &Path) -> impl Iterator<Item = u32> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn socket_inode(descriptors: &Path, descriptor: u32) -> Option<u32> {
    let target = fs::read_link(descriptors.join(descriptor.to_string())).ok()?;
    target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn our_own_socket_is_ours() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&socket));
        let inode = fs::metadata(path).unwrap().ino() as u32;
        let mut index = ProgramIndex::new();
        let program = index.owner_of(inode).unwrap();
        assert_eq!(program.process, std::process::id());
        assert_eq!(program.executable.as_deref(), Some(std::env::current_exe().unwrap().as_path()));
        assert_eq!(Some(program), Program::of_process(std::process::id()).as_ref());
        assert_eq!(index.owner_of(0), None);
    }

    #[test]
    fn a_new_look_is_taken_once_a_second_at_most() {
        let directory = std::env::temp_dir().join(format!("ab-{}-proc", std::process::id()));
        let process = directory.join("77");
        fs::create_dir_all(process.join("fd")).unwrap();
        fs::write(process.join("comm"), "curl\n").unwrap();
        std::os::unix::fs::symlink("socket:[500]", process.join("fd/3")).unwrap();
        std::os::unix::fs::symlink("/dev/null", process.join("fd/0")).unwrap();
        std::os::unix::fs::symlink("socket:[x]", process.join("fd/4")).unwrap();
        let mut index = ProgramIndex { root: directory.clone(), ..ProgramIndex::new() };
        assert_eq!(index.owner_of(500).unwrap().name, "curl");
        std::os::unix::fs::symlink("socket:[600]", process.join("fd/5")).unwrap();
        let too_early = index.owner_of(600).cloned();
        index.scan();
        let later = index.owner_of(600).cloned();
        fs::remove_dir_all(directory).unwrap();
        assert_eq!(too_early, None);
        assert_eq!(later.unwrap().process, 77);
    }
}
