//! TCP programs over virtual sockets: a loopback proxy at the one end, ports that are open to peers at the other.
//!
//! ```text
//! curl -- SOCKS5 or HTTP --> proxy == virtual stream ==> serve -- TCP --> 127.0.0.1:PORT
//! ```
//!
//! After the first line, `anabranch tcp PORT`, the serving end answers with one byte, 0 for "connected" or the SOCKS5 reply (RFC 1928
//! section 6) that fits; then bytes are passed both ways, each direction ended by itself.

mod http;
mod proxy;
mod serve;

pub use proxy::{Destination, Proxy, Route};
pub use serve::serve;

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy};

/// Begins the first line of a stream that carries a TCP connection; a port follows.
pub const TCP: &str = "anabranch tcp ";

/// Passes bytes both ways until both directions have ended; an error of one ends the other.
///
/// # Errors
/// The first error.
pub(crate) async fn pass<A, B>(one: A, other: B) -> io::Result<()>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (mut one_reader, mut one_writer) = tokio::io::split(one);
    let (mut other_reader, mut other_writer) = tokio::io::split(other);
    let there = async {
        copy(&mut one_reader, &mut other_writer).await?;
        other_writer.shutdown().await
    };
    let back = async {
        copy(&mut other_reader, &mut one_writer).await?;
        one_writer.shutdown().await
    };
    tokio::try_join!(there, back).map(drop)
}
