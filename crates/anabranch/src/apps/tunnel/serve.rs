//! The serving end: ports of this machine that peers may reach.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tracing::debug;

use super::TCP;
use crate::VirtualStream;

/// SOCKS5 replies.
const CONNECTED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const REFUSED: u8 = 5;

/// Connects a peer's stream to the port of this machine that it asks for, if that is one of `ports`, and passes bytes until
/// both ends are done.
///
/// # Errors
/// If the stream speaks another protocol or fails.
pub async fn serve(mut stream: VirtualStream, ports: &[u16]) -> io::Result<()> {
    let mut line = Vec::new();
    loop {
        match stream.read_u8().await? {
            b'\n' => break,
            _ if line.len() > TCP.len() + 5 => return Err(io::ErrorKind::InvalidData.into()),
            byte => line.push(byte),
        }
    }
    let wanted = std::str::from_utf8(&line).ok().and_then(|line| line.strip_prefix(TCP)?.parse::<u16>().ok());
    let wanted = wanted.ok_or(io::ErrorKind::InvalidData)?;
    if !ports.contains(&wanted) {
        stream.write_all(&[NOT_ALLOWED]).await?;
        return stream.finish().await;
    }
    let hosts = [SocketAddr::from((Ipv4Addr::LOCALHOST, wanted)), (Ipv6Addr::LOCALHOST, wanted).into()];
    match TcpStream::connect(&hosts[..]).await {
        Ok(connection) => {
            connection.set_nodelay(true)?;
            stream.write_all(&[CONNECTED]).await?;
            super::pass(stream, connection).await
        }
        Err(error) => {
            debug!(%error, wanted, "a port does not answer");
            stream.write_all(&[REFUSED]).await?;
            stream.finish().await
        }
    }
}
