//! Root's part of a radio: the card, and whom names are asked.

use linux::dns::{self, NetworkServers};
use linux::journal::Journal;
use tracing::warn;

use super::MOST_NETWORKS;
use crate::supervision::{self, Answer, Machine, Request};

/// Carries out a radio's requests.
pub(super) struct RadioMachine {
    /// What the card was.
    pub card: Journal,
    /// What the name servers were. A journal of its own, since they are taken back and set anew with each lease.
    pub names: Journal,
}

impl RadioMachine {
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
