//! Rows in PostgreSQL, in a schema of their own.
//!
//! A connection that breaks is made anew by the next transaction, at most once in [`RETRY_PAUSE`]: a gateway whose database is
//! gone must not wait for it at every device that knocks.

use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use postgres::Config;
use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::{OpenError, RegistryError, schema};
use super::connection::{Answer, Connection, Request};
use super::{Row, Tables, Value};

/// A database that several gateways share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedRegistry {
    /// `postgresql://USER:PASSWORD@HOST/DATABASE`, or PostgreSQL's own `key=value` form.
    pub connection: String,
    /// File with the certificates (PEM) of which one must have signed the server's. Without it only a server on this machine
    /// is spoken to: nothing would be encrypted.
    pub certificates: Option<PathBuf>,
}

/// The connection, whenever there is one.
pub struct Shared {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    connection: Option<Connection>,
    /// One that is still being made: a server may take connections and say nothing.
    pending: Option<Connection>,
    failed: Option<Failure>,
}

struct Failure {
    at: Instant,
    why: String,
}

/// See [`super::Transaction`].
pub struct Transaction<'a> {
    shared: &'a mut Shared,
    is_over: bool,
}

impl Shared {
    pub fn open(place: &SharedRegistry, tables: Tables) -> Result<Self, OpenError> {
        let mut config: Config =
            place.connection.parse().map_err(|error| OpenError::Place(message(&error)))?;
        config.connect_timeout(PATIENCE).tcp_user_timeout(PATIENCE).application_name("anabranch");
        // A server that was started anew knows nothing of a connection on which this side only waits.
        config.keepalives_idle(PATIENCE).keepalives_interval(PATIENCE).keepalives_retries(2);
        let mut options = format!("-c statement_timeout={0} -c lock_timeout={0}", PATIENCE.as_millis());
        if tables == Tables::Kept {
            options += " -c default_transaction_read_only=on";
        }
        config.options(&options);
        let tls = match &place.certificates {
            Some(path) => {
                config.ssl_mode(SslMode::Require);
                Some(tls(path)?)
            }
            None if is_on_this_machine(&config) => None,
            None => {
                return Err(OpenError::Place(
                    "the database is on another machine: name the file with its certificate authority (registry_ca), \
                     so that what goes there is encrypted"
                        .to_owned(),
                ));
            }
        };
        let mut shared = Self { config, tls, connection: None, pending: None, failed: None };
        if tables == Tables::Kept {
            shared.inspect()?;
        } else {
            shared.migrate()?;
        }
        Ok(shared)
    }

    pub fn begin(&mut self, to_change: bool) -> Result<Transaction<'_>, RegistryError> {
        if self.connection.is_some() {
            let begun = self.ask(Request::Begin { to_change });
            if self.connection.is_some() {
                begun?;
                return Ok(Transaction { shared: self, is_over: false });
            }
            // A server that was started anew had closed it, which shows only when something is asked.
        }
        self.connect()?;
        self.ask(Request::Begin { to_change })?;
        Ok(Transaction { shared: self, is_over: false })
    }

    /// Has something done by the server. A connection that is lost, or does not answer, is given up.
    fn ask(&mut self, request: Request) -> Result<Answer, RegistryError> {
        let lost = || RegistryError::Gone("the connection is lost".to_owned());
        match self.connection.as_mut().ok_or_else(lost)?.ask(request) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Disconnected) => {
                self.connection = None;
                Err(lost())
            }
            Err(RecvTimeoutError::Timeout) => {
                self.connection = None;
                Err(self.fail("the server does not answer".to_owned()))
            }
        }
    }

    fn connect(&mut self) -> Result<(), RegistryError> {
        if let Some(failed) = &self.failed
            && failed.at.elapsed() < RETRY_PAUSE
        {
            return Err(RegistryError::Gone(failed.why.clone()));
        }
        let pending = match self.pending.take() {
            Some(pending) => Ok(pending),
            None => Connection::start(&self.config, self.tls.as_ref()),
        };
        let mut pending = pending.map_err(|error| self.fail(error.to_string()))?;
        match pending.wait(2 * PATIENCE) {
            Ok(Ok(_)) => {
                (self.connection, self.failed) = (Some(pending), None);
                Ok(())
            }
            Ok(Err(error)) => Err(self.fail(match error {
                RegistryError::Gone(why) => why,
                other => other.to_string(),
            })),
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some(pending);
                Err(self.fail("the server takes the connection and does not answer".to_owned()))
            }
            Err(RecvTimeoutError::Disconnected) => Err(self.fail("connecting has failed".to_owned())),
        }
    }

    /// Notes that nothing is to be tried for a while.
    fn fail(&mut self, why: String) -> RegistryError {
        self.failed = Some(Failure { at: Instant::now(), why: why.clone() });
        RegistryError::Gone(why)
    }

    /// Brings the tables to the newest version, in one transaction, while no other gateway does.
    fn migrate(&mut self) -> Result<(), OpenError> {
        let mut transaction = self.begin(true)?;
        if !transaction.has_tables()? {
            transaction.batch(format!(
                "CREATE SCHEMA IF NOT EXISTS {SCHEMA}; SET search_path TO {SCHEMA};
                 CREATE TABLE version (number BIGINT NOT NULL); INSERT INTO version VALUES (0);"
            ))?;
        }
        let steps = schema::missing(transaction.version()?)?;
        for step in steps {
            transaction.batch(step.shared.to_owned())?;
        }
        if !steps.is_empty() {
            transaction.execute("UPDATE version SET number = $1", &[i64::from(schema::NEWEST).into()])?;
        }
        Ok(transaction.commit()?)
    }

    /// Whether there are tables that could be brought to the newest version.
    fn inspect(&mut self) -> Result<(), OpenError> {
        let mut transaction = self.begin(false)?;
        if !transaction.has_tables()? {
            return Err(OpenError::Place(
                "there is none in the database yet: run `anabranch gateway init`".to_owned(),
            ));
        }
        schema::missing(transaction.version()?)?;
        Ok(transaction.commit()?)
    }
}

impl Transaction<'_> {
    pub fn execute(&mut self, statement: &str, values: &[Value]) -> Result<u64, RegistryError> {
        match self.shared.ask(Request::Execute(statement.to_owned(), values.to_vec()))? {
            Answer::Changed(rows) => Ok(rows),
            _ => Err(RegistryError::Damaged),
        }
    }

    pub fn rows(&mut self, statement: &str, values: &[Value]) -> Result<Vec<Row>, RegistryError> {
        match self.shared.ask(Request::Rows(statement.to_owned(), values.to_vec()))? {
            Answer::Rows(rows) => Ok(rows),
            _ => Err(RegistryError::Damaged),
        }
    }

    pub fn commit(mut self) -> Result<(), RegistryError> {
        self.is_over = true;
        self.shared.ask(Request::Commit).map(drop)
    }

    fn batch(&mut self, statements: String) -> Result<(), RegistryError> {
        self.shared.ask(Request::Batch(statements)).map(drop)
    }

    fn has_tables(&mut self) -> Result<bool, RegistryError> {
        let statement = format!(
            "SELECT 1::BIGINT FROM information_schema.tables WHERE table_schema = '{SCHEMA}' AND table_name = 'version'"
        );
        Ok(!self.rows(&statement, &[])?.is_empty())
    }

    fn version(&mut self) -> Result<u32, RegistryError> {
        let rows = self.rows("SELECT number FROM version", &[])?;
        rows.first().ok_or(RegistryError::Damaged)?.number(0)
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.is_over
            && let Some(connection) = &self.shared.connection
        {
            connection.roll_back();
        }
    }
}

fn tls(path: &Path) -> Result<MakeRustlsConnect, OpenError> {
    let failed = |why: String| OpenError::Place(format!("registry_ca: {}: {why}", path.display()));
    let text = fs::read(path).map_err(|error| failed(error.to_string()))?;
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| failed(format!("no certificate in PEM: {error}")))?;
        roots.add(certificate).map_err(|error| failed(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(failed("no certificate is in it".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// Whether nothing that is said leaves the machine.
fn is_on_this_machine(config: &Config) -> bool {
    let is_near = |host: &Host| match host {
        Host::Unix(_) => true,
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
    };
    config.get_hosts().iter().all(is_near) && config.get_hostaddrs().iter().all(IpAddr::is_loopback)
}

impl ToSql for Value {
    fn to_sql(&self, kind: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        match self {
            Self::Null => Ok(IsNull::Yes),
            Self::Number(number) => number.to_sql(kind, out),
            Self::Text(text) => text.to_sql(kind, out),
            Self::Bytes(bytes) => bytes.to_sql(kind, out),
        }
    }

    fn accepts(kind: &Type) -> bool {
        <Self as FromSql>::accepts(kind)
    }

    to_sql_checked!();
}

impl<'a> FromSql<'a> for Value {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(match *kind {
            Type::INT8 => Self::Number(i64::from_sql(kind, raw)?),
            Type::BYTEA => Self::Bytes(Vec::from_sql(kind, raw)?),
            _ => Self::Text(String::from_sql(kind, raw)?),
        })
    }

    fn from_sql_null(_kind: &Type) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::Null)
    }

    fn accepts(kind: &Type) -> bool {
        matches!(*kind, Type::INT8 | Type::TEXT | Type::BYTEA)
    }
}

impl From<postgres::Error> for RegistryError {
    fn from(error: postgres::Error) -> Self {
        let why = message(&error);
        match error.code() {
            None => Self::Gone(why),
            Some(&SqlState::DISK_FULL | &SqlState::OUT_OF_MEMORY | &SqlState::INSUFFICIENT_RESOURCES) => {
                Self::Gone(why)
            }
            Some(
                &SqlState::ADMIN_SHUTDOWN
                | &SqlState::CRASH_SHUTDOWN
                | &SqlState::CANNOT_CONNECT_NOW
                | &SqlState::READ_ONLY_SQL_TRANSACTION
                | &SqlState::LOCK_NOT_AVAILABLE
                | &SqlState::QUERY_CANCELED,
            ) => Self::Gone(why),
            Some(_) => Self::Other(format!("the shared registry: {why}")),
        }
    }
}

/// The error with what is behind it: the outermost says little. Nothing of it is the password.
pub(super) fn message(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        text = format!("{text}: {cause}");
        inner = cause.source();
    }
    text
}

/// A user may have other tables in the same database.
pub(super) const SCHEMA: &str = "anabranch";
/// How long the server may take for a statement.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);
/// Longer than an attempt takes.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
