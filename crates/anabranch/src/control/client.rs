//! A client of the control socket for programs that use tokio.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::net::UnixStream;

use super::{
    ClientReport, DownReport, Event, EventSequence, Failure, ForwardReport, ForwardRequest, GatewayClients,
    InviteRequest, Invited, LimitRequest, MAX_BODY, NetworkChange, NetworkReport, ReloadReport, RenewReport,
    Revoked, SOCKET_NAME, Status,
};

/// How long an answer may take: `down` takes back routes and rules meanwhile.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest line of the event stream, in bytes.
const MAX_EVENT_LINE: usize = 64 * 1024;

/// Talks to one daemon; opens a connection for each request.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

/// Why a request got no answer that can be used.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody listens.
    #[error(
        "no daemon is running here: {} does not answer; start it with `anabranch up`, or on a gateway with `anabranch gateway run`",
        shown(.0)
    )]
    NotRunning(PathBuf),
    /// The socket may not be opened.
    #[error(
        "not allowed to use {}: run this as root or as the owner of the state directory",
        .0.display()
    )]
    NotAllowed(PathBuf),
    /// The daemon said no.
    #[error("{}", .0.message)]
    Failed(Failure),
    /// No answer in time.
    #[error("the daemon has not answered for {} s", ANSWER_TIMEOUT.as_secs())]
    Timeout,
    /// The socket failed.
    #[error("the control socket failed: {0}")]
    Io(#[from] io::Error),
    /// The connection failed.
    #[error("the control connection failed: {0}")]
    Connection(#[from] hyper::Error),
    /// The answer is not what this version expects.
    #[error("the daemon's answer makes no sense ({0}); are daemon and command of the same version?")]
    Answer(String),
}

impl Client {
    /// A client of the daemon whose control socket is `socket`. Nothing is opened yet.
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// A client of the daemon that keeps its state in `directory`.
    pub fn of_state(directory: &Path) -> Self {
        Self::new(directory.join(SOCKET_NAME))
    }

    /// The whole daemon at a glance.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get("/v1/status").await
    }

    /// The networks with their paths.
    ///
    /// # Errors
    /// Any [`ClientError`]; a gateway answers `WrongRole`.
    pub async fn networks(&self) -> Result<Vec<NetworkReport>, ClientError> {
        self.get("/v1/networks").await
    }

    /// Changes a network's settings until the daemon ends.
    ///
    /// # Errors
    /// Any [`ClientError`]; `NotFound` if there is no network of that name.
    pub async fn set_network(&self, name: &str, change: NetworkChange) -> Result<NetworkReport, ClientError> {
        self.send(Method::PUT, &format!("/v1/networks/{}", escape(name)), Some(&change)).await
    }

    /// The events after number `since` that the daemon still remembers.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn events(&self, since: EventSequence) -> Result<Vec<Event>, ClientError> {
        self.get(&format!("/v1/events?since={}", since.0)).await
    }

    /// The events after number `since`, then each as it happens.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn follow_events(&self, since: EventSequence) -> Result<EventStream, ClientError> {
        let uri = format!("/v1/events?follow=1&since={}", since.0);
        let response = self.request(Method::GET, &uri, None::<&()>).await?;
        Ok(EventStream { body: response.into_body(), line: Vec::new() })
    }

    /// Makes the daemon take back what it changed, and end.
    ///
    /// # Errors
    /// Any [`ClientError`].
    pub async fn down(&self) -> Result<DownReport, ClientError> {
        self.send(Method::POST, "/v1/down", None::<&()>).await
    }

    /// The clients and invitations of a gateway.
    ///
    /// # Errors
    /// Any [`ClientError`]; a device answers `WrongRole`.
    pub async fn gateway_clients(&self) -> Result<GatewayClients, ClientError> {
        self.get("/v1/gateway/clients").await
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// Any [`ClientError`]; `Conflict` if a client of that name exists.
    pub async fn invite(&self, request: &InviteRequest) -> Result<Invited, ClientError> {
        self.send(Method::POST, "/v1/gateway/invitations", Some(request)).await
    }

    /// Removes a client, ends its session and withdraws an unused invitation of that name.
    ///
    /// # Errors
    /// Any [`ClientError`]; `NotFound` if there is neither.
    pub async fn revoke(&self, name: &str) -> Result<Revoked, ClientError> {
        self.send(Method::DELETE, &format!("/v1/gateway/clients/{}", escape(name)), None::<&()>).await
    }

    /// Gives a client of the gateway limits of its own.
    ///
    /// # Errors
    /// Any [`ClientError`]; `NotFound` if there is no such client.
    pub async fn limit(&self, request: &LimitRequest) -> Result<ClientReport, ClientError> {
        self.send(Method::PUT, "/v1/gateway/limits", Some(request)).await
    }

    /// Has the gateway read its configuration anew.
    ///
    /// # Errors
    /// Any [`ClientError`]; if the configuration is wrong, the old one goes on to hold.
    pub async fn reload(&self) -> Result<ReloadReport, ClientError> {
        self.send(Method::POST, "/v1/gateway/reload", None::<&()>).await
    }

    /// Has the gateway become the program that is installed in its place.
    ///
    /// # Errors
    /// Any [`ClientError`]; if that program could not start, nothing happens.
    pub async fn renew(&self) -> Result<RenewReport, ClientError> {
        self.send(Method::POST, "/v1/gateway/renewal", None::<&()>).await
    }

    /// Makes a port of the gateway lead to a client.
    ///
    /// # Errors
    /// Any [`ClientError`]; `Conflict` if the port leads elsewhere.
    pub async fn forward(&self, request: &ForwardRequest) -> Result<ForwardReport, ClientError> {
        self.send(Method::PUT, "/v1/gateway/forwards", Some(request)).await
    }

    /// Takes a forwarded port back.
    ///
    /// # Errors
    /// Any [`ClientError`]; `NotFound` if the port is not forwarded.
    pub async fn stop_forward(&self, request: &ForwardRequest) -> Result<ForwardReport, ClientError> {
        self.send(Method::DELETE, "/v1/gateway/forwards", Some(request)).await
    }

    pub(super) async fn get<A: DeserializeOwned>(&self, uri: &str) -> Result<A, ClientError> {
        self.send(Method::GET, uri, None::<&()>).await
    }

    pub(super) async fn send<B: Serialize, A: DeserializeOwned>(
        &self,
        method: Method,
        uri: &str,
        body: Option<&B>,
    ) -> Result<A, ClientError> {
        let answer = async {
            let response = self.request(method, uri, body).await?;
            read_json(response).await
        };
        tokio::time::timeout(ANSWER_TIMEOUT, answer).await.map_err(|_| ClientError::Timeout)?
    }

    /// Sends a request and hands back the answer's head if it is one of success.
    async fn request<B: Serialize>(
        &self,
        method: Method,
        uri: &str,
        body: Option<&B>,
    ) -> Result<Response<Incoming>, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|error| self.connect_error(error))?;
        // Anybody may take an abstract name before a daemon does; only root's answers count.
        let abstract_name = self.socket.as_os_str().as_encoded_bytes().starts_with(b"\0");
        let server = stream.peer_cred()?.uid();
        if abstract_name && server != 0 && server != rustix::process::geteuid().as_raw() {
            return Err(ClientError::Answer(format!("the socket is held by user {server}, not by root")));
        }
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends by itself when the answer's body is dropped or read.
        tokio::spawn(connection);
        let body = match body {
            Some(body) => serde_json::to_vec(body).map_err(|error| ClientError::Answer(error.to_string()))?,
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "anabranch")
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| ClientError::Answer(error.to_string()))?;
        let response = sender.send_request(request).await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        Err(match read_json::<Failure>(response).await {
            Ok(failure) => ClientError::Failed(failure),
            Err(_) => ClientError::Answer(describe(status)),
        })
    }

    fn connect_error(&self, error: io::Error) -> ClientError {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NotRunning(self.socket.clone())
            }
            io::ErrorKind::PermissionDenied => ClientError::NotAllowed(self.socket.clone()),
            _ => ClientError::Io(error),
        }
    }
}

/// Events as they happen.
#[derive(Debug)]
pub struct EventStream {
    body: Incoming,
    line: Vec<u8>,
}

impl EventStream {
    /// The next event; `None` when the daemon has ended.
    ///
    /// # Errors
    /// [`ClientError::Connection`] or [`ClientError::Answer`].
    pub async fn next(&mut self) -> Result<Option<Event>, ClientError> {
        loop {
            if let Some(end) = self.line.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.line.drain(..=end).collect();
                let event =
                    serde_json::from_slice(&line).map_err(|error| ClientError::Answer(error.to_string()))?;
                return Ok(Some(event));
            }
            if self.line.len() > MAX_EVENT_LINE {
                return Err(ClientError::Answer("an event longer than any".to_owned()));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame?.into_data() {
                self.line.extend_from_slice(&data);
            }
        }
    }
}

async fn read_json<A: DeserializeOwned>(response: Response<Incoming>) -> Result<A, ClientError> {
    let body = Limited::new(response.into_body(), MAX_BODY);
    let bytes = body.collect().await.map_err(|error| ClientError::Answer(error.to_string()))?.to_bytes();
    serde_json::from_slice(&bytes).map_err(|error| ClientError::Answer(error.to_string()))
}

/// An abstract socket is shown as other programs do.
fn shown(socket: &Path) -> String {
    socket.to_string_lossy().replace('\0', "@")
}

fn describe(status: StatusCode) -> String {
    format!("HTTP status {status}")
}

/// Percent-encodes all but the unreserved characters of RFC 3986 section 2.3.
pub(super) fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            escaped.push_str(&format!("%{byte:02X}"));
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_for_the_path() {
        assert_eq!(escape("wlan0"), "wlan0");
        assert_eq!(escape("a b/ü?"), "a%20b%2F%C3%BC%3F");
    }
}
