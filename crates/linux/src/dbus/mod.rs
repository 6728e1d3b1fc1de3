//! A small client of D-Bus: calls with their answers, signals, and calls that others make of us. For systemd, and for BlueZ.
//!
//! Messages and their bytes are for others too: the daemon, which is a service on the bus, waits in its own way.

mod message;
mod value;

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read as _, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::poll::{Interest, Poller, Token};
use crate::system_call::effective_user;
pub use message::{Flags, HEAD, Kind, Message, fields_of, rest_of};
pub use value::Value;

/// Where the machine's own bus listens.
pub const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";
/// How long anybody may take to answer.
const PATIENCE: Duration = Duration::from_secs(3);
const LONGEST_LINE: u64 = 512;
/// Messages that are kept while an answer is waited for; more are lost.
const MOST_WAITING: usize = 64;

/// What a client says first: who it is, as the specification's "EXTERNAL" has it. The bus answers with a line that begins with `OK `,
/// and the client goes on with `BEGIN` and messages.
pub fn introduction() -> String {
    let user = effective_user().to_string();
    let digits: String = user.bytes().map(|digit| format!("{digit:02x}")).collect();
    format!("\0AUTH EXTERNAL {digits}\r\n")
}

/// Why a call got no answer.
#[derive(Debug, Error)]
pub enum BusError {
    /// There is no bus, or it is gone.
    #[error(transparent)]
    Channel(#[from] io::Error),
    /// Something that is no message, or too long.
    #[error("what the message bus says makes no sense")]
    Nonsense,
    /// Nobody answered in time.
    #[error("nobody answers on the message bus")]
    Silent,
    /// An error, in words.
    #[error("{0}")]
    Refused(String),
}

/// What came.
enum Read {
    Nothing,
    /// Nothing that we read.
    Unknown,
    Message(Message),
}

/// A connection.
#[derive(Debug)]
pub struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
    waiting: VecDeque<Message>,
}

impl Bus {
    /// Connects to the machine's bus.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn system() -> Result<Self, BusError> {
        Self::at(SYSTEM_BUS)
    }

    /// Connects to a bus that listens on a socket.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn at(path: &str) -> Result<Self, BusError> {
        let mut bus = Self::open(path)?;
        let name = "org.freedesktop.DBus";
        bus.ask(&Message::call([name, "/org/freedesktop/DBus", name, "Hello"], Vec::new()))?;
        Ok(bus)
    }

    /// Connects to a socket and says who we are, as the specification's "EXTERNAL" has it.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn open(path: &str) -> Result<Self, BusError> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut stream = BufReader::new(stream);
        stream.get_mut().write_all(introduction().as_bytes())?;
        let mut line = Vec::new();
        (&mut stream).take(LONGEST_LINE).read_until(b'\n', &mut line)?;
        if !line.starts_with(b"OK ") {
            let text = String::from_utf8_lossy(&line).trim().chars().take(100).collect();
            return Err(BusError::Refused(text));
        }
        stream.get_mut().write_all(b"BEGIN\r\n")?;
        Ok(Self { stream, serial: 0, waiting: VecDeque::new() })
    }

    /// Has the bus pass on the signals that a rule names (D-Bus specification, "Match Rules").
    ///
    /// # Errors
    /// [`BusError`].
    pub fn subscribe(&mut self, rule: &str) -> Result<(), BusError> {
        let name = "org.freedesktop.DBus";
        let call = Message::call([name, "/org/freedesktop/DBus", name, "AddMatch"], vec![Value::text(rule)]);
        self.ask(&call).map(drop)
    }

    /// Sends a message; its number.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn send(&mut self, message: &Message) -> Result<u32, BusError> {
        self.serial += 1;
        self.stream.get_mut().write_all(&message.encode(self.serial))?;
        Ok(self.serial)
    }

    /// Calls, and waits for the answer; what comes in between is kept for [`Bus::next`].
    ///
    /// # Errors
    /// [`BusError`].
    pub fn ask(&mut self, call: &Message) -> Result<Vec<Value>, BusError> {
        self.ask_serving(call, &mut |_| None)
    }

    /// The same; calls that others make meanwhile are answered by `serve`.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn ask_serving(
        &mut self,
        call: &Message,
        serve: &mut dyn FnMut(&Message) -> Option<Message>,
    ) -> Result<Vec<Value>, BusError> {
        let serial = self.send(call)?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let Some(message) = self.read(deadline)? else { return Err(BusError::Silent) };
            let is_answer = message.answers == serial;
            match message.kind {
                Kind::Return if is_answer => return Ok(message.body),
                Kind::Error if is_answer => return Err(BusError::Refused(message.reason())),
                Kind::Return | Kind::Error => {}
                Kind::Call | Kind::Signal => match serve(&message) {
                    Some(answer) => drop(self.send(&answer)?),
                    None if self.waiting.len() < MOST_WAITING => self.waiting.push_back(message),
                    None => {}
                },
            }
        }
    }

    /// The next call or signal; `None` if there is none in that time.
    ///
    /// # Errors
    /// [`BusError`].
    pub fn next(&mut self, patience: Duration) -> Result<Option<Message>, BusError> {
        if let Some(message) = self.waiting.pop_front() {
            return Ok(Some(message));
        }
        let deadline = Instant::now() + patience;
        loop {
            match self.read(deadline)? {
                // Answers that nobody waits for any more.
                Some(Message { kind: Kind::Return | Kind::Error, .. }) => {}
                other => return Ok(other),
            }
        }
    }

    /// The next message, if one begins in time. What is too long or of no known kind is passed over: others may send us whatever the bus lets through.
    fn read(&mut self, deadline: Instant) -> Result<Option<Message>, BusError> {
        loop {
            match self.read_one(deadline)? {
                Read::Nothing => return Ok(None),
                Read::Unknown if Instant::now() >= deadline => return Ok(None),
                Read::Unknown => {}
                Read::Message(message) => return Ok(Some(message)),
            }
        }
    }

    fn read_one(&mut self, deadline: Instant) -> Result<Read, BusError> {
        if self.stream.buffer().is_empty() {
            let mut poller = Poller::new()?;
            poller.add(self.stream.get_ref(), Token(0), Interest::Readable)?;
            let mut ready = Vec::new();
            poller.wait(Some(deadline.saturating_duration_since(Instant::now())), &mut ready)?;
            if ready.is_empty() {
                return Ok(Read::Nothing);
            }
        }
        let mut head = [0; HEAD];
        self.stream.read_exact(&mut head)?;
        let length = message::rest_of(&head).ok_or(BusError::Nonsense)?;
        if length > message::LONGEST {
            let passed = io::copy(&mut (&mut self.stream).take(length as u64), &mut io::sink())?;
            return if passed == length as u64 { Ok(Read::Unknown) } else { Err(BusError::Nonsense) };
        }
        let mut rest = vec![0; length];
        self.stream.read_exact(&mut rest)?;
        Ok(Message::parse(&head, &rest).map_or(Read::Unknown, Read::Message))
    }
}
