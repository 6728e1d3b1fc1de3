//! The air: frames for everybody in range. On an ordinary LAN they go by UDP multicast, on a card in monitor mode as they are (`wifi`).

mod rates;
mod wifi;

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use linux::group::{Group, GroupSender, GroupSocket};
use linux::radio::OpenError;
use linux::wireless::WirelessError;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tracing::debug;
use units::Frequency;
use wire::upload::RateIndex;

pub use self::rates::{AirError, AirRates};
use self::wifi::{WifiListener, WifiSender};
use crate::sockets::{Adapter, AdapterState};

/// Of the ranges for local use (RFC 2365, RFC 4291 section 2.7); the port is not registered.
const GROUP: Group = Group {
    v4: Ipv4Addr::new(239, 255, 97, 99),
    v6: Ipv6Addr::new(0xff12, 0, 0, 0, 0, 0, 0x616e, 0x6163),
    port: 4_615,
};
/// What a card may have to send: more would be out of date when it goes out.
const SEND_BUFFER: usize = 32 * 1024;
/// Largest frame.
pub(super) const MAX_FRAME: usize = 2_048;

/// Whether an adapter leads to a neighbourhood: `only`, if it names some, which need no address but that of their link; else all but modems and Bluetooth.
fn leads_to_neighbours(adapter: &Adapter, only: Option<&[String]>) -> bool {
    use policy::network::NetworkKind::{Bluetooth, Cellular};
    let wanted = match only {
        Some(only) => only.contains(&adapter.name) && adapter.linked && adapter.state != AdapterState::Off,
        None => !matches!(adapter.kind, Bluetooth | Cellular) && adapter.state == AdapterState::Connected,
    };
    wanted && !adapter.loopback && adapter.bluetooth.is_none()
}

/// Adapters that were named and are of no use. Each is told of once, and again if it was of use meanwhile.
#[derive(Default)]
pub(super) struct Useless(BTreeSet<String>);

impl Useless {
    /// Which of them are to be told of now.
    pub(super) fn news(&mut self, useless: BTreeSet<String>) -> Vec<String> {
        let news = useless.difference(&self.0).cloned().collect();
        self.0 = useless;
        news
    }
}

/// The cards in monitor mode among the adapters that were named.
struct Cards<T>(Vec<(String, T)>);

impl<T> Default for Cards<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Cards<T> {
    /// Opens those that are there and not yet open. What is named and is no such card is left to the LAN.
    fn follow(
        &mut self,
        only: Option<&[String]>,
        open: fn(&str) -> Result<T, OpenError>,
    ) -> Result<(), OpenError> {
        for name in only.unwrap_or_default() {
            if self.0.iter().any(|(known, _)| known == name) {
                continue;
            }
            match open(name) {
                Ok(card) => self.0.push((name.clone(), card)),
                Err(
                    OpenError::NoInterface(_)
                    | OpenError::NotMonitor(_)
                    | OpenError::Wireless(WirelessError::None),
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Those of the named adapters that are neither such a card nor lead to a neighbourhood.
    fn useless(&self, adapters: &[Adapter], only: Option<&[String]>) -> BTreeSet<String> {
        let is_card = |name: &String| self.0.iter().any(|(known, _)| known == name);
        let leads = |name: &String| {
            adapters.iter().any(|adapter| adapter.name == *name && leads_to_neighbours(adapter, only))
        };
        let named = only.unwrap_or_default().iter();
        named.filter(|name| !is_card(name) && !leads(name)).cloned().collect()
    }
}

/// Sends frames to all neighbourhoods.
pub(super) struct AirSender {
    sockets: Vec<(u32, GroupSender)>,
    cards: Cards<WifiSender>,
    /// The cards'.
    rates: AirRates,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AirSent {
    Yes,
    /// The card has enough; later.
    Full,
    /// There is no air.
    Nowhere,
}

impl AirSender {
    /// With the cards among the adapters that were named, and the bit rates that were chosen for them, if any were.
    ///
    /// # Errors
    /// If a card in monitor mode is refused, or does not have those rates.
    pub(super) fn new(only: Option<&[String]>, chosen: Option<&AirRates>) -> Result<Self, AirError> {
        let mut cards = Cards::default();
        cards.follow(only, WifiSender::open)?;
        let channels: Vec<Option<Frequency>> = cards.0.iter().map(|(_, card)| card.channel()).collect();
        if chosen.is_some() && channels.is_empty() {
            return Err(AirError::NoCard);
        }
        let rates = chosen.cloned().unwrap_or_else(|| AirRates::usual(&channels));
        cards.0.iter().try_for_each(|(name, card)| check(&rates, name, card))?;
        Ok(Self { sockets: Vec::new(), cards, rates })
    }

    /// How long a frame of so many bytes takes at each of the rates it can be sent at, if the air of a LAN takes so long.
    pub(super) fn air_times(&self, length: usize, on_lan: Duration) -> Vec<Duration> {
        if self.cards.0.is_empty() { vec![on_lan] } else { self.rates.air_times(wifi::length_on_air(length)) }
    }

    /// Follows the adapters as they are now.
    pub(super) fn follow(&mut self, adapters: &[Adapter], only: Option<&[String]>) {
        if let Err(error) = self.cards.follow(only, WifiSender::open) {
            debug!(%error, "a card cannot be used");
        }
        let rates = &self.rates;
        self.cards.0.retain(|(name, card)| match check(rates, name, card) {
            Ok(()) => true,
            Err(error) => {
                debug!(%error, "a card cannot be used");
                false
            }
        });
        let wanted: Vec<&Adapter> =
            adapters.iter().filter(|adapter| leads_to_neighbours(adapter, only)).collect();
        self.sockets.retain(|(index, ..)| wanted.iter().any(|adapter| adapter.index == *index));
        for adapter in wanted {
            if self.sockets.iter().any(|(index, ..)| *index == adapter.index) {
                continue;
            }
            let ipv6 = !adapter.addresses.iter().any(|prefix| prefix.address().is_ipv4());
            match GroupSender::open(&GROUP, &adapter.name, adapter.index, ipv6, SEND_BUFFER) {
                Ok(socket) => self.sockets.push((adapter.index, socket)),
                Err(error) => debug!(%error, name = adapter.name, "an adapter has no multicast"),
            }
        }
    }

    /// The named adapters by which nothing is sent.
    pub(super) fn useless(&self, adapters: &[Adapter], only: Option<&[String]>) -> BTreeSet<String> {
        self.cards.useless(adapters, only)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.sockets.is_empty() && self.cards.0.is_empty()
    }

    /// Sends a frame; it counts as sent if one neighbourhood gets it.
    pub(super) fn send(&mut self, rate: RateIndex, frame: &[u8]) -> AirSent {
        let (mut sent, mut full) = (false, false);
        let card_rate = self.rates.at(usize::from(rate.0));
        self.sockets.retain(|(index, socket)| {
            match socket.send(frame) {
                Ok(true) => sent = true,
                Ok(false) => full = true,
                Err(error) => {
                    debug!(%error, index, "an adapter takes no frames");
                    return false;
                }
            }
            true
        });
        self.cards.0.retain_mut(|(name, card)| {
            match card.send(card_rate, frame) {
                Ok(AirSent::Yes) => sent = true,
                Ok(_) => full = true,
                Err(error) => {
                    debug!(%error, name, "a card takes no frames");
                    return false;
                }
            }
            true
        });
        match (sent, full) {
            (true, _) => AirSent::Yes,
            (false, true) => AirSent::Full,
            (false, false) => AirSent::Nowhere,
        }
    }
}

/// Whether a card's channel has the rates.
fn check(rates: &AirRates, interface: &str, card: &WifiSender) -> Result<(), AirError> {
    let missing = card.channel().and_then(|channel| Some((channel, rates.missing_on(channel)?)));
    missing.map_or(Ok(()), |(frequency, rate)| {
        Err(AirError::NoSuchRate { interface: interface.to_owned(), frequency, rate })
    })
}

/// Hears frames from all neighbourhoods.
#[derive(Default)]
pub(super) struct AirListener {
    sockets: Vec<(u32, bool, UdpSocket)>,
    cards: Cards<WifiListener>,
    /// Which one is asked first, so that none is deaf beside a loud one.
    first: usize,
}

impl AirListener {
    /// With the cards among the adapters that were named.
    ///
    /// # Errors
    /// If a card in monitor mode is refused.
    pub(super) fn new(only: Option<&[String]>) -> Result<Self, OpenError> {
        let mut listener = Self::default();
        listener.cards.follow(only, WifiListener::open)?;
        Ok(listener)
    }

    /// Follows the adapters as they are now.
    pub(super) fn follow(&mut self, adapters: &[Adapter], only: Option<&[String]>) {
        if let Err(error) = self.cards.follow(only, WifiListener::open) {
            debug!(%error, "a card cannot be used");
        }
        let wanted: Vec<&Adapter> =
            adapters.iter().filter(|adapter| leads_to_neighbours(adapter, only)).collect();
        self.sockets.retain(|(index, ..)| wanted.iter().any(|adapter| adapter.index == *index));
        for adapter in wanted {
            for ipv6 in [false, true] {
                if self.sockets.iter().any(|(index, family, _)| (*index, *family) == (adapter.index, ipv6)) {
                    continue;
                }
                let opened = GroupSocket::open(&GROUP, &adapter.name, adapter.index, ipv6);
                match opened.and_then(|group| UdpSocket::from_std(group.into())) {
                    Ok(socket) => self.sockets.push((adapter.index, ipv6, socket)),
                    Err(error) => debug!(%error, name = adapter.name, ipv6, "an adapter has no multicast"),
                }
            }
        }
    }

    /// The named adapters by which nothing is heard.
    pub(super) fn useless(&self, adapters: &[Adapter], only: Option<&[String]>) -> BTreeSet<String> {
        self.cards.useless(adapters, only)
    }

    pub(super) fn is_deaf(&self) -> bool {
        self.sockets.is_empty() && self.cards.0.is_empty()
    }

    /// The next frame's length.
    pub(super) async fn receive(&mut self, buffer: &mut [u8; MAX_FRAME]) -> usize {
        poll_fn(|context| self.poll_receive(context, buffer)).await
    }

    fn poll_receive(&mut self, context: &mut Context<'_>, buffer: &mut [u8; MAX_FRAME]) -> Poll<usize> {
        let mut turn = 0;
        while turn < self.sockets.len() + self.cards.0.len() {
            let at = (self.first + turn) % (self.sockets.len() + self.cards.0.len());
            match self.poll_one(at, context, buffer) {
                Poll::Ready(Some(length)) => {
                    self.first = at + 1;
                    return Poll::Ready(length);
                }
                Poll::Ready(None) => {}
                Poll::Pending => turn += 1,
            }
        }
        Poll::Pending
    }

    /// Asks one, counted through sockets and cards; `None` if it is deaf and was let go.
    fn poll_one(
        &mut self,
        at: usize,
        context: &mut Context<'_>,
        buffer: &mut [u8; MAX_FRAME],
    ) -> Poll<Option<usize>> {
        if let Some((_, _, socket)) = self.sockets.get(at) {
            let mut into = ReadBuf::new(buffer.as_mut_slice());
            let received = ready!(socket.poll_recv(context, &mut into));
            if let Err(error) = received {
                debug!(%error, "an adapter is deaf");
                self.sockets.remove(at);
                return Poll::Ready(None);
            }
            return Poll::Ready(Some(into.filled().len()));
        }
        let at = at - self.sockets.len();
        let Some((_, card)) = self.cards.0.get_mut(at) else { return Poll::Pending };
        let received = ready!(card.poll_receive(context, buffer));
        if received.is_none() {
            self.cards.0.remove(at);
        }
        Poll::Ready(received)
    }
}
