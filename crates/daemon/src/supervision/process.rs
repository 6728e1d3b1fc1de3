//! Splitting the process, and what each half does first and last.

use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch::control::DownReport;
use identity::{DaemonLock, LockError, StateDirectory, WriteError};
use linux::privileges::supervisor::{self, Ended, Exit, Role};
use linux::privileges::{self, DropError, User, seccomp};
use thiserror::Error;
use tracing::{error, info, warn};

use crate::config;

use super::{Answer, Machine, Request, Root, serve};

/// Why the worker did not end well.
#[derive(Debug, Error)]
pub enum SuperviseError {
    /// The process could not be split or waited for.
    #[error("cannot start the worker process: {0}")]
    Process(#[from] io::Error),
    /// The worker ended with an error, which it has logged.
    #[error("the worker process failed (exit code {0}); the lines above tell why")]
    Failed(i32),
    /// The worker was killed.
    #[error("the worker process was ended by signal {0}; what it had changed on the machine was taken back")]
    Killed(i32),
    /// Privileges could not be given up.
    #[error(transparent)]
    Drop(#[from] DropError),
    /// The state directory could not be handed over.
    #[error(transparent)]
    HandOver(#[from] WriteError),
}

/// Finds the user that the worker becomes (`name`, else `anabranch`, else `nobody`) and gives it the state directory.
///
/// All but the undo journal and a configuration of root's: the worker must not write what root will carry out.
///
/// # Errors
/// [`SuperviseError::Drop`] or [`SuperviseError::HandOver`].
pub fn prepare(state: &StateDirectory, name: &str) -> Result<User, SuperviseError> {
    let user = User::by_name(name).or_else(|missing| {
        let other = User::unprivileged()?;
        info!("{missing}; the daemon runs as {}", other.name);
        Ok::<User, DropError>(other)
    })?;
    match state.hand_over(user.user, user.group, &[linux::journal::FILE_NAME], &[config::FILE_NAME]) {
        // A user namespace that does not know the user: the worker stays who it is.
        Err(WriteError::Io { source, .. }) if source.kind() == io::ErrorKind::InvalidInput => {}
        other => other?,
    }
    Ok(user)
}

/// Splits the process: `work` runs as an unprivileged user, this process stays, serves its requests on `machine`
/// and has it take everything back when the worker has ended, however it ended.
///
/// Must be called before the process starts any thread. `prepare` builds `machine` in the supervising half, where
/// `work` is dropped unused.
///
/// # Errors
/// Any [`SuperviseError`]; also when the worker failed.
pub fn supervise<W, M>(user: User, work: W, prepare: impl FnOnce() -> M) -> Result<DownReport, SuperviseError>
where
    W: FnOnce(Root) -> Result<(), Box<dyn std::error::Error>>,
    M: Machine + 'static,
{
    let (ours, theirs) = UnixStream::pair()?;
    match supervisor::start_worker()? {
        Role::Worker => {
            drop(ours);
            let outcome = become_worker(&user).map_err(Into::into).and_then(|()| work(Root::new(theirs)?));
            let code = match outcome {
                Ok(()) => 0,
                Err(cause) => {
                    error!("{cause}");
                    1
                }
            };
            std::process::exit(code);
        }
        Role::Supervisor(child) => {
            drop((theirs, work));
            let mut machine = prepare();
            let keeper = std::thread::spawn(move || {
                // Whatever happens here, the machine must be there to take everything back.
                match catch_unwind(AssertUnwindSafe(|| serve(ours, &mut machine))) {
                    Ok(Ok(())) => {}
                    Ok(Err(cause)) => warn!(
                        "the worker process asked for something unknown ({cause}); it gets no more answers"
                    ),
                    Err(_) => error!("a request of the worker process failed badly; it gets no more answers"),
                }
                machine
            });
            let Ended { exit, asked } = child.supervise()?;
            let ended = keeper.join().map(|mut machine| {
                // Whoever asked for the end meant the daemon, not this version of it.
                if exit == Exit::Code(0)
                    && asked.is_none()
                    && let Some(cause) = machine.renew()
                {
                    error!("cannot become the other program: {cause}");
                }
                machine.carry_out(Request::Restore)
            });
            let report = match ended {
                Ok(Answer::Restored(report)) => report,
                Ok(Answer::Failed { reason }) => DownReport { undone: Vec::new(), failed: vec![reason] },
                Ok(_) | Err(_) => DownReport::default(),
            };
            match exit {
                Exit::Code(0) => Ok(report),
                // It was asked to end before it could catch that.
                Exit::Signal(signal) if asked == Some(signal) => Ok(report),
                Exit::Code(code) => Err(SuperviseError::Failed(code)),
                Exit::Signal(signal) => Err(SuperviseError::Killed(signal)),
            }
        }
    }
}

/// Takes the lock of a state directory. A holder that was just killed may have a worker that is still on its way out:
/// that is waited for.
///
/// # Errors
/// Any [`LockError`].
pub fn take_lock(state: &StateDirectory) -> Result<DaemonLock, LockError> {
    let deadline = Instant::now() + LAST_BREATH;
    loop {
        match DaemonLock::take(state) {
            Err(LockError::Held { process: Some(process), .. })
                if Instant::now() < deadline && !Path::new(&format!("/proc/{process}")).exists() =>
            {
                std::thread::sleep(RETRY_PAUSE);
            }
            other => return other,
        }
    }
}

fn become_worker(user: &User) -> Result<(), SuperviseError> {
    privileges::drop_to(user)?;
    supervisor::die_with_parent()?;
    if let Err(cause) = seccomp::forbid() {
        warn!("{cause}");
    }
    Ok(())
}

/// Closing the interface takes the kernel some tens of milliseconds.
const LAST_BREATH: Duration = Duration::from_secs(2);
const RETRY_PAUSE: Duration = Duration::from_millis(20);
