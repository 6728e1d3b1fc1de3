//! Who keeps the networks of a radio: chosen by what the kernel says of the card.

use super::capabilities::{Channel, Radio};
use crate::wireless::WirelessMode;

/// Who keeps the networks of a radio.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackEnd {
    /// The kernel: an interface for each network, with all the card's rates and WPA3.
    Kernel {
        /// In how many networks it can be.
        networks: u32,
        /// On how many channels those can be.
        channels: u32,
    },
    /// This program: the radio's time is cut into slots, one for each network in turn.
    TimeSliced,
    /// Nobody: the card serves one network at a time, as the system uses it.
    None,
}

/// A back end, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The back end.
    pub back_end: BackEnd,
    /// Why this one, as sentences for users.
    pub reason: String,
}

impl BackEnd {
    /// Chooses for `radio`: the kernel where it can be on several channels, else slots where the card acknowledges frames
    /// of ours, else the kernel on one channel where it allows several stations.
    pub fn choose(radio: &Radio) -> Choice {
        let channels = radio.station_channels();
        let kernel = |channels| Self::Kernel { networks: radio.stations(channels), channels };
        if channels >= 2 {
            let networks = radio.stations(channels);
            return Choice {
                back_end: kernel(channels),
                reason: format!(
                    "The kernel can keep {networks} networks on {channels} channels with this card: all its rates, and WPA3."
                ),
            };
        }
        let obstacle = obstacle(radio);
        let several = radio.stations(1) >= 2;
        let limit = if several {
            "the kernel keeps several networks with this card only on one channel"
        } else {
            "the kernel keeps one network at a time with this card"
        };
        match obstacle {
            None => Choice {
                back_end: Self::TimeSliced,
                reason: format!(
                    "The card acknowledges frames in monitor mode, and {limit}; so this program shares the radio's time out."
                ),
            },
            Some(obstacle) if several => Choice {
                back_end: kernel(1),
                reason: format!("{obstacle}, but the kernel keeps several networks of one channel with it."),
            },
            Some(obstacle) => Choice { back_end: Self::None, reason: format!("{obstacle}, and {limit}.") },
        }
    }
}

impl Choice {
    /// The kernel, whatever the card could do otherwise.
    pub fn kernel(radio: &Radio) -> Self {
        let channels = radio.station_channels();
        match radio.stations(channels) {
            0 => Self {
                back_end: BackEnd::None,
                reason: "The card cannot be a client of an access point.".to_owned(),
            },
            networks => Self {
                back_end: BackEnd::Kernel { networks, channels },
                reason: format!(
                    "As asked for, the kernel keeps the networks: up to {networks} at a time, on up to {channels} channels, with all of the card's rates, and WPA3."
                ),
            },
        }
    }
}

/// What speaks against slots, if anything does.
fn obstacle(radio: &Radio) -> Option<&'static str> {
    if !radio.modes.contains(&WirelessMode::Monitor) {
        Some("The card's driver has no monitor mode")
    } else if !radio.active_monitor {
        Some("The card's driver does not acknowledge frames in monitor mode (\"active monitor\")")
    } else if !radio.channels.iter().any(Channel::may_send) {
        Some(
            "The rules of the country let nobody begin to send on any of the card's channels (is a country set?)",
        )
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use units::Frequency;

    use super::super::capabilities::{Band, Combination, InterfaceLimit, RadioNumber};
    use super::*;

    /// A card with `stations` on `channels`, as most with monitor mode are otherwise.
    fn card(stations: u32, channels: u32, active_monitor: bool) -> Radio {
        let channel = Channel {
            frequency: Frequency(2412),
            band: Band::Two,
            disabled: false,
            no_initiation: false,
            radar: false,
            most_power: None,
        };
        let limit = InterfaceLimit { most: stations, modes: vec![WirelessMode::Station] };
        Radio {
            number: RadioNumber(0),
            name: "phy0".into(),
            driver: None,
            address: None,
            channels: vec![channel],
            modes: vec![WirelessMode::Station, WirelessMode::Monitor],
            combinations: vec![Combination { limits: vec![limit], interfaces: stations, channels }],
            active_monitor,
            block: None,
            interfaces: Vec::new(),
        }
    }

    #[test]
    fn the_kernel_is_chosen_where_it_can_be_on_several_channels() {
        let choice = BackEnd::choose(&card(3, 2, true));
        assert_eq!(choice.back_end, BackEnd::Kernel { networks: 3, channels: 2 });
        // A second channel for something else than a station does not help.
        assert_eq!(BackEnd::choose(&card(1, 2, true)).back_end, BackEnd::TimeSliced);
    }

    #[test]
    fn slots_need_a_card_that_acknowledges() {
        assert_eq!(BackEnd::choose(&card(2, 1, true)).back_end, BackEnd::TimeSliced);
        let choice = BackEnd::choose(&card(2, 1, false));
        assert_eq!(choice.back_end, BackEnd::Kernel { networks: 2, channels: 1 });
        assert!(choice.reason.contains("active monitor"), "{}", choice.reason);
        assert_eq!(BackEnd::choose(&card(1, 1, false)).back_end, BackEnd::None);
    }

    #[test]
    fn who_asks_for_the_kernel_gets_it() {
        let choice = Choice::kernel(&card(2, 1, true));
        assert_eq!(choice.back_end, BackEnd::Kernel { networks: 2, channels: 1 });
        assert_eq!(Choice::kernel(&card(1, 1, true)).back_end, BackEnd::Kernel { networks: 1, channels: 1 });
        let mut radio = card(1, 1, true);
        radio.modes.remove(0);
        radio.combinations.clear();
        assert_eq!(Choice::kernel(&radio).back_end, BackEnd::None);
    }

    #[test]
    fn slots_need_monitor_mode_and_a_channel_to_send_on() {
        let mut radio = card(1, 1, true);
        radio.modes.pop();
        assert_eq!(BackEnd::choose(&radio).back_end, BackEnd::None);
        let mut radio = card(1, 1, true);
        radio.channels[0].no_initiation = true;
        let choice = BackEnd::choose(&radio);
        assert_eq!(choice.back_end, BackEnd::None);
        assert!(choice.reason.contains("country"), "{}", choice.reason);
    }
}
