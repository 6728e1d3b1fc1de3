//! `anabranch receive`.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use anabranch::apps::files::{self, FILES, Received};
use anabranch::apps::read_line;
use anabranch::blocking::{Endpoint, VirtualStream};
use anyhow::Context;
use indicatif::MultiProgress;

use crate::arguments::Receive;
use crate::session::Session;

/// The peer spoke another protocol.
const OTHER_PROTOCOL: u64 = 1;

pub fn run(session: &Session, arguments: &Receive) -> anyhow::Result<()> {
    std::fs::create_dir_all(&arguments.to)
        .with_context(|| format!("cannot use {}", arguments.to.display()))?;
    let (endpoint, state) = super::listener(session, &arguments.listen)?;
    let _told = super::nearby::announce(session, &arguments.listen, super::nearby::FILES);
    let endpoint = Endpoint::from(endpoint);
    let listener = endpoint.listen();
    let bars = MultiProgress::new();
    let (done, finished) = channel();
    let (to, shared) = (Arc::<Path>::from(arguments.to.as_path()), bars.clone());
    std::thread::spawn(move || {
        while let Ok(stream) = listener.accept() {
            let (bars, to, state, done) = (shared.clone(), Arc::clone(&to), state.clone(), done.clone());
            std::thread::spawn(move || take(stream, &to, &state, &bars, &done));
        }
    });
    let mut files = 0;
    while arguments.count.is_none_or(|count| files < count) {
        let Ok(()) = finished.recv() else { break };
        files += 1;
    }
    endpoint.close();
    Ok(())
}

/// One stream, on a thread of its own.
fn take(stream: VirtualStream, to: &Path, state: &Path, bars: &MultiProgress, done: &Sender<()>) {
    let mut stream = stream;
    let peer = stream.peer();
    let from = super::name_of(state, peer);
    match read_line(&mut stream) {
        Ok(line) if line == FILES => {}
        Ok(_) => return stream.reset(OTHER_PROTOCOL),
        Err(_) => return,
    }
    let bar = super::bar(bars, "");
    let outcome = files::receive(&mut stream, peer, to, &mut |name, progress| {
        if bar.message() != name {
            bar.set_message(name.to_owned());
        }
        bar.set_length(progress.size);
        bar.set_position(progress.done);
    });
    bar.finish_and_clear();
    match outcome {
        Ok(Received { path, size, resumed_at }) => {
            let resumed =
                if resumed_at > 0 { format!(", {resumed_at} of them before") } else { String::new() };
            super::tell(
                bars,
                &format!("{} came from {from}: {size} bytes{resumed}, verified.", path.display()),
            );
            // The sender waits for the word that all is well, which must be out before the last file ends the program.
            let _ = stream.finish();
            // Nobody waits if the program ends already.
            let _ = done.send(());
        }
        Err(error) => super::tell(bars, &format!("A file from {from} did not come: {error}.")),
    }
}
