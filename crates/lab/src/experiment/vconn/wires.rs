//! Both kinds of connections between two machines of the namespace bed, for what is compared.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anabranch::blocking::{Endpoint, VirtualListener, VirtualStream};
use anabranch::{Admission, ConnectOptions, EndpointOptions, Peer};
use anyhow::Context;
use identity::KeyPair;

use crate::netbed::NetBed;
use crate::simbed::quantile;

const PORT: u16 = 4_700;
const PATIENCE: Duration = Duration::from_secs(20);

/// An endpoint and a TCP socket at the far end, and an endpoint on the device.
pub(super) struct Wires<'a> {
    bed: &'a NetBed,
    pub(super) client: Endpoint,
    server: Endpoint,
    listener: VirtualListener,
    plain: TcpListener,
    pub(super) peer: Peer,
}

impl<'a> Wires<'a> {
    /// To `address` of the bed's gateway.
    pub(super) fn open(bed: &'a NetBed, address: impl Into<std::net::IpAddr>) -> anyhow::Result<Self> {
        let address = SocketAddr::new(address.into(), PORT);
        let options = EndpointOptions::listening(KeyPair::generate()?, PORT, Admission::Anybody);
        let key = options.key.public();
        let server = bed.gateway.run(|| Endpoint::bind(options))??;
        let plain = bed.gateway.run(|| TcpListener::bind((address.ip(), 0)))??;
        let listener = server.listen();
        let peer = Peer { key, addresses: vec![address.into()] };
        Ok(Self { bed, client: endpoint(bed)?, server, listener, plain, peer })
    }

    /// A virtual socket, both ends.
    pub(super) fn virtual_pair(&self) -> anyhow::Result<(VirtualStream, VirtualStream)> {
        let mut near = self.client.connect(&self.peer, &ConnectOptions::default())?;
        near.write_all(&[0])?;
        let mut far = self.listener.accept()?;
        far.read_exact(&mut [0])?;
        Ok((near, far))
    }

    /// A TCP connection, both ends.
    pub(super) fn tcp_pair(&self) -> anyhow::Result<(TcpStream, TcpStream)> {
        let address = self.plain.local_addr()?;
        let near = self.bed.device.run(|| TcpStream::connect(address))??;
        Ok((near, self.plain.accept()?.0))
    }

    /// Answers one byte on each connection of either kind from now on; returns where TCP does so.
    pub(super) fn answer(self) -> anyhow::Result<(Peer, SocketAddr, Endpoint)> {
        let Self { listener, plain, peer, server, .. } = self;
        let address = plain.local_addr()?;
        std::thread::spawn(move || {
            while let Ok(stream) = listener.accept() {
                std::thread::spawn(move || echo(stream));
            }
        });
        std::thread::spawn(move || {
            for stream in plain.incoming().flatten() {
                std::thread::spawn(move || echo(stream));
            }
        });
        Ok((peer, address, server))
    }
}

/// An endpoint on the device.
pub(super) fn endpoint(bed: &NetBed) -> anyhow::Result<Endpoint> {
    let options = EndpointOptions::new(KeyPair::generate()?);
    Ok(bed.device.run(|| Endpoint::bind(options))??)
}

fn echo(mut stream: impl Read + Write) {
    let mut byte = [0];
    // Who asks measures; an end that has gone asks no more.
    while stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte)).is_ok() {}
}

/// Waits until both pairs of adapters are ready.
pub(super) fn wait_for_paths(stream: &VirtualStream, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while stream.standing().paths < count {
        anyhow::ensure!(Instant::now() < deadline, "not all networks became paths");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A byte stream that is sent all the time, and checked where it arrives.
pub(super) struct Flow {
    stop: Arc<AtomicBool>,
    longest: Arc<Mutex<(Instant, Duration)>>,
    writing: JoinHandle<io::Result<u64>>,
    reading: JoinHandle<io::Result<(u64, bool)>>,
}

impl Flow {
    /// `piece` bytes each `pause`, from one end to the other.
    pub(super) fn start(
        sender: impl Write + Send + 'static,
        receiver: impl Read + Send + 'static,
        piece: usize,
        pause: Duration,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let longest = Arc::new(Mutex::new((Instant::now(), Duration::ZERO)));
        let told = Arc::clone(&stop);
        let writing = std::thread::spawn(move || write(sender, piece, pause, &told));
        let gaps = Arc::clone(&longest);
        let reading = std::thread::spawn(move || read(receiver, &gaps));
        Self { stop, longest, writing, reading }
    }

    /// The longest time without any byte since this was asked last.
    pub(super) fn take_gap(&self) -> Duration {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        let gap = longest.1.max(longest.0.elapsed());
        longest.1 = Duration::ZERO;
        gap
    }

    /// Ends it; the number of bytes, all of which arrived as they were sent.
    pub(super) fn finish(self) -> anyhow::Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = || anyhow::anyhow!("a thread of the transfer has panicked");
        let sent = self.writing.join().map_err(|_| panicked())??;
        let (received, right) = self.reading.join().map_err(|_| panicked())??;
        anyhow::ensure!(
            right && sent == received,
            "{sent} bytes were sent, {received} arrived, right: {right}"
        );
        Ok(sent)
    }
}

fn write(mut sender: impl Write, piece: usize, pause: Duration, stop: &AtomicBool) -> io::Result<u64> {
    let mut at = 0u64;
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let bytes: Vec<u8> = (at..at + piece as u64).map(byte).collect();
        sender.write_all(&bytes)?;
        at += piece as u64;
        next += pause;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(at)
}

fn read(mut receiver: impl Read, longest: &Mutex<(Instant, Duration)>) -> io::Result<(u64, bool)> {
    let mut buffer = vec![0; 65_536];
    let (mut at, mut right) = (0u64, true);
    loop {
        let count = receiver.read(&mut buffer)?;
        if count == 0 {
            return Ok((at, right));
        }
        {
            let mut longest = longest.lock().unwrap_or_else(PoisonError::into_inner);
            *longest = (Instant::now(), longest.1.max(longest.0.elapsed()));
        }
        right &= buffer.iter().take(count).zip(at..).all(|(found, at)| *found == byte(at));
        at += count as u64;
    }
}

fn byte(at: u64) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// Milliseconds at a quantile.
///
/// # Errors
/// If there are no times.
pub(super) fn milliseconds(times: &[Duration], fraction: f64) -> anyhow::Result<f64> {
    let times: Vec<f64> = times.iter().map(|time| time.as_secs_f64() * 1e3).collect();
    let found = quantile(&times, fraction).context("nothing was measured")?;
    Ok((found * 1e3).round() / 1e3)
}
