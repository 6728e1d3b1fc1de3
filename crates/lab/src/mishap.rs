//! What may happen to a radio, done on purpose inside a test bed: a stranger nearby who forges an access point's frames or sends them once more, and a
//! card that is pulled out.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use linux::hwsim::remove_radio;
use linux::radio::{RadioCard, TransferError};
use radio::frame::data::{EAPOL_TYPE, Packet};
use radio::frame::eapol::KeyFrame;
use radio::frame::{Header, Kind};
use radio::radiotap::Captured;
use radio::{Rate, Transmission};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use units::{Frequency, MacAddress};

/// `anabranch-lab mishap ...`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Mishap {
    /// Send deauthentications in an access point's name.
    Deauthenticate(Forgery),
    /// Send frames that make little sense in an access point's name: random ones, and its own with some bytes changed.
    Garbage {
        /// As whom to whom.
        #[command(flatten)]
        forgery: Forgery,
        /// Decides what they are.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Announce in an access point's name that it is on another channel now.
    Announce {
        /// As whom to whom.
        #[command(flatten)]
        forgery: Forgery,
        /// The channel's number.
        #[arg(long)]
        channel: u8,
    },
    /// Wait for the third message of a key handshake, and send it again and again: by turns as it was, and with its last byte changed.
    Replay(Forgery),
    /// Pull a simulated radio out that is in this network namespace.
    Pull {
        /// Its number, as the kernel counts them.
        radio: u32,
    },
}

/// Who sends what to whom.
#[derive(Clone, Debug, clap::Args)]
pub struct Forgery {
    /// A monitor interface.
    interface: String,
    /// The channel, as a frequency in MHz.
    #[arg(long)]
    frequency: u32,
    /// The access point in whose name it sends.
    #[arg(long)]
    point: MacAddress,
    /// Who is to hear it.
    #[arg(long)]
    receiver: MacAddress,
    /// How many.
    #[arg(long)]
    count: u32,
    /// Time between two.
    #[arg(long, default_value_t = 10)]
    pause_ms: u64,
}

/// Does it, and ends when it is done.
///
/// # Errors
/// If the card cannot be used, or there is no such radio.
pub fn run(mishap: Mishap) -> Result<()> {
    match mishap {
        Mishap::Pull { radio } => Ok(remove_radio(radio)?),
        Mishap::Deauthenticate(forgery) => forgery.send(|forgery, _, number| {
            let header = Header::new(Kind::Deauthentication, forgery.receiver, forgery.point, forgery.point);
            Some(forgery.frame(header, number, &CLASS_3_REASON))
        }),
        Mishap::Announce { forgery, channel } => forgery.send(|forgery, _, number| {
            let header = Header::new(Kind::Action, forgery.receiver, forgery.point, forgery.point);
            Some(forgery.frame(header, number, &[SPECTRUM_MANAGEMENT, CHANNEL_SWITCH, 37, 3, 0, channel, 0]))
        }),
        Mishap::Replay(forgery) => {
            let mut third: Option<Vec<u8>> = None;
            forgery.send(|forgery, heard, number| {
                third = third.take().or_else(|| heard.iter().find(|frame| forgery.is_third(frame)).cloned());
                let mut frame = third.clone()?;
                let numbered = (number << 4).to_le_bytes();
                frame.get_mut(SEQUENCE..SEQUENCE + 2)?.copy_from_slice(&numbered);
                *frame.last_mut()? ^= (number % 2) as u8;
                Some(frame)
            })
        }
        Mishap::Garbage { forgery, seed } => {
            let mut randomness = ChaCha8Rng::seed_from_u64(seed);
            forgery.send(|forgery, heard, number| Some(forgery.garbage(&mut randomness, heard, number)))
        }
    }
}

impl Forgery {
    /// Sends what `next` makes of the frames that the access point sent of late and a number that counts on. It waits while that is nothing.
    fn send(&self, mut next: impl FnMut(&Self, &VecDeque<Vec<u8>>, u16) -> Option<Vec<u8>>) -> Result<()> {
        let mut card = RadioCard::open(&self.interface).context("opening the stranger's card")?;
        card.tune(Frequency(self.frequency)).context("tuning the stranger's card")?;
        let mut heard = VecDeque::new();
        let (mut number, mut waited) = (0, Duration::ZERO);
        while number < self.count {
            let kept = |captured: Captured<'_>| {
                let Captured::Heard(frame) = captured else { return };
                let parsed = Header::parse(frame.frame);
                if parsed.is_ok_and(|(header, _)| header.transmitter == self.point) {
                    heard.truncate(MOST_HEARD - 1);
                    heard.push_front(frame.frame.to_vec());
                }
            };
            card.receive(kept).context("listening to the access point")?;
            let pause = Duration::from_millis(self.pause_ms.max(1));
            match next(self, &heard, number as u16 & 0xfff) {
                Some(frame) => {
                    number += 1;
                    match card.send(&Transmission { frame, rate: Rate::OFDM[0], attempts: 1 }) {
                        // The kernel's own checks let few kinds of nonsense out.
                        Ok(())
                        | Err(TransferError::Full | TransferError::TooLong | TransferError::System(_)) => {}
                        Err(error) => return Err(error).context("sending in the access point's name"),
                    }
                }
                None => {
                    waited += pause;
                    anyhow::ensure!(
                        waited < PATIENCE,
                        "the access point sent nothing that could be sent again"
                    );
                }
            }
            thread::sleep(pause);
        }
        Ok(())
    }

    /// Whether a frame is the third message of a key handshake with the receiver.
    fn is_third(&self, frame: &[u8]) -> bool {
        let Ok((header, body)) = Header::parse(frame) else { return false };
        let to_receiver = header.receiver == self.receiver && !header.control.protected;
        let packet = Packet::from_body(header.source(), header.destination(), body);
        let payload = packet.ok().filter(|packet| to_receiver && packet.ethernet_type == EAPOL_TYPE);
        payload
            .and_then(|packet| KeyFrame::parse(packet.payload).ok())
            .is_some_and(|(keys, _)| keys.information.install)
    }

    fn frame(&self, mut header: Header, number: u16, body: &[u8]) -> Vec<u8> {
        header.sequence.number = number;
        let mut frame = Vec::with_capacity(32 + body.len());
        header.write(&mut frame);
        frame.extend_from_slice(body);
        frame
    }

    /// One frame in three is one that the access point sent, with some bytes changed behind its addresses; others have a random body.
    fn garbage(&self, randomness: &mut impl Rng, heard: &VecDeque<Vec<u8>>, number: u16) -> Vec<u8> {
        if !heard.is_empty() && randomness.random_range(0..3) == 0 {
            let mut frame = heard[randomness.random_range(0..heard.len())].clone();
            for _ in 0..randomness.random_range(1..6) {
                let (place, end) = (randomness.random_range(SEQUENCE..=frame.len()), frame.len());
                match frame.get_mut(place) {
                    Some(byte) => *byte = randomness.random(),
                    None => frame.truncate(randomness.random_range(SEQUENCE + 2..=end)),
                }
            }
            return frame;
        }
        let kind = KINDS[randomness.random_range(0..KINDS.len())];
        let mut header = Header::new(kind, self.receiver, self.point, self.point);
        header.control.from_access_point = kind.is_data();
        header.control.protected = randomness.random_range(0..4) == 0;
        header.control.more_data = randomness.random();
        header.control.retry = randomness.random();
        header.control.more_fragments = randomness.random_range(0..8) == 0;
        header.sequence.fragment =
            if header.control.more_fragments { randomness.random_range(0..16) } else { 0 };
        let mut body = vec![0; randomness.random_range(0..LONGEST_BODY)];
        randomness.fill(body.as_mut_slice());
        self.frame(header, number, &body)
    }
}

/// Reason 7: a frame came from a station that is not associated.
const CLASS_3_REASON: [u8; 2] = [7, 0];
/// Category and action of an announcement of another channel (IEEE 802.11-2020 section 9.6.2.6).
const SPECTRUM_MANAGEMENT: u8 = 0;
const CHANNEL_SWITCH: u8 = 4;
/// How long it waits for what it could send.
const PATIENCE: Duration = Duration::from_secs(30);
/// Frames of the access point that are remembered.
const MOST_HEARD: usize = 32;
/// Where a frame's number is: the first bytes behind its addresses.
const SEQUENCE: usize = 22;
const LONGEST_BODY: usize = 1_500;
/// All that an access point might say. Those that send a station away by their kind alone are left to the other command.
const KINDS: [Kind; 9] = [
    Kind::Beacon,
    Kind::ProbeResponse,
    Kind::Authentication,
    Kind::AssociationResponse,
    Kind::ReassociationResponse,
    Kind::Action,
    Kind::Data,
    Kind::QosData,
    Kind::Null,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_keeps_its_addresses_and_follows_its_seed() {
        let (point, receiver) = (MacAddress([2, 0, 0, 0, 0, 0]), MacAddress([2, 0, 0, 0, 2, 0]));
        let forgery =
            Forgery { interface: "mon0".into(), frequency: 2_412, point, receiver, count: 1, pause_ms: 0 };
        let beacon = forgery.frame(Header::new(Kind::Beacon, receiver, point, point), 5, &[7; 60]);
        let heard = VecDeque::from([beacon.clone()]);
        let make = |seed| -> Vec<Vec<u8>> {
            let mut randomness = ChaCha8Rng::seed_from_u64(seed);
            (0..500).map(|number| forgery.garbage(&mut randomness, &heard, number)).collect()
        };
        let frames = make(1);
        assert!(frames.iter().all(|frame| frame[4..22] == beacon[4..22] && frame.len() < 1_530));
        assert!(
            frames.iter().any(|frame| frame.len() < 30) && frames.iter().any(|frame| frame.len() > 1_000)
        );
        assert_eq!(frames, make(1));
        assert_ne!(frames, make(2));
    }
}
