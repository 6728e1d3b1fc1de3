//! Runs the `nft` program, the only stable way to nftables.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use thiserror::Error;

/// Why a rule set was not loaded.
#[derive(Debug, Error)]
pub enum NftError {
    /// The program is not installed.
    #[error(
        "the program nft is missing; install the package nftables (apt install nftables, dnf install nftables)"
    )]
    Missing,
    /// It could not be run.
    #[error("cannot run nft: {0}")]
    Run(io::Error),
    /// The kernel or nft refused the rules.
    #[error("nft refused the rules (it takes root or CAP_NET_ADMIN, and a kernel with nf_tables): {0}")]
    Refused(String),
}

/// Loads `script` as one transaction: all of it or nothing.
pub(crate) fn load(script: &str) -> Result<(), NftError> {
    run(&["-f", "-"], script)
}

/// Whether the kernel would take `script`; nothing is changed.
pub(crate) fn check(script: &str) -> Result<(), NftError> {
    run(&["--check", "-f", "-"], script)
}

/// What nft prints.
pub(crate) fn ask(arguments: &[&str]) -> Result<String, NftError> {
    let output = Command::new("nft").args(arguments).output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NftError::Missing,
        _ => NftError::Run(error),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(NftError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn run(arguments: &[&str], script: &str) -> Result<(), NftError> {
    let mut child = Command::new("nft")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => NftError::Missing,
            _ => NftError::Run(error),
        })?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(script.as_bytes()).map_err(NftError::Run)?;
    }
    let output = child.wait_with_output().map_err(NftError::Run)?;
    if output.status.success() {
        return Ok(());
    }
    Err(NftError::Refused(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

/// Whether the program can be run.
pub(crate) fn is_installed() -> bool {
    Command::new("nft").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok()
}

/// The script that takes away the tables `name` of the families inet and ip6, whether they are there or not.
pub(crate) fn removal(name: &str) -> String {
    ["inet", "ip6"].map(|family| format!("table {family} {name}\ndelete table {family} {name}\n")).concat()
}

/// Whether `name` may stand in a script: letters, digits, `_`, `-` and `.` only.
pub(crate) fn is_plain_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}
