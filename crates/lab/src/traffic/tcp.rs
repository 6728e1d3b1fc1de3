//! Bulk flows over the kernel's TCP and MPTCP, one thread a flow.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, Protocol, Socket, Type};

use super::pattern;
use super::record::{FlowReport, Recorder};
use super::request::{MAX_LINE, Request, Transport};
use super::{FetchArguments, request::Congestion};

/// Serves every flow that comes. Returns only on error.
///
/// # Errors
/// If the address cannot be used.
pub fn serve(listen: SocketAddr, transport: Transport) -> Result<()> {
    let listener = Socket::new(Domain::for_address(listen), Type::STREAM, protocol(transport))
        .context("making a socket")?;
    listener.set_reuse_address(true).context("setting up the socket")?;
    listener.bind(&listen.into()).with_context(|| format!("binding {listen}"))?;
    listener.listen(128).with_context(|| format!("listening on {listen}"))?;
    loop {
        let (stream, _) = listener.accept().context("waiting for flows")?;
        thread::spawn(move || {
            if let Err(error) = serve_flow(stream.into()) {
                eprintln!("a flow failed: {error:#}");
            }
        });
    }
}

/// Runs the flows that `arguments` ask for.
///
/// # Errors
/// If a flow cannot be set up or the server breaks the protocol.
pub fn fetch(arguments: &FetchArguments) -> Result<Vec<FlowReport>> {
    ensure!((1..=1_000).contains(&arguments.flows), "--flows {}: 1 to 1000", arguments.flows);
    let flows: Vec<_> = (0..arguments.flows)
        .map(|_| {
            let arguments = arguments.clone();
            thread::spawn(move || fetch_flow(&arguments))
        })
        .collect();
    flows
        .into_iter()
        .map(|flow| flow.join().map_err(|_| anyhow::anyhow!("the thread of a flow failed"))?)
        .collect()
}

/// A socket for `server`'s kind of address, bound to `interface` where given.
///
/// # Errors
/// If the kernel refuses it.
pub fn bound_socket(
    server: SocketAddr,
    kind: Type,
    protocol: Option<Protocol>,
    interface: Option<&str>,
) -> Result<Socket> {
    let socket = Socket::new(Domain::for_address(server), kind, protocol).context("making a socket")?;
    if let Some(interface) = interface {
        let bound = socket.bind_device(Some(interface.as_bytes()));
        bound.with_context(|| format!("binding to interface {interface}"))?;
    }
    Ok(socket)
}

fn serve_flow(mut stream: TcpStream) -> Result<()> {
    let request = Request::parse(&read_line(&mut stream)?)?;
    if request.upload {
        let report = receive(&mut stream, request.window()?)?;
        let mut line = serde_json::to_vec(&report).context("writing the report")?;
        line.push(b'\n');
        stream.write_all(&line).context("sending the report")?;
        stream.shutdown(Shutdown::Write).context("ending the report")?;
        return drain(&mut stream);
    }
    set_congestion(&stream, request.congestion)?;
    send(&mut stream, &request)
}

fn fetch_flow(arguments: &FetchArguments) -> Result<FlowReport> {
    let request = Request {
        upload: arguments.upload,
        bytes: arguments.bytes,
        seconds: arguments.seconds,
        congestion: arguments.congestion,
        message: arguments.message,
    };
    let mut recorder = Recorder::start(request.window()?);
    let interface = arguments.interface.as_deref();
    let socket = bound_socket(arguments.server, Type::STREAM, protocol(arguments.transport), interface)?;
    let connected = socket.connect_timeout(&arguments.server.into(), CONNECT_TIMEOUT.max(request.window()?));
    connected.with_context(|| format!("connecting to {}", arguments.server))?;
    let mut stream: TcpStream = socket.into();
    if request.upload {
        set_congestion(&stream, request.congestion)?;
    }
    stream.write_all(&request.to_line()?).context("sending the request")?;
    if !request.upload {
        let ended = receive_into(&mut stream, &mut recorder)?;
        return Ok(recorder.finish(ended));
    }
    send(&mut stream, &request)?;
    serde_json::from_slice(&read_report(&mut stream)?).context("the server sent no valid report")
}

/// Sends content until the asked bytes or time are over, or the receiver has seen enough.
fn send(stream: &mut TcpStream, request: &Request) -> Result<()> {
    let block = pattern::block();
    let message = request.message.map_or(usize::MAX, |bytes| bytes.max(1) as usize);
    let deadline = Instant::now() + request.window()?;
    let mut left = request.bytes.unwrap_or(u64::MAX);
    let mut at = 0;
    // A receiver that is gone for good must not hold the sender.
    stream
        .set_write_timeout(Some(request.window()?.max(CONNECT_TIMEOUT)))
        .context("setting the write time-out")?;
    while left > 0 && Instant::now() < deadline {
        let length = (block.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX)).min(message);
        let Ok(written) = stream.write(&block[at..at + length]) else { return Ok(()) };
        at = (at + written) % block.len();
        left -= written as u64;
    }
    // The receiver may have closed first.
    let _ = stream.shutdown(Shutdown::Write);
    Ok(())
}

fn receive(stream: &mut TcpStream, window: Duration) -> Result<FlowReport> {
    let mut recorder = Recorder::start(window);
    let ended = receive_into(stream, &mut recorder)?;
    Ok(recorder.finish(ended))
}

/// Receives until the sender ends the flow (true) or the recorder's deadline (false).
fn receive_into(stream: &mut TcpStream, recorder: &mut Recorder) -> Result<bool> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let left = recorder.deadline().saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(false);
        }
        stream
            .set_read_timeout(Some(left.max(Duration::from_millis(1))))
            .context("setting the read time-out")?;
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(true),
            Ok(length) => recorder.arrived(&buffer[..length]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error).context("receiving"),
        }
    }
}

/// Takes what is still under way until the sender ends, for a while: closing before would reset the connection, and
/// the report with it.
fn drain(stream: &mut TcpStream) -> Result<()> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    stream.set_read_timeout(Some(CONNECT_TIMEOUT)).context("setting the read time-out")?;
    let mut buffer = vec![0; 64 << 10];
    while Instant::now() < deadline && stream.read(&mut buffer).context("receiving the rest")? > 0 {}
    Ok(())
}

/// Reads byte by byte: what follows the line belongs to the flow.
fn read_line(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= MAX_LINE {
        stream.read_exact(&mut byte).context("reading the request")?;
        match byte[0] {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
    }
    bail!("the request is longer than {MAX_LINE} bytes")
}

fn read_report(stream: &mut TcpStream) -> Result<Vec<u8>> {
    let mut report = Vec::new();
    stream.take(MAX_REPORT).read_to_end(&mut report).context("reading the server's report")?;
    Ok(report)
}

fn set_congestion(stream: &TcpStream, congestion: Congestion) -> Result<()> {
    let name = congestion.name();
    let set = socket2::SockRef::from(stream).set_tcp_congestion(name.as_bytes());
    set.with_context(|| {
        format!(
            "congestion control {name}: load it with modprobe tcp_{name}; an ordinary user also needs it in \
             net.ipv4.tcp_allowed_congestion_control"
        )
    })
}

fn protocol(transport: Transport) -> Option<Protocol> {
    (transport == Transport::Mptcp).then_some(Protocol::MPTCP)
}

fn is_timeout(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
    matches!(error.kind(), WouldBlock | TimedOut | Interrupted)
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REPORT: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn server() -> SocketAddr {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The server lives as long as the test's process.
        thread::spawn(move || serve(address, Transport::Tcp));
        thread::sleep(Duration::from_millis(50));
        address
    }

    fn arguments(server: SocketAddr) -> FetchArguments {
        FetchArguments {
            server,
            transport: Transport::Tcp,
            // The one that every user may choose everywhere.
            congestion: Congestion::Reno,
            flows: 1,
            seconds: 5.0,
            bytes: None,
            upload: false,
            message: None,
            interface: None,
            certificate: None,
            json: None,
        }
    }

    #[test]
    fn bytes_arrive_whole_in_both_directions() {
        let server = server();
        for upload in [false, true] {
            let bytes = Some(3_000_001);
            let flows = fetch(&FetchArguments { bytes, upload, flows: 3, ..arguments(server) }).unwrap();
            assert_eq!(flows.len(), 3);
            for flow in flows {
                assert_eq!(flow.bytes, 3_000_001, "upload {upload}");
                assert!(flow.intact && flow.seconds < 5.0);
            }
        }
    }

    #[test]
    fn time_ends_a_flow() {
        // On a busy machine nothing may have come by then.
        let flow = |seconds| fetch(&FetchArguments { seconds, ..arguments(server()) }).unwrap().remove(0);
        let tries = [0.2, 1.0, 5.0].into_iter().map(|seconds| (seconds, flow(seconds)));
        let (seconds, flow) = { tries }.find(|(_, flow)| flow.bytes > 0).unwrap();
        assert!(flow.intact && (flow.seconds - seconds).abs() < 1e-6);
    }

    #[test]
    fn an_upload_that_time_ends_is_reported() {
        let server = server();
        // Again on a machine that is so busy that nothing has come by then.
        let carried = (0..20).filter(|_| {
            let upload = FetchArguments { seconds: 0.1, upload: true, flows: 4, ..arguments(server) };
            let flows = fetch(&upload).unwrap();
            assert!(flows.iter().all(|flow| flow.intact));
            flows.iter().all(|flow| flow.bytes > 0)
        });
        assert_eq!(carried.take(3).count(), 3);
    }

    #[test]
    fn nonsense_ends_its_own_flow_only() {
        let server = server();
        let mut stream = TcpStream::connect(server).unwrap();
        stream.write_all(&[b'x'; 2_000]).unwrap();
        let mut rest = Vec::new();
        // The server closes with unread bytes: an error or an end, but no content.
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty());
        assert_eq!(fetch(&FetchArguments { bytes: Some(10), ..arguments(server) }).unwrap()[0].bytes, 10);
    }
}
