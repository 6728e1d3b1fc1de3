//! A report of a daemon that is made up, with secrets beside it.

#[path = "../../daemon/examples/made_up/mod.rs"]
mod made_up;
mod program;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use anabranch::control::Role;
use daemon::control::{Callers, ControlServer};
use identity::StateDirectory;
use made_up::MadeUp;
use program::Program;

#[test]
fn what_is_gathered_keeps_no_secret() {
    let program = Program::new();
    let state = StateDirectory::create(program.state.clone()).unwrap();
    let backend = Arc::new(MadeUp::new(Role::Device, 4, &state).unwrap());
    let _server = ControlServer::start(&state, Callers::of_state(&state, None).unwrap(), backend).unwrap();
    let write = |name: &str, text: &str| fs::write(program.state.join(name), text).unwrap();
    write(
        "config.toml",
        "name = \"van\" # of Karl\n[[rule]]\nname = \"tv\"\ndomain = \"tv.example\"\ndecide = { treatment = \"direct\" }\n",
    );
    write("web-token", "abcdefghijklmnopqrstuvwxyz234567\n");
    write(
        "daemon.log",
        "joins \"Blue Door\" with correct horse battery; 198.51.100.7 said no, token abcdefghijklmnopqrstuvwxyz234567\n",
    );
    fs::create_dir(program.state.join("radio")).unwrap();
    write("radio/radio.toml", "[[network]]\nssid = \"Blue Door\"\npassphrase = \"correct horse battery\"\n");

    let path = program.directory.path().join("report.txt");
    let arguments = ["report", "--output", path.to_str().unwrap()];
    let ran = program.run(&arguments);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stderr.contains("read the file before"), "{ran:?}");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(&path).unwrap();
    for part in [
        "==== Status",
        "\"carries data\"",
        "==== Flows",
        "[program-1]",
        "[ipv4-1]",
        "[ssid-",
        "the daemon has started",
        "eth0",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for secret in [
        "192.0.2.1",
        "198.51.100.",
        "firefox",
        "rsync",
        "Café <b>",
        "Blue Door",
        "correct horse",
        "abcdefghijkl",
        "tv.example",
        "Karl",
        "\"van\"",
    ] {
        assert!(!text.contains(secret), "{secret} is in\n{text}");
    }
    let kept = ["localhost", "debian", "daemon"].contains(&host.trim()) || host.trim().len() < 2;
    assert!(
        kept || !text
            .split(|letter: char| !letter.is_alphanumeric() && letter != '-')
            .any(|word| word == host.trim())
    );

    program.run(&arguments).fails(1, "exists; move it away");
    let none = Program::new();
    let ran = none.run(&["report", "--output", "-"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("could not be had: no daemon is running here"), "{ran:?}");
}
