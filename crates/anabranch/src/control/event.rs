//! What happened, in the order it happened.

use serde::{Deserialize, Serialize};

use super::UnixMillis;

/// Number of an event, counted from 1 in a daemon's life.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct EventSequence(pub u64);

/// One thing that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// Its number.
    pub sequence: EventSequence,
    /// When.
    pub time: UnixMillis,
    /// What sort.
    pub kind: EventKind,
    /// The network or client it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// A sentence for people.
    pub text: String,
}

/// Sorts of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The daemon has started.
    Started,
    /// The daemon stops.
    Stopping,
    /// A network can be used.
    NetworkUp,
    /// A network is gone.
    NetworkDown,
    /// A network's address or settings changed.
    NetworkChanged,
    /// A path carries data.
    PathUp,
    /// A path stays silent.
    PathSuspect,
    /// A path was given up.
    PathDown,
    /// The session with the far end is up.
    SessionUp,
    /// The session is lost.
    SessionDown,
    /// The far end refused the session.
    Refused,
    /// A client was let in for the first time.
    ClientJoined,
    /// A client's session is up.
    ClientConnected,
    /// A client's session ended.
    ClientGone,
    /// A client was revoked.
    ClientRevoked,
    /// Something does not work as it should, and the daemon goes on.
    Warning,
}

impl EventKind {
    /// The kind's word, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stopping => "stopping",
            Self::NetworkUp => "network-up",
            Self::NetworkDown => "network-down",
            Self::NetworkChanged => "network-changed",
            Self::PathUp => "path-up",
            Self::PathSuspect => "path-suspect",
            Self::PathDown => "path-down",
            Self::SessionUp => "session-up",
            Self::SessionDown => "session-down",
            Self::Refused => "refused",
            Self::ClientJoined => "client-joined",
            Self::ClientConnected => "client-connected",
            Self::ClientGone => "client-gone",
            Self::ClientRevoked => "client-revoked",
            Self::Warning => "warning",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_json() {
        for kind in
            [EventKind::Started, EventKind::NetworkChanged, EventKind::ClientRevoked, EventKind::Warning]
        {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
