//! Turning return values of system calls into results.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A system call's return value as a result: negative means that `errno` holds the error.
pub(crate) fn check(value: libc::c_int) -> io::Result<libc::c_int> {
    if value < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// The same for calls that return a size.
pub(crate) fn check_size(value: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(value).map_err(|_| io::Error::last_os_error())
}

/// The `errno` of `error`, 0 if it has none.
pub(crate) fn errno(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(0)
}

/// Sets a socket option whose value is one C integer.
#[expect(unsafe_code, reason = "setsockopt has options that no safe wrapper offers")]
pub(crate) fn set_integer_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer is to a live integer and the length is its size; the descriptor is open.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    })
    .map(drop)
}

/// Gives a socket a program of classic BPF, by the option that says what for.
#[expect(unsafe_code, reason = "setsockopt has options that no safe wrapper offers")]
pub(crate) fn attach_program(
    socket: BorrowedFd<'_>,
    option: libc::c_int,
    program: &[libc::sock_filter],
) -> io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_ptr().cast_mut() };
    // SAFETY: the program lives until the call returns and the kernel only reads it.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    })
    .map(drop)
}

/// The user whose rights this process has.
#[expect(unsafe_code, reason = "the standard library does not tell")]
pub(crate) fn effective_user() -> u32 {
    // SAFETY: cannot fail and has no pointers.
    unsafe { libc::geteuid() }
}
