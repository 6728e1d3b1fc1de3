//! The service on the message bus: the real bus with the machine's own system configuration and the packaged policy, the real polkitd with the packaged
//! actions, in mounts and processes of their own.

use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use anabranch::control::SessionState;
use linux::dbus::{Bus, BusError, Message, Value};
use policy::Priority;

use crate::bed::{Bed, Daemon, eventually, within};

const POLKITD: &str = "/usr/lib/polkit-1/polkitd";
const NAME: &str = "org.anabranch";
const GATEWAY: &str = "org.anabranch.Gateway";
const ROOT: &str = "/org/anabranch";
const DAEMON: &str = "org.anabranch.Daemon1";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";
/// busctl's words for it.
const DENIED: &str = "Access denied";
/// A user who owns nothing here.
const VISITOR: &str = "64997";

/// As process 1 of its own: users, a `/run` and the packaged files, then bus, polkit and the daemon.
const SCRIPT: &str = r#"
set -e
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/dbus
cp /etc/passwd "$WORK/passwd"
cp /etc/group "$WORK/group"
grep -q ^anabranch: /etc/passwd || {
	echo "anabranch:x:64998:64998::/:/bin/false" >>"$WORK/passwd"
	echo "anabranch:x:64998:" >>"$WORK/group"
}
echo "visitor:x:64997:64997::/:/bin/false" >>"$WORK/passwd"
mount --bind "$WORK/passwd" /etc/passwd
mount --bind "$WORK/group" /etc/group
cp -r /usr/share/dbus-1/system.d "$WORK/system.d"
cp "$PACKAGING/dbus/org.anabranch.conf" "$WORK/system.d/"
mount --bind "$WORK/system.d" /usr/share/dbus-1/system.d
cp -r /usr/share/polkit-1/actions "$WORK/actions"
cp "$PACKAGING/polkit/org.anabranch.policy" "$WORK/actions/"
mount --bind "$WORK/actions" /usr/share/polkit-1/actions
mount --bind "$WORK/rules" /etc/polkit-1/rules.d
dbus-daemon --system --nofork --nopidfile &
echo $! >"$WORK/bus.pid"
until [ -e /run/dbus/system_bus_socket ]; do sleep 0.02; done
"$POLKITD" --no-debug &
echo $! >"$WORK/polkit.pid"
until busctl --system status org.freedesktop.PolicyKit1 >/dev/null 2>&1; do sleep 0.05; done
exec "$@"
"#;

/// What is missing for this test.
fn missing() -> Option<String> {
    let runs = |program: &str, argument: &str| {
        Command::new(program).arg(argument).output().is_ok_and(|output| output.status.success())
    };
    let missing = if !Path::new(POLKITD).exists() {
        "polkitd"
    } else if !runs("dbus-daemon", "--version") {
        "dbus-daemon"
    } else if !runs("busctl", "--version") {
        "busctl"
    } else {
        return None;
    };
    assert!(std::env::var_os("CI").is_none(), "{missing} is missing (scripts/setup.sh test installs it)");
    Some(missing.to_owned())
}

struct Desktop {
    bed: Bed,
    /// The daemon's name on the bus.
    name: &'static str,
    daemon: Option<Daemon>,
    _gateway: Option<Daemon>,
    work: PathBuf,
}

impl Desktop {
    /// With a device on the bus.
    fn start() -> Self {
        Self::of("device", NAME)
    }

    fn of(role: &str, name: &'static str) -> Self {
        let bed = Bed::new(false);
        bed.write_config("device", "[device]\ndns = \"off\"\n");
        let work = bed.directory("bus");
        fs::create_dir(&work).unwrap();
        fs::create_dir(work.join("rules")).unwrap();
        // polkitd is a user of its own, to whom the test's directories are closed; where they are mounted they are not.
        for directory in [work.clone(), work.join("rules")] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let is_device = role == "device";
        let gateway = is_device.then(|| {
            let gateway = bed.start("gateway");
            bed.join();
            gateway
        });
        let space = if is_device { &bed.device } else { &bed.gateway };
        let mut command = space.command("unshare").unwrap();
        command.args([
            "--mount",
            "--propagation",
            "private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]);
        command
            .args(["sh", "-c", SCRIPT, "sh"])
            .env("WORK", &work)
            .env("POLKITD", POLKITD)
            .env("PACKAGING", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging"));
        let child = bed.arguments(role, &mut command).spawn().unwrap();
        let daemon = bed.answering(role, child);
        if is_device {
            bed.wait_until_up();
        }
        let desktop = Self { bed, name, daemon: Some(daemon), _gateway: gateway, work };
        eventually("the service is on the bus", || desktop.busctl("0", &["status", name]).status.success());
        desktop
    }

    /// Process 1 of the desktop: the process that was started is unshare, which stays outside of what it makes for its child.
    fn first_process(&self) -> String {
        let outside = self.daemon.as_ref().unwrap().id().to_string();
        let children = fs::read_to_string(format!("/proc/{outside}/task/{outside}/children")).unwrap();
        children.trim().to_owned()
    }

    /// A program there, as a user.
    fn command(&self, user: &str, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--net", "--pid", "--target", &self.first_process()]);
        command.args(["setpriv", "--reuid", user, "--regid", user, "--clear-groups"]).args(program);
        command
    }

    fn busctl(&self, user: &str, arguments: &[&str]) -> Output {
        self.command(user, &[&["busctl", "--system", "--timeout=30"], arguments].concat()).output().unwrap()
    }

    /// What a call of the daemon's interface says, or the error.
    fn call(&self, user: &str, arguments: &[&str]) -> Result<String, String> {
        said(self.busctl(user, &[&["call", self.name, ROOT, DAEMON], arguments].concat()))
    }

    fn state(&self, user: &str) -> Result<String, String> {
        said(self.busctl(user, &["get-property", self.name, ROOT, DAEMON, "State"]))
    }

    /// Adds a rule of polkit's.
    fn rule(&self, action: &str) {
        let text = format!(
            "polkit.addRule(function(action, subject) {{\n  if (action.id == \"{action}\" && subject.user == \"visitor\") return \
             polkit.Result.YES;\n}});\n"
        );
        fs::write(self.work.join(format!("rules/10-{action}.rules")), text).unwrap();
    }

    /// A connection to the bus as root, from outside.
    fn bus(&self) -> Bus {
        Bus::at(&format!("/proc/{}/root/run/dbus/system_bus_socket", self.first_process())).unwrap()
    }
}

fn said(output: Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

fn to_daemon(member: &str, body: Vec<Value>) -> Message {
    Message::call([NAME, ROOT, DAEMON, member], body)
}

pub fn polkit_decides_who_may_what_on_the_bus() {
    if let Some(program) = missing() {
        println!("skipped: there is no {program} (scripts/setup.sh test installs it)");
        return;
    }
    let mut desktop = Desktop::start();
    who_may_what(&desktop);
    whoever_has_read_hears_of_changes(&desktop);
    nonsense_is_answered(&desktop);
    the_bus_is_killed_and_comes_back(&desktop);
    assert!(desktop.daemon.take().unwrap().wait(), "the daemon ends well");
}

pub fn a_gateway_is_on_the_bus_by_a_name_of_its_own() {
    if let Some(program) = missing() {
        println!("skipped: there is no {program} (scripts/setup.sh test installs it)");
        return;
    }
    let mut desktop = Desktop::of("gateway", GATEWAY);
    assert_eq!(desktop.state("0").unwrap(), "s \"up\"");
    assert!(!desktop.busctl("0", &["status", NAME]).status.success(), "that is a device's");
    let clients = ["GetClients"];
    desktop.bed.join();
    let told = desktop.call("0", &clients).unwrap();
    assert!(told.contains("\"van\""), "{told}");
    // Who may see how it is may not see its clients for that.
    desktop.rule("org.anabranch.status");
    eventually("the rule lets the visitor read", || desktop.state(VISITOR).is_ok());
    let refused = desktop.call(VISITOR, &clients).unwrap_err();
    assert!(refused.contains(DENIED), "{refused}");
    assert!(desktop.call(VISITOR, &["Down"]).is_err());
    desktop.rule("org.anabranch.clients");
    eventually("the rule lets the visitor see them", || desktop.call(VISITOR, &clients).is_ok());
    one_user_cannot_keep_others_out(&desktop);
    assert!(desktop.call("0", &["Down"]).unwrap().contains("undone"));
    assert!(desktop.daemon.take().unwrap().wait(), "the daemon ends well");
}

/// While polkit says nothing the calls of all whom it would have to let in are under way.
fn one_user_cannot_keep_others_out(desktop: &Desktop) {
    let polkit = fs::read_to_string(desktop.work.join("polkit.pid")).unwrap();
    let signal = |signal: &str| {
        assert!(desktop.command("0", &["kill", signal, polkit.trim()]).status().unwrap().success());
    };
    signal("-STOP");
    // Each has a connection of its own.
    let call = ["busctl", "--system", "--timeout=60", "call", GATEWAY, ROOT, DAEMON, "GetClients"];
    let crowd = (0..70).map(|_| {
        let mut command = desktop.command(VISITOR, &call);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    });
    let crowd = RefCell::new(crowd.collect::<Vec<_>>());
    let waits = |call: &mut Child| call.try_wait().unwrap().is_none();
    let waiting = || crowd.borrow_mut().iter_mut().map(waits).filter(|waits| *waits).count();
    within(Duration::from_secs(15), "most of them are sent away", || waiting() == 16);
    assert_eq!(desktop.state("0").unwrap(), "s \"up\"", "others are answered meanwhile");
    signal("-CONT");
    eventually("all are answered", || waiting() == 0);
    let answered =
        crowd.borrow_mut().iter_mut().map(|call| call.wait().unwrap()).filter(|exit| exit.success()).count();
    assert_eq!(answered, 16);
}

fn who_may_what(desktop: &Desktop) {
    assert_eq!(desktop.state("0").unwrap(), "s \"up\"");
    // Nobody is logged in here, so the visitor would have to show an administrator's password even to read.
    let refused = desktop.state(VISITOR).unwrap_err();
    assert!(refused.contains("password"), "{refused}");
    desktop.rule("org.anabranch.status");
    eventually("the rule lets the visitor read", || {
        desktop.state(VISITOR).is_ok_and(|state| state == "s \"up\"")
    });
    let networks = desktop.call(VISITOR, &["GetNetworks"]).unwrap();
    assert!(networks.contains("\"wan0\"") && networks.contains("\"wan1\""), "{networks}");
    // Flows and rules of one's own are for everybody.
    desktop.call(VISITOR, &["GetFlows"]).unwrap();
    let hold = ["hold", "a{sv}", "1", "networks", "as", "1", "wan1"];
    let pin = [&["Pin", "a{sv}", "2", "destination", "s", "192.0.2.0/24"], &hold[..]].concat();
    desktop.call(VISITOR, &pin).unwrap();
    let rules = desktop.call(VISITOR, &["GetRules"]).unwrap();
    assert!(rules.contains("192.0.2.0/24") && rules.contains(VISITOR), "{rules}");

    let change = ["ChangeNetwork", "sa{sv}", "wan1", "1", "priority", "y", "3"];
    let priority = || {
        let networks = desktop.bed.status().networks;
        networks.into_iter().find(|network| network.name == "wan1").unwrap().priority
    };
    let refused = desktop.call(VISITOR, &change).unwrap_err();
    assert!(refused.contains(DENIED), "{refused}");
    let again = ["Call", "sss", "PUT", "/v1/networks/wan1", "{\"priority\":3}"];
    assert!(desktop.call(VISITOR, &again).is_err(), "no way around");
    assert!(desktop.call(VISITOR, &["Down"]).is_err());
    assert_eq!(priority(), Priority(0));
    desktop.rule("org.anabranch.change");
    eventually("the rule lets the visitor change", || desktop.call(VISITOR, &change).is_ok());
    assert_eq!(priority(), Priority(3));
    let set =
        |user, value: &str| {
            let path = network_path(desktop, "wan1");
            said(desktop.busctl(
                user,
                &["set-property", NAME, &path, "org.anabranch.Network1", "Priority", "y", value],
            ))
        };
    set(VISITOR, "0").unwrap();
    assert_eq!(priority(), Priority(0));
    let refused = desktop.call("0", &["ChangeNetwork", "sa{sv}", "wlan9", "0"]).unwrap_err();
    assert!(refused.contains("wlan9"), "{refused}");
    let told = said(desktop.busctl("0", &["introspect", NAME, ROOT])).unwrap();
    assert!(told.contains("ChangeNetwork") && told.contains(".Networks"), "{told}");
}

/// The object of a network.
fn network_path(desktop: &Desktop, name: &str) -> String {
    let status = desktop.bed.status();
    let network = status.networks.iter().find(|network| network.name == name).unwrap();
    format!("{ROOT}/networks/{}", network.id.0)
}

fn whoever_has_read_hears_of_changes(desktop: &Desktop) {
    let (mut watcher, mut stranger) = (desktop.bus(), desktop.bus());
    let manager = "org.freedesktop.DBus.ObjectManager";
    let objects =
        watcher.ask(&Message::call([NAME, ROOT, manager, "GetManagedObjects"], Vec::new())).unwrap();
    let wan0 = network_path(desktop, "wan0");
    let paths: Vec<_> = objects[0].entries().filter_map(|(path, _)| path.as_text()).collect();
    assert!(paths.contains(&ROOT) && paths.contains(&wan0.as_str()), "{paths:?}");
    stranger.subscribe("type='signal',path_namespace='/org/anabranch'").unwrap();
    desktop.bed.gateway.set_up("lan0", false).unwrap();
    let (mut changed, mut event) = (false, false);
    while !(changed && event) {
        let signal = watcher.next(Duration::from_secs(20)).unwrap().expect("signals come");
        changed |= signal.is_signal(PROPERTIES, "PropertiesChanged")
            && signal.path == wan0
            && signal.body[1].get("Connected") == Some(&Value::boolean(false));
        event |= signal.is_signal(DAEMON, "Event") && signal.body[3] == Value::text("wan0");
    }
    desktop.bed.gateway.set_up("lan0", true).unwrap();
    while let Some(overheard) = stranger.next(Duration::from_millis(500)).unwrap() {
        assert_eq!(overheard.member, "NameAcquired", "who has not read is told nothing");
    }
}

fn nonsense_is_answered(desktop: &Desktop) {
    let mut bus = desktop.bus();
    let text = |length: usize| Value::text(&"x".repeat(length));
    let deep = (0..14).fold(Value::boolean(true), |inner, _| Value::Variant(Box::new(inner)));
    for call in [
        to_daemon("Nothing", Vec::new()),
        to_daemon("ChangeNetwork", vec![text(3)]),
        to_daemon("ChangeNetwork", vec![text(60_000), Value::properties([])]),
        to_daemon("ChangeNetwork", vec![Value::text("../../v1/down"), Value::properties([])]),
        to_daemon("ChangeNetwork", vec![Value::text("wan0"), Value::properties([("priority", deep)])]),
        to_daemon("Call", vec![Value::text("GET"), Value::text("/v1/events?follow=1"), Value::text("")]),
        to_daemon("Call", vec![Value::text("A\nB"), Value::text("/\r\n"), Value::text("")]),
        // Too long to be read at all.
        to_daemon("Unpin", vec![text(1 << 20)]),
        to_daemon("Pin", vec![Value::properties([("\u{1}", text(1))])]),
        Message::call([NAME, "/org/anabranch/networks/4294967295", PROPERTIES, "GetAll"], vec![text(0)]),
        Message::call(
            [NAME, ROOT, PROPERTIES, "Set"],
            vec![Value::text(DAEMON), Value::text("State"), text(1)],
        ),
        Message::call([NAME, ROOT, PROPERTIES, "Get"], vec![Value::text(DAEMON), Value::text("Nothing")]),
    ] {
        let outcome = bus.ask(&call);
        assert!(matches!(outcome, Err(BusError::Refused(_))), "{call:?}: {outcome:?}");
    }
    // A request that the daemon refuses comes back with its status.
    let call = to_daemon("Call", vec![Value::text("GET"), Value::text("/v1/nothing"), Value::text("")]);
    assert_eq!(bus.ask(&call).unwrap()[0], Value::Number(b'q', 404));
    let ping = Message::call([NAME, ROOT, "org.freedesktop.DBus.Peer", "Ping"], Vec::new());
    bus.ask(&ping).unwrap();
    // A crowd of calls from one caller is answered to the last, if only with the word that it is one.
    // The bus itself lets one connection wait for 128 answers.
    for _ in 0..100 {
        bus.send(&to_daemon("GetNetworks", Vec::new())).unwrap();
    }
    eventually("the daemon answers others", || desktop.state("0").is_ok());
    let bus = RefCell::new(bus);
    eventually("and this one again", || bus.borrow_mut().ask(&to_daemon("GetRules", Vec::new())).is_ok());
}

fn the_bus_is_killed_and_comes_back(desktop: &Desktop) {
    let bus = fs::read_to_string(desktop.work.join("bus.pid")).unwrap();
    let killed = desktop.command("0", &["kill", "-KILL", bus.trim()]).status().unwrap();
    assert!(killed.success());
    eventually("the bus is gone", || desktop.state("0").is_err());
    assert_eq!(desktop.bed.status().state, SessionState::Up, "the bond does not care");
    // polkit went with the first bus, and this time the bus does not know how to start it.
    let script = "mount -t tmpfs tmpfs /usr/share/dbus-1/system-services; rm /run/dbus/system_bus_socket; exec dbus-daemon --system --nofork --nopidfile";
    // It ends with process 1.
    let restarted = desktop.command("0", &["sh", "-c", script]).spawn().unwrap();
    let _restarted = Daemon::of(restarted);
    eventually("the service is back", || desktop.state("0").is_ok());
    // Only those who own the daemon may now.
    let refused = desktop.state(VISITOR).unwrap_err();
    assert!(refused.contains(DENIED), "{refused}");
    let undone = desktop.call("0", &["Down"]).unwrap();
    assert!(undone.contains("undone"), "{undone}");
}
