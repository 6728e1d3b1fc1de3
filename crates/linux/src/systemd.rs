//! Transient scopes of systemd: a control group for processes that run already, made by the one who owns the tree.
//!
//! Where systemd is process 1, the tree of control groups is its own: what others make below its units, it may
//! remove. So it is asked for a scope (`StartTransientUnit`), over its own socket, which is root's, or over the system bus. A
//! scope ends by itself with its last process.
//!
//! A scope lies in the slice in which the process was, and so under the limits of that slice, but not under those of
//! the service or session that it leaves.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::cgroup::{CgroupPath, Hierarchy};
use crate::dbus::{Bus, BusError, Message, Value};

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
        let name = "org.freedesktop.systemd1";
        let call =
            [name, "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager", "StartTransientUnit"];
        let mut bus = connect()?;
        bus.ask(&Message::call(call, self.unit()))?;
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

    /// What `StartTransientUnit` is told: name, mode, properties, no further units.
    fn unit(&self) -> Vec<Value> {
        let property = |name: &str, value: Value| {
            Value::Struct(vec![Value::text(name), Value::Variant(Box::new(value))])
        };
        let texts = [
            ("Description", Some(self.description)),
            ("Slice", self.slice),
            ("CollectMode", Some("inactive-or-failed")),
        ];
        let mut properties: Vec<Value> =
            texts.into_iter().filter_map(|(name, text)| Some(property(name, Value::text(text?)))).collect();
        let processes = Value::Array("u".to_owned(), vec![Value::uint32(self.process)]);
        properties.push(property("PIDs", processes));
        vec![
            Value::text(self.name),
            Value::text("fail"),
            Value::Array("(sv)".to_owned(), properties),
            Value::Array("(sa(sv))".to_owned(), Vec::new()),
        ]
    }
}

impl From<BusError> for ScopeError {
    fn from(error: BusError) -> Self {
        match error {
            BusError::Channel(error) => Self::Channel(error),
            BusError::Silent => Self::Channel(io::ErrorKind::TimedOut.into()),
            BusError::Nonsense => Self::Answer,
            BusError::Refused(text) => Self::Refused(text),
        }
    }
}

/// To systemd itself, else by way of the system bus.
fn connect() -> Result<Bus, ScopeError> {
    // What the first says is nearer to the fault than that there is no bus either.
    Bus::open(PRIVATE).or_else(|first| Bus::system().map_err(|_| first)).map_err(ScopeError::from)
}

/// Root's way to systemd, which needs no bus to run.
const PRIVATE: &str = "/run/systemd/private";
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(2);

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
