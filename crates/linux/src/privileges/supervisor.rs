//! Two processes: one that keeps root and does nothing but wait and clean up, one that works without.
//!
//! ```text
//! start (root) -- set up, journal --> fork --> worker: drop privileges, run
//!                                      |          | ends, crashes or is killed
//!                                      +-- wait --+--> supervisor: undo by the journal, exit the same way
//! ```
//! If the supervisor is killed the kernel kills the worker (parent death signal), and the next start undoes.
#![expect(unsafe_code, reason = "fork and signals are not in the standard library")]

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::system_call::{check, errno};

/// How a process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// By itself, with this code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// How a supervised process ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// How.
    pub exit: Exit,
    /// The last signal by which it was asked to end.
    pub asked: Option<i32>,
}

/// A forked child.
pub struct Child {
    process: libc::pid_t,
}

impl Child {
    /// Its process number.
    pub fn id(&self) -> i32 {
        self.process
    }

    /// Ends it at once.
    pub fn kill(&self) {
        self.signal(libc::SIGKILL);
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: plain system call; the number is that of our own child, which we have not waited for yet.
        unsafe { libc::kill(self.process, signal) };
    }

    /// Waits until it ends.
    pub fn wait(self) -> io::Result<Exit> {
        loop {
            match self.reap(0) {
                Err(error) if errno(&error) == libc::EINTR => {}
                Ok(None) => {}
                Ok(Some(exit)) => return Ok(exit),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until it ends, handing on the signals that ask this process to end (SIGINT, SIGTERM, SIGHUP).
    ///
    /// For the parent of [`start_worker`] only, where these signals are blocked.
    pub fn supervise(self) -> io::Result<Ended> {
        let signals = watched_signals();
        let mut asked = None;
        loop {
            // SAFETY: the set is live; no information is asked for.
            let signal = unsafe { libc::sigwaitinfo(&raw const signals, std::ptr::null_mut()) };
            match check(signal) {
                Err(error) if errno(&error) == libc::EINTR => continue,
                Err(error) => return Err(error),
                Ok(libc::SIGCHLD) => {}
                Ok(signal) => {
                    asked = Some(signal);
                    self.signal(signal);
                }
            }
            if let Some(exit) = self.reap(libc::WNOHANG)? {
                return Ok(Ended { exit, asked });
            }
        }
    }

    fn reap(&self, flags: libc::c_int) -> io::Result<Option<Exit>> {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer.
        if check(unsafe { libc::waitpid(self.process, &raw mut status, flags) })? == 0 {
            return Ok(None);
        }
        Ok(if libc::WIFEXITED(status) {
            Some(Exit::Code(libc::WEXITSTATUS(status)))
        } else if libc::WIFSIGNALED(status) {
            Some(Exit::Signal(libc::WTERMSIG(status)))
        } else {
            None
        })
    }
}

/// Which of the two processes this is.
pub enum Role {
    /// The parent; wait with [`Child::supervise`], then clean up.
    Supervisor(Child),
    /// The child; drop privileges and work.
    Worker,
}

/// Splits the process in two. Must be called before it starts any thread.
///
/// A signal to end that comes before [`Child::supervise`], or came before this program took another one's place, waits for it.
pub fn start_worker() -> io::Result<Role> {
    let signals = watched_signals();
    // SAFETY: the set is live; the old mask is not asked for.
    check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) })?;
    // SAFETY: the caller has one thread, so the child has a whole and consistent copy of the process.
    match check(unsafe { libc::fork() })? {
        0 => {
            // SAFETY: as above.
            check(unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &raw const signals, std::ptr::null_mut()) })?;
            die_with_parent()?;
            Ok(Role::Worker)
        }
        process => Ok(Role::Supervisor(Child { process })),
    }
}

/// Has the kernel kill this process when its parent ends. A change of user takes this back: call it again then.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: this option takes a number.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) })?;
    // SAFETY: cannot fail and has no pointers.
    if unsafe { libc::getppid() } == 1 && std::process::id() != 1 {
        tracing::warn!("the parent process is gone already");
    }
    Ok(())
}

/// Runs `work` in a forked child and ends it with code 0, or 101 after a panic. For tests of what cannot be
/// taken back, such as dropped privileges.
pub fn in_child(work: impl FnOnce()) -> io::Result<Child> {
    // SAFETY: the child runs `work` and leaves by _exit; a test's `work` takes no lock that another thread of
    // the parent could hold except the allocator's and stderr's, which the C library and Rust reset or tolerate.
    match check(unsafe { libc::fork() })? {
        0 => {
            let code = if catch_unwind(AssertUnwindSafe(work)).is_ok() { 0 } else { 101 };
            // SAFETY: ends the process without running the parent's exit handlers.
            unsafe { libc::_exit(code) }
        }
        process => Ok(Child { process }),
    }
}

fn watched_signals() -> libc::sigset_t {
    // SAFETY: all-zero bytes are a valid set, and sigemptyset makes it an empty one.
    unsafe {
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut signals);
        for signal in [libc::SIGCHLD, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::sigaddset(&raw mut signals, signal);
        }
        signals
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_told_apart() {
        assert_eq!(in_child(|| {}).unwrap().wait().unwrap(), Exit::Code(0));
        let sleeper = in_child(|| std::thread::sleep(std::time::Duration::from_secs(20))).unwrap();
        sleeper.kill();
        assert_eq!(sleeper.wait().unwrap(), Exit::Signal(libc::SIGKILL));
    }

    /// The supervisor runs in a child of the test, since it blocks signals and forks.
    #[test]
    fn the_supervisor_hands_signals_on_and_outlives_the_worker() {
        let outer = in_child(|| match start_worker().unwrap() {
            Role::Worker => std::thread::sleep(std::time::Duration::from_secs(20)),
            Role::Supervisor(child) => {
                // SAFETY: plain system call on our own process.
                unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
                let ended = Ended { exit: Exit::Signal(libc::SIGTERM), asked: Some(libc::SIGTERM) };
                assert_eq!(child.supervise().unwrap(), ended);
            }
        });
        assert_eq!(outer.unwrap().wait().unwrap(), Exit::Code(0));
    }
}
