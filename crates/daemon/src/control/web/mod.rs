//! The same control API for a browser and for monitoring programs: HTTP on an address of this machine alone.
//!
//! Off unless the configuration names an address. What it hands out without the token are the page's own files, which hold nothing of this machine.
//!
//! ```text
//! browser, Prometheus --> 127.0.0.1:PORT --> guard: Host, Origin, token --> the routes of control.sock
//! ```

mod assets;
mod guard;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use anabranch::control::EventKind;
use axum::Router;
use axum::extract::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use identity::{StateDirectory, WebToken, WebTokenError};
use thiserror::Error;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tower_service::Service;
use tracing::debug;

use super::{Backend, EventLog};

/// A socket that listens for browsers, and the token that they have to show.
#[derive(Debug)]
pub struct WebDoor {
    listener: StdListener,
    token: WebToken,
    address: SocketAddr,
}

/// Why there is no web page.
#[derive(Debug, Error)]
pub enum WebDoorError {
    /// There is no token.
    #[error("no web page: {0}")]
    Token(#[from] WebTokenError),
    /// The address cannot be listened on.
    #[error("no web page: cannot listen on {address}: {source}; choose another port with `web`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
}

impl WebDoor {
    /// Listens on `address`, which is one of this machine alone.
    ///
    /// # Errors
    /// Any [`WebDoorError`].
    pub fn open(state: &StateDirectory, address: SocketAddr) -> Result<Self, WebDoorError> {
        let token = WebToken::load_or_create(state)?;
        let failed = |source| WebDoorError::Listen { address, source };
        let listener = StdListener::bind(address).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, token, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until told to stop. What goes wrong with one connection ends that connection.
    pub(super) async fn serve(self, backend: Arc<dyn Backend>, mut stopped: watch::Receiver<bool>) {
        let listener = match TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(error) => return tracing::error!("the web page is lost: {error}"),
        };
        let router = guard::router(self.token, self.address, backend, stopped.clone());
        let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
        loop {
            // Whoever finds no room waits in the kernel's queue.
            let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                _ = stopped.wait_for(|stop| *stop) => return,
            };
            match accepted {
                Ok((stream, _)) => {
                    let router = router.clone();
                    tokio::spawn(async move {
                        serve_connection(stream, router).await;
                        drop(place);
                    });
                }
                // Too many open files, most likely: those that are open will close.
                Err(error) => {
                    debug!("a browser could not be let in: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// The door that the configuration asks for. Without it everything else goes on.
pub(crate) fn open(
    state: &StateDirectory,
    address: Option<SocketAddr>,
    events: &EventLog,
) -> Option<WebDoor> {
    match WebDoor::open(state, address?) {
        Ok(door) => {
            tracing::info!(
                "the web page is at http://{}; `anabranch web` shows it with its token",
                door.address
            );
            Some(door)
        }
        Err(error) => {
            tracing::warn!("{error}");
            events.push(EventKind::Warning, None, error.to_string());
            None
        }
    }
}

/// One connection, for as long as one may last. Browsers that are cut off come again by themselves.
async fn serve_connection(stream: TcpStream, router: Router) {
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        // A router is always ready.
        router.clone().call(request.map(axum::body::Body::new) as Request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(MOST_HEADERS)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => debug!("a browser's connection ended: {error}"),
        Err(_) => debug!("a browser's connection was old and is closed"),
    }
}

/// Connections at once.
const MOST_CONNECTIONS: usize = 64;
/// How long a request's head may take.
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Largest head of a request, bytes.
const MOST_HEADERS: usize = 16 * 1024;
/// How long a connection may last, however slowly its other end reads.
const CONNECTION_TIME: Duration = Duration::from_secs(300);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
