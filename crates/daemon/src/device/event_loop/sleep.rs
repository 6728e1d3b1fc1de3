//! After the machine has slept: nothing that was known of its networks holds any more.

use anabranch::control::EventKind;
use linux::clock;
use units::{NetworkId, Timestamp};

use super::DeviceLoop;

impl DeviceLoop {
    /// Looks whether the machine has slept since the last call, and if so treats every network as if it had gone and
    /// come back: routers forget whom a port led to within minutes, and the gateway may have another address.
    pub(super) fn notice_sleep(&mut self, now: Timestamp) {
        let Some(slept) = self.state.sleep.look(clock::asleep()) else { return };
        let text = format!("the machine has slept for {} s: trying all networks anew", slept.as_secs());
        self.events.push(EventKind::NetworkChanged, None, text);
        let connected = self.networks.iter().filter(|network| network.connected);
        for network in connected.map(|network| network.id).collect::<Vec<NetworkId>>() {
            self.note_gone(network, now);
            self.plane.endpoint.network_down(now, network);
            let links = self.gateways.iter_mut().filter_map(|gateway| gateway.links.get_mut(&network));
            links.for_each(|link| link.note_back(false, now));
            self.renew_sockets(now, network);
            self.plane.endpoint.network_up(now, network);
        }
        self.gateways.try_all_anew(now);
        for gateway in self.gateways.keys() {
            self.resolve(now, gateway);
        }
    }
}
