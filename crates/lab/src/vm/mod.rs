//! The virtual machine bed: a whole Linux kernel in *virtual time*.
//!
//! QEMU runs Debian's packaged kernel without hardware help and derives the guest's clock from the number of instructions
//! executed; idle time is skipped. A ten-second sleep costs a few milliseconds, and a measurement gives the same figures
//! on a busy machine as on an idle one. Everything a job needs is packed into its initramfs, so that no wait for the host
//! ever enters the guest's time; what it leaves in `/results` comes back at the end.
//!
//! CPU time in the guest is instructions, not cycles: 1 ns each ([`Job::instruction_nanos`]), so 1 G a second, a slow
//! machine. Keep it partly idle, below about 100 Mbit/s of tunnelled traffic, and use release builds.

pub mod air;
mod archive;
pub mod bluetooth;
pub mod cards;
pub mod direct;
pub mod homes;
mod initramfs;
mod kernel;
pub mod measurement;
pub mod message_bus;
mod modules;
pub mod outages;
mod qemu;
pub mod scene;
pub mod topology;
pub mod trial;
pub mod wifi;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use units::Bytes;

pub use initramfs::libraries_beside;
pub use kernel::{Kernel, cache_directory};

/// A virtual machine that can be started: an emulator and a kernel.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The emulator, `qemu-system-x86_64`.
    pub qemu: PathBuf,
    /// What it runs.
    pub kernel: Kernel,
}

/// One boot of a machine: what to run, and with what.
#[derive(Clone, Debug)]
pub struct Job {
    /// Programs of this machine to have in the guest's search path, under their own file names; the shared libraries they
    /// name come along. `ip`, `tc`, `nft` and busybox's
    /// commands are always there.
    pub programs: Vec<PathBuf>,
    /// Further files by their absolute path in the guest.
    pub files: BTreeMap<String, Vec<u8>>,
    /// Shell commands, run as root by `sh` with `/job` as current directory. What they write to `/results`
    /// comes back in [`Outcome::files`].
    pub script: String,
    /// Kernel modules to load beside the networking ones that are always there; a name may be followed by parameters, as in
    /// `mac80211_hwsim radios=3`.
    pub modules: Vec<String>,
    /// The guest's memory; all programs and files live in it.
    pub memory: Bytes,
    /// How long the script may run, in the guest's time.
    pub timeout: Duration,
    /// How much of this machine's processors it may have in all; a guest with this machine's time is stopped after so long.
    pub wall_timeout: Duration,
    /// Seeds every random number the guest can see. Same job, same seed: the same run.
    pub seed: u32,
    /// Guest time of one instruction: 1, 2, 4, ... nanoseconds (rounded down to a power of two). 0 gives the guest this machine's
    /// time instead, for what virtual time cannot do: nothing is measured then, but the guest can be suspended and wake up.
    pub instruction_nanos: u32,
    /// More for the kernel's command line.
    pub kernel_arguments: String,
}

/// What a job left behind.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The script's exit status.
    pub exit: i32,
    /// What the script printed, standard error included.
    pub output: String,
    /// The files below `/results`, by their path below it.
    pub files: BTreeMap<String, Vec<u8>>,
    /// The guest's time from boot to the end of the script.
    pub guest_time: Duration,
    /// Time this machine took for it.
    pub wall_time: Duration,
}

/// Why a machine cannot be had or a job has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// A part of the bed is not on this machine and could not be fetched.
    #[error("{what}; to mend it: {remedy}")]
    Missing {
        /// What is not there.
        what: String,
        /// The command that would bring it.
        remedy: String,
    },
    /// The script ran out of its time in the guest.
    #[error("the script ran for more than {} s of the guest's time; it printed: {output}", limit.as_secs())]
    GuestTimeout {
        /// [`Job::timeout`].
        limit: Duration,
        /// What it had printed.
        output: String,
    },
    /// The machine stopped without a report, or was stopped after [`Job::wall_timeout`].
    #[error("the virtual machine {what}; its console says: {console}")]
    NoReport {
        /// What happened.
        what: String,
        /// The end of the kernel's messages.
        console: String,
    },
    /// Anything else, mostly files.
    #[error(transparent)]
    Other(#[from] anyhow::Error),
}

impl Machine {
    /// Finds the emulator and the kernel, and fetches what is missing where that is possible.
    ///
    /// # Errors
    /// [`MachineError::Missing`] with the command that mends it.
    pub fn find() -> Result<Self, MachineError> {
        Ok(Self { qemu: kernel::find_qemu()?, kernel: Kernel::find()? })
    }

    /// The same for a test, which says what is missing and is skipped; in CI nothing may be missing.
    ///
    /// # Errors
    /// As [`Machine::find`].
    pub fn find_or_skip() -> Result<Option<Self>, MachineError> {
        match Self::find() {
            Err(error @ MachineError::Missing { .. }) if std::env::var_os("CI").is_none() => {
                println!("skipped: {error}");
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Boots, runs the job and collects what it left. Blocks for seconds to minutes; runs do not disturb each other's
    /// figures, so as many as there are cores may run at a time.
    ///
    /// # Errors
    /// If a program or tool is missing, the script ran out of time, or the guest died.
    pub fn run(&self, job: &Job) -> Result<Outcome, MachineError> {
        let initramfs = initramfs::build(&self.kernel, job)?;
        qemu::run(self, job, &initramfs)
    }
}

impl Outcome {
    /// Itself if the script ended well.
    ///
    /// # Errors
    /// If it did not, with what it printed.
    pub fn succeeded(self) -> Result<Self, MachineError> {
        if self.exit == 0 {
            return Ok(self);
        }
        let printed = format!("the script ended with {}; it printed: {}", self.exit, self.output);
        Err(MachineError::Other(anyhow::anyhow!(printed)))
    }

    /// A text that the script left in `/results`; empty if it left none.
    pub fn text(&self, name: &str) -> String {
        self.files.get(name).map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
    }
}

impl Job {
    /// A job with 1 GiB of memory that may run for ten guest minutes.
    pub fn new(script: impl Into<String>) -> Self {
        Self {
            programs: Vec::new(),
            files: BTreeMap::new(),
            script: script.into(),
            modules: Vec::new(),
            memory: Bytes(1 << 30),
            timeout: Duration::from_secs(600),
            wall_timeout: Duration::from_secs(900),
            seed: 1,
            instruction_nanos: 1,
            kernel_arguments: String::new(),
        }
    }
}

/// The file that the shell would run for `name`, for [`Job::programs`].
///
/// # Errors
/// [`MachineError::Missing`] that names the Debian package to install.
pub fn program(name: &str, package: &str) -> Result<PathBuf, MachineError> {
    kernel::find_program(name).ok_or_else(|| not_installed(name, package))
}

fn not_installed(name: &str, package: &str) -> MachineError {
    MachineError::Missing {
        what: format!("{name} is not installed"),
        remedy: format!("apt-get install {package}"),
    }
}
