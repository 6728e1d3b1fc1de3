//! Bluetooth inside a test bed: controllers that are emulated there.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use linux::bluetooth::{Management, ManagementError};

/// How long a controller may take to appear.
const PATIENCE: Duration = Duration::from_secs(30);

/// `anabranch-lab bluetooth ...`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum BluetoothCommand {
    /// Switch controllers on, so that links can be opened to them; waits until they are there.
    On {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Switch a controller off.
    Off {
        /// Its name.
        name: String,
    },
}

/// Runs one command.
///
/// # Errors
/// If the controller is not there, or refuses.
pub fn run(command: BluetoothCommand) -> Result<()> {
    match command {
        BluetoothCommand::On { names } => names.iter().try_for_each(|name| switch_on(name)),
        BluetoothCommand::Off { name } => {
            let mut management = Management::open()?;
            let index = index_of(&mut management, &name)?;
            management.set_powered(index, false).with_context(|| format!("switching {name} off"))
        }
    }
}

fn switch_on(name: &str) -> Result<()> {
    let mut management = Management::open()?;
    let index = index_of(&mut management, name)?;
    // A controller may have no Low Energy.
    match management.set_low_energy(index, true) {
        Ok(()) | Err(ManagementError::Refused(_)) => {}
        Err(error) => return Err(error).with_context(|| format!("switching Low Energy of {name} on")),
    }
    management.set_powered(index, true).with_context(|| format!("switching {name} on"))?;
    management.set_connectable(index, true).with_context(|| format!("letting others call {name}"))?;
    let found = management.controllers().find(|controller| controller.index == index);
    let address = found.context("it has gone")?.address;
    println!("{name} {address}");
    Ok(())
}

fn index_of(management: &mut Management, name: &str) -> Result<u16> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        management.read_events()?;
        if let Some(found) = management.controllers().find(|controller| controller.name() == name) {
            return Ok(found.index);
        }
        if Instant::now() >= deadline {
            bail!("there is no controller {name}");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}
