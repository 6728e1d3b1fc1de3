//! Keys as they are pressed.

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::io::{Stdin, stdin, stdout};
use std::time::Duration;

/// The keyboard without line editing; the terminal is as before when this value is dropped.
pub(super) struct Keyboard {
    stdin: Stdin,
    before: Termios,
}

impl Keyboard {
    pub(super) fn open() -> anyhow::Result<Self> {
        let stdin = stdin();
        let before =
            tcgetattr(&stdin).context("--play reads keys from a terminal, and the input is not one")?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(&stdin, OptionalActions::Now, &raw).context("switch the terminal's line editing off")?;
        Ok(Self { stdin, before })
    }

    /// The next key within `time`.
    pub(super) fn key_within(&self, time: Duration) -> Option<u8> {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(time.subsec_nanos()) };
        let mut descriptors = [PollFd::new(&self.stdin, PollFlags::IN)];
        if poll(&mut descriptors, Some(&timeout)).ok()? == 0 {
            return None;
        }
        let mut byte = [0];
        (rustix::io::read(&self.stdin, &mut byte).ok()? == 1).then_some(byte[0])
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(&self.stdin, OptionalActions::Now, &self.before);
    }
}

/// The terminal's columns; 80 where it does not say.
pub(super) fn columns() -> usize {
    tcgetwinsize(stdout()).map_or(80, |size| usize::from(size.ws_col)).clamp(40, 200)
}
