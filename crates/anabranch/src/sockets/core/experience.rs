//! What the adapters of a conversation have carried, as far as their rates can be known from it.

use std::collections::BTreeMap;
use std::time::Duration;

use bond::PathReport;
use units::{BitRate, Bytes, NetworkId, Timestamp};

/// A path that has sent less than this tells nothing of its rate.
const BYTES_TO_TRUST: u64 = 200_000;
/// How long a rate is believed of a path that carries no more.
const BELIEVED: Duration = Duration::from_secs(300);
/// The most that came in a while of this length counts, or in the one before it.
const WHILE: Duration = Duration::from_secs(5);
/// What comes is measured over this time at least.
const SPAN: Duration = Duration::from_millis(200);
/// Less than this does not fill a path: it says how much was to be sent, not how much could have been.
const FILLING: BitRate = BitRate(1_500_000);

/// See the module; one for each conversation.
#[derive(Clone, Debug, Default)]
pub(in crate::sockets) struct Experience {
    paths: BTreeMap<NetworkId, Carried>,
}

#[derive(Clone, Copy, Debug)]
struct Carried {
    active_at: Timestamp,
    /// Bytes that had come and gone by then.
    counted: (Timestamp, u64, u64),
    /// The last time that what came filled a path; none has if the most is 0.
    filled_at: Timestamp,
    /// Whether the way out was the busier one when a way was filled last.
    sends: bool,
    /// When the present while began, the most of it, the most of the one before.
    most: (Timestamp, BitRate, BitRate),
}

impl Experience {
    /// Takes what is known of a path now; `is_active`: it is the one that carries.
    pub(in crate::sockets) fn observe(&mut self, now: Timestamp, report: &PathReport, is_active: bool) {
        let (received, sent) = (report.counters.received_bytes, report.counters.sent_bytes);
        let path = self.paths.entry(report.network).or_insert(Carried {
            active_at: now,
            counted: (now, received, sent),
            filled_at: now,
            sends: true,
            most: (now, BitRate(0), BitRate(0)),
        });
        if is_active {
            path.active_at = now;
        }
        let (since, received_before, sent_before) = path.counted;
        let span = now.since(since);
        if span < SPAN {
            return;
        }
        path.counted = (now, received, sent);
        // A path that was made anew counts from nothing.
        let over = |now: u64, before: u64| BitRate::from_bytes_over(Bytes(now.saturating_sub(before)), span);
        let (rate, out) = (over(received, received_before), over(sent, sent_before));
        if rate.max(out) >= FILLING {
            path.sends = out > rate;
        }
        if rate < FILLING {
            return;
        }
        path.filled_at = now;
        if now.since(path.most.0) > WHILE {
            path.most = (now, BitRate(0), path.most.1);
        }
        path.most.1 = path.most.1.max(rate);
    }

    /// The rate of a path in the direction that was busier last, as far as it is known and not too old.
    pub(in crate::sockets) fn rate(&self, now: Timestamp, report: &PathReport) -> Option<BitRate> {
        let path = self.paths.get(&report.network)?;
        if now.since(path.active_at) > BELIEVED {
            return None;
        }
        let sent = report.rate.filter(|_| report.counters.sent_bytes >= BYTES_TO_TRUST);
        let received = Some(path.most.1.max(path.most.2))
            .filter(|rate| rate.0 > 0 && now.since(path.filled_at) <= BELIEVED);
        if path.sends { sent.or(received) } else { received.or(sent) }
    }

    /// Forgets the paths that are no more.
    pub(in crate::sockets) fn keep(&mut self, is_there: impl Fn(NetworkId) -> bool) {
        self.paths.retain(|network, _| is_there(*network));
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use bond::{Address, Carrier, PathCounters, PathState};
    use policy::PathStatus;
    use units::PathId;

    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    fn report(sent: u64, received: u64, rate_mbps: f64) -> PathReport {
        PathReport {
            network: NetworkId(1),
            path: PathId(1),
            address: Address {
                network: NetworkId(1),
                carrier: Carrier::Udp,
                remote: SocketAddr::from(([192, 0, 2, 1], 4610)),
            },
            state: PathState::Usable,
            trickles: false,
            status: PathStatus::Active,
            smoothed_rtt: None,
            base_rtt: None,
            rtt_variation: Duration::ZERO,
            rate: Some(BitRate::from_mbps(rate_mbps)),
            window: Bytes(0),
            in_flight: Bytes(0),
            mtu: 1_200,
            loss_rate: 0.0,
            extra_delay: Duration::ZERO,
            counters: PathCounters { sent_bytes: sent, received_bytes: received, ..PathCounters::default() },
        }
    }

    #[test]
    fn what_is_received_counts_as_what_is_sent_does() {
        let (mut experience, mut now) = (Experience::default(), Timestamp::ZERO);
        let first = report(0, 0, 90.0);
        experience.observe(now, &first, true);
        assert_eq!(
            experience.rate(now, &first),
            None,
            "what a window says before anything was sent is no rate"
        );
        for step in 1..=4 {
            now += STEP;
            experience.observe(now, &report(50_000, 1_000_000 * step, 90.0), true);
        }
        let known = experience.rate(now, &report(50_000, 4_000_000, 90.0));
        assert_eq!(known, Some(BitRate::from_mbps(32.0)));
        // Then an upload: how fast the download was says nothing of it.
        for step in 1..=4 {
            now += STEP;
            experience.observe(now, &report(50_000 + 100_000 * step, 4_000_000, 3.2), true);
        }
        assert_eq!(experience.rate(now, &report(450_000, 4_000_000, 3.2)), Some(BitRate::from_mbps(3.2)));
    }

    #[test]
    fn a_path_that_slows_down_is_known_by_its_new_rate_and_a_pause_says_nothing() {
        let (mut experience, mut now, mut received) = (Experience::default(), Timestamp::ZERO, 0);
        let mut run = |bytes_each: u64, steps: u32| {
            for _ in 0..steps {
                now += STEP;
                received += bytes_each;
                experience.observe(now, &report(0, received, 0.0), true);
            }
            experience.rate(now, &report(0, received, 0.0))
        };
        run(1_000_000, 40);
        assert_eq!(run(2_000, 200), Some(BitRate::from_mbps(32.0)), "lines of a chat");
        assert_eq!(run(100_000, 60), Some(BitRate::from_mbps(3.2)));
        assert_eq!(run(2_000, 1_300), None, "too long ago");
    }

    #[test]
    fn what_a_path_carried_long_ago_is_not_believed_for_ever() {
        let (mut experience, now) = (Experience::default(), Timestamp::ZERO);
        let carried = report(300_000, 0, 5.0);
        experience.observe(now, &carried, true);
        let later = now + BELIEVED;
        experience.observe(later, &carried, false);
        assert_eq!(experience.rate(later, &carried), Some(BitRate::from_mbps(5.0)));
        assert_eq!(experience.rate(later + STEP, &carried), None);
        experience.keep(|_| false);
        assert_eq!(experience.rate(now, &carried), None);
    }
}
