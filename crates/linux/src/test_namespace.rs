//! Where tests of this crate run: a network namespace of their own, gone when they end.

use crate::netns::Namespace;

/// Whether this process may make namespaces; says why a test is skipped if not.
pub(crate) fn may_test() -> bool {
    match Namespace::anonymous() {
        Ok(_) => true,
        Err(error) => {
            eprintln!("skipped: cannot make a network namespace: {error}");
            false
        }
    }
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
