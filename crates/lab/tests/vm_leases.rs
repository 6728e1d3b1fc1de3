//! Coming back to a network whose server is slow to lend addresses, in the virtual machine: with slots and with the kernel's own stations.
//! Skipped with a reason where a part of the bed cannot be had, except in CI.

use lab::vm::program;
use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use sim::NetworkSpec;

const KNOWN: &str = "[[network]]\nssid = \"cafe\"\npassphrase = \"correct horse\"\n";

/// The radio ends the hard way once it has an address. When it comes back the server is silent; then another router stands behind the same name.
fn script() -> String {
    format!(
        r#"for way in slots kernel; do
            [ $way = kernel ] && arguments=--kernel || arguments=
            radio_up $arguments; address_on wl-cafe; sleep 2
            at_home ip -brief addr show wl-cafe >/results/$way-first
            kill -KILL $radio; wait $radio; cp /tmp/state/radio/leases.toml /results/$way-leases
            kill -STOP $(pidof udhcpd)
            radio_up $arguments; sleep 1; address_on wl-cafe; own events >/results/$way-events
            at_home ip -brief addr show wl-cafe >/results/$way-again
            at_home ping -q -i 0.02 -c 50 -W 2 -I wl-cafe {SERVER_ADDRESS} >/results/$way.ping
            radio_down
            [ $way = kernel ] && number=2 || number=1
            ip -n near-cafe link set dev to-device address 02:00:00:00:77:0$number
            radio_up $arguments; sleep 12; own list >/results/$way-stranger; own events >>/results/$way-stranger
            kill -CONT $(pidof udhcpd); address_on wl-cafe; own events >/results/$way-after
            own remove cafe; sleep 3; cp /tmp/state/radio/leases.toml /results/$way-removed
            echo 'correct horse' | own add cafe; radio_down
            cat /results/$way-*
        done
        cat /results/*.ping /results/radio.log"#
    )
}

#[test]
fn the_address_of_last_time_holds_at_once_where_its_router_is() {
    let wifi = Wifi::new(vec![WifiNetwork {
        link: NetworkSpec::symmetric("cafe", 10.0, 20),
        points: vec![AccessPoint::wpa2("cafe", 6, "correct horse")],
    }]);
    let mut scene = RadioScene::new(wifi, KNOWN, script());
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    for way in ["slots", "kernel"] {
        let result = |name: &str| outcome.text(&format!("{way}-{name}"));
        let address = |name: &str| {
            let text = result(name);
            let found = text.split_whitespace().find(|word| word.starts_with("10.64.1."));
            found.unwrap_or_else(|| panic!("{way}, {name}: no address: {text}")).to_owned()
        };
        let ours = address("first");
        assert_eq!(address("again"), ours, "{way}");
        let events = result("events");
        assert!(events.contains(&format!("has its address of last time, {ours}")), "{way}: {events}");
        assert!(outcome.text(&format!("{way}.ping")).contains(" 50 packets received"), "{way}");
        let stranger = result("stranger");
        assert!(
            stranger.contains("up, by") && !stranger.contains("last time") && !stranger.contains("10.64.1."),
            "{way}: another router's lease was used: {stranger}"
        );
        assert!(!result("after").contains("last time"), "{way}");
        assert!(result("leases").contains(&ours) && !result("leases").contains("correct horse"), "{way}");
        assert!(!result("removed").contains("10.64.1."), "{way}: {}", result("removed"));
    }
    assert_eq!(outcome.output.matches("radio ended with 0").count(), 4, "{}", outcome.output);
}
