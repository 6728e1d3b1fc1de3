//! What the class of one flow says about the next one to the same place.
//!
//! A flow that the kernel carries by itself is seen only through its counters, and its network is chosen before anything is known of
//! it. So its class is learned from counters ([`CountMeter`]) while it runs, and kept for its [`Service`]: the next flow to the same
//! address, protocol and port is taken for one of that class from its beginning.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use units::{Bytes, Timestamp};

use crate::FlowClass;
use crate::rules::Protocol;

/// Where flows go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Service {
    /// Their destination.
    pub destination: IpAddr,
    /// Their protocol.
    pub protocol: Protocol,
    /// Their destination port.
    pub port: u16,
}

/// The classes of services, as last learned.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Services {
    known: BTreeMap<Service, (FlowClass, Timestamp)>,
}

impl Services {
    /// Services that are remembered; the one that was learned longest ago makes room.
    pub const MOST: usize = 1_024;
    /// What was not seen again for so long is forgotten.
    pub const LIFETIME: Duration = Duration::from_secs(3_600);

    /// A flow to this service is of this class.
    pub fn learn(&mut self, now: Timestamp, service: Service, class: FlowClass) {
        let oldest = || self.known.iter().min_by_key(|(_, (_, at))| *at).map(|(service, _)| *service);
        if !self.known.contains_key(&service)
            && self.known.len() >= Self::MOST
            && let Some(oldest) = oldest()
        {
            self.known.remove(&oldest);
        }
        self.known.insert(service, (class, now));
    }

    /// Forgets what is old.
    pub fn expire(&mut self, now: Timestamp) {
        self.known.retain(|_, (_, at)| now.since(*at) < Self::LIFETIME);
    }

    /// The services of a class, in order.
    pub fn of_class(&self, class: FlowClass) -> impl Iterator<Item = Service> + '_ {
        self.known.iter().filter(move |(_, (known, _))| *known == class).map(|(service, _)| *service)
    }

    /// The class that a new flow is taken for.
    pub fn class_of(&self, service: &Service) -> Option<FlowClass> {
        self.known.get(service).map(|(class, _)| *class)
    }
}

/// Learns the class of a flow from what its counters say about once a second.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CountMeter {
    protocol: Protocol,
    last: Option<Sample>,
    /// Samples in a row that look like this.
    bulk: u8,
    steady: u8,
    samples: u8,
    /// Packets per second, on average.
    mean_rate: f64,
    class: Option<FlowClass>,
}

/// What a flow has carried so far, in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// So many packets.
    pub packets: u64,
    /// So many bytes.
    pub bytes: Bytes,
}

impl CountMeter {
    /// A meter of a flow of which nothing is known.
    pub fn new(protocol: Protocol) -> Self {
        Self { protocol, last: None, bulk: 0, steady: 0, samples: 0, mean_rate: 0.0, class: None }
    }

    /// Takes the counters of the flow's busier direction; the class, once there is one.
    ///
    /// As [`crate::FlowMeter`] has it: 64 kB a second is bulk, a steady stream of datagrams below full size is real-time, and what is
    /// neither for four samples is interactive.
    pub fn on_sample(&mut self, sample: Sample) -> Option<FlowClass> {
        let Some(last) = self.last.replace(sample) else { return self.class };
        let seconds = sample.at.since(last.at).as_secs_f64();
        if seconds < SHORTEST {
            self.last = Some(last);
            return self.class;
        }
        let packets = sample.packets.saturating_sub(last.packets) as f64;
        let bytes = sample.bytes.0.saturating_sub(last.bytes.0) as f64;
        let (rate, size) = (packets / seconds, if packets > 0.0 { bytes / packets } else { 0.0 });
        let near = (rate - self.mean_rate).abs() <= self.mean_rate * STEADY;
        let stream = self.protocol == Protocol::UDP && rate >= LEAST_STREAM && size < FULL_SIZE;
        let count = |before: u8, holds: bool| if holds { before.saturating_add(1) } else { 0 };
        self.steady = count(self.steady, stream && near);
        self.mean_rate =
            if self.samples == 0 { rate } else { self.mean_rate + (rate - self.mean_rate) / 2.0 };
        self.bulk = count(self.bulk, bytes / seconds >= BULK_RATE && self.steady < STEADY_SAMPLES);
        self.samples = self.samples.saturating_add(1);
        self.class = if self.steady >= STEADY_SAMPLES {
            Some(FlowClass::RealTime)
        } else if self.bulk >= BULK_SAMPLES && !stream {
            Some(FlowClass::Bulk)
        } else if self.class.is_none()
            && self.samples >= INTERACTIVE_SAMPLES
            && self.bulk == 0
            && self.steady == 0
        {
            Some(FlowClass::Interactive)
        } else {
            self.class
        };
        self.class
    }
}

/// Bytes a second; the level of [`crate::FlowMeter`].
const BULK_RATE: f64 = 64_000.0;
const BULK_SAMPLES: u8 = 2;
const STEADY_SAMPLES: u8 = 3;
const INTERACTIVE_SAMPLES: u8 = 4;
/// How far a sample may be from the mean, as a part of it.
const STEADY: f64 = 0.25;
/// Packets a second: fewer are no call.
const LEAST_STREAM: f64 = 10.0;
/// Bytes; downloads have packets of full size.
const FULL_SIZE: f64 = 1_200.0;
/// In seconds; samples that are nearer say nothing.
const SHORTEST: f64 = 0.2;

#[cfg(test)]
mod tests {
    use super::*;

    fn class(protocol: Protocol, seconds: &[(u64, u64)]) -> Vec<Option<FlowClass>> {
        let mut meter = CountMeter::new(protocol);
        let (mut packets, mut bytes) = (0, 0);
        let mut classes = Vec::new();
        meter.on_sample(Sample { at: Timestamp::ZERO, packets, bytes: Bytes(bytes) });
        for (second, (more, size)) in (1..).zip(seconds) {
            packets += more;
            bytes += more * size;
            let at = Timestamp::ZERO + Duration::from_secs(second);
            classes.push(meter.on_sample(Sample { at, packets, bytes: Bytes(bytes) }));
        }
        classes
    }

    #[test]
    fn flows_show_what_they_are() {
        use FlowClass::{Bulk, Interactive, RealTime};
        let download = [(400, 1_500); 3];
        assert_eq!(class(Protocol::TCP, &download), [None, Some(Bulk), Some(Bulk)]);
        assert_eq!(class(Protocol::UDP, &download), [None, Some(Bulk), Some(Bulk)], "QUIC");
        let call = [(50, 200), (50, 210), (51, 190), (50, 200)];
        assert_eq!(class(Protocol::UDP, &call).last(), Some(&Some(RealTime)));
        assert_eq!(class(Protocol::TCP, &call).last(), Some(&Some(Interactive)), "TCP is never real-time");
        let typing = [(3, 80), (0, 0), (12, 300), (1, 80)];
        assert_eq!(class(Protocol::TCP, &typing), [None, None, None, Some(Interactive)]);
        let page = [(90, 1_400), (2, 80), (0, 0), (0, 0), (0, 0)];
        assert_eq!(class(Protocol::TCP, &page).last(), Some(&Some(Interactive)), "one burst is no download");
        let later = [(1, 80), (1, 80), (1, 80), (1, 80), (900, 1_500), (900, 1_500)];
        assert_eq!(class(Protocol::TCP, &later).last(), Some(&Some(Bulk)), "it may show late");
    }

    #[test]
    fn a_high_rate_call_is_no_download() {
        let video = [(300, 1_000), (310, 1_000), (290, 1_000), (300, 1_000), (305, 1_000)];
        let classes = class(Protocol::UDP, &video);
        assert!(!classes.contains(&Some(FlowClass::Bulk)), "{classes:?}");
        assert_eq!(classes.last(), Some(&Some(FlowClass::RealTime)));
    }

    #[test]
    fn services_are_bounded_and_forgotten() {
        let service = |port| Service { destination: [192, 0, 2, 1].into(), protocol: Protocol::TCP, port };
        let mut services = Services::default();
        for port in 0..2_000 {
            services.learn(Timestamp::from_millis(port.into()), service(port), FlowClass::Bulk);
        }
        assert_eq!(services.of_class(FlowClass::Bulk).count(), Services::MOST);
        assert_eq!(services.class_of(&service(1_999)), Some(FlowClass::Bulk));
        assert_eq!(services.class_of(&service(0)), None, "the oldest made room");
        services.learn(Timestamp::from_millis(2_000), service(1_999), FlowClass::Interactive);
        assert_eq!(services.class_of(&service(1_999)), Some(FlowClass::Interactive));
        services.expire(Timestamp::from_millis(1_998) + Services::LIFETIME);
        assert_eq!(services.of_class(FlowClass::Bulk).count(), 0);
        assert_eq!(services.of_class(FlowClass::Interactive).count(), 1);
    }
}
