//! Descriptors that a process keeps open while it becomes the next version of its program.
//!
//! ```text
//! old program: add sockets --> become: execve, same process number --> new program: received, take by name
//! ```
//! What the kernel has queued in them waits meanwhile, and nobody finds a port closed.
#![expect(unsafe_code, reason = "descriptors are inherited by their numbers")]

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::system_call::check;

/// The descriptors, by names.
#[derive(Debug, Default)]
pub struct Handover(Vec<(String, OwnedFd)>);

impl Handover {
    /// What the program before this one has handed over, if this process is its continuation. To be called once, early: before
    /// anything else could have taken the numbers.
    pub fn received() -> Option<Self> {
        let text = std::env::var(VARIABLE).ok()?;
        let mut items: Vec<(String, OwnedFd)> = Vec::new();
        for (number, name) in parse(&text) {
            let is_taken = items.iter().any(|(_, descriptor)| descriptor.as_raw_fd() == number);
            // SAFETY: plain system call; a number that is no descriptor is an error.
            let is_open = check(unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) }).is_ok();
            if is_open && !is_taken {
                // SAFETY: it is open, its number was handed to this process for this purpose, and is taken once.
                items.push((name.to_owned(), unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        Some(Self(items))
    }

    /// Adds a duplicate of a descriptor.
    ///
    /// # Errors
    /// If there are too many.
    pub fn add(&mut self, name: String, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        self.0.push((name, descriptor.try_clone_to_owned()?));
        Ok(())
    }

    /// Takes one out.
    pub fn take(&mut self, name: &str) -> Option<OwnedFd> {
        let at = self.0.iter().position(|(of, _)| of == name)?;
        Some(self.0.swap_remove(at).1)
    }

    /// Closes those whose names are not `wanted`.
    pub fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|(name, _)| wanted(name));
    }

    /// Becomes `program`, which finds the descriptors with [`Handover::received`]. Returns only if that fails.
    ///
    /// Signals that are blocked stay so, and those that wait are kept: whoever asks the process to end in this moment asks the next
    /// program, which is to call [`start_worker`](crate::privileges::supervisor::start_worker) as this one has.
    pub fn become_program(&self, program: &Path, arguments: &[OsString]) -> io::Error {
        let mut text = String::new();
        for (name, descriptor) in &self.0 {
            let number = descriptor.as_raw_fd();
            // SAFETY: plain system call on a descriptor that is open.
            if let Err(error) = check(unsafe { libc::fcntl(number, libc::F_SETFD, 0) }) {
                return error;
            }
            text += &format!("{number}={name}\n");
        }
        Command::new(program).args(arguments).env(VARIABLE, text).exec()
    }
}

/// Numbers and names; the standard streams are nobody's to hand over.
fn parse(text: &str) -> impl Iterator<Item = (RawFd, &str)> {
    let item = |line: &'_ str| -> Option<(RawFd, usize)> {
        let (number, _) = line.split_once('=')?;
        Some((number.parse().ok().filter(|number| *number > 2)?, number.len() + 1))
    };
    text.lines().filter_map(move |line| item(line).map(|(number, at)| (number, &line[at..])))
}

const VARIABLE: &str = "ANABRANCH_HANDOVER";

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_numbers_of_descriptors_are_read() {
        let text = "5=udp 0.0.0.0:4600\n1=stdout\n-1=x\nseven=y\n\n9\n12=tun any0";
        let read: Vec<_> = parse(text).collect();
        assert_eq!(read, [(5, "udp 0.0.0.0:4600"), (12, "tun any0")]);
    }

    #[test]
    fn what_was_added_is_taken_once() {
        let mut handover = Handover::default();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        handover.add("udp".to_owned(), socket.as_fd()).unwrap();
        let again = std::net::UdpSocket::from(handover.take("udp").unwrap());
        assert_eq!(again.local_addr().unwrap(), socket.local_addr().unwrap());
        assert!(handover.take("udp").is_none());
    }
}
