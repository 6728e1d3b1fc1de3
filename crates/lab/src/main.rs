//! The lab program behind `anabranch lab`.

use clap::Parser;

/// Runs the experiments of Anabranch, and what they need inside their test beds.
#[derive(Debug, Parser)]
#[command(name = "anabranch-lab", version)]
enum Command {
    /// Bulk flows, pings and paced commands, for use inside a test bed.
    #[command(subcommand, hide = true)]
    Traffic(lab::traffic::TrafficCommand),
}

fn main() -> anyhow::Result<()> {
    match Command::parse() {
        Command::Traffic(command) => lab::traffic::run(command),
    }
}
