//! Networks where everybody has a login of their own (802.1X), by unmodified hostapd and its own server: by password and by certificate; a
//! wrong password and a server that nobody vouches for are named. Skipped with a reason where a part of the bed cannot be had, except in CI.

use std::fs;
use std::path::Path;
use std::process::Command;

use lab::vm::program;
use lab::vm::scene::RadioScene;
use lab::vm::topology::SERVER_ADDRESS;
use lab::vm::wifi::{AccessPoint, Security, Wifi, WifiNetwork};
use sim::NetworkSpec;

/// The certificates are of the day on which the test is run, so the guest's clock goes to a later one.
const SCRIPT: &str = r#"
date -s '2045-01-01 00:00:00' >/dev/null
add() { echo "$password" | own add "$@" || echo "not added: $*"; }
password='open sesame' add office --login peap --identity me@example.org --anonymous anonymous@example.org --authority /job/authority.pem --domain radius.example.org
own add lab --login tls --identity me@example.org --authority /job/authority.pem --certificate /job/client.pem --private-key /job/client.key
password='open barley' add school --login ttls --identity you@example.org --authority /job/authority.pem
password='open sesame' add fake --login peap --identity me@example.org --authority /job/stranger.pem
password='open sesame' own add nobody --login peap --identity me@example.org >/results/refused 2>&1
radio_up; address_on wl-office; address_on wl-lab; sleep 20
for network in office lab; do at_home ping -q -c 20 -i 0.05 -W 2 -I wl-$network SERVER >/results/$network.ping; done
own list >/results/list
radio_down
grep -ls 'open sesame' /results/* >/results/secrets
grep -rlsx '.*open sesame.*' /tmp/state >>/results/secrets
cat /results/radio.log /results/list /results/refused /results/*.ping
"#;

#[test]
fn networks_with_logins() {
    let directory = tempfile::tempdir().unwrap();
    if !make_certificates(directory.path()) {
        println!("skipped: there is no openssl");
        return;
    }
    let point = |name, channel| WifiNetwork {
        link: NetworkSpec::symmetric(name, 10.0, 20),
        points: vec![AccessPoint { security: Security::Login, ..AccessPoint::open(name, channel) }],
    };
    let mut wifi = Wifi::new(vec![point("office", 1), point("lab", 1), point("school", 1), point("fake", 1)]);
    wifi.radio_channels = 2;
    for (place, name) in [
        ("/job/authority.pem", "authority.pem"),
        ("/job/stranger.pem", "stranger.pem"),
        ("/job/server.pem", "server.pem"),
        ("/job/server.key", "server.key"),
        ("/job/client.pem", "client.pem"),
        ("/job/client.key", "client.key"),
    ] {
        wifi.files.push((place, fs::read(directory.path().join(name)).unwrap()));
    }
    let users = "\"anonymous@example.org\" PEAP,TTLS\n\"me@example.org\" PEAP,TTLS,TLS\n\"you@example.org\" TTLS\n\
                 \"me@example.org\" MSCHAPV2,TTLS-MSCHAPV2 \"open sesame\" [2]\n\
                 \"you@example.org\" MSCHAPV2,TTLS-MSCHAPV2 \"another one\" [2]\n";
    wifi.files.push(("/job/users", users.into()));
    let mut scene = RadioScene::new(wifi, "", SCRIPT.replace("SERVER", SERVER_ADDRESS));
    scene.programs.push(program("wpa_supplicant", "wpasupplicant").unwrap());
    let Some(outcome) = scene.play(env!("CARGO_BIN_EXE_anabranch-lab")).unwrap() else { return };
    let log = outcome.text("radio.log");
    for network in ["office", "lab"] {
        let said = outcome.text(&format!("{network}.ping"));
        assert!(said.contains("20 packets transmitted, 20 "), "{network}: {said}");
    }
    assert!(log.contains("school: the network does not accept the login"), "{log}");
    assert!(log.contains("fake: whoever answers as this network shows a certificate"), "{log}");
    assert!(!log.contains("school: up") && !log.contains("fake: up"), "{log}");
    let list = outcome.text("list");
    for (network, parts) in [
        ("office", ["up ", " 1 ", "10.64.1."]),
        ("lab", ["up ", " 1 ", "10.64.2."]),
        ("school", ["searching", "school: ", "does not accept the login"]),
        ("fake", ["searching", "fake: ", "do not vouch for"]),
    ] {
        let told: Vec<&str> = list.lines().filter(|line| line.starts_with(network)).collect();
        assert!(parts.iter().all(|part| told.iter().any(|line| line.contains(part))), "{list}");
    }
    let refused = outcome.text("refused");
    assert!(refused.contains("--authority"), "{refused}");
    assert_eq!(outcome.text("secrets").trim(), "/tmp/state/radio/radio.toml");
}

/// An authority with a server and a client, and another authority that vouches for nobody.
fn make_certificates(directory: &Path) -> bool {
    let openssl = |arguments: &str| {
        let output = Command::new("openssl").current_dir(directory).args(arguments.split(' ')).output();
        output.is_ok_and(|output| output.status.success())
    };
    let authority = |name: &str| {
        openssl(&format!(
            "req -x509 -newkey rsa:2048 -nodes -days 36500 -subj /CN={name} -keyout {name}.key -out {name}.pem"
        ))
    };
    let vouched = |name: &str, subject: &str| {
        let names = format!("subjectAltName=DNS:{subject}\n");
        fs::write(directory.join("names"), names).is_ok()
            && openssl(&format!(
                "req -newkey rsa:2048 -nodes -subj /CN={subject} -keyout {name}.key -out {name}.csr"
            ))
            && openssl(&format!(
                "x509 -req -in {name}.csr -CA authority.pem -CAkey authority.key -CAcreateserial -days 36500 -extfile names -out {name}.pem"
            ))
    };
    authority("authority")
        && authority("stranger")
        && vouched("server", "radius.example.org")
        && vouched("client", "me.example.org")
}
