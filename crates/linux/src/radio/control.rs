//! The kernel's wireless part as it concerns whole radios: listing them, monitor interfaces, channels, rules of the country.

use std::fs;
use std::io;
use std::path::Path;

use units::{Frequency, MacAddress};

use super::capabilities::{Country, Radio, RadioNumber};
use super::description::Descriptions;
use crate::netlink::generic::{FamilyNumber, GenericNetlink, Question};
use crate::netlink::message::{self, Request};
use crate::netlink::{Netlink, NetlinkError};
use crate::rfkill;
use crate::wireless::{Wireless, WirelessError};

/// A connection to the wireless part of the kernel, for the radios of one network namespace.
pub struct Radios {
    netlink: GenericNetlink,
    family: FamilyNumber,
}

impl Radios {
    /// Opens a connection to the current network namespace.
    ///
    /// # Errors
    /// [`WirelessError::None`] on machines without a wireless card.
    pub fn open() -> Result<Self, WirelessError> {
        let fail = |error: io::Error| WirelessError::Netlink(error.into());
        let mut netlink = GenericNetlink::open().map_err(fail)?;
        let family = netlink.family("nl80211")?.ok_or(WirelessError::None)?;
        Ok(Self { netlink, family })
    }

    /// All radios of this namespace, at most 64, by number. Takes no privileges.
    pub fn list(&mut self) -> Result<Vec<Radio>, WirelessError> {
        let mut descriptions = Descriptions::default();
        let in_pieces = |request: &mut Request| {
            request.attribute(ATTRIBUTE_IN_PIECES, &[]);
        };
        let question = Question { command: GET_RADIO, dump: true };
        self.netlink
            .ask("list radios", self.family, question, in_pieces, |answer| descriptions.add(answer))?;
        let mut radios = descriptions.finish();
        let interfaces = Wireless::open()?.interfaces()?;
        for radio in &mut radios {
            let own = interfaces.iter().filter(|interface| interface.radio == Some(radio.number.0));
            radio.interfaces = own.cloned().collect();
            radio.block = rfkill::block_of(&radio.name);
            let directory = Path::new(CLASS).join(&radio.name);
            radio.address = fs::read_to_string(directory.join("macaddress"))
                .ok()
                .and_then(|text| text.trim().parse().ok());
            let driver = fs::read_link(directory.join("device/driver")).ok();
            radio.driver =
                driver.and_then(|path| path.file_name().map(|name| name.to_string_lossy().into_owned()));
        }
        Ok(radios)
    }

    /// The radio called `name` (`phy0`) or the one that has the interface `name` (`wlan0`); `None` if there is none.
    pub fn find(&mut self, name: &str) -> Result<Option<Radio>, WirelessError> {
        let mut radios = self.list()?.into_iter();
        Ok(radios.find(|radio| {
            radio.name == name || radio.interfaces.iter().any(|interface| interface.name == name)
        }))
    }

    /// The country whose rules hold now; `None` if the kernel has a set of rules without a country.
    pub fn country(&mut self) -> Result<Option<Country>, WirelessError> {
        let mut country = None;
        let question = Question { command: GET_RULES, dump: false };
        self.netlink.ask(
            "read the country's rules",
            self.family,
            question,
            |_| {},
            |answer| {
                let code = message::attributes(answer).find(|(kind, _)| *kind == ATTRIBUTE_COUNTRY);
                country = code.and_then(|(_, value)| Country::new(*value.first_chunk()?));
            },
        )?;
        Ok(country)
    }

    /// Adds the monitor interface `name`, which acknowledges frames to `address`, and switches it on. Needs CAP_NET_ADMIN.
    ///
    /// Returns the kernel's number of it. While other interfaces of the radio are on, the card stays on their channel.
    pub fn add_monitor(
        &mut self,
        radio: RadioNumber,
        name: &str,
        address: MacAddress,
    ) -> Result<u32, NetlinkError> {
        let index = self.make_monitor(radio, name, MONITOR_ACTIVE, |_| {})?;
        let mut links = Netlink::open()?;
        let set_up = links.set_link_address(index, address).and_then(|()| links.set_link_up(index, true));
        // Where a driver takes less, longer frames are refused one by one.
        drop(links.set_link_mtu(index, LONGEST_BODY));
        if let Err(error) = set_up {
            // The failure that is reported is the first one.
            drop(self.remove_interface(index));
            return Err(error);
        }
        Ok(index)
    }

    /// Adds the monitor interface `name`, off, which only listens and goes when this value is dropped. Needs CAP_NET_ADMIN.
    ///
    /// Returns the kernel's number of it.
    pub(super) fn add_listener(&mut self, radio: RadioNumber, name: &str) -> Result<u32, NetlinkError> {
        self.make_monitor(radio, name, MONITOR_OTHERS, |request| {
            request.attribute(ATTRIBUTE_SOCKET_OWNER, &[]);
        })
    }

    fn make_monitor(
        &mut self,
        radio: RadioNumber,
        name: &str,
        flag: u16,
        further: impl FnOnce(&mut Request),
    ) -> Result<u32, NetlinkError> {
        let mut index = None;
        let fill = |request: &mut Request| {
            request.number(ATTRIBUTE_RADIO, radio.0).text(ATTRIBUTE_NAME, name);
            request.number(ATTRIBUTE_MODE, MODE_MONITOR).nested(ATTRIBUTE_MONITOR_FLAGS, |flags| {
                flags.attribute(flag, &[]);
            });
            further(request);
        };
        let operation = format!("make the monitor interface {name}");
        let question = Question { command: NEW_INTERFACE, dump: false };
        self.netlink.ask(&operation, self.family, question, fill, |answer| {
            index = message::attributes(answer)
                .find(|(kind, _)| *kind == ATTRIBUTE_INDEX)
                .and_then(|(_, value)| message::number(value, 0));
        })?;
        index.ok_or_else(|| io::Error::other("the kernel did not tell the interface's number").into())
    }

    /// Adds the station interface `name`, off, with a hardware address of its own. Needs CAP_NET_ADMIN.
    pub fn add_station(
        &mut self,
        radio: RadioNumber,
        name: &str,
        address: MacAddress,
    ) -> Result<(), NetlinkError> {
        let fill = |request: &mut Request| {
            request.number(ATTRIBUTE_RADIO, radio.0).text(ATTRIBUTE_NAME, name);
            request.number(ATTRIBUTE_MODE, MODE_STATION).attribute(ATTRIBUTE_ADDRESS, &address.0);
        };
        let question = Question { command: NEW_INTERFACE, dump: false };
        self.netlink.ask(&format!("make the interface {name}"), self.family, question, fill, |_| {})
    }

    /// Removes the wireless interface with number `index`. Needs CAP_NET_ADMIN.
    pub fn remove_interface(&mut self, index: u32) -> Result<(), NetlinkError> {
        let fill = |request: &mut Request| {
            request.number(ATTRIBUTE_INDEX, index);
        };
        let question = Question { command: DELETE_INTERFACE, dump: false };
        self.netlink.ask(
            &format!("remove the wireless interface {index}"),
            self.family,
            question,
            fill,
            |_| {},
        )
    }

    /// Tunes the radio of monitor interface `index` to a channel of 20 MHz without 802.11n. Needs CAP_NET_ADMIN.
    pub(super) fn tune(&mut self, index: u32, frequency: Frequency) -> Result<(), NetlinkError> {
        let fill = |request: &mut Request| {
            request.number(ATTRIBUTE_INDEX, index).number(ATTRIBUTE_FREQUENCY, frequency.0);
            request.number(ATTRIBUTE_WIDTH, WIDTH_20_NO_HT);
        };
        let question = Question { command: SET_CHANNEL, dump: false };
        self.netlink.ask("set the channel", self.family, question, fill, |_| {})
    }
}

const CLASS: &str = "/sys/class/ieee80211";

// `enum nl80211_commands`.
const GET_RADIO: u8 = 1;
const NEW_INTERFACE: u8 = 7;
const DELETE_INTERFACE: u8 = 8;
const GET_RULES: u8 = 31;
const SET_CHANNEL: u8 = 65;

// `enum nl80211_attrs`.
const ATTRIBUTE_RADIO: u16 = 1;
const ATTRIBUTE_INDEX: u16 = 3;
const ATTRIBUTE_NAME: u16 = 4;
const ATTRIBUTE_MODE: u16 = 5;
const ATTRIBUTE_ADDRESS: u16 = 6;
const ATTRIBUTE_MONITOR_FLAGS: u16 = 23;
const ATTRIBUTE_COUNTRY: u16 = 33;
const ATTRIBUTE_FREQUENCY: u16 = 38;
const ATTRIBUTE_WIDTH: u16 = 159;
const ATTRIBUTE_IN_PIECES: u16 = 174;
const ATTRIBUTE_SOCKET_OWNER: u16 = 204;

/// `NL80211_IFTYPE_STATION`.
const MODE_STATION: u32 = 2;
/// `NL80211_IFTYPE_MONITOR`.
const MODE_MONITOR: u32 = 6;

// `enum nl80211_mntr_flags`.
const MONITOR_OTHERS: u16 = 4;
const MONITOR_ACTIVE: u16 = 6;
/// `NL80211_CHAN_WIDTH_20_NOHT`.
const WIDTH_20_NO_HT: u32 = 0;

/// Body of the longest data frame (IEEE 802.11-2020 table 9-34). As an Ethernet interface with 1,500 bytes a monitor interface would refuse to send full packets: it counts
/// all headers.
const LONGEST_BODY: u32 = 2_304;
