//! What happens to connections: `[VCONN] table 1`.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Poll, Waker};

use identity::PublicKey;

/// Events that wait for a reader; older ones give way.
const MAX_WAITING: usize = 1_024;

/// Something happened to the connection with a peer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// The peer.
    pub peer: PublicKey,
    /// What happened.
    pub kind: EventKind,
}

/// Kinds of events. Adapters go by the name of their interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// `CONN_NEW`: a connection is there.
    New {
        /// The adapter that carries it.
        adapter: String,
    },
    /// `CONN_OFF`: the active channel has lost connection.
    Off {
        /// Its adapter.
        adapter: String,
        /// No other is left: the connection is suspended until one returns.
        suspended: bool,
    },
    /// `CONN_ON`: a suspended connection goes on.
    On {
        /// The adapter that carries it now.
        adapter: String,
    },
    /// `CONN_SWITCH`: another channel is active now.
    Switch {
        /// The adapter before.
        from: String,
        /// The adapter that carries it now.
        to: String,
    },
    /// `CONT_DEL`: a channel was removed.
    ControlDeleted {
        /// Its adapter.
        adapter: String,
    },
    /// `CONT_CHG`: a passive channel has lost connection, or has it again.
    ControlChanged {
        /// Its adapter.
        adapter: String,
        /// Whether it could carry data now.
        usable: bool,
    },
    /// The connection is over.
    Ended {
        /// Why, for people.
        why: String,
    },
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Event>,
    waker: Option<Waker>,
    closed: bool,
}

/// Events from now on.
#[derive(Debug)]
pub struct Events(Arc<Mutex<Queue>>);

impl Events {
    /// The next event; `None` once the endpoint is closed.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| {
            let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match queue.waiting.pop_front() {
                Some(event) => Poll::Ready(Some(event)),
                None if queue.closed => Poll::Ready(None),
                None => {
                    queue.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

/// Everybody who wants to hear.
#[derive(Debug, Default)]
pub(super) struct Audience(Vec<Weak<Mutex<Queue>>>);

impl Audience {
    pub(super) fn join(&mut self) -> Events {
        let queue = Arc::default();
        self.0.push(Arc::downgrade(&queue));
        Events(queue)
    }

    pub(super) fn tell(&mut self, event: &Event) {
        self.each(|queue| {
            if queue.waiting.len() >= MAX_WAITING {
                queue.waiting.pop_front();
            }
            queue.waiting.push_back(event.clone());
        });
    }

    pub(super) fn close(&mut self) {
        self.each(|queue| queue.closed = true);
    }

    fn each(&mut self, mut act: impl FnMut(&mut Queue)) {
        self.0.retain(|listener| {
            let Some(queue) = listener.upgrade() else { return false };
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            act(&mut queue);
            queue.waker.take().into_iter().for_each(Waker::wake);
            true
        });
    }
}
