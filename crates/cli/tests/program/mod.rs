//! Runs the program on a state directory of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]
#![allow(dead_code, reason = "each test program uses its part")]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A state directory below a temporary one, and the program on it.
pub struct Program {
    pub directory: tempfile::TempDir,
    pub state: PathBuf,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ran {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

impl Ran {
    pub fn json(&self) -> serde_json::Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap()
    }

    /// Fails the test unless the run ended with `code` and said `words` on standard error.
    pub fn fails(&self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(words), "no \"{words}\" in {self:?}");
    }
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

impl Program {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("state");
        Self { directory, state }
    }

    /// A gateway that devices find at `gw.example.org`.
    pub fn gateway() -> Self {
        let program = Self::new();
        let made = program.run(&["gateway", "init", "--address", "gw.example.org"]);
        assert_eq!(made.code, 0, "{made:?}");
        program
    }

    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("--state").arg(&self.state).env_remove("ANABRANCH_STATE").env_remove("ANABRANCH_LOG");
        command
    }

    /// The program in a network namespace without networks, where a daemon can do no harm; `None` without the right to.
    pub fn isolated(&self) -> Option<Command> {
        let allowed = Command::new("unshare")
            .args(["--net", "--", "true"])
            .status()
            .is_ok_and(|status| status.success());
        if !allowed {
            eprintln!("skipped: no right to make a network namespace");
            return None;
        }
        let mut command = Command::new("unshare");
        command.args(["--net", "--", env!("CARGO_BIN_EXE_anabranch"), "--state"]).arg(&self.state);
        command.env_remove("ANABRANCH_STATE").env_remove("ANABRANCH_LOG");
        Some(command)
    }

    pub fn run(&self, arguments: &[impl AsRef<OsStr>]) -> Ran {
        self.command().args(arguments).stdin(Stdio::null()).output().unwrap().into()
    }

    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let mut child = self
            .command()
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The program may end without reading it all.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap().into()
    }

    /// An invitation's link.
    pub fn invite(&self, name: &str) -> String {
        let invited = self.run(&["gateway", "invite", name]);
        assert_eq!(invited.code, 0, "{invited:?}");
        invited.stdout.trim().to_owned()
    }

    /// A device that has joined this gateway.
    pub fn joined(&self) -> Self {
        let device = Self::new();
        let joined = device.run_with_input(&["join", "-"], &self.invite("van"));
        assert_eq!(joined.code, 0, "{joined:?}");
        device
    }

    pub fn file(&self, name: impl AsRef<Path>) -> String {
        std::fs::read_to_string(self.state.join(name)).unwrap()
    }
}
