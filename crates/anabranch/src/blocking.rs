//! Virtual sockets for threads: each call waits until it is done. No asynchronous runtime is needed.
//!
//! See `examples/copy.rs`.

use std::future::Future;
use std::io::{self, Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use identity::PublicKey;

use crate::sockets::{BindError, ConnectError, ConnectOptions, EndpointOptions, Event, Peer, Standing};

/// As [`crate::Endpoint`].
#[derive(Clone)]
pub struct Endpoint(crate::Endpoint);

/// As [`crate::VirtualListener`].
pub struct VirtualListener(crate::VirtualListener);

/// As [`crate::VirtualStream`]; implements [`Read`] and [`Write`], also behind a shared reference, as [`std::net::TcpStream`] does.
pub struct VirtualStream(crate::VirtualStream);

/// As [`crate::Datagrams`].
pub struct Datagrams(crate::Datagrams);

/// As [`crate::Events`].
pub struct Events(crate::Events);

impl Endpoint {
    /// As [`crate::Endpoint::packets`].
    pub fn packets(&self) -> Packets {
        Packets(self.0.packets())
    }

    /// As [`crate::Endpoint::bind`].
    ///
    /// # Errors
    /// As there.
    pub fn bind(options: EndpointOptions) -> Result<Self, BindError> {
        crate::Endpoint::bind(options).map(Self)
    }

    /// As [`crate::Endpoint::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self, peer: &Peer, options: &ConnectOptions) -> Result<VirtualStream, ConnectError> {
        wait(self.0.connect(peer, options)).map(VirtualStream)
    }

    /// As [`crate::Endpoint::datagrams`].
    ///
    /// # Errors
    /// As there.
    pub fn datagrams(&self, peer: &Peer, options: &ConnectOptions) -> Result<Datagrams, ConnectError> {
        wait(self.0.datagrams(peer, options)).map(Datagrams)
    }

    /// As [`crate::Endpoint::datagrams_of`].
    pub fn datagrams_of(&self, stream: &VirtualStream) -> Datagrams {
        Datagrams(self.0.datagrams_of(&stream.0))
    }

    /// As [`crate::Endpoint::listen`].
    pub fn listen(&self) -> VirtualListener {
        VirtualListener(self.0.listen())
    }

    /// As [`crate::Endpoint::events`].
    pub fn events(&self) -> Events {
        Events(self.0.events())
    }

    /// As [`crate::Endpoint::close`].
    pub fn close(self) {
        wait(self.0.close());
    }

    /// The same endpoint for asynchronous calls.
    pub fn asynchronous(&self) -> &crate::Endpoint {
        &self.0
    }
}

impl From<crate::Endpoint> for Endpoint {
    fn from(endpoint: crate::Endpoint) -> Self {
        Self(endpoint)
    }
}

impl VirtualListener {
    /// As [`crate::VirtualListener::accept`].
    ///
    /// # Errors
    /// As there.
    pub fn accept(&self) -> Result<VirtualStream, ConnectError> {
        wait(self.0.accept()).map(|incoming| VirtualStream(incoming.stream))
    }
}

impl VirtualStream {
    /// Who is at the other end.
    pub fn peer(&self) -> PublicKey {
        self.0.peer()
    }

    /// What carries the connection now.
    pub fn standing(&self) -> Standing {
        self.0.standing()
    }

    /// As [`crate::VirtualStream::reset`].
    pub fn reset(&self, code: u64) {
        self.0.reset(code);
    }

    /// Two halves, for two threads: one to read from, one to write to.
    pub fn split(self) -> (ReadHalf, WriteHalf) {
        let whole = Arc::new(self.0);
        (ReadHalf(Arc::clone(&whole)), WriteHalf(whole))
    }

    /// As [`crate::VirtualStream::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&self) -> io::Result<()> {
        wait(std::future::poll_fn(|context| self.0.poll_finish(context)))
    }
}

impl Read for &VirtualStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        wait(std::future::poll_fn(|context| self.0.poll_read_some(context, into)))
    }
}

impl Write for &VirtualStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(std::future::poll_fn(|context| self.0.poll_write_some(context, bytes)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for VirtualStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        (&*self).read(into)
    }
}

impl Write for VirtualStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Datagrams {
    /// Who they are exchanged with.
    pub fn peer(&self) -> PublicKey {
        self.0.peer()
    }

    /// As [`crate::Datagrams::send`].
    ///
    /// # Errors
    /// As there.
    pub fn send(&self, bytes: &[u8], deadline: Duration) -> io::Result<()> {
        self.0.send(bytes, deadline)
    }

    /// As [`crate::Datagrams::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&self) -> io::Result<Vec<u8>> {
        wait(self.0.receive())
    }
}

/// As [`crate::Packets`].
pub struct Packets(crate::Packets);

impl Packets {
    /// As [`crate::Packets::receive`].
    ///
    /// # Errors
    /// As there.
    pub fn receive(&self) -> Result<(PublicKey, Vec<u8>), ConnectError> {
        wait(self.0.receive())
    }
}

/// The half of a stream that is read from.
pub struct ReadHalf(Arc<crate::VirtualStream>);

/// The half of a stream that is written to.
pub struct WriteHalf(Arc<crate::VirtualStream>);

impl ReadHalf {
    /// What carries the connection now.
    pub fn standing(&self) -> Standing {
        self.0.standing()
    }
}

impl WriteHalf {
    /// As [`crate::VirtualStream::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&mut self) -> io::Result<()> {
        wait(std::future::poll_fn(|context| self.0.poll_finish(context)))
    }
}

impl Read for ReadHalf {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        wait(std::future::poll_fn(|context| self.0.poll_read_some(context, into)))
    }
}

impl Write for WriteHalf {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        wait(std::future::poll_fn(|context| self.0.poll_write_some(context, bytes)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        wait(self.0.next())
    }
}

/// Wakes a thread that is parked.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
