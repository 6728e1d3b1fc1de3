//! Answers on standard output. A closed pipe is an error that [`crate::exit`] knows.

use std::io::{self, Write};

use serde::Serialize;

/// One JSON document.
pub fn json(answer: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(answer)?)
}

/// One line of text.
pub fn line(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}

/// A remark that is no part of the answer, on standard error.
pub fn remark(text: &str) {
    // A closed standard error leaves nobody to tell.
    let _ = writeln!(io::stderr(), "{text}");
}
