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
        self.offer(message).is_ok()
    }

    /// The same for a message that is wanted back then.
    ///
    /// # Errors
    /// The message.
    pub fn offer(&self, message: T) -> Result<(), T> {
        let posted = self.sender.try_send(message).map_err(|error| match error {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        });
        self.waker.wake();
        posted
    }

    /// Puts a last message in, and waits for room. If nobody reads the box any more, nobody misses it.
    pub fn insist(&self, message: T) {
        if let Err(message) = self.offer(message) {
            let _ = self.sender.send(message);
            self.waker.wake();
        }
    }

    /// Posts a question that carries where to send its answer, and waits for that.
    ///
    /// `None` if the box is full, or nothing comes within `patience`.
    pub fn ask<A>(&self, patience: Duration, question: impl FnOnce(SyncSender<A>) -> T) -> Option<A> {
        let (sender, receiver) = sync_channel(1);
        if self.post(question(sender)) { receiver.recv_timeout(patience).ok() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_box_gives_back_and_the_last_word_waits() {
        let (mailbox, messages, _waker) = Mailbox::new(1).unwrap();
        assert!(mailbox.post(1));
        assert!(!mailbox.post(2));
        assert_eq!(mailbox.offer(3), Err(3));
        let last = std::thread::spawn(move || {
            mailbox.insist(4);
            mailbox
        });
        assert_eq!((messages.recv(), messages.recv()), (Ok(1), Ok(4)));
        let mailbox = last.join().unwrap();
        drop(messages);
        mailbox.insist(5);
    }
}
