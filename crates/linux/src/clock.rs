//! The one clock of a process.

use std::time::Duration;

use units::Timestamp;

/// Now, by the clock that also counts the time the machine was suspended (`CLOCK_BOOTTIME`).
///
/// It never goes back and is not moved by changes of the wall clock; after a resume it has jumped forward, so
/// that every deadline that passed in sleep is due.
#[expect(unsafe_code, reason = "the standard library has no clock that counts suspended time")]
pub fn now() -> Timestamp {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec. The call cannot fail for this clock on Linux >= 2.6.39; if it
    // did, the time would stay zero, which is a valid Timestamp.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(time.tv_nsec).unwrap_or(0);
    Timestamp::from_nanos(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

/// How long from `now` until `deadline`, for a blocking wait; `None` means for ever.
pub fn wait_until(now: Timestamp, deadline: Timestamp) -> Option<Duration> {
    if deadline == Timestamp::FAR_FUTURE { None } else { Some(deadline.since(now)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances_with_real_time() {
        let before = now();
        std::thread::sleep(Duration::from_millis(20));
        let passed = now().since(before);
        assert!(passed >= Duration::from_millis(20), "{passed:?}");
        assert!(passed < Duration::from_secs(5), "{passed:?}");
    }

    #[test]
    fn far_future_is_for_ever() {
        assert_eq!(wait_until(Timestamp::from_millis(1), Timestamp::FAR_FUTURE), None);
        assert_eq!(
            wait_until(Timestamp::from_millis(1), Timestamp::from_millis(3)),
            Some(Duration::from_millis(2))
        );
    }
}
