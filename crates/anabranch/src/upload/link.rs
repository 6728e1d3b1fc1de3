//! Messages over a virtual socket: each has its length (4) in front.

use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use identity::PublicKey;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::sockets::{Standing, VirtualStream};

/// Longest message, bytes: feedback about 64 neighbours.
const MAX_MESSAGE: usize = 64 * 1024;
/// Messages that wait to be written.
const MOST_WAITING: usize = 64;
/// Bytes that are written, or read, at once.
const AT_ONCE: usize = 32 * 1024;
/// How long the last words of a link may take.
const GOODBYE: Duration = Duration::from_secs(5);

/// What comes by a link.
pub(super) enum Heard {
    Message(Vec<u8>),
    /// It has ended.
    Gone(io::Error),
}

/// One end of a connection. Dropped, it lets what waits be written.
pub(super) struct Link {
    stream: Arc<VirtualStream>,
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    reader: JoinHandle<()>,
    writer: Option<JoinHandle<()>>,
}

impl Link {
    /// Starts a link; what it hears goes to `into` under its number. `first` is written in front of all messages.
    pub(super) fn start(
        number: u64,
        stream: VirtualStream,
        first: Vec<u8>,
        into: mpsc::Sender<(u64, Heard)>,
    ) -> Self {
        let stream = Arc::new(stream);
        let (outgoing, waiting) = mpsc::channel(MOST_WAITING);
        let reader = tokio::spawn(read_all(number, Arc::clone(&stream), into));
        let writer = tokio::spawn(write_all(Arc::clone(&stream), first, waiting));
        Self { stream, outgoing: Some(outgoing), reader, writer: Some(writer) }
    }

    /// Sends a message; `false` if there is no room, or nobody to send it to.
    pub(super) fn send(&self, message: Vec<u8>) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.try_send(message).is_ok())
    }

    pub(super) fn has_room(&self) -> bool {
        self.outgoing.as_ref().is_some_and(|outgoing| outgoing.capacity() > MOST_WAITING / 2)
    }

    /// Waits for room.
    pub(super) async fn room(&self) {
        match &self.outgoing {
            // What is read by and by makes room; an end is heard of by the reader.
            Some(outgoing) if !outgoing.is_closed() => {
                drop(outgoing.reserve_many(MOST_WAITING / 2 + 1).await);
            }
            _ => std::future::pending().await,
        }
    }

    pub(super) fn peer(&self) -> PublicKey {
        self.stream.peer()
    }

    /// Bytes that the connection has taken and not sent yet.
    pub(super) fn waiting_bytes(&self) -> u64 {
        self.stream.waiting_bytes()
    }

    pub(super) fn standing(&self) -> Standing {
        self.stream.standing()
    }

    /// Ends the link once all is written, or after some seconds.
    pub(super) async fn finish(mut self) {
        self.outgoing = None;
        if let Some(writer) = self.writer.take() {
            drop(tokio::time::timeout(GOODBYE, writer).await);
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

async fn read_all(number: u64, stream: Arc<VirtualStream>, into: mpsc::Sender<(u64, Heard)>) {
    let mut reader = Reader { stream, buffer: Vec::new(), at: 0 };
    loop {
        let heard = match reader.message().await {
            Ok(message) => Heard::Message(message),
            Err(error) => Heard::Gone(error),
        };
        let ended = matches!(heard, Heard::Gone(_));
        if into.send((number, heard)).await.is_err() || ended {
            return;
        }
    }
}

struct Reader {
    stream: Arc<VirtualStream>,
    buffer: Vec<u8>,
    /// All in front of it was handed on.
    at: usize,
}

impl Reader {
    async fn message(&mut self) -> io::Result<Vec<u8>> {
        loop {
            let waiting = self.buffer.get(self.at..).unwrap_or_default();
            if let Some((length, rest)) = waiting.split_first_chunk::<4>() {
                let length = u32::from_be_bytes(*length) as usize;
                if length == 0 || length > MAX_MESSAGE {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                if let Some(message) = rest.get(..length) {
                    let message = message.to_vec();
                    self.at += 4 + length;
                    return Ok(message);
                }
            }
            self.buffer.drain(..self.at);
            self.at = 0;
            let old = self.buffer.len();
            self.buffer.resize(old + AT_ONCE, 0);
            let room = self.buffer.get_mut(old..).unwrap_or_default();
            let count = poll_fn(|context| self.stream.poll_read_some(context, room)).await;
            self.buffer.truncate(old + *count.as_ref().unwrap_or(&0));
            if count? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

async fn write_all(stream: Arc<VirtualStream>, first: Vec<u8>, mut waiting: mpsc::Receiver<Vec<u8>>) {
    let mut bytes = first;
    loop {
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            match poll_fn(|context| stream.poll_write_some(context, rest)).await {
                Ok(count) => written += count,
                // The reader hears of it too, and says so.
                Err(_) => return,
            }
        }
        bytes.clear();
        let Some(message) = waiting.recv().await else { break };
        put(&mut bytes, &message);
        while bytes.len() < AT_ONCE
            && let Ok(message) = waiting.try_recv()
        {
            put(&mut bytes, &message);
        }
    }
    // The end of the stream tells the peer that nothing follows; waiting for it is the endpoint's.
    drop(tokio::time::timeout(GOODBYE, poll_fn(|context| stream.poll_finish(context))).await);
}

fn put(bytes: &mut Vec<u8>, message: &[u8]) {
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend(message);
}
