//! Logs: of a daemon in the foreground, and of other commands where ANABRANCH_LOG asks for them. To systemd's journal with fields
//! where standard error is the journal, as lines to standard error elsewhere.

use std::fmt;
use std::io::{self, IsTerminal};

use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::prelude::*;

/// Turns logging on where ANABRANCH_LOG asks for it, for commands that have other things to say.
pub fn start_if_asked() {
    if std::env::var_os("ANABRANCH_LOG").is_some() {
        start();
    }
}

/// Turns logging on: `info` and above, or what ANABRANCH_LOG says (`debug`, `bond=trace`, ...).
pub fn start() {
    let filter = EnvFilter::try_from_env("ANABRANCH_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    // Either only fails if logging is on already, and then there is nothing to do.
    let _ = match journal() {
        Some(journal) => registry.with(journal).try_init(),
        None => registry.with(lines()).try_init(),
    };
}

fn lines<S>() -> impl tracing_subscriber::Layer<S>
where
    S: tracing::Subscriber + for<'a> tracing_subscriber::registry::LookupSpan<'a>,
{
    tracing_subscriber::fmt::layer()
        .fmt_fields(Plain)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // Told on standard error too, and where that is a file on a full disk telling it would panic.
        .log_internal_errors(false)
}

/// The journal, if standard error leads there (systemd.exec(5), `JOURNAL_STREAM`).
fn journal() -> Option<tracing_journald::Layer> {
    let named = std::env::var("JOURNAL_STREAM").ok()?;
    let stream = rustix::fs::fstat(io::stderr()).ok()?;
    if named != format!("{}:{}", stream.st_dev, stream.st_ino) {
        return None;
    }
    let journal = tracing_journald::layer().ok()?;
    Some(journal.with_field_prefix(Some(FIELDS.to_owned())).with_syslog_identifier(NAME.to_owned()))
}

/// Fields as they are without a journal, but for those of events: a line says the same in words.
struct Plain;

impl<'writer> FormatFields<'writer> for Plain {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        format::debug_fn(|writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug| {
            match field.name() {
                "message" => write!(writer, "{value:?}"),
                "event" | "subject" => Ok(()),
                name => write!(writer, " {name}={value:?}"),
            }
        })
        .format_fields(writer, fields)
    }
}

const NAME: &str = "anabranch";
/// What the names of our fields begin with there.
const FIELDS: &str = "ANABRANCH";
