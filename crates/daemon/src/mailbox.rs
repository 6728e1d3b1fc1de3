//! How threads say something to a loop.

use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use linux::poll::Waker;

/// A bounded channel whose receiver waits in a poller.
pub struct Mailbox<T> {
    sender: SyncSender<T>,
    waker: Waker,
}

impl<T> Clone for Mailbox<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), waker: self.waker.clone() }
    }
}

impl<T> Mailbox<T> {
    /// A mailbox for at most `bound` messages, and its other end.
    ///
    /// # Errors
    /// If the system gives no descriptor.
    pub fn new(bound: usize) -> std::io::Result<(Self, Receiver<T>, Waker)> {
        let (sender, receiver) = sync_channel(bound);
        let waker = Waker::new()?;
        Ok((Self { sender, waker: waker.clone() }, receiver, waker))
    }

    /// Puts a message in without waiting. False if the box is full or nobody reads it.
    pub fn post(&self, message: T) -> bool {
        let posted = match self.sender.try_send(message) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        };
        self.waker.wake();
        posted
    }

    /// Posts a question that carries where to send its answer, and waits for that.
    ///
    /// `None` if the box is full, or nothing comes within `patience`.
    pub fn ask<A>(&self, patience: Duration, question: impl FnOnce(SyncSender<A>) -> T) -> Option<A> {
        let (sender, receiver) = sync_channel(1);
        if self.post(question(sender)) { receiver.recv_timeout(patience).ok() } else { None }
    }
}
