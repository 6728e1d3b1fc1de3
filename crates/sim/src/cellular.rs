//! Generated delivery traces that behave like a cellular downlink: slow fading, fast fading, grants in
//! bursts and rare holes. Committed as a generator, not as data: a seed gives the trace.

use crate::trace::OPPORTUNITY_BYTES;
use crate::{DeliveryTrace, SeededRandom};
use units::BitRate;

/// What a generated cellular trace is like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CellularSpec {
    /// Mean rate over the whole trace.
    pub mean_rate: BitRate,
    /// Deviation of the logarithm of the slowly varying rate (0.4: mostly within half and double).
    pub slow_deviation: f64,
    /// Time over which the slow part forgets itself, milliseconds.
    pub slow_memory_ms: f64,
    /// Deviation of the logarithm of the fast part, redrawn every 20 ms.
    pub fast_deviation: f64,
    /// Part of the milliseconds in which the cell serves this user.
    pub grant_fraction: f64,
    /// Holes per second (handovers, retransmissions of the radio link layer) and their length.
    pub holes_per_second: f64,
    /// Length of a hole, milliseconds.
    pub hole_ms: u32,
    /// Length of the trace before it repeats, milliseconds.
    pub period_ms: u32,
}

impl CellularSpec {
    /// A stationary user of a loaded LTE cell.
    pub fn lte(mean_rate: BitRate) -> Self {
        Self {
            mean_rate,
            slow_deviation: 0.35,
            slow_memory_ms: 2_000.0,
            fast_deviation: 0.2,
            grant_fraction: 0.5,
            holes_per_second: 0.05,
            hole_ms: 60,
            period_ms: 60_000,
        }
    }
}

/// The trace of `spec` and `seed`. Its mean rate is that of the spec, within one packet per period.
pub fn cellular_trace(spec: &CellularSpec, seed: u64) -> DeliveryTrace {
    let mut random = SeededRandom::derive(seed, "cellular");
    let weights = relative_rates(spec, &mut random);
    let total: f64 = weights.iter().sum();
    let wanted = spec.mean_rate.bytes_per_second() * f64::from(spec.period_ms) / 1_000.0;
    let packets_per_weight = wanted / OPPORTUNITY_BYTES as f64 / total.max(f64::MIN_POSITIVE);
    let mut opportunities = Vec::new();
    let mut credit = 0.0;
    for (millis, weight) in (0..spec.period_ms).zip(&weights) {
        credit += weight * packets_per_weight;
        if *weight > 0.0 && random.chance(spec.grant_fraction) {
            while credit >= 1.0 {
                opportunities.push(millis);
                credit -= 1.0;
            }
        }
    }
    opportunities.push(spec.period_ms.max(1));
    // The list rises and ends above zero, so it is a trace; the fallback cannot be reached.
    DeliveryTrace::from_opportunities(opportunities)
        .unwrap_or_else(|_| unreachable!("generated opportunities rise and end above zero"))
}

/// Relative rate of every millisecond.
fn relative_rates(spec: &CellularSpec, random: &mut SeededRandom) -> Vec<f64> {
    const FAST_STEP_MS: u32 = 20;
    let keep = (-f64::from(FAST_STEP_MS) / spec.slow_memory_ms.max(1.0)).exp();
    let mut slow = random.normal();
    let mut level = 0.0;
    let mut hole_left = 0;
    (0..spec.period_ms)
        .map(|millis| {
            if millis % FAST_STEP_MS == 0 {
                slow = keep * slow + (1.0 - keep * keep).sqrt() * random.normal();
                level = (spec.slow_deviation * slow + spec.fast_deviation * random.normal()).exp();
            }
            if hole_left > 0 {
                hole_left -= 1;
                return 0.0;
            }
            if random.chance(spec.holes_per_second / 1_000.0) {
                hole_left = spec.hole_ms;
            }
            level
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_the_mean_is_kept() {
        let spec = CellularSpec::lte(BitRate::from_mbps(20.0));
        let trace = cellular_trace(&spec, 5);
        assert_eq!(trace, cellular_trace(&spec, 5));
        assert_ne!(trace, cellular_trace(&spec, 6));
        let mean = trace.mean_bits_per_second() as f64 / 20e6;
        assert!((mean - 1.0).abs() < 0.01, "mean rate is {mean} of what was asked");
    }

    #[test]
    fn the_rate_varies() {
        let trace = cellular_trace(&CellularSpec::lte(BitRate::from_mbps(20.0)), 5);
        let mut per_second = vec![0_u32; 61];
        for number in 0.. {
            let second = trace.opportunity_nanos(number) / 1_000_000_000;
            if second >= 60 {
                break;
            }
            per_second[second as usize] += 1;
        }
        let (least, most) = (per_second[..60].iter().min().unwrap(), per_second[..60].iter().max().unwrap());
        assert!(most > &(2 * least), "{least} to {most} packets a second");
    }
}
