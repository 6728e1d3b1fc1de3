//! A connection to the message bus for many who wait at once: messages out in turn, answers to those who asked, calls to the service.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use linux::dbus::{HEAD, Kind, Message, Value, fields_of, introduction, rest_of};
use thiserror::Error;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Why there is no answer, or no connection.
#[derive(Debug, Error)]
pub(super) enum BusError {
    /// The connection cannot be made.
    #[error("the message bus cannot be reached: {0}")]
    Unreachable(#[from] io::Error),
    /// It does not believe who we are.
    #[error("the message bus does not let this process in")]
    NotLetIn,
    /// It is gone, or says what makes no sense.
    #[error("the connection to the message bus is lost")]
    Lost,
    /// Nobody answered in time.
    #[error("nobody answers on the message bus")]
    Silent,
    /// An error: its name, and words for people.
    #[error("{1}")]
    Refused(String, String),
}

type Waiting = Arc<Mutex<HashMap<u32, oneshot::Sender<Message>>>>;

struct Outgoing {
    message: Message,
    answer: Option<oneshot::Sender<Message>>,
}

/// The way to the bus, for any number of tasks.
#[derive(Clone, Debug)]
pub(super) struct Bus {
    outgoing: mpsc::Sender<Outgoing>,
}

/// What others say.
#[derive(Debug)]
pub(super) enum Heard {
    Message(Message),
    /// One whose body is too long, or nested too deep; it is not here.
    Unreadable(Message),
}

/// What comes from the bus unasked. The connection ends with it.
#[derive(Debug)]
pub(super) struct Incoming {
    messages: mpsc::Receiver<Heard>,
    _tasks: JoinSet<()>,
}

impl Bus {
    /// Connects to the bus that listens on this socket, and introduces this process.
    pub(super) async fn connect(socket: &Path) -> Result<(Self, Incoming), BusError> {
        let stream = timeout(PATIENCE, greet(socket)).await.map_err(|_| BusError::Silent)??;
        let (reading, writing) = stream.into_split();
        let (outgoing, to_write) = mpsc::channel(MOST_OUTGOING);
        let (unasked, messages) = mpsc::channel(MOST_INCOMING);
        let waiting = Waiting::default();
        let mut tasks = JoinSet::new();
        tasks.spawn(write(writing, to_write, Arc::clone(&waiting)));
        tasks.spawn(read(reading, unasked, waiting));
        let bus = Self { outgoing };
        bus.ask(Message::call([BUS, BUS_PATH, BUS, "Hello"], Vec::new()), PATIENCE).await?;
        Ok((bus, Incoming { messages, _tasks: tasks }))
    }

    /// Sends a message that nobody has to answer.
    pub(super) async fn send(&self, message: Message) -> Result<(), BusError> {
        self.outgoing.send(Outgoing { message, answer: None }).await.map_err(|_| BusError::Lost)
    }

    /// Calls, and waits for the answer.
    pub(super) async fn ask(&self, call: Message, patience: Duration) -> Result<Vec<Value>, BusError> {
        let (answer, answered) = oneshot::channel();
        let outgoing = Outgoing { message: call, answer: Some(answer) };
        self.outgoing.send(outgoing).await.map_err(|_| BusError::Lost)?;
        let answer = timeout(patience, answered).await.map_err(|_| BusError::Silent)?;
        let answer = answer.map_err(|_| BusError::Lost)?;
        match answer.kind {
            Kind::Error => Err(BusError::Refused(answer.error.clone(), answer.reason())),
            _ => Ok(answer.body),
        }
    }

    /// A call of the bus itself.
    pub(super) async fn ask_bus(&self, member: &str, body: Vec<Value>) -> Result<Vec<Value>, BusError> {
        self.ask(Message::call([BUS, BUS_PATH, BUS, member], body), PATIENCE).await
    }
}

impl Incoming {
    /// The next call or signal; `None` once the connection is lost.
    pub(super) async fn next(&mut self) -> Option<Heard> {
        self.messages.recv().await
    }
}

async fn greet(socket: &Path) -> Result<UnixStream, BusError> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(introduction().as_bytes()).await?;
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        if line.len() >= LONGEST_LINE {
            return Err(BusError::NotLetIn);
        }
        line.push(stream.read_u8().await?);
    }
    if !line.starts_with(b"OK ") {
        return Err(BusError::NotLetIn);
    }
    stream.write_all(b"BEGIN\r\n").await?;
    Ok(stream)
}

/// Writes until the connection is lost. A bus that takes nothing for long is as good as lost.
async fn write(mut stream: OwnedWriteHalf, mut messages: mpsc::Receiver<Outgoing>, waiting: Waiting) {
    let mut serial: u32 = 0;
    while let Some(Outgoing { message, answer }) = messages.recv().await {
        serial = serial.checked_add(1).unwrap_or(1);
        if let Some(answer) = answer {
            let mut waiting = lock(&waiting);
            waiting.retain(|_, asker| !asker.is_closed());
            waiting.insert(serial, answer);
        }
        let bytes = message.encode(serial);
        if !matches!(timeout(PATIENCE, stream.write_all(&bytes)).await, Ok(Ok(()))) {
            return;
        }
    }
}

/// Reads until the connection is lost.
async fn read(mut stream: OwnedReadHalf, unasked: mpsc::Sender<Heard>, waiting: Waiting) {
    while let Ok(heard) = read_one(&mut stream).await {
        let heard = match heard {
            Some(Heard::Message(answer)) if matches!(answer.kind, Kind::Return | Kind::Error) => {
                if let Some(asker) = lock(&waiting).remove(&answer.answers) {
                    // It may have given up.
                    let _ = asker.send(answer);
                }
                continue;
            }
            // Nobody waits any longer for an answer that cannot be read.
            Some(Heard::Unreadable(answer)) if answer.kind != Kind::Call => {
                lock(&waiting).remove(&answer.answers);
                continue;
            }
            Some(heard) => heard,
            None => continue,
        };
        if unasked.send(heard).await.is_err() {
            break;
        }
    }
    // Whoever still waits learns that the connection is lost.
    lock(&waiting).clear();
}

/// The next message; `None` if it is one that cannot be read at all, which others may send at will.
async fn read_one(stream: &mut OwnedReadHalf) -> io::Result<Option<Heard>> {
    let mut head = [0; HEAD];
    stream.read_exact(&mut head).await?;
    let length = rest_of(&head).ok_or(io::ErrorKind::InvalidData)?;
    let kept = if length > LONGEST { fields_of(&head).min(LONGEST) } else { length };
    let mut rest = vec![0; kept];
    stream.read_exact(&mut rest).await?;
    let mut passed_over = stream.take((length - kept) as u64);
    tokio::io::copy(&mut passed_over, &mut tokio::io::sink()).await?;
    let whole = if kept == length { Message::parse(&head, &rest) } else { None };
    let unreadable = || Message::parse_without_body(&head, &rest).map(Heard::Unreadable);
    Ok(whole.map(Heard::Message).or_else(unreadable))
}

fn lock(waiting: &Waiting) -> MutexGuard<'_, HashMap<u32, oneshot::Sender<Message>>> {
    // Nothing is left half done under the lock.
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";
/// How long the bus itself may take.
const PATIENCE: Duration = Duration::from_secs(5);
const LONGEST_LINE: usize = 512;
/// Longest message that is read, without its head: more than any request needs, and any answer that we ask for.
const LONGEST: usize = 128 << 10;
/// Messages on their way out; who has more waits.
const MOST_OUTGOING: usize = 64;
/// Calls that were read and not yet looked at; further ones wait in the bus.
const MOST_INCOMING: usize = 16;
