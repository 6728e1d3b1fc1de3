//! System calls of another process that wait for an answer: a filter with `SECCOMP_RET_USER_NOTIF` and what listens to it
//! (seccomp_unotify(2)).
#![expect(unsafe_code, reason = "seccomp's notifications have no safe wrapper")]

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::system_call::{check, check_size};

/// A call that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    id: u64,
    /// The thread that called.
    pub(super) thread: u32,
    /// The system call's number.
    pub(super) number: i64,
    /// Its arguments.
    pub(super) arguments: [u64; 6],
}

/// What hears of the calls of a filter.
#[derive(Debug)]
pub(super) struct Listener(OwnedFd);

impl Listener {
    pub(super) fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }

    /// Waits for the next call; `None` if its thread is gone already.
    pub(super) fn receive(&self) -> io::Result<Option<Call>> {
        // SAFETY: all-zero bytes are a valid value, and what the kernel demands.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is live and as large as the request says.
        match check(unsafe { libc::ioctl(self.0.as_raw_fd(), RECEIVE, &raw mut call) }) {
            Ok(_) => Ok(Some(Call {
                id: call.id,
                thread: call.pid,
                number: i64::from(call.data.nr),
                arguments: call.data.args,
            })),
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOENT | libc::EINTR)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the call still waits: if so, its thread's number has been its own all along, and what was read by it is the caller's.
    pub(super) fn waits(&self, call: &Call) -> bool {
        // SAFETY: the number is live and as large as the request says.
        check(unsafe { libc::ioctl(self.0.as_raw_fd(), IS_VALID, &raw const call.id) }).is_ok()
    }

    /// Lets the kernel carry the call out as it is.
    pub(super) fn go_on(&self, call: &Call) -> io::Result<()> {
        let mut answer = libc::seccomp_notif_resp {
            id: call.id,
            val: 0,
            error: 0,
            flags: libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32,
        };
        // SAFETY: the structure is live and as large as the request says.
        gone_is_well(check(unsafe { libc::ioctl(self.0.as_raw_fd(), SEND, &raw mut answer) }))
    }

    /// Answers with `descriptor` as a new one of the caller's, closed at `exec` if asked for.
    pub(super) fn answer_with(
        &self,
        call: &Call,
        descriptor: BorrowedFd<'_>,
        close_on_exec: bool,
    ) -> io::Result<()> {
        let mut answer = libc::seccomp_notif_addfd {
            id: call.id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: descriptor.as_raw_fd() as u32,
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC as u32 } else { 0 },
        };
        // SAFETY: the structure is live and as large as the request says.
        gone_is_well(check(unsafe { libc::ioctl(self.0.as_raw_fd(), ADD_DESCRIPTOR, &raw mut answer) }))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A caller that was killed needs no answer.
fn gone_is_well(outcome: io::Result<libc::c_int>) -> io::Result<()> {
    match outcome {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other.map(drop),
    }
}

/// Filters the calling thread and all that it starts from now on: these make a notification each, all else goes on.
///
/// - `socket` for a TCP socket of IPv4 or IPv6;
/// - `connect`.
///
/// Only makes system calls, so it may run between fork and exec. Takes no privileges, but nothing that this thread starts
/// gains any by being set-user-ID. The descriptor closes at `exec`.
pub(super) fn filter() -> io::Result<RawFd> {
    // Jumps count from the next instruction; 14 tells, 15 lets go.
    let program = [
        load(ARCHITECTURE),
        jump_if(OWN_ARCHITECTURE, 0, 13),
        load(NUMBER),
        jump_if(libc::SYS_connect as u32, 10, 0),
        jump_if(libc::SYS_socket as u32, 0, 10),
        load(ARGUMENTS),
        jump_if(libc::AF_INET as u32, 1, 0),
        jump_if(libc::AF_INET6 as u32, 0, 7),
        load(ARGUMENTS + ARGUMENT),
        instruction(AND, 0, 0, KIND_OF_SOCKET),
        jump_if(libc::SOCK_STREAM as u32, 0, 4),
        load(ARGUMENTS + 2 * ARGUMENT),
        jump_if(0, 1, 0),
        jump_if(libc::IPPROTO_TCP as u32, 0, 1),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
        instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: plain system call without pointers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    // SAFETY: the program and its instructions live until the call returns; the kernel copies them.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            &raw const program,
        )
    };
    if descriptor < 0 { Err(io::Error::last_os_error()) } else { Ok(descriptor as RawFd) }
}

/// A descriptor of a process, readable once it has ended.
pub(super) fn process(number: u32) -> io::Result<OwnedFd> {
    // SAFETY: plain system call without pointers.
    let raw = check(unsafe { libc::syscall(libc::SYS_pidfd_open, number, 0) } as libc::c_int)?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Another process's descriptor `number`, of the process to which `thread` belongs.
pub(super) fn descriptor_of(thread: u32, number: RawFd) -> io::Result<OwnedFd> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status"))?;
    let owner = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    let owner = process(owner.ok_or(io::ErrorKind::NotFound)?)?;
    // SAFETY: plain system call without pointers.
    let raw = unsafe { libc::syscall(libc::SYS_pidfd_getfd, owner.as_raw_fd(), number, 0) };
    let raw = check(raw as libc::c_int)?;
    // SAFETY: the descriptor was just opened and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// What a descriptor has to tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// Nothing yet.
    Nothing,
    /// Reading will not block.
    Ready,
    /// Nobody is left at its other end.
    End,
}

/// Waits until one of these has something to tell; `None` has nothing ever.
pub(super) fn wait<const N: usize>(of: [Option<BorrowedFd<'_>>; N]) -> io::Result<[Told; N]> {
    let mut polled = of.map(|descriptor| libc::pollfd {
        fd: descriptor.map_or(-1, |descriptor| descriptor.as_raw_fd()),
        events: libc::POLLIN,
        revents: 0,
    });
    // SAFETY: the array is live and as long as is said.
    match check(unsafe { libc::poll(polled.as_mut_ptr(), N as libc::nfds_t, -1) }) {
        Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok([Told::Nothing; N]),
        other => other?,
    };
    Ok(polled.map(|one| match one.revents {
        0 => Told::Nothing,
        events if events & libc::POLLIN != 0 => Told::Ready,
        _ => Told::End,
    }))
}

/// Reads the socket address that `thread` has at `place`; `None` if it is neither of IPv4 nor of IPv6.
pub(super) fn address_of(thread: u32, place: u64, length: u64) -> io::Result<Option<SocketAddr>> {
    let mut bytes = [0u8; size_of::<libc::sockaddr_in6>()];
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: length };
    let far = libc::iovec { iov_base: place as *mut libc::c_void, iov_len: length };
    // SAFETY: one live buffer of that length here; the kernel checks the other process's.
    let read = unsafe { libc::process_vm_readv(thread as i32, &raw const local, 1, &raw const far, 1, 0) };
    let read = check_size(read)?;
    Ok(parse(&bytes[..read]))
}

/// `struct sockaddr_in` and `sockaddr_in6`.
fn parse(bytes: &[u8]) -> Option<SocketAddr> {
    let family = i32::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    let address: IpAddr = match family {
        libc::AF_INET => Ipv4Addr::from(*bytes.get(4..)?.first_chunk::<4>()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(*bytes.get(8..)?.first_chunk::<16>()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(address, port))
}

const fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt: if_true, jf: if_false, k: value }
}

const fn jump_if(value: u32, if_equal: u8, otherwise: u8) -> libc::sock_filter {
    instruction(JUMP_EQUAL, if_equal, otherwise, value)
}

const fn load(offset: u32) -> libc::sock_filter {
    instruction(LOAD, 0, 0, offset)
}

const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const JUMP_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const AND: u16 = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Offsets in `struct seccomp_data`; arguments are 8 bytes each, and their lower half comes first on the machines below.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;
const ARGUMENT: u32 = 8;
/// Bits of `socket`'s second argument that are no flags.
const KIND_OF_SOCKET: u32 = 0xf;
/// `linux/audit.h`: `EM_X86_64` and `EM_AARCH64`, of 64 bits, the lowest byte first.
#[cfg(target_arch = "x86_64")]
const OWN_ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const OWN_ARCHITECTURE: u32 = 0xc000_00b7;
/// `linux/seccomp.h`.
const RECEIVE: libc::Ioctl = 0xc050_2100_u32 as libc::Ioctl;
const SEND: libc::Ioctl = 0xc018_2101_u32 as libc::Ioctl;
const IS_VALID: libc::Ioctl = 0x4008_2102_u32 as libc::Ioctl;
const ADD_DESCRIPTOR: libc::Ioctl = 0x4018_2103_u32 as libc::Ioctl;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read_from_our_own_memory() {
        let bytes: [u8; 16] = [2, 0, 0x1f, 0x90, 192, 0, 2, 7, 0, 0, 0, 0, 0, 0, 0, 0];
        let thread = std::process::id();
        let read = address_of(thread, bytes.as_ptr() as u64, 16).unwrap();
        assert_eq!(read, Some("192.0.2.7:8080".parse().unwrap()));
        assert!(address_of(thread, 8, 16).is_err());
    }

    proptest! {
        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            assert!(bytes.len() >= 8 || parse(&bytes).is_none());
        }
    }
}
