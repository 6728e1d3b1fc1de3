//! The lab's own traffic: bulk senders and receivers over TCP, MPTCP and QUIC, a UDP ping and a pacer of commands.
//!
//! One program does both ends, so the virtual machine needs nothing else: `serve` waits in the server's namespace,
//! `fetch` asks it for bytes (or offers them) from the device's and reports what arrived, as JSON.

mod connect;
mod counters;
mod cycles;
mod exchange;
mod link;
mod pace;
mod pattern;
mod ping;
mod quic;
mod record;
mod request;
mod sockets;
mod stream;
mod tcp;
mod torrent;
mod tracker;
mod transfers;
mod video;

use std::fs;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

pub use connect::{Attempt, ConnectReport};
pub use counters::{CountersReport, Moved};
pub use cycles::{Cycles, CyclesReport};
pub use exchange::ExchangeReport;
pub use link::LinkArguments;
pub use ping::PingReport;
pub use record::{FlowReport, Gap, Report};
pub(crate) use record::{MAX_GAPS, SHORTEST_GAP};
pub use request::{Congestion, Request, Transport};
pub use sockets::SocketsReport;
pub use stream::StreamReport;
pub use torrent::TorrentArguments;
pub use transfers::{Transfer, TransferReport};
pub use video::VideoReport;

/// `anabranch-lab traffic ...`
#[derive(Clone, Debug, clap::Subcommand)]
pub enum TrafficCommand {
    /// Serve bulk flows until ended.
    Serve {
        /// Address and port to wait on.
        listen: SocketAddr,
        /// What to speak.
        #[arg(long, value_enum, default_value_t = Transport::Tcp)]
        transport: Transport,
        /// Where to write the certificate that `fetch --transport quic` is to trust.
        #[arg(long)]
        certificate: Option<PathBuf>,
    },
    /// Run bulk flows against a server and report what arrived.
    Fetch(FetchArguments),
    /// Answer UDP pings until ended.
    Echo {
        /// Address and port to wait on.
        listen: SocketAddr,
    },
    /// Send UDP pings and report round-trip times.
    Ping(PacketArguments),
    /// Have an `echo` send UDP packets by itself, and report which came.
    Stream(PacketArguments),
    /// Exchange small packets of one flow with an `echo`, as many as go, and report how many.
    Exchange {
        /// The address of an `echo`.
        server: SocketAddr,
        /// How long to go on.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
    },
    /// Count the cycles that small packets cost, out and in.
    Cycles {
        /// The address of a `cycles-serve`.
        server: SocketAddr,
        /// How many each way.
        #[arg(long, default_value_t = 10_000)]
        count: u32,
    },
    /// Be the other end of `cycles`, until ended.
    CyclesServe {
        /// Address and port to wait on.
        listen: SocketAddr,
    },
    /// Accept connections and end them at once, until ended.
    Accept {
        /// Address and port to wait on.
        listen: SocketAddr,
    },
    /// Open connections one after the other, each when the one before was ended, and report how many.
    Connect {
        /// The address of an `accept`.
        server: SocketAddr,
        /// How many of them go on at once.
        #[arg(long, default_value_t = 1)]
        threads: u32,
        /// How long to go on.
        #[arg(long, default_value_t = 3.0)]
        seconds: f64,
        /// Wait this long after each connection.
        #[arg(long, default_value_t = 0)]
        pause_ms: u64,
        /// Give a connection up after this long.
        #[arg(long, default_value_t = 1_000)]
        patience_ms: u64,
        /// File for the report; standard output without it.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Move files at set times, each over a connection of its own, and report how long each took.
    Transfers {
        /// The address of a `serve`.
        server: SocketAddr,
        /// What to move and when, as JSON.
        file: PathBuf,
        /// File for the report; standard output without it.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Watch how many bytes interfaces move.
    Counters {
        /// The interfaces.
        #[arg(required = true)]
        interfaces: Vec<String>,
        /// Time between two looks.
        #[arg(long, default_value_t = 20)]
        interval_ms: u64,
        /// How long to go on.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// File for the report; standard output without it.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Print each line of a file, which starts with a time in milliseconds, when that time has come.
    Pace {
        /// Lines of `MILLISECONDS TEXT`, in order of time.
        file: PathBuf,
        /// Begin again after this many milliseconds.
        #[arg(long)]
        period_ms: Option<u64>,
    },
    /// Fetch a film block by block over several networks, and report when each block came.
    Video {
        /// The address of a `video-serve`.
        server: SocketAddr,
        /// How many blocks.
        #[arg(long)]
        blocks: u32,
        /// Bytes of each.
        #[arg(long)]
        length: u32,
        /// Network interfaces to fetch over, all at once.
        #[arg(long = "interface", required = true)]
        interfaces: Vec<String>,
        /// File for the report; standard output without it.
        #[arg(long)]
        json: Option<PathBuf>,
    },
    /// Serve blocks of films until ended.
    VideoServe {
        /// Address and port to wait on.
        listen: SocketAddr,
    },
    /// Make a file and its torrent.
    Torrent(TorrentArguments),
    /// Tell BitTorrent clients of each other, until ended.
    Tracker {
        /// Address and port to wait on.
        listen: SocketAddr,
    },
    /// Answer over virtual sockets, until ended.
    SocketsServe(sockets::ServeArguments),
    /// Download over virtual sockets, and report what happened meanwhile.
    SocketsFetch(sockets::FetchArguments),
    /// Relay frames between two interfaces as over a link, until ended.
    Link(LinkArguments),
    /// Have an interface hand over whole frames with checksums, as a relay at its other end needs them.
    WholeFrames {
        /// The interface.
        interface: String,
    },
}

/// What `traffic fetch` takes.
#[derive(Clone, Debug, clap::Args)]
pub struct FetchArguments {
    /// The address of a `serve`.
    pub server: SocketAddr,
    /// What to speak; as the server does.
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    pub transport: Transport,
    /// Congestion control of the sending side.
    #[arg(long, value_enum, default_value_t = Congestion::Cubic)]
    pub congestion: Congestion,
    /// Number of flows, all at once.
    #[arg(long, default_value_t = 1)]
    pub flows: u32,
    /// Stop after this long; goodput is what arrived until then.
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Stop after this many bytes a flow, if sooner.
    #[arg(long)]
    pub bytes: Option<u64>,
    /// Send to the server instead of receiving from it.
    #[arg(long)]
    pub upload: bool,
    /// The sender hands over this many bytes at a time; TCP only.
    #[arg(long)]
    pub message: Option<u32>,
    /// Network interface to send through.
    #[arg(long)]
    pub interface: Option<String>,
    /// The file that the QUIC server wrote its certificate to.
    #[arg(long)]
    pub certificate: Option<PathBuf>,
    /// File for the report; standard output without it.
    #[arg(long)]
    pub json: Option<PathBuf>,
}

/// What `traffic ping` and `traffic stream` take.
#[derive(Clone, Debug, clap::Args)]
pub struct PacketArguments {
    /// The address of an `echo`.
    server: SocketAddr,
    /// Time between two packets.
    #[arg(long, default_value_t = 20)]
    interval_ms: u64,
    /// How long to go on.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Network interface to use.
    #[arg(long)]
    interface: Option<String>,
    /// File for the report; standard output without it.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl PacketArguments {
    /// Between two packets, and of all.
    fn times(&self) -> Result<(Duration, Duration)> {
        let length = Duration::try_from_secs_f64(self.seconds).context("--seconds is not a time")?;
        Ok((Duration::from_millis(self.interval_ms.max(1)), length))
    }
}

/// Runs one command; `serve` and `echo` return only on error.
///
/// # Errors
/// If a socket, a file or the other side fails.
pub fn run(command: TrafficCommand) -> Result<()> {
    match command {
        TrafficCommand::Serve { listen, transport: Transport::Quic, certificate } => {
            quic::serve(listen, certificate.as_deref())
        }
        TrafficCommand::Serve { listen, transport, .. } => tcp::serve(listen, transport),
        TrafficCommand::Fetch(arguments) => {
            let report = fetch(&arguments)?;
            write_report(arguments.json.as_ref(), &report)
        }
        TrafficCommand::Echo { listen } => ping::echo(listen),
        TrafficCommand::Ping(packets) => {
            let (interval, length) = packets.times()?;
            let report = ping::ping(packets.server, interval, length, packets.interface.as_deref())?;
            write_report(packets.json.as_ref(), &report)
        }
        TrafficCommand::Stream(packets) => {
            let (interval, length) = packets.times()?;
            let report = stream::receive(packets.server, interval, length, packets.interface.as_deref())?;
            write_report(packets.json.as_ref(), &report)
        }
        TrafficCommand::Exchange { server, seconds } => {
            let length = Duration::try_from_secs_f64(seconds).context("--seconds is not a time")?;
            write_report(None, &exchange::exchange(server, length)?)
        }
        TrafficCommand::Cycles { server, count } => write_report(None, &cycles::exchange(server, count)?),
        TrafficCommand::CyclesServe { listen } => cycles::serve(listen),
        TrafficCommand::Accept { listen } => connect::accept(listen),
        TrafficCommand::Connect { server, threads, seconds, pause_ms, patience_ms, json } => {
            let knocking = connect::Knocking {
                server,
                threads,
                length: Duration::try_from_secs_f64(seconds).context("--seconds is not a time")?,
                pause: Duration::from_millis(pause_ms),
                patience: Duration::from_millis(patience_ms.max(1)),
            };
            write_report(json.as_ref(), &knocking.run()?)
        }
        TrafficCommand::Video { server, blocks, length, interfaces, json } => {
            write_report(json.as_ref(), &video::fetch(server, &interfaces, blocks, length)?)
        }
        TrafficCommand::VideoServe { listen } => video::serve(listen),
        TrafficCommand::Torrent(arguments) => torrent::make(&arguments),
        TrafficCommand::Tracker { listen } => tracker::track(listen),
        TrafficCommand::Transfers { server, file, json } => {
            write_report(json.as_ref(), &transfers::run(server, &transfers::read(&file)?)?)
        }
        TrafficCommand::Counters { interfaces, interval_ms, seconds, json } => {
            let length = Duration::try_from_secs_f64(seconds).context("--seconds is not a time")?;
            let interval = Duration::from_millis(interval_ms.max(1));
            write_report(json.as_ref(), &counters::watch(&interfaces, interval, length)?)
        }
        TrafficCommand::SocketsServe(arguments) => sockets::serve(&arguments),
        TrafficCommand::SocketsFetch(arguments) => {
            write_report(arguments.json.as_ref(), &sockets::fetch(&arguments)?)
        }
        TrafficCommand::Link(arguments) => link::relay(arguments),
        TrafficCommand::WholeFrames { interface } => linux::packet_socket::disable_offloads(&interface)
            .with_context(|| format!("switching the offloads of {interface} off")),
        TrafficCommand::Pace { file, period_ms } => pace::pace(&file, period_ms.map(Duration::from_millis)),
    }
}

/// Runs the flows that `arguments` ask for and reports what the receiving side saw.
///
/// # Errors
/// If the server cannot be reached or breaks the protocol.
pub fn fetch(arguments: &FetchArguments) -> Result<Report> {
    let flows = match arguments.transport {
        Transport::Quic => quic::fetch(arguments)?,
        Transport::Tcp | Transport::Mptcp => tcp::fetch(arguments)?,
    };
    Ok(Report::of_flows(arguments.transport, arguments.congestion, arguments.upload, flows))
}

fn write_report(file: Option<&PathBuf>, report: &impl serde::Serialize) -> Result<()> {
    let text = serde_json::to_string(report).context("writing the report")?;
    match file {
        Some(file) => fs::write(file, text + "\n").with_context(|| format!("writing {}", file.display())),
        None => writeln!(io::stdout(), "{text}").context("writing the report"),
    }
}
