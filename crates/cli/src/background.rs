//! The device in the background: this program again, with `up --foreground`, detached from the terminal.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anabranch::control::{BlockingClient, SessionState, Status};
use anyhow::{Context, bail};
use identity::StateDirectory;

use crate::arguments::Up;
use crate::output;
use crate::session::Session;

const LOG_NAME: &str = "daemon.log";
/// At this size the log is put aside when a daemon starts, in bytes.
const MAX_LOG: u64 = 1024 * 1024;
/// How long a daemon may take until its control socket answers.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long is waited for the gateway once it does.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Most of a failed daemon's log that is shown, in bytes.
const MAX_SHOWN: u64 = 4_096;

/// Leaves the session of the terminal, whose end would end this process too.
pub fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Starts the daemon, and waits until it answers or has failed.
pub fn start(session: &Session, arguments: &Up) -> anyhow::Result<()> {
    let client = session.client()?;
    if let Ok(status) = client.status() {
        return tell(&status, "Already up", arguments.json);
    }
    let state = session.device()?;
    let path = state.file(LOG_NAME);
    let log = open_log(&state)?;
    let from = log.metadata()?.len();
    let mut child = spawn(session, arguments, log)?;
    let status = wait_for_answer(&client, &mut child, &path, from)?;
    tell(&wait_for_session(&client, &mut child, status), "Up", arguments.json)
}

fn spawn(session: &Session, arguments: &Up, log: File) -> anyhow::Result<Child> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut command = Command::new(&program);
    command.arg("--state").arg(session.path()).args(["up", "--foreground", "--detached"]);
    if let Some(config) = &arguments.config {
        command.arg("--config").arg(std::path::absolute(config)?);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    command.spawn().with_context(|| format!("cannot start {}", program.display()))
}

fn wait_for_answer(
    client: &BlockingClient,
    child: &mut Child,
    log: &Path,
    from: u64,
) -> anyhow::Result<Status> {
    let started = Instant::now();
    loop {
        if let Ok(status) = client.status() {
            return Ok(status);
        }
        if let Some(exit) = child.try_wait()? {
            let said = last_words(log, from);
            bail!("the daemon did not start ({exit}): {said}\nThe whole log: {}", log.display());
        }
        if started.elapsed() > START_TIMEOUT {
            child.kill()?;
            child.wait()?;
            bail!(
                "the daemon has not answered for {} s and was ended; its log: {}\n\
                 Take back what it changed with `anabranch down`.",
                START_TIMEOUT.as_secs(),
                log.display()
            );
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The last status before the time is over; a gateway that cannot be reached yet is no failure.
fn wait_for_session(client: &BlockingClient, child: &mut Child, mut status: Status) -> Status {
    let started = Instant::now();
    while matches!(status.state, SessionState::Starting | SessionState::Connecting)
        && started.elapsed() < CONNECT_TIMEOUT
        && matches!(child.try_wait(), Ok(None))
    {
        std::thread::sleep(POLL_INTERVAL);
        match client.status() {
            Ok(newer) => status = newer,
            Err(_) => return status,
        }
    }
    status
}

fn tell(status: &Status, done: &str, json: bool) -> anyhow::Result<()> {
    if json {
        return output::json(status);
    }
    let addresses: Vec<String> = status.addresses.iter().map(ToString::to_string).collect();
    match status.state {
        SessionState::Up => {
            output::line(&format!("{done}: {} has {}.", status.interface, addresses.join(" and ")))
        }
        _ => output::line(&format!("{done}, but not connected yet: {}\nSee `anabranch status`.", status.why)),
    }
}

fn open_log(state: &StateDirectory) -> anyhow::Result<File> {
    let path = state.file(LOG_NAME);
    if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.len() > MAX_LOG) {
        fs::rename(&path, state.file("daemon.log.old"))
            .with_context(|| format!("cannot put {} aside", path.display()))?;
    }
    Ok(state.append_to(LOG_NAME)?)
}

/// What the daemon wrote since `from`, or the end of it.
fn last_words(log: &Path, from: u64) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let end = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(from.max(end.saturating_sub(MAX_SHOWN))))?;
        let mut bytes = Vec::new();
        file.take(MAX_SHOWN).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            // Its last word, if it had time for one; else whatever it said.
            text.rsplit_once("anabranch: ").map_or(&*text, |(_, last)| last).trim().to_owned()
        }
        Err(error) => format!("its log cannot be read: {error}"),
    }
}
