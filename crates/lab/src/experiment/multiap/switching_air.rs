//! Channels that share what they carry among the radios that are on them at the moment: the model of `[MULTIAP] section 7.1`. Access points
//! always have something for everybody. Whose turn it is on each radio is decided by the product's own [`Slots`].

use std::time::Duration;

use radio::slots::{Fill, Member, SlotSettings, Slots};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use units::{Frequency, NetworkId};

/// What the product's radio takes for a change of channel on a card that itself takes 3 ms: the mean of `cost_3000.total` of
/// JUGGLER/table1-switch.
pub(super) const CHANGE_OF_CHANNEL: Duration = Duration::from_micros(3_198);

/// Radios on channels.
#[derive(Clone, Debug)]
pub(super) struct SwitchingAir {
    /// What each channel carries, in Mbit/s.
    pub channels: Vec<f64>,
    /// Radios that each have an access point on every channel.
    pub clients: usize,
    pub slots: SlotSettings,
    /// What a change of channel takes.
    pub change: Duration,
    /// Each has an access point on one channel only, drawn by chance.
    pub stays: bool,
    pub settling: Duration,
    pub measured: Duration,
    pub seed: u64,
}

struct Client {
    slots: Slots,
    randomness: ChaCha8Rng,
    place: Place,
    /// In microseconds.
    until: u64,
    /// Bits in the present slot, and in the time that is measured.
    slot_bits: f64,
    bits: f64,
}

#[derive(Clone, Copy)]
enum Place {
    Present { channel: usize, since: u64 },
    Tuning { channel: usize, length: u64 },
}

impl SwitchingAir {
    /// Mbit/s that each client received in the measured time.
    pub fn run(&self) -> Vec<f64> {
        let mut randomness = ChaCha8Rng::seed_from_u64(self.seed);
        let mut clients: Vec<Client> = (0..self.clients).map(|_| self.client(&mut randomness)).collect();
        let (settled, end) = (microseconds(self.settling), microseconds(self.settling + self.measured));
        let (mut now, mut measuring) = (0, false);
        while now < end {
            if !measuring && now >= settled {
                measuring = true;
                clients.iter_mut().for_each(|client| client.bits = 0.0);
            }
            let limit = if measuring { end } else { settled };
            let next = clients.iter().map(|client| client.until).min().unwrap_or(end).min(limit);
            self.carry(&mut clients, next - now);
            now = next;
            clients
                .iter_mut()
                .filter(|client| client.until <= now)
                .for_each(|client| self.go_on(client, now));
        }
        clients.iter().map(|client| client.bits / 1e6 / self.measured.as_secs_f64()).collect()
    }

    fn client(&self, randomness: &mut ChaCha8Rng) -> Client {
        let mut slots = Slots::new(self.slots);
        let first = randomness.random_range(0..self.channels.len());
        for channel in 0..self.channels.len() {
            if !self.stays || channel == first {
                let network = NetworkId(channel as u32);
                slots.set_weight(network, 1);
                slots.set_channel(network, Some(frequency(channel)));
            }
        }
        slots.set_next(Member::Channel(frequency(first)));
        // Nobody begins at the same moment as another.
        let begins = Place::Tuning { channel: first, length: 0 };
        let until = randomness.random_range(0..microseconds(FIRST_START));
        let randomness = ChaCha8Rng::seed_from_u64(randomness.random());
        Client { slots, randomness, place: begins, until, slot_bits: 0.0, bits: 0.0 }
    }

    /// What arrives in some microseconds in which nobody comes or goes.
    fn carry(&self, clients: &mut [Client], time: u64) {
        let mut present = vec![0_u32; self.channels.len()];
        clients.iter().filter_map(Client::channel).for_each(|channel| present[channel] += 1);
        for client in clients {
            let Some(channel) = client.channel() else { continue };
            // Mbit/s are bits in a microsecond.
            let bits = self.channels[channel] / f64::from(present[channel]) * time as f64;
            client.slot_bits += bits;
            client.bits += bits;
        }
    }

    /// What comes after a slot, or a change of channel.
    fn go_on(&self, client: &mut Client, now: u64) {
        let here = match client.place {
            Place::Tuning { channel, length } if length > 0 => {
                client.be_present(now, channel, length);
                return;
            }
            Place::Tuning { .. } => None,
            Place::Present { channel, since } => {
                let bytes = (std::mem::take(&mut client.slot_bits) / 8.0) as u64;
                client.slots.delivered(
                    frequency(channel),
                    bytes,
                    Duration::from_micros(now - since),
                    Fill::Air,
                );
                Some(channel)
            }
        };
        let Some(slot) = client.slots.advance(&mut client.randomness) else { return };
        let Member::Channel(Frequency(channel)) = slot.member else { return };
        let (channel, length) = (channel as usize, microseconds(slot.length).max(1));
        if here == Some(channel) || self.change.is_zero() {
            client.be_present(now, channel, length);
        } else {
            client.place = Place::Tuning { channel, length };
            client.until = now + microseconds(self.change);
        }
    }
}

impl Client {
    fn channel(&self) -> Option<usize> {
        match self.place {
            Place::Present { channel, .. } => Some(channel),
            Place::Tuning { .. } => None,
        }
    }

    fn be_present(&mut self, now: u64, channel: usize, length: u64) {
        self.place = Place::Present { channel, since: now };
        self.until = now + length;
    }
}

/// As good as any other name of a channel.
fn frequency(channel: usize) -> Frequency {
    Frequency(channel as u32)
}

fn microseconds(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// In which all begin.
const FIRST_START: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    fn air(channels: &[f64], clients: usize) -> SwitchingAir {
        SwitchingAir {
            channels: channels.to_vec(),
            clients,
            slots: SlotSettings { alpha: 0.0, ..SlotSettings::default() },
            change: Duration::ZERO,
            stays: false,
            settling: Duration::from_secs(1),
            measured: Duration::from_secs(20),
            seed: 7,
        }
    }

    #[test]
    fn one_alone_has_all_while_it_is_there_and_nothing_while_it_changes() {
        let free = air(&[20.0, 10.0], 1).run();
        assert!((free[0] - 15.0).abs() < 0.1, "{free:?}");
        let costly = SwitchingAir { change: Duration::from_millis(10), ..air(&[20.0, 10.0], 1) }.run();
        // By hand: 200 ms of 220.
        assert!((costly[0] - 15.0 / 1.1).abs() < 0.1, "{costly:?}");
    }

    #[test]
    fn those_on_one_channel_share_it() {
        let shares = air(&[22.0], 4).run();
        assert!(shares.iter().all(|share| (share - 5.5).abs() < 0.01), "{shares:?}");
        let staying = SwitchingAir { stays: true, ..air(&[22.0, 22.0, 22.0], 2) }.run();
        assert!(staying == [11.0; 2] || staying == [22.0; 2], "{staying:?}");
    }

    #[test]
    fn a_seed_gives_the_same_again() {
        let air = air(&[22.0, 22.0, 22.0], 3);
        assert_eq!(air.run(), air.run());
    }
}
