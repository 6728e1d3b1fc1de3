//! Which paths of a bond share a bottleneck, told from their one-way delays.
//!
//! Follows RFC 8382: per interval each path keeps a few sums; over some seconds of intervals these give its skewness (a
//! loaded queue is seldom empty, so delays pile up near their maximum), variability and oscillation, and paths alike in all
//! three are grouped. Deviations:
//! - intervals begin at the same time for all paths, and the interval means must also go up and down together: the ends of a
//!   bond know all its paths, and two separate links of one kind are alike in every summary;
//! - paths whose interval means are the same but for a constant wait in one queue, however else their samples are spread: a path that sends in
//!   bursts sees other parts of that queue than its sibling, so the summaries of the two often differ;
//! - shorter intervals (200 ms, not 350), fewer of them (40, not 50) and wider margins, since the correlation confirms;
//! - a path whose delay hardly varies has no queue, whatever its skewness.
//!
//! Bounded: a ring of 40 intervals of 16 bytes for each of at most 16 paths.

use std::collections::VecDeque;
use std::time::Duration;
use units::{PathId, Timestamp};

/// Finds groups among the paths of one bond.
#[derive(Clone, Debug, Default)]
pub struct BottleneckDetector {
    series: Vec<Series>,
    interval: u64,
}

/// What is kept of one path.
#[derive(Clone, Debug)]
struct Series {
    path: PathId,
    group: PathId,
    open: Open,
    closed: VecDeque<Interval>,
    /// Mean delay over the closed intervals, microseconds.
    mean: f32,
    /// First delay seen: all others are kept relative to it, so that they fit in 32 bits.
    origin: i64,
}

/// Sums of the running interval.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    count: u16,
    lost: u16,
    skew: i16,
    sum: f32,
    deviations: f32,
}

/// One interval that is over.
#[derive(Clone, Copy, Debug, Default)]
struct Interval {
    count: u16,
    lost: u16,
    skew: i16,
    /// Mean delay, microseconds; that of the interval before if it had no samples.
    mean: f32,
    deviations: f32,
}

/// RFC 8382 section 3.2.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Summary {
    /// Part of the samples below the mean less part above it.
    skewness: f32,
    /// Mean absolute deviation, microseconds.
    variability: f32,
    /// Significant crossings of the mean per interval.
    oscillation: f32,
    /// Part of the packets that were lost.
    loss: f32,
}

impl BottleneckDetector {
    /// Takes the one-way delay of a packet of `path`, in microseconds and off by whatever the clocks differ.
    pub fn on_delay(&mut self, now: Timestamp, path: PathId, delay_micros: i64) {
        self.advance(now);
        let Some(series) = self.series_mut(path, delay_micros) else { return };
        let delay = delay_micros.saturating_sub(series.origin) as f32;
        let open = &mut series.open;
        open.count = open.count.saturating_add(1);
        open.sum += delay;
        open.deviations += (delay - series.mean).abs();
        let side = i16::from(delay < series.mean) - i16::from(delay > series.mean);
        open.skew = open.skew.saturating_add(side);
    }

    /// Notes lost packets of `path`.
    pub fn on_loss(&mut self, now: Timestamp, path: PathId, packets: u64) {
        self.advance(now);
        if let Some(series) = self.series.iter_mut().find(|series| series.path == path) {
            let packets = u16::try_from(packets).unwrap_or(u16::MAX);
            series.open.lost = series.open.lost.saturating_add(packets);
        }
    }

    /// Forgets a path.
    pub fn remove(&mut self, path: PathId) {
        self.series.retain(|series| series.path != path);
        self.regroup();
    }

    /// The group of `path`: equal for paths that share a bottleneck. A path in no group has its own.
    pub fn group(&self, path: PathId) -> u32 {
        let found = self.series.iter().find(|series| series.path == path);
        u32::from(found.map_or(path, |series| series.group).0)
    }

    fn series_mut(&mut self, path: PathId, origin: i64) -> Option<&mut Series> {
        if let Some(at) = self.series.iter().position(|series| series.path == path) {
            return self.series.get_mut(at);
        }
        if self.series.len() == MOST_PATHS {
            return None;
        }
        let series =
            Series { path, group: path, open: Open::default(), closed: VecDeque::new(), mean: 0.0, origin };
        self.series.push(series);
        self.series.last_mut()
    }

    fn advance(&mut self, now: Timestamp) {
        let interval = now.as_nanos() / INTERVAL_NANOS;
        if interval <= self.interval {
            return;
        }
        let passed = (interval - self.interval).min(INTERVALS as u64);
        self.interval = interval;
        for _ in 0..passed {
            self.series.iter_mut().for_each(Series::close);
        }
        self.regroup();
    }

    /// RFC 8382 section 3.3, pair by pair; what is alike in pairs is one group, named by its lowest path.
    fn regroup(&mut self) {
        let summaries: Vec<Option<Summary>> = self.series.iter().map(Series::summary).collect();
        let before: Vec<PathId> = self.series.iter().map(|series| series.group).collect();
        let mut groups: Vec<PathId> = self.series.iter().map(|series| series.path).collect();
        for (at, one) in self.series.iter().enumerate() {
            for (other_at, other) in self.series.iter().enumerate().skip(at + 1) {
                let (Some(left), Some(right)) = (summaries[at], summaries[other_at]) else { continue };
                let were_together = before[at] == before[other_at];
                let pairs = pairs(one, other);
                let congested = left.is_congested(were_together) && right.is_congested(were_together);
                let similar = congested && alike(&left, &right) && moves_along(&pairs, were_together);
                let varying = left.variability.min(right.variability) > LEAST_VARIABILITY;
                if similar || varying && is_one_queue(&pairs, were_together) {
                    let (from, to) = (groups[at].max(groups[other_at]), groups[at].min(groups[other_at]));
                    groups.iter_mut().filter(|group| **group == from).for_each(|group| *group = to);
                }
            }
        }
        for (series, group) in self.series.iter_mut().zip(groups) {
            series.group = group;
        }
    }
}

impl Series {
    fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        let last = self.closed.back().map_or(0.0, |interval| interval.mean);
        let mean = if open.count > 0 { open.sum / f32::from(open.count) } else { last };
        if self.closed.len() == INTERVALS {
            self.closed.pop_front();
        }
        self.closed.push_back(Interval {
            count: open.count,
            lost: open.lost,
            skew: open.skew,
            mean,
            deviations: open.deviations,
        });
        self.mean = self.closed.iter().map(|interval| interval.mean).sum::<f32>() / self.closed.len() as f32;
    }

    fn summary(&self) -> Option<Summary> {
        let filled = self.closed.iter().filter(|interval| interval.count >= LEAST_SAMPLES).count();
        if filled < LEAST_INTERVALS {
            return None;
        }
        let count: f32 = self.closed.iter().map(|interval| f32::from(interval.count)).sum();
        let lost: f32 = self.closed.iter().map(|interval| f32::from(interval.lost)).sum();
        let variability = self.closed.iter().map(|interval| interval.deviations).sum::<f32>() / count;
        Some(Summary {
            skewness: self.closed.iter().map(|interval| f32::from(interval.skew)).sum::<f32>() / count,
            variability,
            oscillation: self.crossings(SIGNIFICANT * variability) as f32 / self.closed.len() as f32,
            loss: lost / (count + lost),
        })
    }

    /// How often the interval means pass from beyond `margin` on one side of the mean to beyond it on the other.
    fn crossings(&self, margin: f32) -> usize {
        let mut above = None;
        let mut crossings = 0;
        for interval in &self.closed {
            let offset = interval.mean - self.mean;
            if offset.abs() <= margin {
                continue;
            }
            let is_above = offset > 0.0;
            crossings += usize::from(above.is_some_and(|before: bool| before != is_above));
            above = Some(is_above);
        }
        crossings
    }
}

impl Summary {
    fn is_congested(&self, were_together: bool) -> bool {
        let skewed = self.skewness < if were_together { SKEWNESS_STAYING } else { SKEWNESS };
        self.variability > LEAST_VARIABILITY && (skewed || self.loss > CONGESTIVE_LOSS)
    }
}

/// RFC 8382 section 3.3.1, steps 2 to 4.
fn alike(left: &Summary, right: &Summary) -> bool {
    (left.oscillation - right.oscillation).abs() <= OSCILLATION_MARGIN
        && (left.variability - right.variability).abs()
            <= VARIABILITY_MARGIN * left.variability.max(right.variability)
        && (left.skewness - right.skewness).abs() <= SKEWNESS_MARGIN
}

/// The means of the intervals in which both were measured, relative to each path's own; none if they are too few.
fn pairs(one: &Series, other: &Series) -> Vec<(f32, f32)> {
    let pairs = one.closed.iter().rev().zip(other.closed.iter().rev());
    let both = |(left, right): &(&Interval, &Interval)| left.count > 0 && right.count > 0;
    let pairs: Vec<(f32, f32)> =
        pairs.filter(both).map(|(left, right)| (left.mean - one.mean, right.mean - other.mean)).collect();
    if pairs.len() < LEAST_INTERVALS { Vec::new() } else { pairs }
}

/// Whether the interval means of two paths rise and fall together: Pearson's correlation.
fn moves_along(pairs: &[(f32, f32)], were_together: bool) -> bool {
    correlation(pairs) >= if were_together { CORRELATION_STAYING } else { CORRELATION }
}

/// Whether the interval means differ by a constant: what their difference varies by, as a part of what they vary by. Over one queue it was 0.00 to 0.07,
/// over separate links with one transfer 0.09 and more, mostly above 0.3 (`BOND/coupled`).
fn is_one_queue(pairs: &[(f32, f32)], were_together: bool) -> bool {
    let count = pairs.len() as f32;
    let sums = pairs.iter().fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
    let (left, right) = (sums.0 / count, sums.1 / count);
    let (mut difference, mut each) = (0.0, 0.0);
    for pair in pairs {
        let (one, other) = (pair.0 - left, pair.1 - right);
        difference += (one - other).powi(2);
        each += one * one + other * other;
    }
    each > 0.0 && difference <= each * if were_together { DIFFERENCE_STAYING } else { DIFFERENCE }
}

fn correlation(pairs: &[(f32, f32)]) -> f32 {
    let count = pairs.len() as f32;
    let (left, right) = pairs.iter().fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0, sums.1 + pair.1));
    let (left, right) = (left / count, right / count);
    let mut sums = [0.0f32; 3];
    for pair in pairs {
        let (one, other) = (pair.0 - left, pair.1 - right);
        sums[0] += one * other;
        sums[1] += one * one;
        sums[2] += other * other;
    }
    let scale = (sums[1] * sums[2]).sqrt();
    if scale > 0.0 { sums[0] / scale } else { 0.0 }
}

/// Paths beyond this are in no group.
const MOST_PATHS: usize = 16;
/// T of RFC 8382.
const INTERVAL_NANOS: u64 = Duration::from_millis(200).as_nanos() as u64;
/// N of RFC 8382.
const INTERVALS: usize = 40;
/// Intervals with enough samples that a verdict takes: three seconds.
const LEAST_INTERVALS: usize = 15;
/// Samples that an interval needs to count.
const LEAST_SAMPLES: u16 = 4;
/// c_s of RFC 8382: below it a path has a loaded queue.
const SKEWNESS: f32 = 0.1;
/// c_h of RFC 8382: the same for a path already in a group.
const SKEWNESS_STAYING: f32 = 0.3;
/// p_l of RFC 8382: loss that shows a bottleneck by itself.
const CONGESTIVE_LOSS: f32 = 0.05;
/// Microseconds; a queue that varies less is none.
const LEAST_VARIABILITY: f32 = 1_000.0;
/// p_v of RFC 8382: a crossing counts beyond this part of the variability.
const SIGNIFICANT: f32 = 0.7;
/// p_f of RFC 8382, widened.
const OSCILLATION_MARGIN: f32 = 0.2;
/// p_mad of RFC 8382, widened.
const VARIABILITY_MARGIN: f32 = 0.4;
/// p_s of RFC 8382, widened.
const SKEWNESS_MARGIN: f32 = 0.3;
/// Correlation of the interval means that makes a group.
const CORRELATION: f32 = 0.8;
/// Correlation that keeps one.
const CORRELATION_STAYING: f32 = 0.6;
/// Variation of the difference of the interval means, as a part of theirs, up to which two paths wait in one queue ...
const DIFFERENCE: f32 = 0.08;
/// ... and up to which they stay together.
const DIFFERENCE_STAYING: f32 = 0.15;

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A queue that others load: its delay wanders between empty and full, mostly nearer to full.
    struct LoadedQueue {
        millis: f64,
        pull: f64,
        random: ChaCha8Rng,
    }

    impl LoadedQueue {
        fn new(seed: u64) -> Self {
            Self { millis: 30.0, pull: 0.0, random: ChaCha8Rng::seed_from_u64(seed) }
        }

        /// Its delay 5 ms later.
        fn step(&mut self) -> f64 {
            if self.random.random_bool(0.01) {
                self.pull = self.random.random_range(-0.5..0.7);
            }
            self.millis = (self.millis + self.pull + self.random.random_range(-0.5..0.5)).clamp(0.0, 60.0);
            self.millis
        }
    }

    /// Feeds paths 0 and 1 for `seconds`; each path's delay is the base given plus what `queues` say.
    fn feed(
        detector: &mut BottleneckDetector,
        from: u64,
        seconds: u64,
        mut queues: impl FnMut() -> [f64; 2],
    ) -> Vec<bool> {
        let mut together = Vec::new();
        for step in 0..seconds * 200 {
            let now = Timestamp::from_millis(from * 1_000 + step * 5);
            for (path, (queue, base)) in queues().into_iter().zip([12.0, 47.0]).enumerate() {
                let delay = ((base + queue) * 1_000.0) as i64 - 77_000_000_000;
                detector.on_delay(now, PathId(path as u8), delay);
            }
            together.push(detector.group(PathId(0)) == detector.group(PathId(1)));
        }
        together
    }

    fn part(verdicts: &[bool]) -> f64 {
        let late = &verdicts[verdicts.len() / 3..];
        late.iter().filter(|together| **together).count() as f64 / late.len() as f64
    }

    #[test]
    fn one_queue_is_found() {
        for seed in 0..8 {
            let mut queue = LoadedQueue::new(seed);
            let mut noise = ChaCha8Rng::seed_from_u64(seed + 100);
            let mut detector = BottleneckDetector::default();
            let verdicts = feed(&mut detector, 0, 60, || {
                let millis = queue.step();
                [millis + noise.random_range(0.0..3.0), millis + noise.random_range(0.0..3.0)]
            });
            assert!(part(&verdicts) > 0.7, "seed {seed}: found {:.2} of the time", part(&verdicts));
        }
    }

    #[test]
    fn two_queues_of_a_kind_are_not_one() {
        for seed in 0..8 {
            let (mut first, mut second) = (LoadedQueue::new(seed), LoadedQueue::new(seed + 50));
            let mut detector = BottleneckDetector::default();
            let verdicts = feed(&mut detector, 0, 60, || [first.step(), second.step()]);
            assert!(part(&verdicts) < 0.1, "seed {seed}: mistaken {:.2} of the time", part(&verdicts));
        }
    }

    #[test]
    fn idle_paths_are_apart() {
        let mut noise = ChaCha8Rng::seed_from_u64(3);
        let mut detector = BottleneckDetector::default();
        let verdicts = feed(&mut detector, 0, 20, || {
            let jitter = noise.random_range(0.0..0.5);
            [jitter, jitter]
        });
        assert!(verdicts.iter().all(|together| !together), "they move together, but no queue is there");
    }

    #[test]
    fn a_group_ends_when_the_bottleneck_moves() {
        let mut shared = LoadedQueue::new(5);
        let (mut first, mut second) = (LoadedQueue::new(6), LoadedQueue::new(7));
        let mut detector = BottleneckDetector::default();
        let before = feed(&mut detector, 0, 30, || {
            let millis = shared.step();
            [millis, millis]
        });
        assert!(part(&before) > 0.6, "{:.2}", part(&before));
        let after = feed(&mut detector, 30, 30, || [first.step(), second.step()]);
        assert!(part(&after) < 0.2, "{:.2}", part(&after));
        detector.remove(PathId(0));
        assert_eq!((detector.group(PathId(0)), detector.group(PathId(1))), (0, 1));
    }

    #[test]
    fn memory_and_time_are_bounded() {
        let mut detector = BottleneckDetector::default();
        for path in 0..=255u8 {
            detector.on_delay(Timestamp::from_millis(u64::from(path)), PathId(path), i64::MIN);
            detector.on_delay(Timestamp::FAR_FUTURE - Duration::from_millis(1), PathId(path), i64::MAX);
            detector.on_loss(Timestamp::ZERO, PathId(path), u64::MAX);
        }
        assert_eq!(detector.series.len(), MOST_PATHS);
        assert!(detector.series.iter().all(|series| series.closed.len() <= INTERVALS));
        assert_eq!(detector.group(PathId(200)), 200);
    }

    /// A path that sends in bursts sees mostly the upper part of a queue that its sibling sees all of: skewness and variability differ.
    #[test]
    fn one_queue_is_found_whichever_part_of_it_a_path_sees() {
        let mut queue = LoadedQueue::new(4);
        let mut detector = BottleneckDetector::default();
        let mut turn = 0;
        let verdicts = feed(&mut detector, 0, 60, || {
            turn += 1;
            let millis = queue.step();
            let burst = if turn % 8 == 0 { -4.0 } else { 0.6 };
            [millis, millis + burst]
        });
        assert!(part(&verdicts) > 0.9, "found {:.2} of the time", part(&verdicts));
    }

    /// By hand: means of 1, 2, 3 and 3, 4, 5 differ by a constant; 1, 2, 3 and 2, 4, 6 by 1, 2, 3, which varies by 2 of 2 + 8.
    #[test]
    fn differences_by_hand() {
        assert!(is_one_queue(&[(1.0, 3.0), (2.0, 4.0), (3.0, 5.0)], false));
        assert!(!is_one_queue(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)], true));
        assert!(!is_one_queue(&[(1.0, 1.0), (1.0, 1.0)], true), "nothing varies");
        assert!(!is_one_queue(&[], true));
    }

    /// By hand: (1,2), (2,4), (3,6) lie on a line; (1,1), (2,-1), (3,1) have covariance 0.
    #[test]
    fn correlation_by_hand() {
        assert!((correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 6.0)]) - 1.0).abs() < 1e-6);
        assert!(correlation(&[(1.0, 1.0), (2.0, -1.0), (3.0, 1.0)]).abs() < 1e-6);
        assert!(correlation(&[(1.0, 1.0), (1.0, 2.0)]).abs() < 1e-6, "no variance, no correlation");
    }
}
