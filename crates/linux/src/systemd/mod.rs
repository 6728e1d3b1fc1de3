//! Transient scopes of systemd: a control group for processes that run already, made by the one who owns the tree.
//!
//! Where systemd is process 1, the tree of control groups is its own: what others make below its units, it may
//! remove. So it is asked for a scope (`StartTransientUnit`), over its own socket, which is root's, or over the system bus. A
//! scope ends by itself with its last process.
//!
//! A scope lies in the slice in which the process was, and so under the limits of that slice, but not under those of
//! the service or session that it leaves.

mod message;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::cgroup::{CgroupPath, Hierarchy};
use crate::system_call::effective_user;
use message::{Call, Reply};

/// Why there is no scope.
#[derive(Debug, Error)]
pub enum ScopeError {
    /// Neither systemd's own socket nor the system bus can be used.
    #[error("systemd cannot be asked for a scope: {0}")]
    Channel(#[from] io::Error),
    /// It answered something that no one asked for.
    #[error("systemd's answer makes no sense")]
    Answer,
    /// It said no.
    #[error("systemd makes no scope: {0}")]
    Refused(String),
    /// It said yes, but the process is where it was.
    #[error("systemd did not put the process into {0} in time")]
    Late(String),
}

/// A scope to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Scope<'a> {
    /// Name of the unit, which ends in `.scope`; ASCII letters, digits, `-`, `_` and `.` only.
    pub name: &'a str,
    /// Name of the slice; systemd's usual one if `None`.
    pub slice: Option<&'a str>,
    /// For people.
    pub description: &'a str,
    /// The process.
    pub process: u32,
}

/// Whether systemd is process 1 here.
pub fn runs_here() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

/// The slice in which a control group lies: the last of the slices at the beginning of its path.
pub fn slice_of(path: &CgroupPath) -> Option<&str> {
    let slices = path.as_str().split('/').skip(1).take_while(|part| part.ends_with(".slice"));
    slices.last()
}

impl Scope<'_> {
    /// Makes the scope and waits until the process is in it; where that is in the tree.
    ///
    /// Blocks for three seconds at most. Takes root.
    ///
    /// # Errors
    /// Any [`ScopeError`]; the process is then where it was, but for [`ScopeError::Late`], when it may still be moved.
    pub fn start(&self, hierarchy: &Hierarchy) -> Result<CgroupPath, ScopeError> {
        let mut bus = Bus::connect()?;
        bus.ask(&Call {
            path: "/org/freedesktop/systemd1",
            interface: "org.freedesktop.systemd1.Manager",
            destination: "org.freedesktop.systemd1",
            member: "StartTransientUnit",
            signature: "ssa(sv)a(sa(sv))",
            body: message::transient_unit(self),
        })?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let now = hierarchy.path_of(self.process).ok();
            let name = now.as_ref().and_then(|path| path.as_str().rsplit('/').next());
            if name == Some(self.name)
                && let Some(path) = now
            {
                return Ok(path);
            }
            if Instant::now() >= deadline {
                return Err(ScopeError::Late(self.name.to_owned()));
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// A connection to systemd.
struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
}

impl Bus {
    /// To systemd itself, else by way of the system bus.
    fn connect() -> Result<Self, ScopeError> {
        match Self::open(PRIVATE) {
            Ok(bus) => Ok(bus),
            Err(first) => {
                // What the first says is nearer to the fault than that there is no bus either.
                let mut bus = Self::open(SYSTEM_BUS).map_err(|_| first)?;
                let (path, name) = ("/org/freedesktop/DBus", "org.freedesktop.DBus");
                bus.ask(&Call {
                    path,
                    interface: name,
                    destination: name,
                    member: "Hello",
                    signature: "",
                    body: Vec::new(),
                })?;
                Ok(bus)
            }
        }
    }

    /// Connects and says who we are, as the D-Bus specification's "EXTERNAL" has it.
    fn open(path: &str) -> Result<Self, ScopeError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut stream = BufReader::new(stream);
        let user = effective_user().to_string();
        let digits: String = user.bytes().map(|digit| format!("{digit:02x}")).collect();
        stream.get_mut().write_all(format!("\0AUTH EXTERNAL {digits}\r\n").as_bytes())?;
        let mut line = Vec::new();
        (&mut stream).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if !line.starts_with(b"OK ") {
            let text = String::from_utf8_lossy(&line).trim().chars().take(100).collect();
            return Err(ScopeError::Refused(text));
        }
        stream.get_mut().write_all(b"BEGIN\r\n")?;
        Ok(Self { stream, serial: 0 })
    }

    /// Asks, and waits for the answer; signals that come in between are passed over.
    fn ask(&mut self, call: &Call<'_>) -> Result<(), ScopeError> {
        self.serial += 1;
        self.stream.get_mut().write_all(&call.bytes(self.serial))?;
        for _ in 0..MOST_SIGNALS {
            let mut head = [0; message::HEAD];
            self.stream.read_exact(&mut head)?;
            let length = message::rest_of(&head).ok_or(ScopeError::Answer)?;
            let mut rest = vec![0; length];
            self.stream.read_exact(&mut rest)?;
            match message::reply(&head, &rest, self.serial).ok_or(ScopeError::Answer)? {
                Reply::Done => return Ok(()),
                Reply::Refused(text) => return Err(ScopeError::Refused(text)),
                Reply::Other => {}
            }
        }
        Err(ScopeError::Answer)
    }
}

/// Root's way to systemd, which needs no bus to run.
const PRIVATE: &str = "/run/systemd/private";
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(2);
const LONGEST_LINE: u64 = 512;
/// Messages that may come before the answer.
const MOST_SIGNALS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slice_is_that_of_the_machine_and_not_the_users_own() {
        for (path, slice) in [
            ("/user.slice/user-1000.slice/session-3.scope", Some("user-1000.slice")),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/a.scope", Some("user-1000.slice")),
            ("/system.slice/cron.service", Some("system.slice")),
            ("/init.scope", None),
            ("/", None),
        ] {
            assert_eq!(slice_of(&CgroupPath::new(path).unwrap()), slice, "{path}");
        }
    }
}
