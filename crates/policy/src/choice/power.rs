//! Power saving: which one network to use when the battery runs low.

use units::{BitRate, NetworkId};

use super::{ChoiceSettings, Steady};
use crate::Reason;
use crate::energy::{Joules, PowerModel, Transfer, Watts, throughput_of_window};
use crate::network::{NetworkInput, Percent, PowerSupply};

/// The network to which power saving keeps new flows.
#[derive(Clone, Debug)]
pub(super) struct Saving {
    pub(super) network: NetworkId,
    battery: Percent,
    /// Every network in question with its cost, in a fixed order.
    costs: Vec<(NetworkId, Cost)>,
}

/// What is compared.
#[derive(Clone, Copy, PartialEq, PartialOrd, Debug)]
enum Cost {
    Energy(Joules),
    Power(Watts),
}

impl Saving {
    /// The thriftiest network, if the battery is low and the cost of every network in question is known.
    ///
    /// `chosen` are those that would carry now, among which `[VIF]`'s rule picks; `regular` those among which `[VCONN]`'s does.
    pub(super) fn find(
        settings: &ChoiceSettings,
        power: PowerSupply,
        chosen: &[&NetworkInput],
        regular: Vec<&NetworkInput>,
    ) -> Option<Self> {
        if let Some(battery) = power.below(settings.least_energy_below) {
            return Self::least(battery, chosen, |input| energy(input, settings).map(Cost::Energy));
        }
        let battery = power.below(settings.cheapest_adapter_below)?;
        Self::least(battery, &regular, |input| input.power.map(|model| Cost::Power(watts(&model, input))))
    }

    fn least(
        battery: Percent,
        networks: &[&NetworkInput],
        cost: impl Fn(&NetworkInput) -> Option<Cost>,
    ) -> Option<Self> {
        if networks.len() < 2 {
            return None;
        }
        let costs: Option<Vec<(NetworkId, Cost)>> =
            networks.iter().map(|input| Some((input.id, cost(input)?))).collect();
        let costs = costs?;
        let (network, _) = costs.iter().min_by(|left, right| left.1.number().total_cmp(&right.1.number()))?;
        Some(Self { network: *network, battery, costs })
    }

    /// The same with the network that hysteresis allows.
    pub(super) fn steadied(mut self, steady: &mut Steady, counts: bool, agreement: u8) -> Self {
        let known = |network| self.costs.iter().any(|(id, _)| *id == network);
        if let Some(network) = steady.next(Some(self.network), known, counts, agreement) {
            self.network = network;
        }
        self
    }

    /// Why the network is used.
    pub(super) fn reason(&self) -> Reason {
        match self.cost_of(self.network) {
            Some(Cost::Energy(energy)) => Reason::LeastEnergy { battery: self.battery, energy },
            Some(Cost::Power(power)) => Reason::CheapestAdapter { battery: self.battery, power },
            None => Reason::SavesPower { battery: self.battery },
        }
    }

    /// Why `input` is not used.
    pub(super) fn reason_against(&self, network: NetworkId) -> Reason {
        match (self.cost_of(network), self.cost_of(self.network)) {
            (Some(Cost::Energy(own)), Some(Cost::Energy(least))) => Reason::MoreEnergy { own, least },
            (Some(Cost::Power(own)), Some(Cost::Power(least))) => Reason::DearerAdapter { own, least },
            _ => Reason::SavesPower { battery: self.battery },
        }
    }

    fn cost_of(&self, network: NetworkId) -> Option<Cost> {
        self.costs.iter().find(|(id, _)| *id == network).map(|(_, cost)| *cost)
    }
}

impl Cost {
    const fn number(self) -> f64 {
        match self {
            Self::Energy(Joules(number)) | Self::Power(Watts(number)) => number,
        }
    }
}

/// Energy of receiving one buffer over the network: `[VIF] eq. 5` and eq. 7 with the whole of [`PowerModel`], so with
/// the tail that dominates small transfers, and without what the card draws while idle. `None` without a model or a throughput.
fn energy(input: &NetworkInput, settings: &ChoiceSettings) -> Option<Joules> {
    let transfer = Transfer { received: settings.transfer, ..Transfer::default() };
    let rate = throughput(input, settings)?;
    Some(input.power?.added_by(transfer, rate.time_for(settings.transfer)))
}

/// What was delivered, else what a window allows (`[VIF] eq. 4`), and never more than the link claims.
fn throughput(input: &NetworkInput, settings: &ChoiceSettings) -> Option<BitRate> {
    let metrics = &input.metrics;
    let window = metrics.rtt.map(|rtt| throughput_of_window(settings.transfer, rtt.smoothed));
    let rate = metrics.delivered.or(window).or(metrics.nominal)?;
    Some(metrics.nominal.map_or(rate, |claimed| claimed.min(rate))).filter(|rate| rate.0 > 0)
}

/// Power while the network works at its rate; while it merely is active if the rate is unknown.
fn watts(model: &PowerModel, input: &NetworkInput) -> Watts {
    model.receiving(input.metrics.delivered.or(input.metrics.nominal).unwrap_or_default())
}
