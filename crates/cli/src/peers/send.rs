//! `anabranch send`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anabranch::apps::files::{self, SendFileError};
use anabranch::blocking::Endpoint;
use anabranch::{ConnectError, ConnectOptions};
use anyhow::bail;
use indicatif::MultiProgress;
use policy::ConnectionWish;

use super::nearby::Lookout;
use super::{Known, Typed};
use crate::arguments::Send;
use crate::exit::WrongUsage;
use crate::session::Session;

/// Files under way at a time.
const AT_ONCE: usize = 4;
/// How long a receiver that went away is waited for.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_secs(1);

pub fn run(session: &Session, arguments: &Send) -> anyhow::Result<()> {
    let Some((peer, files)) = arguments.files_and_peer.split_last().filter(|(_, files)| !files.is_empty())
    else {
        bail!(WrongUsage("say which files, and last to whom".to_owned()));
    };
    let peer = peer.to_str().ok_or_else(|| WrongUsage("the peer's name is no text".to_owned()))?;
    for file in files {
        // Better now than after the others.
        if !Path::new(file).is_file() {
            bail!(WrongUsage(format!("{} is no file", Path::new(file).display())));
        }
    }
    let (state, key) = super::identity(session)?;
    let typed = Typed {
        text: peer,
        name: arguments.name.as_deref(),
        addresses: &arguments.address,
        group: arguments.group.as_ref(),
        port: super::FILES_PORT,
        only: &arguments.only,
    };
    let known = super::find(&state, &key, &typed)?;
    let endpoint = known.caller(&state, &key, (&arguments.only, &arguments.spare))?;
    let lookout = known.look_out(&key, super::nearby::FILES, &arguments.only, &endpoint);
    lookout.wait_for(&known);
    let endpoint = Endpoint::from(endpoint);
    let wish = if arguments.cheapest { ConnectionWish::Cheapest } else { ConnectionWish::default() };
    let failed = send_all(&endpoint, &known, &lookout, files, wish);
    endpoint.close();
    if let Some(SendOutcome::Let) = failed.iter().find(|outcome| matches!(outcome, SendOutcome::Let)) {
        super::redeemed(&state, known.peer.key)?;
    }
    let errors: Vec<String> = failed
        .into_iter()
        .filter_map(|outcome| match outcome {
            SendOutcome::Failed(error) => Some(error.to_string()),
            SendOutcome::Let => None,
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { bail!(errors.join("\nanabranch: ")) }
}

/// What became of a file.
enum SendOutcome {
    /// The peer has it, so it has let this machine in.
    Let,
    Failed(anyhow::Error),
}

fn send_all(
    endpoint: &Endpoint,
    known: &Known,
    lookout: &Lookout,
    files: &[OsString],
    wish: ConnectionWish,
) -> Vec<SendOutcome> {
    let (bars, next, outcomes) = (MultiProgress::new(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(files.len()) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let options = ConnectOptions { wish, ..known.options() };
                    let file = PathBuf::from(file);
                    let outcome = match send_one(endpoint, known, lookout, &file, &options, &bars) {
                        Ok(()) => SendOutcome::Let,
                        Err(error) => SendOutcome::Failed(error),
                    };
                    outcomes.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(outcome);
                }
            });
        }
    });
    outcomes.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Sends one file, again and again while the receiver is away.
fn send_one(
    endpoint: &Endpoint,
    known: &Known,
    lookout: &Lookout,
    file: &Path,
    options: &ConnectOptions,
    bars: &MultiProgress,
) -> anyhow::Result<()> {
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bar = super::bar(bars, &name);
    let mut lost_at: Option<Instant> = None;
    loop {
        let mut begun = false;
        let outcome = endpoint
            .connect(&lookout.complete(&known.peer), options)
            .map_err(anyhow::Error::from)
            .and_then(|mut stream| {
                files::send(&mut stream, file, &mut |progress| {
                    begun = true;
                    bar.set_length(progress.size);
                    bar.set_position(progress.done);
                })
                .map_err(anyhow::Error::from)
            });
        let Err(error) = outcome else {
            bar.finish_and_clear();
            super::tell(bars, &format!("{name} was sent to {}.", known.name));
            return Ok(());
        };
        let is_lost = matches!(error.downcast_ref(), Some(SendFileError::Connection { .. }));
        // Somebody who answered once may be started again.
        let is_away = matches!(
            error.downcast_ref(),
            Some(ConnectError::NoAnswer { .. } | ConnectError::NotListening(_) | ConnectError::Ended(_))
        );
        if begun {
            lost_at = Some(Instant::now());
        }
        let patient = lost_at.is_some_and(|since| since.elapsed() < PATIENCE);
        if !(patient && (is_lost || is_away)) {
            bar.abandon();
            return Err(error);
        }
        bar.set_message(format!("{name} (waiting for {})", known.name));
        std::thread::sleep(PAUSE);
        bar.set_message(name.clone());
    }
}
