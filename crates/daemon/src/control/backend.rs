//! What the control server asks of the device's and the gateway's loops.

use anabranch::control::{
    AccessPointReport, ClientReport, DownReport, ExplainRequest, Explained, FailureCode, Flows,
    ForwardReport, ForwardRequest, GatewayClients, HeardNetwork, Hold, InviteRequest, Invited, LimitRequest,
    MachineReport, NeighbourKey, Neighbourhood, NetworkChange, NetworkReport, PinRequest, RadioStatus,
    ReloadReport, RenewReport, Revoked, RuleReport, Running, Status, Unreached,
};
use thiserror::Error;

use super::{EventLog, Requester};

/// A daemon as seen by its control server.
///
/// Each call may wait (for the loop's answer, for the disk): the server makes it from a thread that may block. What a role
/// does not have is answered with [`BackendError::WrongRole`], as the default methods do.
pub trait Backend: Send + Sync + 'static {
    /// The whole daemon at a glance.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn status(&self) -> Result<Status, BackendError>;

    /// Takes back what was changed on the machine and makes the loop end after the answer.
    ///
    /// # Errors
    /// If the loop cannot be told to.
    fn down(&self) -> Result<DownReport, BackendError>;

    /// What happened so far.
    fn events(&self) -> &EventLog;

    /// Changes a network until the daemon ends, and returns it as it is then.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if there is no network of that name.
    fn set_network(&self, _name: &str, _change: NetworkChange) -> Result<NetworkReport, BackendError> {
        Err(BackendError::WrongRole("only a device has networks"))
    }

    /// The flows that go on now; of one who does not control the daemon, the own ones.
    ///
    /// # Errors
    /// If the kernel does not list them.
    fn flows(&self, _by: Requester) -> Result<Flows, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// Networks and power, for the caller to judge alike.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn machine(&self) -> Result<MachineReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// What would become of a flow of the caller.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn explain(&self, _by: Requester, _request: &ExplainRequest) -> Result<Explained, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// Holds the calling process to networks or a treatment.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] where control groups are missing.
    fn run(&self, _by: Requester, _hold: &Hold) -> Result<Running, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// All rules, in the order in which they are tried.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn rules(&self, _by: Requester) -> Result<Vec<RuleReport>, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// Adds a rule until the daemon ends.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if there are too many.
    fn pin(&self, _by: Requester, _request: &PinRequest) -> Result<RuleReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// Removes a rule that was pinned.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if there is none of that name, or it is another user's.
    fn unpin(&self, _by: Requester, _name: &str) -> Result<RuleReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_DEVICE))
    }

    /// Devices on shared links whose keys are known.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the thread that knows does not answer.
    fn neighbours(&self) -> Result<Neighbourhood, BackendError> {
        Err(BackendError::WrongRole(NO_NEIGHBOURS))
    }

    /// Makes a key known by a name.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if another one has the name.
    fn add_neighbour(&self, _name: &str, _key: &NeighbourKey) -> Result<Neighbourhood, BackendError> {
        Err(BackendError::WrongRole(NO_NEIGHBOURS))
    }

    /// Forgets a key.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if nobody has the name.
    fn forget_neighbour(&self, _name: &str) -> Result<Neighbourhood, BackendError> {
        Err(BackendError::WrongRole(NO_NEIGHBOURS))
    }

    /// A radio and its networks.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn radio(&self) -> Result<RadioStatus, BackendError> {
        Err(BackendError::WrongRole(NOT_A_RADIO))
    }

    /// Access points in range of a radio, and how much each is worth.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn radio_access_points(&self) -> Result<Vec<AccessPointReport>, BackendError> {
        Err(BackendError::WrongRole(NOT_A_RADIO))
    }

    /// Takes note behind which networks of a radio nothing answers.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn radio_unreached(&self, _unreached: Unreached) -> Result<Unreached, BackendError> {
        Err(BackendError::WrongRole(NOT_A_RADIO))
    }

    /// Listens on every channel once and tells what was heard.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] if the loop does not answer.
    fn radio_scan(&self) -> Result<Vec<HeardNetwork>, BackendError> {
        Err(BackendError::WrongRole(NOT_A_RADIO))
    }

    /// Clients and invitations.
    ///
    /// # Errors
    /// If the registry fails.
    fn clients(&self) -> Result<GatewayClients, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Makes an invitation.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if a client has the name.
    fn invite(&self, _request: &InviteRequest) -> Result<Invited, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Removes a client and ends its session.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if nobody has the name.
    fn revoke(&self, _name: &str) -> Result<Revoked, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Gives a client limits of its own.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if nobody has the name.
    fn limit(&self, _request: &LimitRequest) -> Result<ClientReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Reads the configuration anew.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if it is wrong; then the old one goes on to hold.
    fn reload(&self) -> Result<ReloadReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Becomes the program that is installed in this one's place.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if that could not start; then this one goes on.
    fn renew(&self) -> Result<RenewReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Makes a port lead to a client.
    ///
    /// # Errors
    /// [`BackendError::Conflict`] if the port leads elsewhere.
    fn forward(&self, _request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }

    /// Takes a forwarded port back.
    ///
    /// # Errors
    /// [`BackendError::NotFound`] if the port is not forwarded.
    fn stop_forward(&self, _request: &ForwardRequest) -> Result<ForwardReport, BackendError> {
        Err(BackendError::WrongRole(NOT_A_GATEWAY))
    }
}

/// Why a request cannot be granted. The text is for the user: what, where, how to mend it.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum BackendError {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// The request makes no sense.
    #[error("{0}")]
    BadRequest(String),
    /// It clashes with what is there.
    #[error("{0}")]
    Conflict(String),
    /// This daemon is the other role.
    #[error("{0}")]
    WrongRole(&'static str),
    /// It cannot be done now.
    #[error("{0}")]
    Unavailable(String),
    /// The daemon failed.
    #[error("{0}")]
    Internal(String),
}

impl BackendError {
    /// The code for programs.
    pub fn code(&self) -> FailureCode {
        match self {
            Self::NotFound(_) => FailureCode::NotFound,
            Self::BadRequest(_) => FailureCode::BadRequest,
            Self::Conflict(_) => FailureCode::Conflict,
            Self::WrongRole(_) => FailureCode::WrongRole,
            Self::Unavailable(_) => FailureCode::Unavailable,
            Self::Internal(_) => FailureCode::Internal,
        }
    }
}

const NOT_A_DEVICE: &str = "only a device has flows and rules; ask the device's daemon";
const NO_NEIGHBOURS: &str = "only a device has neighbours; ask the device's daemon";
const NOT_A_RADIO: &str = "this daemon has no radio of its own; `anabranch radio up` starts one that has";
const NOT_A_GATEWAY: &str = "this daemon is a device; ask the gateway's";
