//! The real NetworkManager has a Wi-Fi card that `anabranch radio up` takes over: it lets go of it, and gets it back at the end, however that
//! comes. Skipped with a reason where a part of the bed cannot be had, except in CI.

use std::path::{Path, PathBuf};

use lab::vm::scene::RadioScene;
use lab::vm::wifi::{AccessPoint, Wifi, WifiNetwork};
use lab::vm::{libraries_beside, message_bus};
use sim::NetworkSpec;

/// What NetworkManager is told of this program's interfaces, as it is installed.
const SNIPPET: &str = include_str!("../../../packaging/networkmanager/anabranch.conf");

/// With `/sys` to be read only NetworkManager finds no udev, and so waits for none. Without wpa_supplicant it cannot use the card, but has it.
const SCRIPT: &str = r#"
plugins=/usr/lib/$(uname -m)-linux-gnu/NetworkManager/$(NetworkManager --version)
mkdir -p $plugins /etc/NetworkManager/conf.d /var/lib/NetworkManager
cp /tmp/snippet /etc/NetworkManager/conf.d/anabranch.conf
mv /usr/local/bin/libnm-device-plugin-wifi.so $plugins/
printf '[main]\nplugins=keyfile\nauth-polkit=false\nno-auto-default=*\n[logging]\nlevel=INFO\n' >/etc/NetworkManager/NetworkManager.conf
message_bus
ip netns exec device sh -c 'mount -o remount,bind,ro /sys; exec NetworkManager --no-daemon' >/results/manager.log 2>&1 &
state() { at_home nmcli -t -e no -f DEVICE,STATE device status | sed -n "s/^$1://p"; }
becomes() { for _ in $(seq 100); do now=$(state $1); [ -n "$now" ] && { [ "$now" = unmanaged ] && is=no || is=yes; [ $is = $2 ] && break; }; sleep 0.1; done; echo "$3: $1 $now"; }
becomes wlan0 yes 'before' >>/results/states
radio_up; address_on wl-cafe
becomes wlan0 no 'in use' >>/results/states; becomes wl-cafe no 'in use' >>/results/states
at_home ping -q -c 5 -W 2 -I wl-cafe 10.64.1.1 >/results/ping
radio_down
becomes wlan0 yes 'after' >>/results/states
radio_up; address_on wl-cafe; becomes wlan0 no 'in use again' >>/results/states
kill -KILL $radio; wait $radio
radio_up; address_on wl-cafe; radio_down
becomes wlan0 yes 'after a crash' >>/results/states
cat /results/states /results/ping; tail -20 /results/manager.log /results/radio.log
"#;

#[test]
fn network_manager_lets_the_card_go_and_gets_it_back() {
    let Some(programs) = network_manager() else {
        println!("skipped: there is no NetworkManager (scripts/setup.sh test fetches it)");
        return;
    };
    let (bus, functions) = message_bus::parts().unwrap();
    let libraries = libraries_beside(&programs[0]).unwrap_or_default();
    let point = AccessPoint::open("cafe", 6);
    let network = WifiNetwork { link: NetworkSpec::symmetric("cafe", 10.0, 20), points: vec![point] };
    let known = "[[network]]\nssid = \"cafe\"\n";
    let script = format!(
        "{functions}export LD_LIBRARY_PATH={}\ncat >/tmp/snippet <<'END'\n{SNIPPET}END\n{SCRIPT}",
        libraries.display()
    );
    let mut scene = RadioScene::new(Wifi::new(vec![network]), known, script);
    scene.programs.extend(programs);
    scene.programs.push(bus);
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let states = outcome.text("states");
    let said: Vec<(&str, bool)> = states
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(when, state)| (when, !state.ends_with(" unmanaged")))
        .collect();
    let wanted = [
        ("before", true),
        ("in use", false),
        ("in use", false),
        ("after", true),
        ("in use again", false),
        ("after a crash", true),
    ];
    assert_eq!(said, wanted, "{states}");
    assert!(outcome.text("ping").contains("5 packets transmitted, 5 "), "{}", outcome.text("ping"));
}

/// NetworkManager, nmcli and the part for Wi-Fi: the machine's, or those that `scripts/setup.sh` has unpacked.
fn network_manager() -> Option<Vec<PathBuf>> {
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.cache/packages/network-manager");
    let roots = [PathBuf::from("/"), unpacked.canonicalize().unwrap_or(unpacked)];
    let root = roots.into_iter().find(|root| root.join("usr/sbin/NetworkManager").exists())?;
    let parts = root.join(format!("usr/lib/{}-linux-gnu/NetworkManager", std::env::consts::ARCH));
    let mut versions = std::fs::read_dir(parts).ok()?.flatten().map(|entry| entry.path());
    let plugin = versions.find_map(|version| {
        Some(version.join("libnm-device-plugin-wifi.so")).filter(|plugin| plugin.exists())
    })?;
    Some(vec![root.join("usr/sbin/NetworkManager"), root.join("usr/bin/nmcli"), plugin])
}
