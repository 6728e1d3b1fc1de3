//! `anabranch demo` and `anabranch lab`: the program `anabranch-lab`, so that this one stays small.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

const PROGRAM: &str = "anabranch-lab";

/// A call of the lab's program.
pub struct Invocation {
    arguments: Vec<OsString>,
}

impl Invocation {
    /// The call that this process was started for, if it was.
    pub fn of_process() -> Option<Self> {
        let mut arguments = std::env::args_os().skip(1);
        match arguments.next()?.to_str()? {
            "demo" => Some(Self::demo(arguments)),
            "lab" => Some(Self::lab(arguments)),
            _ => None,
        }
    }

    pub fn demo(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self { arguments: std::iter::once("demo".into()).chain(arguments).collect() }
    }

    pub fn lab(arguments: impl IntoIterator<Item = OsString>) -> Self {
        Self { arguments: arguments.into_iter().collect() }
    }

    /// Becomes that program; returns only if that fails.
    pub fn run(self) -> anyhow::Result<()> {
        let program = beside_this_program().unwrap_or_else(|| PathBuf::from(PROGRAM));
        let error = Command::new(&program).args(&self.arguments).exec();
        if error.kind() == std::io::ErrorKind::NotFound {
            anyhow::bail!(
                "the program {PROGRAM} is missing: it was looked for beside this program and in PATH. \
                 It comes with the sources: `cargo build --release --bin {PROGRAM}`"
            );
        }
        Err(anyhow::Error::new(error).context(format!("cannot run {}", program.display())))
    }
}

fn beside_this_program() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name(PROGRAM);
    path.is_file().then_some(path)
}
