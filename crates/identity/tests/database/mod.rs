//! A PostgreSQL server of a test's own: made, started, killed and started again.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server. It ends with this value.
pub struct Database {
    directory: tempfile::TempDir,
    user: Option<(u32, u32)>,
    programs: PathBuf,
    process: Option<Child>,
}

impl Database {
    /// Makes and starts a server that listens on a Unix socket only; `None`, having said so, where PostgreSQL is not installed and
    /// need not be.
    pub fn start() -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(std::env::var_os("CI").is_none(), "PostgreSQL is not installed");
            eprintln!("skipped: PostgreSQL is not installed (package postgresql)");
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let mut database = Self { directory, user: user(), programs, process: None };
        if let Some((user, group)) = database.user {
            chown(database.directory.path(), Some(user), Some(group)).unwrap();
        }
        let made = database
            .program("initdb")
            .args([
                "--no-sync",
                "--auth=trust",
                "--username=anabranch",
                "--encoding=UTF8",
                "--locale=C",
                "--pgdata",
            ])
            .arg(database.data())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        database.run();
        Some(database)
    }

    /// How a gateway names it.
    pub fn connection(&self) -> String {
        format!("host={} user=anabranch dbname=postgres", self.directory.path().display())
    }

    /// Carries out statements, as its owner would by hand; what they find, a line each.
    pub fn sql(&self, statements: &str) -> String {
        let output = self.psql(statements).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The program that does so.
    pub fn psql(&self, statements: &str) -> Command {
        let mut command = self.program("psql");
        command.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1"]);
        command.arg("--dbname").arg(self.connection()).args(["--command", statements]);
        command
    }

    /// Kills the server, as a crash would.
    pub fn kill(&mut self) {
        let children = self.process.as_ref().map(children).unwrap_or_default();
        if let Some(mut process) = self.process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
        // They would end by themselves, a moment later, and answer until then.
        for child in &children {
            let killed = Command::new("kill").args(["-KILL", child]).stderr(Stdio::null()).status();
            killed.unwrap();
            let is_there =
                || std::fs::read(format!("/proc/{child}/cmdline")).is_ok_and(|line| !line.is_empty());
            while is_there() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }

    /// Stops the server and its children where they are, as a hung disk would, or lets them go on.
    pub fn hang(&self, hangs: bool) {
        let server = self.process.as_ref().unwrap();
        let signal = if hangs { "-STOP" } else { "-CONT" };
        let mut kill = Command::new("kill");
        kill.arg(signal).arg(server.id().to_string()).args(children(server));
        assert!(kill.status().unwrap().success());
    }

    /// Starts it, and waits until it answers.
    pub fn run(&mut self) {
        // The children of a killed server let go of its memory a moment later.
        let deadline = Instant::now() + Duration::from_secs(30);
        while Instant::now() < deadline {
            let mut server = self.program("postgres");
            server.arg("-D").arg(self.data()).arg("-k").arg(self.directory.path());
            server.args(["-c", "listen_addresses=", "-c", "fsync=off"]);
            let mut process = server.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            while process.try_wait().unwrap().is_none() {
                if self.answers() {
                    self.process = Some(process);
                    return;
                }
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        panic!("PostgreSQL does not start");
    }

    fn answers(&self) -> bool {
        let mut asked = self.program("pg_isready");
        asked.arg("-q").arg("-h").arg(self.directory.path()).status().unwrap().success()
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    /// One of PostgreSQL's programs, as a user that it accepts: it refuses root.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        if let Some((user, group)) = self.user {
            command.uid(user).gid(group);
        }
        command.current_dir("/");
        command
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The processes that a server has made, one for each connection and some more.
fn children(server: &Child) -> Vec<String> {
    let path = format!("/proc/{0}/task/{0}/children", server.id());
    let children = std::fs::read_to_string(path).unwrap_or_default();
    children.split_whitespace().map(ToOwned::to_owned).collect()
}

/// Where Debian keeps the server's programs: not on the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    versions
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .find(|path| path.join("postgres").exists())
}

/// Who runs it where this process is root.
fn user() -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let fields =
        users.lines().find(|line| line.starts_with("postgres:")).unwrap().split(':').collect::<Vec<_>>();
    Some((fields[2].parse().unwrap(), fields[3].parse().unwrap()))
}
