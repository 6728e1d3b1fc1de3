//! Network namespaces: whole network stacks in one machine, for the demo, the lab and tests.
//!
//! Everything goes through system calls and netlink; the `ip` program is not needed. Named namespaces lie in
//! `/run/netns`, so that `ip netns exec NAME` finds them too. A thread that enters a namespace stays there, so
//! work is done on threads of its own ([`Namespace::run`]) or in child processes ([`Namespace::command`]).
//!
//! Without root, [`enter_user_namespace`] first makes the caller root of namespaces of its own.
#![expect(unsafe_code, reason = "unshare, setns and mount are not in the standard library")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use thiserror::Error;

use crate::netlink::{Netlink, NetlinkError, Route};
use crate::prefix::IpPrefix;
use crate::system_call::check;

/// Why a namespace could not be made, entered or furnished.
#[derive(Debug, Error)]
pub enum NamespaceError {
    /// A system call failed.
    #[error("network namespace{}: cannot {operation}: {error}", name.as_deref().map(|name| format!(" {name}")).unwrap_or_default())]
    System {
        /// What was tried.
        operation: &'static str,
        /// The namespace's name, if it has one.
        name: Option<String>,
        /// The kernel's error.
        error: io::Error,
    },
    /// The kernel refused a link, address or route in it.
    #[error(transparent)]
    Netlink(#[from] NetlinkError),
    /// There is no interface of that name in it.
    #[error("there is no interface called \"{0}\" in the namespace")]
    NoInterface(String),
    /// A thread that worked in the namespace panicked.
    #[error("the thread that worked in the namespace panicked")]
    Panicked,
}

/// A network namespace that stays alive as long as this value or its name does.
pub struct Namespace {
    handle: File,
    name: Option<String>,
}

impl Namespace {
    /// A new namespace without a name, with its loopback interface up.
    pub fn anonymous() -> Result<Self, NamespaceError> {
        let handle = on_thread(|| -> Result<File, NamespaceError> {
            // SAFETY: plain system call; it moves only the calling thread.
            check(unsafe { libc::unshare(libc::CLONE_NEWNET) }).map_err(system("make one", None))?;
            let handle = File::open(THREAD_NAMESPACE).map_err(system("open the new one", None))?;
            let mut netlink = Netlink::open().map_err(NetlinkError::from)?;
            netlink.set_link_up(LOOPBACK_INDEX, true)?;
            Ok(handle)
        })??;
        Ok(Self { handle, name: None })
    }

    /// A new namespace that `ip netns exec NAME` finds. It stays until [`Namespace::delete`].
    pub fn named(name: &str) -> Result<Self, NamespaceError> {
        let fail = |operation| system(operation, Some(name));
        let path = path_of(name);
        fs::create_dir_all(DIRECTORY).map_err(fail("make the directory /run/netns for"))?;
        File::create_new(&path).map_err(fail("make the file of"))?;
        let made = Self::anonymous().and_then(|anonymous| {
            let source = format!("/proc/self/fd/{}", anonymous.handle.as_raw_fd());
            mount(&source, &path, libc::MS_BIND).map_err(fail("mount the file of"))?;
            Ok(Self { handle: anonymous.handle, name: Some(name.to_owned()) })
        });
        if made.is_err() {
            drop(fs::remove_file(&path));
        }
        made
    }

    /// The namespace called `name`.
    pub fn open(name: &str) -> Result<Self, NamespaceError> {
        let handle = File::open(path_of(name)).map_err(system("open", Some(name)))?;
        Ok(Self { handle, name: Some(name.to_owned()) })
    }

    /// The namespace in which the calling thread is.
    pub fn current() -> Result<Self, NamespaceError> {
        let handle = File::open(THREAD_NAMESPACE).map_err(system("open the current one", None))?;
        Ok(Self { handle, name: None })
    }

    /// Takes away the name; the namespace ends when its last process and handle do.
    pub fn delete(name: &str) -> Result<(), NamespaceError> {
        let path = path_of(name);
        let target = c_path(&path).map_err(system("name", Some(name)))?;
        // SAFETY: the pointer is to a live, zero-ended string.
        check(unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) })
            .map_err(system("unmount", Some(name)))?;
        fs::remove_file(&path).map_err(system("remove the file of", Some(name)))
    }

    /// Its name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Moves the calling thread into it, for good.
    pub fn enter(&self) -> Result<(), NamespaceError> {
        set_namespace(self.handle.as_fd()).map_err(system("enter", self.name()))
    }

    /// Runs `work` on a new thread inside the namespace and waits for its result.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
        on_thread(|| self.enter().map(|()| work()))?
    }

    /// A command that will run inside the namespace.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> io::Result<Command> {
        let handle = self.handle.try_clone()?;
        let mut command = Command::new(program);
        // SAFETY: setns is safe to call between fork and exec; the closure touches nothing else.
        unsafe { command.pre_exec(move || set_namespace(handle.as_fd())) };
        Ok(command)
    }

    /// Joins two namespaces by a veth pair, both ends up: `own_name` here, `other_name` there.
    pub fn join(&self, other: &Self, own_name: &str, other_name: &str) -> Result<(), NamespaceError> {
        self.with_netlink(|netlink| netlink.add_veth(own_name, other_name, Some(other.handle.as_fd())))?;
        self.set_up(own_name, true)?;
        other.set_up(other_name, true)
    }

    /// Switches an interface on or off.
    pub fn set_up(&self, interface: &str, up: bool) -> Result<(), NamespaceError> {
        let index = self.index_of(interface)?;
        self.with_netlink(|netlink| netlink.set_link_up(index, up))
    }

    /// Sets an interface's largest packet, in bytes.
    pub fn set_mtu(&self, interface: &str, mtu: u32) -> Result<(), NamespaceError> {
        let index = self.index_of(interface)?;
        self.with_netlink(|netlink| netlink.set_link_mtu(index, mtu))
    }

    /// Gives an interface an address.
    pub fn add_address(&self, interface: &str, address: IpPrefix) -> Result<(), NamespaceError> {
        let index = self.index_of(interface)?;
        self.with_netlink(|netlink| netlink.add_address(index, address))
    }

    /// Adds a route in the main table over `interface`.
    pub fn add_route(
        &self,
        interface: &str,
        destination: IpPrefix,
        gateway: Option<IpAddr>,
        metric: Option<u32>,
    ) -> Result<(), NamespaceError> {
        let route = Route { gateway, metric, ..Route::over(destination, self.index_of(interface)?) };
        self.with_netlink(|netlink| netlink.add_route(&route))
    }

    /// Removes an interface.
    pub fn delete_link(&self, interface: &str) -> Result<(), NamespaceError> {
        let index = self.index_of(interface)?;
        self.with_netlink(|netlink| netlink.delete_link(index))
    }

    /// Sets a kernel setting of this namespace, such as `net.ipv4.ip_forward`.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<(), NamespaceError> {
        let path = Path::new("/proc/sys").join(key.replace('.', "/"));
        self.run(|| fs::write(path, value))?.map_err(system("set a kernel setting of", self.name()))
    }

    fn index_of(&self, interface: &str) -> Result<u32, NamespaceError> {
        self.with_netlink(|netlink| netlink.link(interface))?
            .map(|link| link.index)
            .ok_or_else(|| NamespaceError::NoInterface(interface.to_owned()))
    }

    fn with_netlink<T: Send>(
        &self,
        work: impl FnOnce(&mut Netlink) -> Result<T, NetlinkError> + Send,
    ) -> Result<T, NamespaceError> {
        Ok(self.run(|| work(&mut Netlink::open()?))??)
    }
}

impl AsFd for Namespace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Makes the calling process root of a new user, mount and network namespace, so that it may do everything in
/// this module without privileges outside.
///
/// Must be called before the process starts any thread. `/run` is a fresh, empty file system afterwards.
pub fn enter_user_namespace() -> Result<(), NamespaceError> {
    // SAFETY: getuid and getgid cannot fail and have no pointers.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    // SAFETY: plain system call; the kernel refuses it for processes with several threads.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS | libc::CLONE_NEWNET) })
        .map_err(system("become root of new namespaces without privileges (are user namespaces allowed? sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)", None))?;
    let write = |file: &str, content: String| {
        fs::write(Path::new("/proc/self").join(file), content).map_err(system("map the user of", None))
    };
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("0 {user} 1"))?;
    write("gid_map", format!("0 {group} 1"))?;
    let fail = system("mount an empty /run in", None);
    mount_with("none", Path::new("/"), None, libc::MS_REC | libc::MS_PRIVATE)
        .and_then(|()| mount_with("tmpfs", Path::new("/run"), Some("tmpfs"), 0))
        .map_err(fail)?;
    let mut netlink = Netlink::open().map_err(NetlinkError::from)?;
    Ok(netlink.set_link_up(LOOPBACK_INDEX, true)?)
}

fn system<'a>(
    operation: &'static str,
    name: Option<&'a str>,
) -> impl FnOnce(io::Error) -> NamespaceError + 'a {
    move |error| NamespaceError::System { operation, name: name.map(str::to_owned), error }
}

/// Runs `work` on a thread of its own, since what it does to its namespaces cannot be taken back.
fn on_thread<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, NamespaceError> {
    std::thread::scope(|scope| scope.spawn(work).join()).map_err(|_| NamespaceError::Panicked)
}

fn set_namespace(handle: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain system call on an open descriptor.
    check(unsafe { libc::setns(handle.as_raw_fd(), libc::CLONE_NEWNET) }).map(drop)
}

fn mount(source: &str, target: &Path, flags: libc::c_ulong) -> io::Result<()> {
    mount_with(source, target, None, flags)
}

fn mount_with(source: &str, target: &Path, kind: Option<&str>, flags: libc::c_ulong) -> io::Result<()> {
    let source = CString::new(source)?;
    let target = c_path(target)?;
    let kind = kind.map(CString::new).transpose()?;
    let kind = kind.as_ref().map_or(std::ptr::null(), |kind| kind.as_ptr());
    // SAFETY: all pointers are to live, zero-ended strings, or null where the kernel ignores them.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, std::ptr::null()) }).map(drop)
}

fn c_path(path: &Path) -> io::Result<CString> {
    Ok(CString::new(path.as_os_str().as_encoded_bytes())?)
}

fn path_of(name: &str) -> PathBuf {
    Path::new(DIRECTORY).join(name)
}

const DIRECTORY: &str = "/run/netns";
const THREAD_NAMESPACE: &str = "/proc/thread-self/ns/net";
const LOOPBACK_INDEX: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_namespace::{joined_pair, may_test};

    #[test]
    fn joined_namespaces_reach_each_other() {
        if !may_test() {
            return;
        }
        let (left, right) = joined_pair();
        let listener = right.run(|| std::net::TcpListener::bind("10.77.0.2:80")).unwrap().unwrap();
        let stream = left.run(|| std::net::TcpStream::connect("10.77.0.2:80")).unwrap().unwrap();
        assert_eq!(listener.accept().unwrap().1, stream.local_addr().unwrap());
        let stranger = Namespace::anonymous().unwrap();
        assert!(stranger.run(|| std::net::TcpStream::connect("10.77.0.2:80")).unwrap().is_err());
    }

    #[test]
    fn named_namespace_is_found_by_name_until_deleted() {
        if !may_test() {
            return;
        }
        let name = format!("ab-{}-named", std::process::id());
        let made = match Namespace::named(&name) {
            Err(NamespaceError::System { error, .. }) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("skipped: cannot give a namespace a name: {error}");
                return;
            }
            other => other.unwrap(),
        };
        made.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
        let output = Namespace::open(&name)
            .unwrap()
            .command("cat")
            .unwrap()
            .arg("/proc/sys/net/ipv4/ip_forward")
            .output()
            .unwrap();
        let again = Namespace::named(&name);
        Namespace::delete(&name).unwrap();
        assert_eq!(output.stdout, b"1\n");
        assert!(again.is_err(), "two namespaces of one name");
        assert!(Namespace::open(&name).is_err());
    }
}
