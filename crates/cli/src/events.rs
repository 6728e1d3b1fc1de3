//! `anabranch events`.

use anabranch::control::{Event, EventSequence};

use crate::arguments::Events;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Events) -> anyhow::Result<()> {
    let client = session.client()?;
    let since = EventSequence(arguments.since);
    if !arguments.follow {
        return client.events(since)?.iter().try_for_each(|event| show(event, arguments.json));
    }
    for event in client.follow_events(since)? {
        show(&event?, arguments.json)?;
    }
    Ok(())
}

fn show(event: &Event, json: bool) -> anyhow::Result<()> {
    if json {
        return output::line(&serde_json::to_string(event)?);
    }
    output::line(&line(event))
}

/// One event as a line of text.
pub fn line(event: &Event) -> String {
    format!("{}  {:<16}  {}", event.time, event.kind.as_str(), event.sentence())
}
