//! The commands that need no running daemon, and what they say when there is none.

mod program;

use std::fs;
use std::path::Path;
use std::process::Command;

use identity::{Peers, PublicKey, Registry, StateDirectory, wall_time};
use program::{Program, Ran};
use wire::join_link::JoinLink;

#[test]
fn a_gateway_is_made_once() {
    let gateway = Program::new();
    let first = gateway
        .run(&["gateway", "init", "--address", "gw.example.org:99", "--address", "::1", "--json"])
        .json();
    assert_eq!(first["public_addresses"], serde_json::json!(["gw.example.org:99", "[::1]:4600"]));
    assert_eq!(first["pool_v4"], "10.86.0.0/16");
    assert!(first["pool_v6"].as_str().unwrap().starts_with("fd"));
    assert_eq!(gateway.run(&["gateway", "init", "--json"]).json(), first);
    gateway
        .run(&["gateway", "init", "--address", "other.example"])
        .fails(2, "set public_addresses under [gateway]");
    assert!(
        gateway.file("config.toml").contains("\npublic_addresses = [\"gw.example.org:99\", \"[::1]:4600\"]")
    );
    Program::new().run(&["gateway", "init", "--address", "a b"]).fails(2, "--address a b: not a DNS name");
}

#[test]
fn without_an_address_one_is_guessed_or_asked_for() {
    let gateway = Program::new();
    let made = gateway.run(&["gateway", "init", "--json"]);
    let addresses = made.json()["public_addresses"].as_array().unwrap().len();
    assert!(addresses > 0 || made.stderr.contains("set public_addresses"), "{made:?}");
}

#[test]
fn an_invitation_goes_to_the_other_machine_and_back() {
    let gateway = Program::gateway();
    let link = gateway.invite("van");
    let parsed = JoinLink::parse(&link).unwrap();
    assert_eq!(parsed.addresses[0].to_string(), "gw.example.org:4600");

    let device = Program::new();
    let joined = device
        .run_with_input(&["join", "-", "--json"], &format!("{}\n{}\n", &link[..50], &link[50..]))
        .json();
    assert_eq!((&joined["name"], &joined["renewed"]), (&"gateway".into(), &false.into()));
    let own: PublicKey = joined["own_public_key"].as_str().unwrap().parse().unwrap();

    // What the gateway does when the device knocks.
    let state = StateDirectory::open(&gateway.state, "").unwrap();
    let mut registry = Registry::open(&state, Default::default(), None).unwrap();
    assert_eq!(registry.redeem(&parsed.secret, own, wall_time()).unwrap().client.name, "van");

    let listed = gateway.run(&["gateway", "clients", "--json"]).json();
    assert_eq!(listed["clients"][0]["name"], "van");
    assert_eq!(listed["clients"][0]["public_key"], own.to_string());
    assert_eq!(listed["invitations"], serde_json::json!([]));
    let table = gateway.run(&["gateway", "clients"]);
    assert!(table.stdout.contains("10.86.0.2") && table.stdout.starts_with("CLIENT"), "{table:?}");

    gateway.run(&["gateway", "invite", "van"]).fails(1, "a client named van has joined already");
    let forward = gateway.run(&["gateway", "forward", "8080", "--to", "80"]);
    assert_eq!(forward.stdout, "tcp port 8080 of this gateway leads to port 80 of van.\n");
    assert!(gateway.run(&["gateway", "clients"]).stdout.contains("tcp/8080->80"));
    gateway
        .run(&["gateway", "forward", "8080", "--client", "boat"])
        .fails(1, "there is no client named boat");
    gateway.run(&["gateway", "forward", "9", "--remove"]).fails(1, "tcp port 9 is not forwarded");
    assert_eq!(gateway.run(&["gateway", "forward", "8080", "--remove"]).code, 0);
    assert_eq!(gateway.run(&["gateway", "revoke", "van"]).stdout, "The client was shut out: van.\n");
    gateway
        .run(&["gateway", "revoke", "van"])
        .fails(1, "there is no client and no open invitation named van");
}

#[test]
fn a_lost_invitation_is_replaced() {
    let gateway = Program::gateway();
    gateway.invite("van");
    let again = gateway.run(&["gateway", "invite", "van", "--expires", "30m"]);
    assert!(again.stderr.contains("An older, unused invitation for van no longer works."), "{again:?}");
    assert_eq!(
        gateway.run(&["gateway", "clients", "--json"]).json()["invitations"].as_array().unwrap().len(),
        1
    );
    gateway.run(&["gateway", "invite", "van", "--expires", "soon"]).fails(2, "90s, 30m, 24h or 7d");
    gateway.run(&["gateway", "invite", "x", "--expires", "366d"]).fails(1, "1 second to 365 days");
    gateway.run(&["gateway", "invite", "a\nb"]).fails(1, "not a name");
}

#[test]
fn the_qr_code_is_drawn_beside_the_link() {
    let gateway = Program::gateway();
    let shown = gateway.run(&["gateway", "invite", "van", "--qr", "always"]);
    assert!(JoinLink::parse(&shown.stdout).is_ok(), "only the link is on standard output");
    let lines: Vec<&str> = shown.stderr.lines().filter(|line| line.starts_with("\x1b[")).collect();
    let width = |line: &str| line.chars().filter(|character| " ▀▄█".contains(*character)).count();
    assert!(lines.len() > 15 && lines.iter().all(|line| width(line) == width(lines[0])), "{shown:?}");
    assert!(!gateway.run(&["gateway", "invite", "van"]).stderr.contains("\x1b["), "not into a pipe");
}

#[test]
fn wrong_links_are_told_apart() {
    let link = Program::gateway().invite("van");
    let device = Program::new();
    let join = |text: &str| device.run_with_input(&["join"], text);
    join("").fails(2, "no join link on standard input");
    join("https://example.org").fails(2, "it should start with anabranch://join/");
    join(&link[..60]).fails(2, "cut short");
    join(&link.replacen("join/AQ", "join/CQ", 1)).fails(2, "format version 9");
    let middle = if link.as_bytes()[40] == b'A' { "B" } else { "A" };
    join(&format!("{}{middle}{}", &link[..40], &link[41..])).fails(2, "damaged");
    assert!(!device.state.exists(), "nothing is made for a link that is none");
}

#[test]
fn joining_again_is_said_and_loses_nothing() {
    let gateway = Program::gateway();
    let device = Program::new();
    let join = |arguments: &[&str]| device.run_with_input(arguments, &gateway.invite("van"));
    assert!(
        join(&["join", "-", "--name", "home"]).stdout.starts_with("Met the gateway at gw.example.org:4600")
    );
    let key = device.file("key");
    let again = join(&["join", "-"]);
    assert!(again.stdout.starts_with("Renewed what is known of the gateway"), "{again:?}");
    assert!(again.stdout.contains("Its name on this machine is home."), "{again:?}");
    assert_eq!(device.file("key"), key);
    let other = device.run_with_input(&["join", "-", "--name", "home"], &Program::gateway().invite("van"));
    other.fails(1, "another gateway is called home here; choose another name with --name");
    gateway.run_with_input(&["join", "-"], &gateway.invite("self")).fails(1, "this link was made here");
}

#[test]
fn up_says_what_is_missing() {
    let device = Program::gateway().joined();
    fs::remove_file(device.state.join("key")).unwrap();
    device.run(&["up"]).fails(1, "there is no key in");
    Program::gateway().run(&["up"]).fails(2, "which \"anabranch gateway run\" runs");
    let device = Program::new();
    fs::create_dir(&device.state).unwrap();
    fs::write(device.state.join("config.toml"), "[device]\ngateway = \"home\"\n").unwrap();
    device.run(&["up"]).fails(2, "device.gateway = \"home\" is not known here: run `anabranch join -` first");
}

#[test]
fn up_without_a_gateway_is_direct_mode() {
    let plan = Program::new().run(&["up", "--dry-run"]);
    assert_eq!(plan.code, 0, "{plan:?}");
    assert!(plan.stdout.contains("anabranch_direct_any0"), "{plan:?}");
    assert!(plan.stderr.contains("No gateway is known: each flow takes one network"), "{plan:?}");
}

#[test]
fn a_recorded_day_is_replayed_with_another_configuration() {
    let device = Program::new();
    fs::create_dir(&device.state).unwrap();
    let (trace, policy) = (device.state.join("day.jsonl"), device.state.join("other.toml"));
    let network = |id: u32, name: &str| format!("{{\"id\": {id}, \"name\": \"{name}\", \"up\": true}}");
    let networks = format!("{}, {}", network(0, "eth0"), network(1, "wwan0"));
    let flow = "{\"id\": 1, \"destination\": \"192.0.2.1\", \"protocol\": 6, \"port\": 443, \"class\": \"bulk\", \"bytes\": 1000000}";
    let at = |seconds: u32| format!("\"at\": {{\"secs\": {seconds}, \"nanos\": 0}}");
    let lines = format!(
        "{{{}, \"networks\": {{\"networks\": [{networks}]}}}}\n{{{}, \"flow\": {flow}}}\n",
        at(0),
        at(5)
    );
    fs::write(&trace, lines).unwrap();
    fs::write(
        device.state.join("config.toml"),
        "[device]\ngateway = \"none\"\n[network.wwan0]\noff = true\n",
    )
    .unwrap();
    fs::write(&policy, "[device]\ngateway = \"none\"\n[network.eth0]\noff = true\n").unwrap();
    let (trace, policy) = (trace.to_str().unwrap(), policy.to_str().unwrap());
    let answer = device.run(&["what-if", trace, "--policy", policy, "--json"]).json();
    assert_eq!((&answer["flows"], &answer["changes"][0]["before"]["over"]), (&1.into(), &"eth0".into()));
    assert_eq!(answer["changes"][0]["after"]["over"], "wwan0");
    let told = device.run(&["what-if", trace, "--policy", policy]);
    assert!(told.stdout.contains("1 of 1 flows would have gone another way"), "{told:?}");

    // Without a word about the gateway there is none where none was joined.
    fs::write(device.state.join("config.toml"), "").unwrap();
    fs::write(policy, "[network.wwan0]\nprice = 5\n[network.eth0]\nprice = 2\n").unwrap();
    let answer = device.run(&["what-if", trace, "--policy", policy, "--json"]).json();
    assert_eq!(answer["networks"]["wwan0"]["before"]["flows"], 1, "{answer}");
    assert_eq!(
        (&answer["changes"][0]["after"]["treatment"], &answer["changes"][0]["after"]["over"]),
        (&"direct".into(), &"eth0".into())
    );
    assert_eq!(answer["networks"]["eth0"]["after"]["price"], 2, "{answer}");
    fs::write(policy, "[device]\ngateway = \"home\"\n").unwrap();
    let answer = device.run(&["what-if", trace, "--policy", policy, "--json"]).json();
    assert_eq!(answer["changes"][0]["after"]["over"], "the bond");
    fs::write(trace, "{}\n").unwrap();
    device.run(&["what-if", trace, "--policy", policy]).fails(1, "line 1 is no record of a trace");
}

#[test]
fn up_needs_neither_key_nor_gateway_where_there_is_to_be_none() {
    let device = Program::new();
    fs::create_dir(&device.state).unwrap();
    fs::write(device.state.join("config.toml"), "[device]\ngateway = \"none\"\n").unwrap();
    let plan = device.run(&["up", "--dry-run"]);
    assert_eq!(plan.code, 0, "{plan:?}");
    assert!(plan.stdout.contains("anabranch_direct_any0"), "{plan:?}");
}

#[test]
fn up_takes_all_gateways_or_the_one_that_is_named() {
    let device = Program::gateway().joined();
    assert_eq!(device.run_with_input(&["join"], &Program::gateway().invite("van")).code, 0);
    let plan = |expected: &str| {
        let ran = device.run(&["up", "--dry-run"]);
        assert!(ran.code == 0 && ran.stdout.contains(expected), "{ran:?}");
    };
    plan("the addresses that gateway or gateway-2 leases");
    fs::write(device.state.join("config.toml"), "[device]\ngateway = \"gateway-2\"\n").unwrap();
    plan("the addresses that gateway-2 leases");
    fs::write(device.state.join("config.toml"), "[device]\ngateway = \"gatway\"\n").unwrap();
    device
        .run(&["up"])
        .fails(2, "device.gateway = \"gatway\" is not known here: expected one of gateway, gateway-2");
}

#[test]
fn a_wrong_configuration_is_told_with_its_line() {
    let device = Program::gateway().joined();
    fs::write(device.state.join("config.toml"), "[device]\nmtu = 90000\n").unwrap();
    let wrong =
        "config.toml, line 2: device.mtu = 90000 cannot be: expected a whole number from 1280 to 65535";
    device.run(&["up"]).fails(2, wrong);
    let other = device.directory.path().join("other.toml");
    fs::write(&other, "[device]\n\n\nschedular = 1\n").unwrap();
    let named = device.run(&["up", "--dry-run", "--config", other.to_str().unwrap()]);
    named.fails(2, "other.toml, line 4: there is no key device.schedular: did you mean scheduler?");
    device
        .run(&["up", "--config", "/nonexistent.toml"])
        .fails(2, "cannot read the configuration /nonexistent.toml");
}

#[test]
fn a_daemon_that_cannot_start_says_why_at_the_terminal() {
    let device = Program::gateway().joined();
    // The lock is what a running daemon holds; without a socket it looks like one that hangs.
    let _lock = identity::DaemonLock::take(&StateDirectory::open(&device.state, "").unwrap()).unwrap();
    let Some(mut command) = device.isolated() else { return };
    let up = Ran::from(command.arg("up").output().unwrap());
    up.fails(1, "the daemon did not start");
    assert!(up.stderr.contains("daemon.log"), "{up:?}");
    device.run(&["down"]).fails(1, "a daemon is already running on");
}

#[test]
fn without_a_daemon_commands_say_so() {
    let device = Program::gateway().joined();
    for command in [&["status"][..], &["networks"], &["events"], &["network", "wlan0", "--off"]] {
        device.run(command).fails(3, "no daemon is running here");
    }
    device.run(&["network", "wlan0"]).fails(2, "say what to change");
    let down = device.run(&["down"]);
    assert_eq!(
        (down.code, down.stdout.trim()),
        (0, "No daemon was running, and nothing was left to take back.")
    );
    assert_eq!(device.run(&["down", "--json"]).json(), serde_json::json!({ "undone": [], "failed": [] }));
    Program::new().run(&["gateway", "clients"]).fails(1, "run `anabranch gateway init` first");
    device.run(&["gateway", "clients"]).fails(1, "is not a gateway's state directory");
}

#[test]
fn a_read_only_or_foreign_state_directory_is_named() {
    let program = Program::new();
    let blocked = program.directory.path().join("file");
    fs::write(&blocked, "").unwrap();
    let run = |state: &Path| -> Ran {
        let mut command = Command::new(env!("CARGO_BIN_EXE_anabranch"));
        command.arg("--state").arg(state).args(["gateway", "init"]).output().unwrap().into()
    };
    run(&blocked).fails(1, "is not a directory; name another with --state DIR");
    run(Path::new("/proc/anabranch")).fails(1, "the state directory cannot be used");
}

#[test]
fn another_user_gets_a_code_of_its_own() {
    use std::os::unix::process::CommandExt;
    let gateway = Program::gateway();
    let mut command = gateway.command();
    command.args(["gateway", "clients"]).uid(65_534).gid(65_534).current_dir("/");
    // The program itself must be reachable for that user.
    match command.output() {
        Ok(output) => {
            let ran = Ran::from(output);
            assert_eq!(ran.code, 4, "{ran:?}");
            assert!(ran.stderr.contains("run this as root or as the owner"), "{ran:?}");
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[test]
fn damaged_peers_stop_nothing_else() {
    let device = Program::gateway().joined();
    fs::write(device.state.join("peers.toml"), "[[peer]]\nname = 5\n").unwrap();
    device.run(&["up"]).fails(1, "peers.toml is damaged");
    assert_eq!(device.run(&["down"]).code, 0);
    assert!(Peers::load(&StateDirectory::open(&device.state, "").unwrap()).is_err());
}

#[test]
fn help_names_exit_codes() {
    let help = Program::new().run(&["--help"]);
    assert!(help.stdout.contains("3  no daemon is running"), "{help:?}");
    Program::new().run(&["upp"]).fails(2, "unrecognized subcommand");
}
