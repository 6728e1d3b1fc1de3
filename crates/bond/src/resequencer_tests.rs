use super::*;

const HOLD: Duration = Duration::from_millis(100);

struct Bench {
    resequencer: Resequencer,
    tally: Tally,
    out: Vec<u8>,
    now: Timestamp,
}

impl Bench {
    fn new() -> Self {
        Self {
            resequencer: Resequencer::default(),
            tally: Tally::default(),
            out: Vec::new(),
            now: Timestamp::ZERO,
        }
    }

    fn data(&mut self, sequence: u32, ordered: bool) {
        self.frame(sequence, ordered, None, &[sequence as u8]);
    }

    fn frame(&mut self, sequence: u32, ordered: bool, part: Option<Part>, payload: &[u8]) {
        let data = Data { flow: 1, sequence, long: true, ordered, part, payload };
        let out = &mut self.out;
        self.resequencer.on_data(self.now, &data, &mut self.tally, &mut |packet| out.extend(packet));
    }

    fn release(&mut self) {
        let out = &mut self.out;
        self.resequencer.release(self.now, HOLD, &mut self.tally, &mut |packet| out.extend(packet));
    }
}

#[test]
fn orders_and_removes_duplicates() {
    let mut bench = Bench::new();
    for sequence in [0, 2, 1, 1, 4, 2, 3] {
        bench.data(sequence, true);
    }
    assert_eq!(bench.out, [0, 1, 2, 3, 4]);
    assert_eq!(bench.tally.duplicates, 2);
    assert_eq!(bench.resequencer.held(), 0);
}

#[test]
fn a_gap_is_held_for_its_time_and_a_late_packet_still_comes_through_once() {
    let mut bench = Bench::new();
    bench.data(0, true);
    bench.now = Timestamp::from_millis(10);
    bench.data(2, true);
    assert_eq!(bench.resequencer.release_at(HOLD), Some(Timestamp::from_millis(110)));
    bench.now = Timestamp::from_millis(109);
    bench.release();
    assert_eq!(bench.out, [0]);
    bench.now = Timestamp::from_millis(110);
    bench.release();
    assert_eq!(bench.out, [0, 2]);
    bench.data(1, true);
    bench.data(1, true);
    assert_eq!(bench.out, [0, 2, 1]);
    assert_eq!((bench.tally.skipped, bench.tally.late, bench.tally.duplicates), (1, 1, 1));
}

#[test]
fn the_senders_word_ends_the_wait() {
    let mut bench = Bench::new();
    for sequence in [0, 3, 4] {
        bench.data(sequence, true);
    }
    let gave_up = GaveUp { flow: 1, first: 1, count: 2 };
    let out = &mut bench.out;
    bench.resequencer.on_gave_up(bench.now, gave_up, &mut bench.tally, &mut |packet| out.extend(packet));
    assert_eq!(bench.out, [0, 3, 4]);
}

#[test]
fn unordered_packets_do_not_wait_and_count_for_order() {
    let mut bench = Bench::new();
    bench.data(0, false);
    bench.data(2, false);
    bench.data(3, true);
    assert_eq!(bench.out, [0, 2]);
    bench.data(1, false);
    assert_eq!(bench.out, [0, 2, 1, 3]);
}

#[test]
fn parts_make_a_packet_in_any_order() {
    let mut bench = Bench::new();
    let part = |offset, more| Some(Part { offset, more });
    bench.frame(0, true, part(2, false), &[3]);
    bench.data(1, true);
    bench.frame(0, true, part(0, true), &[1, 2]);
    assert_eq!(bench.out, [1, 2, 3, 1]);
    // Overlapping and contradicting parts never make a packet.
    bench.frame(2, true, part(0, true), &[1, 2]);
    bench.frame(2, true, part(1, false), &[2, 3]);
    assert_eq!(bench.out, [1, 2, 3, 1]);
}

#[test]
fn short_numbers_wrap() {
    let mut bench = Bench::new();
    bench.data(65_534, true);
    for low in [65_535u32, 0, 1] {
        let data =
            Data { flow: 1, sequence: low, long: false, ordered: true, part: None, payload: &[low as u8] };
        let out = &mut bench.out;
        bench.resequencer.on_data(bench.now, &data, &mut bench.tally, &mut |packet| out.extend(packet));
    }
    assert_eq!(bench.out, [254, 255, 0, 1]);
    assert_eq!(bench.resequencer.next, 65_538);
}

#[test]
fn far_ahead_numbers_cost_no_memory() {
    let mut bench = Bench::new();
    bench.data(0, true);
    bench.data(5, true);
    bench.data(1_000_000, true);
    assert_eq!(bench.out, [0, 5, 64]);
    assert!(bench.resequencer.slots.is_empty());
    for sequence in (2_000_000..2_100_000u32).step_by(2) {
        bench.data(sequence, false);
    }
    assert!(bench.resequencer.slots.len() <= PAST as usize);
}
