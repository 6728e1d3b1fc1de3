//! The link emulator as a process: relays frames between two interfaces of its namespace, as the specification says.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use linux::netns::Namespace;
use sim::{Capacity, DeliveryTrace, LinkSpec, NetworkSpec, QueueLimit};
use units::{BitRate, Bytes};

use crate::emulator::EmulatedNetwork;

/// What `traffic link` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct LinkArguments {
    /// The interface towards the device.
    device_side: String,
    /// The interface towards the Internet.
    internet_side: String,
    /// Name of the network in messages.
    #[arg(long)]
    name: String,
    /// Decides chance.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Bits a second from the device.
    #[arg(long, required_unless_present = "up_trace")]
    up_rate: Option<u64>,
    /// File of delivery opportunities from the device.
    #[arg(long, conflicts_with = "up_rate")]
    up_trace: Option<PathBuf>,
    /// One-way delay from the device.
    #[arg(long)]
    up_delay_us: u64,
    /// Queue from the device, in bytes.
    #[arg(long)]
    up_queue: u64,
    /// Bits a second to the device.
    #[arg(long, required_unless_present = "down_trace")]
    down_rate: Option<u64>,
    /// File of delivery opportunities to the device.
    #[arg(long, conflicts_with = "down_rate")]
    down_trace: Option<PathBuf>,
    /// One-way delay to the device.
    #[arg(long)]
    down_delay_us: u64,
    /// Queue to the device, in bytes.
    #[arg(long)]
    down_queue: u64,
}

/// Relays until the process is ended.
///
/// # Errors
/// If a trace or an interface cannot be used.
pub fn relay(arguments: LinkArguments) -> Result<()> {
    let up = direction(arguments.up_rate, arguments.up_trace, arguments.up_delay_us, arguments.up_queue)?;
    let down =
        direction(arguments.down_rate, arguments.down_trace, arguments.down_delay_us, arguments.down_queue)?;
    // The name is needed for as long as the process lives.
    let network = NetworkSpec { name: arguments.name.leak(), up, down };
    let namespace = Namespace::current().context("opening this network namespace")?;
    let _relay = EmulatedNetwork::start(
        &namespace,
        &arguments.device_side,
        &arguments.internet_side,
        &network,
        arguments.seed,
    )?;
    loop {
        std::thread::park();
    }
}

fn direction(rate: Option<u64>, trace: Option<PathBuf>, delay_us: u64, queue: u64) -> Result<LinkSpec> {
    let capacity = match trace {
        Some(file) => {
            let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            let trace = DeliveryTrace::parse(&text).with_context(|| format!("reading {}", file.display()))?;
            Capacity::Trace(Arc::new(trace))
        }
        None => Capacity::Rate(BitRate(rate.context("a direction needs a rate or a trace")?)),
    };
    let ideal = LinkSpec::ideal(Duration::from_micros(delay_us));
    Ok(LinkSpec { capacity, ..ideal }.with_queue(QueueLimit::Bytes(Bytes(queue))))
}
