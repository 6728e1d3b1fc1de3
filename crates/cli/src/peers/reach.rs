//! `anabranch reach`: standard input and output, and a peer's port.

use std::io::{self, Read, Write};

use anabranch::apps::tunnel::TCP;
use anabranch::blocking::Endpoint;
use anyhow::bail;

use super::Typed;
use crate::arguments::Reach;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Reach) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let name = wire::preload::bare(&arguments.peer);
    let typed = Typed {
        text: name,
        name: None,
        addresses: &arguments.address,
        group: arguments.group.as_ref(),
        port: super::SERVE_PORT,
        only: &arguments.only,
    };
    let known = super::find(&state, &key, &typed)?;
    let endpoint = known.caller(&state, &key, (&arguments.only, &arguments.spare))?;
    let lookout = known.look_out(&key, super::nearby::PORTS, &arguments.only, &endpoint);
    let endpoint = Endpoint::from(endpoint);
    let mut stream = endpoint.connect(&lookout.wait_for(&known), &known.options())?;
    stream.write_all(format!("{TCP}{}\n", arguments.port).as_bytes())?;
    let mut reply = [0];
    stream.read_exact(&mut reply)?;
    super::redeemed(&state, known.peer.key)?;
    match reply {
        [0] => {}
        [2] => {
            bail!("{} does not serve port {}: `anabranch serve` there says which", known.name, arguments.port)
        }
        _ => bail!("nothing answers on port {} of {}", arguments.port, known.name),
    }
    let (mut reader, mut writer) = stream.split();
    std::thread::spawn(move || {
        // Its end is the peer's to see.
        let _ = io::copy(&mut io::stdin().lock(), &mut writer);
        let _ = writer.finish();
    });
    io::copy(&mut reader, &mut io::stdout().lock())?;
    endpoint.close();
    Ok(())
}
