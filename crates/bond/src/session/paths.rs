//! The paths of a session: added, removed, and what the kernel says of their networks.

use super::{MAX_PATHS, Role, Session, SessionEvent};
use crate::address::Address;
use crate::path::{Path, PathState};
use crate::unit::Control;
use policy::PathStatus;
use policy::steering::MarkShare;
use rand::RngCore;
use units::{BitRate, NetworkId, PathId, Timestamp};
use wire::frame::{Arrived, STATUS_GONE};

impl Session {
    /// Adds a path under the next free number. `None` if there are too many or the numbers are used up.
    pub(crate) fn add_path(&mut self, now: Timestamp, address: Address, mtu_limit: u16) -> Option<PathId> {
        let id = (0..=u8::MAX).map(PathId).find(|id| !self.path_id_used(*id))?;
        self.open_path(now, id, address, mtu_limit)?;
        if self.role == Role::Initiator
            && let Some(path) = self.paths.last_mut()
        {
            path.grant_budget(u64::MAX / 8);
        }
        Some(id)
    }

    pub(super) fn open_path(
        &mut self,
        now: Timestamp,
        id: PathId,
        address: Address,
        mtu_limit: u16,
    ) -> Option<usize> {
        if self.paths.len() >= MAX_PATHS || self.path_id_used(id) {
            return None;
        }
        if let Some(word) = self.used_path_ids.get_mut(usize::from(id.0 / 64)) {
            *word |= 1 << (id.0 % 64);
        }
        let mut path = Path::new(now, id, address, self.config.congestion, mtu_limit);
        path.start_challenge(now, self.random.next_u64().to_be_bytes());
        self.paths.push(path);
        Some(self.paths.len() - 1)
    }

    /// Every path number has been used under these keys: only a new handshake makes room for more.
    pub(crate) fn path_ids_used_up(&self) -> bool {
        self.used_path_ids.iter().all(|word| *word == u64::MAX)
    }

    pub(super) fn path_id_used(&self, id: PathId) -> bool {
        self.used_path_ids.get(usize::from(id.0 / 64)).is_some_and(|word| word >> (id.0 % 64) & 1 == 1)
    }

    pub(crate) fn path_of(&mut self, network: NetworkId) -> Option<&mut Path> {
        self.paths.iter_mut().find(|path| path.address.network == network)
    }

    /// Whether the peer has answered from this address.
    pub(crate) fn was_at(&self, address: Address) -> bool {
        self.paths.iter().any(|path| path.address == address && path.is_validated())
    }

    pub(crate) fn validate_path(&mut self, address: Address) {
        if let Some(path) = self.paths.iter_mut().find(|path| path.address == address) {
            path.set_validated();
            self.events.push_back(SessionEvent::PathUp(address.network));
        }
    }

    /// Forgets a path; what it carried is sent on others.
    pub(crate) fn remove_path(&mut self, now: Timestamp, network: NetworkId) {
        let Some(at) = self.paths.iter().position(|path| path.address.network == network) else { return };
        let mut path = self.paths.remove(at);
        self.bottlenecks.remove(path.id);
        let losses = path.go_down();
        self.requeue(now, losses.items, None);
        self.control.push(Control::PathAbandon(path.id));
        self.check_stall(now);
    }

    pub(crate) fn set_path_status(&mut self, network: NetworkId, status: PathStatus, priority: u8) {
        self.wish(network, |path| {
            let before = (path.own_status, path.priority);
            (path.own_status, path.priority) = (status, priority);
            before != (status, priority)
        });
    }

    /// No more than this is to go over the path, either way.
    pub(crate) fn set_path_limit(&mut self, network: NetworkId, limit: Option<BitRate>) {
        self.wish(network, |path| std::mem::replace(&mut path.own_limit, limit) != limit);
    }

    /// No more than this is to come over the path.
    pub(crate) fn set_inward_limit(&mut self, network: NetworkId, limit: Option<BitRate>) {
        self.wish(network, |path| std::mem::replace(&mut path.inward_limit, limit) != limit);
    }

    /// Changes what this end wishes of a path, and tells the peer if `change` says that it is something else.
    fn wish(&mut self, network: NetworkId, change: impl FnOnce(&mut Path) -> bool) {
        let Some(path) = self.path_of(network) else { return };
        if change(path) {
            path.note_wish();
            let frame = path.next_status(status_code(path.own_status));
            self.control.push(Control::PathStatus(frame));
        }
    }

    pub(crate) fn set_path_marks(&mut self, network: NetworkId, marks: MarkShare) {
        if let Some(path) = self.path_of(network) {
            path.received.set_marks(marks);
        }
    }

    pub(crate) fn probe_path(&mut self, now: Timestamp, network: NetworkId) {
        let busy = self.is_busy(now);
        if let Some(path) = self.path_of(network) {
            path.ping_wanted |= busy && path.state == PathState::Usable;
        }
    }

    /// Asks for a sign of life on every path that has a network.
    pub(crate) fn ask_again(&mut self) {
        for path in self.paths.iter_mut().filter(|path| path.state != PathState::Down) {
            path.ping_wanted = true;
        }
    }

    /// The kernel says that the network is gone.
    pub(crate) fn network_down(&mut self, now: Timestamp, network: NetworkId) {
        let Some(path) = self.path_of(network) else { return };
        if path.state == PathState::Down {
            return;
        }
        let in_flight = path.sent.in_flight();
        let losses = path.go_down();
        let gone = path.next_status(STATUS_GONE);
        let arrived = Arrived { path: path.id, ranges: path.received.ranges() };
        // Acknowledgements of the last half round trip have vanished too: without this the peer would first repeat what is here.
        if !arrived.ranges.is_empty() {
            self.control.push(Control::Arrived(Box::new(arrived)));
        }
        // The peer cannot see it: without a word it would wait for a probe timeout.
        self.control.push(Control::PathStatus(gone));
        self.strand(now, in_flight);
        self.requeue(now, losses.items, None);
        self.events.push_back(SessionEvent::PathSilent(network));
        self.check_stall(now);
    }

    /// The network is back, or its local address has changed: the peer is told by a challenge from there.
    pub(crate) fn network_up(&mut self, now: Timestamp, network: NetworkId) {
        let nonce = self.random.next_u64().to_be_bytes();
        let Some(path) = self.path_of(network) else { return };
        let losses = path.go_down();
        path.moved(now);
        path.state = PathState::Validating;
        path.start_challenge(now, nonce);
        path.grant_budget(u64::MAX / 8);
        self.requeue(now, losses.items, None);
    }

    /// The kernel refused a datagram of this size on the way to this address; whether a path of this session leads there.
    pub(crate) fn datagram_too_large(&mut self, address: Address, size: u16) -> bool {
        let path = self.paths.iter_mut().find(|path| path.address == address);
        path.map(|path| path.mtu.on_probe_lost(size, true)).is_some()
    }
}

fn status_code(status: PathStatus) -> u8 {
    match status {
        PathStatus::Active => 0,
        PathStatus::Backup => 1,
        PathStatus::Off => 2,
    }
}
