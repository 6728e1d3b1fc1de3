//! How a transfer is run: what the paper does, and what does better.

use wire::upload::RateIndex;

/// Which neighbour carries which chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Frames are for everybody; the destination says who carries what (`[LINKALIKE] III.C.1`).
    Scheduled,
    /// Each frame is for one neighbour, the best with room, which carries whatever it gets (`[LINKALIKE] III.B`).
    Unicast,
    /// Frames are for everybody; each neighbour carries any chunk that it has (`[LINKALIKE] III.C.1`).
    Random,
}

/// Which chunk a neighbour with room is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// The one that it has had longest: the paper's.
    FirstCome,
    /// Of those that it has had longest, the one that the others need least. A neighbour with a good ear takes first what nobody else has,
    /// and leaves what a worse one has too.
    LeastNeeded,
}

/// Which bit rate a frame for everybody is sent at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RateChoice {
    /// Always this.
    Fixed(RateIndex),
    /// The best for the neighbour with room that takes the least air time: the paper's (`[LINKALIKE] III.C.3`).
    BestMember,
    /// The one that brings most frames a second to at least one neighbour with room.
    AnyMember,
}

/// How the source finds its pace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PaceRule {
    /// By the proportional-differential controller of `[LINKALIKE] III.C.3`. It goes on summing up while buffers are over-full, so after that they run dry
    /// for seconds.
    Controller,
    /// As fast as the medium goes while somebody lacks chunks, hardly at all else. What is sent too much within the delay of the feedback is kept, not
    /// lost.
    Need,
}

/// How a transfer is run. All three sides are given the same.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Settings {
    /// See [`Strategy`].
    pub strategy: Strategy,
    /// See [`Assignment`].
    pub assignment: Assignment,
    /// See [`RateChoice`].
    pub rate: RateChoice,
    /// See [`PaceRule`].
    pub pace: PaceRule,
    /// Who brought less than this part of the last 200 chunks is not waited for by the source's pace (`[LINKALIKE] III.C.3`).
    pub least_share: f64,
    /// How full a neighbour's buffer should be, in bandwidth-delay products of its uplink (`[LINKALIKE] III.C.3`).
    pub buffer_products: u32,
    /// How far the source runs ahead of the first missing chunk. Bounds the memory of all sides.
    pub ahead: u32,
    /// Whether the last chunks are carried twice where the second copy comes sooner.
    pub second_copies: bool,
    /// Whether the source holds back what a neighbour has, and repeats what no neighbour has heard as soon as that is known; the paper's
    /// repeats whatever is not acknowledged.
    pub heeds_reports: bool,
}

impl Settings {
    /// As the paper has it.
    pub const PAPER: Self = Self {
        strategy: Strategy::Scheduled,
        assignment: Assignment::FirstCome,
        rate: RateChoice::BestMember,
        pace: PaceRule::Controller,
        least_share: 0.05,
        buffer_products: 5,
        ahead: AHEAD,
        second_copies: false,
        heeds_reports: false,
    };
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            assignment: Assignment::LeastNeeded,
            rate: RateChoice::AnyMember,
            pace: PaceRule::Need,
            least_share: 0.01,
            second_copies: true,
            heeds_reports: true,
            ..Self::PAPER
        }
    }
}

/// 92 MB of a file at 1,400 bytes a chunk: three minutes of 802.11b's air.
const AHEAD: u32 = 65_536;
