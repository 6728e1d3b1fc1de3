//! What this machine lacks, said before anything is started.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;

use crate::nft::{self, NftError};

/// One thing that is missing and how to get it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Missing {
    /// What is missing.
    pub what: String,
    /// The command or setting that would give it.
    pub remedy: String,
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.what, self.remedy)
    }
}

/// What a command is about to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// Be a device; with or without nftables (kill switch).
    Device {
        /// Whether nftables is needed.
        nftables: bool,
    },
    /// Be a gateway.
    Gateway,
    /// Make user and network namespaces without root (demo, lab).
    Namespaces,
}

/// Everything that `purpose` needs and this machine or user lacks; empty if all is well.
pub fn missing(purpose: Purpose) -> Vec<Missing> {
    let mut missing = Vec::new();
    let nftables = match purpose {
        Purpose::Device { nftables } => {
            missing.extend(capability());
            nftables
        }
        Purpose::Gateway => {
            missing.extend(capability());
            true
        }
        Purpose::Namespaces => {
            if !has_capability(SYS_ADMIN) {
                missing.extend(user_namespaces());
            }
            true
        }
    };
    missing.extend(tun_device());
    if nftables && !nft::is_installed() {
        missing.push(Missing {
            what: "the program nft is missing".to_owned(),
            remedy: "install the package nftables: apt install nftables, dnf install nftables".to_owned(),
        });
    } else if nftables && has_capability(NET_ADMIN) {
        missing.extend(kernel_tables());
    }
    missing
}

/// What our tables are made of, tried without changing anything. A kernel that can load modules does so for it.
fn kernel_tables() -> Option<Missing> {
    let said = match nft::check(PROBE) {
        Ok(()) => return None,
        Err(NftError::Refused(said)) => said,
        Err(other) => other.to_string(),
    };
    let said = said.lines().next().unwrap_or_default();
    Some(Missing {
        what: format!("the kernel does not take nftables' rules that translate addresses ({said})"),
        remedy: "load its modules: modprobe -a nf_tables nft_chain_nat nft_masq nft_ct nft_reject_inet; in a container: on the \
                 machine that runs it"
            .to_owned(),
    })
}

const PROBE: &str = "table inet anabranch_probe {
  chain translate {
    type nat hook postrouting priority srcnat
    ct state established masquerade
  }
  chain refuse {
    type filter hook forward priority filter
    reject with icmpx type admin-prohibited
  }
}
";

fn tun_device() -> Option<Missing> {
    let error = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").err()?;
    let remedy = match error.kind() {
        io::ErrorKind::NotFound => {
            "load the driver: modprobe tun; in a container: run it with --device /dev/net/tun"
        }
        io::ErrorKind::PermissionDenied => return Some(closed_tun_device()),
        _ => "load the driver: modprobe tun",
    };
    Some(Missing { what: format!("/dev/net/tun cannot be opened ({error})"), remedy: remedy.to_owned() })
}

/// Most distributions let everybody open it: what may be done with it is checked later.
fn closed_tun_device() -> Missing {
    let mode = fs::metadata("/dev/net/tun").map(|metadata| metadata.mode() & 0o777);
    let mode = mode.map_or_else(|_| "closed".to_owned(), |mode| format!("mode {mode:o}"));
    Missing {
        what: format!("/dev/net/tun may be opened by its owner only ({mode})"),
        remedy: "run as root, or let everybody open it: sudo chmod 666 /dev/net/tun".to_owned(),
    }
}

fn capability() -> Option<Missing> {
    (!has_capability(NET_ADMIN)).then(|| Missing {
        what: "no right to change the network (CAP_NET_ADMIN)".to_owned(),
        remedy: "run it as root: sudo anabranch ...; in a container: run it with --cap-add NET_ADMIN"
            .to_owned(),
    })
}

fn user_namespaces() -> Option<Missing> {
    const SETTINGS: [(&str, &str, &str); 3] = [
        ("user/max_user_namespaces", "0", "sysctl -w user.max_user_namespaces=10000"),
        ("kernel/unprivileged_userns_clone", "0", "sysctl -w kernel.unprivileged_userns_clone=1"),
        (
            "kernel/apparmor_restrict_unprivileged_userns",
            "1",
            "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        ),
    ];
    let forbids = |(path, forbidding, _): &(&str, &str, &str)| {
        fs::read_to_string(format!("/proc/sys/{path}")).is_ok_and(|value| value.trim() == *forbidding)
    };
    let (path, value, command) = SETTINGS.iter().find(|setting| forbids(setting))?;
    Some(Missing {
        what: format!("user namespaces are switched off ({} = {value})", path.replace('/', ".")),
        remedy: format!("run as root, or allow them: sudo {command}"),
    })
}

fn has_capability(number: u32) -> bool {
    fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| effective(&status) >> number & 1 == 1)
}

/// The effective capabilities in a `/proc/*/status`; none if there is no such line.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|value| u64::from_str_radix(value.trim(), 16).ok())
        .unwrap_or(0)
}

const NET_ADMIN: u32 = 12;
const SYS_ADMIN: u32 = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::privileges::supervisor::{Exit, in_child};
    use crate::privileges::{User, drop_to};

    #[test]
    fn status_is_read() {
        assert_eq!(effective("Name:\tx\nCapEff:\t0000000000003000\n"), 0x3000);
        assert_eq!(effective("CapEff:\tnonsense\n"), 0);
        assert_eq!(effective(""), 0);
    }

    #[test]
    fn root_lacks_nothing_here_and_the_dropped_user_is_told_what() {
        if !crate::test_namespace::may_test() {
            return;
        }
        assert_eq!(missing(Purpose::Gateway), []);
        let exit = in_child(|| {
            drop_to(&User::unprivileged().unwrap()).unwrap();
            assert!(has_capability(NET_ADMIN) && !has_capability(SYS_ADMIN));
        });
        assert_eq!(exit.unwrap().wait().unwrap(), Exit::Code(0));
    }
}
