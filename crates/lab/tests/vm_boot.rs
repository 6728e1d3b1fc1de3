//! The virtual machine bed, for real: boots Debian's kernel twice and measures a shaped TCP flow in virtual time.
//!
//! Skipped with a reason where the emulator or the kernel cannot be had, except in CI.

#![expect(clippy::unwrap_used, reason = "a test ends where a step fails")]

use std::path::PathBuf;
use std::time::Duration;

use lab::traffic::Report;
use lab::vm::topology::{SERVER_ADDRESS, Topology};
use lab::vm::{Job, Machine, MachineError, Outcome};
use sim::{Jitter, LinkSpec, Loss, NetworkSpec, QueueLimit};
use units::{BitRate, Bytes};

/// One network of 10 Mbit/s and 20 ms each way, another that delays ping by 50 ms and loses a tenth of all packets, and
/// a program that measures both after a long sleep.
fn job(seed: u32) -> Job {
    let link = LinkSpec::steady(BitRate::from_mbps(10.0), Duration::from_millis(20));
    let steady = link.with_queue(QueueLimit::Bytes(Bytes(75_000)));
    let lossy = LinkSpec::ideal(Duration::from_millis(50))
        .with_jitter(Jitter::OrderKept(Duration::from_millis(5)))
        .with_loss(Loss::Random(0.1));
    let ideal = LinkSpec::ideal(Duration::ZERO);
    let networks = [
        NetworkSpec { name: "steady", up: steady.clone(), down: steady },
        NetworkSpec { name: "lossy", up: ideal, down: lossy },
    ];
    let topology = Topology::new(&networks).unwrap();
    let mut job = Job::new(format!(
        ". /job/networks
        build_networks
        in_namespace server anabranch-lab traffic serve {SERVER_ADDRESS}:9000 &
        in_namespace server anabranch-lab traffic echo {SERVER_ADDRESS}:9001 &
        sleep 1
        traffic() {{ in_namespace device anabranch-lab traffic \"$@\"; }}
        traffic fetch {SERVER_ADDRESS}:9000 --bytes 20000 --interface steady --json /tmp/warm
        traffic ping {SERVER_ADDRESS}:9001 --seconds 1 --interface lossy --json /tmp/warm
        cut -d' ' -f1 /proc/uptime >/results/before
        sleep 1000
        cut -d' ' -f1 /proc/uptime >/results/after
        traffic fetch {SERVER_ADDRESS}:9000 --seconds 4 --interface steady --json /results/flow
        traffic ping {SERVER_ADDRESS}:9001 --seconds 5 --interval-ms 10 --interface lossy --json /results/ping
        test -c /dev/net/tun"
    ));
    job.files = topology.files;
    job.files.insert("/job/networks".into(), topology.functions.into_bytes());
    job.programs = vec![PathBuf::from(env!("CARGO_BIN_EXE_anabranch-lab"))];
    job.timeout = Duration::from_secs(2_000);
    job.seed = seed;
    job
}

fn number(outcome: &Outcome, name: &str) -> f64 {
    String::from_utf8_lossy(&outcome.files[name]).trim().parse().unwrap()
}

#[test]
fn time_is_virtual_links_are_shaped_and_runs_repeat() {
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let run = |seed| {
        let outcome = machine.run(&job(seed)).unwrap();
        assert_eq!(outcome.exit, 0, "{}", outcome.output);
        println!("guest time {:?}, wall time {:?}", outcome.guest_time, outcome.wall_time);
        let report: Report = serde_json::from_slice(&outcome.files["flow"]).unwrap();
        (outcome, report)
    };
    let (first, flow) = run(1);
    let slept = number(&first, "after") - number(&first, "before");
    assert!((1000.0..1000.5).contains(&slept), "slept {slept} s");
    assert!(first.wall_time < Duration::from_secs(300), "1000 s of sleep took {:?}", first.wall_time);

    // 1448 bytes of content in frames of 1514 bytes, less the time to start up.
    let best = 10.0 * 1_448.0 / 1_514.0;
    assert!(flow.intact);
    assert!((0.9 * best..=1.001 * best).contains(&flow.goodput_mbps), "{} Mbit/s", flow.goodput_mbps);

    let ping: serde_json::Value = serde_json::from_slice(&first.files["ping"]).unwrap();
    let value = |name: &str| ping[name].as_f64().unwrap();
    assert!((49.0..52.0).contains(&value("p50_milliseconds")), "{ping}");
    assert!((53.0..57.0).contains(&value("p99_milliseconds")), "{ping}");
    assert!((410.0..490.0).contains(&value("received")), "{} of 500 came back", value("received"));

    let (_, again) = run(1);
    let difference = (flow.goodput_mbps / again.goodput_mbps - 1.0).abs();
    assert!(difference < 0.001, "{} and {} Mbit/s", flow.goodput_mbps, again.goodput_mbps);
}

#[test]
fn a_script_that_fails_or_hangs_is_reported() {
    let Some(machine) = Machine::find_or_skip().unwrap() else { return };
    let outcome = machine
        .run(&Job::new("echo to both >&2; mkdir /results/a; echo kept >/results/a/b; exit 3"))
        .unwrap();
    assert_eq!((outcome.exit, outcome.output.as_str()), (3, "to both\n"));
    assert_eq!(outcome.files["a/b"], b"kept\n");

    let mut job = Job::new("echo started; sleep 100000");
    job.timeout = Duration::from_secs(60);
    match machine.run(&job) {
        Err(MachineError::GuestTimeout { output, .. }) => {
            assert!(output.starts_with("started\n"), "{output}")
        }
        other => panic!("{other:?}"),
    }
}
