//! How long changes of channel take: in the log as means, in a trace each of them.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use radio::Switch;
use tracing::warn;
use units::Timestamp;

/// What a trace begins with. Times are in nanoseconds of `CLOCK_BOOTTIME`: the slot was over, the access points were told, the card was asked
/// for the new channel, it was there.
pub(super) const TRACE_HEADER: &str = "begun,asleep,asked,tuned\n";

/// The changes of channel of a radio.
#[derive(Default)]
pub(super) struct Switches {
    trace: Option<File>,
    /// When the card was last asked for a channel.
    asked: Timestamp,
    since_report: Means,
}

#[derive(Default)]
struct Means {
    switches: u32,
    total: Duration,
    tunes: u32,
    tuning: Duration,
}

impl Switches {
    /// With a file to which each is written.
    pub fn new(trace: Option<File>) -> Self {
        Self { trace, ..Self::default() }
    }

    /// The card has changed its channel.
    pub fn tuned(&mut self, asked: Timestamp, now: Timestamp) {
        self.asked = asked;
        self.since_report.tunes += 1;
        self.since_report.tuning += now.since(asked);
    }

    /// The station has told of a change; a full disk ends the trace, not the radio.
    pub fn add(&mut self, switch: &Switch) {
        self.since_report.switches += 1;
        self.since_report.total += switch.tuned.since(switch.begun);
        let Some(file) = &mut self.trace else { return };
        let times = [switch.begun, switch.asleep, self.asked, switch.tuned].map(Timestamp::as_nanos);
        let line = format!("{},{},{},{}\n", times[0], times[1], times[2], times[3]);
        if let Err(error) = file.write_all(line.as_bytes()) {
            warn!("the trace ends here: {error}");
            self.trace = None;
        }
    }

    /// What to log about those since the last report.
    pub fn report(&mut self) -> impl fmt::Display + use<> {
        std::mem::take(&mut self.since_report)
    }
}

impl fmt::Display for Means {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mean = |total: Duration, count: u32| total.checked_div(count).unwrap_or_default();
        write!(
            formatter,
            "{} changes of channel, {:?} each on average, of which the card took {:?}",
            self.switches,
            mean(self.total, self.switches),
            mean(self.tuning, self.tunes)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Seek as _};

    #[test]
    fn each_change_is_a_line_of_the_trace() {
        let mut file = tempfile::tempfile().unwrap();
        let mut switches = Switches::new(Some(file.try_clone().unwrap()));
        let at = Timestamp::from_micros;
        switches.tuned(at(5), at(9));
        switches.add(&Switch { begun: at(1), asleep: at(4), tuned: at(9) });
        let said = switches.report().to_string();
        assert!(
            said.starts_with("1 changes of channel, 8µs each on average, of which the card took 4µs"),
            "{said}"
        );
        assert!(switches.report().to_string().starts_with("0 changes"));
        let mut text = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "1000,4000,5000,9000\n");
    }
}
