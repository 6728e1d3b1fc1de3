//! The control API: HTTP and JSON over the daemon's `control.sock`, version 1.
//!
//! | request | answer | body |
//! |---|---|---|
//! | `GET /v1/status` | [`Status`] | |
//! | `GET /v1/networks` | list of [`NetworkReport`] | |
//! | `PUT /v1/networks/NAME` | [`NetworkReport`] | [`NetworkChange`] |
//! | `GET /v1/events?since=N` | list of [`Event`] | |
//! | `GET /v1/events?since=N&follow=1` | [`Event`]s, one JSON object a line, until the caller leaves | |
//! | `POST /v1/down` | [`DownReport`], then the daemon ends | |
//! | `GET /v1/gateway/clients` | [`GatewayClients`] | |
//! | `POST /v1/gateway/invitations` | [`Invited`] | [`InviteRequest`] |
//! | `DELETE /v1/gateway/clients/NAME` | [`Revoked`] | |
//! | `PUT /v1/gateway/forwards` | [`ForwardReport`] | [`ForwardRequest`] |
//! | `DELETE /v1/gateway/forwards` | [`ForwardReport`] | [`ForwardRequest`] |
//!
//! A request that fails is answered with a 4xx or 5xx status and a [`Failure`]. The socket checks who calls: root, the
//! daemon's user and the owner of the state directory may; others get 403.

mod blocking;
mod client;
mod event;
mod gateway;
mod measure;
mod status;
#[cfg(test)]
mod tests;

pub use blocking::{BlockingClient, BlockingEvents};
pub use client::{Client, ClientError, EventStream};
pub use event::{Event, EventKind, EventSequence};
pub use gateway::{
    ClientReport, ForwardReport, ForwardRequest, GatewayClients, InvitationReport, InviteRequest, Invited,
    LinkText, PortNumber, Revoked, TransportProtocol,
};
pub use measure::{Fraction, Micros, Seconds, UnixMillis};
pub use status::{
    CarrierKind, DownReport, Failure, FailureCode, FarEnd, NetworkChange, NetworkReport, PathHealth,
    PathReport, Role, SessionState, Status, Traffic,
};

/// Name of the control socket in the state directory.
pub const SOCKET_NAME: &str = "control.sock";
/// Largest body of a request or of an answer that is not a stream, in bytes.
pub const MAX_BODY: usize = 4 * 1024 * 1024;
