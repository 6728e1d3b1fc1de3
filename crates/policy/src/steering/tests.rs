//! Steering over time, on a channel whose access points take turns packet by packet.

use super::point::settled;
use super::*;

const CHANNEL: Frequency = Frequency(2_437);
const OTHER: Frequency = Frequency(2_462);
const STEP: Duration = Duration::from_millis(100);

pub(super) fn view(network: u32, micros: u64) -> PointView {
    PointView {
        network: NetworkId(network),
        access_point: MacAddress([2, 0, 0, 0, 0, network as u8]),
        channel: CHANNEL,
        packet_time: Some(Duration::from_micros(micros)),
        confidence: 0.9,
        delivered: None,
        signal_dbm: None,
        other_way: true,
        carried: 0.0,
        others: 0.0,
        stays: true,
        reaches: true,
    }
}

#[test]
fn a_figure_that_is_no_number_is_nothing() {
    let run = |nothing: f64| -> Vec<String> {
        let mut steering = Steering::new(SteeringSettings::default());
        let mut step = |at: u64| {
            let figure = |figure: f64| if at.is_multiple_of(4) { nothing } else { figure };
            let views = [
                PointView { carried: figure(400.0), ..view(0, 500) },
                PointView { carried: figure(100.0), others: figure(0.1), ..view(1, 3_000) },
            ];
            format!("{:?}", steering.update(Timestamp::from_millis(at * 100), &views))
        };
        (0..100).map(&mut step).collect()
    };
    assert_eq!(run(f64::NAN), run(0.0));
}

/// A channel that gives each backlogged access point the same number of packets, up to what comes from beyond.
struct World {
    steering: Steering,
    now: Timestamp,
    /// Packet time in us, and most packets a second from beyond.
    points: Vec<(u64, f64)>,
    /// An access point of somebody else, which always has something to send: its packet time in us.
    stranger: Option<u64>,
    /// The part of all attempts that are read.
    delivered: Option<f64>,
    /// How the first one is heard, dBm.
    signal_dbm: Option<f32>,
    steered: Vec<Steered>,
    /// Packets in a second, of all.
    total: f64,
}

impl World {
    fn new(points: &[(u64, f64)]) -> Self {
        let steering = Steering::new(SteeringSettings::default());
        Self {
            steering,
            now: Timestamp::from_millis(50),
            points: points.to_vec(),
            stranger: None,
            delivered: None,
            signal_dbm: None,
            steered: Vec::new(),
            total: 0.0,
        }
    }

    /// Whether each is used in this step, by what was decided in the last.
    fn used(&self) -> Vec<usize> {
        (0..self.points.len()).filter(|at| self.steered.get(*at).is_none_or(|steered| steered.used)).collect()
    }

    /// Packets a second of each: rounds in which everybody that is not at its limit has one packet, until the air is full. The stranger's are last.
    fn carried(&self) -> Vec<f64> {
        let mut carried = vec![0.0; self.points.len() + 1];
        let (mut open, mut air) = (self.used(), 1.0);
        open.extend(self.stranger.map(|_| self.points.len()));
        let micros =
            |at: usize| self.points.get(at).map(|point| point.0).or(self.stranger).unwrap_or_default();
        while !open.is_empty() && air > 1e-9 {
            let round: f64 = open.iter().map(|at| micros(*at) as f64 / 1e6).sum();
            let room = open.iter().map(|at| self.most(*at) - carried[*at]).fold(air / round, f64::min);
            open.iter().for_each(|at| carried[*at] += room);
            air -= room * round;
            open.retain(|at| self.most(*at) - carried[*at] > 1e-6);
        }
        carried
    }

    /// What comes from beyond and may be sent over it.
    fn most(&self, at: usize) -> f64 {
        let limit = self.steered.get(at).and_then(|steered| steered.limit);
        let limit = limit.map_or(f64::MAX, |limit| limit.bytes_per_second() / FULL_PACKET.0 as f64);
        self.points.get(at).map_or(f64::MAX, |point| point.1).min(limit)
    }

    fn step(&mut self) {
        self.now += STEP;
        let (mut carried, used) = (self.carried(), self.used());
        let others = carried.pop().unwrap_or_default() * self.stranger.unwrap_or_default() as f64 / 1e6;
        self.total = carried.iter().sum();
        let views: Vec<PointView> = (self.points.iter().zip(&carried).zip(0..))
            .map(|(((micros, _), carried), network)| PointView {
                carried: *carried,
                packet_time: used.contains(&(network as usize)).then(|| Duration::from_micros(*micros)),
                others,
                delivered: self.delivered,
                signal_dbm: self.signal_dbm.map(|dbm| if network == 0 { dbm } else { -80.0 }),
                ..view(network, 0)
            })
            .collect();
        self.steered = self.steering.update(self.now, &views);
    }

    /// Mean packets a second of so many steps.
    fn run(&mut self, steps: u32) -> f64 {
        let mut sum = 0.0;
        for _ in 0..steps {
            self.step();
            sum += self.total;
        }
        sum / f64::from(steps)
    }
}

#[test]
fn those_far_behind_the_best_are_marked_and_those_near_are_not() {
    let mut steering = Steering::new(SteeringSettings::default());
    let at = |millis| Timestamp::from_millis(millis);
    let mut shown = |seconds: u64, micros| {
        let update = |step: u64| {
            steering.update(at(seconds * 10_000 + step * 100), &[view(0, 1_000), view(1, micros)])
        };
        let steered = (0..90_u64).map(update).last().unwrap();
        assert_eq!(steered[0].reason, SteeringReason::Best);
        assert_eq!(steered[0].marks, MarkShare::NONE);
        steered[1].marks.part()
    };
    assert_eq!(shown(0, 1_190), 0.0);
    assert_eq!(shown(1, 1_240), 0.05);
    assert_eq!(shown(2, 1_150), 0.05, "it goes on to half of the threshold");
    assert_eq!(shown(3, 1_090), 0.0);
    assert_eq!(shown(4, 1_150), 0.0);
}

/// The better one wants half of the air, the slower one's sender obeys nothing but marks, as `[MULTIAP] eq. 3` says.
#[test]
fn marks_hold_a_slow_one_to_the_air_that_is_free_and_keep_it_away_where_none_is() {
    let run = |wanted: f64| {
        let mut steering = Steering::new(SteeringSettings::default());
        let (mut near, mut far) = (0.0, 0.0);
        let (mut sums, mut last) = ([0.0; 2], Vec::new());
        for step in 0..600_u64 {
            let now = Timestamp::from_millis(step * 100);
            let (near_us, far_us) = (500.0, 3_000.0);
            let views = [
                PointView { carried: near / near_us * 1e6, ..view(0, 500) },
                PointView { carried: far / far_us * 1e6, ..view(1, 3_000) },
            ];
            last = steering.update(now, &views);
            // Six packets of window at 5 %, in a round trip of 100 ms; the near one takes what it wants of the rest.
            let asked = (2.0 / last[1].marks.part()).sqrt() / 0.1 * far_us / 1e6;
            far = if last[1].used { asked.min(0.95) } else { 0.0 };
            near = wanted.min(1.0 - far);
            if step >= 200 {
                sums = [sums[0] + near / 400.0, sums[1] + far / 400.0];
            }
        }
        (sums[0], sums[1], last[1])
    };
    let (near, far, slow) = run(0.5);
    assert!(near > 0.49 && far > 0.3, "{near} {far} {slow:?}");
    let (near, far, slow) = run(1.0);
    assert!(near > 0.95 && far < 0.05 && slow.marks == MOST_MARKS, "{near} {far} {slow:?}");
}

#[test]
fn what_has_no_other_way_and_other_channels_are_never_marked() {
    let mut steering = Steering::new(SteeringSettings::default());
    let alone = PointView { other_way: false, ..view(1, 1_340) };
    let elsewhere = PointView { channel: OTHER, ..view(2, 9_000) };
    let steered = steering.update(Timestamp::ZERO, &[view(0, 1_000), alone, elsewhere]);
    assert!(steered.iter().all(|steered| steered.marks == MarkShare::NONE));
    assert!(matches!(steered[1].reason, SteeringReason::NoOtherWay { .. }));
    assert_eq!(steered[2].reason, SteeringReason::OnlyOne);
}

/// `[MULTIAP] fig 6c`: at most 5 % are lost with nine poor ones beside a good one, the time included in which they are tried.
#[test]
fn ten_access_points_are_worth_hardly_less_than_the_best_alone() {
    for others in [vec![(6_000, f64::MAX); 9], (1..10).map(|n| (500 + 611 * n, f64::MAX)).collect()] {
        let mut world = World::new(&[[(500, f64::MAX)].as_slice(), &others].concat());
        let first = world.run(50);
        let later = world.run(3_000);
        assert!(first > 0.6 * 2_000.0, "{first}");
        assert!(later > 0.95 * 2_000.0, "{later}");
        assert_eq!(world.steered.iter().filter(|steered| steered.used).count(), 1);
        assert!(matches!(
            world.steered[9].reason,
            SteeringReason::NoFreeAir { .. } | SteeringReason::Unknown
        ));
    }
}

/// `[MULTIAP] fig 6b`, with the same settings.
#[test]
fn where_the_best_ones_uplink_is_busy_the_other_helps_and_stops_again() {
    let mut world = World::new(&[(500, 417.0), (3_000, f64::MAX)]);
    world.run(50);
    let busy = world.run(600);
    // Alone 417; with the other 417 + 0.79 / 0.003.
    assert!(busy > 0.92 * (417.0 + 264.0), "{busy}");
    world.points[0].1 = f64::MAX;
    world.run(320);
    let free = world.run(600);
    assert!(free > 0.92 * 2_000.0, "{free}");
}

/// While nothing is carried all air is free, and a slow one does no harm; once a download begins it must not be held to be needed.
#[test]
fn who_is_away_to_be_compared_comes_back_soon_and_with_all_that_it_had() {
    // What is behind the slow one gives a third of what the air would, so that few marks are enough.
    let mut world = World::new(&[(500, 200.0), (3_000, 100.0)]);
    world.run(300);
    let before = world.steered[1];
    assert!(before.used && before.marks < MarkShare::new(0.01), "{before:?}");
    let mut away = 0;
    for _ in 0..600 {
        world.step();
        if away == 0 || !world.steered[1].used {
            away += u32::from(!world.steered[1].used);
        } else {
            break;
        }
    }
    assert!((10..20).contains(&away), "{away} tenths of a second");
    assert_eq!((world.steered[1].limit, world.steered[1].marks), (before.limit, before.marks));
}

/// Frames are lost that nobody is to blame for, so it is asked who is.
#[test]
fn who_is_found_not_to_disturb_the_best_comes_back_soon_and_with_all_that_it_had_unless_somebody_has_moved() {
    let run = |later_dbm: f32| {
        let mut world = World::new(&[(500, 200.0), (3_000, 100.0)]);
        world.signal_dbm = Some(-60.0);
        world.run(300);
        let before = world.steered[1];
        assert!(before.used && before.marks < MarkShare::new(0.01), "{before:?}");
        world.delivered = Some(0.8);
        let mut away = 0;
        let mut reasons = Vec::new();
        for _ in 0..50 {
            world.step();
            reasons.push(world.steered[1].reason);
            if world.steered[1].used && away > 0 {
                break;
            }
            away += u32::from(!world.steered[1].used);
            world.signal_dbm = Some(if away > 0 { later_dbm } else { -60.0 });
        }
        assert!(reasons.contains(&SteeringReason::Compared) && (10..20).contains(&away), "{reasons:?}");
        (before, world.steered[1])
    };
    let (before, after) = run(-60.0);
    assert_eq!((after.limit, after.marks), (before.limit, before.marks));
    let (before, after) = run(-54.0);
    assert!(after.limit < before.limit && after.marks == MOST_MARKS, "{after:?}");
}

#[test]
fn a_download_after_a_pause_is_not_left_to_the_slow_ones() {
    let mut world = World::new(&[(500, 5.0), (3_000, 5.0), (6_000, 5.0)]);
    world.run(200);
    for point in &mut world.points {
        point.1 = f64::MAX;
    }
    world.run(15);
    let after = world.run(300);
    assert!(after > 0.95 * 2_000.0, "{after}");
}

/// `[MULTIAP] section 6.5`, table 2: what others take is not free for slow ones.
#[test]
fn a_slow_one_has_nothing_while_others_want_the_air() {
    // What is beyond the best one brings a fifth of what it could.
    let mut world = World::new(&[(500, 400.0), (3_000, f64::MAX)]);
    world.stranger = Some(500);
    world.run(50);
    let beside = world.run(300);
    assert!((400.0..420.0).contains(&beside), "{beside}");
    assert!(!world.steered[1].used, "{:?}", world.steered);
    world.stranger = None;
    world.run(600);
    assert!(world.run(300) > 400.0 + 0.8 * 0.72 / 0.003, "{:?}", world.steered);
}

#[test]
fn an_abrupt_change_moves_the_traffic_within_a_second() {
    let mut world = World::new(&[(500, f64::MAX), (600, f64::MAX)]);
    world.run(50);
    assert_eq!(world.used(), [0, 1]);
    world.points[0].0 = 6_000;
    world.run(10);
    assert!(!world.steered[0].used && world.steered[1].used, "{:?}", world.steered);
    // And back; it is found out when it is next tried.
    world.points[0].0 = 500;
    world.run(150);
    assert_eq!(world.used(), [0, 1]);
}

#[test]
fn packet_times_follow_fades_slowly_and_abrupt_changes_at_once() {
    let time = |before: u64, estimate: u64, confidence: f64, news: f64| {
        let [before, estimate] = [before, estimate].map(Duration::from_micros);
        settled(before, estimate, confidence, news).as_micros()
    };
    // By hand: 1,000 x 2^0.15; the same after two and a half times the time.
    assert_eq!(time(1_000, 2_000, 0.9, 0.15), 1_109);
    assert_eq!(time(2_000, 1_000, 0.9, 0.375), 1_542);
    assert_eq!((time(1_000, 6_000, 0.9, 0.15), time(6_000, 1_000, 0.9, 0.15)), (6_000, 1_000));
    assert_eq!(time(1_000, 6_000, 0.5, 0.15), 1_308, "a few frames may all fail");
}

/// Far away it would take all of the air, and the best one may answer in the next moment.
#[test]
fn one_that_stands_by_has_no_more_than_half_of_the_air_if_the_others_fail() {
    let mut steering = Steering::new(SteeringSettings::default());
    let silent = PointView { packet_time: None, ..view(2, 0) };
    let near = PointView { carried: 990.0, ..view(0, 1_000) };
    let steered = (0..60)
        .map(|step| steering.update(Timestamp::from_millis(step * 100), &[near, view(1, 100_000), silent]));
    let steered = steered.last().unwrap();
    assert_eq!([steered[0].used, steered[1].used, steered[2].used], [true, false, false]);
    // Four packets a second, which is not quite half of the air; ten where nothing is known.
    let limits = [steered[0].limit, steered[1].limit, steered[2].limit];
    assert_eq!(limits, [None, Some(BitRate(48_000)), Some(BitRate(120_000))]);
}

/// One that becomes the best brings the air with it: the one that was the best until now has none of it, though much seems free while traffic moves.
#[test]
fn who_was_the_best_until_now_gives_way_at_once() {
    let mut steering = Steering::new(SteeringSettings::default());
    let mut now = Timestamp::ZERO;
    let mut last: Vec<Steered> = Vec::new();
    // Each that is used takes a third of the air.
    let mut used = |times: [u64; 2], steps: u32| {
        for _ in 0..steps {
            now += STEP;
            let views = [0, 1].map(|network| {
                let micros = times[network as usize];
                let sends = last.get(network as usize).is_none_or(|point| point.used);
                PointView {
                    carried: if sends { 0.33e6 / micros as f64 } else { 0.0 },
                    ..view(network, micros)
                }
            });
            last = steering.update(now, &views);
        }
        [last[0].used, last[1].used]
    };
    assert_eq!(used([1_000, 1_100], 30), [true, true], "as good");
    assert_eq!(used([1_100, 1_000], 30), [true, true], "still");
    assert_eq!(used([2_000, 1_000], 8), [false, true]);
    assert_eq!(used([2_000, 1_000], 10), [false, true], "while its senders find out");
    assert_eq!(used([2_000, 1_000], 30), [true, true], "what stays free is for all");
}

/// An access point that carries hardly anything seems slow however near it has come, since its rate control has nothing to learn from.
#[test]
fn one_that_is_heard_better_is_tried_though_it_seems_slow() {
    let mut steering = Steering::new(SteeringSettings::default());
    let mut now = Timestamp::ZERO;
    let mut run = |signal: f32, truth: u64, steps: u32| {
        let mut asked = 0;
        let mut last: Vec<Steered> = Vec::new();
        for _ in 0..steps {
            now += STEP;
            // A quarter of a second of being asked for packets, and its rate is found.
            let sends = last
                .get(1)
                .is_some_and(|point| point.used && point.limit.is_none_or(|limit| limit.0 > 500_000));
            asked = if sends { asked + 1 } else { 0 };
            let far =
                if asked > 3 { view(1, truth) } else { PointView { confidence: 0.4, ..view(1, 9_000) } };
            let near = PointView { carried: 990.0, signal_dbm: Some(-70.0), ..view(0, 1_000) };
            last = steering.update(now, &[near, PointView { signal_dbm: Some(signal), ..far }]);
        }
        (last[0].used, last[1])
    };
    let (_, far) = run(-72.0, 500, 300);
    assert!(!far.used && matches!(far.reason, SteeringReason::NoFreeAir { .. }), "{far:?}");
    let (_, far) = run(-60.0, 500, 20);
    assert_eq!(far.reason, SteeringReason::Best);

    let mut steering = Steering::new(SteeringSettings::default());
    let (mut tried, mut trials, mut marked, mut renewals, mut begun) = (0, 0, 0, 0, None);
    for step in 0..600_u64 {
        let near = PointView { carried: 990.0, signal_dbm: Some(-70.0), ..view(0, 1_000) };
        let far = PointView { signal_dbm: Some(-62.0), ..view(1, 9_000) };
        let steered = steering.update(Timestamp::from_millis(step * 100), &[near, far]);
        let proves = matches!(steered[1].reason, SteeringReason::HeardBetter { .. });
        tried += usize::from(proves);
        assert!(
            !proves || steered[1].marks == MarkShare::NONE,
            "they would hold back what is asked: {steered:?}"
        );
        marked += usize::from(steered[1].marks > MarkShare::NONE);
        let before = std::mem::replace(&mut renewals, steered[1].renewals);
        // The first one comes before anything was carried for a second.
        if proves && step > 20 {
            begun.get_or_insert(before);
        } else if let Some(before) = begun.take() {
            trials += 1;
            assert_eq!(renewals, before + 1, "every time by new ways: {trials}");
        }
    }
    assert!(trials > 1, "{trials}");
    assert!(marked > 400, "{marked}");
    assert!((30..=60).contains(&tried), "{tried}: one that is slow all the same is asked ever more seldom");
}

/// Two frames that happen to arrive are no reason to leave one that carries.
#[test]
fn little_that_is_known_is_believed_less_of_what_stands_by() {
    let mut steering = Steering::new(SteeringSettings::default());
    let at = |step: u64| Timestamp::from_millis(step * 100);
    let near = PointView { carried: 990.0, ..view(0, 1_000) };
    for step in 0..30 {
        steering.update(at(step), &[near, view(1, 9_000)]);
    }
    let lucky = PointView { confidence: 0.3, ..view(1, 500) };
    assert_eq!(steering.update(at(30), &[near, lucky])[0].reason, SteeringReason::Best);
    let sure = PointView { confidence: 0.8, ..lucky };
    assert_eq!(steering.update(at(31), &[near, sure])[1].reason, SteeringReason::Best);
}

#[test]
fn nothing_flaps() {
    let mut world = World::new(&[(1_000, f64::MAX), (1_000, f64::MAX)]);
    let mut changes = 0;
    let mut before = Vec::new();
    for step in 0..600_u64 {
        // Around the threshold by 5 % and back.
        world.points[1].0 = 1_200 + (step * 7_919 % 120) - 60;
        world.step();
        let now: Vec<bool> = world.steered.iter().map(|steered| steered.used).collect();
        changes += usize::from(now != before);
        before = now;
    }
    assert!(changes <= 2, "{changes}");
}

/// A network moves from one of its access points to the next.
#[test]
fn what_was_known_of_an_access_point_is_not_held_against_the_next_one_of_its_network() {
    let mut steering = Steering::new(SteeringSettings::default());
    let at = |step: u64| Timestamp::from_millis(step * 100);
    for step in 0..30 {
        steering.update(at(step), &[view(0, 1_000), view(1, 9_000)]);
    }
    let next = MacAddress([2, 0, 0, 0, 1, 0]);
    let unheard = PointView { access_point: next, packet_time: None, ..view(1, 0) };
    let steered = steering.update(at(30), &[view(0, 1_000), unheard]);
    assert_eq!((steered[1].packet_time, steered[1].used), (None, true), "tried");
    let heard = PointView { access_point: next, ..view(1, 800) };
    assert_eq!(steering.update(at(31), &[view(0, 1_000), heard])[1].reason, SteeringReason::Best);
}

#[test]
fn one_behind_which_nothing_answers_is_not_used_unless_all_are() {
    let mut steering = Steering::new(SteeringSettings::default());
    let dead = PointView { reaches: false, ..view(0, 400) };
    for millis in [0, 1_100, 2_200] {
        let steered = steering.update(Timestamp::from_millis(millis), &[dead, view(1, 3_000)]);
        assert_eq!((steered[0].used, steered[0].reason), (false, SteeringReason::Dead));
        assert!(steered[1].used);
    }
    let steered = steering.update(Timestamp::from_millis(9_000), &[dead]);
    assert!(steered[0].used);
}

#[test]
fn one_that_was_idle_takes_over_when_nothing_answers_behind_the_used_one() {
    let mut steering = Steering::new(SteeringSettings::default());
    let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
    let idle = PointView { packet_time: None, ..view(1, 0) };
    for second in 0..60 {
        steering.update(at(second), &[view(0, 400), idle]);
    }
    // It carries nothing any more, so nothing is known of either.
    let dead = PointView { reaches: false, packet_time: None, ..view(0, 0) };
    for second in 60..75 {
        let steered = steering.update(at(second), &[dead, idle]);
        assert_eq!([steered[0].used, steered[1].used], [false, true], "after {second} s");
    }
}

#[test]
fn what_is_doubtful_is_not_acted_upon_but_remembered_for_a_while() {
    let mut steering = Steering::new(SteeringSettings::default());
    let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
    let doubtful = PointView { confidence: 0.1, ..view(1, 9_000) };
    let steered = steering.update(at(0), &[view(0, 1_000), doubtful]);
    assert_eq!(steered[1].reason, SteeringReason::Doubtful { confidence: 0.1 });
    assert_eq!(steered[1].marks, MarkShare::NONE);
    steering.update(at(1), &[view(0, 1_000), view(1, 1_300)]);
    let silent = PointView { packet_time: None, ..view(1, 0) };
    let steered = steering.update(at(5), &[view(0, 1_000), silent]);
    assert_eq!(steered[1].packet_time, Some(Duration::from_micros(1_300)));
    let steered = steering.update(at(20), &[view(0, 1_000), silent]);
    assert_eq!((steered[1].packet_time, steered[1].reason), (None, SteeringReason::Unknown));
}

/// Two access points that do not hear each other, and the worse one has the air: the better one fails beside it, however well it is heard.
#[test]
fn of_two_that_do_not_hear_each_other_the_better_one_alone_comes_to_be_used() {
    for signals in [[None, None], [Some(-78.0), Some(-72.0)]] {
        let mut steering = Steering::new(SteeringSettings::default());
        let (mut now, mut used, mut of_better) = (Timestamp::ZERO, [true; 2], 0);
        for step in 0..600 {
            now += STEP;
            let views = [(0, 1_500), (1, 900)].map(|(network, alone)| {
                let (sends, beside) = (used[network as usize], used[1 - network as usize]);
                // In the beginning more of the worse one's frames happen to arrive.
                let (micros, delivered) = match (sends, beside) {
                    (true, false) => (alone, 0.95),
                    (true, true) => (alone + 1_000 + 1_500 * u64::from(network), 0.5),
                    (false, _) => (9_000, 0.2),
                };
                PointView {
                    packet_time: Some(Duration::from_micros(micros)),
                    delivered: Some(delivered),
                    confidence: if sends { 0.9 } else { 0.3 },
                    carried: if sends { 0.5e6 / micros as f64 } else { 1.0 },
                    signal_dbm: signals[network as usize],
                    ..view(network, 0)
                }
            });
            let steered = steering.update(now, &views);
            used = [steered[0].used, steered[1].used];
            of_better += u32::from(step >= 60 && used == [false, true]);
        }
        assert!(of_better > 420, "{signals:?}: {of_better} of 540");
    }
}

/// Two access points that do not hear each other: each needs more than twice the air while both send.
#[test]
fn of_two_that_do_not_hear_each_other_one_is_used() {
    let mut steering = Steering::new(SteeringSettings::default());
    let mut now = Timestamp::ZERO;
    let mut used = [true; 2];
    let mut alone = 0;
    let (mut compared, mut known) = (false, false);
    for _ in 0..600 {
        now += STEP;
        let both = used == [true; 2];
        let views = [0, 1].map(|network| {
            let sends = used[network as usize];
            let (micros, delivered) = if both { (2_100, 0.4) } else { (950 + u64::from(network), 0.95) };
            PointView {
                packet_time: sends.then(|| Duration::from_micros(micros)),
                delivered: sends.then_some(delivered),
                carried: if sends { 400.0 } else { 0.0 },
                ..view(network, 0)
            }
        });
        let steered = steering.update(now, &views);
        used = [steered[0].used, steered[1].used];
        let best = steered.iter().position(|steered| steered.reason == SteeringReason::Best);
        let apart = [SteeringReason::Disturbs, SteeringReason::Compared];
        let disturbs = steered.iter().position(|steered| apart.contains(&steered.reason));
        compared |= steered.iter().any(|steered| steered.reason == SteeringReason::Compared);
        known |= steered.iter().any(|steered| steered.reason == SteeringReason::Disturbs);
        assert!(compared || !known, "it is asked before it is said");
        if used != [true; 2] {
            alone += 1;
            assert!(used[best.unwrap()] && (disturbs.is_none() || !used[disturbs.unwrap()]), "{steered:?}");
        }
    }
    assert!(alone > 540 && known, "{alone} of 600");
}

#[test]
fn why_a_slow_one_stands_by_is_told_as_it_is() {
    let after = |seconds: u64, carried: f64, beside: f64| {
        let mut steering = Steering::new(SteeringSettings::default());
        let mut used = false;
        let mut reasons = Vec::new();
        for step in 0..seconds * 10 {
            let near = PointView { carried: if used { beside } else { carried }, ..view(0, 1_000) };
            let far = PointView { carried: if used { 20.0 } else { 0.0 }, ..view(1, 5_000) };
            let [_, far] = steering.update(Timestamp::from_millis(step * 100), &[near, far])[..] else {
                panic!()
            };
            used = far.used;
            reasons.push(far.reason);
        }
        reasons
    };
    let full = after(20, 990.0, 990.0);
    assert!(matches!(full[199], SteeringReason::NoFreeAir { .. }), "{full:?}");
    let free = after(20, 300.0, 150.0);
    assert!(free.iter().any(|reason| matches!(reason, SteeringReason::FreeAir { .. })), "{free:?}");
    assert!(matches!(free[199], SteeringReason::NoGain { .. }), "{free:?}");
    let soon = free.iter().position(|reason| matches!(reason, SteeringReason::Waits { .. }));
    assert!(soon.is_none_or(|at| at < 40), "{free:?}");
}

/// The rate control of an access point that had nothing to send begins at low rates, and climbs.
#[test]
fn a_trial_goes_on_while_the_packet_time_still_falls() {
    let trial = |factor: f64| {
        let mut steering = Steering::new(SteeringSettings::default());
        let (mut asked, mut was_used) = (0, Vec::new());
        for step in 0..60_u64 {
            let near = PointView { carried: 990.0, signal_dbm: Some(-70.0), ..view(0, 1_000) };
            let far = view(1, (9_000.0 * f64::powi(factor, asked)) as u64);
            let far = PointView { signal_dbm: Some(-65.0), ..far };
            let steered = steering.update(Timestamp::from_millis(step * 100), &[near, far]);
            asked += i32::from(steered[1].used && asked < 20);
            was_used.push(steered[1].used);
        }
        let begun = was_used.iter().position(|used| *used).unwrap();
        (was_used[begun..].iter().take_while(|used| **used).count(), steering.points[&NetworkId(1)].stage)
    };
    let (stayed, stage) = trial(0.85);
    assert!(stayed > 40 && stage == Stage::Used, "{stayed}: it is the better one after 1.8 s");
    let (stayed, _) = trial(0.999);
    assert!((10..=11).contains(&stayed), "{stayed}: it does not get better");
    let (stayed, _) = trial(0.92);
    assert!((15..=21).contains(&stayed), "{stayed}: two seconds are enough for all");
}

/// Somebody has walked: what was known of it holds no longer, and a trial would take what is left of the way.
#[test]
fn one_that_is_heard_far_better_has_all_at_once() {
    let steps_of_the_better_one = |signal: f32, needs: u64, delivered: Option<f64>| {
        let mut steering = Steering::new(SteeringSettings::default());
        let mut alone = Vec::new();
        for step in 0..300_u64 {
            // Both are known from the first second, in which nobody had become better yet.
            let far = if step < 15 { (-80.0, 20_000) } else { (signal, needs) };
            let used = step < 10 || alone.last() == Some(&true);
            let near = PointView { carried: 240.0, delivered, signal_dbm: Some(-75.0), ..view(0, 4_000) };
            let far = PointView { signal_dbm: Some(far.0), delivered, ..view(1, far.1) };
            let far = PointView { packet_time: far.packet_time.filter(|_| used), ..far };
            let steered = steering.update(Timestamp::from_millis(step * 100), &[near, far]);
            alone.push(step >= 15 && steered[1].used && !steered[0].used && steered[1].limit.is_none());
        }
        alone
    };
    let begins = |alone: &[bool]| alone.iter().position(|alone| *alone);
    let parts = |alone: &[bool]| alone.iter().filter(|alone| **alone).count();
    let better = steps_of_the_better_one(-60.0, 1_000, Some(0.9));
    assert!(begins(&better).is_some_and(|step| step <= 20), "{better:?}");
    assert!(parts(&better) > 270, "{better:?}");
    // Not better for all that, at first and ten, and twenty seconds later.
    let worse = steps_of_the_better_one(-60.0, 8_000, Some(0.9));
    assert!((15..=60).contains(&parts(&worse)), "{worse:?}");
    // Not far better; or by another card, which may hear everything better.
    for (signal, delivered) in [(-68.0, Some(0.9)), (-60.0, None)] {
        let tried = steps_of_the_better_one(signal, 1_000, delivered);
        assert!(begins(&tried).is_none_or(|step| step > 20), "{tried:?}");
    }
}

#[test]
fn one_that_is_heard_far_worse_is_tried_only_while_air_is_free() {
    let tried = |carried: f64, signal: f32| {
        let mut steering = Steering::new(SteeringSettings::default());
        (0..100_u64)
            .filter(|step| {
                let near = PointView { carried, signal_dbm: Some(-60.0), ..view(0, 1_000) };
                let far = PointView { packet_time: None, signal_dbm: Some(signal), ..view(1, 0) };
                steering.update(Timestamp::from_millis(step * 100), &[near, far])[1].used
            })
            .count()
    };
    assert_eq!(tried(990.0, -72.0), 0);
    assert!(tried(990.0, -68.0) >= 10);
    assert!(tried(500.0, -72.0) >= 10);
}

/// Whoever walks towards an access point that was found slow too often, and too early, does not wait for its next turn.
#[test]
fn one_that_has_come_nearer_since_is_asked_anew() {
    let asked_after = |signal: f32| {
        let mut steering = Steering::new(SteeringSettings::default());
        let asked = |step: u64, signal: f32, steering: &mut Steering| {
            let near = PointView { carried: 990.0, signal_dbm: Some(-70.0), ..view(0, 1_000) };
            let far = PointView { signal_dbm: Some(signal), ..view(1, 9_000) };
            let steered = steering.update(Timestamp::from_millis(step * 100), &[near, far]);
            let is_alone = signal > -61.0 && steered[1].reason == SteeringReason::Best;
            is_alone || matches!(steered[1].reason, SteeringReason::HeardBetter { .. })
        };
        let last = (0..600).filter(|step| asked(*step, -66.0, &mut steering)).last().unwrap();
        (last + 1..600).for_each(|step| assert!(!asked(step, -66.0, &mut steering)));
        (600..2_000).position(|step| asked(step, signal, &mut steering)).unwrap_or(usize::MAX)
    };
    assert!(asked_after(-58.0) <= 10, "{}", asked_after(-58.0));
    assert!(asked_after(-62.0) > 50, "{}", asked_after(-62.0));
}

/// What was told of it farther off says little half-way, where both are heard alike.
#[test]
fn one_that_has_come_as_near_as_the_best_is_tried_and_one_that_always_was_is_not() {
    let tried = |signal: fn(u64) -> f32| {
        let mut steering = Steering::new(SteeringSettings::default());
        let asked = |step: &u64| {
            let near = PointView { carried: 990.0, signal_dbm: Some(-70.0), ..view(0, 1_000) };
            let far = PointView { signal_dbm: Some(signal(*step)), ..view(1, 9_000) };
            let steered = steering.update(Timestamp::from_millis(step * 100), &[near, far]);
            matches!(steered[1].reason, SteeringReason::HeardBetter { .. })
        };
        (0..300).filter(asked).collect::<Vec<u64>>()
    };
    assert!(tried(|_| -69.0).is_empty());
    assert!(tried(|step| if step < 200 { -76.0 } else { -71.0 }).is_empty());
    let steps = tried(|step| -80.0 + (step as f32 / 200.0).min(1.0) * 11.0);
    assert!(steps.first().is_some_and(|first| (181..200).contains(first)), "{steps:?}");
    assert!((10..=20).contains(&steps.len()), "once: {steps:?}");
}
