//! Requests about a gateway's clients, answered from its registry: by the gateway's loop, and by the command itself
//! while no gateway runs.

use std::num::NonZeroU16;
use std::time::Duration;

use anabranch::control::{
    AllowanceReport, ClientReport, ForwardReport, ForwardRequest, GatewayClients, InvitationReport,
    InviteRequest, Invited, LimitRequest, LinkText, PortNumber, Revoked, Traffic, TransportProtocol,
    UnixMillis,
};
use identity::{
    Client, Forward, ForwardError, InvitationKind, InviteError, LimitError, Protocol, PublicKey, Registry,
    RegistryError, RevokeError, UnixSeconds,
};
use policy::calendar::Day;
use policy::limit::LimitSettings;
use wire::hello::Name;
use wire::join_link::{HostPort, JoinLink, MAX_ADDRESSES};

use super::BackendError;

/// Longest life of an invitation: a year.
const MAX_LIFETIME: Duration = Duration::from_secs(365 * 86_400);

/// What a join link says about the gateway.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Introduction {
    /// The gateway's key.
    pub public_key: PublicKey,
    /// Where it may be reached, best first; at most [`MAX_ADDRESSES`] are used.
    pub addresses: Vec<HostPort>,
    /// Port of the framed-TCP carrier.
    pub tcp_port: Option<NonZeroU16>,
}

/// Clients and invitations. Nobody is connected in it: a loop adds what it knows of its sessions.
///
/// # Errors
/// If the registry fails.
pub fn list(
    registry: &mut Registry,
    limits: &LimitSettings,
    now: UnixSeconds,
) -> Result<GatewayClients, BackendError> {
    let forwards = registry.forwards()?;
    let clients = registry.clients()?.into_iter();
    let clients = clients.map(|client| describe(client, &forwards, limits, now)).collect();
    let invitations = registry.invitations(now)?.into_iter().map(|invitation| InvitationReport {
        name: invitation.name,
        kind: invitation.kind,
        created: UnixMillis::from_seconds(invitation.created.0),
        expires: UnixMillis::from_seconds(invitation.expires.0),
        expired: invitation.expired,
    });
    Ok(GatewayClients { clients, invitations: invitations.collect() })
}

fn describe(client: Client, forwards: &[Forward], limits: &LimitSettings, now: UnixSeconds) -> ClientReport {
    let used = client.used.in_month(limits.month(today(now)));
    let allowance = limits.allowance(client.limits, used);
    ClientReport {
        public_key: client.public_key.to_string(),
        addresses: client
            .lease
            .v4
            .map(|v4| v4.address.into())
            .into_iter()
            .chain([client.lease.v6.address.into()])
            .collect(),
        joined: UnixMillis::from_seconds(client.joined.0),
        last_seen: client.last_seen.map(|time| UnixMillis::from_seconds(time.0)),
        connected: false,
        connected_since: None,
        paths: Vec::new(),
        outward: Vec::new(),
        traffic: Traffic::default(),
        forwards: forwards.iter().filter(|forward| forward.client == client.name).map(report).collect(),
        allowance: AllowanceReport {
            rate: allowance.rate,
            quota: allowance.quota,
            used,
            slowed: allowance.slowed,
        },
        name: client.name,
    }
}

/// The day of a gateway's books: everywhere the same.
pub fn today(now: UnixSeconds) -> Day {
    Day(i32::try_from(now.0 / 86_400).unwrap_or(i32::MAX))
}

/// Gives a client limits of its own. A loop then keeps to them for the key that is returned beside the answer.
///
/// # Errors
/// [`BackendError::NotFound`] if nobody has the name.
pub fn limit(
    registry: &mut Registry,
    limits: &LimitSettings,
    request: &LimitRequest,
    now: UnixSeconds,
) -> Result<(ClientReport, PublicKey), BackendError> {
    let client = registry.limit(&request.client, request.rate, request.quota)?;
    let (key, forwards) = (client.public_key, registry.forwards()?);
    Ok((describe(client, &forwards, limits, now), key))
}

/// Makes an invitation and its link.
///
/// # Errors
/// A name that is none, a lifetime that is none, no address to put into the link, or a name that is taken.
pub fn invite(
    registry: &mut Registry,
    introduction: &Introduction,
    request: &InviteRequest,
    now: UnixSeconds,
) -> Result<Invited, BackendError> {
    Name::new(&request.name).map_err(|error| BackendError::BadRequest(error.to_string()))?;
    let lifetime = Duration::from_secs(request.lifetime_seconds.0);
    if lifetime.is_zero() || lifetime > MAX_LIFETIME {
        return Err(BackendError::BadRequest("an invitation lives for 1 second to 365 days".to_owned()));
    }
    if introduction.addresses.is_empty() {
        return Err(BackendError::BadRequest(
            "the gateway has no public address to put into the link: set public_addresses under [gateway] in its config"
                .to_owned(),
        ));
    }
    let invited = registry.invite(InvitationKind::Gateway, &request.name, lifetime, now)?;
    let link = JoinLink {
        kind: InvitationKind::Gateway,
        public_key: introduction.public_key.0,
        addresses: introduction.addresses.iter().take(MAX_ADDRESSES).cloned().collect(),
        tcp_port: introduction.tcp_port,
        secret: invited.secret,
        expires: invited.expires,
    };
    let text = link.encode().map_err(|error| BackendError::Internal(error.to_string()))?;
    Ok(Invited {
        name: request.name.clone(),
        link: LinkText(text),
        expires: UnixMillis::from_seconds(invited.expires.0),
        replaced: invited.replaced,
    })
}

/// Removes a client. A loop then ends the session of the key that is returned beside the answer.
///
/// # Errors
/// [`BackendError::NotFound`] if nobody has the name.
pub fn revoke(registry: &mut Registry, name: &str) -> Result<(Revoked, Option<PublicKey>), BackendError> {
    let revoked = registry.revoke(name)?;
    let key = revoked.client.as_ref().map(|client| client.public_key);
    let answer = Revoked { name: name.to_owned(), client: key.is_some(), invitation: revoked.invitation };
    Ok((answer, key))
}

/// Makes a port lead to a client.
///
/// # Errors
/// [`BackendError::NotFound`] or [`BackendError::Conflict`].
pub fn forward(registry: &mut Registry, request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
    let device_port = request.device_port.unwrap_or(request.port);
    let made = registry.forward(
        request.client.as_deref(),
        protocol(request.protocol),
        request.port.0,
        device_port.0,
    )?;
    Ok(report(&made))
}

/// Takes a forwarded port back.
///
/// # Errors
/// [`BackendError::NotFound`] if it is not forwarded.
pub fn stop_forward(
    registry: &mut Registry,
    request: &ForwardRequest,
) -> Result<ForwardReport, BackendError> {
    Ok(report(&registry.stop_forward(protocol(request.protocol), request.port.0)?))
}

fn protocol(protocol: TransportProtocol) -> Protocol {
    match protocol {
        TransportProtocol::Tcp => Protocol::Tcp,
        TransportProtocol::Udp => Protocol::Udp,
    }
}

fn report(forward: &Forward) -> ForwardReport {
    ForwardReport {
        client: forward.client.clone(),
        port: PortNumber(forward.port),
        device_port: PortNumber(forward.device_port),
        protocol: match forward.protocol {
            Protocol::Tcp => TransportProtocol::Tcp,
            Protocol::Udp => TransportProtocol::Udp,
        },
    }
}

impl From<RegistryError> for BackendError {
    fn from(error: RegistryError) -> Self {
        match error {
            RegistryError::Damaged | RegistryError::Other(_) => Self::Internal(error.to_string()),
            RegistryError::DiskFull
            | RegistryError::ReadOnly
            | RegistryError::Busy
            | RegistryError::Gone(_) => Self::Unavailable(error.to_string()),
        }
    }
}

impl From<InviteError> for BackendError {
    fn from(error: InviteError) -> Self {
        match error {
            InviteError::NameTaken(_) | InviteError::TooMany(_) => Self::Conflict(error.to_string()),
            InviteError::Randomness(_) => Self::Internal(error.to_string()),
            InviteError::Registry(error) => error.into(),
        }
    }
}

impl From<LimitError> for BackendError {
    fn from(error: LimitError) -> Self {
        match error {
            LimitError::Unknown(_) => Self::NotFound(error.to_string()),
            LimitError::Registry(error) => error.into(),
        }
    }
}

impl From<RevokeError> for BackendError {
    fn from(error: RevokeError) -> Self {
        match error {
            RevokeError::Unknown(_) => Self::NotFound(error.to_string()),
            RevokeError::Registry(error) => error.into(),
        }
    }
}

impl From<ForwardError> for BackendError {
    fn from(error: ForwardError) -> Self {
        match error {
            ForwardError::UnknownClient(_) | ForwardError::NotForwarded { .. } => {
                Self::NotFound(error.to_string())
            }
            ForwardError::WhichClient(_) => Self::BadRequest(error.to_string()),
            ForwardError::PortTaken { .. } => Self::Conflict(error.to_string()),
            ForwardError::Registry(error) => error.into(),
        }
    }
}
