//! Which path of a conversation carries its data: `[VCONN] 3.3`, by `policy`.

use bond::{PathReport, PathState};
use policy::PathStatus;
use policy::network::{Loss, Metrics, NetworkInput, Percent, PowerSupply, RttSummary};
use units::{NetworkId, Timestamp};

use super::super::conversation::{Conversation, ConversationId};
use super::super::event::EventKind;
use super::Core;

impl Core {
    /// Looks for a better path, if it is time; returns when to look again.
    pub(super) fn choose(&mut self, now: Timestamp, id: ConversationId) -> Timestamp {
        let Some(conversation) = self.conversations.get(&id) else { return Timestamp::FAR_FUTURE };
        if conversation.paths.len() < 2 || self.options.spread {
            return Timestamp::FAR_FUTURE;
        }
        if !conversation.is_caller {
            return self.notice_choice(now, id);
        }
        let due = conversation.policy.next_evaluation();
        if due > now {
            return due;
        }
        self.choose_now(now, id);
        self.conversations.get(&id).map_or(Timestamp::FAR_FUTURE, |known| known.policy.next_evaluation())
    }

    /// Chooses, and makes the choice known.
    pub(super) fn choose_now(&mut self, now: Timestamp, id: ConversationId) {
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        if !conversation.is_caller || self.options.spread {
            return;
        }
        let active = conversation.active;
        let reports = self.bond.path_reports(conversation.session);
        for report in &reports {
            conversation.experience.observe(now, report, active == Some(report.network));
        }
        conversation.experience.keep(|network| reports.iter().any(|report| report.network == network));
        let Some(conversation) = self.conversations.get(&id) else { return };
        let (session, power) = (conversation.session, self.least_power(conversation.peer_battery));
        let inputs: Vec<NetworkInput> =
            reports.iter().filter_map(|report| self.input(now, conversation, report)).collect();
        let direct = inputs.iter().any(|input| input.up);
        let relayed = reports
            .iter()
            .find(|report| report.state == PathState::Usable && self.carriers.is_relayed(report.network));
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        let chosen = match relayed.filter(|_| !direct) {
            Some(relayed) => Some(relayed.network),
            None => {
                let chosen = conversation.policy.evaluate(now, &inputs, power);
                for network in conversation.policy.probed() {
                    self.bond.probe_path(now, session, *network);
                }
                chosen
            }
        };
        let before = conversation.active;
        let Some(chosen) = chosen.filter(|chosen| before != Some(*chosen)) else { return };
        conversation.active = Some(chosen);
        let paths: Vec<NetworkId> = conversation.paths.keys().copied().collect();
        for network in paths {
            let status = if network == chosen { PathStatus::Active } else { PathStatus::Backup };
            self.bond.set_path_status(session, network, status, 0);
        }
        if before.is_some() {
            let (from, to) = (self.adapter_name(before), self.adapter_name(Some(chosen)));
            self.tell(id, EventKind::Switch { from, to });
        }
    }

    /// The end that was called sees what the caller has chosen.
    fn notice_choice(&mut self, now: Timestamp, id: ConversationId) -> Timestamp {
        let Some(conversation) = self.conversations.get_mut(&id) else { return Timestamp::FAR_FUTURE };
        let reports = self.bond.path_reports(conversation.session);
        let carries =
            |report: &&PathReport| report.state == PathState::Usable && report.status == PathStatus::Active;
        let found = reports.iter().find(carries).map(|report| report.network);
        let before = conversation.active;
        if let Some(found) = found.filter(|found| before != Some(*found)) {
            conversation.active = Some(found);
            if before.is_some() {
                let (from, to) = (self.adapter_name(before), self.adapter_name(Some(found)));
                self.tell(id, EventKind::Switch { from, to });
            }
        }
        now + self.options.choice.evaluation
    }

    /// The battery of whichever end has less counts: both adapters work for a transfer.
    fn least_power(&self, peer: Option<u8>) -> PowerSupply {
        match (self.power, peer.map(Percent::new)) {
            (PowerSupply::Battery(own), Some(peer)) => PowerSupply::Battery(own.min(peer)),
            (PowerSupply::Mains, Some(peer)) => PowerSupply::Battery(peer),
            (own, None) => own,
        }
    }

    /// What the policy has to know of a path; ways over relays are none of its business, as they serve only where there is no other.
    fn input(
        &self,
        now: Timestamp,
        conversation: &Conversation,
        report: &PathReport,
    ) -> Option<NetworkInput> {
        if self.carriers.is_relayed(report.network) {
            return None;
        }
        let name = self.carriers.adapter_of(report.network)?;
        let adapter = self.adapters.iter().find(|adapter| adapter.name == name);
        let metrics = Metrics {
            rtt: report.smoothed_rtt.map(|smoothed| RttSummary { smoothed, variation: report.rtt_variation }),
            nominal: adapter.and_then(|adapter| adapter.speed),
            delivered: conversation.experience.rate(now, report),
            loss: Loss::from(report.loss_rate),
            ..Metrics::default()
        };
        Some(NetworkInput {
            kind: adapter.map_or_else(Default::default, |adapter| adapter.kind),
            up: report.state == PathState::Usable,
            metrics,
            power: adapter.and_then(|adapter| adapter.power),
            price: adapter.and_then(|adapter| adapter.price),
            ..NetworkInput::new(report.network, name)
        })
    }
}
