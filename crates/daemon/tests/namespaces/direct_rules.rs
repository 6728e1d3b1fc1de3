//! Each thing that a rule can ask for, with flows that have it and flows that do not.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::Duration;

use linux::cgroup::{CgroupPath, Hierarchy};

use crate::bed::{Bed, SERVER_V4, SERVER_V6, eventually, within};
use crate::direct::{bed, dual, listing, network_of, started};
use crate::holding::Caller;

const QUIET: &str = "[device]\ndns = \"off\"\nprobe = \"off\"\n";
/// Enough calls for both networks to get one, and few enough to be quick.
const CALLS: usize = 8;

/// Networks by which a shell reaches the server, called that often by a program that starts so: a user or a control group.
fn networks_of(bed: &Bed, server: &str, start: &[&str]) -> BTreeSet<u8> {
    let listener = bed.server.run(|| TcpListener::bind((server, 8_401))).unwrap().unwrap();
    listener.set_nonblocking(true).unwrap();
    let call = format!("exec 3<>/dev/tcp/{server}/8401; read <&3");
    let seen = (0..CALLS).map(|_| {
        let mut command = bed.device.command("env").unwrap();
        let mut caller = command.args(start).args(["bash", "-c", &call]).spawn().unwrap();
        let accepted = std::cell::OnceCell::new();
        eventually("the call arrives", || {
            accepted.get().is_some() || listener.accept().is_ok_and(|call| accepted.set(call).is_ok())
        });
        let (stream, peer) = accepted.into_inner().unwrap();
        drop(stream);
        caller.wait().unwrap();
        network_of(peer)
    });
    seen.collect()
}

const AS_DAEMON: [&str; 4] = ["setpriv", "--reuid=daemon", "--clear-groups", "--inh-caps=-all"];

pub fn rules_by_user_hold_for_that_user() {
    let bed = dual();
    bed.write_config("device", &format!("{QUIET}[[rule]]\nuser = \"daemon\"\nnetworks = \"wan1\"\n"));
    let _daemon = started(&bed);
    for server in [SERVER_V4, SERVER_V6] {
        assert_eq!(networks_of(&bed, server, &AS_DAEMON), [1].into(), "{server}");
        assert_eq!(networks_of(&bed, server, &[]).len(), 2, "{server}: others are dealt out");
    }
}

pub fn pins_of_a_user_hold_for_that_user() {
    let bed = dual();
    bed.write_config("device", QUIET);
    let _daemon = started(&bed);
    assert_eq!(networks_of(&bed, SERVER_V4, &AS_DAEMON).len(), 2);
    let mut pins = ["198.51.100.0/24", "2001:db8:9::/64"].map(|to| Caller::start(&bed, ["pin", "wan1", to]));
    for pin in &mut pins {
        assert!(pin.line().contains("user "));
    }
    for server in [SERVER_V4, SERVER_V6] {
        assert_eq!(networks_of(&bed, server, &AS_DAEMON), [1].into(), "{server}");
        assert_eq!(networks_of(&bed, server, &[]).len(), 2, "{server}: others are dealt out");
    }
    pins.into_iter().for_each(Caller::end);
}

/// A control group that is removed with the test.
struct Group {
    hierarchy: Hierarchy,
    path: CgroupPath,
    idle: Option<Child>,
}

impl Group {
    fn make() -> Option<Self> {
        let hierarchy = Hierarchy::find().ok()?;
        let path = CgroupPath::new(&format!("/anabranch-test-{}", std::process::id())).ok()?;
        hierarchy.make(&path).ok()?;
        Some(Self { hierarchy, path, idle: None })
    }

    fn processes(&self) -> String {
        let name = self.path.as_str().trim_start_matches('/');
        format!("{}/{name}/cgroup.procs", self.hierarchy.mount_point().display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut idle) = self.idle.take() {
            drop(idle.kill());
            drop(idle.wait());
        }
        drop(self.hierarchy.dissolve(&self.path));
    }
}

pub fn rules_by_control_group_hold_for_its_programs() {
    let Some(mut group) = Group::make() else {
        println!("skipped: no control groups of version 2 here that may be made");
        return;
    };
    let processes = group.processes();
    let bed = dual();
    let rule = format!("[[rule]]\nprogram = \"cgroup:{}\"\nnetworks = \"wan1\"\n", group.path.as_str());
    bed.write_config("device", &format!("{QUIET}{rule}"));
    let _daemon = started(&bed);
    // Somebody is in it all the time, as in a service's group.
    let enter = format!("echo $$ > {processes} && exec \"$@\"");
    let mut idle = bed.device.command("sh").unwrap();
    idle.args(["-c", &enter, "sh", "sleep", "600"]).stdout(Stdio::null());
    group.idle = Some(idle.spawn().unwrap());
    for server in [SERVER_V4, SERVER_V6] {
        let inside = networks_of(&bed, server, &["sh", "-c", &enter, "sh"]);
        assert_eq!(inside, [1].into(), "{server}");
        assert_eq!(networks_of(&bed, server, &[]).len(), 2, "{server}: others are dealt out");
    }
    assert!(fs::read_to_string(&processes).unwrap().lines().count() >= 1);
}

/// A terminal that is typed into: small pieces now and then.
pub fn rules_by_class_hold_for_what_was_interactive() {
    let bed = bed();
    bed.write_config("device", &format!("{QUIET}[[rule]]\nclass = \"interactive\"\nnetworks = \"wan1\"\n"));
    let _daemon = started(&bed);
    let address = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_402);
    let listener = bed.server.run(|| TcpListener::bind(address)).unwrap().unwrap();
    let call = || {
        let call = bed.device.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5))).unwrap();
        let (answer, peer) = listener.accept().unwrap();
        (call.unwrap(), answer, network_of(peer))
    };
    let networks = || (0..CALLS).map(|_| call().2).collect::<BTreeSet<u8>>();
    assert_eq!(networks().len(), 2, "nothing is known yet");
    let (keys, screen, _) = call();
    within(Duration::from_secs(40), "it is known as interactive", || {
        (&keys).write_all(b"l").unwrap();
        (&screen).write_all(&[b'x'; 200]).unwrap();
        std::thread::sleep(Duration::from_millis(250));
        listing(&bed.device).contains("198.51.100.9 . tcp . 8402")
    });
    assert_eq!(networks(), [1].into());
    let other = SocketAddr::new(SERVER_V4.parse().unwrap(), 8_403);
    let listener = bed.server.run(|| TcpListener::bind(other)).unwrap().unwrap();
    let seen: BTreeSet<u8> = (0..CALLS)
        .map(|_| {
            let _call = bed.device.run(|| TcpStream::connect(other)).unwrap().unwrap();
            network_of(listener.accept().unwrap().1)
        })
        .collect();
    assert_eq!(seen.len(), 2, "another port is another service");
    eventually("the reason is told", || {
        let flows = bed.client("device").flows().unwrap().flows;
        flows.iter().any(|flow| flow.destination == address && flow.why.contains("rule"))
    });
}
