//! The processor's time stamp counter, for measurements of a few hundred cycles.

/// What the counter says now; `None` on processors for which we know no way to read it.
///
/// It counts at a fixed rate, near the processor's nominal clock, whatever the clock is now. What was begun before is done before it is read.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "the standard library has no cycle counter")]
pub fn now() -> Option<u64> {
    // SAFETY: every processor of this architecture has the instructions LFENCE and RDTSC, and Linux lets user space use them.
    Some(unsafe {
        std::arch::x86_64::_mm_lfence();
        std::arch::x86_64::_rdtsc()
    })
}

/// What the counter says now; `None` on processors for which we know no way to read it.
#[cfg(not(target_arch = "x86_64"))]
pub fn now() -> Option<u64> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn it_counts_at_about_a_steady_rate() {
        let rate = || {
            let (began, time) = (now().unwrap(), std::time::Instant::now());
            std::thread::sleep(std::time::Duration::from_millis(30));
            (now().unwrap() - began) as f64 / time.elapsed().as_secs_f64()
        };
        let (one, other) = (rate(), rate());
        assert!(one > 1e8 && (one / other - 1.0).abs() < 0.05, "{one} and {other} a second");
    }
}
