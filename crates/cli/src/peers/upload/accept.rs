//! `anabranch accept`.

use std::collections::BTreeMap;

use anabranch::upload::{AcceptEvent, AcceptOptions, accept};
use anyhow::Context;
use identity::{PublicKey, StateDirectory};
use indicatif::{MultiProgress, ProgressBar};

use crate::arguments::Accept;
use crate::peers::{self, nearby, tell};
use crate::session::Session;

pub fn run(session: &Session, arguments: &Accept) -> anyhow::Result<()> {
    std::fs::create_dir_all(&arguments.dir)
        .with_context(|| format!("cannot use {}", arguments.dir.display()))?;
    let (endpoint, state) = peers::listener_with_links(session, &arguments.listen, arguments.links)?;
    let senders = super::keys_of(&StateDirectory::create(&state)?, "--from", &arguments.from)?;
    let _told = nearby::announce(session, &arguments.listen, super::UPLOADS);
    let (bars, mut shown) = (MultiProgress::new(), BTreeMap::<(PublicKey, String), ProgressBar>::new());
    let name_of = |key| peers::name_of(&state, key);
    let mut heed = |event: AcceptEvent| match event {
        AcceptEvent::NeighbourCame(neighbour) => {
            tell(&bars, &format!("{} shares its uplink.", name_of(neighbour)));
        }
        AcceptEvent::NeighbourWent(neighbour) => {
            tell(&bars, &format!("{} does not share its uplink any more.", name_of(neighbour)));
        }
        AcceptEvent::Progress { source, name, done, size } => {
            let bar = shown.entry((source, name.clone())).or_insert_with(|| peers::bar(&bars, &name));
            bar.set_length(size);
            bar.set_position(done);
        }
        AcceptEvent::Stored { source, path, size, resumed, shares } => {
            shown.retain(|(whose, _), bar| {
                if *whose == source {
                    bar.finish_and_clear();
                }
                *whose != source
            });
            let resumed = if resumed > 0 { format!(", {resumed} of them before") } else { String::new() };
            let (from, by) = (name_of(source), super::shares(&shares, name_of));
            tell(
                &bars,
                &format!("{} came from {from}: {size} bytes{resumed}, verified; {by}.", path.display()),
            );
        }
        AcceptEvent::Same { source, path } => {
            tell(&bars, &format!("{} has {} too: it was here already.", name_of(source), path.display()));
        }
        AcceptEvent::Forgotten { name } => {
            tell(
                &bars,
                &format!("What had come of {name} is deleted: nobody has gone on with it for 30 days."),
            );
        }
        AcceptEvent::Failed { source, name, reason } => {
            if let Some(bar) = shown.remove(&(source, name.clone())) {
                bar.finish_and_clear();
            }
            tell(&bars, &format!("{name} from {} did not come: {reason}.", name_of(source)));
        }
    };
    let options = AcceptOptions {
        directory: arguments.dir.clone(),
        count: arguments.count,
        senders: (!senders.is_empty()).then_some(senders),
        largest: arguments.largest.map(|largest| largest.saturating_mul(1_000_000)),
    };
    peers::runtime()?.block_on(async {
        let outcome = accept(&endpoint, &options, &mut heed).await;
        endpoint.close().await;
        outcome
    })?;
    Ok(())
}
