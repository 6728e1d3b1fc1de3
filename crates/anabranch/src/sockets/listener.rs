//! Connections that peers make.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

use identity::PublicKey;

use super::endpoint::Owner;
use super::error::ConnectError;
use super::stream::VirtualStream;

/// Takes the connections of an endpoint. If there are several, each connection goes to one of them.
pub struct VirtualListener(Arc<Owner>);

/// A connection that a peer has made.
pub struct Incoming {
    /// Who: proved by its key.
    pub peer: PublicKey,
    /// The connection.
    pub stream: VirtualStream,
}

impl VirtualListener {
    pub(super) fn new(owner: Arc<Owner>) -> Self {
        owner.shared().lock().listeners += 1;
        Self(owner)
    }

    /// The next connection.
    ///
    /// # Errors
    /// [`ConnectError::Closed`] once the endpoint is closed.
    pub async fn accept(&self) -> Result<Incoming, ConnectError> {
        poll_fn(|context| self.poll_accept(context)).await
    }

    /// As [`VirtualListener::accept`], for futures made by hand.
    pub fn poll_accept(&self, context: &Context<'_>) -> Poll<Result<Incoming, ConnectError>> {
        let mut core = self.0.shared().lock();
        let core = &mut *core;
        while let Some((id, stream)) = core.fresh.pop_front() {
            let Some(known) = core.conversations.get_mut(&id) else { continue };
            known.handles += 1;
            let peer = known.peer;
            let stream = VirtualStream::new(Arc::clone(&self.0), id, stream, peer);
            return Poll::Ready(Ok(Incoming { peer, stream }));
        }
        if core.ended {
            return Poll::Ready(Err(ConnectError::Closed));
        }
        core.accept_wakers.push(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for VirtualListener {
    fn drop(&mut self) {
        let mut core = self.0.shared().lock();
        core.listeners = core.listeners.saturating_sub(1);
        if core.listeners == 0 {
            core.forget_unheard();
        }
    }
}
