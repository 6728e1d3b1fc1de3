//! `anabranch reach`: standard input and output, and a peer's port.

use std::io::{self, Read, Write};

use anabranch::ConnectOptions;
use anabranch::apps::tunnel::TCP;
use anabranch::blocking::Endpoint;
use anyhow::bail;

use crate::arguments::Reach;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Reach) -> anyhow::Result<()> {
    let (state, key) = super::identity(session)?;
    let name = super::bare(&arguments.peer);
    let known = super::find(&state, key.public(), name, None, &arguments.address, super::SERVE_PORT)?;
    let endpoint = Endpoint::from(super::caller(key)?);
    let options = ConnectOptions { invitation: known.invitation.clone(), ..ConnectOptions::default() };
    let mut stream = endpoint.connect(&known.peer, &options)?;
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
