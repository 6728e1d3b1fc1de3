//! `anabranch serve`.

use std::sync::Arc;

use anabranch::apps::tunnel;

use crate::arguments::Serve;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Serve) -> anyhow::Result<()> {
    let (endpoint, state) = super::listener(session, arguments.listen.port, !arguments.listen.no_link)?;
    let ports: Arc<[u16]> = arguments.ports.clone().into();
    let listener = endpoint.listen();
    super::runtime()?.block_on(async move {
        while let Ok(incoming) = listener.accept().await {
            let (ports, name) = (Arc::clone(&ports), super::name_of(&state, incoming.peer));
            tokio::spawn(async move {
                if let Err(error) = tunnel::serve(incoming.stream, &ports).await {
                    output::remark(&format!("A connection of {name} ended: {error}."));
                }
            });
        }
    });
    Ok(())
}
