//! `anabranch upload`.

use std::io::IsTerminal;
use std::path::Path;
use std::time::{Duration, Instant};

use anabranch::upload::{UploadEvent, UploadOptions, Uploaded, upload};
use anyhow::bail;
use indicatif::MultiProgress;

use super::lines::Lines;
use super::{Reached, bit_rate, no_air, shares};
use crate::arguments::Upload;
use crate::exit::WrongUsage;
use crate::output;
use crate::peers::{self, tell};
use crate::session::Session;

/// How often progress is told where there is no terminal.
const PLAIN: Duration = Duration::from_secs(5);

pub fn run(session: &Session, arguments: &Upload) -> anyhow::Result<()> {
    let files = &arguments.files;
    for file in files {
        // Better now than after the others.
        if !Path::new(file).is_file() {
            bail!(WrongUsage(format!("{} is no file", Path::new(file).display())));
        }
    }
    let reached = Reached::new(session, &arguments.destination, &arguments.call, arguments.background)?;
    let options = UploadOptions {
        on_air: !arguments.no_air,
        air: (!arguments.air.is_empty()).then(|| arguments.air.clone()),
        air_rate: bit_rate(arguments.air_rate),
        air_rates: arguments.air_rates.clone(),
        own_uplink: !arguments.no_own_uplink,
    };
    let errors = peers::runtime()?.block_on(async {
        let mut errors = Vec::new();
        for file in files {
            let sent = match arguments.json {
                true => send_with_lines(&reached, Path::new(file), &options).await,
                false => send(&reached, Path::new(file), &options).await,
            };
            if let Err(error) = sent {
                errors.push(error.to_string());
            }
        }
        reached.endpoint.clone().close().await;
        errors
    });
    if errors.is_empty() { Ok(()) } else { bail!(errors.join("\nanabranch: ")) }
}

/// Tells what happens as JSON.
async fn send_with_lines(reached: &Reached, file: &Path, options: &UploadOptions) -> anyhow::Result<()> {
    let name = name_of(file);
    let silence = |why| reached.silence(why, options.air.as_deref());
    let no_air = |named: &[String]| no_air(named, &reached.endpoint.adapters());
    let lines =
        Lines { file: &name, name_of: &|key| reached.name_of(key), silence: &silence, no_air: &no_air };
    let mut heed = |event: UploadEvent| {
        if matches!(event, UploadEvent::Begun { .. })
            && let Err(error) = peers::redeemed(&reached.state, reached.known.peer.key)
        {
            output::remark(&not_noted(&error));
        }
        lines.tell(event);
    };
    let peer = || reached.lookout.complete(&reached.known.peer);
    let sent =
        upload(&reached.endpoint, &peer, &reached.options(), &reached.key, file, options, &mut heed).await;
    let sent = sent.map_err(anyhow::Error::from);
    lines.end(&sent);
    sent.map(drop)
}

fn name_of(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn not_noted(error: &impl std::fmt::Display) -> String {
    format!("The invitation could not be noted as used: {error}.")
}

async fn send(reached: &Reached, file: &Path, options: &UploadOptions) -> anyhow::Result<()> {
    let bars = MultiProgress::new();
    let name = name_of(file);
    let bar = peers::bar(&bars, &name);
    let destination = reached.known.name.as_str();
    let is_terminal = std::io::stderr().is_terminal();
    let mut next = Instant::now() + PLAIN;
    let mut silent = String::new();
    let mut heed = |event: UploadEvent| match event {
        UploadEvent::Begun { resumed } => {
            // Whoever takes a file has let this machine in.
            if let Err(error) = peers::redeemed(&reached.state, reached.known.peer.key) {
                tell(&bars, &not_noted(&error));
            }
            bar.set_position(resumed);
            bar.set_message(name.clone());
        }
        UploadEvent::Progress { done, size, shares: by } => {
            bar.set_length(size);
            bar.set_position(done);
            let by = shares(&by, |key| reached.name_of(key));
            bar.set_message(format!("{name} ({by})"));
            if !is_terminal && Instant::now() >= next {
                next = Instant::now() + PLAIN;
                let part = done as f64 * 100.0 / size.max(1) as f64;
                tell(&bars, &format!("{name}: {part:.0} % of {size} bytes; {by}."));
            }
        }
        UploadEvent::Silent(why) => {
            let goes_on =
                if options.own_uplink { "the file goes by this machine's own uplink" } else { "waiting" };
            let why = reached.silence(why, options.air.as_deref());
            silent = format!("{name}: {why}; {goes_on}.");
            tell(&bars, &silent);
        }
        UploadEvent::Useless(named) => {
            let why = no_air(&named, &reached.endpoint.adapters());
            tell(&bars, &format!("{name}: not all adapters are used: {why}."));
        }
        UploadEvent::Away(why) => bar.set_message(format!("{name} (waiting for {destination}: {why})")),
    };
    let peer = || reached.lookout.complete(&reached.known.peer);
    let sent =
        upload(&reached.endpoint, &peer, &reached.options(), &reached.key, file, options, &mut heed).await;
    bar.finish_and_clear();
    let Uploaded { same, name: there, size, shares: by } = sent?;
    if same {
        tell(&bars, &format!("{destination} has {name} already, as {there}; nothing was sent."));
    } else {
        let by = shares(&by, |key| reached.name_of(key));
        tell(&bars, &format!("{name} is at {destination} as {there}: {size} bytes, verified; {by}."));
    }
    Ok(())
}
