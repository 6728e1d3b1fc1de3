//! The paths that the owner wants, and what it has seen of their networks.

use super::slot::WantedPath;
use super::{Endpoint, PathConfig, SessionId};
use crate::address::Address;
use crate::session::Session;
use policy::PathStatus;
use policy::steering::MarkShare;
use units::{BitRate, NetworkId, Timestamp};

impl Endpoint {
    /// Keeps a path open from now on. One with the same network replaces it.
    pub fn add_path(&mut self, now: Timestamp, session: SessionId, config: PathConfig) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        let network = config.address.network;
        let known = slot.paths.iter().position(|path| path.config.address.network == network);
        if let Some(at) = known {
            slot.paths.remove(at);
            if let Some(session) = &mut slot.session {
                session.remove_path(now, network);
            }
        }
        slot.paths.push(WantedPath { config, down: false });
        let mut used_up = false;
        if let Some(session) = &mut slot.session {
            used_up = session.path_ids_used_up();
            open_path(now, session, &config);
        }
        if let Some(connecting) = &mut slot.connecting {
            connecting.hurry(now);
        }
        if used_up {
            self.begin_again(now, session);
        }
        self.touch(session);
    }

    /// Gives a path up.
    pub fn remove_path(&mut self, now: Timestamp, session: SessionId, network: NetworkId) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        slot.paths.retain(|path| path.config.address.network != network);
        if let Some(session) = &mut slot.session {
            session.remove_path(now, network);
        }
        self.touch(session);
    }

    /// Changes how a path is used.
    pub fn set_path_status(
        &mut self,
        session: SessionId,
        network: NetworkId,
        status: PathStatus,
        priority: u8,
    ) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        if let Some(path) = slot.paths.iter_mut().find(|path| path.config.address.network == network) {
            path.config.status = status;
            path.config.priority = priority;
        }
        if let Some(session) = &mut slot.session {
            session.set_path_status(network, status, priority);
        }
        self.touch(session);
    }

    /// Counts this part of a path's packets as marked, so that the peer prefers others. It acts where the peer's congestion control heeds single
    /// marks: CUBIC and the coupled ones, not the model of the path. A path that is made anew begins without.
    pub fn set_path_marks(&mut self, session: SessionId, network: NetworkId, marks: MarkShare) {
        if let Some(session) = self.slots.get_mut(&session).and_then(|slot| slot.session.as_mut()) {
            session.set_path_marks(network, marks);
        }
    }

    /// No more than this is to go over a path, either way; `None`: as much as it takes. The peer is told. A path that is made anew begins without.
    pub fn set_path_limit(&mut self, session: SessionId, network: NetworkId, limit: Option<BitRate>) {
        if let Some(open) = self.slots.get_mut(&session).and_then(|slot| slot.session.as_mut()) {
            open.set_path_limit(network, limit);
        }
        self.touch(session);
    }

    /// No more than this is to come over a path; what this end sends is not concerned, and [`Self::set_path_limit`] holds besides. The peer is told.
    /// A path that is made anew begins without.
    pub fn set_inward_limit(&mut self, session: SessionId, network: NetworkId, limit: Option<BitRate>) {
        if let Some(open) = self.slots.get_mut(&session).and_then(|slot| slot.session.as_mut()) {
            open.set_inward_limit(network, limit);
        }
        self.touch(session);
    }

    /// Asks for a sign of life on a path while data flows in the session, whichever path it takes: so the round trip of one that stands by is
    /// known as it is. Without data nothing is asked, which spares batteries.
    pub fn probe_path(&mut self, now: Timestamp, session: SessionId, network: NetworkId) {
        if let Some(open) = self.slots.get_mut(&session).and_then(|slot| slot.session.as_mut()) {
            open.probe_path(now, network);
        }
        self.touch(session);
    }

    /// The kernel says that a network is gone: what was in flight there goes elsewhere at once.
    pub fn network_down(&mut self, now: Timestamp, network: NetworkId) {
        for id in self.sorted_sessions() {
            let Some(slot) = self.slots.get_mut(&id) else { continue };
            let wanted = slot.paths.iter_mut().filter(|path| path.config.address.network == network);
            wanted.for_each(|path| path.down = true);
            if let Some(session) = &mut slot.session {
                session.network_down(now, network);
            }
            self.touch(id);
        }
    }

    /// What a path of one session rode on has ended: for that session as if the network had gone, though handshakes go on over it.
    pub fn path_lost(&mut self, now: Timestamp, session: SessionId, network: NetworkId) {
        if let Some(established) = self.session_mut(session) {
            established.network_down(now, network);
            self.after_input(now, session);
        }
    }

    /// A network is back, or its local address has changed.
    pub fn network_up(&mut self, now: Timestamp, network: NetworkId) {
        for id in self.sorted_sessions() {
            self.path_back(now, id, network);
        }
    }

    /// The same for what the path of one session rides on.
    pub fn path_back(&mut self, now: Timestamp, session: SessionId, network: NetworkId) {
        let Some(slot) = self.slots.get_mut(&session) else { return };
        let wanted = slot.paths.iter_mut().find(|path| path.config.address.network == network);
        let config = wanted.map(|path| {
            path.down = false;
            path.config
        });
        if let Some(established) = &mut slot.session {
            match config {
                // It was down when the session began.
                Some(config) if established.path_of(network).is_none() => {
                    open_path(now, established, &config);
                }
                _ => established.network_up(now, network),
            }
        }
        if let Some(connecting) = &mut slot.connecting {
            connecting.hurry(now);
        }
        self.touch(session);
    }

    /// The kernel refused a datagram as too large for the way to this address: a smaller one may be tried at once.
    pub fn datagram_too_large(&mut self, address: Address, size: u16) {
        for id in self.sorted_sessions() {
            if self.session_mut(id).is_some_and(|session| session.datagram_too_large(address, size)) {
                self.touch(id);
            }
        }
    }
}

/// Opens the path in a session that is established.
pub(super) fn open_path(now: Timestamp, session: &mut Session, config: &PathConfig) {
    if session.add_path(now, config.address, config.mtu_limit).is_some()
        && (config.status != PathStatus::Active || config.priority != 0)
    {
        session.set_path_status(config.address.network, config.status, config.priority);
    }
}
