//! A monitor interface beside the kernel's stations, which only listens.

use std::io;
use std::time::SystemTime;

use radio::radiotap::Captured;
use thiserror::Error;
use units::Frequency;

use super::capabilities::RadioNumber;
use super::card::{TransferError, transfer_error};
use super::control::Radios;
use super::monitor_socket::MonitorSocket;
use crate::netlink::{Netlink, NetlinkError};
use crate::wireless::WirelessError;

/// Why nothing can be listened to.
#[derive(Debug, Error)]
pub enum ListenError {
    /// The kernel knows no wireless card, or refused: not every driver has monitor interfaces.
    #[error(transparent)]
    Wireless(#[from] WirelessError),
    /// No packet socket could be had.
    #[error("cannot open a packet socket on a monitor interface: {0}")]
    Socket(io::Error),
}

impl From<NetlinkError> for ListenError {
    fn from(error: NetlinkError) -> Self {
        WirelessError::from(error).into()
    }
}

/// All that a card hears on the channels where other interfaces of it are.
///
/// The kernel removes the interface when this value is dropped, and with the process, however that ends.
pub struct Listener {
    socket: MonitorSocket,
    // Owns the interface. After the socket, so that this one is closed first.
    _owner: Radios,
}

impl Listener {
    /// Makes the interface and begins to listen. Needs CAP_NET_ADMIN and CAP_NET_RAW.
    ///
    /// # Errors
    /// [`ListenError`]; nothing stays behind.
    pub fn begin(radio: RadioNumber) -> Result<Self, ListenError> {
        let mut owner = Radios::open()?;
        let index = owner.add_listener(radio, NAME)?;
        Netlink::open().map_err(NetlinkError::from)?.set_link_up(index, true)?;
        let socket = MonitorSocket::open(index).map_err(ListenError::Socket)?;
        Ok(Self { socket, _owner: owner })
    }

    /// Gives what waits to `sink`, at most 16 frames at a time, each with when the kernel took it, if it tells; returns how many there were, 0
    /// if none waits. Never blocks.
    ///
    /// # Errors
    /// [`TransferError::Off`] and [`TransferError::Gone`] where it has to be begun anew.
    pub fn receive(
        &mut self,
        sink: impl FnMut(Captured<'_>, Option<SystemTime>),
    ) -> Result<usize, TransferError> {
        self.socket.receive_captured(Frequency(0), sink).map_err(transfer_error)
    }

    /// Whether frames were left out since the last call because too many waited.
    ///
    /// # Errors
    /// What the kernel said.
    pub fn has_missed(&self) -> io::Result<bool> {
        Ok(self.socket.count_dropped()? > 0)
    }
}

/// The kernel puts the first number there that is free.
const NAME: &str = "anylisten%d";
