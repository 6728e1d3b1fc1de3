//! Doing the work with as few privileges as it takes.
//!
//! Order at the start of a daemon, all before its first thread: make the interface and the rules as root, then
//! [`drop_to`] an unprivileged user that keeps CAP_NET_ADMIN and CAP_NET_RAW, then [`seccomp::forbid`]; the
//! thread that parses packets adds [`seccomp::allow_data_plane`].
#![expect(unsafe_code, reason = "capabilities and credentials are not in the standard library")]

pub mod requirements;
pub mod seccomp;
pub mod supervisor;

use std::fs;
use std::io;

use thiserror::Error;
use tracing::warn;

use crate::system_call::{check, errno};

/// An unprivileged user of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    /// Its name.
    pub name: String,
    /// Its number.
    pub user: u32,
    /// The number of its group.
    pub group: u32,
}

/// Why privileges were not given up.
#[derive(Debug, Error)]
pub enum DropError {
    /// No such user.
    #[error(
        "there is no user \"{0}\" in /etc/passwd; make it with \"useradd --system {0}\" or configure another"
    )]
    NoUser(String),
    /// The user is root.
    #[error("user \"{0}\" is root: choose an unprivileged one")]
    Root(String),
    /// A system call failed.
    #[error("cannot give up privileges: {step}: {error}")]
    System {
        /// What was tried.
        step: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}

impl User {
    /// The user called `name` in `/etc/passwd`.
    pub fn by_name(name: &str) -> Result<Self, DropError> {
        let file = fs::read_to_string("/etc/passwd")
            .map_err(|error| DropError::System { step: "read /etc/passwd", error })?;
        let user = find(&file, name).ok_or_else(|| DropError::NoUser(name.to_owned()))?;
        if user.user == 0 { Err(DropError::Root(user.name)) } else { Ok(user) }
    }

    /// The first of `anabranch` and `nobody` that exists.
    pub fn unprivileged() -> Result<Self, DropError> {
        Self::by_name("anabranch").or_else(|_| Self::by_name("nobody"))
    }
}

fn find(passwd: &str, name: &str) -> Option<User> {
    let mut fields = passwd
        .lines()
        .map(|line| line.split(':'))
        .find_map(|mut fields| (fields.next() == Some(name)).then_some(fields))?;
    let user = fields.nth(1)?.parse().ok()?;
    let group = fields.next()?.parse().ok()?;
    Some(User { name: name.to_owned(), user, group })
}

/// Makes the calling process run as `user` with CAP_NET_ADMIN and CAP_NET_RAW and nothing else, for good: no
/// program that it starts can get more (no_new_privs), but started programs keep the two.
///
/// Must be called before the process starts any thread. Inside a user namespace that does not know `user` the
/// user stays and only the capabilities are given up.
pub fn drop_to(user: &User) -> Result<(), DropError> {
    let step = |step| move |error| DropError::System { step, error };
    prctl(libc::PR_SET_KEEPCAPS, 1, 0).map_err(step("keep capabilities"))?;
    drop_bounding_set().map_err(step("shrink the bounding set"))?;
    match change_user(user) {
        // EINVAL: the number is not mapped in this user namespace.
        Err(error) if errno(&error) == libc::EINVAL => {
            warn!("user {} is unknown in this user namespace, the user stays", user.name);
        }
        other => other.map_err(step("change the user"))?,
    }
    set_capabilities().map_err(step("set capabilities"))?;
    for capability in KEPT {
        prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_RAISE as libc::c_ulong, capability)
            .map_err(step("hand capabilities on"))?;
    }
    prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0).map_err(step("forbid new privileges"))
}

fn change_user(user: &User) -> io::Result<()> {
    // The group first: it fails before anything has changed if the numbers are not mapped.
    // SAFETY: plain system call without pointers.
    check(unsafe { libc::setresgid(user.group, user.group, user.group) })?;
    // SAFETY: an empty list needs no pointer.
    check(unsafe { libc::setgroups(0, std::ptr::null()) })?;
    // SAFETY: plain system call without pointers.
    check(unsafe { libc::setresuid(user.user, user.user, user.user) }).map(drop)
}

fn drop_bounding_set() -> io::Result<()> {
    for capability in (0..64).filter(|capability| !KEPT.contains(capability)) {
        match prctl(libc::PR_CAPBSET_DROP, capability, 0) {
            // Beyond the last capability that this kernel knows.
            Err(error) if errno(&error) == libc::EINVAL => return Ok(()),
            other => other?,
        }
    }
    Ok(())
}

fn set_capabilities() -> io::Result<()> {
    let kept: u32 = KEPT.iter().map(|capability| 1 << capability).sum();
    let header = CapabilityHeader { version: CAPABILITY_VERSION_3, pid: 0 };
    let low = CapabilityData { effective: kept, permitted: kept, inheritable: kept };
    let data = [low, CapabilityData { effective: 0, permitted: 0, inheritable: 0 }];
    // SAFETY: the pointers are to a live header and to the two data structures that version 3 takes.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw const header, data.as_ptr()) };
    check(result as libc::c_int).map(drop)
}

fn prctl(option: libc::c_int, second: libc::c_ulong, third: libc::c_ulong) -> io::Result<()> {
    // SAFETY: the options used here take numbers, not pointers.
    check(unsafe { libc::prctl(option, second, third, 0 as libc::c_ulong, 0 as libc::c_ulong) }).map(drop)
}

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: libc::c_int,
}

#[repr(C)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

const CAPABILITY_VERSION_3: u32 = 0x2008_0522;
const NET_ADMIN: libc::c_ulong = 12;
const NET_RAW: libc::c_ulong = 13;
const KEPT: [libc::c_ulong; 2] = [NET_ADMIN, NET_RAW];

#[cfg(test)]
mod tests {
    use super::*;
    use supervisor::{Exit, in_child};

    #[test]
    fn passwd_is_read() {
        let file = "root:x:0:0::/:/bin/sh\nbroken\nnobody:x:65534:65533:n:/:/bin/false\n";
        let user = User { name: "nobody".to_owned(), user: 65_534, group: 65_533 };
        assert_eq!(find(file, "nobody"), Some(user));
        assert_eq!(find(file, "broken"), None);
        assert_eq!(find(file, "absent"), None);
        assert!(User::by_name("root").unwrap_err().to_string().contains("is root"));
    }

    /// Field `name` of `/proc/self/status`.
    fn status(name: &str) -> String {
        let file = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = file.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_dropped_process_has_two_capabilities_and_no_way_back() {
        if !crate::test_namespace::may_test() {
            return;
        }
        let exit = in_child(|| {
            drop_to(&User::unprivileged().unwrap()).unwrap();
            seccomp::forbid().unwrap();
            seccomp::allow_data_plane().unwrap();
            // Reading files is not among what the data plane may do, so a fresh thread cannot look; the
            // parent does, see below.
            std::thread::sleep(std::time::Duration::from_secs(20));
        });
        let child = exit.unwrap();
        let path = format!("/proc/{}/status", child.id());
        let read = || fs::read_to_string(&path).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
        while !read().contains("Seccomp_filters:\t2") && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let text = read();
        child.kill();
        assert_eq!(child.wait().unwrap(), Exit::Signal(libc::SIGKILL));
        for line in [
            "CapEff:\t0000000000003000",
            "CapPrm:\t0000000000003000",
            "CapBnd:\t0000000000003000",
            "NoNewPrivs:\t1",
            "Seccomp:\t2",
            "Seccomp_filters:\t2",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
        assert!(crate::test_namespace::knows_root_only() || !text.contains("Uid:\t0"), "{text}");
    }

    #[test]
    fn programs_it_starts_may_still_set_the_network() {
        if !crate::test_namespace::may_test() {
            return;
        }
        let space = crate::netns::Namespace::anonymous().unwrap();
        let exit = in_child(|| {
            space.enter().unwrap();
            drop_to(&User::unprivileged().unwrap()).unwrap();
            seccomp::forbid().unwrap();
            crate::nft::load("table inet ab_test {\n}\n").unwrap();
            fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            crate::netlink::Netlink::open().unwrap().set_link_up(1, false).unwrap();
            assert_eq!(status("NoNewPrivs"), "1");
            if !crate::test_namespace::knows_root_only() {
                assert!(fs::write("/etc/ab-test", "x").is_err());
            }
        });
        assert_eq!(exit.unwrap().wait().unwrap(), Exit::Code(0));
    }
}
