//! The `anabranch` command: joins gateways, brings the device up and down, shows what it does, looks after a gateway, and
//! moves files, words and connections between peers.
#![forbid(unsafe_code)]

mod arguments;
mod background;
mod companion;
mod down;
mod events;
mod exit;
mod explain;
mod flows;
mod gateway;
mod hold;
mod join;
mod logging;
mod login;
mod neighbours;
mod networks;
mod output;
mod over_mptcp;
mod pages;
mod peers;
mod qr;
mod radio;
mod radio_live;
mod radio_networks;
mod radio_points;
mod report;
mod session;
mod status;
mod table;
mod top;
mod trace;
mod up;
mod web;
mod what_if;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command, RadioCommand};
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
        Command::SwitchOn { note } => peers::switch_off::wait(&note),
        Command::WritePages { directory } => pages::write(&directory),
        Command::Join(join) => join::run(&session, &join),
        Command::Up(up) => up::run(&session, &up),
        Command::Down(down) => down::run(&session, &down),
        Command::Status(status) => status::run(&session, &status),
        Command::Networks(networks) => networks::list(&session, &networks),
        Command::Network(network) => networks::change(&session, &network),
        Command::Neighbours(neighbours) => neighbours::run(&session, &neighbours),
        Command::Events(events) => events::run(&session, &events),
        Command::Flows(flows) => flows::run(&session, &flows),
        Command::Explain(explain) => explain::run(&session, &explain),
        Command::Run(run) => hold::run(&session, &run),
        Command::Login(login) => login::run(&session, &login),
        Command::Pin(pin) => hold::pin(&session, &pin),
        Command::Unpin(unpin) => hold::unpin(&session, &unpin),
        Command::Rules(rules) => hold::list(&session, &rules),
        Command::Trace(trace) => trace::run(&session, &trace),
        Command::WhatIf(what_if) => what_if::run(&session, &what_if),
        Command::Report(report) => report::run(&session, &report),
        Command::Top => top::run(&session),
        Command::Web(web) => web::run(&session, &web),
        Command::Radio(radio) => match radio.command {
            RadioCommand::Probe(arguments) => radio::probe(&arguments),
            RadioCommand::Up(arguments) => radio_networks::up(&session, &arguments),
            RadioCommand::Add(arguments) => radio_networks::add(&session, &arguments),
            RadioCommand::Remove(arguments) => radio_networks::remove(&session, &arguments),
            RadioCommand::List(arguments) => radio_live::list(&session, &arguments),
            RadioCommand::Scan(arguments) => radio_live::scan(&session, &arguments),
            RadioCommand::Aps(arguments) => radio_points::run(&session, &arguments),
            RadioCommand::Events(arguments) => radio_live::events(&session, &arguments),
            RadioCommand::Down(arguments) => radio_live::down(&session, &arguments),
            RadioCommand::Weights(arguments) => radio_networks::weights(&session, &arguments),
        },
        Command::Send(arguments) => peers::send::run(&session, &arguments),
        Command::Receive(arguments) => peers::receive::run(&session, &arguments),
        Command::Chat(arguments) => peers::chat::run(&session, &arguments),
        Command::Peers(arguments) => peers::nearby::run(&session, &arguments),
        Command::Group(arguments) => peers::groups::run(&session, &arguments.command),
        Command::Serve(arguments) => peers::serve::run(&session, &arguments),
        Command::Reach(arguments) => peers::reach::run(&session, &arguments),
        Command::Share(arguments) => peers::upload::share::run(&session, &arguments),
        Command::Upload(arguments) => peers::upload::upload(&session, &arguments),
        Command::Accept(arguments) => peers::upload::accept::run(&session, &arguments),
        Command::Gateway(gateway) => gateway::run(&session, gateway.command),
        Command::Demo(companion) => companion::Invocation::demo(companion.arguments).run(),
        Command::Lab(companion) => companion::Invocation::lab(companion.arguments).run(),
    }
}
