//! Where a sender stands between losses.
//!
//! ```text
//!          loss found                    all acknowledged up to `end`, or undone
//!  Open ---------------> Recovering ---------------------------------------------> Open
//!    \                       |
//!     \ timer expired        | timer expired
//!      +---------------------+--> TimedOut ---- as above ---> Open
//! ```

/// State of loss recovery (RFC 6675, RFC 5681, RFC 4015).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Recovery {
    /// No loss is being repaired.
    Open,
    /// Lost packets are sent again.
    Recovering(Episode),
    /// The timer expired and all was sent again.
    TimedOut(Episode),
}

/// One recovery.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Episode {
    /// The recovery ends when everything below is acknowledged.
    pub(super) end: u64,
    /// Clock value that the first retransmission carried; none was sent before.
    pub(super) first_repeat: Option<u32>,
    /// Retransmissions less those that the other end reported as duplicates.
    pub(super) unexplained_repeats: i64,
    /// Packets sent since the recovery began.
    pub(super) sent: u64,
}

impl Episode {
    pub(super) fn until(end: u64) -> Self {
        Self { end, first_repeat: None, unexplained_repeats: 0, sent: 0 }
    }

    /// The acknowledgement answers something sent before the first retransmission, so the original
    /// arrived (Eifel); or every retransmission was a duplicate.
    pub(super) fn was_mistaken(&self, echo: u32) -> bool {
        let answers_original = self.first_repeat.is_some_and(|first| echo != 0 && echo < first);
        answers_original || (self.first_repeat.is_some() && self.unexplained_repeats <= 0)
    }
}

impl Recovery {
    pub(super) fn episode(&self) -> Option<&Episode> {
        match self {
            Self::Open => None,
            Self::Recovering(episode) | Self::TimedOut(episode) => Some(episode),
        }
    }

    pub(super) fn episode_mut(&mut self) -> Option<&mut Episode> {
        match self {
            Self::Open => None,
            Self::Recovering(episode) | Self::TimedOut(episode) => Some(episode),
        }
    }

    pub(super) fn is_open(&self) -> bool {
        *self == Self::Open
    }
}
