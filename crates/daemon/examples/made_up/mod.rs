//! A device, a gateway or a shared radio that is made up: networks that change each second, a thousand flows. Examples and tests share it.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch::control::{
    CarrierKind, ClientReport, DirectReport, DownReport, EventKind, FlowReport, Flows, Fraction, GainReport,
    GatewayClients, HeardNetwork, InviteRequest, Invited, LimitRequest, Micros, NeighbourKey,
    NeighbourReport, Neighbourhood, NetworkChange, NetworkReport, PathHealth, PathReport, PinRequest,
    RadioNetworkReport, RadioNetworkState, RadioStatus, ReloadReport, Revoked, Role, RuleOrigin, RuleReport,
    SessionState, Status, Traffic, UnixMillis, WifiReport,
};
use daemon::control::clients::{self, Introduction};
use daemon::control::{Backend, BackendError, EventLog, Requester};
use identity::{Ipv4Pool, PublicKey, Registry, StateDirectory, wall_time};
use policy::gain::Direction;
use policy::limit::LimitSettings;
use policy::{PathStatus, Priority, Treatment};
use units::{BitRate, Bytes, NetworkId, PathId};

const FLOWS: u32 = 1_000;

/// What answers.
pub struct MadeUp {
    role: Role,
    begun: Instant,
    started: UnixMillis,
    networks: Mutex<Vec<NetworkReport>>,
    rules: Mutex<Vec<RuleReport>>,
    neighbours: Mutex<Vec<NeighbourReport>>,
    registry: Mutex<Registry>,
    pub events: EventLog,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn network(number: u32) -> NetworkReport {
    let path = PathReport {
        id: PathId(number as u8 + 1),
        remote: SocketAddr::from(([192, 0, 2, 1], 4_600)),
        carrier: CarrierKind::Udp,
        status: PathStatus::Active,
        health: if number == 3 { PathHealth::Suspect } else { PathHealth::Good },
        why: if number == 3 { "silent: its packets go elsewhere until it answers" } else { "carries data" }
            .to_owned(),
        rate: Some(BitRate(u64::from(number + 1) * 6_000_000)),
        rtt: None,
        min_rtt: Some(Micros(9_000)),
        extra_delay: None,
        loss: Fraction(f64::from(number) * 0.002),
        in_flight: Bytes(u64::from(number) * 9_000),
        mtu: Bytes(1_452),
        share: Some(Fraction(1.0 / 9.0)),
        traffic: Traffic::default(),
        window: None,
        packets: None,
    };
    let wifi =
        WifiReport { ssid: Some("Café <b>".to_owned()), signal_dbm: Some(-61), ..WifiReport::default() };
    NetworkReport {
        id: NetworkId(number),
        name: ["eth0", "wlan0", "wwan0", "usb0"]
            .get(number as usize)
            .map_or_else(|| format!("tap{number}"), |name| (*name).to_owned()),
        connected: number != 9,
        addresses: vec![],
        status: PathStatus::Active,
        why: if number == 9 {
            "no link: cable out, not associated, or modem not connected"
        } else {
            "in use"
        }
        .to_owned(),
        priority: Priority(0),
        backup: false,
        metered: number == 2,
        off: false,
        paths: if number == 9 { vec![] } else { vec![path] },
        direct: (number == 1).then(|| DirectReport { wifi: Some(wifi), ..DirectReport::default() }),
    }
}

impl MadeUp {
    /// With this many networks; its clients are in the registry of `state`.
    pub fn new(role: Role, networks: u32, state: &StateDirectory) -> Result<Self, identity::CreateError> {
        let made = Self {
            role,
            started: UnixMillis::now(),
            begun: Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now),
            networks: Mutex::new((0..networks).map(network).collect()),
            rules: Mutex::default(),
            neighbours: Mutex::default(),
            registry: Mutex::new(Registry::create(state, Ipv4Pool::default())?),
            events: EventLog::default(),
        };
        made.events.push(EventKind::Started, None, "the daemon has started");
        Ok(made)
    }

    fn now(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }

    fn moved(&self) -> Vec<NetworkReport> {
        let now = self.now();
        let mut networks = lock(&self.networks).clone();
        for (number, path) in networks.iter_mut().flat_map(|network| &mut network.paths).enumerate() {
            let wave = (now / 7.0 + number as f64).sin() + 1.2;
            path.traffic.receiving = BitRate((wave * 2.5e6 * (number + 1) as f64) as u64);
            path.traffic.sending = BitRate(path.traffic.receiving.0 / 9);
            path.rtt = Some(Micros((wave * 9_000.0) as u64 + 8_000 * number as u64));
        }
        networks
    }
}

impl Backend for MadeUp {
    fn status(&self) -> Result<Status, BackendError> {
        let networks = if self.role == Role::Device { self.moved() } else { Vec::new() };
        let bonded =
            networks.iter().flat_map(|network| &network.paths).map(|path| path.traffic.receiving.0).sum();
        let gain = GainReport {
            direction: Direction::Receiving,
            bonded: BitRate(bonded),
            best_alone: BitRate(38_000_000),
            network: "eth0".to_owned(),
        };
        Ok(Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: self.role,
            name: "van".to_owned(),
            public_key: PublicKey([1; 32]).to_string(),
            pid: std::process::id(),
            started: self.started,
            state: SessionState::Up,
            why: "data flows".to_owned(),
            interface: "any0".to_owned(),
            addresses: vec![[10, 86, 0, 2].into()],
            mtu: Bytes(1_440),
            far_end: None,
            connected_clients: (self.role == Role::Gateway).then_some(1),
            traffic: Traffic { receiving: BitRate(bonded), ..Traffic::default() },
            delivery: None,
            gain: (self.role == Role::Device).then_some(gain),
            networks,
        })
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        Ok(DownReport { undone: vec!["rule".to_owned(), "route".to_owned()], failed: vec![] })
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn set_network(&self, name: &str, change: NetworkChange) -> Result<NetworkReport, BackendError> {
        let mut networks = lock(&self.networks);
        let network = networks.iter_mut().find(|network| network.name == name);
        let network = network.ok_or_else(|| BackendError::NotFound(format!("there is no network {name}")))?;
        network.priority = change.priority.unwrap_or(network.priority);
        network.backup = change.backup.unwrap_or(network.backup);
        network.metered = change.metered.unwrap_or(network.metered);
        network.off = change.off.unwrap_or(network.off);
        network.status = if network.off { PathStatus::Off } else { PathStatus::Active };
        self.events.push(EventKind::NetworkChanged, Some(name), format!("{name} was changed"));
        Ok(network.clone())
    }

    fn flows(&self, _by: Requester) -> Result<Flows, BackendError> {
        let beat = self.now() as u64;
        let flow = |number: u32| FlowReport {
            protocol: if number.is_multiple_of(5) { "udp" } else { "tcp" }.to_owned(),
            source: SocketAddr::from(([10, 86, 0, 2], 20_000 + number as u16)),
            destination: SocketAddr::from(([198, 51, 100, (number % 250) as u8], 443)),
            program: Some(["firefox", "rsync", "<script>alert(1)</script>"][number as usize % 3].to_owned()),
            process: Some(1_000 + number),
            user: Some(1_000),
            treatment: if number.is_multiple_of(4) { Treatment::Direct } else { Treatment::Bonded },
            network: (number.is_multiple_of(4)).then(|| "wlan0".to_owned()),
            sent: None,
            received: None,
            sending: Some(BitRate(u64::from(number) * 100)),
            receiving: Some(BitRate((u64::from(number) * 7_919 + beat * 1_009) % 5_000_000)),
            rtt: Some(Micros(20_000 + u64::from(number))),
            why: "no rule: as the configuration has it".to_owned(),
        };
        Ok(Flows { flows: (0..FLOWS).map(flow).collect(), left_out: 0, remarks: vec![] })
    }

    fn rules(&self, _by: Requester) -> Result<Vec<RuleReport>, BackendError> {
        Ok(lock(&self.rules).clone())
    }

    fn pin(&self, _by: Requester, request: &PinRequest) -> Result<RuleReport, BackendError> {
        let mut rules = lock(&self.rules);
        let to = request.destination.map(|prefix| prefix.to_string()).or_else(|| request.domain.clone());
        let rule = RuleReport {
            name: format!("pin-{}", rules.len() + 1),
            origin: RuleOrigin::Pin,
            matches: format!("to {}", to.unwrap_or_default()),
            decides: format!("direct, over {}", request.hold.networks.join(", ")),
            user: None,
            remark: None,
        };
        rules.push(rule.clone());
        Ok(rule)
    }

    fn unpin(&self, _by: Requester, name: &str) -> Result<RuleReport, BackendError> {
        let mut rules = lock(&self.rules);
        let place = rules.iter().position(|rule| rule.name == name);
        place
            .map(|place| rules.remove(place))
            .ok_or_else(|| BackendError::NotFound(format!("no rule {name}")))
    }

    fn neighbours(&self) -> Result<Neighbourhood, BackendError> {
        let neighbours = lock(&self.neighbours).clone();
        Ok(Neighbourhood {
            on: true,
            public_key: PublicKey([1; 32]).to_string(),
            addresses: vec![],
            neighbours,
        })
    }

    fn add_neighbour(&self, name: &str, key: &NeighbourKey) -> Result<Neighbourhood, BackendError> {
        let public_key = key.public_key.parse::<PublicKey>();
        let public_key = public_key.map_err(|error| BackendError::BadRequest(error.to_string()))?.to_string();
        let links = Vec::new();
        let report =
            NeighbourReport { name: name.to_owned(), public_key, addresses: vec![], network: None, links };
        lock(&self.neighbours).push(report);
        self.neighbours()
    }

    fn forget_neighbour(&self, name: &str) -> Result<Neighbourhood, BackendError> {
        lock(&self.neighbours).retain(|neighbour| neighbour.name != name);
        self.neighbours()
    }

    fn radio(&self) -> Result<RadioStatus, BackendError> {
        let network = |number: u16| RadioNetworkReport {
            ssid: format!("café {number}"),
            interface: format!("any-{number}"),
            state: RadioNetworkState::Up,
            channel: Some([1, 6, 11][usize::from(number) % 3]),
            signal_dbm: Some(-50.0 - f32::from(number)),
            share: Fraction(1.0 / 3.0),
            slot: Micros(40_000 + 30_000 * u64::from(number)),
            ..RadioNetworkReport::default()
        };
        Ok(RadioStatus {
            channel: Some(6),
            networks: (0..3).map(network).collect(),
            ..RadioStatus::default()
        })
    }

    fn radio_scan(&self) -> Result<Vec<HeardNetwork>, BackendError> {
        Ok(vec![HeardNetwork {
            ssid: None,
            bssid: "02:00:00:00:00:01".to_owned(),
            channel: Some(11),
            megahertz: 2_462,
            signal_dbm: Some(-70.0),
            security: "WPA2".to_owned(),
            ad_hoc: false,
            known: false,
        }])
    }

    fn clients(&self) -> Result<GatewayClients, BackendError> {
        if self.role == Role::Device {
            return Err(BackendError::WrongRole("this daemon is a device; ask the gateway's"));
        }
        clients::list(&mut lock(&self.registry), &LimitSettings::default(), wall_time())
    }

    fn invite(&self, request: &InviteRequest) -> Result<Invited, BackendError> {
        let introduction = Introduction {
            public_key: PublicKey([1; 32]),
            addresses: vec!["192.0.2.1:4600".parse().map_err(|_| BackendError::Internal(String::new()))?],
            tcp_port: None,
        };
        clients::invite(&mut lock(&self.registry), &introduction, request, wall_time())
    }

    fn limit(&self, request: &LimitRequest) -> Result<ClientReport, BackendError> {
        let limits = LimitSettings::default();
        clients::limit(&mut lock(&self.registry), &limits, request, wall_time()).map(|(report, _)| report)
    }

    fn reload(&self) -> Result<ReloadReport, BackendError> {
        if self.role == Role::Device {
            return Err(BackendError::WrongRole("this daemon is a device; ask the gateway's"));
        }
        let keys = |name: &str| vec![name.to_owned()];
        Ok(ReloadReport { applied: keys("gateway.client_rate"), after_restart: keys("gateway.listen") })
    }

    fn revoke(&self, name: &str) -> Result<Revoked, BackendError> {
        clients::revoke(&mut lock(&self.registry), name).map(|(revoked, _)| revoked)
    }
}
