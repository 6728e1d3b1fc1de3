//! `anabranch report`: what somebody needs who is to find a fault from afar, in one text that can be read before it is sent.

mod gather;
mod known;
mod redact;

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anabranch::control::UnixMillis;
use anyhow::Context;
use tokio::runtime::Builder;

use crate::arguments;
use crate::output;
use crate::session::Session;
use gather::Section;
use known::Known;
use redact::Redactor;

/// Standard output in place of a file.
const STANDARD_OUTPUT: &str = "-";

pub fn run(session: &Session, arguments: &arguments::Report) -> anyhow::Result<()> {
    let now = UnixMillis::now().to_string();
    let day = now.get(..10).unwrap_or_default();
    let path =
        arguments.output.clone().unwrap_or_else(|| PathBuf::from(format!("anabranch-report-{day}.txt")));
    let shown = path == Path::new(STANDARD_OUTPUT);
    anyhow::ensure!(
        shown || !path.exists(),
        "{} exists; move it away, or name another file by --output",
        path.display()
    );
    let mut redactor = Redactor::default();
    let runtime = Builder::new_current_thread().enable_all().build()?;
    // The daemon's client has an event loop of its own, so both take turns.
    let sections = gather::all(&runtime, session, &mut Known(&mut redactor));
    let text = write(&now, &sections, &mut redactor);
    if shown {
        return output::line(text.trim_end());
    }
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.with_context(|| format!("cannot write {}", path.display()))?;
    output::line(&path.display().to_string())?;
    output::remark(
        "Nothing was sent. Names, public addresses, keys and secrets were taken out as far as they are known or look like it: \
         read the file before you give it to anybody.",
    );
    Ok(())
}

fn write(now: &str, sections: &[Section], redactor: &mut Redactor) -> String {
    let body: String = sections.iter().map(|section| shown(section, redactor)).collect();
    let kinds = redactor.taken_out().iter().map(|(kind, count)| format!("  {count} {kind}\n"));
    let taken_out: String = kinds.collect();
    let failed = sections.iter().filter(|section| section.body.is_err()).count();
    let missing = match failed {
        0 => String::new(),
        _ => format!("{failed} parts could not be had; each says why. As root more can be read.\n"),
    };
    format!(
        "anabranch report, {now}\n\nTaken out, each replaced by the same placeholder wherever it stood:\n{taken_out}Private \
         addresses (10.0.0.0/8 and the like) stay. This is done by rules, which cannot know everything:\nread it before you send it.\n{missing}{body}"
    )
}

fn shown(section: &Section, redactor: &mut Redactor) -> String {
    let title = redactor.text(&section.title);
    let body = match &section.body {
        Ok(body) => match serde_json::from_str::<serde_json::Value>(body) {
            Ok(value) if value.is_object() || value.is_array() => {
                serde_json::to_string_pretty(&redactor.json(&value)).unwrap_or_default()
            }
            _ => redactor.text(body),
        },
        Err(why) => format!("could not be had: {}", redactor.text(why)),
    };
    format!("\n==== {title}\n\n{}\n", body.trim_end())
}
