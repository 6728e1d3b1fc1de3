//! The signals that ask a daemon to end, as a descriptor.
#![expect(unsafe_code, reason = "signal masks and signalfd are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use crate::system_call::{check, check_size};

/// SIGTERM, SIGINT and SIGHUP, which no longer end the process.
pub struct EndSignals(OwnedFd);

impl EndSignals {
    /// Must be called before the process starts any thread: threads inherit which signals are held back.
    pub fn catch() -> io::Result<Self> {
        // SAFETY: all-zero bytes are a valid set, and sigemptyset makes it an empty one.
        let signals = unsafe {
            let mut signals: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut signals);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(&raw mut signals, signal);
            }
            signals
        };
        // SAFETY: the set is live; the old mask is not asked for.
        check(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const signals, std::ptr::null_mut()) })?;
        let flags = libc::SFD_NONBLOCK | libc::SFD_CLOEXEC;
        // SAFETY: the set is live.
        let raw = check(unsafe { libc::signalfd(-1, &raw const signals, flags) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// The number of a signal that came; `None` if none waits.
    pub fn take(&self) -> Option<i32> {
        // SAFETY: all-zero bytes are a valid signalfd_siginfo.
        let mut information: libc::signalfd_siginfo = unsafe { std::mem::zeroed() };
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the pointer is to a live structure of that size.
        let read = unsafe { libc::read(self.0.as_raw_fd(), (&raw mut information).cast(), size) };
        (check_size(read).ok()? == size).then_some(information.ssi_signo as i32)
    }
}

impl AsFd for EndSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::supervisor::{Exit, in_child};

    #[test]
    fn a_caught_signal_is_read_and_does_not_end_the_process() {
        let child = in_child(|| {
            let signals = EndSignals::catch().unwrap();
            assert_eq!(signals.take(), None);
            // SAFETY: plain system call on our own process.
            unsafe { libc::kill(libc::getpid(), libc::SIGTERM) };
            assert_eq!(signals.take(), Some(libc::SIGTERM));
        });
        assert_eq!(child.unwrap().wait().unwrap(), Exit::Code(0));
    }
}
