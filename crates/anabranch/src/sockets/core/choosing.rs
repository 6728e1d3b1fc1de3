//! Which path of a conversation carries its data: `[VCONN] 3.3`, by `policy`.

use bond::{PathReport, PathState};
use policy::PathStatus;
use policy::network::{Loss, Metrics, NetworkInput, Percent, PowerSupply, RttSummary};
use units::{NetworkId, Timestamp};

use super::super::conversation::ConversationId;
use super::super::event::EventKind;
use super::Core;

/// A path that has carried less than this tells nothing of its rate.
const BYTES_TO_TRUST: u64 = 200_000;

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
        let Some(conversation) = self.conversations.get(&id) else { return };
        if !conversation.is_caller || self.options.spread {
            return;
        }
        let (session, power) = (conversation.session, self.least_power(conversation.peer_battery));
        let inputs: Vec<NetworkInput> =
            self.bond.path_reports(session).iter().filter_map(|report| self.input(report)).collect();
        let Some(conversation) = self.conversations.get_mut(&id) else { return };
        let chosen = conversation.policy.evaluate(now, &inputs, power);
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

    fn input(&self, report: &PathReport) -> Option<NetworkInput> {
        let name = self.carriers.adapter_of(report.network)?;
        let adapter = self.adapters.iter().find(|adapter| adapter.name == name);
        let carried = report.counters.sent_bytes.max(report.counters.received_bytes);
        let known_rate = report.counters.sent_bytes >= BYTES_TO_TRUST;
        let metrics = Metrics {
            rtt: report.smoothed_rtt.map(|smoothed| RttSummary { smoothed, variation: report.rtt_variation }),
            nominal: adapter.and_then(|adapter| adapter.speed),
            delivered: report.rate.filter(|_| known_rate && carried > 0),
            loss: Loss::from(report.loss_rate),
            ..Metrics::default()
        };
        Some(NetworkInput {
            kind: adapter.map_or_else(Default::default, |adapter| adapter.kind),
            up: report.state == PathState::Usable,
            metrics,
            power: adapter.and_then(|adapter| adapter.power),
            ..NetworkInput::new(report.network, name)
        })
    }
}
