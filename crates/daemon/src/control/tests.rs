use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anabranch::control::{
    BlockingClient, ClientError, DownReport, EventKind, EventSequence, FailureCode, Fraction, GatewayClients,
    Hold, InviteRequest, Invited, MAX_BODY, NetworkChange, NetworkReport, PathHealth, PathReport, Revoked,
    Role, Seconds, SessionState, Status, Traffic, UnixMillis,
};
use axum::http::Method;
use identity::{Ipv4Pool, PublicKey, Registry, StateDirectory, wall_time};
use policy::limit::LimitSettings;
use policy::{PathStatus, Priority};
use units::{BitRate, Bytes, NetworkId, PathId};

use super::clients::{self, Introduction};
use super::*;

/// A daemon without packets: networks that can be changed, and a real registry.
pub(super) struct Still {
    role: Role,
    networks: Mutex<Vec<NetworkReport>>,
    registry: Mutex<Registry>,
    pub(super) events: EventLog,
}

fn path() -> PathReport {
    PathReport {
        id: PathId(1),
        remote: "[2001:db8::1]:4600".parse().unwrap(),
        carrier: anabranch::control::CarrierKind::Udp,
        status: PathStatus::Active,
        health: PathHealth::Good,
        why: "answers".to_owned(),
        rate: Some(BitRate(40_000_000)),
        rtt: Some(Duration::from_millis(20).into()),
        min_rtt: None,
        extra_delay: None,
        loss: Fraction(0.005),
        in_flight: Bytes(0),
        share: None,
        mtu: Bytes(1_452),
        traffic: Traffic::default(),
        window: None,
        packets: None,
    }
}

impl Backend for Still {
    fn status(&self) -> Result<Status, BackendError> {
        Ok(Status {
            version: "0".to_owned(),
            role: self.role,
            name: "van".to_owned(),
            public_key: String::new(),
            pid: std::process::id(),
            started: UnixMillis::now(),
            state: SessionState::Up,
            why: "all is well".to_owned(),
            interface: "any0".to_owned(),
            addresses: vec!["10.86.0.2".parse().unwrap()],
            mtu: Bytes(1_400),
            far_end: None,
            connected_clients: None,
            traffic: Traffic::default(),
            gain: None,
            delivery: None,
            networks: self.networks.lock().unwrap().clone(),
        })
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        Ok(DownReport { undone: vec!["route".to_owned()], failed: vec![] })
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn set_network(&self, name: &str, change: NetworkChange) -> Result<NetworkReport, BackendError> {
        let mut networks = self.networks.lock().unwrap();
        let network = networks.iter_mut().find(|network| network.name == name);
        let network = network.ok_or_else(|| BackendError::NotFound(format!("there is no network {name}")))?;
        network.priority = change.priority.unwrap_or(network.priority);
        network.backup = change.backup.unwrap_or(network.backup);
        Ok(network.clone())
    }

    fn clients(&self) -> Result<GatewayClients, BackendError> {
        clients::list(&mut self.registry.lock().unwrap(), &LimitSettings::default(), wall_time())
    }

    fn invite(&self, request: &InviteRequest) -> Result<Invited, BackendError> {
        let introduction = Introduction {
            public_key: PublicKey([1; 32]),
            addresses: vec!["192.0.2.1:4600".parse().unwrap()],
            tcp_port: None,
        };
        clients::invite(&mut self.registry.lock().unwrap(), &introduction, request, wall_time())
    }

    fn revoke(&self, name: &str) -> Result<Revoked, BackendError> {
        clients::revoke(&mut self.registry.lock().unwrap(), name).map(|(revoked, _)| revoked)
    }
}

pub(super) struct Bed {
    _directory: tempfile::TempDir,
    pub(super) state: StateDirectory,
    pub(super) backend: Arc<Still>,
    pub(super) server: Option<ControlServer>,
    pub(super) client: BlockingClient,
}

fn bed_for(callers: Option<Callers>, role: Role) -> Bed {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    let network = NetworkReport {
        id: NetworkId(3),
        name: "usb0 é".to_owned(),
        connected: true,
        addresses: vec![],
        status: PathStatus::Active,
        why: String::new(),
        priority: Priority(0),
        backup: false,
        metered: false,
        off: false,
        paths: vec![path()],
        direct: None,
    };
    let backend = Arc::new(Still {
        role,
        networks: Mutex::new(vec![network]),
        registry: Mutex::new(Registry::create(&state, Ipv4Pool::default()).unwrap()),
        events: EventLog::default(),
    });
    let callers = callers.unwrap_or_else(|| Callers::of_state(&state, None).unwrap());
    let server = ControlServer::start(&state, callers, backend.clone()).unwrap();
    let client = BlockingClient::of_state(state.path()).unwrap();
    Bed { _directory: directory, state, backend, server: Some(server), client }
}

pub(super) fn bed() -> Bed {
    bed_for(None, Role::Device)
}

fn code<T: std::fmt::Debug>(answer: Result<T, ClientError>) -> FailureCode {
    match answer.unwrap_err() {
        ClientError::Failed(failure) => failure.code,
        other => panic!("{other}"),
    }
}

/// Sends bytes as they are, and returns what comes back.
fn raw(bed: &Bed, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(bed.state.file("control.sock")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    // The server may close before it has read all.
    let _ = stream.write_all(request);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_device_is_read_and_changed() {
    let bed = bed();
    let status = bed.client.status().unwrap();
    assert_eq!((status.role, status.networks[0].paths[0].clone()), (Role::Device, path()));
    assert_eq!(bed.client.networks().unwrap(), status.networks);
    let change =
        NetworkChange { priority: Some(Priority(7)), backup: Some(true), ..NetworkChange::default() };
    let changed = bed.client.set_network("usb0 é", change).unwrap();
    assert_eq!((changed.priority, changed.backup), (Priority(7), true));
    assert_eq!(bed.client.networks().unwrap(), [changed]);
    assert_eq!(code(bed.client.set_network("wlan9", change)), FailureCode::NotFound);
    assert_eq!(bed.client.down().unwrap().undone, ["route"]);
}

#[test]
fn a_gateway_invites_and_revokes() {
    let bed = bed_for(None, Role::Gateway);
    let request = InviteRequest { name: "boat".to_owned(), lifetime_seconds: Seconds(60) };
    let invited = bed.client.invite(&request).unwrap();
    let link = wire::join_link::JoinLink::parse(&invited.link.0).unwrap();
    assert_eq!(link.public_key, [1; 32]);
    assert!(!format!("{invited:?}").contains(&invited.link.0), "links stay out of logs");
    assert_eq!(bed.client.gateway_clients().unwrap().invitations[0].name, "boat");
    bed.backend.registry.lock().unwrap().redeem(&link.secret, PublicKey([2; 32]), wall_time()).unwrap();
    let listed = bed.client.gateway_clients().unwrap();
    assert_eq!((listed.clients[0].name.as_str(), listed.invitations.len()), ("boat", 0));
    assert_eq!(code(bed.client.invite(&request)), FailureCode::Conflict);
    let long = InviteRequest { name: "x".repeat(65), ..request.clone() };
    assert_eq!(code(bed.client.invite(&long)), FailureCode::BadRequest);
    let endless = InviteRequest { name: "x".to_owned(), lifetime_seconds: Seconds(u64::MAX) };
    assert_eq!(code(bed.client.invite(&endless)), FailureCode::BadRequest);
    assert!(bed.client.revoke("boat").unwrap().client);
    assert_eq!(code(bed.client.revoke("boat")), FailureCode::NotFound);
    assert_eq!(code(bed.client.networks()), FailureCode::WrongRole);
}

#[test]
fn events_are_listed_and_followed() {
    let bed = bed();
    bed.backend.events.push(EventKind::Started, None, "one");
    bed.backend.events.push(EventKind::NetworkUp, Some("usb0"), "two");
    let listed = bed.client.events(EventSequence(1)).unwrap();
    assert_eq!((listed.len(), listed[0].text.as_str()), (1, "two"));
    let mut followed = bed.client.follow_events(EventSequence(0)).unwrap().map(|event| event.unwrap().text);
    assert_eq!((followed.next().unwrap(), followed.next().unwrap()), ("one".to_owned(), "two".to_owned()));
    bed.backend.events.push(EventKind::Warning, None, "three");
    assert_eq!(followed.next().unwrap(), "three");
}

#[test]
fn a_slow_follower_gets_everything_that_is_kept() {
    let bed = bed();
    let followed = bed.client.follow_events(EventSequence(0)).unwrap();
    for number in 1..=900u64 {
        bed.backend.events.push(EventKind::Warning, None, number.to_string());
    }
    let numbers: Vec<u64> = followed.take(900).map(|event| event.unwrap().sequence.0).collect();
    assert_eq!(numbers, (1..=900).collect::<Vec<_>>());
}

#[test]
fn stopping_ends_followers_and_removes_the_socket() {
    let mut bed = bed();
    let socket = bed.state.file("control.sock");
    assert_eq!(fs::metadata(&socket).unwrap().permissions().mode() & 0o777, 0o660);
    let mut followed = bed.client.follow_events(EventSequence(0)).unwrap();
    let started = Instant::now();
    bed.server = None;
    assert!(followed.next().is_none());
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    assert!(!socket.exists());
    assert!(matches!(bed.client.status(), Err(ClientError::NotRunning(_))));
}

#[test]
fn a_connection_that_says_nothing_does_not_hold_the_end_up_for_long() {
    let mut bed = bed();
    let _silent = UnixStream::connect(bed.state.file("control.sock")).unwrap();
    let started = Instant::now();
    bed.server = None;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[test]
fn a_dead_daemons_socket_is_replaced() {
    let mut bed = bed();
    bed.server = None;
    drop(UnixListener::bind(bed.state.file("control.sock")).unwrap());
    assert!(matches!(bed.client.status(), Err(ClientError::NotRunning(_))));
    let callers = Callers::of_state(&bed.state, None).unwrap();
    bed.server = Some(ControlServer::start(&bed.state, callers, bed.backend.clone()).unwrap());
    assert!(bed.client.status().is_ok());
}

#[test]
fn other_users_are_refused_with_a_message() {
    let own = rustix::process::geteuid().as_raw();
    let bed = bed_for(Some(Callers::only(vec![own + 1])), Role::Device);
    let error = bed.client.status().unwrap_err();
    assert!(error.to_string().contains(&format!("user {own} may not control this daemon")), "{error}");
    assert_eq!(code(Err::<(), _>(error)), FailureCode::NotAllowed);
    assert_eq!(code(bed.client.down()), FailureCode::NotAllowed);
    assert_eq!(code(bed.client.follow_events(EventSequence(0)).map(|_| ())), FailureCode::NotAllowed);
}

#[test]
fn root_the_daemon_and_the_owner_are_allowed() {
    let bed = bed();
    let callers = Callers::of_state(&bed.state, Some(777)).unwrap();
    let allowed = |user| callers.allow(Caller { user, process: None });
    assert!(allowed(Some(0)) && allowed(Some(777)) && allowed(Some(rustix::process::geteuid().as_raw())));
    assert!(!allowed(Some(778)) && !allowed(None));
}

#[test]
fn every_user_may_ask_about_own_flows_and_nothing_else() {
    let own = rustix::process::geteuid().as_raw();
    let bed = bed_for(Some(Callers::only(vec![own + 1])), Role::Device);
    // The backend of this test has no flows: it was asked, so the caller was let in.
    assert_eq!(code(bed.client.flows()), FailureCode::WrongRole);
    assert_eq!(code(bed.client.run(&Hold::default())), FailureCode::WrongRole);
    assert_eq!(code(bed.client.unpin("pin-1")), FailureCode::WrongRole);
    assert_eq!(code(bed.client.networks()), FailureCode::NotAllowed);
    let callers = Callers::only(vec![5]);
    let admit = |user, method, path| {
        let requester = callers.admit(Caller { user, process: Some(7) }, RequestClass::of(&method, path));
        requester.map(|requester| requester.controls)
    };
    for (method, path) in [
        (Method::GET, "/v1/flows"),
        (Method::GET, "/v1/machine"),
        (Method::GET, "/v1/radio"),
        (Method::GET, "/v1/radio/aps"),
        (Method::GET, "/v1/rules"),
        (Method::POST, "/v1/rules"),
        (Method::DELETE, "/v1/rules/pin-1"),
        (Method::POST, "/v1/explain"),
        (Method::POST, "/v1/run"),
    ] {
        assert_eq!(admit(Some(6), method.clone(), path), Some(false), "{path}");
        assert_eq!(admit(Some(5), method.clone(), path), Some(true), "{path}");
        assert_eq!(admit(None, method, path), None, "{path}");
    }
    for (method, path) in [
        (Method::POST, "/v1/down"),
        (Method::GET, "/v1/status"),
        (Method::PUT, "/v1/networks/wlan0"),
        (Method::DELETE, "/v1/rules"),
        (Method::PUT, "/v1/rules/pin-1"),
        (Method::POST, "/v1/runs"),
    ] {
        assert_eq!(admit(Some(6), method.clone(), path), None, "{path}");
        assert_eq!(admit(Some(5), method, path), Some(true), "{path}");
    }
}

#[test]
fn bodies_are_bounded_and_nonsense_is_named() {
    let bed = bed();
    let put = |body: &str| {
        let head = "PUT /v1/networks/usb0 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n";
        raw(&bed, format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes())
    };
    let large = put(&" ".repeat(MAX_BODY + 1));
    assert!(large.starts_with("HTTP/1.1 413"), "{large}");
    let wrong = put("{\"colour\": 1}");
    assert!(wrong.starts_with("HTTP/1.1 400") && wrong.contains("unknown field `colour`"), "{wrong}");
    let missing = raw(&bed, b"GET /v2/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(missing.starts_with("HTTP/1.1 404") && missing.contains("same version"), "{missing}");
    let method = raw(&bed, b"DELETE /v1/status HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(method.starts_with("HTTP/1.1 405") && method.contains("not-found"), "{method}");
    let number = raw(&bed, b"GET /v1/events?since=x HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    assert!(number.starts_with("HTTP/1.1 400") && number.contains("bad-request"), "{number}");
    assert!(raw(&bed, b"\x16\x03\x01 no HTTP\r\n\r\n").starts_with("HTTP/1.1 400"));
    assert!(bed.client.status().is_ok(), "and goes on");
}

#[test]
fn a_path_that_does_not_fit_a_socket_is_named() {
    let bed = bed();
    let long = StateDirectory::create(bed.state.path().join("d".repeat(120))).unwrap();
    let callers = Callers::only(vec![0]);
    let Err(error) = ControlServer::start(&long, callers, bed.backend.clone()) else { panic!("it fits") };
    assert!(error.to_string().contains("too long for a socket"), "{error}");
}

#[test]
fn with_nothing_left_behind_there_is_nothing_to_restore() {
    let directory = tempfile::tempdir().unwrap();
    let state = StateDirectory::create(directory.path().join("state")).unwrap();
    assert_eq!(restore(&state).unwrap(), DownReport::default());
    let _lock = identity::DaemonLock::take(&state).unwrap();
    assert!(matches!(restore(&state), Err(RestoreError::Lock(_))), "a living daemon's changes are its own");
}
