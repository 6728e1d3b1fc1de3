//! Soft hand-off in the virtual machine: the access point that carries the traffic is killed, and the other one takes over.
//! Skipped with a reason where a part of the bed cannot be had, except in CI.

use lab::traffic::ConnectReport;
use lab::vm::program;
use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use sim::NetworkSpec;

const KNOWN: &str = r#"
soft_handoff = true

[[network]]
ssid = "cafe"

[[network]]
ssid = "home"
"#;

const PORT: u16 = 9_200;

fn script() -> String {
    format!(
        r#"primary() {{ at_home ip route | sed 's/$/ /' | sed -n '/^default.* metric 600 /s/.*dev wl-\([a-z]*\) .*/\1/p'; }}
        in_namespace server anabranch-lab traffic accept {SERVER_ADDRESS}:{PORT} &
        radio_up --probe off
        address_on wl-cafe; address_on wl-home
        sleep 3; own list; own list --json >/results/before; at_home ip route >/results/routes-before
        primary=$(primary); echo "primary $primary"
        echo "begins at $(date -u +%H:%M:%S.%N)"
        at_home anabranch-lab traffic connect {SERVER_ADDRESS}:{PORT} --seconds 5 --threads 40 --pause-ms 80 --patience-ms 50 --json /results/connections & client=$!
        sleep 2.5; point_off "$primary" 0; echo "dead at $(date -u +%H:%M:%S.%N)"
        wait $client
        own list; echo "primary $primary, then $(primary)"
        own events | tee /results/events; radio_down
        cat /results/radio.log"#
    )
}

#[test]
fn the_other_network_takes_over_when_the_primary_dies() {
    let network = |name: &'static str, channel| WifiNetwork {
        link: NetworkSpec::symmetric(name, 10.0, 10),
        points: vec![AccessPoint::open(name, channel)],
    };
    let wifi = Wifi::new(vec![network("cafe", 1), network("home", 11)]);
    let mut scene = RadioScene::new(wifi, KNOWN, script());
    scene.programs.push(program("date", "coreutils").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let result = |name: &str| outcome.text(name);

    let list: serde_json::Value = serde_json::from_str(&result("before")).unwrap();
    let mut shares: Vec<f64> = Vec::new();
    for network in list.as_array().unwrap() {
        let now = &network["now"];
        assert_eq!(now["state"], "up", "the secondary has no address: {list}");
        shares.push(now["share"].as_f64().unwrap());
    }
    assert!(shares.iter().any(|share| *share > 0.85), "nobody has nine tenths: {list}");

    let connections: ConnectReport = serde_json::from_slice(&outcome.files["connections"]).unwrap();
    let mut made: Vec<f64> = connections.attempts.iter().filter_map(|attempt| attempt.made).collect();
    made.sort_by(f64::total_cmp);
    let longest = made.windows(2).map(|pair| pair[1] - pair[0]).fold(0.0, f64::max);
    let gap = made.windows(2).max_by(|one, other| (one[1] - one[0]).total_cmp(&(other[1] - other[0])));
    println!(
        "no new connection for {:.0} ms at worst, {gap:?}; {} failed",
        longest * 1e3,
        connections.failed
    );
    assert!(connections.failed > 0, "the kill had no effect");
    // 0.2 s is the goal of JUGGLER/table2-handoff; here it was 0.131 s, attempts that are 50 ms and more apart included.
    assert!(longest < 0.3 && made.last().is_some_and(|last| *last > 4.5), "{longest} s: {made:?}");
    assert!(result("events").contains("carries the traffic now"), "{}", result("events"));
    assert!(outcome.output.contains("radio ended with 0"), "{}", outcome.output);
}
