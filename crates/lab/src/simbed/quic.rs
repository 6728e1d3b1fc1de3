//! A QUIC download by quinn's protocol core, in virtual time: the client asks on a stream, the server
//! writes to it as much as asked or without end.

use super::measure::Progress;
use super::segment::{FlowAddresses, udp_packet, udp_payload};
use super::tcp::Algorithm;
use anyhow::Context;
use bytes::BytesMut;
use quinn::rustls::RootCertStore;
use quinn::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use quinn_proto::congestion::{BbrConfig, CubicConfig, NewRenoConfig};
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, ServerConfig,
    StreamId, Transmit, TransportConfig, VarInt,
};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::Timestamp;

/// Flow-control windows: never the limit.
const WINDOW: u32 = 16 << 20;
/// The server writes in pieces of this size.
static PIECE: [u8; 65_536] = [0; 65_536];
const SERVER_NAME: &str = "server.test";

/// What both ends of a connection must share.
#[derive(Clone, Debug)]
pub struct QuicSetup {
    certificate: CertificateDer<'static>,
    key: Arc<PrivatePkcs8KeyDer<'static>>,
    algorithm: Algorithm,
    seed: [u8; 32],
    /// Quinn wants real points in time; only differences to this one are ever used.
    origin: Instant,
}

impl QuicSetup {
    /// A fresh certificate (Ed25519: always of one length) for connections under `algorithm`.
    ///
    /// # Errors
    /// If the certificate cannot be made.
    pub fn new(algorithm: Algorithm, seed: [u8; 32]) -> anyhow::Result<Self> {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).context("make a key for QUIC")?;
        let certificate = rcgen::CertificateParams::new(vec![SERVER_NAME.to_owned()])
            .and_then(|parameters| parameters.self_signed(&key))
            .context("make a certificate for QUIC")?;
        let key = Arc::new(PrivatePkcs8KeyDer::from(key.serialize_der()));
        Ok(Self { certificate: certificate.der().clone(), key, algorithm, seed, origin: Instant::now() })
    }

    fn transport(&self) -> Arc<TransportConfig> {
        let mut transport = TransportConfig::default();
        transport
            .stream_receive_window(VarInt::from_u32(WINDOW))
            .receive_window(VarInt::from_u32(WINDOW))
            .send_window(u64::from(WINDOW))
            .max_idle_timeout(Some(VarInt::from_u32(120_000).into()))
            .enable_segmentation_offload(false);
        match self.algorithm {
            Algorithm::Cubic => transport.congestion_controller_factory(Arc::new(CubicConfig::default())),
            Algorithm::Bbr => transport.congestion_controller_factory(Arc::new(BbrConfig::default())),
            Algorithm::Reno => transport.congestion_controller_factory(Arc::new(NewRenoConfig::default())),
        };
        Arc::new(transport)
    }

    fn endpoint_config(&self) -> Arc<EndpointConfig> {
        let mut config = EndpointConfig::default();
        config.rng_seed(Some(self.seed));
        Arc::new(config)
    }
}

/// One end of a QUIC connection.
pub struct QuicEnd {
    flow: FlowAddresses,
    endpoint: Endpoint,
    connection: Option<(ConnectionHandle, Connection)>,
    role: Role,
    origin: Instant,
    /// Datagrams that the endpoint itself wrote.
    written: VecDeque<Vec<u8>>,
}

enum Role {
    Client { config: Box<ClientConfig>, start: Timestamp, stream: Option<StreamId>, progress: Progress },
    Server { stream: Option<StreamId>, left: Option<u64> },
}

impl QuicEnd {
    /// A client on `flow.local` that asks `flow.remote` for data at `start`.
    ///
    /// # Errors
    /// If the certificate is refused.
    pub fn client(flow: FlowAddresses, setup: &QuicSetup, start: Timestamp) -> anyhow::Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(setup.certificate.clone()).context("trust the QUIC server")?;
        let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).context("configure QUIC")?;
        config.transport_config(setup.transport());
        let progress = Progress::starting_at(start);
        let role = Role::Client { config: Box::new(config), start, stream: None, progress };
        Ok(Self::new(flow, setup, None, role))
    }

    /// A server on `flow.local` that sends `bytes` to whoever asks, or without end.
    ///
    /// # Errors
    /// If the certificate is refused.
    pub fn server(flow: FlowAddresses, setup: &QuicSetup, bytes: Option<u64>) -> anyhow::Result<Self> {
        let key = PrivateKeyDer::Pkcs8(setup.key.clone_key());
        let mut config =
            ServerConfig::with_single_cert(vec![setup.certificate.clone()], key).context("configure QUIC")?;
        config.transport_config(setup.transport());
        Ok(Self::new(flow, setup, Some(Arc::new(config)), Role::Server { stream: None, left: bytes }))
    }

    fn new(flow: FlowAddresses, setup: &QuicSetup, server: Option<Arc<ServerConfig>>, role: Role) -> Self {
        let endpoint = Endpoint::new(setup.endpoint_config(), server, true, None);
        Self { flow, endpoint, connection: None, role, origin: setup.origin, written: VecDeque::new() }
    }

    /// What arrived at a client; `None` for a server.
    pub fn progress(&self) -> Option<&Progress> {
        match &self.role {
            Role::Client { progress, .. } => Some(progress),
            Role::Server { .. } => None,
        }
    }

    /// A packet arrived.
    pub fn handle_packet(&mut self, now: Timestamp, packet: &[u8]) {
        let Some(payload) = udp_payload(packet) else { return };
        let remote = SocketAddr::V4(self.flow.remote);
        let mut buffer = Vec::new();
        let instant = self.instant(now);
        match self.endpoint.handle(instant, remote, None, None, BytesMut::from(payload), &mut buffer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some((own, connection)) = &mut self.connection
                    && *own == handle
                {
                    connection.handle_event(event);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok(accepted) = self.endpoint.accept(incoming, instant, &mut buffer, None) {
                    self.connection = Some(accepted);
                }
            }
            Some(DatagramEvent::Response(transmit)) => self.write(&transmit, &buffer),
            None => {}
        }
        self.work(now);
    }

    /// A timer of `poll_timeout` expired.
    pub fn handle_timeout(&mut self, now: Timestamp) {
        let instant = self.instant(now);
        if self.connection.is_none()
            && let Role::Client { config, start, .. } = &self.role
            && *start <= now
        {
            let remote = SocketAddr::V4(self.flow.remote);
            self.connection = self.endpoint.connect(instant, (**config).clone(), remote, SERVER_NAME).ok();
        }
        if let Some((_, connection)) = &mut self.connection {
            connection.handle_timeout(instant);
        }
        self.work(now);
    }

    /// The next packet to send.
    pub fn poll_packet(&mut self, now: Timestamp) -> Option<Vec<u8>> {
        if let Some(packet) = self.written.pop_front() {
            return Some(packet);
        }
        let instant = self.instant(now);
        let (_, connection) = self.connection.as_mut()?;
        let mut buffer = Vec::with_capacity(1_500);
        let transmit = connection.poll_transmit(instant, 1, &mut buffer)?;
        Some(udp_packet(self.flow, buffer.get(..transmit.size)?))
    }

    /// When to call `handle_timeout`.
    pub fn poll_timeout(&mut self) -> Option<Timestamp> {
        match (&mut self.connection, &self.role) {
            (Some((_, connection)), _) => {
                let at = connection.poll_timeout()?;
                // Rounded up to a microsecond as timers are, so that no time is asked for twice.
                let nanos = at.saturating_duration_since(self.origin).as_nanos();
                Some(Timestamp::from_micros(u64::try_from(nanos.div_ceil(1_000)).unwrap_or(u64::MAX)))
            }
            (None, Role::Client { start, .. }) => Some(*start),
            (None, Role::Server { .. }) => None,
        }
    }

    /// Moves events between endpoint and connection and data between connection and application.
    fn work(&mut self, now: Timestamp) {
        let Some((handle, connection)) = &mut self.connection else { return };
        while let Some(event) = connection.poll_endpoint_events() {
            if let Some(answer) = self.endpoint.handle_event(*handle, event) {
                connection.handle_event(answer);
            }
        }
        while connection.poll().is_some() {}
        match &mut self.role {
            Role::Client { stream, progress, .. } => {
                if stream.is_none() && !connection.is_handshaking() {
                    *stream = connection.streams().open(Dir::Bi);
                    if let Some(id) = *stream {
                        // A fresh stream takes a short request whole.
                        let _ = connection.send_stream(id).write(b"everything, please");
                        let _ = connection.send_stream(id).finish();
                    }
                }
                if let Some(id) = *stream {
                    read_all(connection, id, |bytes| progress.add(now, bytes));
                }
            }
            Role::Server { stream, left } => {
                if stream.is_none() {
                    *stream = connection.streams().accept(Dir::Bi);
                }
                if let Some(id) = *stream {
                    write_more(connection, id, left);
                }
            }
        }
    }

    fn write(&mut self, transmit: &Transmit, buffer: &[u8]) {
        if let Some(payload) = buffer.get(..transmit.size) {
            self.written.push_back(udp_packet(self.flow, payload));
        }
    }

    fn instant(&self, now: Timestamp) -> Instant {
        self.origin + Duration::from_nanos(now.as_nanos())
    }
}

fn read_all(connection: &mut Connection, id: StreamId, mut take: impl FnMut(u64)) {
    let mut stream = connection.recv_stream(id);
    let Ok(mut chunks) = stream.read(true) else { return };
    let mut bytes = 0;
    while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
        bytes += chunk.bytes.len() as u64;
    }
    // The caller polls for transmission anyway.
    let _ = chunks.finalize();
    if bytes > 0 {
        take(bytes);
    }
}

fn write_more(connection: &mut Connection, id: StreamId, left: &mut Option<u64>) {
    loop {
        let most =
            left.map_or(PIECE.len(), |left| PIECE.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
        let mut stream = connection.send_stream(id);
        if most == 0 {
            // Fails only when it was finished before.
            let _ = stream.finish();
            return;
        }
        let Ok(written) = stream.write(&PIECE[..most]) else { return };
        if let Some(left) = left {
            *left -= written as u64;
        }
    }
}
