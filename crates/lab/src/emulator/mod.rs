//! The real-time link emulator: a relay in user space between two interfaces, which treats every frame
//! as [`sim::Link`] says.
//!
//! One thread per network carries both directions, since it mostly waits; it wakes for frames, for the
//! links' next event and for commands, with the kernel's finest timers.

mod frame;
mod relay;

use anyhow::Context;
use linux::netlink::Netlink;
use linux::netns::Namespace;
use linux::packet_socket::{PacketSocket, disable_offloads};
use relay::Relay;
use sim::{Change, LinkState, LinkStatistics, NetworkSpec};
use std::io::{PipeWriter, Write};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Which way a change goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the device to the Internet.
    Up,
    /// From the Internet to the device.
    Down,
    /// Both.
    Both,
}

/// A network whose frames pass through this process. It ends when this value is dropped.
pub struct EmulatedNetwork {
    commands: Sender<Command>,
    wake: PipeWriter,
    thread: Option<JoinHandle<()>>,
}

/// What a relay is told.
enum Command {
    Change(Direction, Change),
    Report(SyncSender<[LinkStatistics; 2]>),
    Stop,
}

impl EmulatedNetwork {
    /// Relays between `device_side` and `internet_side`, two interfaces of `namespace` whose other ends are
    /// in the namespaces that the network joins. `seed` decides loss and jitter; the schedule starts now.
    ///
    /// # Errors
    /// If an interface is not there or its frames cannot be had (CAP_NET_RAW).
    pub fn start(
        namespace: &Namespace,
        device_side: &str,
        internet_side: &str,
        spec: &NetworkSpec,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let open = |interface: &str| -> anyhow::Result<PacketSocket> {
            disable_offloads(interface).with_context(|| format!("switch the offloads of {interface} off"))?;
            let link = Netlink::open()
                .context("open netlink")?
                .link(interface)?
                .with_context(|| format!("there is no interface {interface}"))?;
            PacketSocket::open(link.index).with_context(|| format!("open a packet socket on {interface}"))
        };
        let sockets =
            namespace.run(|| -> anyhow::Result<_> { Ok([open(device_side)?, open(internet_side)?]) })??;
        let (wake_reader, wake) = std::io::pipe().context("open a pipe")?;
        let (commands, inbox) = channel();
        let relay = Relay::new(sockets, wake_reader, inbox, spec, seed);
        let thread = std::thread::Builder::new()
            .name(format!("emulator {}", spec.name))
            .spawn(move || relay.run())
            .context("start the emulator's thread")?;
        Ok(Self { commands, wake, thread: Some(thread) })
    }

    /// Changes the network now.
    pub fn change(&mut self, direction: Direction, change: Change) {
        self.tell(Command::Change(direction, change));
    }

    /// From now on nothing gets through, and neither end is told.
    pub fn cut(&mut self) {
        self.change(Direction::Both, Change::State(LinkState::Silent));
    }

    /// Packets get through again.
    pub fn restore(&mut self) {
        self.change(Direction::Both, Change::State(LinkState::Up));
    }

    /// What happened so far, up and down; `None` if the relay has ended.
    pub fn statistics(&mut self) -> Option<[LinkStatistics; 2]> {
        let (answer, report) = sync_channel(1);
        self.tell(Command::Report(answer));
        report.recv_timeout(Duration::from_secs(2)).ok()
    }

    /// A relay that has ended takes no commands, which is no loss.
    fn tell(&mut self, command: Command) {
        let _ = self.commands.send(command);
        let _ = self.wake.write_all(&[0]);
    }
}

impl Drop for EmulatedNetwork {
    fn drop(&mut self) {
        self.tell(Command::Stop);
        if let Some(thread) = self.thread.take() {
            // A relay that panicked has said so on the terminal.
            let _ = thread.join();
        }
    }
}
