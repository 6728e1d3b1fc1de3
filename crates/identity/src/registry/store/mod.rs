//! Where the registry's rows stand: in a file of SQLite, or in a PostgreSQL database that several gateways share.
//!
//! Both take the same statements, with parameters `$1`, `$2` in them; what differs between the two is in the two modules below.

mod connection;
mod file;
mod shared;
mod value;

use super::{OpenError, RegistryError};
use crate::state::StateDirectory;

pub use shared::SharedRegistry;
pub(super) use value::{Row, Value};

/// Where a registry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegistryPlace {
    /// A file in this state directory, for one gateway.
    File(StateDirectory),
    /// A database for several.
    Shared(SharedRegistry),
}

impl From<&StateDirectory> for RegistryPlace {
    fn from(state: &StateDirectory) -> Self {
        Self::File(state.clone())
    }
}

/// What is done about the tables when a registry is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tables {
    /// They are brought to the newest version; a file that is not there is made.
    Made,
    /// They are brought to the newest version.
    Updated,
    /// Nothing: it is only looked whether they could be.
    Kept,
}

/// An open registry.
pub(super) enum Store {
    File(file::File),
    Shared(Box<shared::Shared>),
}

/// What several statements do together, or not at all: dropped without [`Transaction::commit`] it has changed nothing.
pub(super) enum Transaction<'a> {
    File(file::Transaction<'a>),
    Shared(shared::Transaction<'a>),
}

impl Store {
    /// Opens the rows in `place`.
    pub(super) fn open(place: &RegistryPlace, tables: Tables) -> Result<Self, OpenError> {
        match place {
            RegistryPlace::File(state) => file::File::open(state, tables).map(Self::File),
            RegistryPlace::Shared(place) => Ok(Self::Shared(Box::new(shared::Shared::open(place, tables)?))),
        }
    }

    /// Whether it is a database for several.
    pub(super) fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Begins a change: no other change is made meanwhile, here or by another process or gateway.
    pub(super) fn begin(&mut self) -> Result<Transaction<'_>, RegistryError> {
        match self {
            Self::File(file) => file.begin().map(Transaction::File),
            Self::Shared(shared) => shared.begin(true).map(Transaction::Shared),
        }
    }

    /// Begins to read: all statements see one state of things.
    pub(super) fn read(&mut self) -> Result<Transaction<'_>, RegistryError> {
        match self {
            Self::File(file) => file.read().map(Transaction::File),
            Self::Shared(shared) => shared.begin(false).map(Transaction::Shared),
        }
    }

    #[cfg(test)]
    pub(super) fn sqlite(&self) -> &rusqlite::Connection {
        match self {
            Self::File(file) => file.connection(),
            Self::Shared(_) => panic!("this registry is no file"),
        }
    }
}

impl Transaction<'_> {
    /// Carries out a statement; how many rows it has changed.
    pub(super) fn execute(&mut self, statement: &str, values: &[Value]) -> Result<u64, RegistryError> {
        match self {
            Self::File(transaction) => transaction.execute(statement, values),
            Self::Shared(transaction) => transaction.execute(statement, values),
        }
    }

    /// The rows that a statement finds.
    pub(super) fn rows(&mut self, statement: &str, values: &[Value]) -> Result<Vec<Row>, RegistryError> {
        match self {
            Self::File(transaction) => transaction.rows(statement, values),
            Self::Shared(transaction) => transaction.rows(statement, values),
        }
    }

    /// The first of them.
    pub(super) fn row(&mut self, statement: &str, values: &[Value]) -> Result<Option<Row>, RegistryError> {
        Ok(self.rows(statement, values)?.into_iter().next())
    }

    /// Makes the changes last.
    pub(super) fn commit(self) -> Result<(), RegistryError> {
        match self {
            Self::File(transaction) => transaction.commit(),
            Self::Shared(transaction) => transaction.commit(),
        }
    }
}
