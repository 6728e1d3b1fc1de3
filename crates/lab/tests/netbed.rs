//! The namespace bed with real sockets and the link emulator. Needs root; says so and passes without.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use lab::netbed::{FetchRequest, NetBed, SERVER_ADDRESS, fetch, listen, serve};
use sim::NetworkSpec;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::time::{Duration, Instant};

fn bed(specs: &[NetworkSpec]) -> Option<NetBed> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: network namespaces need root here");
        return None;
    }
    Some(NetBed::build(specs, 7).unwrap())
}

fn start_server(bed: &NetBed) -> SocketAddr {
    let address = SocketAddr::from((SERVER_ADDRESS, 80));
    let listener = bed.server.run(|| listen(address, "cubic")).unwrap().unwrap();
    std::thread::spawn(move || serve(&listener));
    address
}

fn request(server: SocketAddr, network: usize, bytes: u64) -> FetchRequest {
    FetchRequest {
        server,
        interface: Some(NetBed::interface(network)),
        bytes,
        seed: 3,
        most_time: None,
        patience: Duration::from_secs(10),
    }
}

#[test]
fn each_network_has_its_own_rate_and_delay() {
    let specs = [NetworkSpec::symmetric("fast", 20.0, 20), NetworkSpec::symmetric("slow", 5.0, 60)];
    let Some(mut bed) = bed(&specs) else { return };
    let server = start_server(&bed);
    for (index, (mbps, round_trip_ms)) in [(20.0, 20), (5.0, 60)].into_iter().enumerate() {
        let request = request(server, index, (mbps * 1e6 / 8.0 * 2.0) as u64);
        let start = Instant::now();
        let report = bed.device.run(|| fetch(&request, &mut |_| true)).unwrap().unwrap();
        assert!(report.verified && report.complete);
        assert!(start.elapsed() > Duration::from_millis(2 * round_trip_ms));
        let goodput = report.goodput_mbps();
        // The upper bound is the emulator's; the lower one leaves room for a busy machine.
        assert!(goodput < mbps * 1_448.0 / 1_500.0 * 1.02, "{goodput} of {mbps} Mbit/s");
        assert!(goodput > mbps * 0.4, "{goodput} of {mbps} Mbit/s");
    }
    let [up, down] = bed.networks[0].statistics().unwrap();
    assert!(down.delivered_bytes > 5_000_000 && up.delivered > 100, "{down:?} {up:?}");
}

#[test]
fn a_cut_network_stalls_and_goes_on() {
    let Some(mut bed) = bed(&[NetworkSpec::symmetric("only", 16.0, 10)]) else { return };
    let server = start_server(&bed);
    let request = request(server, 0, 4_000_000);
    let device = &bed.device;
    let network = &mut bed.networks[0];
    let report = std::thread::scope(|scope| {
        let (begun, has_begun) = mpsc::channel();
        let request = &request;
        let download = scope.spawn(move || {
            // Nobody waits for more than the first word.
            let mut progress = |_| {
                let _ = begun.send(());
                true
            };
            device.run(|| fetch(request, &mut progress)).unwrap().unwrap()
        });
        has_begun.recv_timeout(Duration::from_secs(30)).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        network.cut();
        std::thread::sleep(Duration::from_millis(700));
        network.restore();
        download.join().unwrap()
    });
    assert!(report.verified && report.complete);
    assert!(report.longest_stall_ms > 600.0, "longest stall {} ms", report.longest_stall_ms);
}
