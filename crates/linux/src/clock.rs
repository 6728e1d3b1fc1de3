//! The one clock of a process.

use std::time::Duration;

use units::Timestamp;

/// Now, by the clock that also counts the time the machine was suspended (`CLOCK_BOOTTIME`).
///
/// It never goes back and is not moved by changes of the wall clock; after a resume it has jumped forward, so
/// that every deadline that passed in sleep is due.
pub fn now() -> Timestamp {
    Timestamp::from_nanos(u64::try_from(read(libc::CLOCK_BOOTTIME).as_nanos()).unwrap_or(u64::MAX))
}

/// How long the machine has been suspended in all since it was started, to some microseconds.
pub fn asleep() -> Duration {
    let awake = read(libc::CLOCK_MONOTONIC);
    read(libc::CLOCK_BOOTTIME).saturating_sub(awake)
}

/// Today by the wall clock in the machine's time zone, in days since 1970-01-01.
#[expect(unsafe_code, reason = "the standard library does not know time zones")]
pub fn today() -> i32 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: all-zero bytes are a valid `tm`; its time zone pointer may be null.
    let mut local: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: the pointers are to a live timespec and a live tm, which the calls fill in. A time that has no date leaves the offset 0.
    unsafe {
        libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time);
        libc::localtime_r(&raw const time.tv_sec, &raw mut local);
    }
    let day = (time.tv_sec + local.tm_gmtoff).div_euclid(86_400);
    i32::try_from(day).unwrap_or(i32::MAX)
}

#[expect(unsafe_code, reason = "the standard library has no clock that counts suspended time")]
fn read(clock: libc::clockid_t) -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec. The call cannot fail for these clocks on Linux >= 2.6.39; if it
    // did, the time would stay zero, which is a valid one.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
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
    fn today_is_within_a_day_of_that_of_greenwich() {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let there = i32::try_from(since.as_secs() / 86_400).unwrap();
        assert!((today() - there).abs() <= 1);
    }

    #[test]
    fn only_a_suspended_machine_sleeps() {
        let before = asleep();
        std::thread::sleep(Duration::from_millis(20));
        assert!(
            asleep().abs_diff(before) < Duration::from_millis(10),
            "a waiting thread is no sleeping machine"
        );
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
