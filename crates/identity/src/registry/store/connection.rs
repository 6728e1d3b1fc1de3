//! One connection to PostgreSQL, with a thread that waits for its server.
//!
//! ```text
//! whoever asks --Request--> thread: connect, then transaction by transaction
//!      ^-------- Answer -------'
//! ```
//! A server can take a connection, or a question, and say nothing more; nothing on this side ends that. So whoever asks waits for
//! so long only, and leaves thread and connection behind then. They end when the server goes on or the kernel gives up.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use postgres::types::ToSql;
use postgres::{Client, Config, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::super::RegistryError;
use super::shared::{PATIENCE, SCHEMA, message};
use super::{Row, Value};

/// What the thread is asked for. All but [`Request::Begin`] belongs to the transaction that is begun.
#[derive(Debug)]
pub(super) enum Request {
    /// Begin a transaction.
    Begin {
        /// No other gateway changes anything meanwhile.
        to_change: bool,
    },
    /// A statement that finds no rows.
    Execute(String, Vec<Value>),
    /// One that does.
    Rows(String, Vec<Value>),
    /// Several without values.
    Batch(String),
    /// Make the changes last.
    Commit,
    /// Leave everything as it was. This has no answer.
    RollBack,
}

/// What the thread says.
#[derive(Debug)]
pub(super) enum Answer {
    /// It is done; the first of these says that there is a connection.
    Done,
    /// How many rows were changed.
    Changed(u64),
    /// What was found.
    Rows(Vec<Row>),
}

type Outcome = Result<Answer, RegistryError>;

/// The way to the thread.
pub(super) struct Connection {
    requests: Option<Sender<Request>>,
    answers: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
    /// The last question was not answered.
    hangs: bool,
}

impl Connection {
    /// Begins to connect: [`Connection::wait`] tells when it has.
    ///
    /// # Errors
    /// If the system gives no thread.
    pub(super) fn start(config: &Config, tls: Option<&MakeRustlsConnect>) -> io::Result<Self> {
        let (requests, asked) = mpsc::channel();
        let (answering, answers) = mpsc::channel();
        let (config, tls) = (config.clone(), tls.cloned());
        let thread = Builder::new().name("registry".to_owned());
        let thread = thread.spawn(move || serve(&config, tls, &asked, &answering))?;
        Ok(Self { requests: Some(requests), answers, thread: Some(thread), hangs: false })
    }

    /// Asks, and waits for the answer.
    ///
    /// # Errors
    /// If the connection is lost, or there is no answer in time: it is of no use any more then.
    pub(super) fn ask(&mut self, request: Request) -> Result<Outcome, RecvTimeoutError> {
        let requests = self.requests.as_ref().ok_or(RecvTimeoutError::Disconnected)?;
        requests.send(request).map_err(|_| RecvTimeoutError::Disconnected)?;
        self.wait(LONGEST)
    }

    /// Waits for an answer.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub(super) fn wait(&mut self, patience: Duration) -> Result<Outcome, RecvTimeoutError> {
        let outcome = self.answers.recv_timeout(patience);
        self.hangs = matches!(outcome, Err(RecvTimeoutError::Timeout));
        outcome
    }

    /// Ends the transaction without a change.
    pub(super) fn roll_back(&self) {
        if let Some(requests) = &self.requests {
            // If the thread has ended, so has the transaction.
            let _ = requests.send(Request::RollBack);
        }
    }
}

impl Drop for Connection {
    /// Waits until the thread has ended: a process that is about to fork must have none. One that hangs is left behind.
    fn drop(&mut self) {
        drop(self.requests.take());
        if !self.hangs
            && matches!(self.answers.recv_timeout(LONGEST), Err(RecvTimeoutError::Disconnected))
            && let Some(thread) = self.thread.take()
        {
            // It says nothing more, and its panic has been told.
            let _ = thread.join();
        }
    }
}

/// The thread's work, until nobody asks any more or the connection is lost.
fn serve(
    config: &Config,
    tls: Option<MakeRustlsConnect>,
    requests: &Receiver<Request>,
    answers: &Sender<Outcome>,
) {
    let mut client = match connect(config, tls) {
        Ok(client) => client,
        Err(error) => {
            // Nobody may be left to hear of it.
            let _ = answers.send(Err(RegistryError::Gone(message(&error))));
            return;
        }
    };
    if answers.send(Ok(Answer::Done)).is_err() {
        return;
    }
    while let Ok(request) = requests.recv() {
        let Request::Begin { to_change } = request else { continue };
        if let Err(error) = transact(&mut client, to_change, requests, answers) {
            // To end without an answer is to say that the connection is lost.
            if client.is_closed() || client.is_valid(PATIENCE).is_err() {
                return;
            }
            if answers.send(Err(error.into())).is_err() {
                return;
            }
        }
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

/// One transaction, to its end.
///
/// # Errors
/// If it cannot begin; that was not answered.
fn transact(
    client: &mut Client,
    to_change: bool,
    requests: &Receiver<Request>,
    answers: &Sender<Outcome>,
) -> Result<(), postgres::Error> {
    let mut transaction = client.transaction()?;
    if to_change {
        transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&LOCK])?;
    }
    let mut outcome = Ok(Answer::Done);
    loop {
        if answers.send(outcome).is_err() {
            return Ok(());
        }
        outcome = match requests.recv() {
            Ok(Request::Execute(statement, values)) => {
                transaction.execute(&statement, &parameters(&values)).map(Answer::Changed).map_err(Into::into)
            }
            Ok(Request::Rows(statement, values)) => find(&mut transaction, &statement, &values),
            Ok(Request::Batch(statements)) => {
                transaction.batch_execute(&statements).map(|()| Answer::Done).map_err(Into::into)
            }
            Ok(Request::Commit) => {
                let done = transaction.commit().map(|()| Answer::Done).map_err(Into::into);
                // Whoever asked may have given up; then it is found out when things are looked at anew.
                let _ = answers.send(done);
                return Ok(());
            }
            Ok(Request::RollBack | Request::Begin { .. }) | Err(_) => return Ok(()),
        };
    }
}

fn find(transaction: &mut postgres::Transaction<'_>, statement: &str, values: &[Value]) -> Outcome {
    let rows = transaction.query(statement, &parameters(values))?;
    let read = |row: &postgres::Row| {
        (0..row.len()).map(|column| row.try_get(column)).collect::<Result<_, _>>().map(Row)
    };
    Ok(Answer::Rows(rows.iter().map(read).collect::<Result<_, _>>()?))
}

fn parameters(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values.iter().map(|value| value as &(dyn ToSql + Sync)).collect()
}

/// Of our transactions that change something, over all gateways ("anabranc" in ASCII).
const LOCK: i64 = 0x616e_6162_7261_6e63;
/// A server that works answers before: it is told to give up a statement after [`PATIENCE`].
const LONGEST: Duration = PATIENCE.saturating_add(Duration::from_secs(1));
