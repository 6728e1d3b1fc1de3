//! Bulk reaches programs in pieces that they acknowledge once.

use std::fs;

use crate::bed::{Bed, SERVER_V4, eventually};
use crate::scenarios::{shape, working_paths};

const LENGTH: usize = 8_000_000;
/// Bytes of a full inner segment, and a little more.
const SEGMENT: usize = 1_450;

/// How many packets programs have sent into any0.
fn sent(bed: &Bed) -> usize {
    let table = bed.device.run(|| fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
    let line = table.lines().find_map(|line| line.trim().strip_prefix("any0:")).unwrap();
    // proc_net(5): eight figures of what came in, then bytes and packets of what went out.
    line.split_whitespace().nth(9).unwrap().parse().unwrap()
}

/// A receiver acknowledges every second segment that it is given by itself. The paths are slow enough for each to come alone.
pub fn bulk_is_acknowledged_in_larger_pieces() {
    let bed = Bed::new(false);
    bed.write_config("device", "[device]\ndns = \"off\"\n");
    shape(&bed);
    let _daemons = bed.connected();
    eventually("both paths work", || working_paths(&bed) == 2);
    let before = sent(&bed);
    bed.download(SERVER_V4, LENGTH, || {});
    let (acknowledgements, segments) = (sent(&bed) - before, LENGTH / SEGMENT);
    assert!(acknowledgements * 3 < segments, "{acknowledgements} for {segments} segments");
}
