//! What comes of TCP connections that are opened through the gateway: answered, refused, or nothing.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use policy::refusal::Outcome;
use units::Timestamp;
use wire::inner::{FlowKey, Headers, TCP};

/// Connections that wait for their first answer. Watches nothing unless it is wanted.
pub struct Openings {
    wanted: bool,
    waiting: HashMap<FlowKey, Timestamp>,
    outcomes: Vec<(IpAddr, Outcome)>,
}

impl Openings {
    /// Knows of none yet.
    pub fn new(wanted: bool) -> Self {
        Self { wanted, waiting: HashMap::new(), outcomes: Vec::new() }
    }

    /// Whether a packet to the gateway is one to wait for an answer to.
    pub fn concerns(&self, headers: &Headers) -> bool {
        self.wanted
            && headers.key.protocol == TCP
            && headers.tcp_flags & (Headers::SYN | Headers::ACK) == Headers::SYN
            && self.waiting.len() < MAXIMUM
    }

    /// Such a packet was sent.
    pub fn on_sent(&mut self, now: Timestamp, headers: &Headers) {
        self.waiting.entry(headers.key).or_insert(now);
    }

    /// A packet came from it.
    pub fn on_received(&mut self, packet: &[u8]) {
        if self.waiting.is_empty() {
            return;
        }
        let Ok(headers) = wire::inner::parse(packet) else { return };
        let flow = FlowKey {
            source: headers.key.destination,
            destination: headers.key.source,
            source_port: headers.key.destination_port,
            destination_port: headers.key.source_port,
            protocol: headers.key.protocol,
        };
        if self.waiting.remove(&flow).is_some() {
            let refused = headers.tcp_flags & Headers::RST != 0;
            let outcome = if refused { Outcome::Refused } else { Outcome::Connected };
            self.outcomes.push((flow.destination, outcome));
        }
    }

    /// What has become clear since the last call.
    pub fn take(&mut self, now: Timestamp) -> Vec<(IpAddr, Outcome)> {
        let outcomes = &mut self.outcomes;
        self.waiting.retain(|flow, since| {
            let waits = now.since(*since) < PATIENCE;
            if !waits {
                outcomes.push((flow.destination, Outcome::Silent));
            }
            waits
        });
        std::mem::take(outcomes)
    }
}

const MAXIMUM: usize = 4_096;
/// Silence for this long is an answer too.
const PATIENCE: Duration = Duration::from_secs(6);

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(from: [u8; 4], to: [u8; 4], ports: (u16, u16), flags: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 40, 0, 0, 0, 0, 64, TCP, 0, 0];
        packet.extend(from);
        packet.extend(to);
        packet.extend(ports.0.to_be_bytes());
        packet.extend(ports.1.to_be_bytes());
        packet.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 0, 0, 0, 0, 0, 0]);
        packet
    }

    #[test]
    fn answers_resets_and_silence_are_told_apart() {
        let (own, site) = ([10, 86, 0, 2], [198, 51, 100, 9]);
        let mut openings = Openings::new(true);
        for port in [1, 2, 3] {
            let headers = wire::inner::parse(&tcp(own, site, (port, 443), Headers::SYN)).unwrap();
            assert!(openings.concerns(&headers));
            openings.on_sent(Timestamp::ZERO, &headers);
        }
        openings.on_received(&tcp(site, own, (443, 1), Headers::SYN | Headers::ACK));
        openings.on_received(&tcp(site, own, (443, 2), Headers::RST | Headers::ACK));
        openings.on_received(&tcp(site, own, (443, 2), Headers::RST | Headers::ACK));
        let site = IpAddr::from(site);
        assert_eq!(openings.take(Timestamp::ZERO), [(site, Outcome::Connected), (site, Outcome::Refused)]);
        assert_eq!(openings.take(Timestamp::ZERO + PATIENCE), [(site, Outcome::Silent)]);
        assert_eq!(openings.take(Timestamp::ZERO + PATIENCE), []);
    }
}
