//! Rows in SQLite: few writes, and all of them matter.

use std::fs::OpenOptions;

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, OpenFlags, ToSql, TransactionBehavior, params_from_iter};

use super::super::{BUSY_TIMEOUT, FILE_NAME, OpenError, RegistryError, schema};
use super::{Row, Tables, Value};
use crate::atomic_file::{WriteError, open_private};
use crate::state::StateDirectory;

/// The open file.
pub struct File(Connection);

/// See [`super::Transaction`].
pub struct Transaction<'a>(rusqlite::Transaction<'a>);

impl File {
    /// Opens the file, and no other that a link of its name may lead to.
    pub fn open(state: &StateDirectory, tables: Tables) -> Result<Self, OpenError> {
        if tables == Tables::Made {
            // SQLite would let everybody read it.
            open_private(&state.file(FILE_NAME), OpenOptions::new().append(true))
                .map_err(OpenError::Write)?;
        }
        if !state.file(FILE_NAME).exists() {
            return Err(OpenError::Missing(state.path().to_owned()));
        }
        let failed = |error| OpenError::Write(WriteError::new(state.path(), error));
        let directory = std::fs::canonicalize(state.path()).map_err(failed)?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let mut connection = Connection::open_with_flags(directory.join(FILE_NAME), flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        // A rollback journal and full syncs.
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        if tables == Tables::Kept {
            // Not opened read-only: that could not take back what a killed process has begun to write.
            connection.pragma_update(None, "query_only", true)?;
            schema::missing(version(&connection)?)?;
        } else {
            migrate(&mut connection)?;
        }
        Ok(Self(connection))
    }

    pub fn begin(&mut self) -> Result<Transaction<'_>, RegistryError> {
        Ok(Transaction(self.0.transaction_with_behavior(TransactionBehavior::Immediate)?))
    }

    pub fn read(&mut self) -> Result<Transaction<'_>, RegistryError> {
        Ok(Transaction(self.0.transaction_with_behavior(TransactionBehavior::Deferred)?))
    }

    #[cfg(test)]
    pub fn connection(&self) -> &Connection {
        &self.0
    }
}

impl Transaction<'_> {
    pub fn execute(&mut self, statement: &str, values: &[Value]) -> Result<u64, RegistryError> {
        let mut prepared = self.0.prepare_cached(&own(statement))?;
        Ok(prepared.execute(params_from_iter(values))? as u64)
    }

    pub fn rows(&mut self, statement: &str, values: &[Value]) -> Result<Vec<Row>, RegistryError> {
        let mut prepared = self.0.prepare_cached(&own(statement))?;
        let columns = prepared.column_count();
        let mut rows = prepared.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| row.get_ref(column)?.try_into());
            found.push(Row(values.collect::<Result<_, RegistryError>>()?));
        }
        Ok(found)
    }

    pub fn commit(self) -> Result<(), RegistryError> {
        Ok(self.0.commit()?)
    }
}

/// `$1` is a parameter's name to SQLite, `?1` its number.
fn own(statement: &str) -> String {
    statement.replace('$', "?")
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Number(number) => ValueRef::Integer(*number),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}

impl TryFrom<ValueRef<'_>> for Value {
    type Error = RegistryError;

    fn try_from(value: ValueRef<'_>) -> Result<Self, RegistryError> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Number(number),
            ValueRef::Text(text) => {
                Self::Text(String::from_utf8(text.to_vec()).map_err(|_| RegistryError::Damaged)?)
            }
            ValueRef::Blob(bytes) => Self::Bytes(bytes.to_vec()),
            ValueRef::Real(_) => return Err(RegistryError::Damaged),
        })
    }
}

impl From<rusqlite::Error> for RegistryError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(ErrorCode::DiskFull) => Self::DiskFull,
            Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => Self::ReadOnly,
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => Self::Busy,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => Self::Damaged,
            _ => Self::Other(format!("{FILE_NAME}: {error}")),
        }
    }
}

impl From<rusqlite::Error> for OpenError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Registry(error.into())
    }
}

/// Brings the tables to the newest version, in one transaction.
fn migrate(connection: &mut Connection) -> Result<(), OpenError> {
    if schema::missing(version(connection)?)?.is_empty() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited.
    for step in schema::missing(version(&transaction)?)? {
        transaction.execute_batch(step.file)?;
    }
    transaction.pragma_update(None, "user_version", schema::NEWEST)?;
    Ok(transaction.commit()?)
}

fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}
