//! The proxy that unmodified programs are pointed at: SOCKS5 (RFC 1928, without authentication) and HTTP CONNECT (RFC 9110 section 9.3.6)
//! on one port of the loopback interface.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tracing::debug;

use super::TCP;
use crate::{ConnectError, ConnectOptions, Endpoint, Peer, VirtualStream};

/// Longest request line and headers of HTTP, bytes.
const MAX_REQUEST: usize = 8_192;
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
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
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
    let destination = match is_socks {
        true => socks_request(&mut program).await?,
        false => http_request(&mut program, first).await?,
    };
    let Some(destination) = destination else { return Ok(()) };
    match route(&destination.host) {
        Route::Plain => {
            let reached = TcpStream::connect((destination.host.as_str(), destination.port)).await;
            let reply = if reached.is_ok() { 0 } else { HOST_UNREACHABLE };
            tell(&mut program, is_socks, reply).await?;
            super::pass(program, reached?).await
        }
        Route::Peer(peer) => match reach(endpoint, &peer, destination.port).await {
            Ok((reply, stream)) => {
                tell(&mut program, is_socks, reply).await?;
                if reply == 0 { super::pass(program, stream).await } else { Ok(()) }
            }
            Err(error) => {
                tell(&mut program, is_socks, HOST_UNREACHABLE).await?;
                Err(error)
            }
        },
    }
}

async fn reach(endpoint: &Endpoint, peer: &Peer, port: u16) -> io::Result<(u8, VirtualStream)> {
    let connected = endpoint.connect(peer, &ConnectOptions::default()).await;
    let mut stream = connected.map_err(|error: ConnectError| io::Error::other(error))?;
    stream.write_all(format!("{TCP}{port}\n").as_bytes()).await?;
    let reply = stream.read_u8().await?;
    Ok((reply, stream))
}

/// Tells the program what became of its request, in its own protocol.
async fn tell(program: &mut TcpStream, is_socks: bool, reply: u8) -> io::Result<()> {
    if is_socks {
        return program.write_all(&[SOCKS, reply, 0, 1, 0, 0, 0, 0, 0, 0]).await;
    }
    let status = match reply {
        0 => "200 Connection established",
        2 => "403 Forbidden",
        _ => "502 Bad Gateway",
    };
    program.write_all(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).await
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
        tell(program, true, COMMAND_NOT_SUPPORTED).await?;
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
            tell(program, true, GENERAL_FAILURE).await?;
            return Ok(None);
        }
    };
    let port = program.read_u16().await?;
    Ok(Some(Destination { host, port }))
}

/// Reads an HTTP CONNECT request after its first byte. `None` if it was answered with a refusal.
async fn http_request(program: &mut TcpStream, first: u8) -> io::Result<Option<Destination>> {
    let mut request = vec![first];
    while !request.ends_with(b"\r\n\r\n") {
        if request.len() >= MAX_REQUEST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // One by one: what follows the request is the program's first bytes.
        request.push(program.read_u8().await?);
    }
    let destination = connect_target(&request);
    if destination.is_none() {
        program.write_all(b"HTTP/1.1 405 Method Not Allowed\r\nAllow: CONNECT\r\n\r\n").await?;
    }
    Ok(destination)
}

/// The destination of `CONNECT host:port HTTP/1.1`.
fn connect_target(request: &[u8]) -> Option<Destination> {
    let line = std::str::from_utf8(request).ok()?.lines().next()?;
    let mut words = line.split(' ');
    let target = words.next().filter(|method| *method == "CONNECT").and_then(|_| words.next())?;
    let (host, port) = target.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some(Destination { host: host.to_owned(), port: port.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_connect() {
        let target = |text: &str| connect_target(text.as_bytes());
        let host = |host: &str, port| Some(Destination { host: host.to_owned(), port });
        assert_eq!(target("CONNECT laptop:22 HTTP/1.1\r\nHost: x\r\n\r\n"), host("laptop", 22));
        assert_eq!(target("CONNECT [2001:db8::1]:443 HTTP/1.1\r\n\r\n"), host("2001:db8::1", 443));
        for wrong in [
            "GET / HTTP/1.1\r\n\r\n",
            "CONNECT laptop HTTP/1.1\r\n\r\n",
            "CONNECT laptop:70000 x",
            "",
            "CONNECT",
        ] {
            assert_eq!(target(wrong), None, "{wrong}");
        }
    }
}
