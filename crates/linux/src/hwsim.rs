//! The air of the kernel's simulated radios (`mac80211_hwsim`), put into the hands of this process.
//!
//! Once a process has registered, every frame that a simulated radio sends is given to it, and reaches others only if it says so:
//!
//! ```text
//! radio A --- FRAME: bytes, rates to try, cookie ---> medium --- FRAME: bytes, rate, signal ---> radio B
//!    ^                                                   |
//!    +-------- TX_INFO: cookie, rates tried, answered ---+
//! ```
//! A radio keeps its frame until it is reported. It has no back-pressure: when 200 of its frames are pending, it drops the oldest
//! half, and reports on those are refused ([`AirEvent::Refused`]). Attribute and command numbers are those of `mac80211_hwsim.h`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;
use units::{Frequency, MacAddress};

use crate::netlink::NetlinkError;
use crate::netlink::generic::{self, FamilyNumber, GenericNetlink, Question};
use crate::netlink::message::{self, Message, Request};
use crate::netlink::socket::NetlinkSocket;

/// Why the air cannot be had.
#[derive(Debug, Error)]
pub enum AirError {
    /// There are no simulated radios.
    #[error("there are no simulated radios here; load the kernel module mac80211_hwsim")]
    None,
    /// Another process has it.
    #[error("another program is the medium of the simulated radios already")]
    Taken,
    /// Radios on two channels at a time need the kernel's own medium.
    #[error(
        "a simulated radio uses several channels at once, which no medium serves; load mac80211_hwsim with channels=1"
    )]
    SeveralChannels,
    /// There is no radio of that number.
    #[error("there is no simulated radio {0} in this network namespace")]
    NoRadio(u32),
    /// The kernel refused for another reason.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
}

/// Takes a simulated radio out of this machine, as if a card was pulled out: the `number`th that the kernel made, counted from 0. It must be in
/// the caller's network namespace, whose user namespace it needs CAP_NET_ADMIN in.
///
/// # Errors
/// [`AirError::None`] and [`AirError::NoRadio`], or if the kernel refuses.
pub fn remove_radio(number: u32) -> Result<(), AirError> {
    let mut netlink = GenericNetlink::open().map_err(NetlinkError::from)?;
    let family = netlink.family("MAC80211_HWSIM")?.ok_or(AirError::None)?;
    let question = Question { command: REMOVE_RADIO, dump: false };
    let fill = |request: &mut Request| {
        request.number(RADIO_NUMBER, number);
    };
    netlink.ask("take a simulated radio out", family, question, fill, |_| {}).map_err(|error| {
        match error.errno() {
            libc::ENODEV => AirError::NoRadio(number),
            _ => AirError::Netlink(error),
        }
    })
}

/// The air of all simulated radios of this network namespace's group; given back when it is dropped.
pub struct Air {
    socket: NetlinkSocket,
    family: FamilyNumber,
    batch: Vec<u8>,
    sequence: u32,
}

/// What a radio or the kernel says.
#[derive(Clone, Copy, Debug)]
pub enum AirEvent<'a> {
    /// A radio sends a frame.
    Frame(RadioFrame<'a>),
    /// An interface with `address` was opened on `radio`.
    AddressAdded {
        /// The radio.
        radio: MacAddress,
        /// The interface.
        address: MacAddress,
    },
    /// An interface with `address` was closed on `radio`.
    AddressRemoved {
        /// The radio.
        radio: MacAddress,
        /// The interface.
        address: MacAddress,
    },
    /// The kernel did not do what this [`Order`] said: the radio is on another channel or off, or the frame was dropped.
    Refused(Order),
}

/// Something that the kernel was told, to recognise its refusal by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Order(u32);

/// A frame that a radio sends.
#[derive(Clone, Copy, Debug)]
pub struct RadioFrame<'a> {
    /// The radio, by its hardware address.
    pub radio: MacAddress,
    /// From frame control to the end of the body.
    pub bytes: &'a [u8],
    /// The channel.
    pub frequency: Frequency,
    /// What to try: index of a rate in the band's list and how often.
    pub tries: Tries,
    /// The first rate is one of 802.11n or later, and its index one of their tables.
    pub is_modern: bool,
    /// Nobody is to acknowledge it.
    pub without_acknowledgement: bool,
    /// The radio's number of it.
    pub cookie: u64,
}

/// Rates to try or tried, by index in the band's list; unused ones are -1.
pub type Tries = [(i8, u8); RATES];

/// No attempt at all.
pub const NO_TRIES: Tries = [(-1, 0); RATES];

impl Air {
    /// Becomes the medium of all simulated radios. Needs CAP_NET_ADMIN; in the initial network namespace it serves those that were moved to others, too.
    ///
    /// # Errors
    /// [`AirError`].
    pub fn register() -> Result<Self, AirError> {
        let mut netlink = GenericNetlink::open().map_err(NetlinkError::from)?;
        let family = netlink.family("MAC80211_HWSIM")?.ok_or(AirError::None)?;
        let question = Question { command: REGISTER, dump: false };
        netlink.ask("become the medium of the simulated radios", family, question, |_| {}, |_| {}).map_err(
            |error| match error.errno() {
                libc::EBUSY => AirError::Taken,
                libc::EOPNOTSUPP => AirError::SeveralChannels,
                _ => AirError::Netlink(error),
            },
        )?;
        let socket = netlink.into_socket();
        socket.expect_many(BUFFER).map_err(NetlinkError::from)?;
        Ok(Self { socket, family, batch: Vec::new(), sequence: 0 })
    }

    /// `radio` hears a frame. Takes effect with [`Air::flush`].
    pub fn deliver(
        &mut self,
        radio: MacAddress,
        frame: &[u8],
        frequency: Frequency,
        rate_index: u8,
        signal_dbm: i8,
    ) -> Order {
        self.order(FRAME, |request| {
            request
                .attribute(RECEIVER, &radio.0)
                .attribute(BYTES, frame)
                .number(RATE, rate_index.into())
                .number(SIGNAL, i32::from(signal_dbm).cast_unsigned())
                .number(FREQUENCY, frequency.0);
        })
    }

    /// Tells `radio` what became of its frame. Takes effect with [`Air::flush`].
    pub fn report(&mut self, sent: &RadioReport) -> Order {
        let mut flags = 0;
        if sent.acknowledged {
            flags |= FLAG_ACKNOWLEDGED;
        }
        if sent.without_acknowledgement {
            flags |= FLAG_NO_ACKNOWLEDGEMENT;
        }
        let mut tries = [0; RATES * 2];
        for (bytes, (index, count)) in tries.chunks_exact_mut(2).zip(sent.tries) {
            bytes.copy_from_slice(&[index.cast_unsigned(), count]);
        }
        self.order(TX_INFO, |request| {
            request
                .attribute(TRANSMITTER, &sent.radio.0)
                .number(FLAGS, flags)
                .attribute(COOKIE, &sent.cookie.to_ne_bytes())
                .number(SIGNAL, i32::from(sent.signal_dbm).cast_unsigned())
                .attribute(TRIES, &tries);
        })
    }

    /// Carries out what was ordered since the last call. Refusals can be received when it returns.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let result = self.socket.send(&self.batch);
        self.batch.clear();
        result
    }

    /// Gives everything that waits to `on_event`; never blocks. False if something was lost for want of room.
    ///
    /// # Errors
    /// If the socket fails.
    pub fn receive(&mut self, mut on_event: impl FnMut(AirEvent<'_>)) -> io::Result<bool> {
        let mut whole = true;
        let family = self.family;
        loop {
            match self.socket.read_notifications(|message| {
                if let Some(event) = read(family, message) {
                    on_event(event);
                }
            }) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(whole),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => whole = false,
                Err(error) => return Err(error),
            }
        }
    }

    fn order(&mut self, command: u8, fill: impl FnOnce(&mut Request)) -> Order {
        let mut request =
            Request::new(self.family.0, libc::NLM_F_REQUEST as u16, &generic::header(command, 0));
        fill(&mut request);
        self.sequence = self.sequence.wrapping_add(1);
        self.batch.extend(request.finish(self.sequence));
        Order(self.sequence)
    }
}

impl AsFd for Air {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What became of a radio's frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RadioReport {
    /// The radio that sent it.
    pub radio: MacAddress,
    /// The radio's number of it.
    pub cookie: u64,
    /// What was tried.
    pub tries: Tries,
    /// An acknowledgement arrived.
    pub acknowledged: bool,
    /// None was wanted.
    pub without_acknowledgement: bool,
    /// Signal of the acknowledgement, in dBm.
    pub signal_dbm: i8,
}

/// A message as an event; `None` if it is of no interest or makes no sense.
fn read(family: FamilyNumber, message: Message<'_>) -> Option<AirEvent<'_>> {
    if i32::from(message.kind) == libc::NLMSG_ERROR {
        let code = message::number(message.body, 0)?;
        return (code != 0).then_some(AirEvent::Refused(Order(message.sequence)));
    }
    if message.kind != family.0 {
        return None;
    }
    let (header, attributes) = message.body.split_at_checked(generic::HEADER)?;
    let fields = Fields::read(attributes);
    let radio = fields.transmitter?;
    match header[0] {
        FRAME => Some(AirEvent::Frame(RadioFrame {
            radio,
            bytes: fields.bytes?,
            frequency: Frequency(fields.frequency?),
            tries: fields.tries?,
            is_modern: fields.is_modern,
            without_acknowledgement: fields.flags? & FLAG_NO_ACKNOWLEDGEMENT != 0,
            cookie: fields.cookie?,
        })),
        ADD_ADDRESS => Some(AirEvent::AddressAdded { radio, address: fields.receiver? }),
        REMOVE_ADDRESS => Some(AirEvent::AddressRemoved { radio, address: fields.receiver? }),
        _ => None,
    }
}

/// The attributes of interest.
#[derive(Default)]
struct Fields<'a> {
    transmitter: Option<MacAddress>,
    receiver: Option<MacAddress>,
    bytes: Option<&'a [u8]>,
    flags: Option<u32>,
    cookie: Option<u64>,
    frequency: Option<u32>,
    tries: Option<Tries>,
    is_modern: bool,
}

impl<'a> Fields<'a> {
    fn read(attributes: &'a [u8]) -> Self {
        let mut fields = Self::default();
        for (kind, value) in message::attributes(attributes) {
            match kind {
                TRANSMITTER => fields.transmitter = value.try_into().ok().map(MacAddress),
                RECEIVER => fields.receiver = value.try_into().ok().map(MacAddress),
                BYTES => fields.bytes = Some(value),
                FLAGS => fields.flags = message::number(value, 0),
                COOKIE => fields.cookie = message::long(value, 0),
                FREQUENCY => fields.frequency = message::number(value, 0),
                TRIES => fields.tries = tries(value),
                // Index, then flags of two bytes, for each rate.
                TRIES_FLAGS => fields.is_modern = message::short(value, 1).unwrap_or(0) & FLAGS_MODERN != 0,
                _ => {}
            }
        }
        fields
    }
}

fn tries(value: &[u8]) -> Option<Tries> {
    let pairs: &[u8; RATES * 2] = value.first_chunk()?;
    let mut tries = NO_TRIES;
    for (one, pair) in tries.iter_mut().zip(pairs.chunks_exact(2)) {
        *one = (pair[0].cast_signed(), pair[1]);
    }
    Some(tries)
}

/// `IEEE80211_TX_MAX_RATES`.
const RATES: usize = 4;
/// Room for some thousand frames.
const BUFFER: libc::c_int = 16 << 20;

// Commands.
const REGISTER: u8 = 1;
const FRAME: u8 = 2;
const TX_INFO: u8 = 3;
const REMOVE_RADIO: u8 = 5;
const ADD_ADDRESS: u8 = 7;
const REMOVE_ADDRESS: u8 = 8;

// Attributes.
const RECEIVER: u16 = 1;
const TRANSMITTER: u16 = 2;
const BYTES: u16 = 3;
const FLAGS: u16 = 4;
const RATE: u16 = 5;
const SIGNAL: u16 = 6;
const TRIES: u16 = 7;
const COOKIE: u16 = 8;
const RADIO_NUMBER: u16 = 10;
const FREQUENCY: u16 = 19;
const TRIES_FLAGS: u16 = 21;

// Bits of the flags.
const FLAG_NO_ACKNOWLEDGEMENT: u32 = 1 << 1;
const FLAG_ACKNOWLEDGED: u32 = 1 << 2;

/// A rate of the tables of 802.11n or 802.11ac.
const FLAGS_MODERN: u16 = 1 << 3 | 1 << 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_namespace::in_namespace;

    const FAMILY: FamilyNumber = FamilyNumber(40);
    const RADIO: MacAddress = MacAddress([0x42, 0, 0, 0, 1, 0]);

    fn message(command: u8, fill: impl FnOnce(&mut Request)) -> Vec<u8> {
        let mut request = Request::new(FAMILY.0, 0, &generic::header(command, 1));
        fill(&mut request);
        request.finish(7)
    }

    fn event(bytes: &[u8]) -> Option<AirEvent<'_>> {
        read(FAMILY, message::messages(bytes).next()?)
    }

    #[test]
    fn a_frame_of_a_radio_is_read() {
        let bytes = message(FRAME, |request| {
            request
                .attribute(TRANSMITTER, &RADIO.0)
                .attribute(BYTES, b"frame")
                .number(FLAGS, FLAG_NO_ACKNOWLEDGEMENT | 1)
                .number(FREQUENCY, 2_437)
                .attribute(TRIES, &[11, 2, 4, 3, 255, 0, 255, 0])
                .attribute(TRIES_FLAGS, &[11, 0, 0, 4, 0, 0, 255, 0, 0, 255, 0, 0])
                .attribute(COOKIE, &77u64.to_ne_bytes());
        });
        match event(&bytes) {
            Some(AirEvent::Frame(frame)) => {
                assert_eq!((frame.radio, frame.bytes, frame.cookie), (RADIO, b"frame".as_slice(), 77));
                assert_eq!(frame.tries, [(11, 2), (4, 3), (-1, 0), (-1, 0)]);
                assert_eq!(frame.frequency, Frequency(2_437));
                assert!(frame.without_acknowledgement && !frame.is_modern);
            }
            other => panic!("{other:?}"),
        }
        // Without any one of its attributes it is none.
        let half = message(FRAME, |request| {
            request.attribute(TRANSMITTER, &RADIO.0).attribute(BYTES, b"frame");
        });
        assert!(event(&half).is_none());
        let short = message(FRAME, |request| {
            request.attribute(TRANSMITTER, &RADIO.0[..5]);
        });
        assert!(event(&short).is_none());
    }

    #[test]
    fn addresses_and_refusals_are_read() {
        let added = message(ADD_ADDRESS, |request| {
            request.attribute(TRANSMITTER, &RADIO.0).attribute(RECEIVER, &[2; 6]);
        });
        assert!(
            matches!(event(&added), Some(AirEvent::AddressAdded { radio: RADIO, address }) if address.0 == [2; 6])
        );
        let error = |code: i32| Request::new(libc::NLMSG_ERROR as u16, 0, &code.to_ne_bytes()).finish(9);
        assert!(matches!(event(&error(-libc::EINVAL)), Some(AirEvent::Refused(Order(9)))));
        assert!(event(&error(0)).is_none());
    }

    #[test]
    fn without_simulated_radios_there_is_no_air() {
        in_namespace(|| {
            let unexpected = Air::register().err().filter(|error| matches!(error, AirError::Netlink(_)));
            assert!(unexpected.is_none(), "{unexpected:?}");
            assert!(matches!(remove_radio(77), Err(AirError::None | AirError::NoRadio(77))));
        });
    }
}
