//! Puts what a recorder has written in the order of time.

use std::collections::BTreeMap;

use super::{TraceEvent, TraceRecord};

/// The records in the order of time, of each flow only the last word.
///
/// A flow is written when it has ended, with the time of its begin, and meanwhile now and then if it lasts: so that little is lost
/// in a crash. Records of one time stay as they were, networks before flows.
pub fn arrange(records: Vec<TraceRecord>) -> Vec<TraceRecord> {
    let mut last: BTreeMap<u64, usize> = BTreeMap::new();
    for (place, record) in records.iter().enumerate() {
        if let TraceEvent::Flow(flow) = &record.event {
            last.insert(flow.id, place);
        }
    }
    let is_last = |place: usize, record: &TraceRecord| match &record.event {
        TraceEvent::Networks { .. } => true,
        TraceEvent::Flow(flow) => last.get(&flow.id) == Some(&place),
    };
    let mut kept: Vec<TraceRecord> = records
        .into_iter()
        .enumerate()
        .filter(|(place, record)| is_last(*place, record))
        .map(|(_, record)| record)
        .collect();
    kept.sort_by_key(|record| (record.at, matches!(record.event, TraceEvent::Flow(_))));
    kept
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::time::Duration;

    use units::Bytes;

    use super::*;
    use crate::FlowClass;
    use crate::network::PowerSupply;
    use crate::replay::TraceFlow;

    fn flow(at: u64, id: u64, bytes: u64) -> TraceRecord {
        let destination = IpAddr::from([192, 0, 2, 1]);
        let flow = TraceFlow {
            id,
            program: None,
            cgroup: None,
            user: None,
            destination,
            domains: Vec::new(),
            protocol: 6,
            port: 443,
            dscp: 0,
            class: FlowClass::Bulk,
            bytes: Bytes(bytes),
        };
        TraceRecord { at: Duration::from_secs(at), event: TraceEvent::Flow(flow) }
    }

    #[test]
    fn the_last_word_on_each_flow_counts_and_time_goes_on() {
        let networks = TraceRecord {
            at: Duration::from_secs(2),
            event: TraceEvent::Networks { networks: Vec::new(), power: PowerSupply::Mains },
        };
        let written = vec![flow(1, 7, 10), flow(3, 8, 5), flow(2, 9, 1), networks.clone(), flow(1, 7, 90)];
        assert_eq!(arrange(written), [flow(1, 7, 90), networks, flow(2, 9, 1), flow(3, 8, 5)]);
    }
}
