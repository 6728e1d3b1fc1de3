//! Exit codes, and how a failure is told.

use std::io::{self, Write};
use std::process::ExitCode;

use anabranch::control::{ClientError, FailureCode};
use daemon::config::ConfigError;

/// The part of `--help` on exit codes.
pub const HELP: &str = "Exit codes:\n  \
    0  done\n  \
    1  failed\n  \
    2  wrong usage or wrong configuration\n  \
    3  no daemon is running\n  \
    4  not allowed: run it as root or as the owner of the state directory";

const FAILED: u8 = 1;
const WRONG_USAGE: u8 = 2;
const NOT_RUNNING: u8 = 3;
const NOT_ALLOWED: u8 = 4;

/// A mistake in what was typed that only shows up after parsing.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongUsage(pub String);

/// Ends with this code; what went wrong was told already.
#[derive(Debug, thiserror::Error)]
#[error("a program failed")]
pub struct Quietly(pub ExitCode);

/// Prints the failure, if it is one, and picks the exit code.
pub fn report(outcome: anyhow::Result<()>) -> ExitCode {
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    if let Some(Quietly(code)) = error.downcast_ref() {
        return *code;
    }
    if is_closed_pipe(&error) {
        return ExitCode::SUCCESS;
    }
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(io::stderr(), "anabranch: {}", message(&error));
    ExitCode::from(code(&error))
}

/// The failure and its causes, less those that an outer message repeats.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.is_empty() {
        true => cause,
        false if told.contains(&cause) => told,
        false => format!("{told}: {cause}"),
    })
}

fn code(error: &anyhow::Error) -> u8 {
    for cause in error.chain() {
        if cause.is::<ConfigError>() || cause.is::<WrongUsage>() {
            return WRONG_USAGE;
        }
        match cause.downcast_ref::<ClientError>() {
            Some(ClientError::NotRunning(_)) => return NOT_RUNNING,
            Some(ClientError::NotAllowed(_)) => return NOT_ALLOWED,
            Some(ClientError::Failed(failure)) if failure.code == FailureCode::NotAllowed => {
                return NOT_ALLOWED;
            }
            _ => {}
        }
        if cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
        {
            return NOT_ALLOWED;
        }
        if matches!(cause.downcast_ref(), Some(identity::WriteError::NotAllowed(_))) {
            return NOT_ALLOWED;
        }
    }
    FAILED
}

/// `anabranch events | head` is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let inner = identity::WriteError::NotAllowed("/state/key".into());
        let text = inner.to_string();
        let error = anyhow::Error::new(identity::StateError::Write(inner)).context("cannot start");
        assert_eq!(message(&error), format!("cannot start: the state directory cannot be used: {text}"));
        assert_eq!(code(&error), NOT_ALLOWED);
    }
}
