//! State directories that older versions have written, opened by this one: see old_state/README.md.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod program;
mod running;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use identity::{KeyPair, StateDirectory, WebToken};
use linux::netns::Namespace;
use program::Ran;
use running::Running;

/// All versions whose state is kept.
fn versions() -> Vec<PathBuf> {
    let entries = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/old_state")).unwrap();
    let mut found: Vec<PathBuf> =
        entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()).collect();
    found.sort();
    assert!(!found.is_empty());
    found
}

/// A copy of a version's state with the modes that its program gave it, which the repository does not keep.
fn copy(from: &Path) -> tempfile::TempDir {
    fn below(from: &Path, to: &Path) {
        fs::create_dir_all(to).unwrap();
        fs::set_permissions(to, fs::Permissions::from_mode(0o700)).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let (path, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
            if path.is_dir() {
                below(&path, &to);
            } else {
                fs::copy(path, &to).unwrap();
                fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).unwrap();
            }
        }
    }
    let directory = tempfile::tempdir().unwrap();
    // The daemon gives up root.
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["gateway", "device"] {
        below(&from.join(name), &directory.path().join(name));
    }
    directory
}

fn run(state: &Path, arguments: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
    command.env_remove("ANABRANCH_STATE").env_remove("ANABRANCH_LOG").stdin(Stdio::null());
    command.arg("--state").arg(state).args(arguments).output().unwrap().into()
}

#[test]
fn everything_that_was_known_still_is() {
    for version in versions() {
        let state = copy(&version);
        let (gateway, device) = (state.path().join("gateway"), state.path().join("device"));
        let key_before = fs::read_to_string(version.join("device/key")).unwrap();
        let key = KeyPair::load(&StateDirectory::open(&device, "").unwrap()).unwrap().public();
        assert!(key_before.contains(&format!("public {key}\n")), "{key_before}");

        let known = run(&gateway, &["gateway", "clients", "--json"]).json();
        assert_eq!(known["clients"][0]["name"], "van", "{known}");
        assert_eq!(known["clients"][0]["public_key"], key.to_string().as_str(), "{known}");
        assert!(known["clients"][0].to_string().contains("10.86.0.2"), "{known}");
        assert!(known["clients"][0].to_string().contains("8080"), "the port that leads to it: {known}");
        let before = run(&gateway, &["gateway", "init", "--json"]).json();
        let gateway_key = fs::read_to_string(gateway.join("key")).unwrap();
        assert!(gateway_key.contains(before["public_key"].as_str().unwrap()));

        let peers = run(&device, &["peers", "--seconds", "1", "--json"]);
        assert!(peers.stdout.contains("farm"), "{peers:?}");
        let groups = run(&device, &["group", "list", "--json"]).json();
        assert_eq!(groups[0]["group"], "family", "{groups}");
        let networks = run(&device, &["radio", "list", "--json"]).json();
        let network =
            |at: usize| (&networks[at]["ssid"], &networks[at]["protected"], &networks[at]["weight"]);
        assert_eq!(network(0), (&"home".into(), &true.into(), &1.into()), "{networks}");
        assert_eq!(network(1), (&"station".into(), &false.into(), &2.into()), "{networks}");
        assert!(fs::read_to_string(device.join("radio/radio.toml")).unwrap().contains("correct horse"));
        let token = WebToken::load(&StateDirectory::open(&device, "").unwrap()).unwrap();
        assert_eq!(token.text(), fs::read_to_string(version.join("device/web-token")).unwrap().trim());
    }
}

/// The device was killed when this state was made: its daemon first takes back what is in the journal, then meets the gateway, which
/// lets it in as it did before.
#[test]
fn daemons_start_with_it_and_meet() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root");
    }
    for version in versions() {
        let state = copy(&version);
        let (here, there) = (Namespace::anonymous().unwrap(), Namespace::anonymous().unwrap());
        here.join(&there, "wan0", "eth0").unwrap();
        here.add_address("wan0", "192.0.2.2/24".parse().unwrap()).unwrap();
        there.add_address("eth0", "192.0.2.1/24".parse().unwrap()).unwrap();
        for (machine, cable) in [(&here, "wan0"), (&there, "eth0")] {
            machine.set_up("lo", true).unwrap();
            machine.set_up(cable, true).unwrap();
        }
        let ip = |words: &str| {
            let output = here.command("ip").unwrap().args(words.split(' ')).output().unwrap();
            assert!(output.status.success(), "{words}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        ip("route add default via 192.0.2.1");
        // What the killed daemon had left: its journal says what was before.
        ip("rule add priority 32510 not fwmark 0xab51 lookup 43857");
        here.set_sysctl("net/netfilter/nf_conntrack_acct", "1").unwrap();

        let on = |machine: &Namespace, name: &str, words: &[&str]| {
            let mut command = machine.command(env!("CARGO_BIN_EXE_anabranch")).unwrap();
            command.env_remove("ANABRANCH_STATE").arg("--state").arg(state.path().join(name)).args(words);
            command
        };
        let start = |machine: &Namespace, name: &str, words: &[&str]| {
            let log = fs::File::create(state.path().join(format!("{name}.log"))).unwrap();
            Running(on(machine, name, words).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap())
        };
        let _gateway = start(&there, "gateway", &["gateway", "run"]);
        let mut device = start(&here, "device", &["up", "--foreground"]);
        let address = || {
            let told = here.command("ip").unwrap().args(["address", "show", "any0"]).output().unwrap();
            String::from_utf8_lossy(&told.stdout).into_owned()
        };
        let end = Instant::now() + Duration::from_secs(20);
        // The address that it had before.
        while !address().contains("10.86.0.2") {
            let logs = ["gateway", "device"]
                .map(|name| fs::read_to_string(state.path().join(format!("{name}.log"))));
            assert!(Instant::now() < end, "{}: no connection: {logs:?}", version.display());
            std::thread::sleep(Duration::from_millis(100));
        }
        assert!(on(&here, "device", &["down"]).status().unwrap().success());
        device.0.wait().unwrap();
        assert!(!ip("rule list").contains("43857"), "{}", ip("rule list"));
        let accounting = here.run(|| fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_acct"));
        assert_eq!(accounting.unwrap().unwrap().trim(), "0", "as the old journal has it");
    }
}

/// As `gateway renew` asks a newer version: if that could not start after all, the older one must be able to.
#[test]
fn a_look_whether_it_could_start_changes_nothing() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: not root");
    }
    for version in versions() {
        let state = copy(&version);
        let gateway = state.path().join("gateway");
        let registry = gateway.join("gateway.sqlite");
        // `PRAGMA user_version` is at byte 60 of a database (https://sqlite.org/fileformat2.html).
        let mut bytes = fs::read(&registry).unwrap();
        bytes[60..64].copy_from_slice(&1_u32.to_be_bytes());
        fs::write(&registry, &bytes).unwrap();
        let ran = run(&gateway, &["gateway", "run", "--dry-run"]);
        assert!(ran.code == 0 && ran.stdout.contains("interface any0"), "{ran:?}");
        assert!(fs::read(&registry).unwrap() == bytes, "the registry was changed");
    }
}

#[test]
fn what_a_newer_version_wrote_is_refused_and_left_as_it_is() {
    let newest = versions().pop().unwrap();
    let state = copy(&newest);
    let (gateway, device) = (state.path().join("gateway"), state.path().join("device"));
    let refused = |state: &Path, file: &str, words: &[&str], says: &str| {
        let before = fs::read(state.join(file)).unwrap();
        let ran = run(state, words);
        assert!(ran.code != 0 && ran.stderr.contains(says), "no \"{says}\" in {ran:?}");
        assert!(fs::read(state.join(file)).unwrap() == before, "{file} was changed");
    };

    let registry = gateway.join("gateway.sqlite");
    let mut bytes = fs::read(&registry).unwrap();
    bytes[60..64].copy_from_slice(&99_u32.to_be_bytes());
    fs::write(&registry, &bytes).unwrap();
    let newer = "registry has version 99, this program knows versions up to";
    refused(&gateway, "gateway.sqlite", &["gateway", "clients"], newer);
    refused(&gateway, "gateway.sqlite", &["gateway", "init"], newer);

    let change = |file: &str, old: &str, new: &str| {
        let text = fs::read_to_string(device.join(file)).unwrap();
        assert!(text.contains(old), "{text}");
        fs::write(device.join(file), text.replacen(old, new, 1)).unwrap();
    };
    change("peers.toml", "kind =", "colour = \"red\"\nkind =");
    refused(&device, "peers.toml", &["peers", "--seconds", "1"], "peers.toml");
    change("groups.toml", "joined =", "colour = \"red\"\njoined =");
    refused(&device, "groups.toml", &["group", "list"], "groups.toml");
    change("radio/radio.toml", "weight =", "colour = \"red\"\nweight =");
    refused(&device, "radio/radio.toml", &["radio", "list"], "radio.toml");
    change("undo.json", "\"routing_table\"", "\"colour\"");
    refused(&device, "undo.json", &["down"], "undo.json");
    change("key", "anabranch key 1", "anabranch key 2");
    refused(&device, "key", &["receive", "--count", "1"], "key");
}
