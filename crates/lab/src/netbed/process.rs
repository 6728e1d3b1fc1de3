//! Programs that run in the bed.

use anyhow::Context;
use linux::netns::Namespace;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Lines of a program's output that are kept for an error message.
const KEPT_LINES: usize = 40;

/// A program that ends when this value is dropped.
pub struct ChildProcess {
    name: String,
    child: Child,
    last_lines: Arc<Mutex<Vec<String>>>,
}

impl ChildProcess {
    /// Starts `program` in `namespace`; what it says is kept for [`ChildProcess::last_words`].
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start<A: AsRef<OsStr>>(
        namespace: &Namespace,
        program: &OsStr,
        arguments: &[A],
    ) -> anyhow::Result<Self> {
        let name = program.to_string_lossy().into_owned();
        let mut child = namespace
            .command(program)?
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {name}"))?;
        let last_lines = Arc::new(Mutex::new(Vec::new()));
        for output in [
            child.stdout.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
            child.stderr.take().map(|output| Box::new(output) as Box<dyn Read + Send>),
        ] {
            let Some(output) = output else { continue };
            let lines = Arc::clone(&last_lines);
            // Ends with the program's output.
            std::thread::spawn(move || keep_lines(output, &lines));
        }
        Ok(Self { name, child, last_lines })
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The end of what the program said.
    pub fn last_words(&self) -> String {
        self.last_lines.lock().map(|lines| lines.join("\n")).unwrap_or_default()
    }

    /// Fails if the program has ended, with what it said.
    ///
    /// # Errors
    /// If it has ended.
    pub fn ensure_running(&mut self) -> anyhow::Result<()> {
        if let Some(status) = self.child.try_wait().with_context(|| format!("watch {}", self.name))? {
            // Its last lines may still be on their way.
            std::thread::sleep(Duration::from_millis(100));
            anyhow::bail!("{} ended ({status}):\n{}", self.name, self.last_words());
        }
        Ok(())
    }

    /// Waits until `ready` holds while the program runs.
    ///
    /// # Errors
    /// If the program ends first, or `patience` does.
    pub fn wait_until(
        &mut self,
        what: &str,
        patience: Duration,
        mut ready: impl FnMut() -> bool,
    ) -> anyhow::Result<()> {
        let deadline = Instant::now() + patience;
        while !ready() {
            self.ensure_running()?;
            anyhow::ensure!(
                Instant::now() < deadline,
                "{} did not get ready: {what} within {} s; it said:\n{}",
                self.name,
                patience.as_secs(),
                self.last_words()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Asks the program to end, and ends it if it does not within `patience`.
    pub fn stop(&mut self, patience: Duration) {
        if let Some(process) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended by itself.
            let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        }
        let deadline = Instant::now() + patience;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        self.stop(Duration::from_secs(2));
    }
}

fn keep_lines(output: impl Read, kept: &Mutex<Vec<String>>) {
    for line in BufReader::new(output).lines() {
        let (Ok(line), Ok(mut kept)) = (line, kept.lock()) else { return };
        if kept.len() == KEPT_LINES {
            kept.remove(0);
        }
        kept.push(line);
    }
}

/// The program `name` of this project: beside this one, or in the search path.
pub fn program_beside(name: &str) -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join(name)));
    beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(name))
}
