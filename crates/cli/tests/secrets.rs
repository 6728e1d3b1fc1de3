//! Keys and invitation secrets: never in arguments of a process, never in a log, never where others can read.
#![expect(clippy::unwrap_used, reason = "a test that cannot be set up must fail")]

mod program;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use program::{Program, Ran};
use wire::join_link::JoinLink;

/// Every way in which the private key and the invitation's secret could be written.
fn secrets(gateway: &Program, device: &Program, link: &str) -> Vec<String> {
    let mut found = vec![link.trim().split("join/").nth(1).unwrap().to_owned()];
    let mut raw = vec![JoinLink::parse(link).unwrap().secret.0.to_vec()];
    for program in [gateway, device] {
        let state = identity::StateDirectory::open(&program.state, "").unwrap();
        raw.push(identity::KeyPair::load(&state).unwrap().private_bytes().to_vec());
    }
    for bytes in raw {
        found.push(data_encoding::HEXLOWER.encode(&bytes));
        found.push(data_encoding::BASE32_NOPAD.encode(&bytes).to_lowercase());
        found.push(data_encoding::BASE64_NOPAD.encode(&bytes).to_lowercase());
        found.push(data_encoding::BASE64URL_NOPAD.encode(&bytes).to_lowercase());
        found.push(format!("{bytes:?}").trim_matches(['[', ']']).to_owned());
    }
    found.iter().map(|secret| secret.to_lowercase()).collect()
}

fn assert_clean(text: &str, secrets: &[String], place: &str) {
    let text = text.to_lowercase();
    for secret in secrets {
        assert!(!text.contains(secret.as_str()), "a secret stands in {place}");
    }
}

/// The arguments and environment of each process that names `marker` now.
fn processes(marker: &Path) -> Vec<String> {
    let marker = marker.to_str().unwrap();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| {
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let arguments = String::from_utf8_lossy(&read("cmdline")).replace('\0', " ");
            let environment = String::from_utf8_lossy(&read("environ")).into_owned();
            arguments.contains(marker).then(|| format!("{arguments}{environment}"))
        })
        .collect()
}

/// The same, looked at until `child` has ended.
fn watch(child: Child, marker: &Path) -> (Ran, BTreeSet<String>) {
    let waiter = std::thread::spawn(move || Ran::from(child.wait_with_output().unwrap()));
    let mut seen = BTreeSet::new();
    let started = Instant::now();
    while !waiter.is_finished() && started.elapsed() < Duration::from_secs(60) {
        seen.extend(processes(marker));
        std::thread::sleep(Duration::from_millis(2));
    }
    (waiter.join().unwrap(), seen)
}

fn spawn(mut command: Command, arguments: &[&str]) -> Child {
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.env("ANABRANCH_LOG", "trace").spawn().unwrap()
}

#[test]
fn no_secret_in_arguments_logs_or_output() {
    let gateway = Program::gateway();
    let link = gateway.invite("van");
    let device = Program::new();

    let mut join = spawn(device.command(), &["join", "-"]);
    let mut input = join.stdin.take().unwrap();
    let text = link.clone();
    let writer = std::thread::spawn(move || {
        // Long enough to be seen in the list of processes.
        std::thread::sleep(Duration::from_millis(200));
        input.write_all(text.as_bytes()).unwrap();
    });
    let (joined, join_arguments) = watch(join, &device.state);
    writer.join().unwrap();
    assert_eq!(joined.code, 0, "{joined:?}");
    assert!(!join_arguments.is_empty(), "the process was seen");

    let secrets = secrets(&gateway, &device, &link);
    let mut places = vec![("output of join".to_owned(), format!("{}{}", joined.stdout, joined.stderr))];
    places.extend(join_arguments.into_iter().map(|seen| ("arguments of join".to_owned(), seen)));

    // Without networks the daemon finds no gateway; it starts, logs, and waits all the same.
    let Some(command) = device.isolated() else { return };
    let (up, mut up_arguments) = watch(spawn(command, &["up"]), &device.state);
    // The daemon goes on.
    up_arguments.extend(processes(&device.state));
    assert!(up_arguments.len() > 1, "the daemon was seen beside the command");
    places.push(("output of up".to_owned(), format!("{}{}", up.stdout, up.stderr)));
    places.extend(up_arguments.into_iter().map(|seen| ("arguments of up".to_owned(), seen)));
    let down = device.run(&["down"]);
    places.push(("output of down".to_owned(), format!("{down:?}")));

    for arguments in
        [&["gateway", "clients"][..], &["gateway", "clients", "--json"], &["gateway", "revoke", "van"]]
    {
        places.push((format!("output of {arguments:?}"), format!("{:?}", gateway.run(arguments))));
    }
    for program in [&gateway, &device] {
        for entry in fs::read_dir(&program.state).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o007, 0, "others may use {}", path.display());
            let name = path.file_name().unwrap().to_str().unwrap();
            // The two files that hold secrets, and must.
            if !["key", "peers.toml"].contains(&name) {
                places
                    .push((name.to_owned(), String::from_utf8_lossy(&fs::read(&path).unwrap()).into_owned()));
            }
        }
    }
    assert!(places.iter().any(|(place, _)| place == "daemon.log"), "the daemon has a log");
    assert!(places.iter().any(|(place, _)| place == "gateway.sqlite"), "the gateway has a registry");
    for (place, text) in places {
        assert_clean(&text, &secrets, &place);
    }
}

#[test]
fn a_link_in_the_arguments_is_warned_about() {
    let link = Program::gateway().invite("van");
    let device = Program::new();
    let joined = device.run(&["join", &link]);
    assert_eq!(joined.code, 0, "{joined:?}");
    assert!(
        joined.stderr.contains("can be seen by other users of this machine; `anabranch join -`"),
        "{joined:?}"
    );
    assert!(!joined.stderr.contains(&link));
}
