//! Waiting for many descriptors at once: epoll, level-triggered, to the microsecond.
//!
//! Level-triggered, so a loop may leave work undone when its budget is spent and is woken again; with time-outs
//! finer than a millisecond (`epoll_pwait2`, Linux 5.11), since a pacer has packets to send every few hundred
//! microseconds.
#![expect(unsafe_code, reason = "epoll and eventfd are not in the standard library")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use crate::system_call::{check, check_size, errno};

/// The owner's number of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// What to wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Something can be read.
    Readable,
    /// Something can be read or written.
    ReadableOrWritable,
}

/// One descriptor that is ready.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// Which.
    pub token: Token,
    /// Reading will not block; also set on errors and hang-ups, which a read then tells.
    pub readable: bool,
    /// Writing will not block.
    pub writable: bool,
}

/// A set of descriptors. A closed descriptor leaves it by itself.
pub struct Poller {
    epoll: OwnedFd,
    events: Vec<libc::epoll_event>,
    fine: bool,
}

impl Poller {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system call without pointers.
        let raw = check(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let epoll = unsafe { OwnedFd::from_raw_fd(raw) };
        Ok(Self { epoll, events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS], fine: true })
    }

    /// Adds a descriptor under `token`.
    pub fn add(&self, source: &impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, source.as_fd(), token, interest)
    }

    /// Changes what is waited for.
    pub fn change(&self, source: &impl AsFd, token: Token, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, source.as_fd(), token, interest)
    }

    /// Waits for a descriptor no longer that stays open. One that is closed is forgotten by itself.
    pub fn remove(&self, source: &impl AsFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, source.as_fd(), Token(0), Interest::Readable)
    }

    fn control(
        &self,
        operation: libc::c_int,
        source: BorrowedFd<'_>,
        token: Token,
        interest: Interest,
    ) -> io::Result<()> {
        let events = match interest {
            Interest::Readable => libc::EPOLLIN,
            Interest::ReadableOrWritable => libc::EPOLLIN | libc::EPOLLOUT,
        };
        let mut event = libc::epoll_event { events: events as u32, u64: token.0 };
        // SAFETY: both descriptors are open and the pointer is to a live event.
        check(unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), operation, source.as_raw_fd(), &raw mut event)
        })
        .map(drop)
    }

    /// Waits until a descriptor is ready or `timeout` is over (`None`: for ever), and puts what is ready into `ready`.
    pub fn wait(&mut self, timeout: Option<Duration>, ready: &mut Vec<Ready>) -> io::Result<()> {
        ready.clear();
        let count = match self.wait_fine(timeout) {
            Err(error) if errno(&error) == libc::EINTR => 0,
            Err(error) if self.fine && matches!(errno(&error), libc::ENOSYS | libc::EPERM) => {
                self.fine = false;
                return self.wait(timeout, ready);
            }
            other => other?,
        };
        ready.extend(self.events[..count].iter().map(|event| {
            let (bits, token) = (event.events as i32, event.u64);
            Ready {
                token: Token(token),
                readable: bits & (libc::EPOLLIN | libc::EPOLLERR | libc::EPOLLHUP) != 0,
                writable: bits & (libc::EPOLLOUT | libc::EPOLLERR | libc::EPOLLHUP) != 0,
            }
        }));
        Ok(())
    }

    fn wait_fine(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        let events = self.events.as_mut_ptr();
        if !self.fine {
            // Rounded up: waking early would spin until the time has come.
            let millis = timeout
                .map_or(-1, |timeout| i32::try_from(timeout.as_micros().div_ceil(1_000)).unwrap_or(i32::MAX));
            // SAFETY: pointer and length describe the live list of events.
            let count = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events, EVENTS as i32, millis) };
            return check(count).map(|count| count as usize);
        }
        let limit = timeout.map(|timeout| libc::timespec {
            tv_sec: i32::try_from(timeout.as_secs()).unwrap_or(i32::MAX).into(),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: pointer and length describe the live list of events; `limit` is null or a live timespec; no
        // signal mask is given.
        let count = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.epoll.as_raw_fd(),
                events,
                EVENTS as i32,
                limit,
                std::ptr::null::<libc::sigset_t>(),
                0usize,
            )
        };
        check(count as libc::c_int).map(|count| count as usize)
    }
}

/// A set may be waited for in another set: it is readable while something in it is ready.
impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

/// Wakes the thread that waits in a [`Poller`], from any thread.
#[derive(Clone, Debug)]
pub struct Waker(Arc<OwnedFd>);

impl Waker {
    /// A waker; add it to the poller under a token of its own.
    pub fn new() -> io::Result<Self> {
        // SAFETY: plain system call without pointers.
        let raw = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        Ok(Self(Arc::new(unsafe { OwnedFd::from_raw_fd(raw) })))
    }

    /// Whether both wake the same thread.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Wakes. Several calls before the thread looks count as one.
    pub fn wake(&self) {
        let one = 1u64;
        // A full counter means that the thread is being woken already.
        // SAFETY: the pointer is to a live 64-bit number, which is what an eventfd takes.
        unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Takes the calls so far back, after waking up and before looking for work.
    pub fn reset(&self) {
        let mut count = 0u64;
        // SAFETY: the pointer is to a live 64-bit number, which is what an eventfd fills.
        drop(check_size(unsafe {
            libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), size_of::<u64>())
        }));
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Lets the calling thread's time-outs end on time instead of up to 50 us later (`PR_SET_TIMERSLACK`).
pub fn be_punctual() {
    // SAFETY: this option takes a number. It cannot fail for the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

const EVENTS: usize = 64;

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    use super::*;

    #[test]
    fn readiness_lasts_until_it_is_used_up() {
        let mut poller = Poller::new().unwrap();
        let mut ready = Vec::new();
        let (mut one, mut other) = UnixStream::pair().unwrap();
        poller.add(&one, Token(7), Interest::Readable).unwrap();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert_eq!(ready, []);
        other.write_all(b"xy").unwrap();
        for _ in 0..2 {
            poller.wait(None, &mut ready).unwrap();
            assert_eq!(ready, [Ready { token: Token(7), readable: true, writable: false }]);
            one.read_exact(&mut [0]).unwrap();
        }
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert_eq!(ready, []);
        poller.change(&one, Token(8), Interest::ReadableOrWritable).unwrap();
        poller.wait(None, &mut ready).unwrap();
        assert!(ready[0].writable && ready[0].token == Token(8));
    }

    #[test]
    fn short_waits_are_short() {
        be_punctual();
        let mut poller = Poller::new().unwrap();
        let mut ready = Vec::new();
        let waits: Vec<Duration> = (0..20)
            .map(|_| {
                let start = Instant::now();
                poller.wait(Some(Duration::from_micros(200)), &mut ready).unwrap();
                start.elapsed()
            })
            .collect();
        assert!(waits.iter().all(|wait| *wait >= Duration::from_micros(200)), "{waits:?}");
        assert!(waits.iter().min().unwrap() < &Duration::from_micros(900), "{waits:?}");
    }

    #[test]
    fn a_waker_wakes_from_another_thread() {
        let mut poller = Poller::new().unwrap();
        let waker = Waker::new().unwrap();
        poller.add(&waker, Token(0), Interest::Readable).unwrap();
        let other = waker.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            other.wake();
            other.wake();
        });
        let mut ready = Vec::new();
        poller.wait(Some(Duration::from_secs(20)), &mut ready).unwrap();
        thread.join().unwrap();
        assert_eq!(ready.len(), 1);
        waker.reset();
        poller.wait(Some(Duration::ZERO), &mut ready).unwrap();
        assert_eq!(ready, []);
    }
}
