//! Where a network's path may lead: which of the gateway's addresses, on which carrier, in which order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::time::Duration;

use bond::{Address, Carrier};
use linux::monitor::Interface;
use units::{NetworkId, Timestamp};

use super::networks::reaches;
use crate::config::CarrierChoice;
use wire::translation::Prefix;

/// The gateway's addresses as last resolved.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct GatewayAddresses {
    /// For datagrams, best first.
    pub udp: Vec<SocketAddr>,
    /// Port of the framed-TCP carrier at the same hosts.
    pub tcp: Option<NonZeroU16>,
}

/// One way to try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// What to ride on.
    pub carrier: Carrier,
    /// Where to.
    pub remote: SocketAddr,
}

/// All ways to try over an interface, best first: every address by UDP, then every address by TCP.
pub fn candidates(
    interface: &Interface,
    choice: CarrierChoice,
    gateway: &GatewayAddresses,
    prefix: Option<Prefix>,
) -> Vec<Target> {
    let (ipv4, ipv6) = (reaches(interface, false), reaches(interface, true));
    let reachable = |remote: SocketAddr| match remote.ip() {
        IpAddr::V6(_) => ipv6.then_some(remote),
        IpAddr::V4(_) if ipv4 => Some(remote),
        // RFC 6052 section 2: behind a NAT64 every IPv4 address has an IPv6 form.
        IpAddr::V4(address) if ipv6 => {
            prefix.map(|prefix| SocketAddr::new(prefix.embed(address).into(), remote.port()))
        }
        IpAddr::V4(_) => None,
    };
    let remotes: Vec<SocketAddr> = gateway.udp.iter().filter_map(|remote| reachable(*remote)).collect();
    let mut targets = Vec::new();
    if choice != CarrierChoice::Tcp {
        targets.extend(remotes.iter().map(|remote| Target { carrier: Carrier::Udp, remote: *remote }));
    }
    if let (true, Some(port)) = (choice != CarrierChoice::Udp, gateway.tcp) {
        for remote in &remotes {
            let remote = SocketAddr::new(remote.ip(), port.get());
            let target = Target { carrier: Carrier::Tcp, remote };
            if !targets.contains(&target) {
                targets.push(target);
            }
        }
    }
    targets
}

/// The path of one network: which target it uses, and when to try another.
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// The network.
    pub network: NetworkId,
    /// What may be tried.
    pub targets: Vec<Target>,
    current: usize,
    since: Timestamp,
    works: bool,
    worked: bool,
    reconnect_at: Option<Timestamp>,
    /// The network has gone: its silence says nothing of the target.
    gone: bool,
    /// A better target that is asked again when the one in use has answered for so long: it was silent while the whole network may have been, or the
    /// device is elsewhere now.
    better: Option<(usize, Duration)>,
    /// What answered before a better one was asked again.
    stand_in: Option<usize>,
}

impl Link {
    /// A link that begins with the first of `targets`.
    pub fn new(network: NetworkId, targets: Vec<Target>, now: Timestamp) -> Self {
        Self {
            network,
            targets,
            current: 0,
            since: now,
            works: false,
            worked: false,
            reconnect_at: None,
            gone: false,
            better: None,
            stand_in: None,
        }
    }

    /// The gateway is knocked at from now on. A link that has never worked begins with the first target on `carrier`, which works for
    /// another gateway over the same network.
    pub fn begin(&mut self, carrier: Option<Carrier>, now: Timestamp) {
        (self.since, self.works, self.reconnect_at) = (now, false, None);
        if self.worked {
            return;
        }
        let like = |target: &Target| Some(target.carrier) == carrier;
        self.current = self.targets.iter().position(like).unwrap_or(0);
    }

    /// The carrier that has worked.
    pub fn proved(&self) -> Option<Carrier> {
        self.target().filter(|_| self.worked).map(|target| target.carrier)
    }

    /// The target in use; `None` if there is none at all.
    pub fn target(&self) -> Option<Target> {
        self.targets.get(self.current).copied()
    }

    /// The target in use as the bond names it.
    pub fn address(&self) -> Option<Address> {
        let Target { carrier, remote } = self.target()?;
        Some(Address { network: self.network, carrier, remote })
    }

    /// What may be tried has changed. True if the target in use is another now.
    pub fn retarget(&mut self, targets: Vec<Target>, now: Timestamp) -> bool {
        let before = self.target();
        let was = std::mem::replace(&mut self.targets, targets);
        let now_at = |at: usize| self.targets.iter().position(|target| Some(target) == was.get(at));
        let better = self.better.and_then(|(better, after)| Some((now_at(better)?, after)));
        let (current, stand_in) = (now_at(self.current), self.stand_in.and_then(now_at));
        self.current = current.unwrap_or(0);
        (self.better, self.stand_in) = (better.filter(|_| current.is_some()), stand_in);
        let changed = self.target() != before;
        if changed {
            (self.since, self.works, self.worked) = (now, false, false);
        }
        changed
    }

    /// Whether the path answers.
    pub fn works(&self) -> bool {
        self.works
    }

    /// The path answers, or has fallen silent.
    pub fn note(&mut self, works: bool, now: Timestamp) {
        if self.works != works {
            (self.works, self.since) = (works, now);
        }
        self.worked |= works;
        if works {
            self.better.take_if(|(better, _)| *better >= self.current);
            self.stand_in = None;
        }
    }

    /// The network has gone.
    pub fn note_gone(&mut self, now: Timestamp) {
        self.note(false, now);
        (self.gone, self.reconnect_at) = (true, None);
    }

    /// The network is back: the target in use has its whole time again. `elsewhere`: it has another address or next hop than before, and what worked there says
    /// little of this place.
    pub fn note_back(&mut self, elsewhere: bool, now: Timestamp) {
        (self.gone, self.since) = (false, now);
        if elsewhere {
            self.worked = false;
            self.better = self.better_carrier().map(|better| (better, Duration::ZERO));
        }
    }

    /// The same address on a carrier that is tried before the one in use.
    fn better_carrier(&self) -> Option<usize> {
        let current = self.target()?;
        let is_better =
            |target: &Target| target.carrier != current.carrier && target.remote.ip() == current.remote.ip();
        self.targets.iter().take(self.current).position(is_better)
    }

    /// The connection to the target has ended. One that worked is to be made again at once, any other after a pause.
    pub fn note_ended(&mut self, now: Timestamp) {
        if self.target().is_some_and(|target| target.carrier == Carrier::Tcp) {
            self.reconnect_at = Some(if self.works { now } else { now + RECONNECT_PAUSE });
        }
    }

    /// When to connect again; `None` if nothing has ended.
    pub fn reconnect_at(&self) -> Option<Timestamp> {
        self.reconnect_at
    }

    /// Whether it is time to connect again; true once.
    pub fn take_reconnect(&mut self, now: Timestamp) -> bool {
        self.reconnect_at.take_if(|at| *at <= now).is_some()
    }

    /// When to give the target in use up for another one; `None` while it works and no better one is to be asked, there is no other or the network has gone.
    pub fn give_up_at(&self) -> Option<Timestamp> {
        if self.gone || self.targets.len() < 2 {
            return None;
        }
        let patience = match (self.works, self.worked) {
            (true, _) => self.better?.1,
            (false, true) => PATIENCE_WITH_KNOWN,
            (false, false) if self.stand_in.is_some() => PATIENCE_WITH_BETTER,
            (false, false) => PATIENCE_WITH_NEW,
        };
        Some(self.since + patience)
    }

    /// Goes on to another target if it is time. True if so.
    pub fn advance(&mut self, now: Timestamp) -> bool {
        if self.give_up_at().is_none_or(|at| at > now) {
            return false;
        }
        let next = (self.current + 1) % self.targets.len();
        self.current = if self.works {
            self.stand_in = Some(self.current);
            self.better.take().map_or(next, |(better, _)| better)
        } else if let Some(stand_in) = self.stand_in.take() {
            // Now it is known that one answers where the other does not.
            stand_in
        } else {
            let later = if self.worked { Duration::ZERO } else { ONCE_MORE };
            // Which of the gateway's addresses answers is no matter.
            let carrier_at = |at: usize| self.targets.get(at).map(|target| target.carrier);
            let is_better = self.current < next && carrier_at(self.current) != carrier_at(next);
            self.better = self.better.or(is_better.then_some((self.current, later)));
            next
        };
        self.reconnect_at = None;
        (self.since, self.works, self.worked) = (now, false, false);
        true
    }
}

/// The largest UDP payload that leaves the interface in one piece.
pub fn mtu_limit(interface: &Interface, target: Target) -> u16 {
    let headers = if target.remote.is_ipv6() { IPV6_AND_UDP } else { IPV4_AND_UDP };
    let limit = u16::try_from(interface.mtu).unwrap_or(u16::MAX).saturating_sub(headers);
    limit.min(target.carrier.properties().max_datagram)
}

/// An address that stands for "any" of the family of `remote`.
pub fn any_local(remote: SocketAddr) -> IpAddr {
    if remote.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

const IPV4_AND_UDP: u16 = 28;
const IPV6_AND_UDP: u16 = 48;
/// A target that has never answered: three handshake messages have gone out by then.
const PATIENCE_WITH_NEW: Duration = Duration::from_millis(2_500);
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);
/// A better target while another one answers: three challenges have gone out by then.
const PATIENCE_WITH_BETTER: Duration = Duration::from_secs(1);
/// A better target that has never answered here is asked once more after so long: the network may have been poor when it came.
const ONCE_MORE: Duration = Duration::from_secs(20);
/// A target that has answered before: long enough for a gateway to restart.
const PATIENCE_WITH_KNOWN: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use linux::monitor::DefaultRoute;

    use super::*;

    fn interface(ipv4: bool, ipv6: bool) -> Interface {
        let route = Some(DefaultRoute { gateway: None, metric: 0 });
        let addresses = ["192.0.2.5/24", "2001:db8::5/64"].map(|text| text.parse().unwrap());
        Interface {
            index: 1,
            name: "lte".to_owned(),
            up: true,
            carrier: true,
            loopback: false,
            enslaved: false,
            mtu: 1_500,
            kind: None,
            alias: None,
            addresses: addresses.to_vec(),
            default_route_v4: route.filter(|_| ipv4),
            default_route_v6: route.filter(|_| ipv6),
        }
    }

    fn texts(targets: &[Target]) -> Vec<String> {
        targets.iter().map(|target| format!("{:?} {}", target.carrier, target.remote)).collect()
    }

    fn gateway() -> GatewayAddresses {
        GatewayAddresses {
            udp: vec!["[2001:db8::1]:4600".parse().unwrap(), "203.0.113.1:4600".parse().unwrap()],
            tcp: NonZeroU16::new(443),
        }
    }

    #[test]
    fn targets_are_what_the_network_reaches() {
        let of = |ipv4, ipv6, choice, prefix| {
            texts(&candidates(&interface(ipv4, ipv6), choice, &gateway(), prefix))
        };
        assert_eq!(
            of(true, true, CarrierChoice::Auto, None),
            [
                "Udp [2001:db8::1]:4600",
                "Udp 203.0.113.1:4600",
                "Tcp [2001:db8::1]:443",
                "Tcp 203.0.113.1:443"
            ]
        );
        assert_eq!(of(true, false, CarrierChoice::Udp, None), ["Udp 203.0.113.1:4600"]);
        assert_eq!(of(true, false, CarrierChoice::Tcp, None), ["Tcp 203.0.113.1:443"]);
        let prefix = Prefix::new("64:ff9b::".parse().unwrap(), 96).unwrap();
        assert_eq!(
            of(false, true, CarrierChoice::Udp, Some(prefix)),
            ["Udp [2001:db8::1]:4600", "Udp [64:ff9b::cb00:7101]:4600"]
        );
    }

    #[test]
    fn a_silent_target_gives_way_to_the_next() {
        let targets = candidates(&interface(true, false), CarrierChoice::Auto, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let mut link = Link::new(NetworkId(0), targets.clone(), start);
        assert!(!link.advance(start + Duration::from_millis(2_400)));
        assert!(link.advance(start + Duration::from_millis(2_500)));
        assert_eq!(link.target().unwrap().carrier, Carrier::Tcp);
        let later = start + Duration::from_secs(5);
        link.note(true, later);
        assert_eq!(link.give_up_at(), Some(later + Duration::from_secs(20)));
        link.note(false, later);
        assert!(!link.advance(later + Duration::from_secs(14)), "a gateway that restarts is waited for");
        assert!(!link.retarget(targets, later), "the same list changes nothing");
        assert!(link.advance(later + Duration::from_secs(15)));
        assert_eq!(link.target().unwrap().carrier, Carrier::Udp);
        link.note_ended(later);
        assert_eq!(link.reconnect_at(), None, "only connections end");
        assert!(link.retarget(Vec::new(), later) && link.target().is_none());
    }

    #[test]
    fn a_link_begins_as_others_over_its_network_work() {
        let targets = candidates(&interface(true, false), CarrierChoice::Auto, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let mut link = Link::new(NetworkId(0), targets, start);
        assert_eq!(link.proved(), None);
        link.begin(Some(Carrier::Tcp), start);
        assert_eq!(link.target().unwrap().carrier, Carrier::Tcp);
        link.begin(None, start);
        assert_eq!(link.target().unwrap().carrier, Carrier::Udp);
        link.note(true, start);
        link.begin(Some(Carrier::Tcp), start);
        assert_eq!(link.proved(), Some(Carrier::Udp), "what has worked here counts more");
        assert!(!link.works(), "it has to show so again");
    }

    #[test]
    fn an_ended_connection_is_made_again_once() {
        let targets = candidates(&interface(true, false), CarrierChoice::Tcp, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let mut link = Link::new(NetworkId(0), targets, start);
        link.note_ended(start);
        assert!(!link.take_reconnect(start));
        assert!(link.take_reconnect(start + Duration::from_millis(500)));
        assert!(!link.take_reconnect(start + Duration::from_secs(9)));
        link.note(true, start);
        link.note_ended(start);
        assert!(link.take_reconnect(start), "others would be knocked at during a pause");
        link.note(false, start);
        link.note_ended(start);
        assert!(!link.take_reconnect(start));
    }

    #[test]
    fn a_network_that_is_gone_says_nothing_of_its_target() {
        let targets = candidates(&interface(true, false), CarrierChoice::Auto, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let mut link = Link::new(NetworkId(0), targets, start);
        link.note(true, start);
        link.note_gone(start);
        let later = start + Duration::from_secs(60);
        assert_eq!((link.works(), link.give_up_at(), link.advance(later)), (false, None, false));
        link.note_back(false, later);
        assert!(!link.advance(later + Duration::from_secs(14)));
        assert!(link.advance(later + Duration::from_secs(15)));
    }

    #[test]
    fn what_was_silent_while_nothing_answered_is_asked_again() {
        let targets = candidates(&interface(true, false), CarrierChoice::Auto, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let carrier = |link: &Link| link.target().unwrap().carrier;
        let mut link = Link::new(NetworkId(0), targets, start);
        link.note(true, start);
        link.note(false, start);
        let silent = start + Duration::from_secs(15);
        assert!(link.advance(silent) && carrier(&link) == Carrier::Tcp);
        // The fade is over: TCP answers, and so may datagrams.
        let over = silent + Duration::from_secs(1);
        link.note(true, over);
        assert!(link.advance(over) && carrier(&link) == Carrier::Udp);
        let mut answers = link.clone();
        answers.note(true, over);
        assert_eq!(answers.give_up_at(), None);
        // They do not: it is over TCP again, and stays there.
        assert!(!link.advance(over + Duration::from_millis(900)));
        assert!(link.advance(over + Duration::from_secs(1)) && carrier(&link) == Carrier::Tcp);
        link.note(true, over + Duration::from_secs(3));
        assert_eq!(link.give_up_at(), None);
    }

    #[test]
    fn what_is_silent_with_all_others_is_not_asked_again_but_tried_in_turn() {
        let targets = candidates(&interface(true, false), CarrierChoice::Auto, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let mut link = Link::new(NetworkId(0), targets, start);
        link.note(true, start);
        link.note(false, start);
        let mut now = start + Duration::from_secs(15);
        for carrier in [Carrier::Tcp, Carrier::Udp, Carrier::Tcp, Carrier::Udp] {
            assert!(link.advance(now));
            assert_eq!(link.target().unwrap().carrier, carrier);
            now += Duration::from_millis(2_500);
        }
        link.note(true, now);
        assert_eq!(link.give_up_at(), None, "it is the better one itself that answers");
    }

    #[test]
    fn datagrams_are_tried_once_more_and_again_elsewhere() {
        let targets = candidates(&interface(true, false), CarrierChoice::Auto, &gateway(), None);
        let start = Timestamp::from_millis(1_000);
        let mut link = Link::new(NetworkId(0), targets, start);
        assert!(link.advance(start + Duration::from_millis(2_500)));
        let hotel = start + Duration::from_secs(3);
        link.note(true, hotel);
        let once_more = hotel + Duration::from_secs(20);
        assert!(!link.advance(hotel + Duration::from_secs(19)) && link.advance(once_more));
        assert!(link.advance(once_more + Duration::from_secs(1)));
        let hotel = once_more + Duration::from_secs(2);
        link.note(true, hotel);
        assert_eq!(link.give_up_at(), None, "datagrams do not get through here");
        link.note_gone(hotel);
        let mut again = link.clone();
        let home = start + Duration::from_secs(3_600);
        again.note_back(false, home);
        again.note(true, home);
        assert_eq!(again.give_up_at(), None, "nor will they at the same place");
        link.note_back(true, home);
        // The gateway has another address there, too.
        let both = candidates(&interface(true, true), CarrierChoice::Auto, &gateway(), None);
        assert!(!link.retarget(both, home));
        assert!(!link.advance(home), "what has worked goes first");
        link.note(true, home);
        assert!(link.advance(home));
        assert_eq!(link.target().unwrap().carrier, Carrier::Udp);
        // The other way round: datagrams have no longer time here than anywhere else.
        link.note(true, home);
        link.note_gone(home);
        link.note_back(true, home);
        assert!(link.advance(home + Duration::from_millis(2_500)));
        assert_eq!(link.target().unwrap().carrier, Carrier::Tcp);
    }

    #[test]
    fn headers_are_left_room_for() {
        let target = |text: &str| Target { carrier: Carrier::Udp, remote: text.parse().unwrap() };
        assert_eq!(mtu_limit(&interface(true, true), target("1.2.3.4:5")), 1_472);
        assert_eq!(mtu_limit(&interface(true, true), target("[::1]:5")), 1_452);
    }
}
