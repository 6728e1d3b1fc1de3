//! The server: one thread with an event loop of its own.

use std::fs;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

use anabranch::control::SOCKET_NAME;
use identity::StateDirectory;
use thiserror::Error;
use tokio::net::UnixListener;
use tokio::sync::watch;

use super::{Backend, BusDoor, Caller, Callers, WebDoor, routes};

/// Owner and group; the directory around it is the owner's only.
const MODE: u32 = 0o660;
/// How long a path of a Unix socket may be, without the closing zero (unix(7)).
const MAX_PATH: usize = 107;

/// Ways in beside the socket in the state directory.
#[derive(Debug, Default)]
pub struct Doors {
    /// For callers who cannot open the state directory.
    pub open: Option<StdListener>,
    /// For browsers.
    pub web: Option<WebDoor>,
    /// For desktops.
    pub bus: Option<BusDoor>,
}

/// A control server that runs until it is dropped; then its socket is removed.
#[derive(Debug)]
pub struct ControlServer {
    socket: PathBuf,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// Why a control server cannot be started.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The path does not fit.
    #[error("the path {} is too long for a socket ({MAX_PATH} characters); choose a shorter one with --state DIR", .0.display())]
    PathTooLong(PathBuf),
    /// The socket cannot be made.
    #[error("cannot make the control socket {}: {source}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The system gives no event queue or no thread.
    #[error("cannot start the control server: {0}")]
    Start(#[source] io::Error),
}

impl ControlServer {
    /// Starts to serve `control.sock` of a state directory. The caller holds its [`identity::DaemonLock`], so a socket
    /// that is there already is a dead daemon's.
    ///
    /// # Errors
    /// Any [`ServeError`].
    pub fn start(
        state: &StateDirectory,
        callers: Callers,
        backend: Arc<dyn Backend>,
    ) -> Result<Self, ServeError> {
        Self::start_with(Doors::default(), state, callers, backend)
    }

    /// The same with further ways in.
    ///
    /// # Errors
    /// Any [`ServeError`].
    pub fn start_with(
        doors: Doors,
        state: &StateDirectory,
        callers: Callers,
        backend: Arc<dyn Backend>,
    ) -> Result<Self, ServeError> {
        let socket = state.file(SOCKET_NAME);
        let listener = bind(&socket)?;
        let (stop, stopped) = watch::channel(false);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ServeError::Start)?;
        let thread = std::thread::Builder::new()
            .name("control".to_owned())
            .spawn(move || {
                if let Err(error) = runtime.block_on(serve(listener, doors, callers, backend, stopped)) {
                    tracing::error!("the control socket is lost: {error}");
                }
                // A call that still waits for the loop must not keep the process from ending.
                runtime.shutdown_background();
            })
            .map_err(ServeError::Start)?;
        Ok(Self { socket, stop, thread: Some(thread) })
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }
}

impl Drop for ControlServer {
    /// Lets answers that are under way be sent, for at most two seconds.
    fn drop(&mut self) {
        // The thread may have ended by itself.
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let _ = fs::remove_file(&self.socket);
    }
}

fn bind(socket: &Path) -> Result<StdListener, ServeError> {
    if socket.as_os_str().len() > MAX_PATH {
        return Err(ServeError::PathTooLong(socket.to_owned()));
    }
    let failed = |source| ServeError::Socket { path: socket.to_owned(), source };
    match fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = StdListener::bind(socket).map_err(failed)?;
    fs::set_permissions(socket, fs::Permissions::from_mode(MODE)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// A socket without a file, for callers who cannot open the state directory. Root opens it, so that a caller can tell it from another program's of the
/// same name.
///
/// # Errors
/// If another program has it.
pub fn listen_abstract(name: &Path) -> io::Result<StdListener> {
    let name = name.to_string_lossy();
    let name = name.trim_start_matches('\0');
    let address = SocketAddr::from_abstract_name(name.as_bytes())?;
    StdListener::bind_addr(&address)
        .map_err(|error| io::Error::new(error.kind(), format!("cannot listen on @{name}: {error}")))
}

async fn serve(
    listener: StdListener,
    doors: Doors,
    callers: Callers,
    backend: Arc<dyn Backend>,
    stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    if let Some(web) = doors.web {
        tokio::spawn(web.serve(Arc::clone(&backend), stopped.clone()));
    }
    let bus =
        doors.bus.map(|bus| tokio::spawn(bus.serve(callers.clone(), Arc::clone(&backend), stopped.clone())));
    let router = routes::router(callers, backend, stopped.clone());
    let service = router.clone().into_make_service_with_connect_info::<Caller>();
    if let Some(open) = doors.open {
        open.set_nonblocking(true)?;
        let open = UnixListener::from_std(open)?;
        let service = router.into_make_service_with_connect_info::<Caller>();
        // Ends with the runtime, just after the other one.
        tokio::spawn(async move {
            if let Err(error) = axum::serve(open, service).await {
                tracing::error!("the open control socket is lost: {error}");
            }
        });
    }
    let mut told = stopped.clone();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        // An error means that the sender is gone, which is the same word.
        let _ = told.wait_for(|stop| *stop).await;
    });
    let mut told = stopped;
    let too_long = async move {
        let _ = told.wait_for(|stop| *stop).await;
        tokio::time::sleep(routes::GRACE).await;
    };
    let outcome = tokio::select! {
        outcome = server => outcome,
        () = too_long => Ok(()),
    };
    if let Some(bus) = bus {
        // It has been told to stop too, and says goodbye.
        let _ = tokio::time::timeout(routes::GRACE, bus).await;
    }
    outcome
}
