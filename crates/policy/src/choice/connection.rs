//! Which one network a connection between two peers uses: `[VCONN] 3.3`.
//!
//! Networks that may be used at all, and those that a low battery leaves, are what [`NetworkPolicy`] says. Among them the
//! one with the least cost is used. The paper weighs state, bandwidth, round-trip time, energy and price, and gives no weights: these are ours,
//! and each term is a ratio to the best of the networks in question, so that the units cancel:
//!
//! `cost = 0.4 * rate of the fastest / rate + 0.3 * RTT / least RTT + 0.2 * energy per bit / least + 0.1 * (1 + price per GB)`
//!
//! A better network must win two evaluations in a row, and by a margin: two that are alike do not take turns.

use std::time::Duration;

use units::{BitRate, NetworkId, Timestamp};

use super::steady::Steady;
use super::{ChoiceSettings, NetworkPolicy};
use crate::PathStatus;
use crate::network::{NetworkInput, PowerSupply};

/// What a connection wants of its network.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ConnectionWish {
    /// The least cost, whenever another network becomes better.
    #[default]
    Balanced,
    /// The fastest network of the beginning, for as long as it lasts: `[VCONN] 2`, real-time transport.
    RealTime,
    /// The network that costs least to use: price first, then energy.
    Cheapest,
}

/// Chooses the network of one connection.
#[derive(Clone, Debug)]
pub struct ConnectionPolicy {
    networks: NetworkPolicy,
    wish: ConnectionWish,
    used: Steady,
    probed: Vec<NetworkId>,
    /// The fastest of the last while, and when it was that fast.
    fastest: (Timestamp, BitRate),
}

impl ConnectionPolicy {
    /// A policy that has seen no network yet.
    pub fn new(settings: ChoiceSettings, wish: ConnectionWish) -> Self {
        Self {
            networks: NetworkPolicy::new(settings),
            wish,
            used: Steady::default(),
            probed: Vec::new(),
            fastest: (Timestamp::ZERO, BitRate(0)),
        }
    }

    /// When [`Self::evaluate`] should be called next, if no network comes or goes before.
    pub fn next_evaluation(&self) -> Timestamp {
        self.networks.next_evaluation()
    }

    /// The network to use; `None` if there is none. Each network may occur once.
    pub fn evaluate(
        &mut self,
        now: Timestamp,
        inputs: &[NetworkInput],
        power: PowerSupply,
    ) -> Option<NetworkId> {
        let counts = now >= self.networks.next_evaluation();
        let table = self.networks.evaluate(now, inputs, power);
        let used = table.entries.iter().filter(|entry| entry.status == PathStatus::Active);
        let used: Vec<(&NetworkInput, Option<BitRate>)> = used
            .filter_map(|entry| {
                Some((inputs.iter().find(|input| input.id == entry.network)?, entry.capacity))
            })
            .collect();
        let delivered = used.iter().filter_map(|(input, _)| input.metrics.delivered).max();
        self.remember(now, delivered.unwrap_or(BitRate(0)));
        let offers: Vec<Offer> =
            used.iter().map(|(input, capacity)| Offer::of(input, self.expected(input, *capacity))).collect();
        let best = Best::of(&offers);
        let cost = |offer: &Offer| match self.wish {
            ConnectionWish::Balanced => best.cost(offer),
            ConnectionWish::RealTime => best.slowness(offer),
            ConnectionWish::Cheapest => offer.price * PRICE_OVER_ENERGY + best.energy(offer),
        };
        let costs: Vec<(NetworkId, f64)> = offers.iter().map(|offer| (offer.network, cost(offer))).collect();
        let least = costs.iter().min_by(|left, right| left.1.total_cmp(&right.1)).copied();
        let held = self.used.get().and_then(|held| costs.iter().find(|(network, _)| *network == held));
        let is_clear = match (held, least) {
            (Some(_), _) if self.wish == ConnectionWish::RealTime => false,
            (Some((_, held)), Some((_, least))) => least < held * MARGIN,
            _ => true,
        };
        let challenger = if is_clear { least } else { held.copied() };
        let agreement = self.networks.settings().agreement;
        self.probed = self.worth_probing(&costs, power);
        let there = |network| costs.iter().any(|(known, _)| *known == network);
        self.used.next(challenger.map(|(network, _)| network), there, counts, agreement)
    }

    fn remember(&mut self, now: Timestamp, delivered: BitRate) {
        let (since, fastest) = self.fastest;
        if delivered >= fastest || now.since(since) > REMEMBERED {
            self.fastest = (now, delivered);
        }
    }

    /// What to expect of a network: one that has carried nothing yet is worth a try where the one in use has become slower than it was, so it is
    /// taken to be as fast as that was, if it does not claim less.
    fn expected(&self, input: &NetworkInput, capacity: Option<BitRate>) -> Option<BitRate> {
        match input.metrics.delivered {
            None => {
                let hoped = capacity.unwrap_or(BitRate(0)).max(self.fastest.1);
                Some(input.metrics.nominal.map_or(hoped, |claimed| hoped.min(claimed)))
            }
            Some(_) => capacity,
        }
    }

    /// The networks whose round trip is worth a probe at each evaluation while data flows: the best two at most, and none while the battery is
    /// low or where no round trip would change the choice.
    pub fn probed(&self) -> &[NetworkId] {
        &self.probed
    }

    fn worth_probing(&self, costs: &[(NetworkId, f64)], power: PowerSupply) -> Vec<NetworkId> {
        let is_low = power.below(self.networks.settings().cheapest_adapter_below).is_some();
        if is_low || self.wish != ConnectionWish::Balanced || costs.len() < 2 {
            return Vec::new();
        }
        let mut ranked: Vec<(NetworkId, f64)> = costs.to_vec();
        ranked.sort_by(|left, right| left.1.total_cmp(&right.1));
        ranked.iter().take(PROBED).map(|(network, _)| *network).collect()
    }
}

/// What a network would cost.
#[derive(Clone, Copy, Debug)]
struct Offer {
    network: NetworkId,
    rate: Option<BitRate>,
    rtt: Option<Duration>,
    /// Nanojoules for each bit, both ways taken together.
    energy: Option<f64>,
    /// Of a gigabyte, in the user's currency.
    price: f64,
}

impl Offer {
    fn of(input: &NetworkInput, capacity: Option<BitRate>) -> Self {
        let rate = capacity.filter(|rate| rate.0 > 0);
        let energy = input.power.map(|model| {
            let active = rate.map_or(0.0, |rate| model.active.0 * 1e9 / rate.0 as f64);
            model.transmit.0 + model.receive.0 + active
        });
        Self {
            network: input.id,
            rate,
            rtt: input.metrics.rtt.map(|rtt| rtt.smoothed),
            energy,
            price: input.price.map_or(0.0, |price| price.0 as f64 / 1e3),
        }
    }
}

/// The best of each.
#[derive(Clone, Copy, Debug)]
struct Best {
    rate: f64,
    rtt: f64,
    energy: f64,
}

impl Best {
    fn of(offers: &[Offer]) -> Self {
        let least = |of: fn(&Offer) -> Option<f64>| offers.iter().filter_map(of).reduce(f64::min);
        Self {
            rate: offers.iter().filter_map(|offer| offer.rate).map(|rate| rate.0 as f64).fold(0.0, f64::max),
            rtt: least(|offer| offer.rtt.map(|rtt| rtt.as_secs_f64())).unwrap_or(0.0).max(LEAST_RTT),
            energy: least(|offer| offer.energy).unwrap_or(0.0).max(1e-9),
        }
    }

    fn cost(&self, offer: &Offer) -> f64 {
        let rtt = offer.rtt.map_or(UNMEASURED, |rtt| rtt.as_secs_f64().max(LEAST_RTT) / self.rtt);
        BANDWIDTH * self.slowness(offer)
            + ROUND_TRIP * rtt
            + ENERGY * self.energy(offer)
            + PRICE * (1.0 + offer.price)
    }

    /// Nobody knows the rate of a network that carried nothing: it may be as good as the best.
    fn slowness(&self, offer: &Offer) -> f64 {
        offer.rate.map_or(1.0, |rate| self.rate / rate.0 as f64)
    }

    fn energy(&self, offer: &Offer) -> f64 {
        offer.energy.map_or(1.0, |energy| energy / self.energy)
    }
}

/// How long a rate that a network had counts as one that others may have.
const REMEMBERED: Duration = Duration::from_secs(60);
/// How many networks are probed.
const PROBED: usize = 2;
/// Weights of the terms.
const BANDWIDTH: f64 = 0.4;
const ROUND_TRIP: f64 = 0.3;
const ENERGY: f64 = 0.2;
const PRICE: f64 = 0.1;
/// What a network that nobody has measured yet is taken for, as a multiple of the best.
const UNMEASURED: f64 = 10.0;
/// Seconds; shorter round trips are all alike.
const LEAST_RTT: f64 = 500e-6;
/// A better network must cost less than this part of the one in use.
const MARGIN: f64 = 0.8;
/// Energy counts only between networks of one price.
const PRICE_OVER_ENERGY: f64 = 1e6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::energy::Card;
    use crate::network::{Percent, Price, RttSummary};

    fn input(id: u32, rtt_ms: u64, mbps: u64) -> NetworkInput {
        let mut input = NetworkInput::new(NetworkId(id), format!("net{id}"));
        let smoothed = Duration::from_millis(rtt_ms);
        input.metrics.rtt = Some(RttSummary { smoothed, variation: smoothed / 8 });
        input.metrics.delivered = Some(BitRate(mbps * 1_000_000));
        input
    }

    struct Scene {
        policy: ConnectionPolicy,
        now: Timestamp,
        power: PowerSupply,
    }

    impl Scene {
        fn new(wish: ConnectionWish) -> Self {
            let policy = ConnectionPolicy::new(ChoiceSettings::default(), wish);
            Self { policy, now: Timestamp::ZERO, power: PowerSupply::Mains }
        }

        /// The choice after one more evaluation.
        fn next(&mut self, inputs: &[NetworkInput]) -> Option<u32> {
            self.now += Duration::from_millis(250);
            self.policy.evaluate(self.now, inputs, self.power).map(|network| network.0)
        }
    }

    #[test]
    fn cost_is_the_weighted_sum() {
        // Worked by hand: 0.4 * 40/10 + 0.3 * 20/10 + 0.2 * 1 + 0.1 * (1 + 2) = 1.6 + 0.6 + 0.2 + 0.3.
        let mut dear = input(1, 20, 10);
        dear.price = Some(Price(2_000));
        let offers = [
            Offer::of(&input(0, 10, 40), Some(BitRate(40_000_000))),
            Offer::of(&dear, Some(BitRate(10_000_000))),
        ];
        let best = Best::of(&offers);
        assert!((best.cost(&offers[1]) - 2.7).abs() < 1e-9);
        assert!((best.cost(&offers[0]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_better_network_wins_after_two_evaluations_and_a_dead_one_goes_at_once() {
        let mut scene = Scene::new(ConnectionWish::Balanced);
        let (slow, fast) = (input(0, 40, 10), input(1, 10, 40));
        assert_eq!(scene.next(std::slice::from_ref(&slow)), Some(0));
        let both = [slow.clone(), fast.clone()];
        let choices: Vec<_> = (0..4).map(|_| scene.next(&both)).collect();
        assert_eq!(choices.iter().filter(|choice| **choice == Some(0)).count(), 1, "{choices:?}");
        assert_eq!(choices[3], Some(1));
        let dead = NetworkInput { up: false, ..fast };
        assert_eq!(scene.policy.evaluate(scene.now, &[slow, dead], scene.power), Some(NetworkId(0)));
        assert_eq!(scene.next(&[]), None);
    }

    #[test]
    fn a_network_that_slows_down_is_left_for_one_that_nobody_has_measured() {
        let mut scene = Scene::new(ConnectionWish::Balanced);
        let mut other = input(1, 20, 0);
        other.metrics.delivered = None;
        for _ in 0..4 {
            assert_eq!(scene.next(&[input(0, 20, 80), other.clone()]), Some(0));
        }
        let choices: Vec<_> = (0..4).map(|_| scene.next(&[input(0, 20, 6), other.clone()])).collect();
        assert_eq!(choices[3], Some(1), "{choices:?}");
        // It turns out to be slower still: back, and there it stays.
        for slow in 0..300 {
            let choice = scene.next(&[input(0, 20, 6), input(1, 20, 3)]);
            assert!(slow < 3 || choice == Some(0), "{slow}: {choice:?}");
        }
        // A claim that is below what was seen is believed.
        let mut scene = Scene::new(ConnectionWish::Balanced);
        other.metrics.nominal = Some(BitRate(6_000_000));
        for rate in [80, 80, 80, 6, 6, 6, 6] {
            assert_eq!(scene.next(&[input(0, 20, rate), other.clone()]), Some(0));
        }
    }

    #[test]
    fn the_best_two_are_probed_and_none_while_the_battery_is_low() {
        let mut scene = Scene::new(ConnectionWish::Balanced);
        let three = [input(0, 40, 10), input(1, 10, 40), input(2, 20, 20)];
        scene.next(&three[..1]);
        assert!(scene.policy.probed().is_empty(), "there is nothing to choose");
        scene.next(&three);
        assert_eq!(scene.policy.probed(), [NetworkId(1), NetworkId(2)]);
        scene.power = PowerSupply::Battery(Percent::new(19));
        scene.next(&three);
        assert!(scene.policy.probed().is_empty());
        for wish in [ConnectionWish::RealTime, ConnectionWish::Cheapest] {
            let mut scene = Scene::new(wish);
            scene.next(&three);
            assert!(
                scene.policy.probed().is_empty(),
                "{wish:?} does not look at round trips once it carries"
            );
        }
    }

    #[test]
    fn networks_that_are_alike_do_not_take_turns() {
        let mut scene = Scene::new(ConnectionWish::Balanced);
        for step in 0..20u64 {
            let both = [input(0, 20 + step % 3, 40), input(1, 20 + (step + 1) % 3, 40)];
            assert_eq!(scene.next(&both), Some(0), "{step}");
        }
    }

    #[test]
    fn real_time_stays_and_cheapest_looks_at_the_price() {
        let mut scene = Scene::new(ConnectionWish::RealTime);
        let (slow, fast) = (input(0, 10, 10), input(1, 40, 40));
        assert_eq!(scene.next(&[slow.clone(), fast.clone()]), Some(1), "the fastest");
        let faster = input(2, 10, 400);
        for _ in 0..5 {
            assert_eq!(scene.next(&[slow.clone(), fast.clone(), faster.clone()]), Some(1));
        }
        let mut scene = Scene::new(ConnectionWish::Cheapest);
        let card = |mut input: NetworkInput, name: &str| {
            input.power = Card::by_name(name).map(|card| card.model);
            input
        };
        let (wifi, lte) = (card(input(0, 60, 5), "wifi-2012"), card(input(1, 20, 50), "lte-2012"));
        for _ in 0..3 {
            assert_eq!(scene.next(&[wifi.clone(), lte.clone()]), Some(0));
        }
    }

    #[test]
    fn below_a_fifth_of_the_battery_the_cheapest_adapter_is_used() {
        let mut scene = Scene::new(ConnectionWish::Balanced);
        let card = |mut input: NetworkInput, name: &str| {
            input.power = Card::by_name(name).map(|card| card.model);
            input
        };
        let both = [card(input(0, 60, 5), "wifi-2012"), card(input(1, 10, 50), "lte-2012")];
        let choices: Vec<_> = (0..5).map(|_| scene.next(&both)).collect();
        assert_eq!(choices[4], Some(1), "{choices:?}");
        scene.power = PowerSupply::Battery(Percent::new(19));
        let choices: Vec<_> = (0..4).map(|_| scene.next(&both)).collect();
        assert_eq!(choices[3], Some(0), "{choices:?}");
    }
}
