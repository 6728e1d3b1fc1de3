//! How many descriptors a process may have.
#![expect(unsafe_code, reason = "the standard library does not set limits")]

use std::io;

use crate::system_call::check;

/// Raises this process's limit, and that of all it starts, as far as it may by itself: the usual one is for programs that wait with
/// select(2), which numbers from 1,024 on would break.
///
/// # Errors
/// The kernel's.
pub fn raise_limit() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live rlimit.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) })?;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: the pointer is to a live rlimit.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_as_high_as_it_may_be() {
        raise_limit().unwrap();
        let text = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = text.lines().find(|line| line.starts_with("Max open files")).unwrap();
        let [soft, hard] = [3, 4].map(|word| line.split_whitespace().nth(word).unwrap().parse::<u64>());
        assert!(soft.is_ok() && soft == hard, "{line}");
    }
}
