//! Reading the kernel's description of radios, which comes in pieces (a "split dump").

use std::collections::BTreeMap;

use units::Frequency;

use super::capabilities::{Band, Channel, Combination, InterfaceLimit, Radio, RadioNumber};
use crate::netlink::message;
use crate::wireless::WirelessMode;

/// Radios under construction.
#[derive(Default)]
pub(super) struct Descriptions(BTreeMap<RadioNumber, Radio>);

impl Descriptions {
    /// Takes one piece: attributes of one radio.
    pub(super) fn add(&mut self, attributes: &[u8]) {
        let find = |wanted| message::attributes(attributes).find(|(kind, _)| *kind == wanted);
        let Some(number) = find(RADIO).and_then(|(_, value)| message::number(value, 0)) else { return };
        let number = RadioNumber(number);
        if self.0.len() >= MOST && !self.0.contains_key(&number) {
            return;
        }
        let radio = self.0.entry(number).or_insert_with(|| empty(number));
        for (kind, value) in message::attributes(attributes) {
            match kind {
                NAME => radio.name = message::text(value),
                BANDS => add_bands(&mut radio.channels, value),
                MODES => radio.modes = modes(value),
                COMBINATIONS => {
                    let combinations = message::attributes(value).take(MOST);
                    radio.combinations = combinations.filter_map(|(_, one)| combination(one)).collect();
                }
                FEATURES => {
                    let features = message::number(value, 0).unwrap_or(0);
                    radio.active_monitor = features & FEATURE_ACTIVE_MONITOR != 0;
                }
                _ => {}
            }
        }
    }

    /// All radios, by number.
    pub(super) fn finish(self) -> Vec<Radio> {
        let mut radios: Vec<Radio> = self.0.into_values().collect();
        for radio in &mut radios {
            radio.channels.sort_by_key(|channel| channel.frequency);
        }
        radios
    }
}

fn empty(number: RadioNumber) -> Radio {
    Radio {
        number,
        name: String::new(),
        driver: None,
        address: None,
        channels: Vec::new(),
        modes: Vec::new(),
        combinations: Vec::new(),
        active_monitor: false,
        block: None,
        interfaces: Vec::new(),
    }
}

/// Bands, each with some or all of its channels: further pieces bring the others.
fn add_bands(channels: &mut Vec<Channel>, bands: &[u8]) {
    for (number, band) in message::attributes(bands) {
        let band_name = match number {
            0 => Band::Two,
            1 => Band::Five,
            3 => Band::Six,
            other => Band::Other(other),
        };
        let lists = message::attributes(band).filter(|(kind, _)| *kind == BAND_CHANNELS);
        for (_, one) in lists.flat_map(|(_, list)| message::attributes(list)) {
            if channels.len() >= MOST_CHANNELS {
                return;
            }
            if let Some(channel) = channel(band_name, one)
                && !channels.iter().any(|known| known.frequency == channel.frequency)
            {
                channels.push(channel);
            }
        }
    }
}

fn channel(band: Band, attributes: &[u8]) -> Option<Channel> {
    let mut frequency = None;
    let (mut disabled, mut no_initiation, mut radar, mut most_power) = (false, false, false, None);
    for (kind, value) in message::attributes(attributes) {
        match kind {
            CHANNEL_FREQUENCY => frequency = message::number(value, 0).map(Frequency),
            CHANNEL_DISABLED => disabled = true,
            CHANNEL_NO_INITIATION => no_initiation = true,
            CHANNEL_RADAR => radar = true,
            CHANNEL_MOST_POWER => most_power = message::number(value, 0),
            _ => {}
        }
    }
    Some(Channel { frequency: frequency?, band, disabled, no_initiation, radar, most_power })
}

fn combination(attributes: &[u8]) -> Option<Combination> {
    let (mut limits, mut interfaces, mut channels) = (Vec::new(), None, None);
    for (kind, value) in message::attributes(attributes) {
        match kind {
            COMBINATION_LIMITS => {
                limits = message::attributes(value).take(MOST).filter_map(|(_, one)| limit(one)).collect();
            }
            COMBINATION_INTERFACES => interfaces = message::number(value, 0),
            COMBINATION_CHANNELS => channels = message::number(value, 0),
            _ => {}
        }
    }
    Some(Combination { limits, interfaces: interfaces?, channels: channels? })
}

fn limit(attributes: &[u8]) -> Option<InterfaceLimit> {
    let (mut most, mut kinds) = (None, Vec::new());
    for (kind, value) in message::attributes(attributes) {
        match kind {
            LIMIT_MOST => most = message::number(value, 0),
            LIMIT_MODES => kinds = modes(value),
            _ => {}
        }
    }
    Some(InterfaceLimit { most: most?, modes: kinds })
}

/// Each mode is an attribute without a value.
fn modes(attributes: &[u8]) -> Vec<WirelessMode> {
    message::attributes(attributes).take(MOST).map(|(kind, _)| WirelessMode::of_number(kind.into())).collect()
}

/// Bound of everything that is listed but channels.
const MOST: usize = 64;
const MOST_CHANNELS: usize = 512;

// `enum nl80211_attrs`.
const RADIO: u16 = 1;
const NAME: u16 = 2;
const BANDS: u16 = 22;
const MODES: u16 = 32;
const COMBINATIONS: u16 = 120;
const FEATURES: u16 = 143;

// `enum nl80211_feature_flags`.
const FEATURE_ACTIVE_MONITOR: u32 = 1 << 17;

// `enum nl80211_band_attr`.
const BAND_CHANNELS: u16 = 1;

// `enum nl80211_frequency_attr`.
const CHANNEL_FREQUENCY: u16 = 1;
const CHANNEL_DISABLED: u16 = 2;
const CHANNEL_NO_INITIATION: u16 = 3;
const CHANNEL_RADAR: u16 = 5;
const CHANNEL_MOST_POWER: u16 = 6;

// `enum nl80211_if_combination_attrs`.
const COMBINATION_LIMITS: u16 = 1;
const COMBINATION_INTERFACES: u16 = 2;
const COMBINATION_CHANNELS: u16 = 4;

// `enum nl80211_iface_limit_attrs`.
const LIMIT_MOST: u16 = 1;
const LIMIT_MODES: u16 = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::netlink::message::{HEADER, Request};

    /// The attributes that `fill` adds, as the kernel would send them.
    fn built(fill: impl FnOnce(&mut Request)) -> Vec<u8> {
        let mut request = Request::new(0, 0, &[]);
        fill(&mut request);
        request.finish(0).split_off(HEADER)
    }

    fn add_channel(list: &mut Request, at: u16, frequency: u32, flags: &[u16]) {
        list.nested(at, |channel| {
            channel.number(CHANNEL_FREQUENCY, frequency).number(CHANNEL_MOST_POWER, 2000);
            for flag in flags {
                channel.attribute(*flag, &[]);
            }
        });
    }

    /// A card in three pieces, with a second card in between.
    fn pieces() -> Vec<Vec<u8>> {
        let first = built(|answer| {
            answer.number(RADIO, 3).text(NAME, "phy3").nested(MODES, |modes| {
                modes.attribute(2, &[]).attribute(3, &[]).attribute(6, &[]);
            });
        });
        let bands = built(|answer| {
            answer.number(RADIO, 3).nested(BANDS, |bands| {
                bands.nested(1, |band| {
                    band.nested(BAND_CHANNELS, |list| {
                        add_channel(list, 7, 5260, &[CHANNEL_NO_INITIATION, CHANNEL_RADAR])
                    });
                });
                bands.nested(0, |band| {
                    band.nested(BAND_CHANNELS, |list| {
                        add_channel(list, 0, 2412, &[]);
                        add_channel(list, 13, 2484, &[CHANNEL_DISABLED]);
                    });
                });
            });
        });
        let rest = built(|answer| {
            answer.number(RADIO, 3).number(FEATURES, FEATURE_ACTIVE_MONITOR | 1).nested(BANDS, |bands| {
                bands.nested(0, |band| {
                    band.nested(BAND_CHANNELS, |list| add_channel(list, 0, 2412, &[]));
                });
            });
            answer.nested(COMBINATIONS, |combinations| {
                combinations.nested(1, |one| {
                    one.nested(COMBINATION_LIMITS, |limits| {
                        limits.nested(1, |limit| {
                            limit.number(LIMIT_MOST, 2).nested(LIMIT_MODES, |modes| {
                                modes.attribute(2, &[]);
                            });
                        });
                        limits.nested(2, |limit| {
                            limit.number(LIMIT_MOST, 1).nested(LIMIT_MODES, |modes| {
                                modes.attribute(2, &[]).attribute(3, &[]);
                            });
                        });
                    });
                    one.number(COMBINATION_INTERFACES, 4).number(COMBINATION_CHANNELS, 2);
                });
            });
        });
        let other = built(|answer| {
            answer.number(RADIO, 0).text(NAME, "phy0").nested(MODES, |modes| {
                modes.attribute(2, &[]);
            });
        });
        vec![first, bands, other, rest]
    }

    fn read(pieces: &[Vec<u8>]) -> Vec<Radio> {
        let mut descriptions = Descriptions::default();
        pieces.iter().for_each(|piece| descriptions.add(piece));
        descriptions.finish()
    }

    #[test]
    fn pieces_are_put_together() {
        let radios = read(&pieces());
        assert_eq!(radios.iter().map(|radio| radio.name.as_str()).collect::<Vec<_>>(), ["phy0", "phy3"]);
        let card = &radios[1];
        let known: Vec<_> = card
            .channels
            .iter()
            .map(|channel| (channel.frequency.0, channel.may_listen(), channel.may_send()))
            .collect();
        assert_eq!(known, [(2412, true, true), (2484, false, false), (5260, true, false)]);
        assert_eq!(card.channels[2].band, Band::Five);
        assert_eq!(card.modes, [WirelessMode::Station, WirelessMode::AccessPoint, WirelessMode::Monitor]);
        assert!(card.active_monitor && !radios[0].active_monitor);
    }

    #[test]
    fn stations_are_counted_as_the_combinations_allow() {
        let mut radios = read(&pieces());
        assert_eq!((radios[0].stations(1), radios[0].stations(2), radios[0].station_channels()), (1, 0, 1));
        assert_eq!((radios[1].stations(1), radios[1].stations(2), radios[1].station_channels()), (3, 3, 2));
        assert_eq!(radios[1].stations(3), 0);
        radios[1].combinations[0].interfaces = 2;
        assert_eq!(radios[1].stations(2), 2, "no more than in all");
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut descriptions = Descriptions::default();
            descriptions.add(&bytes);
            drop(descriptions.finish());
        }

        #[test]
        fn mutated_pieces_never_panic(which in 0usize..4, at in 0usize..400, value in any::<u8>(), length in 0usize..400) {
            let mut piece = pieces().swap_remove(which);
            if let Some(byte) = piece.get_mut(at) {
                *byte = value;
            }
            piece.truncate(length);
            prop_assert!(read(&[piece]).len() <= 1);
        }
    }
}
