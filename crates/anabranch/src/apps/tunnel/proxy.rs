//! The proxy that unmodified programs are pointed at: SOCKS5 (RFC 1928, without authentication) and HTTP
//! on one port of the loopback interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::TCP;
use super::http::{self, Request};
use crate::{ConnectError, ConnectOptions, Endpoint, Peer, VirtualStream};

/// How long a program waits for a peer that does not answer; some have nobody to ask meanwhile.
const PATIENCE: Duration = Duration::from_secs(10);
const SOCKS: u8 = 5;
const CONNECT: u8 = 1;
const GENERAL_FAILURE: u8 = 1;
const HOST_UNREACHABLE: u8 = 4;
const COMMAND_NOT_SUPPORTED: u8 = 7;

/// Where a program wants to go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Destination {
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: u16,
}

/// How a destination is reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Route {
    /// Over a virtual socket, at a port of this peer.
    Peer(Peer),
    /// By plain TCP.
    Plain,
}

/// A proxy that listens.
pub struct Proxy {
    listener: TcpListener,
    address: SocketAddr,
}

impl Proxy {
    /// Listens on a free port of the loopback interface.
    ///
    /// # Errors
    /// If the system refuses.
    pub async fn bind() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { listener, address })
    }

    /// Where programs find it.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves programs, until dropped; `route` says how each destination is reached.
    pub async fn run(self, endpoint: Endpoint, route: impl Fn(&str) -> Route + Send + Sync + 'static) {
        let route = Arc::new(route);
        loop {
            let connection = match self.listener.accept().await {
                Ok((connection, _)) => connection,
                Err(error) => {
                    debug!(%error, "a program's connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (endpoint, route) = (endpoint.clone(), Arc::clone(&route));
            tokio::spawn(async move {
                if let Err(error) = serve_program(connection, &endpoint, &*route).await {
                    debug!(%error, "a program's connection ended");
                }
            });
        }
    }
}

/// One connection of a program.
async fn serve_program(
    mut program: TcpStream,
    endpoint: &Endpoint,
    route: &(dyn Fn(&str) -> Route + Send + Sync),
) -> io::Result<()> {
    program.set_nodelay(true)?;
    let first = program.read_u8().await?;
    let is_socks = first == SOCKS;
    let request = match is_socks {
        true => socks_request(&mut program).await?.map(|destination| Request { destination, head: None }),
        false => http::read(&mut program, first).await?,
    };
    let Some(Request { destination, head }) = request else { return Ok(()) };
    let teller = match (is_socks, head.is_some()) {
        (true, _) => Teller::Socks,
        (false, false) => Teller::Connect,
        (false, true) => Teller::Request,
    };
    let head = head.unwrap_or_default();
    match route(&destination.host) {
        Route::Plain => {
            let reached = TcpStream::connect((destination.host.as_str(), destination.port)).await;
            let reply = if reached.is_ok() { 0 } else { HOST_UNREACHABLE };
            teller.tell(&mut program, reply).await?;
            let mut reached = reached?;
            reached.set_nodelay(true)?;
            reached.write_all(&head).await?;
            super::pass(program, reached).await
        }
        Route::Peer(peer) => match reach(endpoint, &peer, destination.port).await {
            Ok((reply, mut stream)) => {
                teller.tell(&mut program, reply).await?;
                if reply != 0 {
                    return Ok(());
                }
                stream.write_all(&head).await?;
                super::pass(program, stream).await
            }
            Err(error) => {
                teller.tell(&mut program, HOST_UNREACHABLE).await?;
                Err(error)
            }
        },
    }
}

async fn reach(endpoint: &Endpoint, peer: &Peer, port: u16) -> io::Result<(u8, VirtualStream)> {
    let options = ConnectOptions { deadline: PATIENCE, ..ConnectOptions::default() };
    let connected = endpoint.connect(peer, &options).await;
    let mut stream = connected.map_err(|error: ConnectError| io::Error::other(error))?;
    stream.write_all(format!("{TCP}{port}\n").as_bytes()).await?;
    let reply = stream.read_u8().await?;
    Ok((reply, stream))
}

/// In whose words the program is told what became of its request.
#[derive(Clone, Copy)]
enum Teller {
    Socks,
    /// HTTP CONNECT.
    Connect,
    /// Any other request of HTTP, which the server itself answers if it is reached.
    Request,
}

impl Teller {
    async fn tell(self, program: &mut TcpStream, reply: u8) -> io::Result<()> {
        let (status, why) = match (self, reply) {
            (Self::Socks, _) => return program.write_all(&[SOCKS, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await,
            (Self::Request, 0) => return Ok(()),
            (Self::Connect, 0) => ("200 Connection established", ""),
            (_, 2) => ("403 Forbidden", "The peer does not serve this port.\n"),
            _ => ("502 Bad Gateway", "Nothing answers there.\n"),
        };
        // The answer to CONNECT has no body (RFC 9110 section 9.3.6).
        let length = if reply == 0 { String::new() } else { format!("Content-Length: {}\r\n", why.len()) };
        program.write_all(format!("HTTP/1.1 {status}\r\n{length}\r\n{why}").as_bytes()).await
    }
}

/// Reads a SOCKS5 greeting and request after its first byte. `None` if it was answered with a refusal.
async fn socks_request(program: &mut TcpStream) -> io::Result<Option<Destination>> {
    let methods = program.read_u8().await?;
    let mut offered = vec![0; usize::from(methods)];
    program.read_exact(&mut offered).await?;
    if !offered.contains(&0) {
        program.write_all(&[SOCKS, 0xff]).await?;
        return Ok(None);
    }
    program.write_all(&[SOCKS, 0]).await?;
    let mut head = [0; 4];
    program.read_exact(&mut head).await?;
    let [version, command, _, kind] = head;
    if version != SOCKS || command != CONNECT {
        Teller::Socks.tell(program, COMMAND_NOT_SUPPORTED).await?;
        return Ok(None);
    }
    let host = match kind {
        1 => {
            let mut address = [0; 4];
            program.read_exact(&mut address).await?;
            IpAddr::from(Ipv4Addr::from(address)).to_string()
        }
        4 => {
            let mut address = [0; 16];
            program.read_exact(&mut address).await?;
            IpAddr::from(Ipv6Addr::from(address)).to_string()
        }
        3 => {
            let length = program.read_u8().await?;
            let mut name = vec![0; usize::from(length)];
            program.read_exact(&mut name).await?;
            String::from_utf8(name).map_err(|_| io::ErrorKind::InvalidData)?
        }
        _ => {
            Teller::Socks.tell(program, GENERAL_FAILURE).await?;
            return Ok(None);
        }
    };
    let port = program.read_u16().await?;
    Ok(Some(Destination { host, port }))
}
