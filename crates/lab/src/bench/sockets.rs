//! Virtual sockets beside plain TCP, in turns, on one cable: without a limit, and shaped. No proxies: the library alone.

use super::{Effort, median};
use crate::experiment::{Goal, Metrics};
use crate::netbed::{self, NetBed};
use anabranch::blocking::{Endpoint, VirtualListener, VirtualStream};
use anabranch::{Admission, ConnectOptions, EndpointOptions, Peer, PeerAddress};
use anyhow::Context;
use identity::KeyPair;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What the shaped cable carries, bits a second, and its queue.
const SHAPE: [&str; 6] = ["rate", "200mbit", "burst", "64k", "latency", "20ms"];
/// The cases: name, whether shaped, number of streams.
const CASES: [(&str, bool, usize); 4] =
    [("unshaped-1", false, 1), ("unshaped-10", false, 10), ("shaped-1", true, 1), ("shaped-10", true, 10)];
const PORT: u16 = 4_700;
const PIECE: usize = 128 * 1024;

/// What issue 6 asks for: 0.5 of native TCP without a limit, 0.97 where the link is one.
pub(super) fn goals() -> Vec<Goal> {
    CASES
        .iter()
        .map(|(case, shaped, _)| {
            Goal::at_least(format!("{case}.goodput_over_tcp"), if *shaped { 0.97 } else { 0.5 })
        })
        .collect()
}

/// Both kinds of connections between two machines.
struct Ends {
    client: Endpoint,
    _server: Endpoint,
    listener: VirtualListener,
    peer: Peer,
    plain: TcpListener,
    bed: NetBed,
}

pub(super) fn run(effort: Effort) -> anyhow::Result<Metrics> {
    let (rounds, time) = match effort {
        Effort::Quick => (1, Duration::from_secs(1)),
        Effort::Full => (5, Duration::from_secs(3)),
    };
    let ends = Ends::new()?;
    let mut metrics = Metrics::new();
    let mut is_shaped = false;
    for (case, shaped, streams) in CASES {
        if shaped && !is_shaped {
            ends.shape()?;
            is_shaped = true;
        }
        let mut samples = Vec::new();
        for round in 1..=rounds {
            let (plain, of_plain) = ends.with_cable(|| ends.over_tcp(streams, time))?;
            let (ours, of_ours) = ends.with_cable(|| ends.over_sockets(streams, time))?;
            eprintln!(
                "  {case} round {round}: {ours:.3} Gbit/s, TCP {plain:.3}; of the cable {of_ours:.4}, {of_plain:.4}"
            );
            samples.push((ours, plain));
        }
        for (name, figure) in [
            ("sockets_gbps", samples.iter().map(|(ours, _)| *ours).collect::<Vec<f64>>()),
            ("tcp_gbps", samples.iter().map(|(_, plain)| *plain).collect()),
            ("goodput_over_tcp", samples.iter().map(|(ours, plain)| ours / plain).collect()),
        ] {
            metrics.insert(format!("{case}.{name}"), median(&figure).context("no round was run")?);
        }
    }
    Ok(metrics)
}

impl Ends {
    fn new() -> anyhow::Result<Self> {
        let bed = NetBed::unshaped(1)?;
        let bind = |options| Endpoint::bind(options).map_err(anyhow::Error::from);
        let key = KeyPair::generate()?;
        let options = EndpointOptions::listening(key, PORT, Admission::Anybody);
        let public = options.key.public();
        let server = bed.gateway.run(|| bind(options))??;
        let own = EndpointOptions::new(KeyPair::generate()?);
        let client = bed.device.run(|| bind(own))??;
        // Directly over the cable, for both kinds.
        let address = server
            .asynchronous()
            .addresses()
            .into_iter()
            .filter_map(PeerAddress::ip)
            .find(|address| address.ip() == IpAddr::V4(netbed::provider_address(0)))
            .context("the far end of the cable has no address")?;
        let plain = bed.gateway.run(|| TcpListener::bind((address.ip(), 0)))??;
        let listener = server.listen();
        let peer = Peer { key: public, addresses: vec![address.into()] };
        Ok(Self { client, _server: server, listener, peer, plain, bed })
    }

    fn shape(&self) -> anyhow::Result<()> {
        for (machine, interface) in [(&self.bed.device, "net1"), (&self.bed.gateway, "isp1")] {
            let mut tc = machine.command("tc")?;
            tc.args(["qdisc", "add", "dev", interface, "root", "tbf"]).args(SHAPE);
            anyhow::ensure!(tc.status()?.success(), "tc cannot shape {interface}");
        }
        Ok(())
    }

    /// The rate of a transfer, and which part of the bytes that it put on the cable were of the application.
    fn with_cable(
        &self,
        transfer: impl FnOnce() -> anyhow::Result<Transferred>,
    ) -> anyhow::Result<(f64, f64)> {
        let before = self.sent()?;
        let done = transfer()?;
        Ok((done.rate, done.bytes as f64 / (self.sent()? - before) as f64))
    }

    /// Bytes that the client has put on the cable so far.
    fn sent(&self) -> anyhow::Result<u64> {
        let output = self.bed.device.command("cat")?.arg("/proc/net/dev").output()?;
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix("net1:"));
        let sent = line.and_then(|line| line.split_whitespace().nth(8)).context("no counters of net1")?;
        Ok(sent.parse()?)
    }

    fn over_tcp(&self, streams: usize, time: Duration) -> anyhow::Result<Transferred> {
        let address = self.plain.local_addr()?;
        let mut pairs = Vec::new();
        for _ in 0..streams {
            let near = self.bed.device.run(|| TcpStream::connect(address))??;
            pairs.push((near, self.plain.accept()?.0));
        }
        transfer(pairs, time)
    }

    fn over_sockets(&self, streams: usize, time: Duration) -> anyhow::Result<Transferred> {
        let mut pairs: Vec<(VirtualStream, VirtualStream)> = Vec::new();
        for _ in 0..streams {
            let mut near = self.client.connect(&self.peer, &ConnectOptions::default())?;
            near.write_all(&[0])?;
            let mut far = self.listener.accept()?;
            far.read_exact(&mut [0])?;
            pairs.push((near, far));
        }
        transfer(pairs, time)
    }
}

/// What a transfer came to.
struct Transferred {
    /// Thousand million bits a second, while queues and windows were full.
    rate: f64,
    /// All bytes that arrived.
    bytes: u64,
}

/// Sends from all first ends to all second ones for so long.
fn transfer<S: Write + Send, R: Read + Send>(
    pairs: Vec<(S, R)>,
    time: Duration,
) -> anyhow::Result<Transferred> {
    let (arrived, all, start) = (AtomicU64::new(0), AtomicU64::new(0), Instant::now());
    // What is measured begins when queues and windows are full.
    let (from, until) = (start + time / 4, start + time);
    std::thread::scope(|scope| -> anyhow::Result<()> {
        let mut threads = Vec::new();
        for (sender, receiver) in pairs {
            let (arrived, all) = (&arrived, &all);
            threads.push(scope.spawn(move || send(sender, until)));
            threads.push(scope.spawn(move || receive(receiver, all, arrived, from, until)));
        }
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread of the transfer has panicked"))??;
        }
        Ok(())
    })?;
    let rate = arrived.load(Ordering::Relaxed) as f64 * 8.0 / until.duration_since(from).as_secs_f64() / 1e9;
    Ok(Transferred { rate, bytes: all.load(Ordering::Relaxed) })
}

fn send(mut sender: impl Write, until: Instant) -> io::Result<()> {
    let piece = vec![7; PIECE];
    while Instant::now() < until {
        sender.write_all(&piece)?;
    }
    Ok(())
}

fn receive(
    mut receiver: impl Read,
    all: &AtomicU64,
    arrived: &AtomicU64,
    from: Instant,
    until: Instant,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let count = receiver.read(&mut piece)?;
        let now = Instant::now();
        if count == 0 {
            return Ok(());
        }
        all.fetch_add(count as u64, Ordering::Relaxed);
        if (from..until).contains(&now) {
            arrived.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
