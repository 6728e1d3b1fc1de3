//! System call filters.
//!
//! Two of them stack. [`forbid`] is for the whole process and refuses what neither the daemon nor the programs
//! it starts (nft) ever need. [`allow_data_plane`] is for the threads that handle bytes from strangers and
//! allows only what moving packets takes. A refused call gets `EPERM`; it does not kill, since a C library that
//! begins to use a new call must not cut people off.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};
use thiserror::Error;

/// Why the filter was not set.
#[derive(Debug, Error)]
#[error("cannot filter system calls: {0}; the kernel needs CONFIG_SECCOMP_FILTER")]
pub struct SeccompError(String);

/// Refuses dangerous calls in the calling thread and all threads and programs that it starts from now on.
pub fn forbid() -> Result<(), SeccompError> {
    let rules = FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    set(rules, SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32))
}

/// Allows the calling thread to move packets, open sockets to the network and wait, and nothing else.
pub fn allow_data_plane() -> Result<(), SeccompError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        DATA_PLANE.iter().map(|call| (*call, Vec::new())).collect();
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let of_family = |family: i32| -> Result<SeccompRule, SeccompError> {
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family as u64)
            .map_err(failed)?;
        SeccompRule::new(vec![condition]).map_err(failed)
    };
    let sockets = families.into_iter().map(of_family).collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_socket, sockets);
    set(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

fn set(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    listed: SeccompAction,
) -> Result<(), SeccompError> {
    let architecture = std::env::consts::ARCH.try_into().map_err(failed)?;
    let filter = SeccompFilter::new(rules, otherwise, listed, architecture).map_err(failed)?;
    let program = BpfProgram::try_from(filter).map_err(failed)?;
    seccompiler::apply_filter(&program).map_err(failed)
}

fn failed(error: impl std::fmt::Display) -> SeccompError {
    SeccompError(error.to_string())
}

/// Calls that change the kernel, other processes or the namespaces.
const FORBIDDEN: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_bpf,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_move_mount,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pivot_root,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// What the data plane needs, the memory allocator and a panic's way out included.
const DATA_PLANE: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_bind,
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_connect,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fcntl,
    libc::SYS_fstat,
    libc::SYS_futex,
    libc::SYS_getpeername,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_listen,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_tgkill,
    // quinn-udp looks at the kernel's version before it uses segmentation offload.
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bind::BindTo;
    use crate::udp::UdpPath;

    /// The filter cannot be taken off, so it gets a thread of its own.
    #[test]
    fn the_data_plane_moves_packets_and_does_nothing_else() {
        std::thread::spawn(|| {
            let sender =
                UdpPath::bind(&BindTo { interface: None, local: "127.0.0.1:0".parse().unwrap(), mark: None });
            // Without privileges the kernel wants no_new_privs first; seccompiler sets it.
            allow_data_plane().unwrap();
            let sender = sender.unwrap();
            sender.send(sender.local_address(), None, 0, &[1; 900], Some(300)).unwrap();
            let later = UdpPath::bind(&BindTo {
                interface: Some("lo".to_owned()),
                local: "[::1]:0".parse().unwrap(),
                mark: None,
            });
            let segments = later.map(|path| path.maximum_segments());
            assert!(
                segments.is_ok_and(|segments| segments > 1),
                "new networks need new sockets with offloads"
            );
            let mut count = 0;
            let mut buffer = crate::udp::ReceiveBuffer::new();
            sender.receive(&mut buffer, &mut |_| count += 1).unwrap();
            assert_eq!(count, 3);
            let monitor = crate::monitor::Monitor::open();
            assert!(monitor.is_ok());

            let denied = |error: std::io::Error| error.raw_os_error() == Some(libc::EPERM);
            assert!(denied(std::fs::File::open("/etc/passwd").unwrap_err()));
            assert!(denied(std::os::unix::net::UnixStream::pair().unwrap_err()));
            assert!(denied(std::process::Command::new("true").spawn().unwrap_err()));
        })
        .join()
        .unwrap();
    }
}
