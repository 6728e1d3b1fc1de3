//! The device as its control server sees it.

use std::net::{IpAddr, ToSocketAddrs};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anabranch::control::{
    AccessPointReport, BlockingClient, ClientError, DownReport, ExplainRequest, Explained, Flows,
    HeardNetwork, Hold, MachineReport, NeighbourKey, Neighbourhood, NetworkChange, NetworkReport, PinRequest,
    RadioStatus, RuleReport, Running, Status,
};
use identity::{InvitationKind, JoinError, Peers, PeersError, PublicKey, StateDirectory, wall_time};
use linux::cgroup::{CgroupPath, Hierarchy};
use policy::Treatment;
use policy::rules::{DomainPattern, Dscp, FlowFacts, Matcher, Protocol, UserId};
use policy::services::Service;

use super::advice::{self, Cards};
use super::direct::{self, HeldFlows, NewRule, Picture, Question, Sampler};
use super::messages::Command;
use super::neighbours;
use super::pace::Pace;
use crate::control::{Backend, BackendError, EventLog, Requester, take_down};
use crate::mailbox::Mailbox;
use crate::supervision::{Answer, Request, Root};

/// Hands requests to the loop, and `down` to root.
pub struct DeviceBackend {
    /// The loop.
    pub commands: Mailbox<Command>,
    /// Direct mode.
    pub choices: Mailbox<direct::Message>,
    /// What flows carried when last looked at.
    pub sampler: Mutex<Sampler>,
    /// How often users have had programs held to networks.
    pub pace: Mutex<Pace>,
    /// The process that kept root.
    pub root: Arc<Root>,
    /// What happened.
    pub events: Arc<EventLog>,
    /// The thread that looks for neighbours, if it is wanted.
    pub neighbours: Option<neighbours::Handle>,
    /// Access points of cards that other programs keep.
    pub cards: Cards,
    /// The addresses that they know this device by.
    pub neighbourly: Vec<IpAddr>,
    /// Where known keys are.
    pub state: StateDirectory,
    /// This device's key.
    pub key: PublicKey,
}

impl DeviceBackend {
    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, BackendError> {
        self.commands.ask(PATIENCE, command).ok_or_else(busy)
    }

    fn know(&self, peers: &Peers) {
        if let Some(neighbours) = &self.neighbours {
            neighbours.know(peers);
        }
    }

    /// What the radio of this machine says, which is a daemon of its own.
    fn of_radio<T>(
        &self,
        question: impl FnOnce(&BlockingClient) -> Result<T, ClientError>,
    ) -> Result<T, BackendError> {
        let socket = advice::radio_socket(&self.state);
        if !socket.exists() {
            return Err(BackendError::WrongRole(NO_RADIO));
        }
        let client =
            BlockingClient::new(socket).map_err(|error| BackendError::Internal(error.to_string()))?;
        question(&client).map_err(|error| match error {
            ClientError::NotRunning(_) => BackendError::WrongRole(NO_RADIO),
            other => BackendError::Unavailable(format!("the radio: {other}")),
        })
    }

    /// Direct mode as it is now.
    fn picture(&self) -> Result<Picture, BackendError> {
        picture(&self.choices)
    }

    fn add(
        &self,
        flows: HeldFlows,
        hold: Hold,
        by: Requester,
    ) -> Result<Result<RuleReport, BackendError>, BackendError> {
        let new = Box::new(NewRule { flows, hold, by });
        ask(&self.choices, |reply| Question::Add(new, reply))
    }
}

/// Direct mode as it is now.
///
/// # Errors
/// [`BackendError::Unavailable`] if its thread does not answer.
pub fn picture(choices: &Mailbox<direct::Message>) -> Result<Picture, BackendError> {
    ask(choices, Question::Picture)
}

fn ask<T>(
    choices: &Mailbox<direct::Message>,
    question: impl FnOnce(SyncSender<T>) -> Question,
) -> Result<T, BackendError> {
    choices.ask(LONG_PATIENCE, |reply| direct::Message::Ask(question(reply))).ok_or_else(busy)
}

fn busy() -> BackendError {
    BackendError::Unavailable("the daemon is too busy to answer; try again".to_owned())
}

/// The addresses that a name has now.
fn look_up(name: &str) -> Result<Vec<IpAddr>, BackendError> {
    let fail = |why: String| BackendError::NotFound(format!("{name} has no address now: {why}"));
    let found = (name, 0).to_socket_addrs().map_err(|error| fail(error.to_string()))?;
    let addresses: Vec<IpAddr> = found.map(|address| address.ip()).take(MOST_ADDRESSES).collect();
    if addresses.is_empty() { Err(fail("its servers know none".to_owned())) } else { Ok(addresses) }
}

impl Backend for DeviceBackend {
    fn status(&self) -> Result<Status, BackendError> {
        self.ask(Command::Status)
    }

    fn down(&self) -> Result<DownReport, BackendError> {
        take_down(&self.root, || self.commands.post(Command::Stop))
    }

    fn events(&self) -> &EventLog {
        &self.events
    }

    fn set_network(&self, name: &str, change: NetworkChange) -> Result<NetworkReport, BackendError> {
        self.ask(|reply| Command::SetNetwork(name.to_owned(), change, reply))?.ok_or_else(|| {
            BackendError::NotFound(format!(
                "there is no network called \"{name}\"; \"anabranch networks\" lists them"
            ))
        })
    }

    fn flows(&self, by: Requester) -> Result<Flows, BackendError> {
        let picture = self.picture()?;
        let mut sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner);
        sampler.flows(&picture, &self.root, by)
    }

    fn machine(&self) -> Result<MachineReport, BackendError> {
        ask(&self.choices, Question::Machine)
    }

    fn explain(&self, by: Requester, request: &ExplainRequest) -> Result<Explained, BackendError> {
        let picture = self.picture()?;
        let hierarchy = Hierarchy::find().ok();
        let group = hierarchy.zip(by.process).and_then(|(all, process)| all.path_of(process).ok());
        let learned = picture.names.iter().filter(|(_, addresses)| addresses.contains(&request.destination));
        let mut domains: Vec<&str> = learned.map(|(name, _)| name.as_str()).collect();
        domains.extend(request.domain.as_deref());
        let protocol = if request.udp { Protocol::UDP } else { Protocol::TCP };
        let service = Service { destination: request.destination, protocol, port: request.port };
        let facts = FlowFacts {
            program: None,
            cgroup: group.as_ref().map(CgroupPath::as_str),
            user: Some(UserId(by.user)),
            destination: request.destination,
            domains: &domains,
            protocol,
            port: request.port,
            dscp: Dscp::try_from(request.dscp)
                .map_err(|error| BackendError::BadRequest(error.to_string()))?,
            class: picture.services.class_of(&service),
        };
        Ok(direct::explain(&picture, &facts))
    }

    fn run(&self, by: Requester, hold: &Hold) -> Result<Running, BackendError> {
        self.picture()?.check(hold)?;
        let process = by.process.ok_or_else(|| {
            let text = "the calling process cannot be seen from the daemon: run it in the same container";
            BackendError::BadRequest(text.to_owned())
        })?;
        let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
        if !pace.admits(linux::clock::now(), by.user) {
            let text = "you have started many programs this way within seconds; try again in a second";
            return Err(BackendError::Unavailable(text.to_owned()));
        }
        drop(pace);
        let cannot = |error: String| {
            BackendError::Unavailable(format!(
                "programs cannot be told apart here, so this one cannot be held to a network: {error}"
            ))
        };
        let answer = self.root.ask_for(&Request::Run { process, user: by.user });
        let cgroup = match answer.map_err(|error| cannot(error.to_string()))? {
            Answer::Group { cgroup } => cgroup,
            _ => return Err(BackendError::Internal("the process was put nowhere".to_owned())),
        };
        let path = CgroupPath::new(&cgroup).map_err(|error| BackendError::Internal(error.to_string()))?;
        match self.add(HeldFlows::Group(path), hold.clone(), by) {
            Ok(Ok(_)) => Ok(Running { cgroup }),
            Ok(Err(error)) | Err(error) => {
                if let Err(error) = self.root.ask(&Request::EndRun { cgroup }) {
                    tracing::warn!("a control group stays until the daemon ends: {error}");
                }
                Err(error)
            }
        }
    }

    fn rules(&self, by: Requester) -> Result<Vec<RuleReport>, BackendError> {
        let mut reports = self.picture()?.reports;
        reports.retain(|report| by.controls || report.user.is_none_or(|user| user == by.user));
        Ok(reports)
    }

    fn pin(&self, by: Requester, request: &PinRequest) -> Result<RuleReport, BackendError> {
        self.picture()?.check(&request.hold)?;
        if request.hold.treatment == Some(Treatment::Mptcp) {
            let text = "a program has to speak MPTCP itself: start it with \"anabranch run --treat mptcp -- COMMAND\"";
            return Err(BackendError::BadRequest(text.to_owned()));
        }
        let flows = match (&request.destination, &request.domain) {
            (Some(destination), None) => HeldFlows::Destination(*destination),
            (None, Some(name)) => {
                let pattern: DomainPattern =
                    name.parse().map_err(|error| BackendError::BadRequest(format!("{error}")))?;
                let addresses = look_up(name)?;
                HeldFlows::Domain { matcher: Matcher::Domain(pattern), name: name.to_lowercase(), addresses }
            }
            _ => {
                let text = "give either a destination or a domain".to_owned();
                return Err(BackendError::BadRequest(text));
            }
        };
        self.add(flows, request.hold.clone(), by)?
    }

    fn neighbours(&self) -> Result<Neighbourhood, BackendError> {
        let known = Peers::load(&self.state).map_err(|error| BackendError::Internal(error.to_string()))?;
        let neighbours = match &self.neighbours {
            Some(handle) => handle.report().ok_or_else(busy)?,
            None => neighbours::unmet(&known),
        };
        Ok(Neighbourhood {
            on: self.neighbours.is_some(),
            public_key: self.key.to_string(),
            addresses: self.neighbourly.clone(),
            neighbours,
        })
    }

    fn add_neighbour(&self, name: &str, key: &NeighbourKey) -> Result<Neighbourhood, BackendError> {
        let key = key.public_key.parse().map_err(|error| BackendError::BadRequest(format!("{error}")))?;
        let change = |peers: &mut Peers| {
            peers.acquaint(name, key, self.key, wall_time())?;
            Ok::<_, JoinError>(peers.clone())
        };
        let peers = Peers::change(&self.state, change).map_err(|error| match error {
            JoinError::Peers(error) => BackendError::Internal(error.to_string()),
            JoinError::NameTaken { .. } | JoinError::TooMany => BackendError::Conflict(error.to_string()),
            _ => BackendError::BadRequest(error.to_string()),
        })?;
        self.know(&peers);
        self.neighbours()
    }

    fn forget_neighbour(&self, name: &str) -> Result<Neighbourhood, BackendError> {
        let change = |peers: &mut Peers| {
            let is_neighbour = peers.by_name(name).is_some_and(|peer| peer.kind == InvitationKind::Peer);
            let forgotten = is_neighbour && peers.forget(name);
            Ok::<_, PeersError>((forgotten, peers.clone()))
        };
        let (forgotten, peers) =
            Peers::change(&self.state, change).map_err(|error| BackendError::Internal(error.to_string()))?;
        if !forgotten {
            let text = format!("no neighbour is called \"{name}\"; \"anabranch neighbours\" lists them");
            return Err(BackendError::NotFound(text));
        }
        self.know(&peers);
        self.neighbours()
    }

    fn radio(&self) -> Result<RadioStatus, BackendError> {
        self.of_radio(BlockingClient::radio)
    }

    fn radio_access_points(&self) -> Result<Vec<AccessPointReport>, BackendError> {
        let others = self.cards.reports();
        match self.of_radio(BlockingClient::radio_access_points) {
            Ok(points) => Ok([points, others].concat()),
            Err(_) if !others.is_empty() => Ok(others),
            Err(error) => Err(error),
        }
    }

    fn radio_scan(&self) -> Result<Vec<HeardNetwork>, BackendError> {
        self.of_radio(BlockingClient::radio_scan)
    }

    fn unpin(&self, by: Requester, name: &str) -> Result<RuleReport, BackendError> {
        ask(&self.choices, |reply| Question::Unpin(name.to_owned(), by, reply))?
    }
}

const NO_RADIO: &str = "no radio is shared on this machine; `anabranch radio up` starts one";
const PATIENCE: Duration = Duration::from_secs(5);
/// Loading a table takes nft some tens of milliseconds, and seconds on a machine that is very busy.
const LONG_PATIENCE: Duration = Duration::from_secs(20);
/// Most addresses of one name.
const MOST_ADDRESSES: usize = 64;
