//! What is measured on one network, from samples of its flows and its counters. Pure.

use std::time::Duration;

use policy::network::{Loss, Metrics, RttSummary};
use policy::{CapacityEstimator, RttEstimator};
use units::{BitRate, Bytes, Timestamp};

/// What one TCP connection did since the sample before.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Progress {
    /// Its smoothed round-trip time; `None` for one of another host.
    pub rtt: Option<Duration>,
    /// Acknowledged by the far end; of another host what it sent, if something came back.
    pub sent: Bytes,
    /// Received.
    pub received: Bytes,
    /// How fast data reached the far end; `None` if its program had too little to send to tell.
    pub delivery_rate: Option<BitRate>,
    /// Segments that arrived at the far end.
    pub delivered: u32,
    /// Segments repeated.
    pub repeated: u32,
    /// Whether it was bulk in the sample before, too.
    pub was_bulk: bool,
    /// Whether what it has sent, and sent again, is without an answer.
    pub waits: bool,
}

impl Progress {
    /// Whether it moved as much as a bulk flow does in `time`.
    pub fn is_bulk(&self, time: Duration) -> bool {
        let moved = BitRate::from_bytes_over(Bytes(self.sent.0.max(self.received.0)), time);
        moved >= BULK
    }

    /// Whether anything moved.
    pub fn is_alive(&self) -> bool {
        self.sent.0 > 0 || self.received.0 > 0
    }
}

/// One network's meter.
#[derive(Clone, Debug, Default)]
pub struct NetworkMeter {
    rtt: RttEstimator,
    capacity: CapacityEstimator,
    /// What the first flows seemed to get, before one of them had lived through a whole sample.
    glimpse: Option<BitRate>,
    load: BitRate,
    bulk_flows: u32,
    loss: f64,
}

impl NetworkMeter {
    /// What `flows` did in the last `time`, in which the network carried so much both ways.
    pub fn on_sample(
        &mut self,
        now: Timestamp,
        time: Duration,
        flows: &[Progress],
        sent: Bytes,
        received: Bytes,
    ) {
        let (sending, receiving) =
            (BitRate::from_bytes_over(sent, time), BitRate::from_bytes_over(received, time));
        self.load = sending.max(receiving);
        let alive = flows.iter().filter(|flow| flow.is_alive());
        for rtt in alive.filter_map(|flow| flow.rtt).take(MOST_SAMPLES) {
            self.rtt.on_sample(rtt);
        }
        let bulk = || flows.iter().filter(|flow| flow.is_bulk(time));
        let lasting = || bulk().filter(|flow| flow.was_bulk);
        self.bulk_flows = u32::try_from(lasting().count()).unwrap_or(u32::MAX);
        match self.bulk_flows {
            0 => self.capacity.on_silence(now),
            // One that has just begun would count as a whole flow with part of a rate.
            count if bulk().count() == lasting().count() => {
                // Where this end sends, the kernel tells who was limited by the path. Where it receives nobody tells; a flow that
                // is bulk twice in a row is taken for one that fills its path.
                let is_filling = |flow: &Progress| flow.delivery_rate.is_some() || flow.received > flow.sent;
                if lasting().all(is_filling) {
                    let (sent, received) = lasting().fold((0, 0), |sum: (u64, u64), flow| {
                        (sum.0.saturating_add(flow.sent.0), sum.1.saturating_add(flow.received.0))
                    });
                    let rate = BitRate::from_bytes_over(Bytes(sent.max(received)), time);
                    self.capacity.on_sample(now, count, rate);
                }
            }
            _ => {}
        }
        let outward =
            bulk().filter_map(|flow| flow.delivery_rate).fold(0, |sum: u64, rate| sum.saturating_add(rate.0));
        self.glimpse = Some(BitRate(outward)).filter(|rate| rate.0 > 0).or(self.glimpse);
        self.take_loss(flows);
    }

    /// A round-trip time that was measured on purpose.
    pub fn on_probe(&mut self, rtt: Duration) {
        self.rtt.on_sample(rtt);
    }

    /// Nothing flows.
    pub fn on_silence(&mut self, now: Timestamp) {
        (self.load, self.bulk_flows) = (BitRate(0), 0);
        self.capacity.on_silence(now);
    }

    /// For the policy; `nominal` is what the link claims.
    pub fn metrics(&self, nominal: Option<BitRate>) -> Metrics {
        Metrics {
            rtt: RttSummary::of(&self.rtt),
            nominal,
            delivered: self.capacity.capacity().or(self.glimpse),
            others: self.capacity.others(),
            load: self.load,
            bulk_flows: self.bulk_flows,
            loss: Loss::from(self.loss),
        }
    }

    fn take_loss(&mut self, flows: &[Progress]) {
        let (delivered, repeated) = flows.iter().fold((0.0, 0.0), |sum, flow| {
            (sum.0 + f64::from(flow.delivered), sum.1 + f64::from(flow.repeated))
        });
        let all: f64 = delivered + repeated;
        if all >= LEAST_SEGMENTS {
            self.loss += LOSS_GAIN * (repeated / all - self.loss);
        }
    }
}

/// As the classifier of flows has it: 64 kB each second.
const BULK: BitRate = BitRate(512_000);
/// More flows tell nothing new in one sample.
const MOST_SAMPLES: usize = 8;
/// Fewer segments say nothing about loss.
const LEAST_SEGMENTS: f64 = 10.0;
/// Weight of a new sample of loss.
const LOSS_GAIN: f64 = 0.125;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn flow(sent: u64, received: u64) -> Progress {
        Progress {
            rtt: Some(Duration::from_millis(40)),
            sent: Bytes(sent),
            received: Bytes(received),
            delivery_rate: None,
            delivered: 0,
            repeated: 0,
            was_bulk: true,
            waits: false,
        }
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    #[test]
    fn what_programs_limit_says_nothing_about_capacity() {
        let mut meter = NetworkMeter::default();
        meter.on_sample(at(1), SECOND, &[flow(1_000_000, 0)], Bytes(1_000_000), Bytes(0));
        assert_eq!(meter.metrics(None).delivered, None);
        assert_eq!(meter.metrics(None).load, BitRate(8_000_000));
        let begun = Progress { delivery_rate: Some(BitRate(9_000_000)), was_bulk: false, ..flow(500_000, 0) };
        meter.on_sample(at(2), SECOND, &[begun], Bytes(500_000), Bytes(0));
        assert_eq!(meter.metrics(None).delivered, Some(BitRate(9_000_000)), "a glimpse");
        let limited_by_path = Progress { was_bulk: true, ..begun };
        meter.on_sample(at(3), SECOND, &[limited_by_path], Bytes(500_000), Bytes(0));
        assert_eq!(meter.metrics(None).delivered, Some(BitRate(4_000_000)), "what it got in a whole second");
        let idle = Progress { delivery_rate: Some(BitRate(99_000_000)), ..flow(1_000, 0) };
        meter.on_sample(at(4), SECOND, &[idle], Bytes(1_000), Bytes(0));
        assert_eq!(meter.metrics(None).delivered, Some(BitRate(4_000_000)), "a few packets in a burst");
    }

    #[test]
    fn a_download_shows_the_capacity_from_its_second_sample() {
        let mut meter = NetworkMeter::default();
        let begun = Progress { was_bulk: false, ..flow(0, 2_000_000) };
        meter.on_sample(at(1), SECOND, &[begun], Bytes(0), Bytes(2_000_000));
        assert_eq!((meter.metrics(None).delivered, meter.metrics(None).bulk_flows), (None, 0));
        meter.on_sample(at(2), SECOND, &[flow(0, 2_000_000), flow(0, 500_000)], Bytes(0), Bytes(2_500_000));
        let metrics = meter.metrics(None);
        assert_eq!((metrics.delivered, metrics.bulk_flows), (Some(BitRate(20_000_000)), 2));
        meter.on_silence(at(3));
        let metrics = meter.metrics(Some(BitRate(1)));
        assert_eq!((metrics.load, metrics.bulk_flows), (BitRate(0), 0));
        assert_eq!((metrics.delivered, metrics.nominal), (Some(BitRate(20_000_000)), Some(BitRate(1))));
    }

    /// By hand: one flow gets 6 Mbit/s, three get 9: 12 Mbit/s, of which one flow of others has its part. While a fourth one
    /// begins nothing is learned.
    #[test]
    fn flows_of_others_are_inferred() {
        let mut meter = NetworkMeter::default();
        meter.on_sample(at(1), SECOND, &[flow(0, 750_000)], Bytes(0), Bytes(750_000));
        meter.on_sample(at(2), SECOND, &[flow(0, 375_000); 3], Bytes(0), Bytes(1_125_000));
        let fourth = Progress { was_bulk: false, ..flow(0, 70_000) };
        let all = [flow(0, 351_000), flow(0, 352_000), flow(0, 352_000), fourth];
        meter.on_sample(at(3), SECOND, &all, Bytes(0), Bytes(1_125_000));
        let metrics = meter.metrics(None);
        assert!((metrics.delivered.unwrap().as_mbps() - 12.0).abs() < 1e-3, "{metrics:?}");
        assert_eq!((metrics.others.number(), metrics.bulk_flows), (1.0, 3));
    }

    /// By hand: 40 ms, then a probe of 80 ms: (7 * 40 + 80) / 8 = 45 ms.
    #[test]
    fn round_trips_are_smoothed_and_loss_is_averaged() {
        let mut meter = NetworkMeter::default();
        assert_eq!(meter.metrics(None).rtt, None);
        let lossy = Progress { delivered: 92, repeated: 8, ..flow(100_000, 0) };
        meter.on_sample(at(1), SECOND, &[lossy], Bytes(100_000), Bytes(0));
        meter.on_probe(Duration::from_millis(80));
        assert_eq!(meter.metrics(None).rtt.unwrap().smoothed, Duration::from_millis(45));
        assert!((meter.metrics(None).loss.part() - 0.01).abs() < 1e-9);
        meter.on_sample(at(2), SECOND, &[flow(0, 0)], Bytes(0), Bytes(0));
        assert_eq!(meter.metrics(None).rtt.unwrap().smoothed, Duration::from_millis(45), "a flow at rest");
    }
}
