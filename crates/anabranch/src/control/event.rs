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

impl Event {
    /// The text as it is read alone: see [`Event::with_subject`].
    pub fn sentence(&self) -> String {
        Self::with_subject(self.subject.as_deref(), &self.text)
    }

    /// The text, with what it is about before it unless it begins with that. A network may be called `c`, and the text begin with "carries".
    pub fn with_subject(subject: Option<&str>, text: &str) -> String {
        let is_named = |subject: &&str| {
            text.strip_prefix(subject).is_some_and(|rest| !rest.starts_with(char::is_alphanumeric))
        };
        match subject.filter(|subject| !is_named(subject)) {
            Some(subject) => format!("{subject}: {text}"),
            None => text.to_owned(),
        }
    }
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
    fn what_it_is_about_is_named_once() {
        assert_eq!(Event::with_subject(Some("wan0"), "wan0 is connected"), "wan0 is connected");
        assert_eq!(Event::with_subject(Some("wan0"), "wan0"), "wan0");
        assert_eq!(Event::with_subject(Some("c"), "carries data"), "c: carries data");
        assert_eq!(Event::with_subject(Some("a"), "down: the air is full"), "a: down: the air is full");
        assert_eq!(Event::with_subject(None, "data flows"), "data flows");
    }

    #[test]
    fn words_are_those_of_json() {
        for kind in
            [EventKind::Started, EventKind::NetworkChanged, EventKind::ClientRevoked, EventKind::Warning]
        {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
    }
}
