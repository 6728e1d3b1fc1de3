//! MULTIAP fig 3b: what gets through of frames that are never repeated, from two access points of one channel at once, to a device between them.

use std::time::Duration;

use radio::Rate;
use radio::airtime::CHECK_SEQUENCE;
use radio::frame::{Header, Kind};
use sim::medium::{
    AccessCategory, Event, Frame, FrameId, Ground, Link, Links, Medium, PathLoss, Rates, Series, SignalLoss,
    StationId, Trace, Tuning,
};
use units::{Frequency, MacAddress, Timestamp};

use super::nomadic::{APART, FRAME, signal_dbm};
use super::{id, mean, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const CHANNEL: Frequency = Frequency(5_180);
const DEVICE: StationId = StationId(0);
const POINTS: [(StationId, &str, f64); 2] = [(StationId(1), "first", 0.0), (StationId(2), "second", APART)];
/// Of each access point, 100 a second, in alternation: so few that neither has to wait for the other.
const EVERY: Duration = Duration::from_millis(10);
/// A rate that loses a part of them there.
const RATE: Rate = Rate(72);
const FADES: Duration = Duration::from_millis(70);
/// What arrives is averaged over so long.
const WINDOW: Duration = Duration::from_millis(500);
const WINDOWS: usize = 400;
/// So many are drawn.
const DRAWN: usize = 60;
/// More would mean that both fade together.
const UNRELATED: f64 = 0.2;

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put(
        "access_points",
        format!("two, {APART} m apart, on one channel, 802.11a; the device is in the middle"),
    );
    put(
        "frames",
        format!("to all, {} B, one in {EVERY:?} of each, at {} Mbit/s, never repeated", FRAME.0, RATE.0 / 2),
    );
    put("fades", format!("Rayleigh, {FADES:?} each, each pair of radios by itself"));
    put("delivered", format!("the part that arrives, by {WINDOW:?}"));
    put("correlation", "of what is delivered from the first and from the second, -1 to 1".into());
    put(
        "second_when_first_is_bad",
        "while less than its mean arrives from the first, as a part of the second's mean".into(),
    );
    Experiment {
        id: id("fig3b-broadcasts"),
        title: "frames that are never repeated from two access points at once: what gets through of each"
            .to_owned(),
        spec,
        paper: Some("figure 3b: what gets through of each goes up and down, and independently".to_owned()),
        goals: vec![
            Goal::at_most("correlation", UNRELATED),
            Goal::at_least("correlation", -UNRELATED),
            Goal::at_least("second_when_first_is_bad", 0.9),
        ],
        beds: vec![Bed::Sim],
        bars: vec![BarGroup {
            label: "delivered".into(),
            bars: POINTS.map(|(_, name, _)| (name.to_owned(), format!("{name}.delivered"))).to_vec(),
        }],
        unit: "part of the frames",
        axes: Axes { over: Some("s"), unit: Some("part of the frames that arrive") },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let delivered = delivered(seed)?;
    let mut metrics = Metrics::new();
    let mut series = Vec::new();
    for ((_, name, _), parts) in POINTS.iter().zip(&delivered) {
        metrics.insert(format!("{name}.delivered"), rounded(mean(parts)));
        metrics.insert(format!("{name}.deviation"), rounded(covariance(parts, parts).sqrt()));
        let drawn = parts.iter().take(DRAWN).zip(0..);
        series.push((
            (*name).to_owned(),
            drawn.map(|(part, window)| (f64::from(window) * WINDOW.as_secs_f64(), *part)).collect(),
        ));
    }
    let [first, second] = &delivered;
    let together = covariance(first, second) / (covariance(first, first) * covariance(second, second)).sqrt();
    metrics.insert("correlation".into(), rounded(together));
    let usual = mean(first);
    let beside: Vec<f64> =
        first.iter().zip(second).filter(|(part, _)| **part < usual).map(|(_, part)| *part).collect();
    metrics.insert("second_when_first_is_bad".into(), rounded(mean(&beside) / mean(second)));
    Ok(Report { metrics, series, ..Report::default() })
}

fn covariance(one: &[f64], other: &[f64]) -> f64 {
    let (mean_one, mean_other) = (mean(one), mean(other));
    let products: Vec<f64> =
        one.iter().zip(other).map(|(one, other)| (one - mean_one) * (other - mean_other)).collect();
    mean(&products)
}

/// What the device hears of each, by window.
fn delivered(seed: u64) -> anyhow::Result<[Vec<f64>; 2]> {
    // Only one distance matters: all hear each other.
    let exponent = 3.5;
    let metre_dbm = signal_dbm(APART / 2.0) + 10.0 * exponent * (APART / 2.0).log10();
    let path_loss = PathLoss { metre_dbm, exponent, coherence: Some(FADES), senses_from_dbm: -120.0 };
    let mut ground = Ground::new(path_loss, Timestamp::ZERO, seed);
    let places = POINTS.map(|(station, _, along)| (station, along));
    for (station, along) in places.into_iter().chain([(DEVICE, APART / 2.0)]) {
        ground.place(station, Trace::new(vec![(Duration::ZERO, [along, 0.0])]).unwrap_or_default());
    }
    let mut links = Links::new(Link { loss: SignalLoss::BySignal, ..Link::default() });
    links.set_ground(ground);
    let mut medium = Medium::new(links, seed);
    for station in [DEVICE, POINTS[0].0, POINTS[1].0] {
        medium.add_station(Tuning::To(CHANNEL), 4);
        medium.add_address(station, address(station));
    }
    let in_a_window = (WINDOW.as_nanos() / EVERY.as_nanos()) as usize;
    let mut heard = [vec![0.0; WINDOWS], vec![0.0; WINDOWS]];
    let mut now = Timestamp::ZERO;
    for number in 0..2 * WINDOWS * in_a_window {
        let due = Timestamp::ZERO + EVERY / 2 * number as u32;
        loop {
            while let Some(event) = medium.poll_event() {
                let Event::Reception(reception) = event else { continue };
                let from = POINTS.iter().position(|(station, ..)| *station == reception.sender);
                let window = reception.id.0 as usize / in_a_window;
                let counted = from.and_then(|from| heard.get_mut(from)?.get_mut(window));
                if let Some(counted) = counted.filter(|_| reception.station == DEVICE) {
                    *counted += 1.0 / in_a_window as f64;
                }
            }
            let Some(next) = medium.poll_timeout().filter(|next| *next <= due) else { break };
            now = now.max(next);
            medium.handle_timeout(now);
        }
        now = due;
        let (sender, ..) = POINTS[number % 2];
        medium.transmit(now, sender, broadcast(sender, number as u64 / 2))?;
    }
    Ok(heard)
}

fn broadcast(sender: StationId, number: u64) -> Frame {
    let own = address(sender);
    let mut header = Header::new(Kind::Data, MacAddress::BROADCAST, own, own);
    header.control.from_access_point = true;
    let mut bytes = Vec::new();
    header.write(&mut bytes);
    bytes.resize((FRAME.0 - CHECK_SEQUENCE.0) as usize, 0);
    let rates = Rates::Series(Series::steady(RATE, 1));
    Frame {
        id: FrameId(number),
        frequency: CHANNEL,
        bytes,
        rates,
        wants_acknowledgement: false,
        category: AccessCategory::BestEffort,
    }
}

fn address(station: StationId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, station.0 as u8 + 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_go_up_and_down_and_are_no_mirror_of_each_other() {
        let report = run(3).unwrap();
        let metric = |name: &str| report.metrics[name];
        for (_, name, _) in POINTS {
            let (delivered, deviation) =
                (metric(&format!("{name}.delivered")), metric(&format!("{name}.deviation")));
            assert!((0.3..=0.95).contains(&delivered) && deviation > 0.05, "{delivered} {deviation}");
        }
        assert!(metric("correlation").abs() < UNRELATED, "{}", metric("correlation"));
    }
}
