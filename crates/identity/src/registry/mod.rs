//! What a gateway remembers: clients, leases, invitations and forwarded ports, in SQLite or, shared by several gateways,
//! in PostgreSQL.
//!
//! Several processes may have the registry open (the daemon and a command beside it): each change is one immediate
//! transaction, and a process waits up to [`BUSY_TIMEOUT`] for another's. Nothing is answered before it is on disk.
//!
//! ```text
//! invite ---> open --- redeem (right secret, in time) ---> redeemed by a key ---> same key again: same answer
//!              |  \--- time over, seen once ---> expired, whatever the clock says later
//!              \------ revoke, or a new invitation of that name ---> gone
//! ```

mod clients;
mod forwards;
mod gateways;
mod invitations;
mod schema;
mod store;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use rand::TryRngCore;
use rand::rngs::OsRng;
use thiserror::Error;

pub use clients::{Client, Lease, Revoked, Usage, Used};
pub use forwards::{Forward, Protocol};
pub use invitations::{Invitation, Invited, Redeemed};
pub use store::{RegistryPlace, SharedRegistry};

use crate::atomic_file::WriteError;
use crate::pool::{Ipv4Pool, Ipv6Pool};
use crate::state::StateDirectory;
use store::{Store, Tables, Transaction};

const FILE_NAME: &str = "gateway.sqlite";
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// The registry of one gateway, or of a fleet.
pub struct Registry {
    store: Store,
    v4: Ipv4Pool,
    v6: Ipv6Pool,
}

/// The networks that a registry leases from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pools {
    /// IPv4.
    pub v4: Ipv4Pool,
    /// IPv6.
    pub v6: Ipv6Pool,
}

/// Why the registry cannot be read or written. Nothing was changed.
#[derive(Debug, Error)]
pub enum RegistryError {
    /// No room.
    #[error("no room left on the disk of {FILE_NAME}: free some space and try again; nothing was changed")]
    DiskFull,
    /// Read-only.
    #[error("{FILE_NAME} cannot be written: its disk or directory is read-only, or belongs to another user")]
    ReadOnly,
    /// Another process has had it for too long.
    #[error("{FILE_NAME} is held by another process for more than {} s; try again", BUSY_TIMEOUT.as_secs())]
    Busy,
    /// Not a database, or damaged.
    #[error("{FILE_NAME} is damaged: put back a copy, or move it away and invite the clients again")]
    Damaged,
    /// The shared database cannot be reached, or will not work now.
    #[error("the shared registry is out of reach: {0}")]
    Gone(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

/// Why a registry could not be made.
#[derive(Debug, Error)]
pub enum CreateError {
    /// It cannot be opened or written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The system gives no randomness for the IPv6 network.
    #[error("the system gives no randomness: {0}")]
    Randomness(rand::rand_core::OsError),
}

/// Why a registry could not be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is none.
    #[error("{} is not a gateway's state directory: run `anabranch gateway init` first", .0.display())]
    Missing(PathBuf),
    /// The shared registry is not named as it must be.
    #[error("the shared registry: {0}")]
    Place(String),
    /// A newer program made it.
    #[error(
        "the gateway's registry has version {found}, this program knows versions up to {known}; update this program"
    )]
    Newer {
        /// Version of the file.
        found: u32,
        /// Newest version that is known here.
        known: u32,
    },
    /// The file cannot be made.
    #[error(transparent)]
    Write(WriteError),
    /// It cannot be read or written.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Why an invitation was not made.
#[derive(Debug, Error)]
pub enum InviteError {
    /// A client has the name.
    #[error(
        "a client named {0} has joined already: choose another name, or take it away first with \
         `anabranch gateway revoke {0}`"
    )]
    NameTaken(String),
    /// Too many open invitations.
    #[error("{0} invitations are open; withdraw some with `anabranch gateway revoke NAME`")]
    TooMany(usize),
    /// The system gives no randomness.
    #[error("the system gives no randomness: {0}")]
    Randomness(rand::rand_core::OsError),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Why an invitation was not redeemed.
#[derive(Debug, Error)]
pub enum RedeemError {
    /// Never made, or withdrawn.
    #[error("no such invitation")]
    Unknown,
    /// For something else.
    #[error("the invitation is of kind {0}")]
    OtherKind(String),
    /// Its time is over.
    #[error("the invitation for {name} has expired")]
    Expired {
        /// Name in the invitation.
        name: String,
    },
    /// Another key has redeemed it.
    #[error("the invitation for {name} was used by another device")]
    Used {
        /// Name in the invitation.
        name: String,
    },
    /// This machine's clock stands well before the time the invitation was made, so nothing can be said about its end.
    #[error("the clock of this machine is wrong: it stands before the time the invitation was made")]
    ClockBehind,
    /// The pool is used up.
    #[error("no address is left in the pool")]
    NoAddressLeft,
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl RedeemError {
    /// What to tell the device.
    pub fn refusal(&self) -> wire::hello::Refusal {
        use wire::hello::Refusal;
        match self {
            Self::Unknown | Self::OtherKind(_) => Refusal::UnknownInvitation,
            Self::Expired { .. } => Refusal::InvitationExpired,
            Self::Used { .. } => Refusal::InvitationUsed,
            Self::NoAddressLeft => Refusal::NoAddressLeft,
            Self::ClockBehind | Self::Registry(_) => Refusal::Unavailable,
        }
    }
}

/// Why a client was given no limit.
#[derive(Debug, Error)]
pub enum LimitError {
    /// Nobody has the name.
    #[error("there is no client named {0}; `anabranch gateway clients` lists them")]
    Unknown(String),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Why nothing was revoked.
#[derive(Debug, Error)]
pub enum RevokeError {
    /// Nobody has the name.
    #[error("there is no client and no open invitation named {0}; `anabranch gateway clients` lists them")]
    Unknown(String),
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// Why a port was not forwarded, or not taken back.
#[derive(Debug, Error)]
pub enum ForwardError {
    /// Nobody has the name.
    #[error("there is no client named {0}; `anabranch gateway clients` lists them")]
    UnknownClient(String),
    /// It cannot be told which client is meant.
    #[error("say which client is meant with --client NAME: there are {0}")]
    WhichClient(usize),
    /// The port leads elsewhere.
    #[error("{protocol} port {port} leads to {client} already; take it back first with `--remove`")]
    PortTaken {
        /// TCP or UDP.
        protocol: Protocol,
        /// The port.
        port: std::num::NonZeroU16,
        /// Where it leads.
        client: String,
    },
    /// The port leads nowhere.
    #[error("{protocol} port {port} is not forwarded")]
    NotForwarded {
        /// TCP or UDP.
        protocol: Protocol,
        /// The port.
        port: std::num::NonZeroU16,
    },
    /// The registry failed.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

impl Registry {
    /// Whether a state directory is a gateway's.
    pub fn exists(state: &StateDirectory) -> bool {
        state.file(FILE_NAME).exists()
    }

    /// Makes a registry, with a new unique local IPv6 network; an existing one is kept as it is.
    ///
    /// # Errors
    /// Any [`CreateError`].
    pub fn create(place: impl Into<RegistryPlace>, v4: Ipv4Pool) -> Result<Self, CreateError> {
        let mut random = [0; 5];
        OsRng.try_fill_bytes(&mut random).map_err(CreateError::Randomness)?;
        let mut store = Store::open(&place.into(), Tables::Made)?;
        let v6 = stored_v6(&mut store, Some(Ipv6Pool::unique_local(random))).map_err(OpenError::from)?;
        Ok(Self { store, v4, v6 })
    }

    /// Opens a registry that was made. `v6` overrides the network that was drawn then.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn open(
        place: impl Into<RegistryPlace>,
        v4: Ipv4Pool,
        v6: Option<Ipv6Pool>,
    ) -> Result<Self, OpenError> {
        let mut store = Store::open(&place.into(), Tables::Updated)?;
        let stored = stored_v6(&mut store, None)?;
        Ok(Self { store, v4, v6: v6.unwrap_or(stored) })
    }

    /// Whether a registry could be opened, and its networks, without a change: tables of an older version stay as they are, and
    /// the program that made them can go on with them.
    ///
    /// # Errors
    /// Any [`OpenError`].
    pub fn inspect(
        place: impl Into<RegistryPlace>,
        v4: Ipv4Pool,
        v6: Option<Ipv6Pool>,
    ) -> Result<Pools, OpenError> {
        let mut store = Store::open(&place.into(), Tables::Kept)?;
        let stored = stored_v6(&mut store, None)?;
        Ok(Pools { v4, v6: v6.unwrap_or(stored) })
    }

    /// Whether other gateways may use it too.
    pub fn is_shared(&self) -> bool {
        self.store.is_shared()
    }

    /// The networks that are leased from.
    pub fn pools(&self) -> Pools {
        Pools { v4: self.v4, v6: self.v6 }
    }

    fn begin(&mut self) -> Result<Transaction<'_>, RegistryError> {
        self.store.begin()
    }

    fn read(&mut self) -> Result<Transaction<'_>, RegistryError> {
        self.store.read()
    }
}

/// The network drawn when the registry was made; draws it now if it was not.
fn stored_v6(store: &mut Store, new: Option<Ipv6Pool>) -> Result<Ipv6Pool, RegistryError> {
    let mut transaction = if new.is_some() { store.begin()? } else { store.read()? };
    if let Some(new) = new {
        transaction.execute(
            "INSERT INTO settings (name, value) VALUES ('ipv6_pool', $1) ON CONFLICT DO NOTHING",
            &[new.to_string().as_str().into()],
        )?;
    }
    let stored = transaction.row("SELECT value FROM settings WHERE name = 'ipv6_pool'", &[])?;
    let stored = stored.and_then(|row| row.text(0).ok()?.parse().ok()).ok_or(RegistryError::Damaged)?;
    transaction.commit()?;
    Ok(stored)
}
