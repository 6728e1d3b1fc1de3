//! One file on its way: the state machines of `upload` over the air and the uplinks of a neighbourhood.

mod run;

use std::collections::BTreeMap;
use std::time::Duration;

use units::Timestamp;
use upload::{MemberReport, Settings};
use wire::upload::Chunk;

use super::spec::{NeighbourhoodSpec, UplinkSpec};
use run::Run;

/// How a neighbour behaves.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Conduct {
    /// As it should.
    #[default]
    Honest,
    /// It claims every chunk of the file and carries nothing that it has not heard.
    Boaster,
    /// It sends other bytes than those it heard.
    Garbler,
    /// It reports and never carries.
    Idler,
}

/// Something happens to a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Its program ends; the kernel closes its connection.
    Killed,
    /// It has no current any more; nobody is told.
    Silenced,
    /// Its program starts, with nothing in its buffer.
    Started,
}

/// A neighbour's radio is in other networks for a part of the time, again and again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Absence {
    /// Which neighbour, by its place.
    pub home: usize,
    /// It goes again after so long.
    pub cycle: Duration,
    /// How much of each cycle it is away: the end of it.
    pub away: Duration,
    /// Whether it tells.
    pub tells: bool,
}

impl Absence {
    fn is_away(&self, now: Timestamp) -> bool {
        let within = u128::from(now.as_nanos()) % self.cycle.as_nanos().max(1);
        within >= self.cycle.saturating_sub(self.away).as_nanos()
    }
}

/// Another source among the same neighbours. It is one of them no less than the first: its frames wait for the same air, its chunks for the same uplinks.
#[derive(Clone, PartialEq, Debug)]
pub struct Fellow {
    /// Its own uplink.
    pub own: UplinkSpec,
    /// How well each neighbour hears it, at each of the bit rates.
    pub reception: Vec<[f64; 4]>,
    /// How many chunks it has.
    pub chunks: u32,
}

/// A transfer that can be run.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Where.
    pub neighbourhood: NeighbourhoodSpec,
    /// How.
    pub settings: Settings,
    /// How many chunks.
    pub chunks: u32,
    /// Decides chance.
    pub seed: u64,
    /// How the neighbours behave; those beyond its end are honest.
    pub conduct: Vec<Conduct>,
    /// What happens to which neighbour, and when.
    pub faults: Vec<(Timestamp, usize, Fault)>,
    /// Whose radio is elsewhere when. Frames that begin meanwhile are not heard there.
    pub absences: Vec<Absence>,
    /// When the source's connection to the destination breaks, and for how long.
    pub breaks: Vec<(Timestamp, Duration)>,
    /// The source knows from before how well each neighbour hears it (`[LINKALIKE] IV`).
    pub known_receptions: bool,
    /// Whether the source uses its own uplink.
    pub own_uplink: bool,
    /// Other sources that begin at the same time, to the same destination.
    pub fellows: Vec<Fellow>,
    /// Whether neighbours repeat on the air what others do not hear.
    pub repeats: bool,
}

/// How a transfer went. Frames and the time on the air are its own source's.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// How long it took; `None` if it did not end.
    pub took: Option<Duration>,
    /// What the destination has, chunk by chunk; empty if it did not end.
    pub contents: Vec<u64>,
    /// Chunks that came by the own uplink first.
    pub own_chunks: u32,
    /// Frames on the air, attempts counted one by one.
    pub frames: u64,
    /// Frames by which neighbours repeated chunks, not among `frames`.
    pub repeats: u64,
    /// Time on the air.
    pub air_time: Duration,
    /// Chunks that were credited to neighbours, those of earlier connections too.
    pub credited: u32,
    /// Times at which a machine wanted to be called at once after all had been taken from it.
    pub hasty: u32,
    /// What each neighbour has done.
    pub neighbours: Vec<MemberReport>,
    /// How many frames for everybody were heard by which neighbours, as bits.
    pub heard: BTreeMap<u64, u32>,
    /// Arrivals in each tenth of a second.
    pub arrivals: Vec<u32>,
    /// The most bytes that source, destination and any neighbour took up without the chunks themselves.
    pub memory: [usize; 3],
    /// The most chunks that a neighbour kept.
    pub most_buffered: usize,
}

impl Transfer {
    /// A transfer between honest homes.
    pub fn new(neighbourhood: NeighbourhoodSpec, settings: Settings, chunks: u32, seed: u64) -> Self {
        let (conduct, faults) = (Vec::new(), Vec::new());
        Self {
            neighbourhood,
            settings,
            chunks,
            seed,
            conduct,
            faults,
            absences: Vec::new(),
            breaks: Vec::new(),
            known_receptions: false,
            own_uplink: true,
            fellows: Vec::new(),
            repeats: false,
        }
    }

    /// Runs it to its end.
    pub fn run(&self) -> Outcome {
        self.run_all().into_iter().next().unwrap_or_default()
    }

    /// Runs it and its fellows' to the end of all.
    pub fn run_all(&self) -> Vec<Outcome> {
        Run::new(self).run()
    }

    /// The neighbourhood as each source has it, with its number of chunks.
    fn parties(&self) -> Vec<(NeighbourhoodSpec, u32)> {
        let mut parties = vec![(self.neighbourhood.clone(), self.chunks)];
        for fellow in &self.fellows {
            let mut spec = NeighbourhoodSpec { own: fellow.own, ..self.neighbourhood.clone() };
            for (at, neighbour) in spec.neighbours.iter_mut().enumerate() {
                neighbour.reception = fellow.reception.get(at).copied().unwrap_or_default();
            }
            parties.push((spec, fellow.chunks));
        }
        parties
    }

    /// What a chunk's bytes are; a token stands for them.
    pub fn content(&self, chunk: Chunk) -> u64 {
        (u64::from(chunk.0) ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}
