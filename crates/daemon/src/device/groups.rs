//! Root's part of `anabranch run` and `anabranch flows`: control groups, and which program has which socket.

use linux::cgroup::Hierarchy;
use linux::journal::{Change, Journal, Undo};
use linux::programs::ProgramIndex;

use crate::supervision::{Answer, MAXIMUM_INODES, SocketProgram};

/// What root remembers between requests.
#[derive(Default)]
pub struct Groups {
    made: u64,
    programs: ProgramIndex,
}

impl Groups {
    /// Puts a process into a control group of its own, below the one that it is in: all limits and all accounting of its
    /// session go on to hold for it.
    pub fn run(&mut self, journal: &mut Journal, process: u32, user: u32) -> Answer {
        if user_of(process) != Some(user) {
            return failed(format!("process {process} is not one of user {user}"));
        }
        self.put(journal, process).unwrap_or_else(failed)
    }

    fn put(&mut self, journal: &mut Journal, process: u32) -> Result<Answer, String> {
        let hierarchy = Hierarchy::find().map_err(|error| error.to_string())?;
        let above = hierarchy.path_of(process).map_err(|error| error.to_string())?;
        let name = format!("{PREFIX}{}-{}", std::process::id(), self.made);
        let path = above.child(&name).map_err(|error| error.to_string())?;
        if hierarchy.nft_match(&path).is_none() {
            let mount = hierarchy.mount_point().display();
            return Err(format!(
                "nftables finds control groups below /sys/fs/cgroup only, and here they are in {mount}"
            ));
        }
        self.made += 1;
        journal.apply(&[Change::Cgroup { path: path.clone() }]).map_err(|error| error.to_string())?;
        if let Err(error) = hierarchy.move_process(process, &path) {
            self.end(journal, path.as_str());
            return Err(error.to_string());
        }
        Ok(Answer::Group { cgroup: path.as_str().to_owned() })
    }

    /// Removes a control group of ours; what still runs in it goes to the one above.
    pub fn end(&mut self, journal: &mut Journal, cgroup: &str) -> Answer {
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

const PREFIX: &str = "anabranch-";
/// In bytes; longer paths are left out so that an answer has a bound.
const LONGEST_SHOWN: usize = 256;
