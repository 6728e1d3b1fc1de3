//! The management socket: controllers and their state, which anybody may see; with CAP_NET_ADMIN also switching.
#![expect(unsafe_code, reason = "Bluetooth sockets are not in the standard library")]

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use thiserror::Error;
use units::MacAddress;

use super::message::{self, Message, NONE};
use super::{LinkError, PROTOCOL_HCI};
use crate::system_call::{check, check_size};

/// Most controllers that are followed.
const MAX_CONTROLLERS: usize = 16;
const LONGEST: usize = 2_048;
/// Switching a controller on takes some seconds where its firmware is loaded.
const PATIENCE: Duration = Duration::from_secs(15);
const HCI_CHANNEL_CONTROL: u16 = 3;

/// What a controller can do, or does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings(u32);

impl Settings {
    /// It is switched on.
    pub const fn powered(self) -> bool {
        self.0 & 1 != 0
    }

    /// Other machines can open links to it.
    pub const fn connectable(self) -> bool {
        self.0 & 1 << 1 != 0
    }

    /// Bluetooth Classic, which links are made of.
    pub const fn classic(self) -> bool {
        self.0 & 1 << 7 != 0
    }

    /// Bluetooth Low Energy, which advertises.
    pub const fn low_energy(self) -> bool {
        self.0 & 1 << 9 != 0
    }
}

/// One Bluetooth controller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Controller {
    /// The kernel's number of it: 0 for `hci0`.
    pub index: u16,
    /// Its device address.
    pub address: MacAddress,
    /// What it could do.
    pub supported: Settings,
    /// What it does.
    pub current: Settings,
}

impl Controller {
    /// Its name.
    pub fn name(&self) -> String {
        format!("hci{}", self.index)
    }
}

/// Why the kernel's Bluetooth does not do as it is told.
#[derive(Debug, Error)]
pub enum ManagementError {
    /// This machine, or this network namespace, has no Bluetooth.
    #[error(transparent)]
    NoBluetooth(LinkError),
    /// It takes privileges.
    #[error("switching Bluetooth takes CAP_NET_ADMIN: run as root")]
    NotPermitted,
    /// Switched off by a key or by `rfkill`.
    #[error("Bluetooth is blocked: `rfkill unblock bluetooth`")]
    Blocked,
    /// The controller is off.
    #[error("the Bluetooth controller is off: `bluetoothctl power on`")]
    Off,
    /// There is no such controller.
    #[error("there is no such Bluetooth controller")]
    NoController,
    /// The controller cannot, or is busy with the same already.
    #[error("the Bluetooth controller refuses ({0:#04x} of the management interface)")]
    Refused(u8),
    /// The controller does not answer.
    #[error("the Bluetooth controller does not answer")]
    Silent,
    /// The kernel's own words.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// See the module.
#[derive(Debug)]
pub struct Management {
    socket: OwnedFd,
    controllers: BTreeMap<u16, Controller>,
}

impl Management {
    /// Opens the socket, and learns which controllers there are.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub fn open() -> Result<Self, ManagementError> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain system call without pointers.
        let raw = check(unsafe { libc::socket(libc::AF_BLUETOOTH, kind, PROTOCOL_HCI) })
            .map_err(|error| ManagementError::NoBluetooth(error.into()))?;
        // SAFETY: the descriptor was just opened and nobody else owns it.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        // `struct sockaddr_hci`.
        let address: [u16; 3] = [libc::AF_BLUETOOTH as u16, NONE, HCI_CHANNEL_CONTROL];
        // SAFETY: the pointer is to a live address and the length is its size.
        check(unsafe {
            libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), size_of_val(&address) as libc::socklen_t)
        })?;
        let mut management = Self { socket, controllers: BTreeMap::new() };
        let listed = management.command(message::READ_INDEX_LIST, NONE, &[])?;
        for index in message::indices(&listed) {
            // One that has gone since is none.
            let _ = management.learn(index);
        }
        Ok(management)
    }

    /// The controllers that links can be made with, by number.
    pub fn controllers(&self) -> impl Iterator<Item = &Controller> {
        self.controllers.values().filter(|controller| controller.supported.classic())
    }

    /// Follows what has changed since; never blocks, except for the description of a new controller.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read_events(&mut self) -> Result<(), ManagementError> {
        while let Some(bytes) = self.receive()? {
            self.note(&bytes);
        }
        // What came later than the list has no description yet.
        let unknown: Vec<u16> = self
            .controllers
            .values()
            .filter(|controller| controller.address.0 == [0; 6])
            .map(|controller| controller.index)
            .collect();
        for index in unknown {
            if self.learn(index).is_err() {
                self.controllers.remove(&index);
            }
        }
        Ok(())
    }

    /// Switches a controller on or off.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub fn set_powered(&mut self, controller: u16, on: bool) -> Result<(), ManagementError> {
        self.command(message::SET_POWERED, controller, &[on.into()]).map(drop)
    }

    /// Lets other machines open links to a controller, or not.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub fn set_connectable(&mut self, controller: u16, on: bool) -> Result<(), ManagementError> {
        self.command(message::SET_CONNECTABLE, controller, &[on.into()]).map(drop)
    }

    /// Switches Bluetooth Low Energy on or off.
    ///
    /// # Errors
    /// [`ManagementError`].
    pub fn set_low_energy(&mut self, controller: u16, on: bool) -> Result<(), ManagementError> {
        self.command(message::SET_LOW_ENERGY, controller, &[on.into()]).map(drop)
    }

    fn learn(&mut self, index: u16) -> Result<(), ManagementError> {
        let answer = self.command(message::READ_INFO, index, &[])?;
        let known = message::information(&answer).filter(|_| self.controllers.len() < MAX_CONTROLLERS);
        if let Some((address, supported, current)) = known {
            let controller =
                Controller { index, address, supported: Settings(supported), current: Settings(current) };
            self.controllers.insert(index, controller);
        }
        Ok(())
    }

    /// Says a command and waits for what becomes of it; its answer.
    fn command(&mut self, code: u16, controller: u16, parameters: &[u8]) -> Result<Vec<u8>, ManagementError> {
        let bytes = message::command(code, controller, parameters);
        // SAFETY: pointer and length describe the live message.
        check_size(unsafe { libc::send(self.socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) })?;
        let deadline = Instant::now() + PATIENCE;
        loop {
            while let Some(bytes) = self.receive()? {
                if let Message::Done { command, controller: of, status, answer } = message::parse(&bytes)
                    && (command, of) == (code, controller)
                {
                    return match status {
                        0 => Ok(answer.to_vec()),
                        0x0f => Err(ManagementError::Off),
                        0x11 => Err(ManagementError::NoController),
                        0x12 => Err(ManagementError::Blocked),
                        0x14 => Err(ManagementError::NotPermitted),
                        other => Err(ManagementError::Refused(other)),
                    };
                }
                self.note(&bytes);
            }
            if !self.wait(deadline)? {
                return Err(ManagementError::Silent);
            }
        }
    }

    fn note(&mut self, bytes: &[u8]) {
        match message::parse(bytes) {
            Message::Added(index) if self.controllers.len() < MAX_CONTROLLERS => {
                let none = Settings(0);
                let address = MacAddress([0; 6]);
                self.controllers.entry(index).or_insert(Controller {
                    index,
                    address,
                    supported: none,
                    current: none,
                });
            }
            Message::Removed(index) => {
                self.controllers.remove(&index);
            }
            Message::Settings(index, settings) => {
                if let Some(controller) = self.controllers.get_mut(&index) {
                    controller.current = Settings(settings);
                }
            }
            Message::Done { .. } | Message::Added(_) | Message::Other => {}
        }
    }

    /// The next message, if one is there.
    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut buffer = vec![0; LONGEST];
        // SAFETY: pointer and length describe the live buffer.
        let received = check_size(unsafe {
            libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0)
        });
        match received {
            Ok(length) => {
                buffer.truncate(length);
                Ok(Some(buffer))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Waits until a message is there; whether it is in time.
    fn wait(&self, deadline: Instant) -> io::Result<bool> {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut waited = libc::pollfd { fd: self.socket.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let millis = i32::try_from(left.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: the pointer is to one live pollfd.
        check(unsafe { libc::poll(&raw mut waited, 1, millis) }).map(|ready| ready > 0)
    }
}

impl AsFd for Management {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
