//! A download and a ping over virtual sockets, and what happened to them meanwhile.

use std::io::{ErrorKind, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anabranch::blocking::{Endpoint, VirtualStream};
use anabranch::{Admission, ConnectOptions, EndpointOptions, EventKind, Peer, PeerAddress};
use anyhow::{Context, Result};
use identity::KeyPair;
use policy::ConnectionWish;
use serde::{Deserialize, Serialize};

use super::pattern;
use super::record::{FlowReport, Recorder};

/// What a stream is for, in its first byte.
const DOWNLOAD: u8 = b'd';
const PING: u8 = b'p';
const BUFFER: usize = 64 << 10;
const PING_LENGTH: usize = 32;

/// The end that is called.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArguments {
    /// The only adapters that it uses.
    #[arg(long = "adapter")]
    adapters: Vec<String>,
    /// Where it listens.
    #[arg(long, default_value_t = 4_700)]
    port: u16,
    /// Which identity it has.
    #[arg(long, default_value_t = 2)]
    identity: u8,
}

/// The end that calls.
#[derive(Clone, Debug, clap::Args)]
pub struct FetchArguments {
    /// The only adapters that it uses.
    #[arg(long = "adapter")]
    adapters: Vec<String>,
    /// Where the other end may be.
    #[arg(long = "address", required = true)]
    addresses: Vec<PeerAddress>,
    /// Which identity this end has.
    #[arg(long, default_value_t = 1)]
    identity: u8,
    /// Which the other end has.
    #[arg(long, default_value_t = 2)]
    peer: u8,
    /// How much is downloaded.
    #[arg(long)]
    bytes: u64,
    /// Go by the cheapest adapter in place of the best.
    #[arg(long)]
    cheapest: bool,
    /// How long the set-up may take.
    #[arg(long, default_value_t = 20)]
    patience_s: u64,
    /// Time between two pings.
    #[arg(long, default_value_t = 100)]
    interval_ms: u64,
    /// File for the report; standard output without it.
    #[arg(long)]
    pub(super) json: Option<std::path::PathBuf>,
}

/// What the calling end saw.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SocketsReport {
    /// How long the set-up took, milliseconds.
    pub connect_milliseconds: f64,
    /// What came.
    pub flow: FlowReport,
    /// What happened to the connection, in words, with seconds since the download began.
    pub events: Vec<(f64, String)>,
    /// Which adapter carried it, from so many seconds on.
    pub carried_by: Vec<(f64, String)>,
    /// Round trips beside the download: seconds since it began, milliseconds.
    pub round_trips: Vec<(f64, f64)>,
}

/// Answers until ended.
///
/// # Errors
/// If there is no endpoint.
pub fn serve(arguments: &ServeArguments) -> Result<()> {
    let options = EndpointOptions::listening(key(arguments.identity)?, arguments.port, Admission::Anybody);
    let endpoint = Endpoint::bind(EndpointOptions { only: only(&arguments.adapters), ..options })?;
    for address in endpoint.asynchronous().addresses() {
        println!("listens at {address}");
    }
    let listener = endpoint.listen();
    loop {
        let stream = listener.accept().context("no more calls")?;
        std::thread::spawn(move || {
            let mut stream = stream;
            // What went wrong is the caller's to tell.
            let _ = answer(&mut stream);
        });
    }
}

fn answer(stream: &mut VirtualStream) -> std::io::Result<()> {
    let mut kind = [0];
    stream.read_exact(&mut kind)?;
    if kind == [PING] {
        let mut ping = [0; PING_LENGTH];
        loop {
            stream.read_exact(&mut ping)?;
            stream.write_all(&ping)?;
        }
    }
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let (block, mut left) = (pattern::block(), u64::from_be_bytes(length));
    while left > 0 {
        let count = block.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        stream.write_all(&block[..count])?;
        left -= count as u64;
    }
    stream.finish()
}

/// Downloads and pings.
///
/// # Errors
/// If the other end does not answer, or the connection ends before all has come.
pub fn fetch(arguments: &FetchArguments) -> Result<SocketsReport> {
    let options = EndpointOptions::new(key(arguments.identity)?);
    let endpoint = Endpoint::bind(EndpointOptions { only: only(&arguments.adapters), ..options })?;
    let heard = endpoint.events();
    let peer = Peer { key: key(arguments.peer)?.public(), addresses: arguments.addresses.clone() };
    let wish = if arguments.cheapest { ConnectionWish::Cheapest } else { ConnectionWish::default() };
    let connect = ConnectOptions {
        wish,
        deadline: Duration::from_secs(arguments.patience_s),
        ..ConnectOptions::default()
    };
    let begun = Instant::now();
    let mut stream = endpoint.connect(&peer, &connect)?;
    let connect_milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    let start = Instant::now();
    let events: Arc<Mutex<Vec<(f64, EventKind)>>> = Arc::default();
    let log = Arc::clone(&events);
    std::thread::spawn(move || {
        heard.for_each(|event| {
            let at = start.elapsed().as_secs_f64();
            log.lock().unwrap_or_else(PoisonError::into_inner).push((at, event.kind));
        });
    });
    let ping = endpoint.connect(&peer, &connect)?;
    let round_trips: Arc<Mutex<Vec<(f64, f64)>>> = Arc::default();
    let (log, interval) = (Arc::clone(&round_trips), Duration::from_millis(arguments.interval_ms.max(1)));
    std::thread::spawn(move || {
        // Ends with the endpoint.
        let _ = ping_on(ping, start, interval, &log);
    });
    let first = stream.standing().adapter.unwrap_or_default();
    let flow = download(&mut stream, arguments.bytes)?;
    drop(stream);
    let events = std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner));
    let round_trips = std::mem::take(&mut *round_trips.lock().unwrap_or_else(PoisonError::into_inner));
    endpoint.close();
    let mut carried_by = vec![(0.0, first)];
    carried_by.extend(events.iter().filter_map(|(at, kind)| match kind {
        EventKind::Switch { to, .. } => Some((*at, to.clone())),
        EventKind::On { adapter } => Some((*at, adapter.clone())),
        _ => None,
    }));
    let events = events.into_iter().map(|(at, kind)| (at, format!("{kind:?}"))).collect();
    Ok(SocketsReport { connect_milliseconds, flow, events, carried_by, round_trips })
}

fn download(stream: &mut VirtualStream, bytes: u64) -> Result<FlowReport> {
    stream.write_all(&[DOWNLOAD])?;
    stream.write_all(&bytes.to_be_bytes())?;
    let mut recorder = Recorder::start(LONGEST);
    let (mut buffer, mut left) = (vec![0; BUFFER], bytes);
    loop {
        let count = stream.read(&mut buffer).context("the download ended early")?;
        if count == 0 {
            break;
        }
        left = left.checked_sub(count as u64).context("more came than was asked for")?;
        recorder.arrived(&buffer[..count]);
    }
    anyhow::ensure!(left == 0, "{left} bytes did not come");
    Ok(recorder.finish(true))
}

fn ping_on(
    mut stream: VirtualStream,
    start: Instant,
    interval: Duration,
    log: &Mutex<Vec<(f64, f64)>>,
) -> std::io::Result<()> {
    stream.write_all(&[PING])?;
    let mut answer = [0; PING_LENGTH];
    loop {
        let sent = Instant::now();
        stream.write_all(&[7; PING_LENGTH])?;
        stream.read_exact(&mut answer)?;
        if answer != [7; PING_LENGTH] {
            return Err(ErrorKind::InvalidData.into());
        }
        let taken = (sent.duration_since(start).as_secs_f64(), sent.elapsed().as_secs_f64() * 1e3);
        log.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
        std::thread::sleep(interval.saturating_sub(sent.elapsed()));
    }
}

fn only(adapters: &[String]) -> Option<Vec<String>> {
    (!adapters.is_empty()).then(|| adapters.to_vec())
}

fn key(identity: u8) -> Result<KeyPair> {
    Ok(KeyPair::from_private([identity; 32])?)
}

/// No download is watched for longer.
const LONGEST: Duration = Duration::from_secs(86_400);
