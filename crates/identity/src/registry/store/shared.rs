//! Rows in PostgreSQL, in a schema of their own.
//!
//! A connection that breaks is made anew by the next transaction, at most once in [`RETRY_PAUSE`]: a gateway whose database is
//! gone must not wait for it at every device that knocks.

use std::error::Error;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use postgres::config::{Host, SslMode};
use postgres::error::SqlState;
use postgres::types::private::BytesMut;
use postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use postgres::{Client, Config, NoTls};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::{OpenError, RegistryError, schema};
use super::{Row, Value};

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
    client: Option<Client>,
    /// A connection that is still being made, by a thread of its own: a server that takes connections and says nothing would
    /// keep this one for ever.
    pending: Option<Receiver<Result<Client, postgres::Error>>>,
    failed: Option<Failure>,
}

struct Failure {
    at: Instant,
    why: String,
}

/// See [`super::Transaction`].
pub struct Transaction<'a>(postgres::Transaction<'a>);

impl Shared {
    pub fn open(place: &SharedRegistry) -> Result<Self, OpenError> {
        let mut config: Config =
            place.connection.parse().map_err(|error| OpenError::Place(message(&error)))?;
        config.connect_timeout(PATIENCE).tcp_user_timeout(PATIENCE).application_name("anabranch");
        config.options(&format!("-c statement_timeout={0} -c lock_timeout={0}", PATIENCE.as_millis()));
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
        let mut shared = Self { config, tls, client: None, pending: None, failed: None };
        shared.migrate()?;
        Ok(shared)
    }

    pub fn begin(&mut self, to_change: bool) -> Result<Transaction<'_>, RegistryError> {
        let mut transaction = Transaction(self.connected()?.transaction()?);
        if to_change {
            transaction.0.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
        }
        Ok(transaction)
    }

    fn connected(&mut self) -> Result<&mut Client, RegistryError> {
        // A server that was started anew has closed the connection, which shows only when something is asked.
        if self.client.as_mut().is_none_or(|client| client.is_valid(PATIENCE).is_err()) {
            if let Some(failed) = &self.failed
                && failed.at.elapsed() < RETRY_PAUSE
            {
                return Err(RegistryError::Gone(failed.why.clone()));
            }
            if let Some(broken) = self.client.take().filter(|client| !client.is_closed()) {
                // To let go of it properly is to wait for an answer of the server that does not answer.
                std::mem::forget(broken);
            }
            match self.connect() {
                Ok(client) => (self.client, self.failed) = (Some(client), None),
                Err(why) => {
                    self.failed = Some(Failure { at: Instant::now(), why: why.clone() });
                    return Err(RegistryError::Gone(why));
                }
            }
        }
        self.client.as_mut().ok_or_else(|| RegistryError::Gone("not connected".to_owned()))
    }

    fn connect(&mut self) -> Result<Client, String> {
        let pending = match self.pending.take() {
            Some(pending) => pending,
            None => {
                let (sender, receiver) = mpsc::sync_channel(1);
                let (config, tls) = (self.config.clone(), self.tls.clone());
                let make = move || drop(sender.send(connect(&config, tls)));
                let thread = std::thread::Builder::new().name("registry".to_owned()).spawn(make);
                thread.map_err(|error| error.to_string())?;
                receiver
            }
        };
        match pending.recv_timeout(2 * PATIENCE) {
            Ok(outcome) => outcome.map_err(|error| message(&error)),
            Err(RecvTimeoutError::Timeout) => {
                self.pending = Some(pending);
                Err("the server takes the connection and does not answer".to_owned())
            }
            Err(RecvTimeoutError::Disconnected) => Err("connecting has failed".to_owned()),
        }
    }

    /// Brings the tables to the newest version, in one transaction, while no other gateway does.
    fn migrate(&mut self) -> Result<(), OpenError> {
        let mut transaction = self.begin(true)?;
        let inner = &mut transaction.0;
        let found = inner.query_opt(
            "SELECT 1 FROM information_schema.tables WHERE table_schema = $1 AND table_name = 'version'",
            &[&SCHEMA],
        );
        if found.map_err(RegistryError::from)?.is_none() {
            let made = inner.batch_execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS {SCHEMA}; SET search_path TO {SCHEMA};
                 CREATE TABLE version (number BIGINT NOT NULL); INSERT INTO version VALUES (0);"
            ));
            made.map_err(RegistryError::from)?;
        }
        let version: i64 =
            inner.query_one("SELECT number FROM version", &[]).map_err(RegistryError::from)?.get(0);
        let steps = schema::missing(u32::try_from(version).map_err(|_| RegistryError::Damaged)?)?;
        for step in steps {
            inner.batch_execute(step.shared).map_err(RegistryError::from)?;
        }
        if !steps.is_empty() {
            let newest = i64::from(schema::NEWEST);
            inner.execute("UPDATE version SET number = $1", &[&newest]).map_err(RegistryError::from)?;
        }
        Ok(transaction.commit()?)
    }
}

fn connect(config: &Config, tls: Option<MakeRustlsConnect>) -> Result<Client, postgres::Error> {
    let mut client = match tls {
        Some(tls) => config.connect(tls)?,
        None => config.connect(NoTls)?,
    };
    client.batch_execute(&format!("SET search_path TO {SCHEMA}"))?;
    Ok(client)
}

impl Transaction<'_> {
    pub fn execute(&mut self, statement: &str, values: &[Value]) -> Result<u64, RegistryError> {
        Ok(self.0.execute(statement, &parameters(values))?)
    }

    pub fn rows(&mut self, statement: &str, values: &[Value]) -> Result<Vec<Row>, RegistryError> {
        let rows = self.0.query(statement, &parameters(values))?;
        let read = |row: &postgres::Row| {
            (0..row.len()).map(|column| row.try_get(column)).collect::<Result<_, _>>().map(Row)
        };
        Ok(rows.iter().map(read).collect::<Result<_, _>>()?)
    }

    pub fn commit(self) -> Result<(), RegistryError> {
        Ok(self.0.commit()?)
    }
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
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
fn message(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut inner = error.source();
    while let Some(cause) = inner {
        text = format!("{text}: {cause}");
        inner = cause.source();
    }
    text
}

/// A user may have other tables in the same database.
const SCHEMA: &str = "anabranch";
/// Of our transactions that change something, over all gateways ("anabranc" in ASCII).
const LOCK: i64 = 0x616e_6162_7261_6e63;
const PATIENCE: Duration = Duration::from_secs(3);
/// Longer than an attempt takes.
const RETRY_PAUSE: Duration = Duration::from_secs(10);
