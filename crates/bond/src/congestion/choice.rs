//! Which controller a path uses, dispatched statically.

use super::{
    AckSample, BackgroundController, Controller, CoupledController, Coupling, CubicController, LossSample,
    ModelController, Sibling,
};
use std::fmt;
use std::str::FromStr;
use units::{BitRate, PathId, Timestamp};

/// The congestion control of a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// A model of rate and round-trip time; blind to random loss.
    #[default]
    Model,
    /// CUBIC, RFC 9438.
    Cubic,
    /// Linked increases, RFC 6356.
    Lia,
    /// Opportunistic linked increases.
    Olia,
    /// Balanced linked adaptation.
    Balia,
    /// Less than best effort: gives way to everybody else (LEDBAT++).
    Background,
}

impl Algorithm {
    /// Every algorithm, in the order in which they are listed to users.
    pub const ALL: [Self; 6] =
        [Self::Model, Self::Cubic, Self::Lia, Self::Olia, Self::Balia, Self::Background];

    /// The name in configuration files and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Cubic => "cubic",
            Self::Lia => "lia",
            Self::Olia => "olia",
            Self::Balia => "balia",
            Self::Background => "background",
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that is no congestion control.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("there is no congestion control {0:?}; choose one of model, cubic, lia, olia, balia, background")]
pub struct UnknownAlgorithm(pub String);

impl FromStr for Algorithm {
    type Err = UnknownAlgorithm;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.name() == name)
            .ok_or_else(|| UnknownAlgorithm(name.into()))
    }
}

/// A controller of any kind, without boxes.
#[derive(Clone, Debug)]
pub enum AnyController {
    /// See [`ModelController`].
    Model(ModelController),
    /// See [`CubicController`].
    Cubic(CubicController),
    /// See [`CoupledController`].
    Coupled(CoupledController),
    /// See [`BackgroundController`].
    Background(BackgroundController),
}

impl AnyController {
    /// A fresh controller of a path whose datagrams hold at most `max_datagram_size` bytes of UDP payload.
    pub fn new(algorithm: Algorithm, max_datagram_size: u64, now: Timestamp) -> Self {
        let coupled = |coupling| Self::Coupled(CoupledController::new(coupling, max_datagram_size, now));
        match algorithm {
            Algorithm::Model => Self::Model(ModelController::new(max_datagram_size, now)),
            Algorithm::Cubic => Self::Cubic(CubicController::new(max_datagram_size, now)),
            Algorithm::Lia => coupled(Coupling::Lia),
            Algorithm::Olia => coupled(Coupling::Olia),
            Algorithm::Balia => coupled(Coupling::Balia),
            Algorithm::Background => Self::Background(BackgroundController::new(max_datagram_size, now)),
        }
    }

    /// The controller for a path that answers again after nothing was acknowledged for long.
    pub fn renewed(&self, algorithm: Algorithm, max_datagram_size: u64, now: Timestamp) -> Self {
        match self {
            Self::Background(controller) => Self::Background(controller.renewed(now)),
            _ => Self::new(algorithm, max_datagram_size, now),
        }
    }
}

/// Calls the same method of whichever controller there is.
macro_rules! each {
    ($self:expr, $controller:ident => $call:expr) => {
        match $self {
            Self::Model($controller) => $call,
            Self::Cubic($controller) => $call,
            Self::Coupled($controller) => $call,
            Self::Background($controller) => $call,
        }
    };
}

impl Controller for AnyController {
    fn on_sent(&mut self, now: Timestamp, bytes: u64, in_flight: u64) {
        each!(self, controller => controller.on_sent(now, bytes, in_flight));
    }

    fn on_ack(&mut self, sample: &AckSample, own: PathId, siblings: &[Sibling]) {
        each!(self, controller => controller.on_ack(sample, own, siblings));
    }

    fn on_loss(&mut self, sample: &LossSample, own: PathId, siblings: &[Sibling]) {
        each!(self, controller => controller.on_loss(sample, own, siblings));
    }

    fn window(&self) -> u64 {
        each!(self, controller => controller.window())
    }

    fn pacing_rate(&self) -> Option<BitRate> {
        each!(self, controller => controller.pacing_rate())
    }

    fn rate_estimate(&self) -> Option<BitRate> {
        each!(self, controller => controller.rate_estimate())
    }

    fn settled(&self) -> bool {
        each!(self, controller => controller.settled())
    }

    fn guaranteed_window(&self) -> u64 {
        each!(self, controller => controller.guaranteed_window())
    }

    fn freed(&mut self, now: Timestamp, takes_over: bool) {
        each!(self, controller => controller.freed(now, takes_over));
    }

    fn fades(&self, now: Timestamp) -> bool {
        each!(self, controller => controller.fades(now))
    }

    fn has_room(&self) -> bool {
        each!(self, controller => controller.has_room())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for algorithm in Algorithm::ALL {
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
            let controller = AnyController::new(algorithm, 1_200, Timestamp::ZERO);
            let packets = if algorithm == Algorithm::Background { 2 } else { 10 };
            assert_eq!(controller.window(), packets * 1_200);
            assert!(!controller.settled());
        }
        let error = "reno".parse::<Algorithm>().unwrap_err();
        assert!(error.to_string().contains("\"reno\"") && error.to_string().contains("olia"));
    }
}
