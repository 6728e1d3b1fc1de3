//! The `anabranch` command: joins gateways, brings the device up and down, shows what it does, and looks after a gateway.
#![forbid(unsafe_code)]

mod arguments;
mod background;
mod companion;
mod down;
mod events;
mod exit;
mod gateway;
mod join;
mod logging;
mod networks;
mod output;
mod qr;
mod session;
mod status;
mod table;
mod up;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use session::Session;

fn main() -> ExitCode {
    // The lab has arguments of its own, which must not be mistaken for ours.
    if let Some(invocation) = companion::Invocation::of_process() {
        return exit::report(invocation.run());
    }
    exit::report(run(Arguments::parse()))
}

fn run(arguments: Arguments) -> anyhow::Result<()> {
    let session = Session::new(arguments.state)?;
    match arguments.command {
        Command::Join(join) => join::run(&session, &join),
        Command::Up(up) => up::run(&session, &up),
        Command::Down(down) => down::run(&session, &down),
        Command::Status(status) => status::run(&session, &status),
        Command::Networks(networks) => networks::list(&session, &networks),
        Command::Network(network) => networks::change(&session, &network),
        Command::Events(events) => events::run(&session, &events),
        Command::Gateway(gateway) => gateway::run(&session, gateway.command),
        Command::Demo(companion) => companion::Invocation::demo(companion.arguments).run(),
        Command::Lab(companion) => companion::Invocation::lab(companion.arguments).run(),
    }
}
