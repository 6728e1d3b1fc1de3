//! The air of a wireless card: frames of 802.11 for everybody in range, each at a bit rate of its own, by an interface in monitor mode.
//! Nobody is associated with anybody, and nothing is acknowledged.
//!
//! ```text
//! radiotap | data frame: everybody, own address, GROUP | SNAP, ETHERNET_TYPE | frame
//! ```

use std::task::{Context, Poll, ready};
use std::time::Duration;

use linux::poll::{Interest, Poller, Token};
use linux::radio::{OpenError, RadioCard, TransferError};
use radio::airtime::CHECK_SEQUENCE;
use radio::frame::data::Packet;
use radio::frame::{Header, Kind};
use radio::radiotap::Captured;
use radio::{Rate, Transmission};
use tokio::sync::mpsc;
use tracing::debug;
use units::{Bytes, Frequency, MacAddress};

use super::{AirSent, MAX_FRAME};

/// The network that the frames say they belong to: locally administered, and no card's.
const GROUP: MacAddress = MacAddress([0x02, 0x61, 0x6e, 0x61, 0x75, 0x70]);
/// For local experiments (IEEE 802, section 9.2.4).
const ETHERNET_TYPE: u16 = 0x88b5;
/// Frames that wait to be taken.
const HEARD: usize = 256;
/// How often the listening thread looks whether anybody takes what it hears.
const LOOK: Duration = Duration::from_secs(1);

/// The bytes on the air of a frame with so many for the neighbours.
pub(super) fn length_on_air(length: usize) -> Bytes {
    let frame = frame_of(MacAddress::BROADCAST, 0, &vec![0; length]);
    Bytes(frame.len() as u64 + CHECK_SEQUENCE.0)
}

/// Sends by a card whose monitor interface is used as it is: on its channel, beside its other interfaces.
pub(super) struct WifiSender {
    card: RadioCard,
    own: MacAddress,
    number: u16,
}

impl WifiSender {
    /// Needs CAP_NET_RAW.
    pub fn open(interface: &str) -> Result<Self, OpenError> {
        let card = RadioCard::open(interface)?;
        let own = card.address().unwrap_or(GROUP);
        Ok(Self { card, own, number: 0 })
    }

    /// Its channel, if it is known.
    pub fn channel(&self) -> Option<Frequency> {
        self.card.found_on()
    }

    /// Sends at a rate that the channel has.
    pub fn send(&mut self, rate: Rate, bytes: &[u8]) -> Result<AirSent, TransferError> {
        let frame = frame_of(self.own, self.number, bytes);
        match self.card.send(&Transmission { frame, rate, attempts: 1 }) {
            Ok(()) => {
                self.number = self.number.wrapping_add(1);
                Ok(AirSent::Yes)
            }
            Err(TransferError::Full) => Ok(AirSent::Full),
            Err(error) => Err(error),
        }
    }
}

/// Hears by a card whose monitor interface is used as it is. A thread waits for frames; it ends soon after this value.
pub(super) struct WifiListener {
    heard: mpsc::Receiver<Vec<u8>>,
}

impl WifiListener {
    /// Needs CAP_NET_RAW.
    pub fn open(interface: &str) -> Result<Self, OpenError> {
        let mut card = RadioCard::open(interface)?;
        let refused = |error| OpenError::Socket { interface: interface.to_owned(), error };
        let mut poller = Poller::new().map_err(refused)?;
        poller.add(&card, Token(0), Interest::Readable).map_err(refused)?;
        let (into, heard) = mpsc::channel(HEARD);
        let listen = move || {
            if let Err(error) = listen(&mut card, &mut poller, &into) {
                debug!(%error, "a card is deaf");
            }
        };
        std::thread::Builder::new().name("air".to_owned()).spawn(listen).map_err(refused)?;
        Ok(Self { heard })
    }

    /// The next frame's length; `None` once the card is gone.
    pub fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8; MAX_FRAME],
    ) -> Poll<Option<usize>> {
        while let Some(bytes) = ready!(self.heard.poll_recv(context)) {
            if let Some(into) = buffer.get_mut(..bytes.len()) {
                into.copy_from_slice(&bytes);
                return Poll::Ready(Some(bytes.len()));
            }
        }
        Poll::Ready(None)
    }
}

/// Until nobody takes what is heard, or the card is gone.
fn listen(
    card: &mut RadioCard,
    poller: &mut Poller,
    into: &mpsc::Sender<Vec<u8>>,
) -> Result<(), TransferError> {
    let mut ready = Vec::new();
    while !into.is_closed() {
        poller.wait(Some(LOOK), &mut ready).map_err(TransferError::System)?;
        let each = |captured: Captured<'_>| {
            if let Captured::Heard(frame) = captured
                && let Some(bytes) = payload_of(frame.frame)
            {
                // What nobody takes in time is lost, as on the air.
                drop(into.try_send(bytes.to_vec()));
            }
        };
        while card.receive(each)? > 0 {}
    }
    Ok(())
}

/// The frame on the air for `bytes`.
fn frame_of(own: MacAddress, number: u16, bytes: &[u8]) -> Vec<u8> {
    let mut header = Header::new(Kind::Data, MacAddress::BROADCAST, own, GROUP);
    header.sequence.number = number & 0xfff;
    let mut frame = Vec::with_capacity(bytes.len() + 40);
    header.write(&mut frame);
    let packet = Packet {
        destination: MacAddress::BROADCAST,
        source: own,
        ethernet_type: ETHERNET_TYPE,
        payload: bytes,
    };
    packet.write_body(&mut frame);
    frame
}

/// What is for neighbours in a frame from the air, if it is one of these at all.
fn payload_of(frame: &[u8]) -> Option<&[u8]> {
    let (header, body) = Header::parse(frame).ok()?;
    let ours = header.control.kind.is_data() && !header.control.protected && header.bssid() == GROUP;
    let packet = Packet::from_body(header.source(), header.destination(), body).ok().filter(|_| ours)?;
    (packet.ethernet_type == ETHERNET_TYPE).then_some(packet.payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);

    #[test]
    fn what_is_sent_is_what_is_heard() {
        let frame = frame_of(OWN, 5_000, b"chunk");
        assert_eq!(payload_of(&frame), Some(b"chunk".as_slice()));
        let (header, _) = Header::parse(&frame).unwrap();
        assert_eq!((header.receiver, header.transmitter), (MacAddress::BROADCAST, OWN));
        assert_eq!(header.sequence.number, 5_000 & 0xfff);
    }

    #[test]
    fn frames_of_others_are_not_taken() {
        let frame = frame_of(OWN, 0, b"chunk");
        for length in 0..frame.len() - b"chunk".len() {
            assert_eq!(payload_of(&frame[..length]), None, "{length} bytes");
        }
        let changed = |at: usize, by: u8| {
            let mut frame = frame.clone();
            frame[at] ^= by;
            frame
        };
        for (what, at, by) in [("group", 16, 1), ("protected", 1, 0x40), ("kind", 0, 8), ("type", 31, 1)] {
            assert_eq!(payload_of(&changed(at, by)), None, "another {what}");
        }
    }

    #[test]
    fn a_chunk_is_36_bytes_longer_on_the_air() {
        assert_eq!(length_on_air(1_400), Bytes(1_436));
    }
}
