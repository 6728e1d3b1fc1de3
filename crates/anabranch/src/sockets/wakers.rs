//! Who waits for what in a conversation.

use std::collections::BTreeMap;
use std::task::{Context, Waker};

use bond::StreamId;

/// What can be waited for on a stream.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Wait {
    Read,
    Write,
    Finish,
}

/// The wakers of one conversation. At most one task waits for each thing of a stream, as with other sockets.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    streams: BTreeMap<(StreamId, Wait), Waker>,
    /// For the conversation to be there, a stream to be allowed, or a datagram.
    others: Vec<Waker>,
}

impl Wakers {
    pub(super) fn wait(&mut self, stream: StreamId, what: Wait, context: &Context<'_>) {
        self.streams.insert((stream, what), context.waker().clone());
    }

    pub(super) fn wait_for_anything(&mut self, context: &Context<'_>) {
        if !self.others.iter().any(|waker| waker.will_wake(context.waker())) {
            self.others.push(context.waker().clone());
        }
    }

    pub(super) fn wake(&mut self, stream: StreamId, what: Wait) {
        self.streams.remove(&(stream, what)).into_iter().for_each(Waker::wake);
    }

    pub(super) fn wake_others(&mut self) {
        self.others.drain(..).for_each(Waker::wake);
    }

    pub(super) fn wake_all(&mut self) {
        std::mem::take(&mut self.streams).into_values().for_each(Waker::wake);
        self.wake_others();
    }

    /// Nobody holds the stream any more.
    pub(super) fn forget(&mut self, stream: StreamId) {
        for what in [Wait::Read, Wait::Write, Wait::Finish] {
            self.streams.remove(&(stream, what));
        }
    }
}
