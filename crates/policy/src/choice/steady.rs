//! A choice that does not change for one evaluation's whim.
//!
//! ```text
//!          another is better              again, evaluation counts
//!   held ----------------------> contested -----------------------> held (the other one)
//!    ^  <----------------------------|
//!    |       not better any more
//!    +--- the held one is gone: the best one at once
//! ```
//! `[VCONN] 3.3`: switched when two consecutive evaluations suggest a better connection.

use units::NetworkId;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Steady {
    #[default]
    Empty,
    Held(NetworkId),
    Contested {
        held: NetworkId,
        by: NetworkId,
        evaluations: u8,
    },
}

impl Steady {
    /// Takes the best network of now and returns the one to use: one for which `may_stay` holds, or `best`.
    pub(super) fn next(
        &mut self,
        best: Option<NetworkId>,
        may_stay: impl Fn(NetworkId) -> bool,
        counts: bool,
        agreement: u8,
    ) -> Option<NetworkId> {
        let held = self.get().filter(|held| may_stay(*held));
        *self = match (held, best) {
            (_, None) => Self::Empty,
            (None, Some(best)) => Self::Held(best),
            (Some(held), Some(best)) if held == best => Self::Held(held),
            (Some(held), Some(best)) => {
                let before = match *self {
                    Self::Contested { by, evaluations, .. } if by == best => evaluations,
                    _ => 0,
                };
                let evaluations = before + u8::from(counts);
                if evaluations >= agreement {
                    Self::Held(best)
                } else {
                    Self::Contested { held, by: best, evaluations }
                }
            }
        };
        self.get()
    }

    /// The network to use now.
    pub(super) fn get(self) -> Option<NetworkId> {
        match self {
            Self::Empty => None,
            Self::Held(held) | Self::Contested { held, .. } => Some(held),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NetworkId = NetworkId(0);
    const B: NetworkId = NetworkId(1);
    const C: NetworkId = NetworkId(2);

    /// The diagram, arrow by arrow.
    #[test]
    fn transitions() {
        let mut steady = Steady::default();
        let all = |_| true;
        assert_eq!(steady.next(None, all, true, 2), None);
        assert_eq!(steady.next(Some(A), all, true, 2), Some(A), "nothing to hold on to");
        assert_eq!(steady.next(Some(B), all, true, 2), Some(A), "once");
        assert_eq!(steady.next(Some(A), all, true, 2), Some(A), "not better any more");
        assert_eq!(steady.next(Some(B), all, true, 2), Some(A), "once, anew");
        assert_eq!(steady.next(Some(C), all, true, 2), Some(A), "another one contests, anew");
        assert_eq!(steady.next(Some(C), all, false, 2), Some(A), "too early to count");
        assert_eq!(steady.next(Some(C), all, true, 2), Some(C), "twice");
        assert_eq!(steady.next(Some(A), |id| id != C, false, 2), Some(A), "the held one is gone");
        assert_eq!(steady.next(None, all, true, 2), None);
    }
}
