//! The source of a coded transfer: which generation goes on the air, and what goes up its own uplink.

use std::collections::{BTreeMap, VecDeque};

use rand::SeedableRng;
use rand::rngs::StdRng;
use upload::coding::{Combination, Span};

use super::{CONTENT, Cut, FrameId, Mixing};

/// Generations that are on their way at the same time.
const OPEN: usize = 64;

/// What the destination says of a generation that is not whole.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Told {
    /// Frames that somebody heard.
    pub(super) heard: u32,
    /// Combinations that are missing and not granted.
    pub(super) need: u32,
}

/// What the destination says.
#[derive(Clone, Default, Debug)]
pub(super) struct News {
    /// All frames in front of it were heard or missed.
    pub(super) through: u32,
    /// Combinations that a neighbour lacks, at the most.
    pub(super) shortage: i64,
    /// All in front of it are whole or among the others.
    pub(super) known: BTreeMap<u32, Told>,
    /// Those that are whole since the last news.
    pub(super) whole: Vec<u32>,
}

#[derive(Debug)]
struct Open {
    chunks: Span,
    /// Frames made, on the air and by the own uplink.
    made: u32,
    /// Those that were on the air and not told of: the numbers of their sending.
    in_air: VecDeque<u32>,
    told: Told,
    /// By the own uplink since the last news.
    own: u32,
    /// By the own uplink in all.
    own_all: u32,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Source {
    cut: Cut,
    mixing: Mixing,
    /// The chance that anybody hears a frame.
    heard: f64,
    open: BTreeMap<u32, Open>,
    /// The next generation that was not begun.
    next: u32,
    /// The one that goes up the own uplink, chunk by chunk, and how many of its chunks went.
    own: Option<(u32, u32)>,
    frames: u32,
    shortage: i64,
    turn: u32,
}

impl Source {
    pub(super) fn new(cut: Cut, mixing: Mixing, heard: f64) -> Self {
        let shortage = i64::MAX;
        Self { cut, mixing, heard, open: BTreeMap::new(), next: 0, own: None, frames: 0, shortage, turn: 0 }
    }

    /// Frames sent so far.
    pub(super) const fn frames(&self) -> u32 {
        self.frames
    }

    pub(super) fn handle_news(&mut self, news: News) {
        self.shortage = news.shortage;
        for generation in news.whole {
            self.open.remove(&generation);
        }
        for (generation, told) in news.known {
            if let Some(open) = self.open.get_mut(&generation) {
                (open.told, open.own) = (told, 0);
            }
        }
        for open in self.open.values_mut() {
            while open.in_air.front().is_some_and(|number| *number < news.through) {
                open.in_air.pop_front();
            }
        }
    }

    /// The next frame: of the oldest generation of which too little was heard, else of a new one; while somebody lacks something, of any.
    pub(super) fn poll_broadcast(&mut self) -> Option<FrameId> {
        if self.shortage <= 0 {
            return None;
        }
        let generation = self.lacking().or_else(|| self.begin()).or_else(|| self.any())?;
        let number = self.frames;
        self.frames += 1;
        let open = self.open.get_mut(&generation)?;
        open.in_air.push_back(number);
        Some(open.next_frame(generation))
    }

    /// What goes up the own uplink: chunks of a generation of its own; at the end whatever is missing most.
    pub(super) fn poll_uplink(&mut self) -> Option<FrameId> {
        if self.own.is_none_or(|(generation, sent)| sent as usize >= self.cut.size(generation)) {
            self.own = self.begin().map(|generation| (generation, 0));
        }
        if let Some((generation, sent)) = &mut self.own {
            let id = FrameId { generation: *generation, index: *sent };
            *sent += 1;
            let open = self.open.get_mut(generation)?;
            (open.own_all, open.made) = (open.own_all + 1, open.made.max(*sent));
            return Some(id);
        }
        let missing = |(_, open): &(&u32, &mut Open)| open.told.need.saturating_sub(open.own);
        let (generation, open) = self.open.iter_mut().max_by_key(missing)?;
        if open.told.need <= open.own {
            return None;
        }
        open.own += 1;
        open.own_all += 1;
        Some(open.next_frame(*generation))
    }

    /// Whether a frame is a chunk as it is.
    pub(super) fn is_plain(&self, id: FrameId) -> bool {
        let own = self.own.is_some_and(|(generation, _)| generation == id.generation);
        (own || self.mixing == Mixing::Source) && (id.index as usize) < self.cut.size(id.generation)
    }

    pub(super) fn combination(&self, id: FrameId, factors: &mut StdRng) -> Combination {
        let none = || Combination { coefficients: Vec::new(), content: Vec::new() };
        let Some(open) = self.open.get(&id.generation) else { return none() };
        if self.is_plain(id) {
            let mut coefficients = vec![0; self.cut.size(id.generation)];
            if let Some(one) = coefficients.get_mut(id.index as usize) {
                *one = 1;
            }
            return Combination { coefficients, content: self.cut.content(id.generation, id.index as usize) };
        }
        let combined = match self.mixing {
            Mixing::Neighbours => open.chunks.combine(factors),
            Mixing::Source => {
                let number = u64::from(id.generation) << 32 | u64::from(id.index);
                open.chunks.combine(&mut StdRng::seed_from_u64(self.cut.seed ^ number))
            }
        };
        combined.unwrap_or_else(none)
    }

    /// The oldest one of which fewer frames were heard, or should be, than it needs. What the own uplink sends is not needed.
    fn lacking(&self) -> Option<u32> {
        let ending = self.next >= self.cut.generations();
        let lacks = |(generation, open): &(&u32, &Open)| {
            let by_own = self.own.is_some_and(|(own, _)| own == **generation) && !ending;
            let expected = f64::from(open.told.heard + open.own_all) + self.heard * open.in_air.len() as f64;
            !by_own && expected + 0.5 < self.cut.size(**generation) as f64
        };
        self.open.iter().find(lacks).map(|(generation, _)| *generation)
    }

    fn begin(&mut self) -> Option<u32> {
        if self.next >= self.cut.generations() || self.open.len() >= OPEN {
            return None;
        }
        let generation = self.next;
        self.next += 1;
        let size = self.cut.size(generation);
        let chunks: Vec<Vec<u8>> = (0..size).map(|at| self.cut.content(generation, at)).collect();
        let open = Open {
            chunks: Span::of_chunks(&chunks, CONTENT),
            made: 0,
            in_air: VecDeque::new(),
            told: Told { heard: 0, need: size as u32 },
            own: 0,
            own_all: 0,
        };
        self.open.insert(generation, open);
        Some(generation)
    }

    /// All that are on their way, in turn.
    fn any(&mut self) -> Option<u32> {
        let after = self.open.range(self.turn..).next().or_else(|| self.open.iter().next());
        let generation = *after?.0;
        self.turn = generation + 1;
        Some(generation)
    }
}

impl Open {
    fn next_frame(&mut self, generation: u32) -> FrameId {
        let index = self.made;
        self.made += 1;
        FrameId { generation, index }
    }
}
