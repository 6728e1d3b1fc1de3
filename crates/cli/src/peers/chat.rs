//! `anabranch chat`.

use std::io::{self, BufRead, Write};

use anabranch::EventKind;
use anabranch::apps::chat::{CHAT, hear, say};
use anabranch::apps::read_line;
use anabranch::blocking::{Endpoint, VirtualStream};

use super::Typed;
use crate::arguments::Chat;
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;

/// The peer spoke another protocol.
const OTHER_PROTOCOL: u64 = 1;

pub fn run(session: &Session, arguments: &Chat) -> anyhow::Result<()> {
    let (endpoint, stream, name) = match &arguments.peer {
        Some(peer) => call(session, arguments, peer)?,
        None => wait(session, arguments)?,
    };
    output::remark(&format!("{name} is there. What you type is sent with Enter; end with Ctrl-D."));
    let events = endpoint.events();
    std::thread::spawn(move || {
        events.filter_map(|event| remark(&event.kind)).for_each(|text| output::remark(&text))
    });
    converse(stream, &name)?;
    endpoint.close();
    Ok(())
}

fn call(
    session: &Session,
    arguments: &Chat,
    peer: &str,
) -> anyhow::Result<(Endpoint, VirtualStream, String)> {
    let (state, key) = super::identity(session)?;
    let ([] | [_]) = arguments.listen.group.as_slice() else {
        anyhow::bail!(WrongUsage("a peer is called in one group".to_owned()));
    };
    let typed = Typed {
        text: peer,
        name: arguments.name.as_deref(),
        addresses: &arguments.address,
        group: arguments.listen.group.first(),
        port: super::CHAT_PORT,
        only: &arguments.listen.only,
    };
    let known = super::find(&state, &key, &typed)?;
    let endpoint = known.caller(&state, &key, (&arguments.listen.only, &arguments.listen.spare))?;
    let lookout = known.look_out(&key, super::nearby::CHAT, &arguments.listen.only, &endpoint);
    let endpoint = Endpoint::from(endpoint);
    let mut stream = endpoint.connect(&lookout.wait_for(&known), &known.options())?;
    stream.write_all(format!("{CHAT}\n").as_bytes())?;
    super::redeemed(&state, known.peer.key)?;
    Ok((endpoint, stream, known.name))
}

fn wait(session: &Session, arguments: &Chat) -> anyhow::Result<(Endpoint, VirtualStream, String)> {
    let (endpoint, state) = super::listener(session, &arguments.listen)?;
    let _told = super::nearby::announce(session, &arguments.listen, super::nearby::CHAT);
    let endpoint = Endpoint::from(endpoint);
    let listener = endpoint.listen();
    loop {
        let mut stream = listener.accept()?;
        match read_line(&mut stream) {
            Ok(line) if line == CHAT => {
                let name = super::name_of(&state, stream.peer());
                return Ok((endpoint, stream, name));
            }
            Ok(_) => stream.reset(OTHER_PROTOCOL),
            Err(_) => {}
        }
    }
}

/// Passes lines both ways until either end has said all.
fn converse(stream: VirtualStream, name: &str) -> anyhow::Result<()> {
    let (mut reader, mut writer) = stream.split();
    let typing = std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if say(&line, &mut writer).is_err() {
                return;
            }
        }
        // The peer may have gone first.
        let _ = writer.finish();
    });
    while let Some(text) = hear(&mut reader)? {
        output::line(&format!("{name}: {text}"))?;
    }
    output::remark(&format!("{name} has ended the chat."));
    // Whoever still types is not waited for.
    if typing.is_finished() {
        drop(typing.join());
    }
    Ok(())
}

fn remark(kind: &EventKind) -> Option<String> {
    match kind {
        EventKind::Off { suspended: true, .. } => Some("(no network; what you write waits)".to_owned()),
        EventKind::On { adapter } => Some(format!("(connected again, by {adapter})")),
        EventKind::Switch { from, to } => Some(format!("(by {to} now, not {from})")),
        _ => None,
    }
}
