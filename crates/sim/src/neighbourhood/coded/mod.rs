//! Network coding (`[LINKALIKE] III.C.1`, after MORE), and a code at the source alone.
//!
//! A file is cut into generations of [`GENERATION`] chunks. Every frame is a random combination of one generation's chunks over GF(256), made
//! with the real `upload::coding` over short contents, so linear dependence is what it is.
//!
//! - [`Mixing::Neighbours`]: neighbours combine what they have heard anew. Coefficients ride in front of each combination, on the air and on the wire.
//! - [`Mixing::Source`]: each chunk goes as it is first, then combinations, whose coefficients follow from their number. Neighbours carry what they heard, so
//!   each frame is sealed as a whole and nobody but the source and the destination calculates.
//!
//! How many combinations a neighbour sends is coding's problem (`[LINKALIKE] III.C.1`): here the destination, which is told who heard which frames, grants
//! each neighbour so many of a generation that all together bring what is missing. The model is kind to the code: who hears how well, and
//! how fast uplinks are, is known, and reports say up to which frame they reach.

mod destination;
mod homes;
mod source;

use std::time::Duration;

use radio::airtime::Flavour;
use rand::SeedableRng;
use rand::rngs::StdRng;
use units::{Bytes, Timestamp};
use upload::coding::Combination;

use super::spec::{AIR_FRAME, NeighbourhoodSpec, RATES};
use super::uplink::Uplink;
use crate::{EventQueue, SeededRandom};
use destination::{Destination, Order};
use homes::Home;
use source::{News, Source};

/// Chunks of a generation.
pub const GENERATION: usize = 32;
/// How long news are gathered, as in `upload`.
const GATHERED: Duration = Duration::from_millis(40);
const LONGEST: Duration = Duration::from_secs(3_600);

/// Who makes combinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mixing {
    /// The source, and neighbours of what they heard.
    Neighbours,
    /// The source alone.
    Source,
}

/// How a coded transfer went.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Coded {
    /// How long it took; `None` if it did not end.
    pub took: Option<Duration>,
    /// Combinations that told the destination something new, by neighbour.
    pub carried: Vec<u32>,
    /// Combinations that told it nothing.
    pub wasted: u32,
    /// Frames on the air.
    pub frames: u64,
    /// Time on the air.
    pub air_time: Duration,
    /// Whether what was decoded is what was sent.
    pub identical: bool,
}

/// Sends `chunks` chunks. With `rate` the bit rate is fixed, else it is the one at which most frames a second are heard by anybody.
pub fn run(spec: &NeighbourhoodSpec, chunks: u32, rate: Option<usize>, mixing: Mixing, seed: u64) -> Coded {
    Coding::new(spec, chunks, rate, mixing, seed).run()
}

/// A frame or what is carried of a generation: its number within it tells one from another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct FrameId {
    generation: u32,
    index: u32,
}

/// How a file is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    chunks: u32,
    seed: u64,
}

impl Cut {
    fn generations(self) -> u32 {
        self.chunks.div_ceil(GENERATION as u32)
    }

    fn size(self, generation: u32) -> usize {
        (self.chunks - generation * GENERATION as u32).min(GENERATION as u32) as usize
    }

    /// What stands for a chunk's bytes.
    fn content(self, generation: u32, at: usize) -> Vec<u8> {
        let chunk = u64::from(generation) * GENERATION as u64 + at as u64;
        let token = (chunk ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        token.to_be_bytes()[..CONTENT].to_vec()
    }
}

/// Bytes that stand for a chunk's.
const CONTENT: usize = 4;

enum Happening {
    AirFree(FrameId, Combination, u64),
    Reported(usize, Vec<FrameId>, u32),
    Carried(usize, FrameId, Combination),
    OwnCarried(FrameId, Combination),
    Ordered(usize, Order),
    Told(News),
    /// Somebody's uplink or the news' time has come.
    Wake,
}

struct Coding {
    now: Timestamp,
    events: EventQueue<Happening>,
    mixing: Mixing,
    source: Source,
    own: Uplink,
    homes: Vec<Home>,
    destination: Destination,
    air_free: bool,
    air_time: Duration,
    news_due: Timestamp,
    random: SeededRandom,
    factors: StdRng,
    coded: Coded,
}

impl Coding {
    fn new(spec: &NeighbourhoodSpec, chunks: u32, rate: Option<usize>, mixing: Mixing, seed: u64) -> Self {
        let coefficients = if mixing == Mixing::Neighbours { GENERATION as u64 } else { 0 };
        let length = Bytes(AIR_FRAME.0 + coefficients);
        let flavour = Flavour::B;
        let time = |rate: usize| {
            let air = RATES.get(rate).copied().unwrap_or(RATES[0]);
            flavour.difs() + flavour.mean_back_off(0) + flavour.frame_time(air, length)
        };
        let heard = |rate: usize| spec.heard_by_any((1 << spec.neighbours.len()) - 1, rate);
        let gain = |rate: usize| heard(rate) / time(rate).as_secs_f64();
        let best = (0..RATES.len()).max_by(|one, other| gain(*one).total_cmp(&gain(*other))).unwrap_or(0);
        let rate = rate.unwrap_or(best);
        // Bit errors are independent, so a longer frame is heard with the power of its length.
        let power = length.0 as f64 / AIR_FRAME.0 as f64;
        let homes: Vec<Home> = spec
            .neighbours
            .iter()
            .map(|one| Home::new(one.uplink, spec.own_chance(one, rate).powf(power), mixing))
            .collect();
        let unheard: f64 = homes.iter().map(|home| 1.0 - home.chance).product();
        let cut = Cut { chunks, seed };
        let mut random = SeededRandom::derive(seed, "coded");
        let factors = StdRng::from_seed(random.seed_bytes());
        Self {
            now: Timestamp::ZERO,
            events: EventQueue::new(),
            mixing,
            source: Source::new(cut, mixing, 1.0 - unheard),
            own: Uplink::new(spec.own),
            destination: Destination::new(cut, mixing, homes.iter().map(|home| &home.uplink)),
            homes,
            air_free: true,
            air_time: time(rate),
            news_due: Timestamp::ZERO,
            random,
            factors,
            coded: Coded { carried: vec![0; spec.neighbours.len()], ..Coded::default() },
        }
    }

    fn run(mut self) -> Coded {
        self.serve();
        let end = Timestamp::ZERO + LONGEST;
        while !self.destination.is_done() {
            let Some((at, happening)) = self.events.pop_due(end) else { return self.coded };
            self.now = at;
            self.handle(happening);
            self.serve();
        }
        self.coded.took = Some(self.now.since(Timestamp::ZERO));
        self.coded.identical = self.destination.is_identical();
        self.coded
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::AirFree(id, combination, heard) => {
                self.air_free = true;
                for (at, home) in self.homes.iter_mut().enumerate() {
                    if heard >> at & 1 == 1 {
                        home.hear(self.now, id, combination.clone());
                    }
                }
            }
            Happening::Reported(at, heard, through) => self.destination.handle_report(at, &heard, through),
            Happening::Carried(at, id, combination) => {
                let new = self.destination.handle_carried(Some(at), id, combination);
                self.count(new.then_some(at));
            }
            Happening::OwnCarried(id, combination) => {
                let new = self.destination.handle_carried(None, id, combination);
                self.coded.wasted += u32::from(!new);
            }
            Happening::Ordered(at, order) => {
                if let Some(home) = self.homes.get_mut(at) {
                    home.handle_order(order);
                }
            }
            Happening::Told(news) => self.source.handle_news(news),
            Happening::Wake => {}
        }
    }

    fn count(&mut self, by: Option<usize>) {
        match by.and_then(|at| self.coded.carried.get_mut(at)) {
            Some(carried) => *carried += 1,
            None => self.coded.wasted += 1,
        }
    }

    fn serve(&mut self) {
        while let Some((at, order)) = self.destination.poll_order(self.now) {
            let delay = self.homes.get(at).map_or(Duration::ZERO, |home| home.uplink.delay());
            self.events.insert(self.now + delay, Happening::Ordered(at, order));
        }
        if self.news_due <= self.now {
            self.news_due = self.now + GATHERED;
            self.events.insert(self.news_due, Happening::Wake);
            let news = self.destination.news();
            self.events.insert(self.now + self.own.delay(), Happening::Told(news));
        }
        self.serve_source();
        for at in 0..self.homes.len() {
            self.serve_home(at);
        }
    }

    fn serve_source(&mut self) {
        while self.own.has_room(self.now)
            && let Some(id) = self.source.poll_uplink()
        {
            let combination = self.source.combination(id, &mut self.factors);
            let mixed = self.mixing == Mixing::Neighbours && !self.source.is_plain(id);
            let arrival = self.own.send_combination(self.now, if mixed { GENERATION } else { 0 });
            self.events.insert(arrival, Happening::OwnCarried(id, combination));
            self.events.insert(self.own.ready_at(), Happening::Wake);
        }
        if self.air_free
            && let Some(id) = self.source.poll_broadcast()
        {
            self.air_free = false;
            self.coded.frames += 1;
            self.coded.air_time += self.air_time;
            let combination = self.source.combination(id, &mut self.factors);
            let mut heard = 0;
            for (at, home) in self.homes.iter().enumerate() {
                heard |= u64::from(self.random.chance(home.chance)) << at;
            }
            self.events.insert(self.now + self.air_time, Happening::AirFree(id, combination, heard));
        }
    }

    fn serve_home(&mut self, at: usize) {
        let through = self.source.frames() - u32::from(!self.air_free);
        let Some(home) = self.homes.get_mut(at) else { return };
        if let Some((heard, arrival)) = home.poll_report(self.now) {
            self.events.insert(arrival, Happening::Reported(at, heard, through));
        }
        while let Some((id, combination, arrival)) = home.poll_carry(self.now, &mut self.factors) {
            self.events.insert(arrival, Happening::Carried(at, id, combination));
        }
        if let Some(next) = home.next_wake(self.now) {
            self.events.insert(next, Happening::Wake);
        }
    }
}

#[cfg(test)]
mod tests;
