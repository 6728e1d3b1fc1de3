//! What the desktop's network programs know: NetworkManager (metered or not, whose interfaces) and ModemManager (signal of modems).
//!
//! Both are asked through their own command line programs, `nmcli` and `mmcli`, with a time limit and a limit of
//! output. Where a program or its service is missing, the error says which: nothing else depends on them.

mod managed;
mod metered;
mod modem;

use std::io::{self, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use thiserror::Error;

pub(crate) use managed::keep_off;
pub use managed::{is_managed, set_managed};
pub use metered::{Metered, metered};
pub use modem::{Modem, modems};

/// Why a program told nothing.
#[derive(Debug, Error)]
pub enum DesktopError {
    /// It is not installed.
    #[error("the program {0} is not installed")]
    Missing(&'static str),
    /// It could not be run.
    #[error("cannot run {program}: {error}")]
    Run {
        /// Which.
        program: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// It ended with an error; mostly its service does not run.
    #[error("{program} failed (does its service run?): {text}")]
    Failed {
        /// Which.
        program: &'static str,
        /// What it said, its beginning.
        text: String,
    },
    /// It did not end in time.
    #[error("{0} did not answer within {limit} s", limit = LIMIT.as_secs())]
    Slow(&'static str),
    /// Its output is not what it is known to print, or too long.
    #[error("the output of {0} could not be understood")]
    Output(&'static str),
}

/// Runs `program` with `arguments` and gives what it printed.
fn output_of(program: &'static str, arguments: &[&str]) -> Result<String, DesktopError> {
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => DesktopError::Missing(program),
            _ => DesktopError::Run { program, error },
        })?;
    // The threads end when the program does, or when it is killed: then its ends of the pipes close.
    let (output, complaint) = (child.stdout.take(), child.stderr.take());
    let output = std::thread::spawn(move || read_bounded(output));
    let complaint = std::thread::spawn(move || read_bounded(complaint));
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Ok(status),
            Ok(None) if Instant::now() >= deadline => break Err(DesktopError::Slow(program)),
            Ok(None) => std::thread::sleep(PAUSE),
            Err(error) => break Err(DesktopError::Run { program, error }),
        }
    };
    let status = match status {
        Err(error) => {
            drop(child.kill());
            drop(child.wait());
            return Err(error);
        }
        Ok(status) => status,
    };
    if !status.success() {
        let text = complaint.join().ok().flatten().unwrap_or_default();
        return Err(DesktopError::Failed { program, text: text.trim().chars().take(200).collect() });
    }
    output.join().ok().flatten().ok_or(DesktopError::Output(program))
}

/// `None` if there is more than fits or if it is no text.
fn read_bounded(source: Option<impl Read>) -> Option<String> {
    let mut bytes = Vec::new();
    source?.take(LONGEST + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > LONGEST { None } else { String::from_utf8(bytes).ok() }
}

const LIMIT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(5);
const LONGEST: u64 = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_and_each_failure_are_told_apart() {
        assert_eq!(output_of("echo", &["hello"]).unwrap(), "hello\n");
        assert!(matches!(output_of("no-such-program", &[]), Err(DesktopError::Missing("no-such-program"))));
        let failed = output_of("sh", &["-c", "echo not running >&2; exit 8"]).unwrap_err();
        assert_eq!(failed.to_string(), "sh failed (does its service run?): not running");
        let long = output_of("sh", &["-c", "head -c 300000 /dev/zero | tr '\\0' a"]);
        assert!(matches!(long, Err(DesktopError::Failed { .. } | DesktopError::Output("sh"))), "{long:?}");
        let start = Instant::now();
        assert!(matches!(output_of("sleep", &["30"]), Err(DesktopError::Slow("sleep"))));
        assert!(start.elapsed() < Duration::from_secs(10));
    }
}
