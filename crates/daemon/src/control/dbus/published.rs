//! What was last told of the objects, and to whom: whoever has read the status hears of changes from then on, until it leaves the bus.
//!
//! Signals go to those alone, never to all: a bus would hand them to users whom polkit does not let read. While there is nobody
//! the daemon is not asked for anything.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anabranch::control::{Event, Status};
use linux::dbus::{Message, Value};

use super::connection::Bus;
use super::fault::Fault;
use super::properties::{self, DAEMON, Properties, ROOT};
use super::{OBJECT_MANAGER, PROPERTIES};
use crate::control::{Backend, BackendError};

/// One connection's view of the daemon. Whoever changes it holds the lock around it until all signals are on their way, so that
/// everybody hears of changes in their order.
pub(super) struct Published {
    bus: Bus,
    backend: Arc<dyn Backend>,
    last: Option<(Instant, Arc<Status>)>,
    objects: BTreeMap<String, Properties>,
    watchers: Vec<String>,
}

impl Published {
    pub(super) fn new(bus: Bus, backend: Arc<dyn Backend>) -> Self {
        Self { bus, backend, last: None, objects: BTreeMap::new(), watchers: Vec::new() }
    }

    /// The daemon as it is now; tells those who watch what has changed.
    pub(super) async fn refresh(&mut self) -> Result<Arc<Status>, Fault> {
        if let Some((at, status)) = &self.last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(status));
        }
        let backend = Arc::clone(&self.backend);
        let status = tokio::task::spawn_blocking(move || backend.status()).await;
        let status = status.unwrap_or_else(|error| Err(BackendError::Internal(error.to_string())))?;
        let now = properties::objects(&status);
        let before = std::mem::replace(&mut self.objects, now);
        let status = Arc::new(status);
        if self.last.replace((Instant::now(), Arc::clone(&status))).is_some() {
            for signal in changes(&before, &self.objects) {
                self.tell(&signal).await;
            }
        }
        Ok(status)
    }

    /// Something was changed: what was read before is old.
    pub(super) fn forget_status(&mut self) {
        if let Some((at, _)) = &mut self.last {
            *at = at.checked_sub(FRESH).unwrap_or(*at);
        }
    }

    /// The objects as of the last look.
    pub(super) fn objects(&self) -> &BTreeMap<String, Properties> {
        &self.objects
    }

    /// From now on this connection hears of changes. Where too many do, it has to read instead.
    pub(super) fn watch(&mut self, connection: &str) {
        if self.watchers.len() < MOST_WATCHERS && !self.watchers.iter().any(|known| known == connection) {
            self.watchers.push(connection.to_owned());
        }
    }

    pub(super) fn forget(&mut self, connection: &str) {
        self.watchers.retain(|known| known != connection);
    }

    pub(super) fn watchers(&self) -> &[String] {
        &self.watchers
    }

    /// Tells those who watch of an event.
    pub(super) async fn tell_event(&self, event: &Event) {
        let body = vec![
            Value::uint64(event.sequence.0),
            Value::uint64(event.time.0),
            Value::text(event.kind.as_str()),
            Value::text(event.subject.as_deref().unwrap_or_default()),
            Value::text(&event.text),
        ];
        self.tell(&Message::signal([ROOT, DAEMON, "Event"], body)).await;
    }

    async fn tell(&self, signal: &Message) {
        for watcher in &self.watchers {
            // If the connection is lost, those who wait for its messages see to it.
            let _ = self.bus.send(Message { destination: watcher.clone(), ..signal.clone() }).await;
        }
    }
}

/// The signals that lead from some objects to others.
fn changes(before: &BTreeMap<String, Properties>, now: &BTreeMap<String, Properties>) -> Vec<Message> {
    let mut signals = Vec::new();
    for (path, (interface, _)) in before.iter().filter(|(path, _)| !now.contains_key(*path)) {
        let body = vec![Value::path(path), Value::texts([*interface])];
        signals.push(Message::signal([ROOT, OBJECT_MANAGER, "InterfacesRemoved"], body));
    }
    for (path, (interface, values)) in now {
        let Some((_, old)) = before.get(path) else {
            let body = vec![Value::path(path), interfaces(&(interface, values.clone()))];
            signals.push(Message::signal([ROOT, OBJECT_MANAGER, "InterfacesAdded"], body));
            continue;
        };
        let changed: Vec<(&str, Value)> = values
            .iter()
            .filter(|value| properties::is_told(interface, value.0) && !old.contains(value))
            .cloned()
            .collect();
        if !changed.is_empty() {
            let body = vec![Value::text(interface), Value::properties(changed), Value::texts([])];
            signals.push(Message::signal([path, PROPERTIES, "PropertiesChanged"], body));
        }
    }
    signals
}

/// `a{sa{sv}}` of an object.
pub(super) fn interfaces((interface, values): &Properties) -> Value {
    let values = Value::properties(values.iter().cloned());
    Value::Array("{sa{sv}}".to_owned(), vec![Value::Struct(vec![Value::text(interface), values])])
}

/// Connections that hear of changes.
const MOST_WATCHERS: usize = 32;
/// How old a status may be that is handed out; who asks faster costs the daemon no more.
const FRESH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::super::properties::NETWORK;
    use super::*;

    type Numbers<'a> = &'a [(&'static str, u64)];

    fn objects(of: &[(&str, &'static str, Numbers<'_>)]) -> BTreeMap<String, Properties> {
        let values =
            |list: Numbers<'_>| list.iter().map(|(name, value)| (*name, Value::uint64(*value))).collect();
        of.iter().map(|(path, interface, list)| ((*path).to_owned(), (*interface, values(list)))).collect()
    }

    #[test]
    fn signals_tell_what_changed_and_no_more() {
        let before = objects(&[
            ("/a", NETWORK, &[("Rate", 1), ("Rtt", 2)]),
            ("/b", NETWORK, &[]),
            ("/r", DAEMON, &[("Sent", 1)]),
        ]);
        let now = objects(&[
            ("/a", NETWORK, &[("Rate", 3), ("Rtt", 2)]),
            ("/c", NETWORK, &[]),
            ("/r", DAEMON, &[("Sent", 2)]),
        ]);
        let signals = changes(&before, &now);
        let seen: Vec<_> =
            signals.iter().map(|signal| (signal.path.as_str(), signal.member.as_str())).collect();
        assert_eq!(
            seen,
            [(ROOT, "InterfacesRemoved"), ("/a", "PropertiesChanged"), (ROOT, "InterfacesAdded")]
        );
        assert_eq!(signals[1].body[1], Value::properties([("Rate", Value::uint64(3))]));
        assert_eq!(changes(&now, &now), []);
    }
}
