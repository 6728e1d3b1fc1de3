//! What one round of questions brought.

use anabranch::control::{Event, Flows, GatewayClients, RadioStatus, RuleReport, Status, UnixMillis};

/// What the daemon said, and when it was asked.
#[derive(Clone, Debug)]
pub struct Sample {
    pub at: UnixMillis,
    pub said: Said,
}

/// An answer, by whom is asked.
#[derive(Clone, Debug)]
pub enum Said {
    /// A device or a gateway.
    Daemon(Box<Daemon>),
    /// A shared radio, where no device runs beside it.
    Radio { radio: RadioStatus, news: News },
    /// Nothing that can be used, with the reason.
    Nothing(String),
}

/// What is not looked at is not asked for: `None`.
#[derive(Clone, Debug)]
pub struct Daemon {
    pub status: Status,
    pub news: News,
    pub flows: Option<Flows>,
    pub rules: Option<Vec<RuleReport>>,
    pub clients: Option<GatewayClients>,
    /// `None` where no radio is shared.
    pub radio: Option<RadioStatus>,
}

/// What happened since the last answer.
#[derive(Clone, Debug, Default)]
pub struct News {
    /// Another daemon than before: what was kept is none of its.
    pub other: bool,
    pub events: Vec<Event>,
}
