//! The plainest download there is: a client names a number of bytes in one line, the server sends them.
//!
//! The bytes are those of a seeded generator, so the client can tell by a hash whether exactly the right
//! ones came, however many it took.

use anyhow::Context;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use ring::digest;
use socket2::{Domain, Socket, Type};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Most bytes that a client may ask for: 16 GiB.
const MOST_BYTES: u64 = 16 << 30;
const PIECE: usize = 64 << 10;
/// Longest request line.
const LONGEST_LINE: usize = 80;

/// A download.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The server.
    pub server: SocketAddr,
    /// Only over this interface.
    pub interface: Option<String>,
    /// How many bytes.
    pub bytes: u64,
    /// Which bytes.
    pub seed: u64,
    /// Stop after this time, with what came.
    pub most_time: Option<Duration>,
    /// Give up when nothing comes for this long.
    pub patience: Duration,
}

/// How a download went.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct FetchReport {
    /// Bytes that came.
    pub bytes: u64,
    /// They are the right ones.
    pub verified: bool,
    /// As many came as were asked for.
    pub complete: bool,
    /// Seconds from the connection's first packet to the last byte.
    pub seconds: f64,
    /// Longest time between two arrivals, milliseconds.
    pub longest_stall_ms: f64,
}

impl FetchReport {
    /// Million bits per second.
    pub fn goodput_mbps(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 * 8.0 / self.seconds / 1e6 } else { 0.0 }
    }
}

/// A listener whose connections use the congestion control `control` ("cubic", "bbr", ...).
///
/// # Errors
/// If the address is taken or the kernel does not have that congestion control.
pub fn listen(address: SocketAddr, control: &str) -> anyhow::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).context("open a socket")?;
    socket.set_reuse_address(true).context("set up a socket")?;
    socket
        .set_tcp_congestion(control.as_bytes())
        .with_context(|| format!("use the congestion control {control} (is its kernel module loaded?)"))?;
    socket.bind(&address.into()).with_context(|| format!("listen on {address}"))?;
    socket.listen(64).with_context(|| format!("listen on {address}"))?;
    Ok(socket.into())
}

/// Serves downloads on `listener` until the process ends; a thread per connection.
///
/// # Errors
/// If no connection can be accepted any more.
pub fn serve(listener: &TcpListener) -> anyhow::Result<()> {
    loop {
        let (stream, _) = listener.accept().context("accept a connection")?;
        // A client that goes away ends its own thread only.
        std::thread::spawn(move || drop(answer(stream)));
    }
}

/// Answers one request: `GET SEED BYTES\n`.
fn answer(mut stream: TcpStream) -> anyhow::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let mut line = Vec::new();
    let mut byte = [0];
    while byte != *b"\n" {
        stream.read_exact(&mut byte)?;
        line.extend_from_slice(&byte);
        anyhow::ensure!(line.len() <= LONGEST_LINE, "the request is too long");
    }
    let line = String::from_utf8(line)?;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let ["GET", seed, bytes] = fields[..] else { anyhow::bail!("not a request: {line:?}") };
    let (mut left, mut content) = (bytes.parse::<u64>()?, Content::new(seed.parse()?));
    anyhow::ensure!(left <= MOST_BYTES, "more than {MOST_BYTES} bytes");
    let mut piece = vec![0; PIECE];
    while left > 0 {
        let count = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
        content.fill(&mut piece[..count]);
        stream.write_all(&piece[..count])?;
        left -= count as u64;
    }
    Ok(())
}

/// Downloads; `progress` hears the number of bytes that came so far and may end the download by `false`.
///
/// # Errors
/// If no connection comes about, or nothing comes for as long as the request's patience.
pub fn fetch(request: &FetchRequest, progress: &mut dyn FnMut(u64) -> bool) -> anyhow::Result<FetchReport> {
    let start = Instant::now();
    let mut stream = connect(request).with_context(|| match &request.interface {
        Some(interface) => format!("connect to {} over {interface}", request.server),
        None => format!("connect to {}", request.server),
    })?;
    stream
        .write_all(format!("GET {} {}\n", request.seed, request.bytes).as_bytes())
        .context("send the request")?;
    let (mut bytes, mut last, mut longest) = (0, Instant::now(), Duration::ZERO);
    let mut received = digest::Context::new(&digest::SHA256);
    let mut piece = vec![0; PIECE];
    while bytes < request.bytes && request.most_time.is_none_or(|most| start.elapsed() < most) {
        let count = stream.read(&mut piece).with_context(|| {
            format!(
                "receive: {bytes} of {} bytes came, then nothing for {:.1} s",
                request.bytes,
                last.elapsed().as_secs_f64()
            )
        })?;
        if count == 0 {
            break;
        }
        let now = Instant::now();
        if bytes > 0 {
            longest = longest.max(now - last);
        }
        last = now;
        bytes += count as u64;
        received.update(&piece[..count]);
        if !progress(bytes) {
            break;
        }
    }
    let seconds = (last - start).as_secs_f64();
    let expected = Content::new(request.seed).hash(bytes);
    Ok(FetchReport {
        bytes,
        verified: received.finish().as_ref() == expected.as_ref(),
        complete: bytes == request.bytes,
        seconds,
        longest_stall_ms: longest.as_secs_f64() * 1e3,
    })
}

fn connect(request: &FetchRequest) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(request.server), Type::STREAM, None)?;
    if let Some(interface) = &request.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.connect_timeout(&request.server.into(), request.patience)?;
    socket.set_read_timeout(Some(request.patience))?;
    Ok(socket.into())
}

/// The bytes of a seed.
struct Content {
    generator: ChaCha8Rng,
}

impl Content {
    fn new(seed: u64) -> Self {
        Self { generator: ChaCha8Rng::seed_from_u64(seed) }
    }

    /// The next bytes. All pieces but the last must be multiples of four long, as the generator works in
    /// words; [`PIECE`] is.
    fn fill(&mut self, piece: &mut [u8]) {
        self.generator.fill_bytes(piece);
    }

    /// SHA-256 of the first `bytes`.
    fn hash(mut self, bytes: u64) -> digest::Digest {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut piece = vec![0; PIECE];
        let mut left = bytes;
        while left > 0 {
            let count = PIECE.min(usize::try_from(left).unwrap_or(PIECE));
            self.fill(&mut piece[..count]);
            context.update(&piece[..count]);
            left -= count as u64;
        }
        context.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(server: SocketAddr) -> FetchRequest {
        FetchRequest {
            server,
            interface: None,
            bytes: 1_000_003,
            seed: 5,
            most_time: None,
            patience: Duration::from_secs(10),
        }
    }

    fn serve_in_background() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || serve(&listener));
        address
    }

    #[test]
    fn a_download_is_verified_whole_and_in_part() {
        let request = request(serve_in_background());
        let whole = fetch(&request, &mut |_| true).unwrap();
        assert!(whole.verified && whole.complete);
        let part = fetch(&request, &mut |bytes| bytes < 300_000).unwrap();
        assert!(part.verified && !part.complete && part.bytes >= 300_000);
    }

    #[test]
    fn a_wrong_byte_is_noticed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut stream = listener.accept().unwrap().0;
            assert!(stream.read(&mut [0; 80]).unwrap() > 0);
            let mut content = vec![0; 1_000_003];
            Content::new(5).fill(&mut content);
            content[700_000] ^= 1;
            stream.write_all(&content).unwrap();
        });
        let report = fetch(&request(address), &mut |_| true).unwrap();
        assert!(report.complete && !report.verified);
    }
}
