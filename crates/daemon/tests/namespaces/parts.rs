//! A gateway with several packet threads: whichever a device comes to, it is served as by one.

use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use anabranch::control::{
    CarrierKind, EventKind, EventSequence, ForwardRequest, PortNumber, SessionState, TransportProtocol,
};

use crate::bed::{Bed, Daemon, SERVER_V4, eventually};
use crate::hardship::ruleset;
use crate::scenarios::kill;

fn with_threads(threads: usize) -> String {
    format!("[gateway]\ndns = []\npublic_addresses = [\"198.51.100.1\"]\nthreads = {threads}\n")
}

/// A device that comes again does so to any of the threads, 1 of 4 by chance: all rounds at one have a chance of 1 in 65,536.
const ROUNDS: usize = 9;

fn again(bed: &Bed, device: Daemon) -> Daemon {
    device.kill();
    let device = bed.start("device");
    bed.wait_until_up();
    device
}

pub fn a_device_is_served_by_whichever_thread_it_comes_to() {
    let bed = Bed::new(false);
    bed.write_config("gateway", &with_threads(4));
    let (gateway, mut device) = bed.connected();
    let client = bed.client("gateway");
    let request = ForwardRequest {
        client: None,
        port: PortNumber(8_080.try_into().unwrap()),
        device_port: None,
        protocol: TransportProtocol::Tcp,
    };
    client.forward(&request).unwrap();
    let service = bed.device.run(|| TcpListener::bind("0.0.0.0:8080")).unwrap().unwrap();
    let mut carried = 0;
    for round in 0..ROUNDS {
        // What the device asks for comes back in the queue of its thread; who knocks from outside comes in by any.
        bed.download(SERVER_V4, 300_000, || {});
        for _ in 0..4 {
            let address = "198.51.100.1:8080".parse().unwrap();
            let limit = Duration::from_secs(5);
            let outside = bed.server.run(|| TcpStream::connect_timeout(&address, limit)).unwrap();
            drop((outside.expect("the forwarded port"), service.accept().unwrap()));
        }
        eventually("it is there once", || client.status().unwrap().connected_clients == Some(1));
        let report = client.gateway_clients().unwrap();
        let [van] = &report.clients[..] else { panic!("one client, not {report:?}") };
        assert!(van.connected && van.paths.len() == 2, "round {round}: {van:?}");
        assert!(van.traffic.sent.0 > 300_000, "round {round}: {van:?}");
        carried = client.status().unwrap().traffic.sent.0.max(carried);
        device = again(&bed, device);
    }
    assert!(carried > 300_000 * ROUNDS as u64, "{carried} bytes were counted by all threads");
    let events = client.events(EventSequence(0)).unwrap();
    let count = |kind: EventKind| events.iter().filter(|event| event.kind == kind).count();
    assert_eq!([count(EventKind::Started), count(EventKind::ClientJoined)], [1, 1]);
    assert_eq!(count(EventKind::ClientConnected), ROUNDS + 1);
    assert_eq!(count(EventKind::ClientGone), 0, "it was never gone, only at another thread: {events:?}");

    client.revoke("van").unwrap();
    eventually("it hears that it was revoked", || bed.status().state == SessionState::Refused);
    assert_eq!(client.status().unwrap().connected_clients, Some(0));
    client.down().unwrap();
    assert!(gateway.wait(), "all threads end");
}

pub fn connections_of_a_device_follow_it_to_its_thread() {
    let bed = Bed::new(false);
    bed.write_config("gateway", &with_threads(4));
    crate::scenarios::block_udp(&bed);
    let (_gateway, mut device) = bed.connected();
    for _ in 0..ROUNDS {
        bed.download(SERVER_V4, 300_000, || {});
        let is_tcp = |carrier: CarrierKind| carrier == CarrierKind::Tcp;
        assert!(
            bed.status().networks.iter().flat_map(|network| &network.paths).all(|path| is_tcp(path.carrier))
        );
        device = again(&bed, device);
    }
    drop(device);
}

/// The interface is made anew then, since its queues are settled at the start; what is translated stays.
pub fn another_number_of_threads_is_taken_over_by_an_update() {
    let bed = Bed::new(false);
    let before = ruleset(&bed);
    bed.write_config("gateway", &with_threads(2));
    let (gateway, _device) = bed.connected();
    let client = bed.client("gateway");
    let mut last = client.status().unwrap();
    let threads = |process: u32| {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
        let named = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        named.filter(|name| name == "packets\n").count()
    };
    for wanted in [3, 1, 5, 5, 2] {
        bed.write_config("gateway", &with_threads(wanted));
        let reload = client.reload().unwrap();
        assert!(reload.applied.is_empty() && reload.after_restart.len() <= 1, "{reload:?}");
        bed.download(SERVER_V4, 3_000_000, || {
            client.renew().unwrap();
            eventually("the new one answers", || {
                client.status().is_ok_and(|status| status.started != last.started)
            });
            last = client.status().unwrap();
        });
        assert_eq!(threads(last.pid), wanted);
        eventually("the device is back", || client.status().unwrap().connected_clients == Some(1));
    }
    kill(last.pid);
    assert!(!gateway.ends("it ends with its worker"));
    assert_eq!(ruleset(&bed), before);
}
