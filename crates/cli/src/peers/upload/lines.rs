//! What happens to an upload, as JSON: one line for each event.

use anabranch::upload::{Silence, UploadEvent, UploadShares, Uploaded};
use identity::PublicKey;
use serde::Serialize;

use crate::output;

#[derive(Serialize)]
struct Line<'a> {
    file: &'a str,
    #[serde(flatten)]
    event: Event,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Begun { resumed: u64 },
    Progress { done: u64, size: u64, shares: Shares },
    Silent { reason: String },
    Useless { reason: String },
    Away { reason: String },
    Stored { name: String, size: u64, shares: Shares },
    Same { name: String },
    Failed { reason: String },
}

/// Bytes by who has carried them.
#[derive(Serialize)]
struct Shares {
    own: u64,
    neighbours: Vec<Carried>,
}

#[derive(Serialize)]
struct Carried {
    key: String,
    name: String,
    bytes: u64,
}

/// Tells of one file's upload.
pub(super) struct Lines<'a> {
    pub(super) file: &'a str,
    pub(super) name_of: &'a dyn Fn(PublicKey) -> String,
    /// Says it in words.
    pub(super) silence: &'a dyn Fn(Silence) -> String,
    /// Why adapters are of no use.
    pub(super) no_air: &'a dyn Fn(&[String]) -> String,
}

impl Lines<'_> {
    pub(super) fn tell(&self, event: UploadEvent) {
        self.line(match event {
            UploadEvent::Begun { resumed } => Event::Begun { resumed },
            UploadEvent::Progress { done, size, shares } => {
                Event::Progress { done, size, shares: self.shares(&shares) }
            }
            UploadEvent::Silent(why) => Event::Silent { reason: (self.silence)(why) },
            UploadEvent::Useless(named) => Event::Useless { reason: (self.no_air)(&named) },
            UploadEvent::Away(reason) => Event::Away { reason },
        });
    }

    pub(super) fn end(&self, ended: &anyhow::Result<Uploaded>) {
        self.line(match ended {
            Ok(Uploaded { same: true, name, .. }) => Event::Same { name: name.clone() },
            Ok(sent) => {
                let (name, size) = (sent.name.clone(), sent.size);
                Event::Stored { name, size, shares: self.shares(&sent.shares) }
            }
            Err(error) => Event::Failed { reason: error.to_string() },
        });
    }

    fn line(&self, event: Event) {
        // Text and numbers can always be written; a closed output leaves nobody to tell.
        if let Ok(text) = serde_json::to_string(&Line { file: self.file, event }) {
            let _ = output::line(&text);
        }
    }

    fn shares(&self, shares: &UploadShares) -> Shares {
        let carried = |(key, bytes): &(PublicKey, u64)| Carried {
            key: key.to_string(),
            name: (self.name_of)(*key),
            bytes: *bytes,
        };
        Shares { own: shares.own, neighbours: shares.neighbours.iter().map(carried).collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_file_event_and_figures() {
        let lines = Lines {
            file: "a\"b",
            name_of: &|_| "bob".to_owned(),
            silence: &|why| why.to_string(),
            no_air: &|named| named.join(", "),
        };
        let shares = UploadShares { own: 1, neighbours: vec![(PublicKey([1; 32]), 2)] };
        let event = Event::Progress { done: 3, size: 4, shares: lines.shares(&shares) };
        let text = serde_json::to_value(Line { file: lines.file, event }).unwrap();
        let key = PublicKey([1; 32]).to_string();
        let carried = serde_json::json!([{ "key": key, "name": "bob", "bytes": 2 }]);
        let expected = serde_json::json!({
            "file": "a\"b", "event": "progress", "done": 3, "size": 4, "shares": { "own": 1, "neighbours": carried },
        });
        assert_eq!(text, expected);
    }
}
