//! `anabranch trace record` and `draw`.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use anyhow::Context;
use daemon::bond_trace::{self, Ended, Options};

use crate::arguments::{Trace, TraceCommand, TraceDraw, TraceRecord};
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Trace) -> anyhow::Result<()> {
    match &arguments.command {
        TraceCommand::Record(arguments) => record(session, arguments),
        TraceCommand::Draw(arguments) => draw(arguments),
    }
}

fn record(session: &Session, arguments: &TraceRecord) -> anyhow::Result<()> {
    let client = session.client()?;
    let name = arguments.file.display();
    // It tells which networks there are, and when they were used.
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&arguments.file);
    let file = file.as_mut().map_err(|error| anyhow::anyhow!("cannot make {name}: {error}"))?;
    let options = Options {
        interval: Duration::from_millis(arguments.interval),
        lasts: arguments.seconds.map(Duration::from_secs),
        most: arguments.most * 1_000_000,
    };
    output::remark(&format!("recording to {name}; Ctrl-C ends it"));
    match bond_trace::record(&client, file, options)? {
        Ended::TimeIsOver => {}
        Ended::IsFull => output::remark(&format!("{name} is as long as it may be (--most)")),
        Ended::DaemonIsGone => output::remark("the daemon has ended, and so has the record"),
    }
    Ok(())
}

fn draw(arguments: &TraceDraw) -> anyhow::Result<()> {
    let recording = bond_trace::load(&arguments.file)?;
    if recording.is_cut_off {
        output::remark("the last entry was cut off and is left out");
    }
    if recording.unknown > 0 {
        output::remark(&format!("{} entries of other programs are left out", recording.unknown));
    }
    fs::write(&arguments.svg, trace::picture(&recording))
        .with_context(|| format!("cannot write {}", arguments.svg.display()))
}
