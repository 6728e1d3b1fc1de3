//! Why an access point is used as it is, in words.

use std::fmt;
use std::time::Duration;

/// Why a network's packets are marked or not, and whether it is to carry data.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum SteeringReason {
    /// Nothing else is on its channel.
    OnlyOne,
    /// It takes the least time for a packet on its channel.
    Best,
    /// It takes little longer than the best, or that is not known to be more than a bad moment, and may find the air free when that one does not.
    AsGood {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// It takes longer than the best, and carries what the better ones leave air for.
    FreeAir {
        /// How much longer, as a part of the best one's time.
        longer: f64,
        /// The part of the air that it may take.
        allowed: f64,
    },
    /// It takes longer than the best, and the better ones and others leave no air free.
    NoFreeAir {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// It takes longer than the best, and when it was used no more arrived in all, or less.
    NoGain {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// It takes longer than the best, and air is free: it begins once it is known what arrives without it, and one at a time.
    Waits {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// By what is remembered it takes longer than the best, but it is heard better now, so it is tried.
    HeardBetter {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// By what is remembered it takes longer than the best, but that one has become so much worse since that it is tried.
    Fallen {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// It takes longer than the best, but nothing is known of its flows' other ways, or there are none.
    NoOtherWay {
        /// How much longer, as a part of the best one's time.
        longer: f64,
    },
    /// The best one carries more without it: the two do not hear each other.
    Disturbs,
    /// It is being found out whether the best one carries more without it, or whether it is better itself while that one is silent.
    Compared,
    /// Nothing was heard of it lately, so nothing is known.
    Unknown,
    /// What is known of it is too doubtful to act upon.
    Doubtful {
        /// From 0 to 1.
        confidence: f64,
    },
    /// It is perfect on the air, and nothing comes back from beyond.
    Dead,
}

impl fmt::Display for SteeringReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |part: &f64| part * 100.0;
        match self {
            Self::OnlyOne => write!(formatter, "the only one on its channel"),
            Self::Best => write!(formatter, "takes the least time for a packet"),
            Self::AsGood { longer } => {
                write!(formatter, "nearly as good as the best ({:.0} % longer just now)", percent(longer))
            }
            Self::FreeAir { longer, allowed } => write!(
                formatter,
                "{:.0} % longer for a packet than the best; at most {:.0} % of the air, which better ones leave free",
                percent(longer),
                percent(allowed)
            ),
            Self::NoFreeAir { longer } => write!(
                formatter,
                "{:.0} % longer for a packet than the best, and better ones and others leave no air free",
                percent(longer)
            ),
            Self::NoGain { longer } => write!(
                formatter,
                "{:.0} % longer for a packet than the best, and no more arrived in all while it was used",
                percent(longer)
            ),
            Self::Waits { longer } => write!(
                formatter,
                "{:.0} % longer for a packet than the best; air is free, so it may have a part soon",
                percent(longer)
            ),
            Self::HeardBetter { longer } => write!(
                formatter,
                "{:.0} % longer for a packet than the best by the little that came, but heard better: it is tried",
                percent(longer)
            ),
            Self::Fallen { longer } => write!(
                formatter,
                "{:.0} % longer for a packet than the best when it was last known, but the best one has become worse since: it is tried",
                percent(longer)
            ),
            Self::NoOtherWay { longer } => {
                write!(
                    formatter,
                    "{:.0} % longer for a packet than the best, but flows have no other way",
                    percent(longer)
                )
            }
            Self::Disturbs => write!(
                formatter,
                "it and the best one seem not to hear each other, so each would spoil what the other sends"
            ),
            Self::Compared => write!(
                formatter,
                "silent for a second or two, to see whether it and the best one hear each other"
            ),
            Self::Unknown => write!(formatter, "nothing heard of it lately"),
            Self::Doubtful { confidence } => {
                write!(formatter, "what is known of it is doubtful (confidence {confidence:.2})")
            }
            Self::Dead => write!(formatter, "heard, but nothing comes from beyond it"),
        }
    }
}

/// What slower ones that are not used lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Lack {
    Air,
    Gain,
    Turn,
}

impl Lack {
    pub fn reason(self, longer: f64) -> SteeringReason {
        match self {
            Self::Air => SteeringReason::NoFreeAir { longer },
            Self::Gain => SteeringReason::NoGain { longer },
            Self::Turn => SteeringReason::Waits { longer },
        }
    }
}

/// By how much `time` is longer than `best`, as a part of it.
pub(super) fn longer(time: Duration, best: Duration) -> f64 {
    if best.is_zero() {
        return 0.0;
    }
    (time.as_secs_f64() / best.as_secs_f64() - 1.0).max(0.0)
}
