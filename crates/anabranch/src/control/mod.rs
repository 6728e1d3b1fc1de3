//! The control API: HTTP and JSON over the daemon's `control.sock`, version 1.
//!
//! | request | answer | body |
//! |---|---|---|
//! | `GET /v1/status` | [`Status`] | |
//! | `GET /v1/networks` | list of [`NetworkReport`] | |
//! | `PUT /v1/networks/NAME` | [`NetworkReport`] | [`NetworkChange`] |
//! | `GET /v1/events?since=N` | list of [`Event`] | |
//! | `GET /v1/events?since=N&follow=1` | [`Event`]s, one JSON object a line, until the caller leaves | |
//! | `GET /v1/flows` | [`Flows`] | |
//! | `POST /v1/explain` | [`Explained`] | [`ExplainRequest`] |
//! | `POST /v1/run` | [`Running`] | [`Hold`] |
//! | `GET /v1/rules` | list of [`RuleReport`] | |
//! | `POST /v1/rules` | [`RuleReport`] | [`PinRequest`] |
//! | `DELETE /v1/rules/NAME` | [`RuleReport`] | |
//! | `GET /v1/neighbours` | [`Neighbourhood`] | |
//! | `PUT /v1/neighbours/NAME` | [`Neighbourhood`] | [`NeighbourKey`] |
//! | `DELETE /v1/neighbours/NAME` | [`Neighbourhood`] | |
//! | `GET /v1/radio` | [`RadioStatus`] | |
//! | `GET /v1/radio/aps` | list of [`AccessPointReport`] | |
//! | `PUT /v1/radio/unreached` | [`Unreached`] | [`Unreached`] |
//! | `POST /v1/radio/scan` | list of [`HeardNetwork`] | |
//! | `POST /v1/down` | [`DownReport`], then the daemon ends | |
//! | `GET /v1/gateway/clients` | [`GatewayClients`] | |
//! | `POST /v1/gateway/invitations` | [`Invited`] | [`InviteRequest`] |
//! | `DELETE /v1/gateway/clients/NAME` | [`Revoked`] | |
//! | `PUT /v1/gateway/limits` | [`ClientReport`] | [`LimitRequest`] |
//! | `POST /v1/gateway/reload` | [`ReloadReport`] | |
//! | `POST /v1/gateway/renewal` | [`RenewReport`] | |
//! | `PUT /v1/gateway/forwards` | [`ForwardReport`] | [`ForwardRequest`] |
//! | `DELETE /v1/gateway/forwards` | [`ForwardReport`] | [`ForwardRequest`] |
//!
//! A request that fails is answered with a 4xx or 5xx status and a [`Failure`]. The socket checks who calls: root, the
//! daemon's user and the owner of the state directory may; others get 403.
//!
//! Flows, explanations, `run` and rules are for every local user, as far as their own flows go; and what a radio's networks are, and the access points
//! in range. They cannot open the state directory, so a device takes the same requests on a socket without a file, [`open_socket`], too, and a radio on
//! [`radio_socket`].

mod access_points;
mod blocking;
mod client;
mod direct;
mod event;
mod gateway;
mod machine;
mod measure;
mod neighbours;
mod pin_socket;
mod radio;
mod status;
#[cfg(test)]
mod tests;

pub use access_points::{AccessPointReport, QualityReport, QualitySource, Unreached};
pub use blocking::{BlockingClient, BlockingEvents};
pub use client::{Client, ClientError, EventStream};
pub use direct::{
    ExplainRequest, Explained, FlowReport, Flows, Hold, NetworkPart, PinRequest, RuleOrigin, RuleReport,
    Running,
};
pub use event::{Event, EventKind, EventSequence};
pub use gateway::{
    AllowanceReport, ClientReport, ForwardReport, ForwardRequest, GatewayClients, InvitationReport,
    InviteRequest, Invited, LimitRequest, LinkText, PortNumber, ReloadReport, RenewReport, Revoked,
    TransportProtocol,
};
pub use machine::MachineReport;
pub use measure::{Fraction, Micros, Seconds, UnixMillis};
pub use neighbours::{NeighbourKey, NeighbourLinkReport, NeighbourReport, Neighbourhood};
pub use pin_socket::pin_socket;
pub use radio::{HeardNetwork, KeptFrame, RadioCounters, RadioNetworkReport, RadioNetworkState, RadioStatus};
pub use status::{
    CarrierKind, CellularReport, DeliveryReport, DirectReport, DownReport, Failure, FailureCode, FarEnd,
    GainReport, NetworkChange, NetworkReport, PacketCounts, PathHealth, PathReport, Role, SessionState,
    Status, Traffic, WifiReport,
};

/// Name of the control socket in the state directory.
pub const SOCKET_NAME: &str = "control.sock";
/// The interface of a device that was not given another name.
pub const DEFAULT_INTERFACE: &str = "any0";
/// Largest body of a request or of an answer that is not a stream, in bytes.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// The socket for every local user of the device whose interface is `interface`: an abstract one (unix(7)), seen
/// in the daemon's network namespace only.
pub fn open_socket(interface: &str) -> std::path::PathBuf {
    format!("\0anabranch/{interface}").into()
}

/// The same of the radio.
pub fn radio_socket() -> std::path::PathBuf {
    open_socket("radio")
}

/// Name of the abstract socket that takes sockets to be tied to a network; see [`pin_socket`].
pub fn sockets_name(interface: &str) -> String {
    format!("anabranch/{interface}/sockets")
}
