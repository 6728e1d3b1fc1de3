//! Cards whose power was measured and published.

use std::time::Duration;

use super::{Joules, NanojoulesPerBit, PowerModel, Watts};

/// A card with published figures.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Card {
    /// Name for configuration and reports.
    pub name: &'static str,
    /// Where its figures were published.
    pub source: &'static str,
    /// The figures.
    pub model: PowerModel,
}

impl Card {
    /// The card of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        CARDS.iter().find(|card| card.name == name)
    }
}

/// The cards, by technology and age.
///
/// The papers that this project follows give no figure of a card.
pub const CARDS: &[Card] = &[
    Card { name: "lte-2012", source: HUANG, model: LTE },
    Card { name: "3g-2012", source: HUANG, model: THREE_G },
    Card { name: "wifi-2012", source: HUANG, model: WIFI },
    Card { name: "3g-2009", source: BALASUBRAMANIAN, model: N95_THREE_G },
    Card { name: "gsm-2009", source: BALASUBRAMANIAN, model: N95_GSM },
    Card { name: "wifi-2009", source: BALASUBRAMANIAN, model: N95_WIFI },
    Card { name: "bluetooth-2008", source: AALBORG, model: BLUETOOTH },
    Card { name: "wavelan-11", source: FEENEY, model: WAVELAN_11 },
    Card { name: "wavelan-2", source: FEENEY, model: WAVELAN_2 },
    Card { name: "bluetooth-2013", source: CC256X, model: CC256X_CHIP },
];

const HUANG: &str = "Huang, Qian, Gerber, Mao, Sen, Spatscheck: A Close Examination of Performance and Power Characteristics of \
                     4G LTE Networks, MobiSys 2012, tables 3 and 4 (HTC phone on a commercial network)";
const BALASUBRAMANIAN: &str = "Balasubramanian, Balasubramanian, Venkataramani: Energy Consumption in Mobile Phones: A Measurement \
                               Study and Implications for Network Applications, IMC 2009, table of its energy model (Nokia N95)";
const AALBORG: &str = "Mobile Devices group, Aalborg University: Energy measurements on mobile phones, data download for different \
                       technologies: parametrized model of 500 kB by Bluetooth 2.0 with EDR (Nokia phone, all of it)";
const FEENEY: &str = "Feeney, Nilsson: Investigating the Energy Consumption of a Wireless Network Interface in an Ad Hoc \
                      Networking Environment, INFOCOM 2001, table 1 (Lucent IEEE 802.11 WaveLAN PC cards, measured at 4.74 V)";

const CC256X: &str = "Texas Instruments: CC256x Bluetooth and Dual-Mode Controller, data sheet SWRS121C, October 2013, section 4.1.3 \
                      (3.6 V, 4 dBm); the rate of DH5 packets by Bluetooth Core, volume 2 part B, table 6.9";

/// 438.39 mW for each Mbit/s up, 51.97 down, 1,288.04 mW base; start 1,210.7 mW for 260.1 ms; tail 1,060.0 mW for
/// 11.576 s. Idle listening is left out here and in the two that follow: no comparison of networks needs it.
const LTE: PowerModel = PowerModel {
    idle: Watts(0.0),
    active: Watts(1.288_04),
    transmit: NanojoulesPerBit(438.39),
    receive: NanojoulesPerBit(51.97),
    start: Joules(1.210_7 * 0.260_1),
    tail: Watts(1.060_0),
    tail_time: Duration::from_micros(11_576_000),
};

/// 868.98 and 122.12 mW for each Mbit/s, 817.88 mW base; start 659.4 mW for 582.1 ms; tail 803.9 mW for 8.0882 s (DCH; the
/// 0.8242 s in FACH at 601.3 mW that follow are left out).
const THREE_G: PowerModel = PowerModel {
    idle: Watts(0.0),
    active: Watts(0.817_88),
    transmit: NanojoulesPerBit(868.98),
    receive: NanojoulesPerBit(122.12),
    start: Joules(0.659_4 * 0.582_1),
    tail: Watts(0.803_9),
    tail_time: Duration::from_micros(8_088_200),
};

/// 283.17 and 137.01 mW for each Mbit/s, 132.86 mW base; start 124.4 mW for 79.1 ms; tail 119.3 mW for 238.1 ms.
const WIFI: PowerModel = PowerModel {
    idle: Watts(0.0),
    active: Watts(0.132_86),
    transmit: NanojoulesPerBit(283.17),
    receive: NanojoulesPerBit(137.01),
    start: Joules(0.124_4 * 0.079_1),
    tail: Watts(0.119_3),
    tail_time: Duration::from_micros(238_100),
};

/// 0.572 µJ for each bit at 685 kbit/s, less 0.489 nJ for each kbit/s above, from 650 to 850 kbit/s: 382.9 and 417.6 mW, so 270.1 mW
/// and 173.5 mW for each Mbit/s. Receiving was measured; sending is taken to be the same, and idle connections to draw nothing.
const BLUETOOTH: PowerModel = PowerModel {
    idle: Watts(0.0),
    active: Watts(0.270_1),
    transmit: NanojoulesPerBit(173.5),
    receive: NanojoulesPerBit(173.5),
    start: Joules(0.0),
    tail: Watts(0.0),
    tail_time: Duration::ZERO,
};

/// 0.025 J for each KB and 3.5 J for each transfer; tail 0.62 J/s for 12.5 s; upkeep 0.02 J/s.
const N95_THREE_G: PowerModel = per_kilobyte(0.025, 3.5, 0.02, 0.62, 12_500);

/// 0.036 J for each KB and 1.7 J for each transfer; tail 0.25 J/s for 6 s; upkeep 0.03 J/s.
const N95_GSM: PowerModel = per_kilobyte(0.036, 1.7, 0.03, 0.25, 6_000);

/// 0.007 J for each KB and 5.9 J for each transfer, which includes finding and joining the access point; no tail; upkeep
/// 0.05 J/s.
const N95_WIFI: PowerModel = per_kilobyte(0.007, 5.9, 0.05, 0.0, 0);

/// 156 mA idle, 190 mA receiving, 284 mA sending, at 4.74 V and 11 Mbit/s.
const WAVELAN_11: PowerModel = by_current(156.0, 190.0, 284.0, 11.0);

/// 178 mA idle, 204 mA receiving, 280 mA sending, at 4.74 V and 2 Mbit/s.
const WAVELAN_2: PowerModel = by_current(178.0, 204.0, 280.0, 2.0);

/// 40.5 mA at 3.6 V while DH5 packets are received and DH1 packets acknowledge them, at 723.2 kbit/s; 4 mA while it is awake and idle. The sheet
/// has no figure for who sends them, which is taken to be the same, and none of what a link costs that rests. Enhanced rates (three times as fast)
/// draw about as much, so a bit costs less there.
const CC256X_CHIP: PowerModel = {
    const VOLTS: f64 = 3.6;
    const PER_BIT: NanojoulesPerBit = NanojoulesPerBit((40.5 - 4.0) * VOLTS / 0.723_2);
    PowerModel {
        idle: Watts(40e-6 * VOLTS),
        active: Watts(4e-3 * VOLTS),
        transmit: PER_BIT,
        receive: PER_BIT,
        start: Joules(0.0),
        tail: Watts(0.0),
        tail_time: Duration::ZERO,
    }
};

/// The form of the IMC 2009 model, fitted there to downloads; its upkeep is what the others call idle.
const fn per_kilobyte(joules: f64, start: f64, idle: f64, tail: f64, tail_ms: u64) -> PowerModel {
    let per_bit = NanojoulesPerBit(joules * 1e9 / (1_024.0 * 8.0));
    PowerModel {
        idle: Watts(idle),
        active: Watts(0.0),
        transmit: per_bit,
        receive: per_bit,
        start: Joules(start),
        tail: Watts(tail),
        tail_time: Duration::from_millis(tail_ms),
    }
}

/// A card that draws one current while it sends and another while it receives: a bit costs the difference to idle for
/// the time that it is on the air.
const fn by_current(idle: f64, receive: f64, transmit: f64, mbps: f64) -> PowerModel {
    const VOLTS: f64 = 4.74;
    PowerModel {
        idle: Watts(idle * VOLTS / 1e3),
        active: Watts(idle * VOLTS / 1e3),
        transmit: NanojoulesPerBit((transmit - idle) * VOLTS / mbps),
        receive: NanojoulesPerBit((receive - idle) * VOLTS / mbps),
        start: Joules(0.0),
        tail: Watts(0.0),
        tail_time: Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use units::{BitRate, Bytes};

    use super::*;
    use crate::energy::{Transfer, energy_of_packet};

    fn card(name: &str) -> PowerModel {
        Card::by_name(name).unwrap().model
    }

    /// The IMC 2009 table also gives the energy of 50 KB every 20 s. Ramp, bits and tail make its 12.5 J (3G) and 5.0 J (GSM)
    /// exactly; for Wi-Fi it prints 7.6 J, of which upkeep over the 20 s and the other parts make 7.25 J.
    #[test]
    fn agrees_with_its_papers_example() {
        let transfer = Transfer { sent: Bytes(0), received: Bytes(50 * 1_024) };
        let cost = |name: &str| card(name).transfer(transfer, Duration::ZERO).0;
        assert!((cost("3g-2009") - 12.5).abs() < 1e-9);
        assert!((cost("gsm-2009") - 5.0).abs() < 1e-9);
        let upkeep = card("wifi-2009").idle * Duration::from_secs(20);
        assert!((cost("wifi-2009") + upkeep.0 - 7.25).abs() < 1e-9);
    }

    /// A card at its own full rate draws the measured currents: `[VIF] eq. 5` and the model agree.
    #[test]
    fn agrees_with_eq_5() {
        let (bytes, rate) = (Bytes(1_375), BitRate(11_000_000));
        let time = rate.time_for(bytes);
        let sent = card("wavelan-11").transfer(Transfer { sent: bytes, received: Bytes(0) }, time);
        let received = card("wavelan-11").transfer(Transfer { sent: Bytes(0), received: bytes }, time);
        assert!((sent.0 / energy_of_packet(284.0, 4.74, bytes, rate).0 - 1.0).abs() < 1e-9);
        assert!((received.0 / energy_of_packet(190.0, 4.74, bytes, rate).0 - 1.0).abs() < 1e-9);
    }

    /// 40.5 mA at 3.6 V for as long as the rate of DH5 packets needs.
    #[test]
    fn agrees_with_its_data_sheet() {
        let (bytes, rate) = (Bytes(1_000_000), BitRate(723_200));
        let time = rate.time_for(bytes);
        let joules = card("bluetooth-2013").transfer(Transfer { sent: Bytes(0), received: bytes }, time).0;
        assert!((joules / (0.0405 * 3.6 * time.as_secs_f64()) - 1.0).abs() < 1e-6, "{joules}");
        let wifi =
            card("wifi-2012").transfer(Transfer { sent: Bytes(0), received: bytes }, Duration::from_secs(1));
        assert!(joules > wifi.0, "at these rates the slower card costs more for each byte");
    }

    /// The MobiSys 2012 paper finds LTE far dearer than Wi-Fi for small transfers, because of the tail.
    #[test]
    fn tails_dominate_small_transfers() {
        let transfer = Transfer { sent: Bytes(0), received: Bytes(65_536) };
        let time = Duration::from_millis(50);
        let (lte, wifi) =
            (card("lte-2012").transfer(transfer, time), card("wifi-2012").transfer(transfer, time));
        assert!(lte.0 > 20.0 * wifi.0, "{lte} against {wifi}");
    }
}
