//! What networks have used of their data caps in a replay.

use std::collections::BTreeMap;

use units::Bytes;

/// By name of the network.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Usages(BTreeMap<String, Usage>);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Usage {
    used: Bytes,
    recorded: Option<Bytes>,
}

impl Usages {
    /// What the record says that a network had used by then, if it says it. The first time that is where counting begins, and again when it is
    /// less than before: another billing period. In between the replay counts by itself what it puts on the network.
    pub fn take(&mut self, name: &str, recorded: Option<Bytes>) {
        let usage = self.0.entry(name.to_owned()).or_default();
        let Some(now) = recorded else { return };
        if usage.recorded.is_none_or(|before| now < before) {
            usage.used = now;
        }
        usage.recorded = Some(now);
    }

    /// A flow was put on a network.
    pub fn add(&mut self, name: &str, bytes: Bytes) {
        let usage = self.0.entry(name.to_owned()).or_default();
        usage.used = Bytes(usage.used.0.saturating_add(bytes.0));
    }

    /// What a network has used.
    pub fn of(&self, name: &str) -> Bytes {
        self.0.get(name).map_or(Bytes(0), |usage| usage.used)
    }
}
