//! Who may use the control socket.

use std::io;

use axum::extract::connect_info::Connected;
use axum::http::Method;
use axum::serve::IncomingStream;
use identity::StateDirectory;
use tokio::net::UnixListener;

/// The user at the other end of a connection, as the kernel tells it (SO_PEERCRED).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User number; `None` if the kernel did not tell.
    pub user: Option<u32>,
    /// Process number; `None` if the kernel did not tell, or the process cannot be seen from here.
    pub process: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        let credentials = stream.io().peer_cred().ok();
        let process = credentials.and_then(|credentials| credentials.pid());
        Self {
            user: credentials.map(|credentials| credentials.uid()),
            process: process.and_then(|process| u32::try_from(process).ok()).filter(|process| *process > 0),
        }
    }
}

/// Who asks for something that every local user may ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requester {
    /// User number.
    pub user: u32,
    /// Process number, if known.
    pub process: Option<u32>,
    /// Whether the user may control the daemon, so that it is not only about the own flows.
    pub controls: bool,
}

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestClass {
    /// The caller's own flows and programs, and what networks there are and how they are: every local user may.
    Own,
    /// The daemon.
    Daemon,
}

impl RequestClass {
    /// The class of an HTTP request.
    pub fn of(method: &Method, path: &str) -> Self {
        let own = match path {
            "/v1/flows" | "/v1/machine" | "/v1/radio" | "/v1/radio/aps" => method == Method::GET,
            "/v1/rules" => method == Method::GET || method == Method::POST,
            "/v1/explain" | "/v1/run" => method == Method::POST,
            _ => path.starts_with("/v1/rules/") && method == Method::DELETE,
        };
        if own { Self::Own } else { Self::Daemon }
    }
}

/// The users who may.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Callers {
    users: Vec<u32>,
}

impl Callers {
    /// Root, the user that this process runs as and the one it will become, and the owner of the state directory.
    ///
    /// # Errors
    /// If the state directory is gone.
    pub fn of_state(state: &StateDirectory, becomes: Option<u32>) -> io::Result<Self> {
        let (owner, _) = state.owner()?;
        let mut users = vec![0, rustix::process::geteuid().as_raw(), owner];
        users.extend(becomes);
        Ok(Self::only(users))
    }

    /// These users and nobody else.
    pub fn only(mut users: Vec<u32>) -> Self {
        users.sort_unstable();
        users.dedup();
        Self { users }
    }

    /// The caller, if it may make a request of this class.
    pub fn admit(&self, caller: Caller, class: RequestClass) -> Option<Requester> {
        let controls = self.allow(caller);
        let user = caller.user?;
        (controls || class == RequestClass::Own).then_some(Requester {
            user,
            process: caller.process,
            controls,
        })
    }

    /// Whether the caller is one of them.
    pub fn allow(&self, caller: Caller) -> bool {
        caller.user.is_some_and(|user| self.users.binary_search(&user).is_ok())
    }
}
