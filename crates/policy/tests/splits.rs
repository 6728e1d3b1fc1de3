//! Splitting flows by capacity, our default, beside the paper's rules: `[VIF] eq. 2` and `eq. 3`.

#[path = "../examples/splits/model.rs"]
mod model;

use model::{AT_ONCE, How, PAIRS};
use policy::Split;

/// In every pair of networks flows are done sooner, on average, than under the better one of the paper's rules.
#[test]
fn by_capacity_flows_are_done_soonest() {
    for (what, links) in PAIRS {
        for at_once in AT_ONCE {
            let mean = |split| {
                let times = model::run(&links, split, How::Map, at_once);
                assert!(times.len() > 100, "{what}: {} flows", times.len());
                times.iter().sum::<f64>() / times.len() as f64
            };
            let [by_rtt, by_bandwidth, by_capacity] =
                [Split::InverseRtt, Split::Bandwidth, Split::Capacity].map(mean);
            let paper = by_rtt.min(by_bandwidth);
            println!("{what}, {at_once} at once: {by_capacity:.2} s, {by_rtt:.2} s, {by_bandwidth:.2} s");
            assert!(
                by_capacity < paper,
                "{what}, {at_once} at once: {by_capacity:.3} s, not less than {paper:.3} s"
            );
        }
    }
}
