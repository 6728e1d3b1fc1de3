//! A device in direct mode as its users have it: the program itself, started, asked, killed and taken back. Needs root, and is left
//! out without.
#![expect(clippy::unwrap_used, reason = "a failed step of a test may panic")]

mod bed;
mod running;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use bed::{Bed, CABLES, wait_until};
use linux::netns::Namespace;
use running::Running;
use serde_json::Value;

const SERVER: &str = "203.0.113.9";
const PORT: &str = "8000";

/// The near machine is the device, and the far one both routers and a server that says by which cable somebody came.
struct Device {
    bed: Bed,
    /// The program where every user can start it.
    program: PathBuf,
    hosts: PathBuf,
}

impl Device {
    fn new() -> Option<Self> {
        let bed = Bed::new()?;
        bed.far.add_address("lo", format!("{SERVER}/32").parse().unwrap()).unwrap();
        for (number, cable) in CABLES.into_iter().enumerate() {
            let (any, via) = ("0.0.0.0/0".parse().unwrap(), format!("10.8.{number}.2").parse().ok());
            bed.near.add_route(cable, any, via, Some(100 + number as u32)).unwrap();
        }
        let listener = bed.far.run(|| TcpListener::bind(format!("{SERVER}:{PORT}"))).unwrap().unwrap();
        std::thread::spawn(move || {
            while let Ok((mut stream, peer)) = listener.accept() {
                let cable = if peer.ip().to_string().starts_with("10.8.0.") { 0 } else { 1 };
                drop(stream.write_all(CABLES[cable].as_bytes()));
            }
        });
        fs::set_permissions(bed.path(""), fs::Permissions::from_mode(0o755)).unwrap();
        let (program, hosts) = (bed.path("anabranch"), bed.path("hosts"));
        fs::copy(env!("CARGO_BIN_EXE_anabranch"), &program).unwrap();
        fs::write(&hosts, format!("127.0.0.1 localhost\n{SERVER} server.example\n")).unwrap();
        fs::create_dir(bed.path("near")).unwrap();
        fs::write(
            bed.path("near/config.toml"),
            "[device]\ngateway = \"none\"\ndns = \"off\"\nprobe = \"off\"\n",
        )
        .unwrap();
        Some(Self { bed, program, hosts })
    }

    /// The program on the device, with a name that is known to it alone.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.bed.near.command("unshare").unwrap();
        let script = "mount --bind \"$1\" /etc/hosts && shift && exec \"$@\"";
        command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(&self.hosts);
        command.arg(&self.program).arg("--state").arg(self.bed.path("near")).args(arguments);
        command
    }

    fn said(&self, arguments: &[&str]) -> String {
        text(&self.command(arguments).output().unwrap())
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.said(arguments)).unwrap()
    }

    fn up(&self) -> Running {
        let mut command = self.command(&["up", "--foreground"]);
        let daemon = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        // What a killed one has left is taken back before the new one is up.
        wait_until("the daemon is up", || {
            let status = self.command(&["status", "--json"]).output().unwrap().stdout;
            serde_json::from_slice::<Value>(&status).is_ok_and(|status| status["state"] == "up")
        });
        wait_until("new flows are led out", || listing(&self.bed.near).contains("numgen inc"));
        daemon
    }

    /// The cables by which calls came that a program made which was started so.
    fn cables(&self, start: impl Fn() -> Command) -> BTreeSet<String> {
        let call = format!("exec 3<>/dev/tcp/{SERVER}/{PORT}; cat <&3");
        (0..12).map(|_| text(&start().args(["bash", "-c", &call]).output().unwrap())).collect()
    }

    /// Of a program that nobody holds.
    fn usual_cables(&self) -> BTreeSet<String> {
        self.cables(|| self.bed.near.command("env").unwrap())
    }

    fn as_daemon_user(&self) -> Command {
        let mut command = self.bed.near.command("setpriv").unwrap();
        command.args(["--reuid=daemon", "--clear-groups", "--inh-caps=-all"]).arg(&self.program);
        command
    }
}

#[track_caller]
fn text(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// All that direct mode could leave behind.
fn listing(machine: &Namespace) -> String {
    let script = "nft list ruleset; ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; ls /sys/class/net";
    let all = text(&machine.command("sh").unwrap().args(["-c", script]).output().unwrap());
    // The kernel adds link-local routes once it has checked its addresses, at a time of its own.
    all.lines()
        .filter(|line| !line.contains("fe80:") && !line.contains("ff00::/8"))
        .collect::<Vec<_>>()
        .join("\n")
}

fn only(cable: &str) -> BTreeSet<String> {
    [cable.to_owned()].into()
}

#[test]
fn programs_and_destinations_are_held() {
    let Some(device) = Device::new() else { return };
    let mut daemon = device.up();
    assert_eq!(device.usual_cables().len(), 2);
    for cable in CABLES {
        assert_eq!(device.cables(|| device.command(&["run", "--network", cable, "--"])), only(cable));
    }
    assert_eq!(device.cables(|| device.command(&["run", "--treat", "direct", "--"])).len(), 2);
    let no_gateway = device.command(&["run", "--treat", "duplicated", "--", "true"]).output().unwrap();
    let why = String::from_utf8_lossy(&no_gateway.stderr).into_owned();
    assert!(!no_gateway.status.success() && why.contains("gateway"), "{why}");

    // Somebody who may not even see the state directory.
    let by_user = |arguments: &[&str]| {
        let mut command = device.as_daemon_user();
        command.args(arguments);
        command
    };
    let held = device.cables(|| by_user(&["run", "--interface", "any0", "--network", CABLES[1], "--"]));
    assert_eq!(held, only(CABLES[1]));
    text(
        &by_user(&["pin", "--interface", "any0", "203.0.113.0/24", "--network", CABLES[0]]).output().unwrap(),
    );
    let rules: Value =
        serde_json::from_str(&text(&by_user(&["rules", "--interface", "any0", "--json"]).output().unwrap()))
            .unwrap();
    let pins: Vec<&str> = rules.as_array().unwrap().iter().filter_map(|rule| rule["name"].as_str()).collect();
    let pin = pins.iter().find(|name| name.starts_with("pin-")).unwrap_or_else(|| panic!("{rules}"));
    assert_eq!(device.usual_cables().len(), 2, "another user's pin is nobody else's");
    text(&by_user(&["unpin", "--interface", "any0", pin]).output().unwrap());

    // A name may have several addresses, so there is a list of answers.
    let explain = |name: &str| device.json(&["explain", "--json", &format!("{name}:{PORT}")])[0].clone();
    assert_eq!(explain(SERVER)["rule"], Value::Null);
    assert!(
        explain(SERVER)["outcome"].as_str().unwrap().contains("dealt out over cable0 (50 %), cable1 (50 %)")
    );
    let pinned = device.json(&["pin", "--json", "203.0.113.0/24", "--network", CABLES[1]]);
    let pin = pinned["name"].as_str().unwrap();
    assert!(device.said(&["rules"]).contains(pin));
    assert_eq!(explain(SERVER)["rule"], pinned["name"]);
    assert!(explain(SERVER)["outcome"].as_str().unwrap().contains("cable1 (100 %)"), "{}", explain(SERVER));
    assert_eq!(device.usual_cables(), only(CABLES[1]));
    device.said(&["unpin", pin]);
    assert_eq!(device.usual_cables().len(), 2);

    let by_name = device.json(&["pin", "--json", "--domain", "server.example", "--network", CABLES[0]]);
    assert_eq!(device.usual_cables(), only(CABLES[0]));
    assert!(device.said(&["rules"]).contains(SERVER), "{}", device.said(&["rules"]));
    assert_eq!(explain("server.example")["rule"], by_name["name"]);
    device.said(&["unpin", by_name["name"].as_str().unwrap()]);
    assert_eq!(device.usual_cables().len(), 2);
    let unknown = device.command(&["pin", "203.0.113.0/24", "--network", "cable7"]).output().unwrap();
    let why = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(!unknown.status.success() && why.contains("cable7") && why.contains("cable0"), "{why}");
    device.said(&["down"]);
    assert!(daemon.0.wait().unwrap().success());
}

/// Both processes are killed, at whatever point of the start, and once everything is in use.
#[test]
fn nothing_is_left_of_a_daemon_that_is_killed() {
    let Some(device) = Device::new() else { return };
    let before = listing(&device.bed.near);
    let kill = |daemon: Running| {
        let parent = daemon.0.id().to_string();
        // So that it starts no other one meanwhile.
        assert!(Command::new("kill").args(["-STOP", &parent]).status().unwrap().success());
        let children = Command::new("pgrep").args(["--parent", &parent]).output().unwrap().stdout;
        drop(daemon);
        // The process without privileges ends by itself when the one that watches it is gone.
        for child in String::from_utf8(children).unwrap().lines() {
            wait_until("its other process has ended", || !Path::new("/proc").join(child).exists());
        }
    };
    let has_journal = || device.bed.path("near/undo.json").exists();
    let taken_back = |when: &str| {
        device.said(&["down"]);
        let after = listing(&device.bed.near);
        assert!(after == before, "killed {when}:\n{after}");
    };
    let mut in_the_middle = 0;
    for milliseconds in [5, 20, 50, 90, 140, 200, 280, 400, 600] {
        let mut command = device.command(&["up", "--foreground"]);
        let daemon = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(milliseconds));
        kill(daemon);
        in_the_middle += usize::from(has_journal());
        taken_back(&format!("{milliseconds} ms after its start"));
    }
    // However slow the machine is: after the first change, and with all in place.
    for sign in ["lookup", "table inet anabranch_direct"] {
        let before = listing(&device.bed.near).matches(sign).count();
        let mut command = device.command(&["up", "--foreground"]);
        let daemon = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        wait_until("it has changed the machine", || listing(&device.bed.near).matches(sign).count() > before);
        kill(daemon);
        in_the_middle += usize::from(has_journal());
        taken_back(sign);
    }
    assert!(in_the_middle >= 2, "{in_the_middle}");
    let daemon = device.up();
    let mut held = device.command(&["run", "--network", CABLES[1], "--", "sleep", "600"]);
    let held = Running(held.stdout(Stdio::null()).spawn().unwrap());
    wait_until("a program is held", || device.said(&["rules"]).contains("run-1"));
    device.said(&["pin", "203.0.113.0/24", "--network", CABLES[1]]);
    assert_eq!(device.usual_cables(), only(CABLES[1]));
    assert_ne!(listing(&device.bed.near), before);
    kill(daemon);
    drop(held);
    taken_back("in use");

    // And the next start needs nobody to clean up.
    kill(device.up());
    let mut daemon = device.up();
    assert_eq!(device.usual_cables().len(), 2);
    device.said(&["down"]);
    assert!(daemon.0.wait().unwrap().success());
    assert!(listing(&device.bed.near) == before);
}
