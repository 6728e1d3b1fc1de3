//! Where tests of this crate run: a network namespace of their own, gone when they end.

use crate::cgroup::{CgroupPath, Hierarchy};
use crate::netns::Namespace;

/// Whether this process may make namespaces and TUN interfaces in them; says why a test is skipped if not.
pub(crate) fn may_test() -> bool {
    let tun = || std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    let namespace =
        Namespace::anonymous().map_err(|error| format!("cannot make a network namespace: {error}"));
    let outcome = namespace.and_then(|_| tun().map_err(|error| format!("cannot open /dev/net/tun: {error}")));
    if let Err(why) = &outcome {
        eprintln!("skipped: {why}");
    }
    outcome.is_ok()
}

/// Whether this user namespace knows no user but root, as after `unshare --user --map-root-user`.
pub(crate) fn knows_root_only() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap();
    map.split_whitespace().nth(2) == Some("1")
}

/// Runs `test` in a fresh network namespace.
pub(crate) fn in_namespace(test: impl FnOnce() + Send) {
    if may_test() {
        Namespace::anonymous().unwrap().run(test).unwrap();
    }
}

/// Two fresh namespaces joined by a veth pair `cable` with addresses 10.77.0.1/24 and 10.77.0.2/24, fd77::1/64
/// and fd77::2/64.
pub(crate) fn joined_pair() -> (Namespace, Namespace) {
    let left = Namespace::anonymous().unwrap();
    let right = Namespace::anonymous().unwrap();
    left.join(&right, "cable", "cable").unwrap();
    for (namespace, v4, v6) in [(&left, "10.77.0.1/24", "fd77::1/64"), (&right, "10.77.0.2/24", "fd77::2/64")]
    {
        namespace.add_address("cable", v4.parse().unwrap()).unwrap();
        namespace.add_address("cable", v6.parse().unwrap()).unwrap();
    }
    (left, right)
}

/// A cgroup of this test alone, removed when it ends.
pub(crate) struct TestCgroup {
    pub(crate) hierarchy: Hierarchy,
    pub(crate) path: CgroupPath,
}

impl TestCgroup {
    /// Makes `ab-PID-NAME` below the root; `None`, with the reason printed, where that is not possible.
    pub(crate) fn make(name: &str) -> Option<Self> {
        let name = format!("ab-{}-{name}", std::process::id());
        let made = Hierarchy::find().and_then(|hierarchy| {
            let path = hierarchy.create(&CgroupPath::root(), &name)?;
            Ok(Self { hierarchy, path })
        });
        made.map_err(|error| eprintln!("skipped: {error}")).ok()
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        drop(self.hierarchy.remove(&self.path));
    }
}
