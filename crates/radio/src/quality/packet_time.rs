//! How long an access point takes for a packet, if nobody else wants the air (`[MULTIAP] eq. 1`).

use std::time::Duration;

use crate::airtime::Flavour;

/// Less than this is taken as this: beyond it nobody can tell, and the time would be endless.
const LEAST_DELIVERY: f64 = 0.01;
/// No frame takes as long, whatever is asked: a full one at 1 Mbit/s takes 13 ms.
const LONGEST_EXCHANGE: Duration = Duration::from_secs(1);

/// Air time for each packet that arrives. `exchange`: of one attempt, without back-off ([`Flavour::exchange_time`]); `delivery`: how often
/// an attempt succeeds, 0 to 1; `attempts`: after so many the access point gives up.
///
/// `[MULTIAP] eq. 1` adds up the time of the packets that arrive after 0 to R repeats, each with its probability, and leaves those out that
/// never arrive, so it *falls* to zero where delivery does. Here their time is counted too, and all of it is shared out over the packets that
/// do arrive: with p = 1 - delivery, attempt i is made with the probability p^i, and 1 - p^(R+1) of the packets arrive. Where nearly all do
/// (p^(R+1) near zero) both are the same. Back-off doubles up to `aCWmax`; the paper has it double for ever.
pub fn packet_time(flavour: Flavour, exchange: Duration, delivery: f64, attempts: u8) -> Duration {
    let delivery = if delivery.is_nan() { 0.0 } else { delivery };
    let failure = 1.0 - delivery.clamp(LEAST_DELIVERY, 1.0);
    let exchange = exchange.min(LONGEST_EXCHANGE);
    let (mut spent, mut reached) = (Duration::ZERO, 1.0);
    for attempt in 0..u32::from(attempts.max(1)) {
        spent += (exchange + flavour.mean_back_off(attempt)).mul_f64(reached);
        reached *= failure;
    }
    spent.div_f64(1.0 - reached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use crate::airtime::USUAL_ATTEMPTS;
    use units::Bytes;

    const A: Flavour = Flavour::A;

    fn exchange() -> Duration {
        A.exchange_time(Rate(108), Bytes(1_536))
    }

    /// The equation as it is printed.
    fn printed(delivery: f64, retries: i32) -> f64 {
        let p = 1.0 - delivery;
        let back_off = |j: i32| A.mean_back_off(0).as_secs_f64() * 2_f64.powi(j);
        let term = |i: i32| {
            let contention: f64 = (0..=i).map(back_off).sum();
            (exchange().as_secs_f64() * f64::from(i + 1) + contention) * p.powi(i) * (1.0 - p)
        };
        (0..=retries).map(term).sum()
    }

    #[test]
    fn a_perfect_link_takes_one_exchange_and_back_off() {
        // 34 + 248 + 16 + 28 us and 67.5 us.
        assert_eq!(packet_time(A, exchange(), 1.0, USUAL_ATTEMPTS), Duration::from_nanos(393_500));
    }

    /// By hand, two attempts at one half: 393.5 + 0.5 x (326 + 139.5) = 626.25 us, of which 0.75 packets come.
    #[test]
    fn worked_by_hand() {
        assert_eq!(packet_time(A, exchange(), 0.5, 2), Duration::from_nanos(835_000));
    }

    #[test]
    fn it_is_the_papers_where_nearly_all_arrives() {
        for delivery in [1.0, 0.95, 0.9, 0.8] {
            let (ours, theirs) =
                (packet_time(A, exchange(), delivery, 7).as_secs_f64(), printed(delivery, 6));
            // Theirs doubles windows exactly, 15 to 30 and on; ours 15 to 31.
            assert!((ours / theirs - 1.0).abs() < 0.005, "{delivery}: {ours} and {theirs}");
        }
        assert!(printed(0.01, 6) < printed(0.5, 6), "as printed, the worst link looks fast");
    }

    #[test]
    fn worse_links_always_take_longer() {
        let times: Vec<Duration> =
            (0..=100).rev().map(|p| packet_time(A, exchange(), f64::from(p) / 100.0, 7)).collect();
        assert!(times.is_sorted(), "{times:?}");
        for absurd in [f64::NAN, -1.0, 0.0, f64::NEG_INFINITY] {
            assert_eq!(packet_time(A, exchange(), absurd, 7), times[99]);
        }
        assert_eq!(packet_time(A, exchange(), f64::INFINITY, 7), times[0]);
        assert!(packet_time(A, Duration::MAX, 0.0, 255) < Duration::from_secs(200));
    }
}
