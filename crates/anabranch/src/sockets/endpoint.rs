//! Endpoints: who this end is, and its conversations.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bond::{Algorithm, EndpointConfig, PrivateKey, SessionConfig, StreamError, StreamLimits};
use identity::PublicKey;
use linux::clock;
use mesh::Counters as RelayCounters;
use units::Timestamp;
use wire::peer::PeerAddress;

use super::adapter::Adapter;
use super::beside::MachineBeside;
use super::conversation::{ConversationId, State};
use super::core::Core;
use super::driver::{self, Shared};
use super::error::{BindError, ConnectError};
use super::event::Events;
use super::listener::VirtualListener;
use super::monitor::AdapterMonitor;
use super::options::{ConnectOptions, EndpointOptions, Peer};
use super::remote;
use super::stream::VirtualStream;
use crate::machine;

/// Calls a second above which callers must first prove their address.
const RETRY_ABOVE: u32 = 100;

/// One end of virtual sockets: an identity, on all adapters of this machine. Clones are the same endpoint; it ends with the last of them and of what
/// they made.
#[derive(Clone)]
pub struct Endpoint(Arc<Owner>);

/// Held by everything that the application has; the driver ends some time after the last one.
pub(super) struct Owner(Arc<Shared>);

impl Owner {
    pub(super) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let mut core = self.0.lock();
        core.closing.get_or_insert_with(clock::now);
        self.0.done(core);
    }
}

impl Endpoint {
    /// Opens sockets on all adapters, and follows them from now on. Needs no privileges and no asynchronous runtime: a thread does the work.
    ///
    /// # Errors
    /// If the system refuses, or no adapter's socket could be opened, as on a port that is taken.
    pub fn bind(options: EndpointOptions) -> Result<Self, BindError> {
        let monitor = AdapterMonitor::shared()?;
        let congestion = if options.background { Algorithm::Background } else { Algorithm::default() };
        let config = EndpointConfig {
            key: PrivateKey::new(*options.key.private_bytes()),
            session: SessionConfig { congestion, ..SessionConfig::default() },
            accept: true,
            retry_above: RETRY_ABOVE,
            aes: machine::has_aes(),
        };
        let mut bond = bond::Endpoint::new(config, machine::seed()?).map_err(|_| BindError::Key)?;
        bond.carry_streams(StreamLimits::default());
        let mut core = Core::new(bond, options)?;
        let refused = core.follow_adapters(clock::now(), &monitor);
        if !core.carriers.is_open() {
            refused?;
        }
        let shared = Arc::new(Shared::new(core, monitor)?);
        driver::start(&shared)?;
        Ok(Self(Arc::new(Owner(shared))))
    }

    /// A connection to a peer: a stream of the one conversation with it, which is begun if there is none.
    ///
    /// # Errors
    /// If the peer does not answer in time, or not as it should; [`ConnectError`] tells.
    pub async fn connect(
        &self,
        peer: &Peer,
        options: &ConnectOptions,
    ) -> Result<VirtualStream, ConnectError> {
        let conversation = self.converse(peer, options).await?;
        let opened = poll_fn(|context| self.poll_open(conversation, context)).await;
        // The stream holds the conversation from here on.
        self.release(conversation);
        opened
    }

    /// Datagrams to and from a peer: at most 1100 bytes each, not repeated if they are lost.
    ///
    /// # Errors
    /// As [`Endpoint::connect`].
    pub async fn datagrams(&self, peer: &Peer, options: &ConnectOptions) -> Result<Datagrams, ConnectError> {
        let conversation = self.converse(peer, options).await?;
        Ok(Datagrams { owner: Arc::clone(&self.0), conversation, peer: peer.key })
    }

    /// The datagrams of the peer of a stream.
    pub fn datagrams_of(&self, stream: &VirtualStream) -> Datagrams {
        let conversation = stream.conversation();
        if let Some(known) = self.shared().lock().conversations.get_mut(&conversation) {
            known.handles += 1;
        }
        Datagrams { owner: Arc::clone(&self.0), conversation, peer: stream.peer() }
    }

    /// Takes connections from now on, of those whom the options admit.
    pub fn listen(&self) -> VirtualListener {
        VirtualListener::new(Arc::clone(&self.0))
    }

    /// Further addresses of a peer, tried at once by what is connected with it or about to be.
    pub fn hint(&self, peer: &Peer) {
        let mut core = self.shared().lock();
        core.hint(clock::now(), peer);
        self.shared().done(core);
        self.shared().wake();
    }

    /// A machine may be beside this one by Bluetooth. It is called where a way over relays is looked for: by this end, at its relay's port, a few machines
    /// at a time; for others only if it is the one that is looked for. Connections with it do not take its ports for addresses of theirs. Of more
    /// than 64 machines the one that was told first is forgotten.
    pub fn beside(&self, machine: &MachineBeside) {
        self.shared().lock().beside.note(machine);
    }

    /// Machines of whoever has this key are not called any more.
    pub fn not_beside(&self, key: PublicKey) {
        self.shared().lock().beside.forget(key);
    }

    /// What happens to connections from now on.
    pub fn events(&self) -> Events {
        self.shared().lock().audience.join()
    }

    /// The adapters of this machine, best first, those too that this endpoint does not use.
    pub fn adapters(&self) -> Vec<Adapter> {
        self.shared().monitor.look().0.to_vec()
    }

    /// Where peers reach this end.
    pub fn addresses(&self) -> Vec<PeerAddress> {
        self.shared().lock().carriers.own_addresses().map(|(_, address)| remote::told(address)).collect()
    }

    /// What this end has done for others over relays, and said to find ways itself.
    pub fn relayed(&self) -> RelayCounters {
        self.shared().lock().relay_counters()
    }

    /// Who this end is.
    pub fn public_key(&self) -> PublicKey {
        self.shared().lock().options.key.public()
    }

    /// Ends all connections, after what was written to them has arrived, or five seconds.
    pub async fn close(self) {
        let shared = Arc::clone(&self.0.0);
        drop(self);
        {
            let mut core = shared.lock();
            core.closing.get_or_insert_with(clock::now);
            shared.done(core);
        }
        poll_fn(|context| {
            let mut core = shared.lock();
            if core.ended {
                return Poll::Ready(());
            }
            core.close_wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    pub(super) fn shared(&self) -> &Shared {
        self.0.shared()
    }

    pub(super) fn owner(&self) -> Arc<Owner> {
        Arc::clone(&self.0)
    }

    /// The conversation with a peer, once it is up; held until released.
    async fn converse(&self, peer: &Peer, options: &ConnectOptions) -> Result<ConversationId, ConnectError> {
        let begun = {
            let mut core = self.shared().lock();
            let begun = core.converse(clock::now(), peer, options);
            if let Some(known) = begun.as_ref().ok().and_then(|id| core.conversations.get_mut(id)) {
                known.handles += 1;
            }
            self.shared().done(core);
            // Also for the deadline, which the driver has not heard of.
            self.shared().wake();
            begun
        };
        let id = begun?;
        let held = Held { endpoint: self, id };
        let outcome = poll_fn(|context| {
            let mut core = self.shared().lock();
            let Some(known) = core.conversations.get_mut(&id) else {
                return Poll::Ready(Err(ConnectError::Closed));
            };
            match &known.state {
                State::Over(error) => Poll::Ready(Err(error.clone())),
                State::Connecting { .. } => {
                    known.wakers.wait_for_anything(context);
                    Poll::Pending
                }
                State::Up | State::Suspended { .. } => Poll::Ready(Ok(())),
            }
        })
        .await;
        outcome?;
        std::mem::forget(held);
        Ok(id)
    }

    fn poll_open(
        &self,
        id: ConversationId,
        context: &Context<'_>,
    ) -> Poll<Result<VirtualStream, ConnectError>> {
        let mut core = self.shared().lock();
        let core_ref = &mut *core;
        let Some(known) = core_ref.conversations.get_mut(&id) else {
            return Poll::Ready(Err(ConnectError::Closed));
        };
        if let State::Over(error) = &known.state {
            return Poll::Ready(Err(error.clone()));
        }
        let opened = match core_ref.bond.open_stream(clock::now(), known.session) {
            Ok(stream) => {
                known.handles += 1;
                Ok(VirtualStream::new(Arc::clone(&self.0), id, stream, known.peer))
            }
            Err(StreamError::Blocked) => {
                known.wakers.wait_for_anything(context);
                return Poll::Pending;
            }
            Err(_) => Err(ConnectError::Ended(known.peer)),
        };
        self.shared().done(core);
        Poll::Ready(opened)
    }

    fn release(&self, id: ConversationId) {
        self.shared().lock().release(id);
    }
}

/// A conversation that is let go of if a call is given up half-way.
struct Held<'a> {
    endpoint: &'a Endpoint,
    id: ConversationId,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.endpoint.release(self.id);
    }
}

/// Datagrams to and from one peer.
pub struct Datagrams {
    owner: Arc<Owner>,
    conversation: ConversationId,
    peer: PublicKey,
}

impl Datagrams {
    /// Who they are exchanged with.
    pub fn peer(&self) -> PublicKey {
        self.peer
    }

    /// Sends one, unless it still waits for a network after `deadline`.
    ///
    /// # Errors
    /// If it has more than 1100 bytes, or the conversation is over.
    pub fn send(&self, bytes: &[u8], deadline: Duration) -> std::io::Result<()> {
        let shared = self.owner.shared();
        let mut core = shared.lock();
        let core_ref = &mut *core;
        let known = core_ref.conversations.get(&self.conversation);
        let known = known.ok_or_else(|| ConnectError::Closed.into_io())?;
        if let State::Over(error) = &known.state {
            return Err(error.clone().into_io());
        }
        let now = clock::now();
        let until: Timestamp = now + deadline;
        let sent = core_ref.bond.send_datagram(now, known.session, bytes.to_vec(), until);
        shared.done(core);
        sent.map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidInput, error))
    }

    /// The next one that comes.
    ///
    /// # Errors
    /// If the conversation is over.
    pub async fn receive(&self) -> std::io::Result<Vec<u8>> {
        poll_fn(|context| {
            let mut core = self.owner.shared().lock();
            let core = &mut *core;
            let Some(known) = core.conversations.get_mut(&self.conversation) else {
                return Poll::Ready(Err(ConnectError::Closed.into_io()));
            };
            if let Some(bytes) = core.bond.receive_datagram(known.session) {
                return Poll::Ready(Ok(bytes));
            }
            if let State::Over(error) = &known.state {
                let left = known.remains.as_mut().and_then(bond::Remains::receive_datagram);
                return Poll::Ready(left.ok_or_else(|| error.clone().into_io()));
            }
            known.wakers.wait_for_anything(context);
            Poll::Pending
        })
        .await
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.owner.shared().lock().release(self.conversation);
    }
}
