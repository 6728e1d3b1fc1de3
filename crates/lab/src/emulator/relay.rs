//! The loop of one emulated network.

use super::frame::Frame;
use super::{Command, Direction};
use linux::packet_socket::PacketSocket;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use sim::{Link, NetworkSpec, SeededRandom};
use std::io::{PipeReader, Read};
use std::num::NonZeroU64;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use units::Timestamp;

/// Receive calls per socket before frames are sent: no direction starves the other.
const BATCHES_PER_ROUND: usize = 4;
/// Longest sleep.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Both directions of a network: 0 is up (device to Internet), 1 is down.
pub(super) struct Relay {
    /// At the device's side and at the Internet's.
    sockets: [PacketSocket; 2],
    links: [Link<Frame>; 2],
    wake: PipeReader,
    inbox: Receiver<Command>,
    due: Vec<Frame>,
}

impl Relay {
    pub(super) fn new(
        sockets: [PacketSocket; 2],
        wake: PipeReader,
        inbox: Receiver<Command>,
        spec: &NetworkSpec,
        seed: u64,
    ) -> Self {
        let now = linux::clock::now();
        let link = |spec: &sim::LinkSpec, way| {
            let seed = SeededRandom::derive(seed, &format!("{way} of the emulator")).next_u64();
            Link::starting_at(now, spec.clone(), seed)
        };
        let links = [link(&spec.up, "up"), link(&spec.down, "down")];
        Self { sockets, links, wake, inbox, due: Vec::with_capacity(PacketSocket::BATCH) }
    }

    /// Relays until told to stop or until the commander is gone.
    pub(super) fn run(mut self) {
        // Timers to the microsecond rather than the usual 50; a kernel that refuses costs accuracy only.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        loop {
            self.take_in();
            self.give_out();
            if !self.wait() {
                return;
            }
        }
    }

    /// Moves waiting frames into the links.
    fn take_in(&mut self) {
        for side in 0..2 {
            let (socket, link) = (&mut self.sockets[side], &mut self.links[side]);
            for _ in 0..BATCHES_PER_ROUND {
                let now = linux::clock::now();
                let received = socket.receive(&mut |frame| link.enqueue(now, Frame(frame.to_vec())));
                if received.is_err() || received.is_ok_and(|count| count < PacketSocket::BATCH) {
                    break;
                }
            }
        }
    }

    /// Sends what has come to the end of its link.
    fn give_out(&mut self) {
        let now = linux::clock::now();
        for side in 0..2 {
            loop {
                self.due.clear();
                while self.due.len() < PacketSocket::BATCH
                    && let Some(frame) = self.links[side].poll(now)
                {
                    self.due.push(frame);
                }
                if self.due.is_empty() {
                    break;
                }
                // A full or absent interface loses frames, as a real one does.
                let _ = self.sockets[1 - side].send(&self.due);
            }
        }
    }

    /// Sleeps until there is something to do; false if the relay is to end.
    fn wait(&mut self) -> bool {
        let now = linux::clock::now();
        let next = self.links.iter().filter_map(Link::next_event).min();
        let time = next.map_or(LONGEST_WAIT, |next: Timestamp| next.since(now)).min(LONGEST_WAIT);
        let timeout = Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let mut descriptors = [
            PollFd::new(&self.sockets[0], PollFlags::IN),
            PollFd::new(&self.sockets[1], PollFlags::IN),
            PollFd::new(&self.wake, PollFlags::IN),
        ];
        // An interrupted wait is a short one.
        let _ = poll(&mut descriptors, Some(&timeout));
        let is_woken = !descriptors[2].revents().is_empty();
        !is_woken || self.obey()
    }

    /// Carries out what was ordered; false if the relay is to end.
    fn obey(&mut self) -> bool {
        let mut bytes = [0; 64];
        if self.wake.read(&mut bytes).is_ok_and(|count| count == 0) {
            return false;
        }
        while let Ok(command) = self.inbox.try_recv() {
            match command {
                Command::Change(direction, change) => {
                    let now = linux::clock::now();
                    let [up, down] = &mut self.links;
                    if direction != Direction::Down {
                        up.change(now, change.clone());
                    }
                    if direction != Direction::Up {
                        down.change(now, change);
                    }
                }
                // Whoever asked may have given up waiting.
                Command::Report(answer) => drop(answer.try_send(self.links.each_ref().map(Link::statistics))),
                Command::Stop => return false,
            }
        }
        true
    }
}
