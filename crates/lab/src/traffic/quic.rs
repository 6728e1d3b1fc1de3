//! Bulk flows over QUIC: one quinn connection with one stream a flow.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use quinn::congestion::{BbrConfig, ControllerFactory, CubicConfig};
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, SendStream, ServerConfig};
use quinn::{TokioRuntime, TransportConfig, VarInt};
use socket2::Type;
use tokio::time::{Instant, timeout_at};

use super::record::{FlowReport, Recorder};
use super::request::{Congestion, MAX_LINE, Request};
use super::tcp::bound_socket;
use super::{FetchArguments, pattern};

/// Serves every flow that comes; the address's port does CUBIC, the next one BBR. Returns only on error.
///
/// # Errors
/// If the address cannot be used or the certificate cannot be written.
pub fn serve(listen: SocketAddr, certificate: Option<&Path>) -> Result<()> {
    let made =
        rcgen::generate_simple_self_signed(vec![SERVER_NAME.to_owned()]).context("making a certificate")?;
    let chain = vec![made.cert.der().clone()];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    runtime()?.block_on(async move {
        let endpoint = |congestion| -> Result<Endpoint> {
            let mut config =
                ServerConfig::with_single_cert(chain.clone(), key.clone_key()).context("setting up TLS")?;
            config.transport_config(Arc::new(transport(congestion)));
            let address = address_for(listen, congestion);
            Endpoint::server(config, address).with_context(|| format!("listening on {address}"))
        };
        let (cubic, bbr) = (endpoint(Congestion::Cubic)?, endpoint(Congestion::Bbr)?);
        if let Some(file) = certificate {
            // Whole at once: a client waits for it to be there.
            let part = file.with_extension("part");
            fs::write(&part, &chain[0])
                .and_then(|()| fs::rename(&part, file))
                .with_context(|| format!("writing {}", file.display()))?;
        }
        loop {
            let incoming = tokio::select! {
                incoming = cubic.accept() => incoming,
                incoming = bbr.accept() => incoming,
            };
            let Some(incoming) = incoming else { bail!("the QUIC endpoint was closed") };
            tokio::spawn(async move {
                let flow = async { serve_flow(incoming.await.context("handshake")?).await };
                if let Err(error) = flow.await {
                    eprintln!("a flow failed: {error:#}");
                }
            });
        }
    })
}

/// Runs the flows that `arguments` ask for.
///
/// # Errors
/// If the certificate cannot be read or a flow cannot be set up.
pub fn fetch(arguments: &FetchArguments) -> Result<Vec<FlowReport>> {
    ensure!((1..=1_000).contains(&arguments.flows), "--flows {}: 1 to 1000", arguments.flows);
    ensure!(arguments.congestion != Congestion::Reno, "--congestion reno is for TCP; QUIC has cubic and bbr");
    let file = arguments
        .certificate
        .as_ref()
        .context("--transport quic needs --certificate, as written by the server")?;
    let certificate = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(certificate)).context("the certificate is not valid")?;
    let tls = ClientConfig::with_root_certificates(Arc::new(roots)).context("setting up TLS")?;
    runtime()?.block_on(async {
        let mut flows = tokio::task::JoinSet::new();
        for _ in 0..arguments.flows {
            flows.spawn(fetch_flow(tls.clone(), arguments.clone()));
        }
        flows.join_all().await.into_iter().collect()
    })
}

async fn fetch_flow(mut tls: ClientConfig, arguments: FetchArguments) -> Result<FlowReport> {
    let request = Request {
        upload: arguments.upload,
        bytes: arguments.bytes,
        seconds: arguments.seconds,
        congestion: arguments.congestion,
        message: None,
    };
    let mut recorder = Recorder::start(request.window()?);
    let server = address_for(arguments.server, request.congestion);
    let socket = bound_socket(server, Type::DGRAM, None, arguments.interface.as_deref())?;
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    socket.bind(&any.parse::<SocketAddr>()?.into()).context("binding a UDP socket")?;
    let endpoint = Endpoint::new(EndpointConfig::default(), None, socket.into(), Arc::new(TokioRuntime))
        .context("setting up QUIC")?;
    tls.transport_config(Arc::new(transport(request.congestion)));
    let connecting = endpoint.connect_with(tls, server, SERVER_NAME).context("setting up QUIC")?;
    let connection = connecting.await.with_context(|| format!("connecting to {server}"))?;
    let (mut sender, mut receiver) = connection.open_bi().await.context("opening a stream")?;
    sender.write_all(&request.to_line()?).await.context("sending the request")?;
    let report = if request.upload {
        send(&mut sender, &request).await?;
        let report = receiver.read_to_end(MAX_REPORT).await.context("reading the server's report")?;
        serde_json::from_slice(&report).context("the server sent no valid report")?
    } else {
        let ended = receive_into(&mut receiver, &mut recorder).await?;
        recorder.finish(ended)
    };
    connection.close(VarInt::from_u32(0), b"");
    endpoint.wait_idle().await;
    Ok(report)
}

async fn serve_flow(connection: Connection) -> Result<()> {
    let (mut sender, mut receiver) = connection.accept_bi().await.context("waiting for a stream")?;
    let request = Request::parse(&read_line(&mut receiver).await?)?;
    if request.upload {
        let mut recorder = Recorder::start(request.window()?);
        let ended = receive_into(&mut receiver, &mut recorder).await?;
        let report = serde_json::to_vec(&recorder.finish(ended)).context("writing the report")?;
        sender.write_all(&report).await.context("sending the report")?;
        sender.finish().context("ending the stream")?;
    } else {
        send(&mut sender, &request).await?;
    }
    connection.closed().await;
    Ok(())
}

/// Sends content until the asked bytes or time are over, or the receiver has seen enough.
async fn send(stream: &mut SendStream, request: &Request) -> Result<()> {
    let block = pattern::block();
    let deadline = Instant::now() + request.window()?;
    let mut left = request.bytes.unwrap_or(u64::MAX);
    let mut at = 0;
    while left > 0 {
        let length = (block.len() - at).min(usize::try_from(left).unwrap_or(usize::MAX));
        let Ok(Ok(written)) = timeout_at(deadline, stream.write(&block[at..at + length])).await else {
            break;
        };
        at = (at + written) % block.len();
        left -= written as u64;
    }
    // The receiver may have stopped the stream already.
    let _ = stream.finish();
    Ok(())
}

/// Receives until the sender ends the flow (true) or the recorder's deadline (false).
async fn receive_into(stream: &mut RecvStream, recorder: &mut Recorder) -> Result<bool> {
    let deadline = Instant::from_std(recorder.deadline());
    loop {
        match timeout_at(deadline, stream.read_chunk(64 << 10, true)).await {
            Ok(Ok(Some(chunk))) => recorder.arrived(&chunk.bytes),
            Ok(Ok(None)) => return Ok(true),
            Ok(Err(error)) => return Err(error).context("receiving"),
            Err(_) => return Ok(false),
        }
    }
}

async fn read_line(stream: &mut RecvStream) -> Result<Vec<u8>> {
    let mut line = Vec::new();
    let mut byte = [0];
    while line.len() <= MAX_LINE {
        stream.read_exact(&mut byte).await.context("reading the request")?;
        match byte[0] {
            b'\n' => return Ok(line),
            byte => line.push(byte),
        }
    }
    bail!("the request is longer than {MAX_LINE} bytes")
}

/// Defaults but for the windows, which must hold a bandwidth-delay product of 50 Mbit/s and 640 ms several times, and
/// the idle time-out, which must outlast the outages that are measured.
fn transport(congestion: Congestion) -> TransportConfig {
    let controller: Arc<dyn ControllerFactory + Send + Sync> = match congestion {
        Congestion::Bbr => Arc::new(BbrConfig::default()),
        Congestion::Cubic | Congestion::Reno => Arc::new(CubicConfig::default()),
    };
    let window = VarInt::from_u32(WINDOW);
    let mut transport = TransportConfig::default();
    transport
        .congestion_controller_factory(controller)
        .stream_receive_window(window)
        .receive_window(window)
        .send_window(u64::from(WINDOW))
        .max_idle_timeout(Some(VarInt::from_u32(IDLE_TIMEOUT.as_millis() as u32).into()));
    transport
}

/// A server's congestion control is set before it knows the client's wish, so each has its port.
fn address_for(mut address: SocketAddr, congestion: Congestion) -> SocketAddr {
    if congestion == Congestion::Bbr {
        address.set_port(address.port().wrapping_add(1));
    }
    address
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the event loop")
}

const SERVER_NAME: &str = "traffic.test";
const WINDOW: u32 = 16 << 20;
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
const MAX_REPORT: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Transport;

    #[test]
    fn bytes_arrive_whole_in_both_directions() {
        let directory = tempfile::tempdir().unwrap();
        let certificate = directory.path().join("certificate");
        let server: SocketAddr = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        // The server lives as long as the test's process.
        std::thread::spawn({
            let certificate = certificate.clone();
            move || serve(server, Some(&certificate))
        });
        while !certificate.exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        for (upload, congestion) in [(false, Congestion::Cubic), (true, Congestion::Bbr)] {
            let arguments = FetchArguments {
                server,
                transport: Transport::Quic,
                congestion,
                flows: 2,
                seconds: 20.0,
                bytes: Some(1_000_001),
                upload,
                message: None,
                interface: None,
                certificate: Some(certificate.clone()),
                json: None,
            };
            for flow in fetch(&arguments).unwrap() {
                assert_eq!(flow.bytes, 1_000_001, "upload {upload}");
                assert!(flow.intact);
            }
        }
    }
}
