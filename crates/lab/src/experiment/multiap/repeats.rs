//! MULTIAP fig 2c: two access points that do not hear each other, and a device between them. One always sends; the other has a single frame now and
//! then, which is an episode. How often each loses a frame for good then, by how often a frame may be repeated.

use std::time::Duration;

use radio::airtime::CHECK_SEQUENCE;
use radio::frame::{Header, Kind};
use sim::medium::{
    AccessCategory, Event, Frame, FrameId, Link, Links, Medium, Rates, Series, SignalLoss, StationId, Tuning,
};
use units::{Bytes, Frequency, MacAddress, Timestamp};

use super::hidden::{MIDDLE, SLOW};
use super::nomadic::{FRAME, signal_dbm};
use super::{id, rounded};
use crate::experiment::{Axes, BarGroup, Bed, Experiment, Goal, Metrics, Report};

const CHANNEL: Frequency = Frequency(5_180);
const MOST_REPEATS: u8 = 10;
const APART_IN_TIME: Duration = Duration::from_millis(200);
const EPISODES: u32 = 2_000;
/// Frames, by name: as in the other rows, and shorter ones.
const LENGTHS: [(&str, Bytes); 2] = [("full", FRAME), ("half", Bytes(FRAME.0 / 2))];
const SENDERS: [(&str, &str); 2] = [("always sends", "busy"), ("seldom sends", "rare")];
/// What each loses with six repeats or more (`[MULTIAP] section 4.1`).
const PAPER: [(&str, &str, f64); 2] =
    [("paper, always sends", "paper.busy_lost", 0.0), ("paper, seldom sends", "paper.rare_lost", 0.4)];

const DEVICE: StationId = StationId(0);
const BUSY: StationId = StationId(1);
const RARE: StationId = StationId(2);

/// Where the number of a sender's losses is kept.
fn metric(length: &str, repeats: u8, sender: &str) -> String {
    format!("{length}.repeats_{repeats}.{sender}_lost")
}

pub(super) fn experiment() -> Experiment {
    let mut spec = toml::Table::new();
    let mut put = |key: &str, value: String| spec.insert(key.to_owned(), value.into());
    put(
        "access_points",
        format!("two on one channel, 802.11a, {MIDDLE} m from the device; neither hears the other"),
    );
    put("rate", format!("all frames at {} Mbit/s, nothing fades", SLOW.0 / 2));
    for (name, length) in LENGTHS {
        put(name, format!("frames of {} B", length.0));
    }
    put("episodes", format!("{EPISODES}, {APART_IN_TIME:?} apart"));
    let group = |length: &str, repeats: u8| {
        let ours = SENDERS.iter().map(|(words, name)| ((*words).to_owned(), metric(length, repeats, name)));
        let paper = PAPER.iter().map(|(words, metric, _)| ((*words).to_owned(), (*metric).to_owned()));
        BarGroup { label: format!("{length}, {repeats} repeats"), bars: ours.chain(paper).collect() }
    };
    Experiment {
        id: id("fig2c-repeats"),
        title: "two senders that do not hear each other, one of which always sends: how often a frame of each is lost for good when both have one"
            .to_owned(),
        spec,
        paper: Some(
            "figure 2c: the one that seldom sends loses around 40 % with six repeats or more, the one that always sends none"
                .to_owned(),
        ),
        goals: vec![
            Goal::at_most(metric("full", 6, "rare"), 0.5),
            Goal::at_least(metric("full", MOST_REPEATS, "rare"), 0.3),
            Goal::at_most(metric("full", 6, "busy"), 0.05),
            Goal::at_most(metric("full", MOST_REPEATS, "busy"), 0.05),
        ],
        beds: vec![Bed::Sim],
        bars: LENGTHS.iter().flat_map(|(length, _)| [6, MOST_REPEATS].map(|repeats| group(length, repeats))).collect(),
        unit: "part of the episodes",
        axes: Axes { over: Some("repeats at most"), unit: None },
        runner: Box::new(|_bed, seed| run(seed)),
    }
}

fn run(seed: u64) -> anyhow::Result<Report> {
    let mut metrics: Metrics = PAPER.iter().map(|(_, metric, part)| ((*metric).to_owned(), *part)).collect();
    let mut series = Vec::new();
    for (length, bytes) in LENGTHS {
        let mut lines: Vec<Vec<(f64, f64)>> = vec![Vec::new(); SENDERS.len()];
        for repeats in 0..=MOST_REPEATS {
            let lost = episodes(bytes, repeats, seed)?;
            for (((_, name), line), lost) in SENDERS.iter().zip(&mut lines).zip(lost) {
                metrics.insert(metric(length, repeats, name), rounded(lost));
                line.push((f64::from(repeats), lost));
            }
        }
        series
            .extend(SENDERS.iter().zip(lines).map(|((words, _), line)| (format!("{length}: {words}"), line)));
    }
    Ok(Report { metrics, series, ..Report::default() })
}

fn address(station: StationId) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, station.0 as u8 + 1])
}

/// The parts of the episodes in which the busy and the rare sender lost a frame for good.
fn episodes(length: Bytes, repeats: u8, seed: u64) -> anyhow::Result<[f64; SENDERS.len()]> {
    let signal_dbm = signal_dbm(MIDDLE).round() as i8;
    let link = Link { signal_dbm: Some(signal_dbm), loss: SignalLoss::BySignal, ..Link::default() };
    let mut links = Links::new(link);
    links.hide(BUSY, RARE);
    let mut medium = Medium::new(links, seed);
    for station in [DEVICE, BUSY, RARE] {
        medium.add_station(Tuning::To(CHANNEL), 4);
        medium.add_address(station, address(station));
    }
    let frame = |sender: StationId, id| {
        let mut header = Header::new(Kind::QosData, address(DEVICE), address(sender), address(sender));
        header.control.from_access_point = true;
        let mut bytes = Vec::new();
        header.write(&mut bytes);
        bytes.resize((length.0 - CHECK_SEQUENCE.0) as usize, 0);
        let rates = Rates::Series(Series::steady(SLOW, repeats + 1));
        Frame {
            id: FrameId(id),
            frequency: CHANNEL,
            bytes,
            rates,
            wants_acknowledgement: true,
            category: AccessCategory::BestEffort,
        }
    };
    let (mut busy_lost, mut rare_lost) = (0_u32, 0_u32);
    let mut now = Timestamp::ZERO;
    let mut episode_at = now + APART_IN_TIME;
    for episode in 0..EPISODES {
        // What the busy one has on the air at its end belongs to an episode.
        let (mut is_begun, mut rare_is_over, mut is_over, mut busy_lost_now) = (false, false, false, false);
        while now < episode_at || !is_over {
            while medium.has_room(BUSY, AccessCategory::BestEffort) {
                medium.transmit(now, BUSY, frame(BUSY, 0))?;
            }
            if now >= episode_at && !is_begun {
                is_begun = true;
                medium.transmit(now, RARE, frame(RARE, u64::from(episode)))?;
            }
            let next = medium.poll_timeout().unwrap_or(now).max(now);
            now = if is_begun { next } else { next.min(episode_at) };
            medium.handle_timeout(now);
            while let Some(event) = medium.poll_event() {
                let Event::Outcome(outcome) = event else { continue };
                if outcome.sender == RARE {
                    rare_is_over = true;
                    rare_lost += u32::from(!outcome.acknowledged);
                } else {
                    is_over |= rare_is_over;
                    busy_lost_now |= is_begun && !outcome.acknowledged;
                }
            }
        }
        busy_lost += u32::from(busy_lost_now);
        episode_at = now + APART_IN_TIME;
    }
    Ok([busy_lost, rare_lost].map(|lost| f64::from(lost) / f64::from(EPISODES)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_repeated_is_lost_by_both_and_what_is_often_is_lost_by_the_rare_one() {
        let [busy, rare] = episodes(FRAME, 0, 1).unwrap();
        assert!(busy > 0.9 && rare > 0.9, "{busy} {rare}");
        let [busy, rare] = episodes(FRAME, MOST_REPEATS, 1).unwrap();
        assert!(busy < 0.05 && rare > 0.2, "{busy} {rare}");
    }
}
