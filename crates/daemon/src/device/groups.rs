//! Root's part of `anabranch run` and `anabranch flows`: control groups, and which program has which socket.

use std::collections::BTreeSet;

use linux::cgroup::{CgroupPath, Hierarchy};
use linux::journal::{Change, Journal, Undo};
use linux::programs::ProgramIndex;
use linux::systemd::{self, Scope};

use crate::supervision::{Answer, MAXIMUM_INODES, SocketProgram};

/// What root remembers between requests.
#[derive(Default)]
pub struct Groups {
    made: u64,
    /// Those of ours that may still have processes.
    living: BTreeSet<CgroupPath>,
    programs: ProgramIndex,
}

impl Groups {
    /// Puts a process into a control group of its own: a scope of systemd in the slice in which it is, or where systemd does not
    /// run, a group below the one that it is in, so that all limits go on to hold for it.
    ///
    /// A service of the system keeps its processes: one that is not root's stays below it.
    pub fn run(&mut self, journal: &mut Journal, process: u32, user: u32) -> Answer {
        if user_of(process) != Some(user) {
            return failed(format!("process {process} is not one of user {user}"));
        }
        self.put(journal, process, user).unwrap_or_else(failed)
    }

    fn put(&mut self, journal: &mut Journal, process: u32, user: u32) -> Result<Answer, String> {
        let hierarchy = Hierarchy::find().map_err(|error| error.to_string())?;
        let above = hierarchy.path_of(process).map_err(|error| error.to_string())?;
        if self.living.len() >= MOST_GROUPS {
            self.living.retain(|path| hierarchy.is_populated(path));
        }
        if self.living.len() >= MOST_GROUPS {
            return Err(format!("{MOST_GROUPS} programs are held to networks already"));
        }
        let name = format!("{PREFIX}{}-{}", std::process::id(), self.made);
        let below = above.child(&name).map_err(|error| error.to_string())?;
        if hierarchy.nft_match(&below).is_none() {
            let mount = hierarchy.mount_point().display();
            return Err(format!(
                "nftables finds control groups below /sys/fs/cgroup only, and here they are in {mount}"
            ));
        }
        self.made += 1;
        let path = if systemd::runs_here() && (user == 0 || above.as_str().starts_with(SESSIONS)) {
            let scope = Scope {
                name: &format!("{name}.scope"),
                slice: systemd::slice_of(&above),
                description: "anabranch run",
                process,
            };
            scope.start(&hierarchy).map_err(|error| error.to_string())?
        } else {
            self.put_below(journal, &hierarchy, process, &below)?;
            below
        };
        self.living.insert(path.clone());
        Ok(Answer::Group { cgroup: path.as_str().to_owned() })
    }

    fn put_below(
        &mut self,
        journal: &mut Journal,
        hierarchy: &Hierarchy,
        process: u32,
        path: &CgroupPath,
    ) -> Result<(), String> {
        let hint = |error: String| {
            if !systemd::runs_here() {
                return error;
            }
            format!(
                "{error}; a service of systemd stays in its own group: write program = \"cgroup:{}\" into a rule",
                path.parent().unwrap_or_else(CgroupPath::root)
            )
        };
        journal.apply(&[Change::Cgroup { path: path.clone() }]).map_err(|error| hint(error.to_string()))?;
        if let Err(error) = hierarchy.move_process(process, path) {
            self.end(journal, path.as_str());
            return Err(hint(error.to_string()));
        }
        Ok(())
    }

    /// Removes a control group of ours; what still runs in it goes to the one above. A scope ends by itself.
    pub fn end(&mut self, journal: &mut Journal, cgroup: &str) -> Answer {
        self.living.retain(|path| path.as_str() != cgroup);
        // Only what the journal has is removed.
        match journal.take_back(&Undo::Cgroup { path: cgroup.to_owned() }) {
            Ok(()) => Answer::Done,
            Err(error) => failed(error.to_string()),
        }
    }

    /// Which programs have these sockets open. Looks through all processes once a second at most.
    pub fn programs(&mut self, inodes: &[u32]) -> Answer {
        let mut programs = Vec::new();
        for inode in inodes.iter().take(MAXIMUM_INODES) {
            let Some(found) = self.programs.owner_of(*inode) else { continue };
            let executable = found.executable.as_ref().and_then(|path| path.to_str());
            programs.push(SocketProgram {
                inode: *inode,
                process: found.process,
                name: found.name.clone(),
                executable: executable.filter(|path| path.len() <= LONGEST_SHOWN).map(str::to_owned),
            });
        }
        Answer::Programs { programs }
    }
}

/// The user as whom a process acts. The owner of its directory in `/proc` would be root's if it has changed its user.
fn user_of(process: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().nth(1)?.parse().ok()
}

fn failed(reason: String) -> Answer {
    Answer::Failed { reason }
}

const PREFIX: &str = "anabranch-run-";
/// Where the sessions of users lie in systemd's tree.
const SESSIONS: &str = "/user.slice/";
/// Most groups with processes: more than the rules that there can be for them.
const MOST_GROUPS: usize = 256;
/// In bytes; longer paths are left out so that an answer has a bound.
const LONGEST_SHOWN: usize = 256;
