//! Root's part of a radio: the card, and whom names are asked.

use linux::dns::{self, NetworkServers};
use linux::journal::{Change, Journal, Undo};
use linux::radio::{Radios, station_address, take_over};
use tracing::warn;
use units::MacAddress;

use super::{MONITOR_INTERFACE, MOST_NETWORKS};
use crate::supervision::{self, Answer, Machine, Request};

/// Carries out a radio's requests.
pub(super) struct RadioMachine {
    /// What the card was.
    pub card: Journal,
    /// Its name, such as `phy0`.
    pub radio: String,
    /// The addresses that it acknowledges, the card's own first.
    pub addresses: Vec<MacAddress>,
    /// What the name servers were. A journal of its own, since they are taken back and set anew with each lease.
    pub names: Journal,
}

impl RadioMachine {
    /// Takes the same card over again, if it is there.
    fn take_card(&mut self) -> Answer {
        let fail = |reason: String| Answer::Failed { reason };
        let radios = match Radios::open().and_then(|mut radios| radios.list()) {
            Ok(radios) => radios,
            Err(error) => return fail(error.to_string()),
        };
        let own = self.addresses.first().copied();
        let Some(card) = radios.into_iter().find(|radio| radio.address == own) else {
            return fail("the card is not there".to_owned());
        };
        if let Some(block) = card.block {
            return fail(format!("the card is switched off ({block:?})"));
        }
        // What was changed of the card that was pulled out went with it.
        if let Err(error) = self.card.restore() {
            return fail(error.to_string());
        }
        match self.card.apply(&take_over(&card, MONITOR_INTERFACE, &self.addresses)) {
            Ok(()) => Answer::Done,
            Err(error) => fail(error.to_string()),
        }
    }

    /// Makes an interface for a station of the kernel's.
    fn add_station(&mut self, interface: String, number: u32) -> Result<(), String> {
        let number = u8::try_from(number).ok();
        let number = number.filter(|number| (1..=MOST_NETWORKS).contains(&usize::from(*number)));
        let number = number.ok_or("a radio has not so many networks")?;
        if !is_interface(&interface) {
            return Err(format!("\"{interface}\" is not an interface"));
        }
        let own = self.addresses.first().copied().ok_or("the card has no address")?;
        let address = station_address(own, number);
        let change = Change::Station { radio: self.radio.clone(), interface, address };
        self.card.apply(&[change]).map_err(|error| error.to_string())
    }

    fn set_names(&mut self, networks: &[NetworkServers]) -> Answer {
        let fail = |reason: String| Answer::Failed { reason };
        if networks.len() > MOST_NETWORKS || !networks.iter().all(|network| is_interface(&network.interface))
        {
            return fail("these are no networks of a radio".to_owned());
        }
        let planned = dns::plan_networks(networks, None);
        if planned.as_ref().is_ok_and(|changes| !changes.is_empty() && dns::is_in_place(changes)) {
            return Answer::Done;
        }
        // Afresh from what was there before, so that servers of networks that are gone do not stay.
        if let Err(error) = self.names.restore() {
            return fail(error.to_string());
        }
        let applied = dns::plan_networks(networks, None).map(|changes| self.names.apply(&changes));
        match applied {
            Ok(Ok(())) => Answer::Done,
            Ok(Err(error)) => fail(error.to_string()),
            Err(error) => fail(error.to_string()),
        }
    }
}

/// The name becomes an argument of a program.
fn is_interface(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=15).contains(&name.len()) && !name.starts_with('-') && name.bytes().all(legal)
}

impl Machine for RadioMachine {
    fn carry_out(&mut self, request: Request) -> Answer {
        match request {
            Request::Names { networks } => self.set_names(&networks),
            Request::Card => self.take_card(),
            Request::AddStation { interface, number } => match self.add_station(interface, number) {
                Ok(()) => Answer::Done,
                Err(reason) => Answer::Failed { reason },
            },
            Request::RemoveStation { interface } => match self.card.take_back(&Undo::Station { interface }) {
                Ok(()) => Answer::Done,
                Err(error) => Answer::Failed { reason: error.to_string() },
            },
            Request::Restore => {
                if let Err(error) = self.names.restore() {
                    warn!("{error}");
                }
                supervision::restore(&mut self.card)
            }
            _ => Answer::Failed { reason: "a radio captures nothing".to_owned() },
        }
    }
}
