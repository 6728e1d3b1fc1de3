//! The sockets of a device for every local user: requests about the own flows, and open sockets to be tied to a network.
//!
//! They are abstract (unix(7)): no path that users would have to be let into, and seen in this network namespace only.
//! Root opens them, so that a caller can tell them from another program's of the same name.

use std::io::{self, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use anabranch::control::{Failure, open_socket, sockets_name};
use linux::direct::{TIED, mark_of};
use linux::passing;
use tracing::{debug, warn};

use super::backend::picture;
use super::direct::Message;
use crate::control::{self, BackendError};
use crate::mailbox::Mailbox;

/// Both, bound and listening.
pub struct OpenSockets {
    /// For requests.
    pub control: UnixListener,
    /// For sockets to be tied to a network.
    pub sockets: UnixListener,
}

impl OpenSockets {
    /// Opens them for the device with this interface; `None`, with a warning, if another program has them.
    pub fn open(interface: &str) -> Option<Self> {
        let both = control::listen_abstract(&open_socket(interface)).and_then(|control| {
            Ok(Self { control, sockets: control::listen_abstract(Path::new(&sockets_name(interface)))? })
        });
        both.inspect_err(|error| {
            warn!("only root and the owner of the state can use \"anabranch run\", \"pin\" and \"flows\": {error}");
        })
        .ok()
    }
}

/// Ties sockets to networks until the daemon ends; one at a time, each for at most [`PATIENCE`].
pub fn serve(listener: UnixListener, choices: Mailbox<Message>) -> io::Result<()> {
    let work = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => {
                    if let Err(error) = answer(&stream, &choices) {
                        debug!("a caller with a socket has gone: {error}");
                    }
                }
                Err(error) => {
                    warn!("cannot take sockets: {error}");
                    std::thread::sleep(PATIENCE);
                }
            }
        }
    };
    std::thread::Builder::new().name("sockets".to_owned()).spawn(work).map(drop)
}

fn answer(stream: &UnixStream, choices: &Mailbox<Message>) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let outcome = tie(stream, choices);
    let failure = outcome.err().map(|error| Failure { code: error.code(), message: error.to_string() });
    let mut stream = stream;
    stream.write_all(&serde_json::to_vec(&failure)?)
}

fn tie(stream: &UnixStream, choices: &Mailbox<Message>) -> Result<(), BackendError> {
    let nonsense = |text: &str| BackendError::BadRequest(text.to_owned());
    let mut name = [0; LONGEST_NAME];
    let (length, socket) =
        passing::receive(stream, &mut name).map_err(|error| BackendError::BadRequest(error.to_string()))?;
    let socket = socket.ok_or_else(|| nonsense("no socket came with the request"))?;
    let name = name.get(..length).and_then(|name| std::str::from_utf8(name).ok());
    let name =
        name.and_then(|name| name.strip_suffix('\n')).ok_or_else(|| nonsense("no network is named"))?;
    let picture = picture(choices)?;
    let number = picture.network(name).and_then(|network| picture.numbers.of(network.id));
    let number = number.ok_or_else(|| {
        BackendError::NotFound(format!("there is no network called \"{name}\" that flows can leave by"))
    })?;
    let mark = mark_of(number) | TIED;
    passing::set_mark(&socket, mark).map_err(|error| BackendError::BadRequest(error.to_string()))
}

/// A caller sends its request at once.
const PATIENCE: Duration = Duration::from_secs(1);
/// Names of interfaces are shorter.
const LONGEST_NAME: usize = 64;
