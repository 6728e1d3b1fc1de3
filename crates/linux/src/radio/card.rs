//! A radio under our control: tune, send, receive.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use radio::Transmission;
use radio::radiotap::{self, Captured};
use thiserror::Error;
use units::{Frequency, MacAddress};

use super::capabilities::{Channel, RadioNumber};
use super::control::Radios;
use super::monitor_socket::MonitorSocket;
use crate::netlink::{Netlink, NetlinkError};
use crate::rfkill;
use crate::system_call::errno;
use crate::wireless::{WirelessError, WirelessMode};

/// Why a card could not be taken into use.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The kernel knows no wireless card, or refused.
    #[error(transparent)]
    Wireless(#[from] WirelessError),
    /// There is no such interface.
    #[error("there is no wireless interface \"{0}\"")]
    NoInterface(String),
    /// It is no monitor interface.
    #[error("\"{0}\" is no monitor interface")]
    NotMonitor(String),
    /// No packet socket could be had.
    #[error("cannot open a packet socket on {interface}: {error}")]
    Socket {
        /// The interface.
        interface: String,
        /// The kernel's error.
        error: io::Error,
    },
}

/// Why the radio was not tuned or not taken back.
#[derive(Debug, Error)]
pub enum TuneError {
    /// The card has no such channel, or the rules of the country forbid it.
    #[error("the radio cannot be tuned to {0}: the card or the country's rules do not have it", frequency.0)]
    Channel {
        /// The channel, as MHz.
        frequency: Frequency,
    },
    /// Another interface of the radio is on and holds it on its own channel.
    #[error("another program has switched an interface of this radio on, which holds it on one channel")]
    Busy,
    /// The card is switched off.
    #[error("the radio is switched off (rfkill); \"rfkill unblock wifi\" or its key switches it on")]
    Blocked,
    /// The interface or the card is gone.
    #[error("the radio is gone: was it unplugged?")]
    Gone,
    /// Anything else.
    #[error(transparent)]
    Kernel(NetlinkError),
}

/// Why a frame was not sent or nothing can be received.
#[derive(Debug, Error)]
pub enum TransferError {
    /// Nobody may begin to send on this channel; the kernel would drop the frame without a word.
    #[error("nothing may be sent on this channel by the country's rules")]
    Silent,
    /// The frame is longer than the card's driver takes.
    #[error("the frame is longer than the radio's driver takes")]
    TooLong,
    /// As many frames wait in the card as it takes; try again when the descriptor is writable.
    #[error("the radio's queue is full")]
    Full,
    /// The interface is off: by rfkill, or another program.
    #[error("the radio is switched off (rfkill, or another program)")]
    Off,
    /// The interface or the card is gone.
    #[error("the radio is gone: was it unplugged?")]
    Gone,
    /// Anything else.
    #[error("packet socket of the radio: {0}")]
    System(io::Error),
}

/// A radio whose active monitor interface this value uses. The interface stays when it is dropped.
///
/// To be polled for reading by its descriptor (epoll, level-triggered).
pub struct RadioCard {
    control: Radios,
    socket: MonitorSocket,
    radio: RadioNumber,
    radio_name: String,
    index: u32,
    address: Option<MacAddress>,
    channels: Vec<Channel>,
    found_on: Option<Frequency>,
    tuned: Option<Channel>,
}

impl RadioCard {
    /// Uses the monitor interface called `interface`, made by [`Radios::add_monitor`] or [`super::take_over`]. Needs
    /// CAP_NET_ADMIN (to tune) and CAP_NET_RAW.
    ///
    /// Until [`RadioCard::tune`] the card is on the channel where it was.
    pub fn open(interface: &str) -> Result<Self, OpenError> {
        let mut control = Radios::open()?;
        let missing = || OpenError::NoInterface(interface.to_owned());
        let radio = control.find(interface)?.ok_or_else(missing)?;
        let own = radio.interfaces.iter().find(|one| one.name == interface).ok_or_else(missing)?;
        if own.mode != WirelessMode::Monitor {
            return Err(OpenError::NotMonitor(interface.to_owned()));
        }
        let (index, found_on) = (own.index, own.frequency);
        let links = Netlink::open().map_err(NetlinkError::from).and_then(|mut netlink| netlink.links());
        let links = links.map_err(WirelessError::from)?;
        let address = links.iter().find(|link| link.index == index).and_then(|link| link.address);
        let socket = MonitorSocket::open(index)
            .map_err(|error| OpenError::Socket { interface: interface.to_owned(), error })?;
        Ok(Self {
            control,
            socket,
            radio: radio.number,
            radio_name: radio.name,
            index,
            address,
            channels: radio.channels,
            found_on,
            tuned: None,
        })
    }

    /// The address to which frames are acknowledged.
    pub fn address(&self) -> Option<MacAddress> {
        self.address
    }

    /// The kernel's number of its interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Where the card was when it was opened, if the kernel told.
    pub fn found_on(&self) -> Option<Frequency> {
        self.found_on
    }

    /// All channels of the card, with what the rules allow there as last read.
    pub fn channels(&self) -> &[Channel] {
        &self.channels
    }

    /// The channel where it was last tuned to; `None` before the first time, and where tuning failed.
    pub fn tuned(&self) -> Option<Channel> {
        self.tuned
    }

    /// Reads the channels anew: rules change with the country, and when access points are heard.
    pub fn refresh_channels(&mut self) -> Result<(), WirelessError> {
        let radios = self.control.list()?;
        if let Some(radio) = radios.into_iter().find(|radio| radio.number == self.radio) {
            self.channels = radio.channels;
            self.tuned = self.tuned.and_then(|tuned| self.channel(tuned.frequency));
        }
        Ok(())
    }

    /// Goes to a channel of 20 MHz. Frames that were sent before may still be in the air: wait for their [`radio::Outcome`]s.
    ///
    /// Blocks until the card is there. What it heard before and was not yet received is received after, with its own channel.
    pub fn tune(&mut self, frequency: Frequency) -> Result<(), TuneError> {
        let channel = self.channel(frequency).filter(Channel::may_listen);
        let channel = channel.ok_or(TuneError::Channel { frequency })?;
        // mac80211 does nothing if it is told the channel that a monitor interface was last set to, though stations may have
        // moved the card since (seen in Linux 6.1). So where the card is not known to be, it goes by another channel.
        let detour = match self.tuned.take() {
            Some(_) => None,
            None => self.channels.iter().find(|other| other.may_listen() && other.frequency != frequency),
        };
        if let Some(detour) = detour.map(|other| other.frequency) {
            self.control.tune(self.index, detour).map_err(|error| self.tune_error(error, detour))?;
        }
        self.control.tune(self.index, frequency).map_err(|error| self.tune_error(error, frequency))?;
        self.tuned = Some(channel);
        Ok(())
    }

    /// Takes the radio back after [`TuneError::Busy`] or [`TransferError::Off`]: switches its other interfaces off, and its monitor
    /// interfaces off and on. Then tune again.
    ///
    /// Where a program keeps taking the radio, say so to the user rather than fight over it.
    ///
    /// # Errors
    /// [`TuneError::Blocked`] and [`TuneError::Gone`] where there is nothing to take back.
    pub fn reclaim(&mut self) -> Result<(), TuneError> {
        self.tuned = None;
        self.switch_interfaces().map_err(|error| match error {
            WirelessError::None => TuneError::Gone,
            WirelessError::Netlink(error) => self.tune_error(error, Frequency(0)),
        })
    }

    /// Off and on, since mac80211 (seen in Linux 6.1) remembers the channel where the radio was when an interface of another kind
    /// was last switched off. If nobody may begin to send there, it drops our frames on every channel, until all monitor
    /// interfaces of the radio have been off at once.
    fn switch_interfaces(&mut self) -> Result<(), WirelessError> {
        let mut netlink = Netlink::open().map_err(NetlinkError::from)?;
        let links = netlink.links()?;
        let is_up = |index: u32| links.iter().any(|link| link.index == index && link.up);
        let radio = self.control.list()?.into_iter().find(|radio| radio.number == self.radio);
        let interfaces = radio.ok_or(WirelessError::None)?.interfaces;
        let (monitors, others): (Vec<_>, Vec<_>) =
            interfaces.into_iter().partition(|one| one.mode == WirelessMode::Monitor);
        let monitors: Vec<u32> =
            monitors.iter().map(|one| one.index).filter(|one| *one == self.index || is_up(*one)).collect();
        for other in others.iter().filter(|one| is_up(one.index)) {
            netlink.set_link_up(other.index, false)?;
        }
        for up in [false, true] {
            monitors.iter().try_for_each(|index| netlink.set_link_up(*index, up))?;
        }
        Ok(self.socket.forget_error().map_err(NetlinkError::from)?)
    }

    /// Sends a frame. What became of it comes by [`RadioCard::receive`], if it was for one receiver.
    pub fn send(&mut self, transmission: &Transmission) -> Result<(), TransferError> {
        if self.tuned.is_some_and(|channel| !channel.may_send()) {
            return Err(TransferError::Silent);
        }
        self.socket.send(&radiotap::write_header(transmission), &transmission.frame).map_err(transfer_error)
    }

    /// Gives what waits to `sink`, at most 16 frames at a time; returns how many datagrams there were, 0 if none waits.
    ///
    /// Never blocks. Frames heard with errors are left out, so `sink` may be called less often.
    pub fn receive(&mut self, mut sink: impl FnMut(Captured<'_>)) -> Result<usize, TransferError> {
        let tuned = self.tuned.map_or(Frequency(0), |channel| channel.frequency);
        self.socket.receive_captured(tuned, |captured, _| sink(captured)).map_err(transfer_error)
    }

    fn channel(&self, frequency: Frequency) -> Option<Channel> {
        self.channels.iter().find(|channel| channel.frequency == frequency).copied()
    }

    fn tune_error(&self, error: NetlinkError, frequency: Frequency) -> TuneError {
        match error.errno() {
            libc::EBUSY => TuneError::Busy,
            libc::EINVAL => TuneError::Channel { frequency },
            libc::ENODEV | libc::ENXIO => TuneError::Gone,
            libc::ERFKILL => TuneError::Blocked,
            libc::ENETDOWN if rfkill::block_of(&self.radio_name).is_some() => TuneError::Blocked,
            _ => TuneError::Kernel(error),
        }
    }
}

pub(super) fn transfer_error(error: io::Error) -> TransferError {
    match errno(&error) {
        libc::EAGAIN | libc::ENOBUFS => TransferError::Full,
        libc::EMSGSIZE => TransferError::TooLong,
        libc::ENETDOWN => TransferError::Off,
        libc::ENXIO | libc::ENODEV => TransferError::Gone,
        _ => TransferError::System(error),
    }
}

impl AsFd for RadioCard {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for RadioCard {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_fd().as_raw_fd()
    }
}
