//! Who may use the control socket.

use std::io;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use identity::StateDirectory;
use tokio::net::UnixListener;

/// The user at the other end of a connection, as the kernel tells it (SO_PEERCRED).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User number; `None` if the kernel did not tell.
    pub user: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Caller {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self { user: stream.io().peer_cred().ok().map(|credentials| credentials.uid()) }
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

    /// Whether the caller is one of them.
    pub fn allow(&self, caller: Caller) -> bool {
        caller.user.is_some_and(|user| self.users.binary_search(&user).is_ok())
    }
}
