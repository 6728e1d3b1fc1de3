//! `anabranch serve`.

use std::sync::Arc;

use anabranch::apps::tunnel;
use anabranch::{Relaying, Relays};
use units::BitRate;

use crate::arguments::Serve;
use crate::exit::WrongUsage;
use crate::output;
use crate::session::Session;

pub fn run(session: &Session, arguments: &Serve) -> anyhow::Result<()> {
    if arguments.relay && !arguments.listen.spare.switch_off.is_empty() {
        return Err(WrongUsage(
            "--relay needs all adapters: others may reach each other by any; leave --switch-off out"
                .to_owned(),
        )
        .into());
    }
    let relays = if arguments.relay {
        let rate = BitRate(u64::from(arguments.relay_rate) * 1_000_000);
        output::remark(&format!(
            "This machine passes on what others send to each other, up to {} Mbit/s, until this command ends.",
            arguments.relay_rate
        ));
        Relays::Offered(Relaying { rate, ..Relaying::default() })
    } else {
        Relays::default()
    };
    // Who only relays needs to know nobody.
    let shows_link = !arguments.listen.no_link && !arguments.ports.is_empty();
    let (endpoint, state) = super::relaying_listener(session, &arguments.listen, shows_link, relays)?;
    let _told = (!arguments.ports.is_empty())
        .then(|| super::nearby::announce(session, &arguments.listen, super::nearby::PORTS));
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
